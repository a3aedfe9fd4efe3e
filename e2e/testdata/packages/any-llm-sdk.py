import json
import time

from rows import OVER, completion, key, prompts, report, request, url

from any_llm import create_batch, list_batches, retrieve_batch, retrieve_batch_results

to = {"provider": "openai", "api_key": key, "api_base": url}
with open("requests.jsonl", "w") as f:
    for row, prompt in enumerate(prompts):
        print(json.dumps(request(row, prompt)), file=f)
batch = create_batch(input_file_path="requests.jsonl", endpoint="/v1/chat/completions", **to)
while batch.status not in OVER:
    time.sleep(0.2)
    batch = retrieve_batch(batch_id=batch.id, **to)
assert batch.id in [one.id for one in list_batches(**to)]
results = retrieve_batch_results(batch_id=batch.id, **to).results
report(
    [completion(int(one.custom_id), one.result.model_dump()) for one in results if one.result],
    [int(one.custom_id) for one in results if one.error],
)
