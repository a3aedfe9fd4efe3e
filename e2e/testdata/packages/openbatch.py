import json
import time

from rows import MAX_TOKENS, OVER, key, messages, model, outcome, prompts, report, url

import openai
from openbatch import BatchCollector

# The package writes the file; OpenAI's client sends it.
collector = BatchCollector("requests.jsonl")
for row, prompt in enumerate(prompts):
    collector.chat.completions.create(custom_id=str(row), model=model, messages=messages(prompt), max_completion_tokens=MAX_TOKENS)
client = openai.OpenAI(base_url=url, api_key=key)
sent = client.files.create(purpose="batch", file=open("requests.jsonl", "rb"))
batch = client.batches.create(input_file_id=sent.id, endpoint="/v1/chat/completions", completion_window="24h")
while batch.status not in OVER:
    time.sleep(0.2)
    batch = client.batches.retrieve(batch.id)


def lines(file):
    return [json.loads(line) for line in client.files.content(file).iter_lines()]


report(*outcome(lines(batch.output_file_id), lines(batch.error_file_id)))
