"""Makes Parquet files with an ID column of every type that people have, and
compares what became of it with them.

Usage: ids.py make DIR SEED | ids.py check DIR

make writes DIR/NAME.parquet with the columns "id" and "text". check reads
beside each of them NAME.result.parquet, NAME.json and NAME.csv: pyarrow, DuckDB
and polars must find the same type and the same values, join both files without
a cast, and JSON and CSV must say what Python says of the values.
"""

import csv
import datetime as dt
import decimal
import json
import math
import pathlib
import random
import struct
import sys
import uuid

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 40
DAY = 24 * 3600


def integers(low, high):
    return lambda r: r.choice([low, high, 0, r.randint(low, high)])


def decimals(precision, scale):
    top = 10**precision - 1
    context = decimal.Context(prec=80)
    return lambda r: decimal.Decimal(r.choice([-top, top, 0, 1, r.randint(-top, top)])).scaleb(-scale, context)


def reals(code):
    def draw(r):
        v = r.choice([0.0, 1.5, math.inf, -math.inf, r.gauss(0, 1e4), r.random() * 1e-4])
        return struct.unpack(code, struct.pack(code, v))[0]
    return draw


def types():
    for bits in (8, 16, 32, 64):
        yield f"int{bits}", getattr(pa, f"int{bits}")(), integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        yield f"uint{bits}", getattr(pa, f"uint{bits}")(), integers(0, 2**bits - 1)
    yield "half", pa.float16(), reals("e")
    yield "float", pa.float32(), reals("f")
    yield "double", pa.float64(), reals("d")
    yield "bool", pa.bool_(), lambda r: r.random() < 0.5
    yield "string", pa.string(), lambda r: r.choice(["", "007", "a,b", "漢字"])
    for precision, scale in ((4, 2), (9, 0), (18, 18), (38, 10), (76, 30)):
        kind = pa.decimal128 if precision <= 38 else pa.decimal256
        yield f"decimal{precision}-{scale}", kind(precision, scale), decimals(precision, scale)
    yield "date", pa.date32(), integers(-100_000, 200_000)
    yield "time-ms", pa.time32("ms"), integers(0, DAY * 10**3 - 1)
    yield "time-us", pa.time64("us"), integers(0, DAY * 10**6 - 1)
    yield "time-ns", pa.time64("ns"), integers(0, DAY * 10**9 - 1)
    for unit, per in (("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        for zone in (None, "UTC", "Europe/Berlin", "+05:30") if unit == "us" else (None, "America/Lima"):
            name = f"stamp-{unit}-{zone}".replace("/", "-")
            yield name, pa.timestamp(unit, zone), integers(-2_000_000_000 * per, 9_000_000_000 * per)
    for unit in ("s", "ms", "us", "ns"):
        yield f"duration-{unit}", pa.duration(unit), integers(-(10**15), 10**15)
    yield "bytes7", pa.binary(7), lambda r: r.randbytes(7)
    yield "uuid", pa.uuid(), lambda r: r.randbytes(16)


def make(directory, seed):
    r = random.Random(seed)
    for name, kind, draw in types():
        ids = [None if r.random() < 0.1 else draw(r) for _ in range(ROWS)]
        if pa.types.is_temporal(kind):
            physical = pa.int32() if kind.bit_width == 32 else pa.int64()
            column = pa.array(ids, physical).cast(kind)
        elif name == "uuid":
            column = pa.ExtensionArray.from_storage(kind, pa.array(ids, pa.binary(16)))
        else:
            column = pa.array(ids, kind)
        table = pa.table({"id": column, "text": [f"text {i}" for i in range(ROWS)]})
        # Other writers have decimals of integers, and the twelve bytes of Impala
        # for timestamps.
        pq.write_table(table, directory / f"{name}.parquet", row_group_size=17,
                       store_decimal_as_integer=name == "decimal4-2" or name == "decimal9-0", version=r.choice(["2.4", "2.6"]) if "ns" not in name else "2.6")
        if name == "stamp-ns-None":
            pq.write_table(table, directory / "int96.parquet", use_deprecated_int96_timestamps=True)
            pq.write_table(pa.table({"id": pa.array(ids, pa.int64()).cast(pa.timestamp("ns")).cast(pa.timestamp("ms"), safe=False), "text": table["text"]}),
                           directory / "version1.parquet", version="1.0", store_schema=False)
    db = duckdb.connect()
    for name, expression in (
        ("duck-uuid", "uuid()"),
        ("duck-interval", "to_days(i::int) + to_milliseconds(i * 7)"),
        ("duck-timetz", "('12:00:0' || i % 10 || '+02')::timetz"),
        ("duck-stamptz", "make_timestamptz(1700000000000000 + i)"),
        ("duck-tiny", "(i % 100)::utinyint"),
        ("duck-decimal", "(i / 7)::decimal(30, 9)"),
    ):
        db.sql(f"COPY (SELECT {expression} AS id, 'text ' || i AS text FROM range({ROWS}) t(i)) TO '{directory / name}.parquet'")
    frame = polars.DataFrame({"id": [dt.timedelta(microseconds=17**i % 10**12) for i in range(ROWS)], "text": [f"text {i}" for i in range(ROWS)]})
    frame.write_parquet(directory / "polars-duration.parquet")
    frame = polars.DataFrame({"id": polars.Series([dt.datetime(2024, 3, 31, 0, 0, i) for i in range(ROWS)]).dt.replace_time_zone("America/New_York"), "text": [f"text {i}" for i in range(ROWS)]})
    frame.write_parquet(directory / "polars-zoned.parquet")


def fail(name, message):
    sys.exit(f"{name}: {message}")


def plain(column):
    """What JSON has of the column, as text where there are no numbers."""
    kind = column.type
    values = column.to_pylist() if not pa.types.is_temporal(kind) else column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    for v in values:
        if v is None:
            yield None
        elif pa.types.is_floating(kind):
            yield v if math.isfinite(v) else ("Infinity" if v > 0 else "-Infinity")
        elif pa.types.is_decimal(kind):
            yield format(v, "f")
        elif pa.types.is_date(kind):
            yield (dt.date(1970, 1, 1) + dt.timedelta(days=v)).isoformat()
        elif pa.types.is_time(kind) or pa.types.is_timestamp(kind):
            digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[kind.unit]
            seconds, rest = divmod(v, 10**digits)
            at = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)
            text = at.isoformat() if pa.types.is_timestamp(kind) else at.time().isoformat()
            if rest:
                text += "." + f"{rest:0{digits}}".rstrip("0")
            yield text + ("Z" if pa.types.is_timestamp(kind) and kind.tz else "")
        elif isinstance(v, uuid.UUID):
            yield str(v)
        elif isinstance(v, bytes):
            yield v.hex()
        else:
            yield v


def check_file(path, db):
    name = path.stem
    result = path.with_suffix(".result.parquet")
    a, b = pq.read_table(path)["id"].combine_chunks(), pq.read_table(result)["id"].combine_chunks()
    if a.type != b.type or not a.equals(b):
        fail(name, f"pyarrow reads {b.type} {b.to_pylist()[:5]}, want {a.type} {a.to_pylist()[:5]}")
    if pq.ParquetFile(result).schema.column(0).physical_type != pq.ParquetFile(path).schema.column(0).physical_type:
        fail(name, "another physical type")
    if name not in ("duck-interval",):
        want = list(plain(a))
        if name == "int96": # its writers mean instants; pyarrow does not say so
            want = [w and w + "Z" for w in want]
        got = json.loads(path.with_suffix(".json").read_text())["id"]
        if name in ("float", "half"): # the shortest decimals that read back as such
            code = {"float": "f", "half": "e"}[name]
            got = [struct.unpack(code, struct.pack(code, g))[0] if isinstance(g, float) else g for g in got]
        if name not in ("duck-timetz",) and (got != want or [type(g) for g in got] != [type(w) for w in want]):
            fail(name, f"JSON has {got}, want {want}")
        with open(path.with_suffix(".csv"), newline="") as file:
            cells = [row[0] for row in csv.reader(file)][1:]
        shown = [("" if g is None else {True: "true", False: "false"}.get(g) if isinstance(g, bool) else g) for g in got]
        for cell, g in zip(cells, shown, strict=True):
            if cell != g and not (isinstance(g, (int, float)) and math.isclose(float(cell), g, rel_tol=1e-6)):
                fail(name, f"CSV has {cell!r}, want {g!r}")

    kinds = [db.sql(f"SELECT typeof(id) FROM '{p}' LIMIT 1").fetchall()[0][0] for p in (path, result)]
    if kinds[0] != kinds[1]:
        fail(name, f"DuckDB reads {kinds[1]}, want {kinds[0]}")
    count = db.sql(f"SELECT count(*) FROM (SELECT id, file_row_number n FROM read_parquet('{path}', file_row_number = true)) s "
                   f"JOIN (SELECT id, file_row_number n FROM read_parquet('{result}', file_row_number = true)) r "
                   "ON s.n = r.n AND s.id IS NOT DISTINCT FROM r.id").fetchall()[0][0]
    if count != len(a):
        fail(name, f"DuckDB finds {count} of {len(a)} IDs equal")
    # Filters make readers skip pages and row groups by our statistics.
    valid = [i for i, v in enumerate(a) if v.is_valid]
    for pick in (valid[0], valid[-1]) if kinds[0] != "INTERVAL" else ():
        where = f"WHERE id = (SELECT id FROM read_parquet('{path}', file_row_number = true) WHERE file_row_number = {pick})"
        found = [db.sql(f"SELECT count(*) FROM '{p}' {where}").fetchall()[0][0] for p in (path, result)]
        if found[0] != found[1] or not found[0]:
            fail(name, f"DuckDB finds {found[1]} rows of the ID of row {pick}, want {found[0]}")

    if name in ("duck-interval", "decimal76-30", "stamp-us-+05:30"):
        return  # polars does not read the source
    x, y = polars.read_parquet(path), polars.read_parquet(result)
    if x["id"].dtype != y["id"].dtype or not x["id"].equals(y["id"], null_equal=True):
        fail(name, f"polars reads {y['id'].dtype}, want {x['id'].dtype}")
    if name not in ("half",):
        x.join(y, on="id")


def check(directory):
    db = duckdb.connect()
    files = sorted(p for p in directory.glob("*.parquet") if not p.name.endswith(".result.parquet"))
    for path in files:
        check_file(path, db)
    print(len(files), "types of IDs are kept")


if sys.argv[1] == "make":
    make(pathlib.Path(sys.argv[2]), int(sys.argv[3]))
else:
    check(pathlib.Path(sys.argv[2]))
