import io
import json
import time

from rows import OVER, key, outcome, prompts, report, request, url

from portkey_ai import Portkey

# api_key is that of Portkey's own service, which is not here.
client = Portkey(api_key="unused", Authorization="Bearer " + key, base_url=url)
text = "\n".join(json.dumps(request(row, prompt)) for row, prompt in enumerate(prompts))
sent = client.files.create(purpose="batch", file=("in.jsonl", io.BytesIO(text.encode())))
batch = client.batches.create(input_file_id=sent.id, endpoint="/v1/chat/completions", completion_window="24h")
while batch.status not in OVER:
    time.sleep(0.2)
    batch = client.batches.retrieve(batch.id)


def lines(file):
    return [json.loads(line) for line in client.files.content(file).text.splitlines()]


report(*outcome(lines(batch.output_file_id), lines(batch.error_file_id)))
