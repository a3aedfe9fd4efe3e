import io
import json
import os
import time

from rows import OVER, key, outcome, prompts, report, request, url

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches a page at its start

import litellm

to = {"custom_llm_provider": "openai", "api_base": url, "api_key": key}
text = "\n".join(json.dumps(request(row, prompt)) for row, prompt in enumerate(prompts))
sent = litellm.create_file(file=("in.jsonl", io.BytesIO(text.encode())), purpose="batch", **to)
batch = litellm.create_batch(completion_window="24h", endpoint="/v1/chat/completions", input_file_id=sent.id, **to)
while batch.status not in OVER:
    time.sleep(0.2)
    batch = litellm.retrieve_batch(batch_id=batch.id, **to)


def lines(file):
    text = litellm.file_content(file_id=file, **to).text
    return [json.loads(line) for line in (text if isinstance(text, str) else text()).splitlines()]


report(*outcome(lines(batch.output_file_id), lines(batch.error_file_id)))
