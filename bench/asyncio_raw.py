"""A careful batch client in Python: standard asyncio streams with keep-alive
connections, json, and pyarrow for Parquet. Rows, requests, log and result are the
same as in bench/limit.

    python3 bench/asyncio_raw.py --in rows.parquet --out out.parquet --address HOST:PORT
"""

import argparse
import asyncio
import json
import math
import os
import struct

import pyarrow as pa
import pyarrow.parquet as pq

BATCH = 8192  # rows read, answered and written together
GROUP = 1024  # answers that share one flush to disk


class Connection:
    """A keep-alive connection."""

    def __init__(self, reader, writer, host):
        self.reader, self.writer, self.host = reader, writer, host

    async def post(self, body):
        self.writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: %b\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (self.host, len(body), body)
        )
        head = await self.reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"server answers {head[:40]!r}")
        at = head.lower().index(b"content-length:") + 15
        return await self.reader.readexactly(int(head[at : head.index(b"\r\n", at)]))


class Log:
    """Stores answers on disk before they are part of the result."""

    def __init__(self, path):
        self.path, self.file, self.parts, self.rows = path, open(path, "wb"), [], 0

    def append(self, row_id, text, score):
        data = text.encode()
        self.parts.append(struct.pack("<qI", row_id, len(data)))
        self.parts.append(data)
        self.parts.append(struct.pack("<d", score))
        self.rows += 1
        if self.rows >= GROUP:
            self.flush()

    def flush(self):
        self.file.write(b"".join(self.parts))
        self.file.flush()
        os.fsync(self.file.fileno())
        self.parts, self.rows = [], 0

    def remove(self):
        self.file.close()
        os.remove(self.path)


def ask_body(model, text, logprobs):
    return json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "temperature": 0.7,
            "max_tokens": 4096,
            "logprobs": logprobs,
        }
    ).encode()


def read_answer(data):
    reply = json.loads(data)
    (choice,) = reply["choices"]
    logprobs = [token["logprob"] for token in (choice["logprobs"] or {"content": []})["content"]]
    return choice["message"]["content"], 100 * math.exp(sum(logprobs) / len(logprobs)) if logprobs else math.nan


async def work(connection, args, todo, answers, log):
    for row, row_id, text in todo:
        answer, score = read_answer(await connection.post(ask_body(args.model, text, args.logprobs == "true")))
        answers[row] = (answer, score)
        log.append(row_id, answer, score)


async def run(args):
    host, port = args.address.rsplit(":", 1)
    connections = []
    for _ in range(args.workers):
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 18)
        connections.append(Connection(reader, writer, args.address.encode()))

    schema = pa.schema(
        [("id", pa.int64()), ("inputs", pa.string()), ("output", pa.string()), ("cumulative_logprobs", pa.float64())]
    )
    log, total = Log(args.out + ".log"), 0
    with pq.ParquetWriter(args.out, schema, compression="snappy", use_dictionary=False) as writer:
        for batch in pq.ParquetFile(args.input).iter_batches(BATCH, columns=["id", "text"]):
            ids, texts = batch.column(0).to_pylist(), batch.column(1).to_pylist()
            answers = [None] * len(ids)
            todo = iter(zip(range(len(ids)), ids, texts))
            await asyncio.gather(*(work(c, args, todo, answers, log) for c in connections))
            writer.write_batch(
                pa.record_batch([ids, texts, [a[0] for a in answers], [a[1] for a in answers]], schema=schema)
            )
            total += len(ids)
    log.flush()
    log.remove()
    for connection in connections:
        connection.writer.close()
    print(total)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in", dest="input", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--logprobs", choices=["true", "false"], default="true")
    parser.add_argument("--workers", type=int, default=256)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
