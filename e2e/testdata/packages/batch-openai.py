from rows import MAX_TOKENS, completion, key, messages, model, prompts, report, url

import openai
from batch_openai import BatchJob, BatchRequestBuilder

client = openai.OpenAI(base_url=url, api_key=key)
builder = BatchRequestBuilder()
for row, prompt in enumerate(prompts):
    builder.add(messages(prompt), custom_id=str(row), model=model, max_tokens=MAX_TOKENS)
job = builder.submit(client, description="rows")
assert BatchJob.from_id(client, job.batch_id).description == "rows"
result = job.wait(poll_interval=0.2)
report(
    [completion(int(item.custom_id), item.raw_response) for item in result.succeeded],
    [int(item.custom_id) for item in result.failed],
)
