"""Arrow batches to messages, also slices of batches."""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa

from sparktxn._kafka.message import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message
from sparktxn._rows.scan.reader import output_schema
from sparktxn.consumer.polling import messages_of
from tests.each import each

ROWS: list[dict[str, Any]] = [
    {"key": b"k", "value": b"v", "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]},
    {"key": None, "value": None, "headers": None},
    {"key": b"", "value": b"", "headers": []},
    {"key": b"q", "value": b"w", "headers": [{"key": "b", "value": b""}]},
]
EXPECTED = [
    (b"k", b"v", [("a", b"1"), ("a", None)]),
    (None, None, None),
    (b"", b"", None),
    (b"q", b"w", [("b", b"")]),
]


def batch(rows: list[dict[str, Any]], timestamp_type: int = 0) -> pa.RecordBatch:
    whole = [
        {**row, "topic": "t", "partition": 2, "offset": 10 + i, "timestamp": 1_000 + i, "timestampType": timestamp_type}
        for i, row in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(whole, schema=output_schema(None))


def made(rows: pa.RecordBatch) -> list[Message]:
    found = messages_of(rows, "t", 2)
    assert found is not None
    return found


@each(product(range(5), range(5)))
def test_a_slice_gives_its_own_rows(start: int, length: int) -> None:
    found = made(batch(ROWS).slice(start, length))
    assert [(m.key(), m.value(), m.headers()) for m in found] == EXPECTED[start : start + length]
    assert [m.offset() for m in found] == list(range(10, 14))[start : start + length]


def test_the_place_and_the_time_are_told() -> None:
    created = made(batch(ROWS[:1]))[0]
    assert (created.topic(), created.partition(), created.error()) == ("t", 2, None)
    assert created.timestamp() == (TIMESTAMP_CREATE_TIME, 1_000)
    appended = made(batch(ROWS[:1], timestamp_type=1))[0]
    assert appended.timestamp() == (TIMESTAMP_LOG_APPEND_TIME, 1_000)


def test_null_lists_that_cover_values_have_no_headers() -> None:
    """Arrow lets a null row's offsets span values: they are not the row's."""
    values = pa.array(
        [{"key": "hidden", "value": b"x"}, {"key": "shown", "value": b"y"}],
        type=output_schema(None).field("headers").type.value_type,
    )
    headers = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()),
        values,
        type=output_schema(None).field("headers").type,
        mask=pa.array([True, False]),
    )
    rows = batch(ROWS[:2])
    columns = [headers if name == "headers" else rows.column(name) for name in rows.schema.names]
    found = made(pa.RecordBatch.from_arrays(columns, schema=rows.schema))
    assert [m.headers() for m in found] == [None, [("shown", b"y")]]


def test_a_typed_topic_has_no_messages() -> None:
    rows = pa.RecordBatch.from_pylist([], schema=output_schema((("id", "int64", False),)))
    assert messages_of(rows, "t", 2) is None
