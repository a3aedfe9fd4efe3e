"""shapes.py DIRECTORY: write the shapes of apache/parquet-testing with pyarrow, and
want.json: for each file the values of each column as text, or a part of the error."""

import base64
import datetime
import decimal
import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

there = pathlib.Path(sys.argv[1])
want = {}


def write(name, columns, texts, **options):
    """columns: {column: (values, type)}; texts: {column: [text, ...] or an error}."""
    table = pa.table({c: pa.array(values, kind) for c, (values, kind) in columns.items()})
    pq.write_table(table, there / name, **options)
    want[name] = texts


def dense(value):
    return json.dumps(value, separators=(",", ":"))


def one(name, values, kind, texts, **options):
    write(name, {"v": (values, kind)}, {"v": texts}, **options)


def decimals(digits):
    return [decimal.Decimal(i * (10 ** (digits - 3) + 1)).scaleb(-2) for i in range(-3, 4)]


# Numbers. The physical type of a decimal follows from its digits.
for name, digits, options in [
    ("int32_decimal", 9, {"store_decimal_as_integer": True}),
    ("int64_decimal", 18, {"store_decimal_as_integer": True}),
    ("fixed_length_decimal", 9, {}),
    ("fixed_length_decimal_large", 38, {}),
]:
    one(name, decimals(digits), pa.decimal128(digits, 2), [f"{v:.2f}" for v in decimals(digits)], **options)

halves = [1.0, -2.0, float("nan"), 0.0, -0.0, None, 65504.0]
half_texts = ["1", "-2", "", "0", "-0", "", "65504"]
one("float16", halves, pa.float16(), half_texts)
one("nan_in_stats", [1.0, float("nan")], pa.float64(), ["1", ""], write_statistics=True)
one("single_nan", [float("nan")], pa.float64(), [""])
one("infinite", [float("inf"), float("-inf")], pa.float32(), ["+Inf", "-Inf"])

moments = [datetime.datetime(2024, 1, 1, 20, 34, 56, 123456), datetime.datetime(1969, 12, 31, 23, 59, 59), None]
moment_texts = ["2024-01-01T20:34:56.123456Z", "1969-12-31T23:59:59Z", ""]
one("int96", moments, pa.timestamp("us"), moment_texts, use_deprecated_int96_timestamps=True)
for unit, digits in [("ms", 3), ("us", 6), ("ns", 9)]:
    whole = [moments[0].replace(microsecond=123000), moments[1]]
    one(f"timestamp_{unit}", whole, pa.timestamp(unit, "UTC"), ["2024-01-01T20:34:56.123Z", "1969-12-31T23:59:59Z"])
    one(f"timestamp_{unit}_local", whole, pa.timestamp(unit), ["2024-01-01T20:34:56.123", "1969-12-31T23:59:59"])
one("date", [datetime.date(1969, 12, 31), datetime.date(9999, 12, 31)], pa.date32(), ["1969-12-31", "9999-12-31"])
one("time", [datetime.time(23, 59, 58, 7000)], pa.time32("ms"), ["23:59:58.007"])

# Nesting.
lists = [[[["a", "b"], ["c"]], [None, ["d"]]], [], None, [None, [[]]]]
one("nested_lists", lists, pa.list_(pa.list_(pa.list_(pa.string()))), ["" if v is None else dense(v) for v in lists])
one("null_list", [[]], pa.list_(pa.int32()), ["[]"])
one("list_of_nulls", [[None, None]], pa.list_(pa.null()), ["[null,null]"])
one("list_item", [[1, 2], None], pa.list_(pa.int64()), ["[1,2]", ""], use_compliant_nested_type=False)
one("fixed_list", [[1.5, 2.0], [3.0, -0.5]], pa.list_(pa.float32(), 2), ["[1.5,2]", "[3,-0.5]"])
maps = [[("a", [(1, True), (2, False)])], [("c", None)], [("d", [])], [], None]
one(
    "nested_maps",
    maps,
    pa.map_(pa.string(), pa.map_(pa.int32(), pa.bool_())),
    ['{"a":{"1":true,"2":false}}', '{"c":null}', '{"d":{}}', "{}", ""],
)
structs = [{"a": {"b": [{"c": "x", "d": None}]}, "e": 1}, {"a": None, "e": None}, {"a": {"b": None}, "e": 2}, None]
kind = pa.struct([("a", pa.struct([("b", pa.list_(pa.struct([("c", pa.string()), ("d", pa.float64())])))])), ("e", pa.int8())])
one("nested_structs", structs, kind, ["" if v is None else dense(v) for v in structs])

# Text and bytes.
long = "é" * 3000
for name, kind in [("string", pa.string()), ("large_string", pa.large_string()), ("string_view", pa.string_view())]:
    one(name, ["", long, None, "\x00\n"], kind, ["", long, "", "\x00\n"])
one("binary", [b"plain"], pa.binary(), ["plain"])
one("dictionary_array", ["x", "y", "x", None], pa.dictionary(pa.int8(), pa.string()), ["x", "y", "x", ""])
one("fixed_length_byte_array", [bytes(range(4)), None, b"\xff" * 4], pa.binary(4), ["00010203", "", "ffffffff"])
one(
    "binary_not_utf8",
    [b"\xff\xfe"],
    pa.binary(),
    'Column "v" of row 0 is not UTF-8 text. Write the column as strings.',
)

# Pages and row groups.
numbers = [None if i // 100 % 3 == 1 else i * 7919 % 1009 - 500 for i in range(2000)]
number_texts = ["" if n is None else str(n) for n in numbers]
words = [None if n is None else f"word {n}" for n in numbers]
word_texts = [w or "" for w in words]
for version in ["1.0", "2.0"]:
    for dictionary in [True, False]:
        write(
            f"tiny_pages_{version}_{dictionary}",
            {"n": (numbers, pa.int32()), "w": (words, pa.string())},
            {"n": number_texts, "w": word_texts},
            data_page_version=version,
            use_dictionary=dictionary,
            data_page_size=100,
            write_batch_size=20,
            write_page_index=True,
            write_page_checksum=True,
            row_group_size=700,
            sorting_columns=[pq.SortingColumn(0, descending=True, nulls_first=True)],
        )
one(
    "more_than_32767_pages",
    list(range(40_000)),
    pa.int32(),
    [str(i) for i in range(40_000)],
    data_page_size=1,
    write_batch_size=1,
    use_dictionary=False,
)
one("bloom_filter", words, pa.string(), word_texts, bloom_filter_options={"v": True})
one("no_statistics", words, pa.string(), word_texts, write_statistics=False)
one("nulls_v2_zstd", [None] * 10, pa.int32(), [""] * 10, data_page_version="2.0", compression="zstd")
one("nulls_v2_snappy", [None], pa.float32(), [""], data_page_version="2.0", compression="snappy")
one("rle_boolean", [True, None, False] * 30, pa.bool_(), ["true", "", "false"] * 30, use_dictionary=False, column_encoding={"v": "RLE"})
one("no_rows", [], pa.int32(), [])
with pq.ParquetWriter(there / "empty_row_group", pa.schema([("v", pa.int64())])) as writer:
    for values in [[1], [], [2]]:
        writer.write_table(pa.table({"v": pa.array(values, pa.int64())}))
want["empty_row_group"] = {"v": ["1", "2"]}

# Encryption, with the footer encrypted and in plain text.
class Plain(pe.KmsClient):
    """Plain "wraps" keys by encoding them, which is enough for a file of a test."""

    def __init__(self, config):
        pe.KmsClient.__init__(self)

    def wrap_key(self, key, name):
        return base64.b64encode(key)

    def unwrap_key(self, wrapped, name):
        return base64.b64decode(wrapped)


for name, plaintext, error in [
    ("encrypted_footer", False, "The Parquet file is encrypted. Write it without encryption."),
    ("encrypted_column", True, "signed or corrupt"),
]:
    config = pe.EncryptionConfiguration(footer_key="f", column_keys={"c": ["v"]}, plaintext_footer=plaintext)
    keys = pe.CryptoFactory(Plain).file_encryption_properties(pe.KmsConnectionConfig(), config)
    with pq.ParquetWriter(there / name, pa.schema([("v", pa.string())]), encryption_properties=keys) as writer:
        writer.write_table(pa.table({"v": ["secret"]}))
    want[name] = error

(there / "want.json").write_text(json.dumps(want))
