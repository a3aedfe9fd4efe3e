"""Sends images in one batch by OpenAI's client. Arguments: the address of a node; its key; the
address of the inference server of the node, which is asked for the same answers; its model."""

import base64, json, struct, sys, time, zlib

from openai import OpenAI

base, key, server, model = sys.argv[1:]


def png(*colour):
    """Returns a PNG file of 16 x 16 pixels of a colour, with red, green and blue from 0 to 255."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * 16) * 16
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def request(image):
    url = "data:image/png;base64," + base64.b64encode(image).decode()
    content = [{"type": "text", "text": "Name the colour."}, {"type": "image_url", "image_url": {"url": url}}]
    # Without the cache of prompts, equal requests have equal answers.
    return {"model": model, "max_tokens": 40, "temperature": 0, "cache_prompt": False, "messages": [{"role": "user", "content": content}]}


images = {"red": png(255, 0, 0), "green": png(0, 255, 0), "blue": png(0, 0, 255), "red again": png(255, 0, 0)}
client = OpenAI(base_url=base + "/v1", api_key=key)
lines = [json.dumps({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": request(image)}) for name, image in images.items()]
sent = client.files.create(purpose="batch", file=("images.jsonl", "\n".join(lines).encode()))
batch = client.batches.create(input_file_id=sent.id, endpoint="/v1/chat/completions", completion_window="24h")
while batch.status not in ("completed", "failed", "expired", "cancelled"):
    time.sleep(0.1)
    batch = client.batches.retrieve(batch.id)
assert batch.status == "completed" and batch.request_counts.completed == len(images), batch

answers = {}
for line in client.files.content(batch.output_file_id).iter_lines():
    line = json.loads(line)
    answers[line["custom_id"]] = line["response"]["body"]["choices"][0]["message"]["content"]
assert list(answers) == list(images), answers
assert answers["red"] == answers["red again"] and len(set(answers.values())) == 3, answers

direct = OpenAI(base_url=server + "/v1", api_key="none")
for name, image in images.items():
    body = request(image)
    extra = {"cache_prompt": body.pop("cache_prompt")}
    answer = direct.chat.completions.create(**body, extra_body=extra).choices[0].message.content
    assert answer == answers[name], (name, answer, answers[name])
