"""Common parts of the programs here: reading rows, the request, and writing the
result. Each program follows its library's documentation and only sets the number of
requests in flight."""

import argparse

import pyarrow as pa
import pyarrow.parquet as pq

IN_FLIGHT = 256


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--in", dest="input", required=True, help="Parquet with the columns id and text")
    parser.add_argument("--out", required=True, help="Parquet to write, with the column output")
    parser.add_argument("--address", required=True, help="HOST:PORT of an inference server")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--rows", type=int, required=True, help="how many of the rows, from the first")
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT)
    return parser.parse_args()


def read(args):
    table = pq.read_table(args.input, columns=["id", "text"]).slice(0, args.rows)
    return table.column("id").to_pylist(), table.column("text").to_pylist()


def messages(text):
    return [{"role": "user", "content": text}]


def write(args, ids, outputs):
    if None in outputs:
        raise SystemExit(f"{outputs.count(None)} rows have no answer")
    pq.write_table(pa.table({"id": ids, "output": outputs}), args.out, compression="snappy")
    print(len(outputs))
