"""write.py DIRECTORY: write Parquet files with pyarrow, polars and DuckDB, and want.json:
the columns of each file, and their values as text."""

import decimal
import itertools
import json
import pathlib
import sys

import duckdb
import polars
import pyarrow
import pyarrow.parquet

there = pathlib.Path(sys.argv[1])
want = {}
rows = 900

text = [None if i % 7 == 3 else f"row {i % 211} of many " + "é" * (i % 13) for i in range(rows)]
columns = {
    "text": (text, pyarrow.string(), lambda v: v or ""),
    "must": ([t or "none" for t in text], pyarrow.string(), str),
    "same": (["same"] * rows, pyarrow.string(), str),
    "nulls": ([None] * rows, pyarrow.string(), lambda v: ""),
    "small": ([i * 7919 % 1000 - 500 for i in range(rows)], pyarrow.int32(), str),
    "large": ([None if i % 5 == 0 else (i * 7919 % 1000 - 500) << 40 for i in range(rows)], pyarrow.int64(), lambda v: "" if v is None else str(v)),
    "real": ([i / 8 - 50 for i in range(rows)], pyarrow.float64(), lambda v: str(v).removesuffix(".0")),
    "half": ([i / 8 - 50 for i in range(rows)], pyarrow.float32(), lambda v: str(v).removesuffix(".0")),
    "flag": ([i // 40 % 2 == 0 for i in range(rows)], pyarrow.bool_(), lambda v: str(v).lower()),
    "maybe": ([None if i % 3 == 0 else i % 2 == 0 for i in range(rows)], pyarrow.bool_(), lambda v: "" if v is None else str(v).lower()),
    "money": ([decimal.Decimal(i * 7919 % 1000) / 100 for i in range(rows)], pyarrow.decimal128(20, 2), lambda v: f"{v:.2f}"),
    "list": (
        [None if i % 11 == 0 else [f"x{j}" if j % 3 else None for j in range(i % 5)] for i in range(rows)],
        pyarrow.list_(pyarrow.string()),
        lambda v: "" if v is None else json.dumps(v, separators=(",", ":")),
    ),
}


def note(name, chosen=columns):
    want[name] = {c: [columns[c][2](v) for v in columns[c][0]] for c in chosen}


table = pyarrow.table({c: pyarrow.array(values, kind) for c, (values, kind, _) in columns.items()})
encodings = {
    "dictionary": {},
    "plain": {"use_dictionary": False},
    "delta": {
        "use_dictionary": False,
        "column_encoding": {
            "text": "DELTA_BYTE_ARRAY", "must": "DELTA_LENGTH_BYTE_ARRAY", "same": "DELTA_BYTE_ARRAY", "nulls": "DELTA_LENGTH_BYTE_ARRAY",
            "small": "DELTA_BINARY_PACKED", "large": "DELTA_BINARY_PACKED", "real": "BYTE_STREAM_SPLIT", "half": "BYTE_STREAM_SPLIT",
            "flag": "RLE", "maybe": "RLE", "money": "BYTE_STREAM_SPLIT",
        },
    },
}
for codec, version, (encoding, options), checked in itertools.product(
    ["none", "snappy", "gzip", "brotli", "zstd", "lz4"], ["1.0", "2.0"], encodings.items(), [False, True]
):
    name = f"pyarrow-{codec}-{version}-{encoding}-{checked}.parquet"
    pyarrow.parquet.write_table(
        table, there / name, compression=codec, data_page_version=version, data_page_size=2000, row_group_size=500, write_page_checksum=checked, **options
    )
    note(name)

frame = polars.from_arrow(table)
for codec in ["uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4"]:
    name = f"polars-{codec}.parquet"
    frame.write_parquet(there / name, compression=codec, row_group_size=500)
    note(name)

for codec, version in itertools.product(["uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4_raw"], ["v1", "v2"]):
    name = f"duckdb-{codec}-{version}.parquet"
    duckdb.sql(f"COPY frame TO '{there / name}' (FORMAT parquet, CODEC '{codec}', PARQUET_VERSION {version}, ROW_GROUP_SIZE 500)")
    note(name)

(there / "want.json").write_text(json.dumps(want))
