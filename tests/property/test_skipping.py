"""Conditions against a plain filter over all rows, over segments of few values each: what is skipped holds no match."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.seeds import examples

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from sparktxn import Producer, Store, read_arrow
from tests.spark.readers import batch_reader, filtering_reader

TEXTS: Final = ["", "a", "ab", "abc", "b", "Z", "é", "e\u0301", "\uffff", "\U0001f600", "a\x00", "x" * 5_000]
TIMES: Final = [
    datetime(1, 1, 2),
    datetime(1582, 10, 14, 23, 59, 59, 999999),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(1970, 1, 1),
    datetime(2024, 3, 31, 1, 30, 0, 1),
    datetime(9999, 12, 30),
]
FLOATS: Final = [0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf]
COLUMNS: Final[dict[str, tuple[pa.DataType, Sequence[Any]]]] = {
    "text": (pa.string(), TEXTS),
    "Bytes": (pa.binary(), [*(text.encode() for text in TEXTS), b"\x80", b"\xff", b"\xff\xff"]),
    "tiny": (pa.int8(), [-128, -1, 0, 1, 127]),
    "long": (pa.int64(), [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1]),
    "single": (pa.float32(), FLOATS),
    "double": (pa.float64(), [*FLOATS, 0.1, 1e300]),
    "flag": (pa.bool_(), [False, True]),
    "price": (pa.decimal128(10, 2), [Decimal(text) for text in ("-1.50", "0.00", "0.01", "2.00", "99999999.99")]),
    "wide": (pa.decimal128(38, 10), [Decimal(text) for text in ("-1.5000000000", "0.0000000001", "7.0000000000")]),
    "day": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)]),
    "moment": (pa.timestamp("us", "UTC"), [time.replace(tzinfo=UTC) for time in TIMES]),
    "local time": (pa.timestamp("us"), TIMES),
    # In Parquet the field of the second has the name of the first.
    "place.x": (pa.int64(), [5, 6]),
    "place": (pa.struct([("x", pa.int64())]), [{"x": 1}, {"x": 100}, {"x": None}]),
    "offset": (pa.int64(), [-1, 0, 7]),
}
SCHEMA: Final = pa.schema([(name, data_type) for name, (data_type, _) in COLUMNS.items()])

PUSHED: Final[dict[str, Callable[..., Filter]]] = {
    "=": EqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
    "in": In,
    "starts with": StringStartsWith,
    "is null": IsNull,
    "is not null": IsNotNull,
}
WITHOUT_VALUE: Final = ("is null", "is not null")

Row = dict[str, Any]
Asked = tuple[str, str, Any]


def rows() -> st.SearchStrategy[list[Row]]:
    """One segment, whose columns have one to three values each, or null."""

    def of(name: str) -> st.SearchStrategy[list[Any]]:
        values = COLUMNS[name][1]
        few = st.lists(st.sampled_from([None, *values]), min_size=1, max_size=3)
        return few.flatmap(lambda some: st.lists(st.sampled_from(some), min_size=4, max_size=4))

    whole = st.fixed_dictionaries({name: of(name) for name in COLUMNS})
    return whole.map(lambda columns: [{name: columns[name][place] for name in COLUMNS} for place in range(4)])


def conditions() -> st.SearchStrategy[Asked]:
    def of(name: str) -> st.SearchStrategy[Asked]:
        data_type, values = COLUMNS[name]
        one, with_null = (
            st.sampled_from(values),
            st.just((name, "is null", None)) | st.just((name, "is not null", None)),
        )
        if pa.types.is_struct(data_type):
            return with_null
        operators = ["="] if pa.types.is_boolean(data_type) else ["=", "<", "<=", ">", ">="]
        asked = st.tuples(st.just(name), st.sampled_from(operators), one)
        asked |= st.tuples(st.just(name), st.just("in"), st.lists(one, min_size=1, max_size=3).map(tuple))
        if name in ("text", "Bytes"):
            asked |= st.tuples(st.just(name), st.just("starts with"), one)
        return asked | with_null

    return st.sampled_from(list(COLUMNS)).flatmap(of)


def is_met(row: Row, asked: Asked) -> bool:
    name, operator, value = asked
    found = row[name]
    if operator in WITHOUT_VALUE:
        return (found is None) == (operator == "is null")
    if found is None:
        return False
    if operator == "in":
        return any(_order(found) == _order(one) for one in value)
    if operator == "starts with":
        return bool(found.startswith(value))
    left, right = _order(found), _order(value)
    return {
        "=": left == right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[operator]


def _order(value: Any) -> Any:
    """NaN is equal to itself and above all other numbers, as Spark has it."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def _json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_json(one) for one in value]
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Decimal | float) and not isinstance(value, bool):
        return str(value)
    return value.isoformat() if isinstance(value, date) else value


def _has_text(value: Any) -> bool:
    """Whether JSON can say it."""
    values = value if isinstance(value, tuple) else (value,)
    return all(not isinstance(one, bytes) or (b"\x80" not in one and b"\xff" not in one) for one in values)


def _numbers(batches: Any) -> list[int]:
    return sorted(number for batch in batches for number in batch.column("_offset").to_pylist())


@settings(max_examples=examples(10, 100))
@given(
    st.lists(rows(), min_size=1, max_size=4),
    st.lists(st.lists(conditions(), min_size=1, max_size=2), min_size=12, max_size=12),
    st.sampled_from(["parquet", "arrow"]),
    st.sampled_from(["0", "16384"]),
    st.sampled_from(["commit", "offset"]),
)
def test_no_row_that_meets_the_conditions_is_skipped(
    segments: list[list[Row]], questions: list[list[Asked]], segment_format: str, inline: str, order: str
) -> None:
    with tempfile.TemporaryDirectory() as folder, Store.open(folder, create=True) as store:
        store.create_topic(
            "t", schema=SCHEMA, settings={"segment.format": segment_format, "append.inline.bytes": inline}
        )
        for segment in segments:
            with Producer({"bootstrap.servers": folder}) as producer:
                producer.produce_arrow("t", pa.Table.from_pylist(segment, SCHEMA), partition=0)
        written = [row for segment in segments for row in segment]
        for asked in questions:
            expected = [place for place, row in enumerate(written) if all(is_met(row, one) for one in asked)]
            where = [one[: 2 if one[1] in WITHOUT_VALUE else 3] for one in asked]
            assert _numbers(read_arrow(store, "t", where=where, columns=["_offset"])) == expected, asked
            if all(_has_text(value) for _, _, value in asked):
                text = json.dumps([[*one[:2], *map(_json, one[2:])] for one in where])
                found = batch_reader(store, filters=text, columns="_offset", order=order)
                assert _numbers(batch for part in found.partitions() for batch in found.read(part)) == expected, text
            pushing = filtering_reader(store, columns="_offset", order=order)
            list(
                pushing.pushFilters(
                    [
                        PUSHED[operator]((name,), *([] if operator in WITHOUT_VALUE else [value]))
                        for name, operator, value in asked
                    ]
                )
            )
            kept = _numbers(batch for part in pushing.partitions() for batch in pushing.read(part))
            assert set(kept) >= set(expected), asked
