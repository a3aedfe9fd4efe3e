from rows import MAX_TOKENS, answer, key, model, prompts, report, url

import openai
from batchkit import BatchClient

# The package speaks /v1/responses alone.
client = BatchClient(openai.OpenAI(base_url=url, api_key=key), storage_root="jobs")
results = client.map(
    name="rows", items=prompts, model=model, build_request=lambda prompt: {"input": prompt, "max_output_tokens": MAX_TOKENS}
).wait(poll_interval=0.2)
rows = results.ordered().rows
report(
    [answer(row.order, row.response["body"]["output"][0]["content"][0]["text"], row.response["body"]["usage"]) for row in rows if row.ok],
    [row.order for row in rows if not row.ok],
)
