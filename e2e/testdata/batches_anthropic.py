"""Drives a node with Anthropic's client for Python, unmodified:
batches_anthropic.py BASE KEY all|many.

Every check that fails is an AssertionError with what was seen.
"""

import resource
import sys
import time

import anthropic
from anthropic import Anthropic

base, key, how = sys.argv[1:]
client = Anthropic(base_url=base, api_key=key)
batches = client.messages.batches
LINES = "before\u2028after\u0085end"


def ask(custom_id, text="hi", **more):
    params = {"model": "llama-3.1-8b", "max_tokens": 8, "messages": [{"role": "user", "content": text}], **more}
    return {"custom_id": custom_id, "params": params}


def total(batch):
    c = batch.request_counts
    return c.processing + c.succeeded + c.errored + c.canceled + c.expired


def wait(batch, patience=180):
    all, end = total(batch), time.monotonic() + patience
    while batch.processing_status != "ended":
        assert time.monotonic() < end, f"{batch.id} is {batch.processing_status} after {patience} s"
        assert total(batch) == batch.request_counts.processing == all, batch
        assert batch.results_url is None and batch.ended_at is None, batch
        time.sleep(0.1)
        batch = batches.retrieve(batch.id)
    assert total(batch) == all and batch.request_counts.processing == 0 and batch.ended_at, batch
    return batch


def refused(kind, call, text=""):
    try:
        call()
    except kind as e:
        assert text in str(e), e
        assert e.request_id, e
        return e
    raise AssertionError(f"nothing was refused, {kind} was expected")


def create_poll_results():
    requests = [ask(f"row {n}", LINES) for n in range(300)]
    batch = batches.create(requests=requests)
    assert batch.type == "message_batch" and batch.processing_status == "in_progress" and batch.request_counts.processing == 300, batch
    assert abs((batch.expires_at - batch.created_at).total_seconds() - 86400) < 1, batch
    refused(anthropic.BadRequestError, lambda: batches.delete(batch.id))
    batch = wait(batch)
    got = list(batches.results(batch.id))
    assert [r.custom_id for r in got] == [r["custom_id"] for r in requests], len(got)
    for r in got:
        assert r.result.type == "succeeded" and r.result.message.role == "assistant", r
        assert r.result.message.stop_reason == "max_tokens" and r.result.message.usage.output_tokens == 8, r
    assert batches.delete(batch.id).type == "message_batch_deleted"
    refused(anthropic.NotFoundError, lambda: batches.retrieve(batch.id))
    refused(anthropic.NotFoundError, lambda: batches.delete(batch.id))


def every_kind_of_result():
    tool = {"name": "weather", "description": "d", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
    batch = wait(batches.create(requests=[
        ask("tool", tools=[tool], tool_choice={"type": "any"}, max_tokens=200),
        ask("stop", stop_sequences=["e"], max_tokens=200),
        ask("bad", max_tokens="many"),
        ask("long", max_tokens=10**9),
    ]))
    got = {r.custom_id: r.result for r in batches.results(batch.id)}
    used = [b for b in got["tool"].message.content if b.type == "tool_use"]
    assert got["tool"].message.stop_reason == "tool_use" and used[0].name == "weather" and isinstance(used[0].input, dict), got["tool"]
    assert got["stop"].message.stop_reason == "stop_sequence" and got["stop"].message.stop_sequence == "e", got["stop"]
    assert got["bad"].type == "errored" and got["bad"].error.error.type == "invalid_request_error" and got["bad"].error.error.message, got["bad"]
    c = batch.request_counts
    assert c.succeeded + c.errored == 4 and c.errored >= 1, batch


def thinking():
    batch = wait(batches.create(requests=[ask("t", max_tokens=2000) | {"params": {"model": "qwen-3-4b-thinking", "max_tokens": 2000, "messages": [{"role": "user", "content": "x"}]}}]))
    (got,) = batches.results(batch.id)
    assert got.result.type == "succeeded" and got.result.message.content[0].type == "thinking", got


def cancel(pause=2.5):
    batch = batches.create(requests=[ask(f"{n}", max_tokens=100) for n in range(30_000)])
    # What is running when it is cancelled is recorded twice a second.
    time.sleep(pause)
    got = batches.cancel(batch.id)
    assert got.processing_status == "canceling" and got.cancel_initiated_at, got
    batch = wait(batches.retrieve(batch.id))
    results = [r for r in batches.results(batch.id)]
    kinds = [r.result.type for r in results]
    c = batch.request_counts
    assert [r.custom_id for r in results] == [f"{n}" for n in range(30_000)]
    assert kinds.count("succeeded") == c.succeeded and kinds.count("canceled") == c.canceled > 0 and c.errored == c.expired == 0, batch
    assert batches.cancel(batch.id).processing_status == "ended"
    if c.succeeded == 0:  # a busy machine had not come to its first rows
        assert pause < 10, batch
        cancel(2 * pause)


def lists():
    made = [batches.create(requests=[ask("a")]).id for _ in range(25)]
    seen = []
    for batch in batches.list(limit=10):
        seen.append(batch.id)
        if len(seen) in (3, 15):
            batches.create(requests=[ask("meanwhile")])
    assert seen[:25] == made[::-1], (seen, made)
    newer = [b.id for b in batches.list(limit=4, before_id=made[0])]
    assert set(newer) >= set(made[1:]), newer
    page = batches.list(limit=4, before_id=made[0])
    assert [b.id for b in page.data] == made[4:0:-1] and page.has_more, page
    assert [m.id for m in client.models.list() if m.id == "llama-3.1-8b"] == ["llama-3.1-8b"]
    assert client.models.retrieve("llama-3.1-8b").display_name == "llama-3.1-8b"


def errors():
    refused(anthropic.BadRequestError, lambda: batches.create(requests=[ask("a"), ask("b" * 65)]), "requests.1.custom_id: String should have at most 64 characters")
    refused(anthropic.BadRequestError, lambda: batches.create(requests=[ask("a"), ask("a")]), "unique")
    refused(anthropic.BadRequestError, lambda: batches.create(requests=[ask("a"), ask("b", model="qwen-3-4b")]), "a batch has one model")
    refused(anthropic.BadRequestError, lambda: batches.create(requests=[ask("a", model="nobody-has-this")]), "no model of this service")
    refused(anthropic.BadRequestError, lambda: batches.create(requests=[]), "requests")
    refused(anthropic.NotFoundError, lambda: batches.retrieve("msgbatch_" + "0" * 32))
    refused(anthropic.AuthenticationError, lambda: Anthropic(base_url=base, api_key="nobody's").messages.batches.list())
    unfinished = batches.create(requests=[ask(f"{n}", max_tokens=500) for n in range(2000)])
    try:
        batches.results(unfinished.id)
        raise AssertionError("results of a batch that is not over")
    except anthropic.AnthropicError:
        pass  # the client's own: there is no results_url
    batches.cancel(unfinished.id)


def other_ways_in():
    if hasattr(client, "beta"):
        batch = client.beta.messages.batches.create(requests=[ask("beta")], betas=["message-batches-2024-09-24"])
        wait(batch)
        assert [r.custom_id for r in client.beta.messages.batches.results(batch.id)] == ["beta"]
    by_token = Anthropic(base_url=base, auth_token=key, api_key=None)
    assert by_token.messages.batches.list(limit=1).data


def many():
    """100,000 results go through in a bounded memory, of the client's, too."""
    batch = wait(batches.create(requests=[ask(f"{n}", max_tokens=1) for n in range(100_000)]))
    before, n = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    for r in batches.results(batch.id):
        assert r.custom_id == f"{n}" and r.result.type == "succeeded", r
        n += 1
    assert n == 100_000, n
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 << 10, f"{grown} KiB more"


if how == "many":
    many()
else:
    for check in (create_poll_results, every_kind_of_result, thinking, errors, cancel, lists, other_ways_in):
        begun = time.monotonic()
        check()
        print(f"{check.__name__}: {time.monotonic() - begun:.1f} s")
print("anthropic", anthropic.__version__)
