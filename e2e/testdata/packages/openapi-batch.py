from rows import MAX_TOKENS, completion, key, model, prompts, report, url

from openapi.batch import BatchClient
from openapi.batch.models import ResultOk

client = BatchClient(provider="openai", api_key=key, base_url=url, default_model=model, openai_poll_interval_s=0.2)
items = [{"item_id": str(row), "input": {"prompt": prompt, "max_tokens": MAX_TOKENS}} for row, prompt in enumerate(prompts)]
results = client.map(mode="native", items=items, async_submit=False).results_dict()
report(
    [completion(int(row), got.value["response"]["body"]) for row, got in results.items() if isinstance(got, ResultOk)],
    [int(row) for row, got in results.items() if not isinstance(got, ResultOk)],
)
