"""Nulls below a null struct, where a field is declared not null: what programs may hand over, and Parquet refuses."""

from __future__ import annotations

import io
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparktxn._foundation.values.arrowvalues import without_hidden_nulls
from tests.seeds import examples

_PLAIN = (pa.int32(), pa.string(), pa.bool_(), pa.decimal128(9, 2))
_VALUES = {pa.int32(): -5, pa.string(): "text", pa.bool_(): True, pa.decimal128(9, 2): Decimal("1.50")}


def drawn_type(random: Random, depth: int = 0) -> pa.DataType:
    kind = random.choice(["plain", "struct", "list", "map"]) if depth < 3 else "plain"
    if kind == "struct":
        count = random.randint(1, 3)
        return pa.struct([drawn_field(random, f"field{number}", depth) for number in range(count)])
    if kind == "list":
        return pa.list_(drawn_field(random, "element", depth))
    if kind == "map":
        return pa.map_(pa.string(), drawn_field(random, "value", depth))
    return random.choice(_PLAIN)


def drawn_field(random: Random, name: str, depth: int) -> pa.Field:
    return pa.field(name, drawn_type(random, depth + 1), nullable=random.random() < 0.5)


def drawn_value(random: Random, field: pa.Field) -> Any:
    if field.nullable and random.random() < 0.4:
        return None
    if pa.types.is_struct(field.type):
        return {each.name: drawn_value(random, each) for each in field.type}
    if pa.types.is_map(field.type):
        return [(f"key{n}", drawn_value(random, field.type.item_field)) for n in range(random.randint(0, 2))]
    if pa.types.is_list(field.type):
        return [drawn_value(random, field.type.value_field) for _ in range(random.randint(0, 2))]
    return _VALUES[field.type]


def loosened(data_type: pa.DataType) -> pa.DataType:
    """Return the type with nulls allowed everywhere: an array of it has nulls below its null structs, once taken."""
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(field.name, loosened(field.type)) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(data_type.key_type, loosened(data_type.item_type))
    return pa.list_(loosened(data_type.value_type)) if pa.types.is_list(data_type) else data_type


def declared(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return the same buffers as an array of another type, which forbids some nulls."""
    if pa.types.is_struct(data_type):
        parts = [declared(array.field(index), field.type) for index, field in enumerate(data_type)]
        return pa.Array.from_buffers(data_type, len(array), array.buffers()[:1], array.null_count, 0, parts)
    if pa.types.is_list(data_type) or pa.types.is_map(data_type):
        is_list = pa.types.is_list(data_type)
        items = data_type.value_type if is_list else pa.struct([data_type.key_field, data_type.item_field])
        parts = [declared(array.values, items)]
        return pa.Array.from_buffers(data_type, len(array), array.buffers()[:2], array.null_count, array.offset, parts)
    return array


def drawn(random: Random) -> pa.Table:
    """Return rows of one column with nulls below null structs."""
    field = pa.field("column", drawn_type(random))
    values = [drawn_value(random, field) for _ in range(random.randint(1, 6))]
    places = pa.array([None if value is None else place for place, value in enumerate(values)], pa.int64())
    array = declared(pa.array(values, loosened(field.type)).take(places), field.type)
    return pa.table({"column": array[random.randint(0, 1) :]}, pa.schema([field]))


def written(table: pa.Table) -> list[Any]:
    """Return the values as a reader of a Parquet file with the table's rows has them."""
    sink = io.BytesIO()
    pq.write_table(table, sink)
    values: list[Any] = pq.read_table(sink, schema=table.schema, use_threads=False)["column"].to_pylist()
    return values


def test_every_table_can_be_written_and_keeps_its_values() -> None:
    refused = 0
    for seed in range(examples(400, 20_000)):
        table = drawn(Random(seed))
        expected = table["column"].to_pylist()
        try:
            written(table)
        except pa.ArrowInvalid:
            refused += 1
        shown = without_hidden_nulls(table)
        shown.validate(full=True)
        assert shown.schema == table.schema, seed
        assert shown["column"].to_pylist() == written(shown) == expected, seed
    assert refused > 20, "the tables have what Parquet refuses"


def test_a_null_that_readers_see_is_still_refused() -> None:
    """The values of a segment are checked before: no null becomes another value here."""
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    array = pa.Array.from_buffers(inner, 2, [None], 0, 0, [pa.array([1, None], pa.int32())])
    table = pa.table({"column": array})
    assert without_hidden_nulls(table)["column"].to_pylist() == [{"a": 1}, {"a": None}]
    with pytest.raises(pa.ArrowInvalid, match="declared non-nullable"):
        written(without_hidden_nulls(table))
