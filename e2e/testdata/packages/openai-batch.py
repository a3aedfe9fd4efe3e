import json
import time

from rows import MAX_TOKENS, OVER, key, messages, model, outcome, prompts, report, url

from openai_batch import Batch
from openai_batch.providers import get_provider_by_base_url

provider = get_provider_by_base_url(url)
provider.api_key = key
# One Batch writes the file and another one sends it: 0.3.4 reads its own file after it
# has closed it.
with Batch("requests.jsonl", provider=provider) as written:
    for prompt in prompts:
        written.add_to_batch(model=model, messages=messages(prompt), max_tokens=MAX_TOKENS)
batch = Batch("requests.jsonl", "output.jsonl", "errors.jsonl", provider=provider)
batch.submit()
while batch.status().status not in OVER:
    time.sleep(0.2)
output, errors = batch.download()


def lines(path):
    """The package calls its first request line-1."""
    for line in map(json.loads, open(path)):
        yield line | {"custom_id": int(line["custom_id"].removeprefix("line-")) - 1}


report(*outcome(lines(output), lines(errors)))
