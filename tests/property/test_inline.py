"""Inline records of random tables: what is encoded is decoded, of all types, also after a column was added."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn._engine.format.schema import RECORD_SCHEMA, parse_type, type_text
from sparktxn._engine.format.segment import INLINE_BYTES_MAX, decode_segment, encode_inline, stored_schema
from tests.seeds import examples

COMPRESSIONS = st.sampled_from(["zstd", "lz4", "snappy", "gzip", "uncompressed", "none"])
KEYS = st.sampled_from(["bool", "int8", "int64", "string", "binary", "date32"])
PRIMITIVES = [
    *("bool", "int8", "int16", "int32", "int64", "float", "double", "string", "binary", "date32"),
    *("timestamp[us, tz=UTC]", "timestamp[us]", "decimal128(7, 2)", "decimal128(38, 0)"),
]
MILLISECONDS = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2200, 1, 1)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1_000 * 1_000, tzinfo=dt.UTC)
)
TYPES = st.recursive(
    st.sampled_from(PRIMITIVES),
    lambda inner: st.one_of(
        inner.map(lambda item: f"list<{item}>"),
        inner.map(lambda item: f"list<{item} not null>"),
        st.tuples(KEYS, inner).map(lambda pair: f"map<{pair[0]}, {pair[1]}>"),
        st.tuples(inner, inner).map(lambda pair: f"struct<a: {pair[0]}, b: {pair[1]} not null>"),
    ),
    max_leaves=4,
)


def values_of(kind: pa.DataType, *, nullable: bool) -> st.SearchStrategy[Any]:
    """Values of a type, as pyarrow takes and returns them."""
    found = _values(kind)
    return st.none() | found if nullable else found


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_list(kind):
        return st.lists(values_of(kind.value_type, nullable=kind.value_field.nullable), max_size=3)
    if pa.types.is_map(kind):
        items = st.tuples(_values(kind.key_type), values_of(kind.item_type, nullable=kind.item_field.nullable))
        return st.lists(items, max_size=3)
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({f.name: values_of(f.type, nullable=f.nullable) for f in kind})
    if pa.types.is_integer(kind):
        return st.integers(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    if pa.types.is_floating(kind):
        return st.floats(width=kind.bit_width, allow_nan=False)
    if pa.types.is_decimal(kind):
        digits = 10 ** min(kind.precision, 28) - 1
        return st.integers(-digits, digits).map(lambda number: Decimal(number).scaleb(-kind.scale))
    if pa.types.is_timestamp(kind):
        zone = dt.UTC if kind.tz else None
        return st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)).map(lambda at: at.replace(tzinfo=zone))
    return {
        pa.bool_(): st.booleans(),
        pa.string(): st.text(max_size=6),
        pa.binary(): st.binary(max_size=6),
        pa.date32(): st.dates(),
    }[kind]


@st.composite
def typed_tables(draw: st.DrawFn) -> tuple[pa.Table, tuple[tuple[str, str, bool], ...]]:
    """Rows of a typed topic, and its declared columns."""
    columns = tuple(
        (f"c{number}", kind, nullable)
        for number, (kind, nullable) in enumerate(draw(st.lists(st.tuples(TYPES, st.booleans()), max_size=4)))
    )
    schema = stored_schema(columns or None)
    return draw(rows_of(schema)), columns


@st.composite
def rows_of(draw: st.DrawFn, schema: pa.Schema) -> pa.Table:
    count = draw(st.integers(1, 6))
    arrays = []
    for field in schema:
        one = (
            MILLISECONDS
            if field.type == RECORD_SCHEMA.field("timestamp").type
            else values_of(field.type, nullable=field.nullable)
        )
        arrays.append(pa.array(draw(st.lists(one, min_size=count, max_size=count)), field.type))
    table = pa.Table.from_arrays(arrays, schema=schema)
    if draw(st.booleans()):
        # Several chunks, and arrays that are slices of larger ones.
        at = draw(st.integers(0, count))
        table = pa.concat_tables([table.slice(0, at), table.slice(at)])
    return table


@settings(max_examples=examples(50, 500))
@given(rows_of(RECORD_SCHEMA), COMPRESSIONS)
def test_kafkas_records_are_decoded_as_they_were_encoded(table: pa.Table, compression: str) -> None:
    data = encode_inline(table, compression=compression)
    found = decode_segment(data, "s", schema=RECORD_SCHEMA, record_count=table.num_rows)
    assert found.schema == RECORD_SCHEMA
    assert found.to_pylist() == table.to_pylist()
    keys = decode_segment(data, "s", schema=RECORD_SCHEMA, columns=["key", "timestamp"])
    assert keys.to_pylist() == table.select(["key", "timestamp"]).to_pylist()


@settings(max_examples=examples(50, 500))
@given(typed_tables(), COMPRESSIONS, TYPES)
def test_typed_records_are_too_and_a_column_that_was_added_is_null(
    made: tuple[pa.Table, tuple[tuple[str, str, bool], ...]], compression: str, added: str
) -> None:
    table, columns = made
    data = encode_inline(table, compression=compression)
    schema = stored_schema(columns or None)
    assert decode_segment(data, "s", schema=schema, record_count=table.num_rows).to_pylist() == table.to_pylist()
    if not columns:
        return
    grown = stored_schema((*columns, ("added", added, True)))
    found = decode_segment(data, "s", schema=grown)
    assert found.schema.field("added").type == parse_type(added)
    assert found.to_pylist() == [row | {"added": None} for row in table.to_pylist()]


@given(st.integers(1, 400), st.integers(0, 2_000), COMPRESSIONS)
@settings(max_examples=examples(25, 250))
def test_compression_changes_no_record_of_larger_ones(count: int, size: int, compression: str) -> None:
    rows = [
        {"key": b"k%d" % n, "value": b"v" * size, "headers": None, "timestamp": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}
        for n in range(count)
    ]
    table = pa.Table.from_pylist(rows, RECORD_SCHEMA)
    data = encode_inline(table, compression=compression)
    assert (len(data) <= INLINE_BYTES_MAX) or compression in ("uncompressed", "none")
    assert decode_segment(data, "s", schema=RECORD_SCHEMA, record_count=count).equals(table)


@given(TYPES)
def test_the_types_are_those_of_topics(text: str) -> None:
    assert parse_type(type_text(parse_type(text))) == parse_type(text)
