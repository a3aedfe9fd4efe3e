#!/usr/bin/env python3
"""An inference server with continuous batching, for machines without vLLM: a Llama
with random weights, a KV cache, and the part of the OpenAI API that a batch of texts
needs. It only needs torch.

    server.py --model DIR --port N [--slots 256] [--context 4096]
    server.py --check            # compare the cached, batched model with the plain one

DIR holds config.json, generation_config.json and tokenizer.json, written by
bench/gpu: each word of the vocabulary is a token. A step computes either waiting
prompts, several at once up to --batched-tokens, or one token of every running
answer. Prompts are neither chunked nor cached. On a GPU a decode step is a CUDA
graph, recorded at the first use of its size. The gauges have their own names;
--gauges vllm uses vLLM's.
"""

import argparse
import asyncio
import collections
import json
import os
import threading
import time

import torch
import torch.nn.functional as F


class Llama:
    """The model with its KV cache: one cache row per slot."""

    def __init__(self, config, device, dtype, slots, context):
        self.device, self.dtype, self.slots, self.context = device, dtype, slots, context
        self.width, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.kv_heads, self.head = config["num_key_value_heads"], config["head_dim"]
        self.eps, self.vocab = config["rms_norm_eps"], config["vocab_size"]
        inner, layers = config["intermediate_size"], config["num_hidden_layers"]

        def weight(out, into):
            return torch.empty(out, into, device=device, dtype=dtype).normal_(0, 0.02)

        self.embedding, self.output = weight(self.vocab, self.width), weight(self.vocab, self.width)
        self.ones = torch.ones(self.width, device=device, dtype=dtype)
        self.layers = [
            (
                weight((self.heads + 2 * self.kv_heads) * self.head, self.width),
                weight(self.width, self.heads * self.head),
                weight(2 * inner, self.width),
                weight(self.width, inner),
            )
            for _ in range(layers)
        ]
        if device == "cuda":  # the cache gets the free memory, except 6 GiB for steps
            free, _ = torch.cuda.mem_get_info()
            self.slots = slots = min(slots, int((free - (6 << 30)) // self.bytes_per_slot(layers)))
            if slots < 1:
                raise SystemExit(f"no memory for one context of {context} tokens: {free >> 20} MiB are free")
        shape = (layers, slots, self.kv_heads, context, self.head)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        angles = torch.outer(
            torch.arange(context, device=device, dtype=torch.float32),
            config["rope_theta"] ** (-torch.arange(0, self.head, 2, device=device, dtype=torch.float32) / self.head),
        )
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)
        self.every = torch.arange(max(slots, context), device=device)
        self.tokens = torch.zeros(slots, device=device, dtype=torch.long)
        self.positions = torch.zeros(slots, device=device, dtype=torch.long)
        self.heat = torch.zeros(slots, device=device, dtype=torch.float32)
        self.graphs, self.pool = {}, None

    def bytes_per_slot(self, layers):
        return 2 * layers * self.kv_heads * self.head * self.context * torch.finfo(self.dtype).bits // 8

    def norm(self, x):
        return F.rms_norm(x, (self.width,), self.ones, self.eps)

    def turn(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def project(self, x, weight, cos, sin):
        n = x.shape[0]
        q, k, v = F.linear(self.norm(x), weight).view(n, -1, self.head).split([self.heads, self.kv_heads, self.kv_heads], 1)
        return self.turn(q, cos, sin), self.turn(k, cos, sin), v

    def finish(self, x, attended, out, gate_up, down):
        x = x + F.linear(attended, out)
        gate, up = F.linear(self.norm(x), gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, down)

    def sample(self, x, heat):
        """Draws tokens: the argmax after Gumbel noise times temperature."""
        logits = F.linear(self.norm(x), self.output).float()
        noise = torch.empty_like(logits).exponential_().log_()
        return (logits - heat[:, None] * noise).argmax(-1)

    @torch.inference_mode()
    def prefill(self, prompts, first, heat):
        """Computes prompts into the slots from first on, and returns their first tokens."""
        lengths = [len(p) for p in prompts]
        ids = torch.tensor([t for p in prompts for t in p], device=self.device)
        at = torch.cat([self.every[:n] for n in lengths])
        cos, sin = self.cos[at][:, None], self.sin[at][:, None]
        ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
        x = self.embedding[ids]
        for layer, (qkv, *rest) in enumerate(self.layers):
            q, k, v = (t.transpose(0, 1) for t in self.project(x, qkv, cos, sin))
            parts = []
            for slot, (end, n) in enumerate(zip(ends, lengths), first):
                piece = slice(end - n, end)
                self.keys[layer, slot, :, :n] = k[:, piece]
                self.values[layer, slot, :, :n] = v[:, piece]
                parts.append(
                    F.scaled_dot_product_attention(
                        q[None, :, piece], k[None, :, piece], v[None, :, piece], is_causal=True, enable_gqa=True
                    )[0]
                )
            attended = torch.cat(parts, 1).transpose(0, 1).reshape(x.shape[0], -1)
            x = self.finish(x, attended, *rest)
        last = torch.tensor([e - 1 for e in ends], device=self.device)
        return self.sample(x[last], torch.tensor(heat, device=self.device, dtype=torch.float32)).tolist()

    def step(self, rows, reach):
        """Computes one token for the first rows slots, none longer than reach."""
        at = self.positions[:rows]
        cos, sin = self.cos[at][:, None], self.sin[at][:, None]
        hidden = (self.every[None, :reach] > at[:, None])[:, None, None]
        x = self.embedding[self.tokens[:rows]]
        for layer, (qkv, *rest) in enumerate(self.layers):
            q, k, v = self.project(x, qkv, cos, sin)
            self.keys[layer][self.every[:rows], :, at] = k
            self.values[layer][self.every[:rows], :, at] = v
            q = q.reshape(rows, self.kv_heads, -1, self.head) * self.head**-0.5
            scores = q @ self.keys[layer, :rows, :, :reach].transpose(-1, -2)
            shares = scores.masked_fill(hidden, float("-inf")).float().softmax(-1).to(self.dtype)
            attended = (shares @ self.values[layer, :rows, :, :reach]).reshape(rows, -1)
            x = self.finish(x, attended, *rest)
        return self.sample(x, self.heat[:rows])

    @torch.inference_mode()
    def decode(self, tokens, positions, heat):
        """Returns the next tokens of the first len(tokens) slots."""
        n = len(tokens)
        rows = min(next((r for r in (1, 2, 4, 8) if n <= r), -(-n // 16) * 16), self.slots)
        reach = min(-(-(max(positions) + 1) // 128) * 128, self.context)
        fill = [0] * (rows - n)  # idle slots compute position 0, which the next prompt overwrites
        for to, values in ((self.tokens, tokens), (self.positions, positions), (self.heat, heat)):
            to[:rows].copy_(torch.tensor(values + fill, dtype=to.dtype))
        if self.device != "cuda":
            return self.step(rows, reach)[:n].tolist()
        if (rows, reach) not in self.graphs:
            self.capture(rows, reach)
        graph, result = self.graphs[rows, reach]
        graph.replay()
        return result[:n].tolist()

    def capture(self, rows, reach):
        side = torch.cuda.Stream()  # torch requires one run outside of the graph first
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.step(rows, reach)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            result = self.step(rows, reach)
        self.pool = graph.pool()
        self.graphs[rows, reach] = graph, result

    def move(self, source, target):
        """Copies a slot's cache to another slot."""
        self.keys[:, target].copy_(self.keys[:, source])
        self.values[:, target].copy_(self.values[:, source])


class Answer:
    """One request in the engine."""

    def __init__(self, prompt, most, heat, endless, done):
        self.prompt, self.most, self.heat, self.endless, self.done = prompt, most, heat, endless, done
        self.tokens, self.gone = [], False


class Engine(threading.Thread):
    """Runs the model: admits answers in order of arrival and steps them."""

    def __init__(self, model, ends, batched):
        super().__init__(daemon=True)
        self.model, self.ends, self.batched = model, frozenset(ends), batched
        self.arrived = threading.Condition()
        self.waiting, self.running = collections.deque(), []
        self.counts = collections.Counter()

    def add(self, answer):
        with self.arrived:
            self.waiting.append(answer)
            self.arrived.notify()

    def run(self):
        try:
            while True:
                self.turn()
        except BaseException:  # without an engine the server must stop
            import traceback

            traceback.print_exc()
            os._exit(1)

    def turn(self):
        with self.arrived:
            while not (self.waiting or self.running):
                self.arrived.wait()
            admitted = self.admit()
        if admitted:
            tokens = self.model.prefill([a.prompt for a in admitted], len(self.running), [a.heat for a in admitted])
            self.running += admitted
            self.counts["prompt_tokens"] += sum(len(a.prompt) for a in admitted)
            self.give(admitted, tokens)
        elif self.running:
            tokens = self.model.decode(
                [a.tokens[-1] for a in self.running],
                [len(a.prompt) + len(a.tokens) - 1 for a in self.running],
                [a.heat for a in self.running],
            )
            self.give(self.running, tokens)
        self.sweep()

    def admit(self):
        """Returns the waiting answers whose prompts the next step computes."""
        admitted, room = [], self.batched
        while self.waiting and len(self.running) + len(admitted) < self.model.slots:
            first = self.waiting[0]
            if first.gone:
                self.waiting.popleft()
                self.counts["requests_abort"] += 1
                continue
            if admitted and len(first.prompt) > room:
                break
            room -= len(first.prompt)
            admitted.append(self.waiting.popleft())
        return admitted

    def give(self, answers, tokens):
        self.counts["generation_tokens"] += len(answers)
        for answer, token in zip(answers, tokens):
            answer.tokens.append(token)

    def over(self, answer):
        """Returns why an answer ends here, or None. No answer ends before its second token."""
        if answer.gone:
            return "abort"
        if len(answer.tokens) > 1 and answer.tokens[-1] in self.ends and not answer.endless:
            return "stop"
        return "length" if len(answer.tokens) >= answer.most else None

    def sweep(self):
        """Removes ended answers; the last slots move to the free ones."""
        slot = 0
        while slot < len(self.running):
            answer = self.running[slot]
            reason = self.over(answer)
            if reason is None:
                slot += 1
                continue
            last = self.running.pop()
            if last is not answer:
                self.running[slot] = last
                self.model.move(len(self.running), slot)
            self.counts["requests_" + reason] += 1
            answer.done(answer, reason)


class Refusal(Exception):
    """An error answer to a request."""

    def __init__(self, status, message, code=None):
        super().__init__(message)
        self.status, self.body = status, {"error": {"message": message, "type": "invalid_request_error", "code": code}}


NEUTRAL = {  # fields that are accepted with their neutral value only
    "stream": (False,), "logprobs": (False,), "top_p": (1,), "n": (1,), "presence_penalty": (0,),
    "frequency_penalty": (0,), "min_tokens": (0, 1), "seed": None, "user": None,
}


class Service:
    """The OpenAI API of an engine."""

    def __init__(self, engine, name, vocabulary, gauges, loop):
        self.engine, self.name, self.gauges, self.loop = engine, name, gauges, loop
        self.ids = vocabulary
        self.words = {number: word for word, number in vocabulary.items()}

    def answer(self, method, path, body, connection):
        """Returns the answer to a request, or None if the connection gets it later."""
        if method == "GET" and path == "/health":
            return 200, {"status": "ok"}
        if method == "GET" and path == "/v1/models":
            return 200, {"object": "list", "data": [{
                "id": self.name, "object": "model", "created": 0, "owned_by": "bench", "max_model_len": self.engine.model.context,
            }]}
        if method == "GET" and path == "/metrics":
            return 200, self.metrics()
        if method == "POST" and path == "/v1/chat/completions":
            return self.complete(body, connection)
        raise Refusal(404, f"{method} {path} is not served")

    def complete(self, body, connection):
        try:
            asked = json.loads(body)
            prompt = [self.ids.get(w, 0) for m in asked["messages"] for w in m["content"].split()] or [0]
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            raise Refusal(400, f"not a request for a chat: {e!r}") from e
        if asked.get("model") != self.name:
            raise Refusal(404, f"there is no model {asked.get('model')!r}, but {self.name!r}", "model_not_found")
        context = self.engine.model.context
        most, heat, endless = context - len(prompt), 1.0, False
        for field, value in asked.items():
            if field in ("model", "messages") or value is None:
                continue
            if field in ("max_tokens", "max_completion_tokens"):
                most = value
            elif field == "temperature":
                heat = float(value)
            elif field == "ignore_eos":
                endless = bool(value)
            elif field not in NEUTRAL or NEUTRAL[field] is not None and value not in NEUTRAL[field]:
                raise Refusal(400, f"{field}: {value!r} is not supported")
        if not isinstance(most, int) or most < 1 or len(prompt) + most > context:
            raise Refusal(400, f"This model's maximum context length is {context} tokens: the prompt has {len(prompt)}, "
                               f"the answer may have {most}", "context_length_exceeded")

        def done(answer, reason):  # called on the engine's thread
            self.loop.call_soon_threadsafe(connection.reply, 200, self.reply(answer, reason))

        connection.pending = Answer(prompt, most, heat, endless, done)
        self.engine.add(connection.pending)
        return None

    def reply(self, answer, reason):
        text = " ".join(self.words.get(t, "<unk>") for t in answer.tokens)
        return {
            "id": "chatcmpl-bench", "object": "chat.completion", "created": int(time.time()), "model": self.name,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}],
            "usage": {"prompt_tokens": len(answer.prompt), "completion_tokens": len(answer.tokens),
                      "total_tokens": len(answer.prompt) + len(answer.tokens)},
        }

    def metrics(self):
        counts = dict(self.engine.counts)
        samples = {
            "num_requests_running": len(self.engine.running), "num_requests_waiting": len(self.engine.waiting),
            "prompt_tokens_total": counts.get("prompt_tokens", 0),
            "generation_tokens_total": counts.get("generation_tokens", 0),
            "slots": self.engine.model.slots,
        }
        for reason in ("stop", "length", "abort"):
            samples[f'request_success_total{{finished_reason="{reason}"}}'] = counts.get("requests_" + reason, 0)
        return "".join(f"{self.gauges}:{name} {value}\n" for name, value in samples.items())


class Connection(asyncio.Protocol):
    """A keep-alive connection with one request at a time."""

    def __init__(self, service):
        self.service, self.buffer, self.transport, self.pending = service, b"", None, None

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, exc):
        if self.pending is not None:
            self.pending.gone = True

    def data_received(self, data):
        self.buffer += data
        if self.pending is None:
            self.read()

    def read(self):
        """Answers the completely received requests."""
        while self.pending is None:
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return
            first, *lines = head.decode("latin-1").split("\r\n")
            fields = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
            length = fields.get("content-length", "0")
            if "transfer-encoding" in fields or not length.isdigit():
                self.reply(411, {"error": {"message": "give a Content-Length"}})
                return self.transport.close()
            if len(rest) < int(length):
                return
            body, self.buffer = rest[: int(length)], rest[int(length):]
            method, path, *_ = first.split(" ") + ["", ""]
            try:
                got = self.service.answer(method, path, body, self)
            except Refusal as e:
                got = e.status, e.body
            if got is not None:
                self.reply(*got)

    def reply(self, status, body):
        waited, self.pending = self.pending is not None, None
        if self.transport.is_closing():
            return
        kind, data = ("text/plain", body.encode()) if isinstance(body, str) else ("application/json", json.dumps(body).encode())
        self.transport.write(f"HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        if waited:
            self.read()


async def serve(args, model, ends, vocabulary):
    engine = Engine(model, ends, args.batched_tokens)
    loop = asyncio.get_running_loop()
    service = Service(engine, args.name, vocabulary, args.gauges, loop)
    engine.start()
    server = await loop.create_server(lambda: Connection(service), "127.0.0.1", args.port, backlog=4096)
    print(f"{args.name} on port {args.port}: {model.slots} slots of {model.context} tokens on {model.device}", flush=True)
    await server.serve_forever()


def check(device):
    """Checks that the batched, cached model gives the same tokens as the plain one."""
    torch.manual_seed(1)
    config = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5,
              "vocab_size": 300, "intermediate_size": 128, "num_hidden_layers": 3, "rope_theta": 10000.0}
    model = Llama(config, device, torch.float32, 12, 256)
    for qkv, *_ in model.layers:
        qkv.mul_(8)  # otherwise all positions of a context have about the same weight
    prompts = [[(7 * i + 13 * j) % 300 for j in range(n)] for i, n in enumerate((5, 1, 126, 40, 9, 17, 33, 2, 8))]
    got, slots = [[] for _ in prompts], list(range(len(prompts)))
    for i, token in enumerate(model.prefill(prompts[:4], 0, [0.0] * 4) + model.prefill(prompts[4:], 4, [0.0] * 5)):
        got[i].append(token)
    for round in range(12):
        if round == 6:  # an answer has ended: the last one takes its slot
            model.move(slots[-1], 1)
            slots = [0, 8, 2, 3, 4, 5, 6, 7]
        tokens = model.decode([got[i][-1] for i in slots], [len(prompts[i]) + len(got[i]) - 1 for i in slots], [0.0] * len(slots))
        for i, token in zip(slots, tokens):
            got[i].append(token)
    for i, prompt in enumerate(prompts):
        plain = list(prompt)
        for token in got[i]:
            want = model.prefill([plain], 11, [0.0])[0]
            if token != want:
                raise SystemExit(f"check: answer {i} has token {token} at {len(plain) - len(prompt)}, the plain model says {want}")
            plain.append(token)
    drawn = model.prefill([prompts[0]] * 8, 0, [1.0] * 8)
    if len(set(drawn)) < 2:
        raise SystemExit(f"check: eight draws at temperature 1 are all {drawn[0]}")
    print(f"check: ok on {device}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="directory of the model")
    parser.add_argument("--name", default="bench", help="the model's name")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--slots", type=int, default=256, help="answers at once, at most: memory may allow fewer")
    parser.add_argument("--context", type=int, default=4096, help="tokens of a prompt and its answer")
    parser.add_argument("--batched-tokens", type=int, default=8192, help="prompt tokens of one step")
    parser.add_argument("--gauges", choices=["bench", "vllm"], default="bench", help="whose names the gauges have")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--check", action="store_true", help="check the model instead of serving it")
    args = parser.parse_args()
    if args.check:
        return check(args.device)

    def read(name):
        with open(os.path.join(args.model, name), encoding="utf-8") as file:
            return json.load(file)

    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    model = Llama(read("config.json"), args.device, dtype, args.slots, args.context)
    ends, vocabulary = read("generation_config.json")["eos_token_id"], read("tokenizer.json")["model"]["vocab"]
    asyncio.run(serve(args, model, ends, vocabulary))


if __name__ == "__main__":
    main()
