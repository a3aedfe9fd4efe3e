"""Reads Parquet files with other programs' readers and compares them with
what a test says they hold. Usage: check.py MANIFEST.json

The manifest is a list of {"path", "columns": [{"name", "type", "nullable",
"values"}], "groups"}; types are pyarrow's names. Exits with a message about
the first difference.
"""

import json
import math
import sys

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

try:
    import polars
except ImportError:
    polars = None

DUCK = {
    "string": "VARCHAR", "int64": "BIGINT", "uint64": "UBIGINT", "double": "DOUBLE",
    "bool": "BOOLEAN", "list<element: float>": "FLOAT[]",
}


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def compare(what, name, got, want):
    if len(got) != len(want):
        sys.exit(f"{what}: {name!r} has {len(got)} values, want {len(want)}")
    for i, (g, w) in enumerate(zip(got, want)):
        if not same(g, w):
            sys.exit(f"{what}: {name!r} row {i} is {g!r}, want {w!r}")


def table_rows(path, name, scalar):
    return pa.dataset.dataset(path).count_rows(filter=pa.dataset.field(name) == scalar)


def check(path, columns, groups):
    names = [c["name"] for c in columns]
    file = pq.ParquetFile(path, page_checksum_verification=True)
    meta = file.metadata
    if file.schema_arrow.names != names:
        sys.exit(f"{path}: columns {file.schema_arrow.names}, want {names}")
    if meta.num_row_groups != groups:
        sys.exit(f"{path}: {meta.num_row_groups} row groups, want {groups}")
    if meta.created_by != "rowmill" or not meta.metadata[b"job_id"].startswith(b"job-"):
        sys.exit(f"{path}: created by {meta.created_by}, metadata {meta.metadata}")
    for g in range(meta.num_row_groups):
        for c in range(meta.num_columns):
            chunk = meta.row_group(g).column(c)
            if chunk.compression != "SNAPPY" or not chunk.has_offset_index or not chunk.has_column_index:
                sys.exit(f"{path}: column chunk {c} of row group {g}: {chunk}")
    table = file.read()
    table.validate(full=True)
    for c in columns:
        field = table.schema.field(c["name"])
        if str(field.type) != c["type"] or field.nullable != c["nullable"]:
            sys.exit(f"{path}: {field}, want {c['type']}, nullable {c['nullable']}")
        compare(f"pyarrow {path}", c["name"], table.column(c["name"]).to_pylist(), c["values"])

    db = duckdb.connect()
    relation = db.sql(f"SELECT * FROM read_parquet('{path}', file_row_number = true) ORDER BY file_row_number")
    types = dict(zip(relation.columns, map(str, relation.types)))
    got = relation.fetchall()
    for i, c in enumerate(columns):
        if types[c["name"]] != DUCK[c["type"]]:
            sys.exit(f"DuckDB {path}: {c['name']!r} is {types[c['name']]}, want {DUCK[c['type']]}")
        compare(f"DuckDB {path}", c["name"], [row[i] for row in got], c["values"])

    # Filters make readers skip pages and row groups by our statistics.
    for i, c in enumerate(columns):
        wanted = next((v for v in reversed(c["values"]) if v is not None), None)
        if wanted is None or isinstance(wanted, (list, float)):
            continue
        count = sum(1 for v in c["values"] if v == wanted)
        name = c["name"].replace('"', '""')
        found = db.execute(f"SELECT count(*) FROM read_parquet('{path}') WHERE \"{name}\" = ?", [wanted]).fetchall()[0][0]
        if found != count:
            sys.exit(f"DuckDB {path}: {found} rows have {c['name']!r} = {wanted!r}, want {count}")
        scalar = pa.scalar(wanted, type=table.schema.field(c["name"]).type)
        found = table_rows(path, c["name"], scalar)
        if found != count:
            sys.exit(f"pyarrow {path}: {found} rows have {c['name']!r} = {wanted!r}, want {count}")

    if polars is not None:
        frame = polars.read_parquet(path)
        if frame.columns != names:
            sys.exit(f"polars {path}: columns {frame.columns}, want {names}")
        for c in columns:
            compare(f"polars {path}", c["name"], frame[c["name"]].to_list(), c["values"])


for entry in json.load(open(sys.argv[1], encoding="utf-8")):
    check(**entry)
print("polars" if polars is not None else "no polars")
