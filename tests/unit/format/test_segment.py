from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn._engine.format.segment import (
    RECORD_SCHEMA,
    InlineSegment,
    check_schema,
    checksum,
    decode_inline,
    decode_row_groups,
    decode_segment,
    encode_inline,
    encode_segment,
    parse_type,
    stored_schema,
    type_text,
)
from sparktxn.errors import ConfigurationError, DamagedObject
from tests.each import each

FORMATS = ["parquet", "arrow"]

header = st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=5)})
headers = st.lists(header, max_size=3)
records = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=8),
        "value": st.none() | st.binary(max_size=20),
        "headers": st.none() | headers,
        "timestamp": st.integers(-(2**40), 2**42),
    }
)


def record_table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=RECORD_SCHEMA)


def many_records(count: int) -> pa.Table:
    return record_table([{"key": b"k%d" % (i % 7), "value": b"%d" % i * 5, "timestamp": i} for i in range(count)])


@pytest.mark.parametrize("segment_format", FORMATS)
@settings(max_examples=60)
@given(rows=st.lists(records, min_size=1, max_size=30))
def test_records_come_back_as_they_were(segment_format: str, rows: list[dict[str, Any]]) -> None:
    table = record_table(rows)
    data = encode_segment(table, segment_format=segment_format, compression="zstd")
    decoded = decode_segment(data, "s", schema=RECORD_SCHEMA, record_count=len(rows))
    assert decoded.schema.equals(RECORD_SCHEMA)
    assert decoded.equals(table)


@each(
    [
        *(("parquet", name) for name in ("zstd", "lz4", "snappy", "gzip", "uncompressed", "none", "producer")),
        *(("arrow", name) for name in ("zstd", "lz4", "uncompressed", "none", "producer")),
    ]
)
def test_every_compression_round_trips(segment_format: str, compression: str) -> None:
    table = many_records(5_000)
    data = encode_segment(table, segment_format=segment_format, compression=compression)
    assert decode_segment(data, "s", schema=RECORD_SCHEMA).equals(table)
    plain = encode_segment(table, segment_format=segment_format, compression="none")
    assert (len(data) < len(plain)) == (compression not in ("none", "uncompressed"))


@pytest.mark.parametrize("compression", ["snappy", "gzip"])
def test_arrow_refuses_what_it_does_not_know(compression: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{compression}': arrow segments take zstd"):
        encode_segment(many_records(1), segment_format="arrow", compression=compression)


def test_an_empty_segment_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_segment(many_records(0), segment_format="parquet", compression="zstd")


@each(product(FORMATS, [["value"], ["timestamp", "key"], ["headers"], ["headers", "value"], []]))
def test_only_the_wanted_columns_are_read_in_their_order(segment_format: str, columns: list[str]) -> None:
    table = many_records(10)  # headers are null in every row: not in the file
    data = encode_segment(table, segment_format=segment_format, compression="zstd")
    decoded = decode_segment(data, "s", schema=RECORD_SCHEMA, columns=columns, record_count=10)
    assert decoded.schema.names == columns
    assert decoded.equals(table.select(columns))


def test_what_is_in_a_parquet_segment() -> None:
    data = encode_segment(many_records(5_000), segment_format="parquet", compression="zstd")
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    assert metadata.num_row_groups == 1
    row_group = metadata.row_group(0)
    columns = {column.path_in_schema: column for column in map(row_group.column, range(row_group.num_columns))}
    assert set(columns) == {"key", "value", "timestamp"}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert "DELTA_BINARY_PACKED" in columns["timestamp"].encodings
    assert "RLE_DICTIONARY" in columns["key"].encodings  # seven different keys
    assert "RLE_DICTIONARY" not in columns["value"].encodings
    assert columns["timestamp"].statistics.has_min_max
    assert columns["value"].statistics is None
    assert not metadata.metadata  # no schema of one library, no pandas


TYPED = (
    ("b", "bool", True),
    ("i1", "int8", True),
    ("i2", "int16", True),
    ("i4", "int32", True),
    ("i8", "int64", False),
    ("f", "float", True),
    ("d", "double", True),
    ("s", "string", False),
    ("y", "binary", True),
    ("day", "date32", True),
    ("at", "timestamp[us, tz=UTC]", True),
    ("price", "decimal128(12, 3)", True),
    ("tags", "list<string>", True),
    ("place", "struct<x: double, y: double not null, names: list<struct<k: string>>>", True),
    ("local", "timestamp[us]", True),
    ("prices", "map<decimal128(9, 2), list<struct<n: int64>> not null>", True),
)


@each(product(FORMATS, [3, 3_000]))
def test_every_declared_type_comes_back_as_it_was(segment_format: str, count: int) -> None:
    schema = stored_schema(check_schema(TYPED))
    full = {
        "b": True, "i1": -128, "i2": 32767, "i4": -1, "i8": 2**63 - 1, "f": 0.5, "d": 1e300, "s": "ž", "y": b"\0",
        "day": 19_000, "at": 1_700_000_000_000_001, "price": "123.456", "tags": ["a", None],
        "place": {"x": None, "y": 2.0, "names": [{"k": "v"}, {"k": None}]}, "_timestamp": 5,
        "local": 1_700_000_000_000_001, "prices": [(Decimal("1.50"), [{"n": 1}, None]), (Decimal("2.00"), [])],
    }  # fmt: skip
    full["price"] = pa.scalar("123.456").cast(pa.decimal128(12, 3)).as_py()
    least = {"i8": 0, "s": "", "_timestamp": 6}
    table = pa.Table.from_pylist([full if row % 2 else least for row in range(count)], schema=schema)
    data = encode_segment(table, segment_format=segment_format, compression="zstd")
    decoded = decode_segment(data, "s", schema=schema)
    assert decoded.schema.equals(schema)
    assert decoded.equals(table)


def test_a_typed_topics_plain_columns_have_statistics() -> None:
    schema = stored_schema(check_schema(TYPED))
    row = {"i8": 7, "s": "ž", "y": b"\0", "tags": ["a"], "at": 1, "local": 2, "_timestamp": 5}
    table = pa.Table.from_pylist([row, {**row, "i8": 9, "s": "a"}], schema=schema)
    data = encode_segment(table, segment_format="parquet", compression="zstd")
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    statistics = {column.path_in_schema: column.statistics for column in columns}
    with_statistics = {name for name, found in statistics.items() if found is not None}
    assert with_statistics == {"i8", "s", "at", "local", "_timestamp"}
    assert (statistics["i8"].min, statistics["i8"].max, statistics["s"].min, statistics["s"].max) == (7, 9, "a", "ž")


def test_a_column_with_nan_has_no_statistics() -> None:
    types = ("double", "float", "double", "double", "struct<x: double>", "int64")
    columns = tuple(zip(("nan", "nan32", "zeros", "null and 1", "s", "s.x"), types, (True,) * len(types), strict=True))
    schema = stored_schema(columns)
    row = {"nan": 3.0, "nan32": 3.0, "zeros": 0.0, "null and 1": 1.0, "s": {"x": math.nan}, "s.x": 1, "_timestamp": 5}
    other = {**row, "nan": math.nan, "nan32": math.nan, "null and 1": None}
    data = encode_segment(
        pa.Table.from_pylist([row, other, row], schema=schema), segment_format="parquet", compression="zstd"
    )
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    found = [(column.path_in_schema, column.statistics) for column in map(group.column, range(group.num_columns))]
    # The path "s.x" is that of two columns, one of which has a NaN.
    assert [path for path, statistics in found if statistics is None] == ["nan", "nan32", "s.x", "s.x"]
    # As Parquet has it: a reader that distinguishes the zeros finds both between these.
    zeros = dict(found)["zeros"]
    assert [math.copysign(1, zeros.min), math.copysign(1, zeros.max)] == [-1, 1]


@pytest.mark.parametrize("segment_format", FORMATS)
def test_columns_added_later_read_as_null(segment_format: str) -> None:
    old = stored_schema((("a", "int64", False),))
    data = encode_segment(
        pa.Table.from_pylist([{"a": 1, "_timestamp": 2}], schema=old), segment_format=segment_format, compression="zstd"
    )
    new = stored_schema((("a", "int64", False), ("b", "list<string>", True)))
    assert decode_segment(data, "s", schema=new).to_pylist()[0]["b"] is None
    assert decode_segment(data, "s", schema=new, columns=["b"], record_count=1).num_rows == 1


@pytest.mark.parametrize("segment_format", FORMATS)
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ((("a", "string", False), ("c", "string", False)), "no column 'c'"),
        ((("a", "date32", False),), "cannot be decoded"),
    ],
)
def test_a_segment_of_another_schema_is_damaged(segment_format: str, schema: Any, reason: str) -> None:
    stored = pa.table({"a": ["x"], "_timestamp": pa.array([1], pa.timestamp("ms", "UTC"))})
    data = encode_segment(stored, segment_format=segment_format, compression="zstd")
    with pytest.raises(DamagedObject, match=reason) as caught:
        decode_segment(data, "topics/t-1/0/x", schema=stored_schema(schema))
    assert caught.value.object_name == "topics/t-1/0/x"


@pytest.mark.parametrize("segment_format", FORMATS)
def test_nulls_where_none_may_be_are_damage(segment_format: str) -> None:
    stored = pa.table({"value": [b"x", b"y"], "timestamp": pa.array([1, None], pa.timestamp("ms", "UTC"))})
    data = encode_segment(stored, segment_format=segment_format, compression="zstd")
    with pytest.raises(DamagedObject, match="'timestamp' has nulls"):
        decode_segment(data, "s", schema=RECORD_SCHEMA)


@pytest.mark.parametrize("segment_format", FORMATS)
def test_another_record_count_than_the_log_has_is_damage(segment_format: str) -> None:
    data = encode_segment(many_records(10), segment_format=segment_format, compression="zstd")
    with pytest.raises(DamagedObject, match="has 10 records: expected 11"):
        decode_segment(data, "s", schema=RECORD_SCHEMA, record_count=11)


@each([b"", b"P", b"PAR1", b"ARROW1\0\0", b"{}", b"PAR1" * 10, b"ARROW1\0\0" * 10])
def test_foreign_bytes_are_damage(data: bytes) -> None:
    with pytest.raises(DamagedObject, match="'s' is damaged"):
        decode_segment(data, "s", schema=RECORD_SCHEMA)


@pytest.mark.parametrize("segment_format", FORMATS)
def test_every_truncation_is_damage(segment_format: str) -> None:
    data = encode_segment(many_records(50), segment_format=segment_format, compression="zstd")
    for length in range(len(data)):
        with pytest.raises(DamagedObject):
            decode_segment(data[:length], "s", schema=RECORD_SCHEMA)


@pytest.mark.parametrize("segment_format", FORMATS)
@settings(max_examples=200)
@given(place=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_flipped_bits_are_damage_or_harmless(segment_format: str, place: int, flip: int) -> None:
    data = bytearray(encode_segment(many_records(50), segment_format=segment_format, compression="zstd"))
    data[place % len(data)] ^= flip
    try:
        decoded = decode_segment(bytes(data), "s", schema=RECORD_SCHEMA, record_count=50)
    except DamagedObject:
        return
    assert decoded.num_rows == 50
    # Every value can be looked at; a damaged timestamp may be one that Python's calendar does not reach.
    decoded.set_column(3, "timestamp", decoded["timestamp"].cast(pa.int64())).to_pylist()


def in_row_groups(rows: int, group_rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(many_records(rows), sink, row_group_size=group_rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@settings(max_examples=100)
@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 29), st.integers(1, 30))
def test_row_groups_come_one_by_one_and_only_those_that_are_asked_for(
    count: int, group_rows: int, start: int, asked: int
) -> None:
    start = min(start, count - 1)
    end = min(start + asked, count)
    found = list(row_groups(in_row_groups(count, group_rows), count, range(start, end)))
    assert [first for first, _ in found] == list(range(start // group_rows * group_rows, end, group_rows))
    for first, rows in found:
        assert rows.equals(many_records(count).select(["value", "key"]).slice(first, group_rows))


def row_groups(data: bytes, count: int, rows: range) -> Iterator[tuple[int, pa.Table]]:
    return decode_row_groups(data, "s", schema=RECORD_SCHEMA, columns=["value", "key"], record_count=count, rows=rows)


def test_another_segment_is_one_row_group() -> None:
    data = encode_segment(many_records(10), segment_format="arrow", compression="zstd")
    ((first, rows),) = row_groups(data, 10, range(3, 4))
    assert (first, rows.num_rows) == (0, 10)


def test_a_column_that_no_row_group_has_reads_as_null() -> None:
    schema = stored_schema((("a", "int64", True), ("b", "string", True)))
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"a": [1, 2, 3], "timestamp": pa.array([0] * 3, pa.timestamp("ms", "UTC"))}), sink, row_group_size=2
    )
    data = sink.getvalue().to_pybytes()
    found = list(decode_row_groups(data, "s", schema=schema, columns=["b"], record_count=3, rows=range(3)))
    assert [(first, rows.to_pylist()) for first, rows in found] == [(0, [{"b": None}] * 2), (2, [{"b": None}])]


def test_row_groups_of_damaged_bytes_are_damage() -> None:
    data = in_row_groups(50, 10)
    with pytest.raises(DamagedObject, match="has 50 records: expected 51"):
        list(row_groups(data, 51, range(51)))
    for length in range(4, len(data)):
        with pytest.raises(DamagedObject, match="'s' is damaged"):
            list(row_groups(data[:length], 50, range(50)))


def test_the_checksum_is_crc32c() -> None:
    assert checksum(b"") == "00000000"
    assert checksum(b"123456789") == "e3069283"


@each([text for _, text, _ in TYPED])
def test_types_are_written_as_they_are_read(text: str) -> None:
    assert type_text(parse_type(text)) == text


data_types = st.recursive(
    st.sampled_from([parse_type(text) for _, text, _ in TYPED[:12]]),
    lambda inner: (
        st.builds(lambda item, nullable: pa.list_(pa.field("element", item, nullable=nullable)), inner, st.booleans())
        | st.dictionaries(st.from_regex(r"[a-z][a-z0-9_.-]{0,4}", fullmatch=True), inner, min_size=1, max_size=3).map(
            lambda fields: pa.struct(list(fields.items()))
        )
    ),
    max_leaves=6,
)


@settings(max_examples=100)
@given(data_type=data_types)
def test_any_nested_type_round_trips(data_type: pa.DataType) -> None:
    assert parse_type(type_text(data_type)).equals(data_type)


@each(
    [
        ("int", "type 'int' is unknown"),
        ("strnig", "did you mean 'string'"),
        ("decimal128(39, 0)", "precision from 1 to 38"),
        ("decimal128(3, 4)", "scale from 0"),
        ("list<>", "type '' is unknown"),
        ("struct<>", "expected 'name: type'"),
        ("map<int64>", "expected 'map<type, type>'"),
        ("map<list<int64>, int64>", "expected a key that is not nested"),
        ("struct<a: int8, A: int8>", "unique names"),
        ("struct<a: int8, b>", "in place of 'b'"),
        ("list<" * 40 + "int8" + ">" * 40, "nested deeper"),
        (7, "expected text"),
        (None, "expected text"),
    ]
)
def test_a_wrong_type_is_named(text: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        parse_type(text)


@each(
    [
        (pa.large_string(), "did you mean 'string'"),
        (pa.uint32(), "did you mean 'int32'"),
        (pa.timestamp("ns", "UTC"), r"cast it to 'timestamp\[us, tz=UTC\]'"),
        (pa.timestamp("ms"), r"cast it to 'timestamp\[us\]'"),
        (pa.dictionary(pa.int8(), pa.string()), "not kept exactly"),
        (pa.map_(pa.list_(pa.string()), pa.int8()), "is not a key of a map"),
        (pa.map_(pa.string(), pa.uint8()), "did you mean 'int8'"),
        (pa.null(), "not kept exactly"),
        (pa.struct([]), "not kept exactly"),
        (pa.struct([("a b", pa.int8())]), "struct field names"),
    ]
)
def test_types_that_are_not_kept_are_refused(data_type: pa.DataType, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        type_text(data_type)
    with pytest.raises(ConfigurationError, match=f"column 'c': .*{reason}"):
        check_schema(pa.schema([("c", data_type)]))


@each(
    [
        ([], "0 columns"),
        ([("", "int8", True)], "not empty"),
        ([(" ", "int8", True)], "not empty"),
        ([(3, "int8", True)], "not valid"),
        ([("_a", "int8", True)], "reserved"),
        ([("a", "int8", True), ("A", "int8", True)], "'A' is not unique: 'a'"),
        ([("a", "int8")], r"expected \(name, type, nullable\)"),
        ([("a", "int8", 1)], r"expected \(name, type, nullable\)"),
        (["abc"], r"expected \(name, type, nullable\)"),
        ([("a", "in8", True)], "column 'a': type 'in8' is unknown.*did you mean 'int8'"),
    ]
)
def test_wrong_columns_are_named(columns: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        check_schema(columns)


def test_a_schema_in_any_form_is_kept_as_text() -> None:
    as_text = (("a", "int64", False), ("b", "list<string>", True))
    as_arrow = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.list_(pa.string()))])
    mixed = [("a", pa.int64(), False), as_text[1]]
    assert check_schema(as_arrow) == check_schema(as_text) == check_schema(mixed) == as_text


def test_inline_segments_that_are_decoded_together_are_damaged_one_by_one() -> None:
    """Neighbours with one schema are one stream: an error still names the segment whose bytes are wrong."""
    sound = encode_inline(many_records(3), compression="none")
    other = encode_inline(many_records(2).select(["value", "timestamp"]), compression="zstd")
    segments = [InlineSegment(f"s{number}", sound, 3) for number in range(4)] + [InlineSegment("other", other, 2)]
    rows = decode_inline(segments, schema=RECORD_SCHEMA, columns=["value", "key"])
    assert rows.column("value").to_pylist() == [*many_records(3).column("value").to_pylist() * 4,
                                                *many_records(2).column("value").to_pylist()]  # fmt: skip
    assert rows.column("key").to_pylist()[-2:] == [None, None]
    body = bytearray(sound)
    # The number of rows of the record batch, which its buffers do not have then.
    place = body.rindex((3).to_bytes(8, "little"), 0, len(sound) - 200)
    body[place : place + 8] = (2**40).to_bytes(8, "little")
    for damaged, match in (
        (InlineSegment("x", sound, 4), "'x' is damaged: it has 3 records: expected 4"),
        (InlineSegment("x", sound[:-80], 3), "'x' is damaged"),
        (InlineSegment("x", bytes(body), 3), "'x' is damaged"),
    ):
        with pytest.raises(DamagedObject, match=match):
            decode_inline([*segments[:2], damaged, *segments[2:]], schema=RECORD_SCHEMA, columns=["value"])
