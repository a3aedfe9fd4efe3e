"""Drives a node with OpenAI's client for Python, unmodified: batches_openai.py BASE KEY.

Every check that fails is an AssertionError with what was seen.
"""

import hashlib
import io
import json
import pathlib
import sys
import tempfile
import time
import urllib.request

import openai
from openai import OpenAI
from openai.types.responses import Response

base, key = sys.argv[1:]
client = OpenAI(base_url=base + "/v1", api_key=key)
OVER = {"completed", "failed", "expired", "cancelled"}


def line(custom_id, body, url="/v1/chat/completions", **more):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body, **more}


def chat(text, **more):
    return {"model": "llama-3.1-8b", "messages": [{"role": "user", "content": text}], "max_tokens": 8, **more}


def upload(lines, name="in.jsonl"):
    text = b"".join((l if isinstance(l, bytes) else json.dumps(l).encode()) + b"\n" for l in lines)
    return client.files.create(purpose="batch", file=(name, text))


def start(lines, endpoint="/v1/chat/completions", **more):
    return client.batches.create(input_file_id=upload(lines).id, endpoint=endpoint, completion_window="24h", **more)


def wait(batch, until=OVER, patience=120):
    end = time.monotonic() + patience
    while batch.status not in until:
        assert time.monotonic() < end, f"{batch.id} is {batch.status} after {patience} s"
        time.sleep(0.1)
        batch = client.batches.retrieve(batch.id)
    return batch


def read(file_id):
    if file_id is None:
        return []
    return [json.loads(l) for l in client.files.content(file_id).iter_lines()]


def outcome(batch):
    """The lines of both files; every request has one, and is counted by it."""
    good, bad = read(batch.output_file_id), read(batch.error_file_id)
    assert (len(good), len(bad)) == (batch.request_counts.completed, batch.request_counts.failed), batch
    assert len(good) + len(bad) == batch.request_counts.total, batch
    assert (batch.output_file_id is None) == (not good) and (batch.error_file_id is None) == (not bad), batch
    for l in good:
        assert l["response"]["status_code"] == 200 and l["error"] is None, l
    for l in bad:
        assert l["response"] is None and l["error"] or l["response"]["status_code"] >= 400 and l["error"] is None, l
    return good, bad


def refused(kind, do, code=None, param=None):
    try:
        do()
    except kind as e:
        assert code is None or e.code == code, (e.code, e.body)
        assert param is None or e.param == param, (e.param, e.body)
        assert e.request_id, e
        return e
    raise AssertionError(f"not refused: {kind}")


# 1. Upload, create, poll, content: the order of the input.
many = [line(f"row {n} é", chat(f"What is {n}?")) for n in range(300)]
batch = start(many, metadata={"team": "mill"})
assert batch.object == "batch" and batch.metadata == {"team": "mill"} and batch.expires_at - batch.created_at == 86400, batch
batch = wait(batch)
assert batch.status == "completed" and batch.errors is None and batch.completed_at and batch.in_progress_at, batch
assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (300, 300, 0), batch
good, bad = outcome(batch)
assert [l["custom_id"] for l in good] == [l["custom_id"] for l in many] and batch.error_file_id is None
assert all(l["response"]["body"]["choices"][0]["message"]["content"] for l in good)
total = sum(l["response"]["body"]["usage"]["total_tokens"] for l in good)
assert batch.usage.total_tokens == total, (batch.usage, total)
out = client.files.retrieve(batch.output_file_id)
assert out.purpose == "batch_output" and out.bytes == len(client.files.content(out.id).read()), out

# 2. Uploads by path, bytes, file object; names.
text = json.dumps(line("a", chat("x"))).encode()
with tempfile.NamedTemporaryFile(suffix=".jsonl") as f:
    f.write(text)
    f.flush()
    for sent in (pathlib.Path(f.name), open(f.name, "rb"), text, ("naïve name.txt", io.BytesIO(text))):
        made = client.files.create(purpose="batch", file=sent, expires_after={"anchor": "created_at", "seconds": 3600})
        assert made.bytes == len(text) and made.status == "processed" and made.expires_at - made.created_at == 3600, made
        assert client.files.wait_for_processing(made.id).id == made.id
        content = client.files.content(made.id)
        assert content.read() == text
        offered = content.response.headers["content-disposition"]
        assert "filename=" in offered and made.id not in offered, offered
assert "filename*=UTF-8''na%C3%AFve%20name.txt" in offered, offered

# 3. Refusals beside answers; all refused.
mixed = wait(start([line("good", chat("x")), line("bad", chat("x", max_tokens=-1)), line("fine", chat("y"))]))
good, bad = outcome(mixed)
assert [l["custom_id"] for l in good] == ["good", "fine"] and [l["custom_id"] for l in bad] == ["bad"], (good, bad)
assert bad[0]["response"]["status_code"] == 400 and bad[0]["response"]["body"]["error"]["message"], bad
none = wait(start([line(f"r{n}", chat("x", max_tokens=-1)) for n in range(5)]))
assert none.status == "completed" and none.output_file_id is None and none.request_counts.failed == 5, none
assert len(outcome(none)[1]) == 5

# 4. Every fault of a line; what a file may look like.
for lines, want in (
    ([b"nonsense"], [("invalid_json_line", 1)]),
    ([line("a", chat("x")), line("a", chat("x"))], [("duplicate_custom_id", 2)]),
    ([line("a", chat("x")), line("b", chat("x"), url="/v1/embeddings")], [("url_mismatch", 2)]),
    ([line("a", chat("x")), line("b", {**chat("x"), "model": "qwen-3-14b-thinking"})], [("model_mismatch", 2)]),
    ([line("a", chat("x")), line("b", chat("x", stream=True)), b"{"], [("invalid_request", 2), ("invalid_json_line", 3)]),
    ([b""], [("empty_file", None)]),
):
    failed = wait(start(lines))
    seen = [(e.code, e.line) for e in failed.errors.data]
    assert failed.status == "failed" and failed.failed_at and seen == want, (seen, want)
    assert all(e.message for e in failed.errors.data) and failed.request_counts.total is not None
odd = b"\xef\xbb\xbf" + b"\r\n\r\n".join(json.dumps(line(c, chat("one\u2028two\u0085three"))).encode() for c in "ab")
sent = client.files.create(purpose="batch", file=odd)
odd = wait(client.batches.create(input_file_id=sent.id, endpoint="/v1/chat/completions", completion_window="1h"))
assert [l["custom_id"] for l in outcome(odd)[0]] == ["a", "b"]
echo = client.files.content(odd.output_file_id).text
assert len(echo.splitlines()) == 2, echo

# 5. Cancelling.
long = start([line(f"c{n}", chat("x", max_tokens=400, ignore_eos=True)) for n in range(4000)])
wait(long, {"in_progress"})
while (seen := client.batches.retrieve(long.id)).request_counts.completed == 0:
    assert seen.status == "in_progress", seen
    time.sleep(0.1)
gone = client.batches.cancel(long.id)
assert gone.status == "cancelling", gone
gone = wait(gone)
assert gone.status == "cancelled" and gone.cancelled_at and gone.request_counts.completed > 0, gone
good, bad = outcome(gone)
assert len(good) == gone.request_counts.completed and all(l["error"]["code"] == "batch_cancelled" for l in bad), bad[:2]
assert sorted(l["custom_id"] for l in good + bad) == sorted(f"c{n}" for n in range(4000))
assert client.batches.cancel(long.id).status == "cancelled"
refused(openai.BadRequestError, lambda: client.batches.cancel(batch.id), "batch_over")

# 7. Pages while others are created.
one = upload([line("a", chat("x"))])
crowd = [client.batches.create(input_file_id=one.id, endpoint="/v1/chat/completions", completion_window="24h").id for _ in range(250)]
seen = []
for b in client.batches.list(limit=20):
    seen.append(b.id)
    if len(seen) % 100 == 50:
        start([line("meanwhile", chat("x"))])
assert seen[:250] == crowd[::-1] and len(seen) == len(set(seen)) and gone.id in seen
first = client.batches.list(limit=2, after=crowd[0])
assert len(first.data) == 2 and first.has_more and first.data[0].id == gone.id, first
start([line("a", chat("x"))])
ids = [b.id for b in client.batches.list(limit=3)]
assert len(ids) == len(set(ids)) and batch.id in ids and ids == sorted(ids, reverse=True)
files = [f.id for f in client.files.list(limit=5)]
assert len(files) == len(set(files)) and batch.output_file_id in files and batch.input_file_id in files
assert [b.id for b in client.batches.list(limit=1, after=crowd[1])][:2] == [crowd[0], gone.id]
for nothing, kind in (("file-" + "0" * 32, openai.NotFoundError), ("nothing", openai.BadRequestError)):
    refused(kind, lambda: client.files.list(after=nothing), param="after")
    refused(kind, lambda: client.batches.list(after=nothing.replace("file-", "batch_")), param="after")
ascending = [f.id for f in client.files.list(limit=5, order="asc", purpose="batch")]
assert ascending == sorted(ascending) and batch.output_file_id not in ascending

# 8. Deleting an input while its batch runs.
kept = upload([line(f"k{n}", chat("x")) for n in range(100)])
running = client.batches.create(input_file_id=kept.id, endpoint="/v1/chat/completions", completion_window="24h")
assert client.files.delete(kept.id).deleted
refused(openai.NotFoundError, lambda: client.files.retrieve(kept.id))
assert wait(running).request_counts.completed == 100

# 9. Errors as classes.
refused(openai.AuthenticationError, lambda: OpenAI(base_url=base + "/v1", api_key="wrong").files.list())
refused(openai.NotFoundError, lambda: client.batches.retrieve("batch_" + "0" * 32))
refused(openai.NotFoundError, lambda: client.batches.retrieve("nothing"))
refused(openai.NotFoundError, lambda: client.batches.create(input_file_id="file-nothing", endpoint="/v1/chat/completions", completion_window="24h"), param="input_file_id")
refused(openai.BadRequestError, lambda: client.batches.create(input_file_id="", endpoint="/v1/chat/completions", completion_window="24h"), param="input_file_id")
refused(openai.NotFoundError, lambda: client.files.content("file-" + "0" * 32))
refused(openai.BadRequestError, lambda: client.files.create(purpose="assistants", file=b"x"), param="purpose")
refused(openai.BadRequestError, lambda: client.batches.create(input_file_id=sent.id, endpoint="/v1/moderations", completion_window="24h"), param="endpoint")
refused(openai.BadRequestError, lambda: client.batches.create(input_file_id=sent.id, endpoint="/v1/chat/completions", completion_window="soon"), param="completion_window")
refused(openai.BadRequestError, lambda: start([line("a", {"model": "nobody", "messages": []})]), "model_not_found", "model")
refused(openai.APIStatusError, lambda: client.files.create(purpose="batch", file=b"x" * ((512 << 20) + 1)), "file_too_large")
slow = json.load(urllib.request.urlopen(urllib.request.Request(
    base + "/v1/keys", json.dumps({"name": "slow", "requests_per_minute": 1}).encode(), {"Authorization": "Key " + key, "Content-Type": "application/json"})))
hasty = OpenAI(base_url=base + "/v1", api_key=slow["key"], max_retries=0)
hasty.files.list()
refused(openai.RateLimitError, hasty.files.list)

# Files in parts: by the client's own way, and with parts that come in another order,
# a sum that is wrong and too few bytes.
lines = [line(f"part-{n}", chat("x" * 900)) for n in range(200)]
text = b"".join(json.dumps(l).encode() + b"\n" for l in lines)
made = client.uploads.upload_file_chunked(file=text, filename="parts.jsonl", bytes=len(text), mime_type="application/jsonl", purpose="batch", part_size=len(text) // 3 + 1)
assert made.status == "completed" and made.file.bytes == len(text), made
whole = wait(client.batches.create(input_file_id=made.file.id, endpoint="/v1/chat/completions", completion_window="24h"))
assert whole.request_counts.completed == 200, whole
begun = client.uploads.create(bytes=len(text), filename="parts.jsonl", mime_type="application/jsonl", purpose="batch")
cut = len(text) // 2
second = client.uploads.parts.create(begun.id, data=text[cut:])
first = client.uploads.parts.create(begun.id, data=text[:cut])
refused(openai.BadRequestError, lambda: client.uploads.complete(begun.id, part_ids=[first.id]), param="part_ids")
refused(openai.BadRequestError, lambda: client.uploads.complete(begun.id, part_ids=[first.id, second.id], md5="0" * 32), param="md5")
done = client.uploads.complete(begun.id, part_ids=[first.id, second.id], md5=hashlib.md5(text).hexdigest())
assert client.files.content(done.file.id).read() == text
assert client.uploads.cancel(client.uploads.create(bytes=1, filename="a", mime_type="text/csv", purpose="batch").id).status == "cancelled"

# 10. Whatever a request holds.
tools = [{"type": "function", "function": {"name": "grind", "parameters": {"type": "object", "required": ["rows"], "properties": {"rows": {"type": "integer"}}}}}]
card = {"type": "json_schema", "json_schema": {"name": "card", "schema": {"type": "object", "required": ["word"], "properties": {"word": {"type": "string"}}}}}
rich = wait(start([
    line("tools", chat("x", tools=tools, tool_choice="required", max_tokens=200)),
    line("schema", chat("x", response_format=card, max_tokens=200)),
    line("two", chat("x", n=2)),
    line("image", {**chat("x"), "messages": [{"role": "user", "content": [
        {"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}]}),
    line("logprobs", chat("x", logprobs=True, top_logprobs=2)),
]))
good, bad = outcome(rich)
assert [(l["custom_id"], l["response"]["status_code"]) for l in bad] == [("image", 400)], bad  # the simulator sees nothing
by = {l["custom_id"]: l["response"]["body"] for l in good}
call = by["tools"]["choices"][0]
assert call["finish_reason"] == "tool_calls" and "rows" in json.loads(call["message"]["tool_calls"][0]["function"]["arguments"]), call
assert len(by["two"]["choices"]) == 2
assert by["logprobs"]["choices"][0]["logprobs"]["content"]
for endpoint, body in (
    ("/v1/completions", {"model": "llama-3.1-8b", "prompt": "Once", "max_tokens": 5}),
    ("/v1/embeddings", {"model": "qwen-3-embedding-0.6b", "input": ["a", "b"]}),
    ("/v1/responses", {"model": "llama-3.1-8b", "input": "Once", "max_output_tokens": 5}),
):
    done = wait(start([line("a", body, url=endpoint)], endpoint=endpoint))
    assert done.status == "completed" and done.request_counts.completed == 1, (endpoint, done, read(done.error_file_id))

answer = Response.model_validate(read(done.output_file_id)[0]["response"]["body"])
assert answer.object == "response" and answer.status in ("completed", "incomplete") and answer.output_text and answer.usage.output_tokens > 0, answer
for member in ("background", "conversation"):
    failed = wait(start([line("a", {**body, member: "x"}, url=endpoint)], endpoint=endpoint))
    assert failed.status == "failed" and failed.errors.data[0].param == f"body.{member}", failed

models = {m.id: m for m in client.models.list()}
assert all(isinstance(m.created, int) and m.owned_by for m in models.values()), models
assert client.models.retrieve("llama-3.1-8b") == models["llama-3.1-8b"]
assert "nobody" in refused(openai.NotFoundError, lambda: client.models.retrieve("nobody"), "not_found").message
print("all right")
