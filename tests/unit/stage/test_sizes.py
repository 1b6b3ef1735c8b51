from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparktxn._engine.format.segment import RECORD_SCHEMA
from sparktxn._rows.stage.recordsizes import payload_bytes, record_bytes, row_above, row_bytes, rows_that_fit
from tests.each import each

rows = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.binary(max_size=9),
            "value": st.none() | st.binary(max_size=9),
            "headers": st.none()
            | st.lists(
                st.fixed_dictionaries({"key": st.text("až", max_size=3), "value": st.none() | st.binary(max_size=3)}),
                max_size=3,
            ),
            "timestamp": st.integers(0, 9),
        }
    ),
    max_size=12,
)


def plain_size(row: dict[str, Any]) -> int:
    headers = sum(len(header["key"].encode()) + len(header["value"] or b"") for header in row["headers"] or [])
    return len(row["key"] or b"") + len(row["value"] or b"") + headers + 8


@given(rows, st.integers(0, 5), st.integers(0, 12))
def test_the_size_is_that_of_the_plain_records(given_rows: list[dict[str, Any]], start: int, length: int) -> None:
    table = pa.Table.from_pylist(given_rows, schema=RECORD_SCHEMA)
    sliced = table.slice(start, length)
    expected = [plain_size(row) for row in given_rows[start : start + length]]
    assert payload_bytes(sliced) == sum(expected)
    assert payload_bytes(pa.concat_tables([table, sliced])) == payload_bytes(table) + payload_bytes(sliced)
    if sliced.num_rows:
        columns = [record_bytes(column.combine_chunks()).to_pylist() for column in sliced.columns]
        assert [sum(sizes) for sizes in zip(*columns, strict=True)] == expected


@each(
    [
        (pa.array([True, None]), [1, 0]),
        (pa.array([1, None], pa.int16()), [2, 0]),
        (pa.array([1, 2], pa.date32()), [4, 4]),
        (pa.array([1, None], pa.decimal128(5, 2)), [16, 0]),
        (pa.array(["ž", None, ""]), [2, 0, 0]),
        (pa.array([None, None], pa.string()), [0, 0]),
        (pa.array([["ab", None], None, [], ["c"]]), [2, 0, 0, 1]),
        (pa.array([{"a": 1, "b": "xy"}, None, {"a": None, "b": "z"}]), [10, 0, 1]),
        (pa.array([[[1], [2, 3]], [None]], pa.list_(pa.list_(pa.int8()))), [3, 0]),
    ]
)
def test_values_of_every_kind(array: pa.Array, sizes: list[int]) -> None:
    assert record_bytes(array).to_pylist() == sizes
    assert payload_bytes(pa.table({"c": array})) == sum(sizes)
    assert payload_bytes(pa.table({"c": array.slice(1)})) == sum(sizes[1:])


@given(rows, st.integers(0, 200))
def test_rows_that_fit_are_within_the_limit(plain: list[dict[str, Any]], room: int) -> None:
    table = pa.Table.from_pylist(plain, schema=RECORD_SCHEMA)
    count = rows_that_fit(table, room)
    assert sum(row_bytes(table.slice(0, count)).to_pylist()) <= room
    assert sum(row_bytes(table).to_pylist()) == payload_bytes(table)
    assert count == table.num_rows or sum(row_bytes(table.slice(0, count + 1)).to_pylist()) + 16 * (count + 1) > room


@given(rows, st.integers(0, 40))
def test_a_row_above_a_limit_is_the_largest(plain: list[dict[str, Any]], limit: int) -> None:
    table = pa.Table.from_pylist(plain, schema=RECORD_SCHEMA)
    # The timestamp is not part of a record's size.
    largest = max((plain_size(row) - 8 for row in plain), default=0)
    assert row_above(table, limit) == (largest if largest > limit else None)
