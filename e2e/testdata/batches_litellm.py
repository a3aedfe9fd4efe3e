"""Drives a node with LiteLLM, unmodified, by api_base alone:
batches_litellm.py BASE KEY.
"""

import io
import json
import sys
import time

import litellm

base, key = sys.argv[1:]


def lines(model):
    for n in range(50):
        body = {"model": model, "messages": [{"role": "user", "content": f"What is {n}?"}], "max_tokens": 8}
        yield json.dumps({"custom_id": f"row-{n}", "method": "POST", "url": "/v1/chat/completions", "body": body})


for provider in ("openai", "hosted_vllm"):
    to = {"custom_llm_provider": provider, "api_base": base + "/v1", "api_key": key}
    sent = litellm.create_file(file=("in.jsonl", io.BytesIO("\n".join(lines("llama-3.1-8b")).encode())), purpose="batch", **to)
    batch = litellm.create_batch(completion_window="24h", endpoint="/v1/chat/completions", input_file_id=sent.id, **to)
    end = time.monotonic() + 60
    while batch.status not in ("completed", "failed", "expired", "cancelled"):
        assert time.monotonic() < end, batch
        time.sleep(0.1)
        batch = litellm.retrieve_batch(batch_id=batch.id, **to)
    assert batch.status == "completed" and batch.request_counts.completed == 50, batch
    content = litellm.file_content(file_id=batch.output_file_id, **to)
    text = content.text if isinstance(content.text, str) else content.text()
    got = [json.loads(line) for line in text.splitlines()]
    assert [line["custom_id"] for line in got] == [f"row-{n}" for n in range(50)], got
    assert all(line["response"]["body"]["usage"]["completion_tokens"] == 8 for line in got), got
    assert batch.id in [b.id for b in litellm.list_batches(**to).data], provider
    print(provider, "all right")
