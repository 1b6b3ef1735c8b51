"""Conditions on columns: against a plain model with random values, and what they refuse."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktxn._engine.format.segment import encode_segment, parquet_footer
from sparktxn._rows.scan.conditions import (
    OPERATORS,
    Condition,
    checked_condition,
    groups_that_may_hold,
    matching,
    meets,
)
from sparktxn.errors import ConfigurationError, DamagedObject
from tests.each import each

MOMENTS = [datetime(2024, 1, day, tzinfo=UTC) for day in range(1, 9)]
POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [-(2**63), -1, 0, 1, 2, 3, 2**63 - 1]),
    "text": (pa.string(), ["", "a", "ab", "abc", "b", "ü", "z\U0010ffff"]),
    "key": (pa.binary(), [b"", b"\x00", b"a", b"ab", b"\xff", b"\xff\xff"]),
    "number": (pa.float64(), [-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan]),
    "flag": (pa.bool_(), [True, False]),
    "price": (pa.decimal128(10, 2), [Decimal("-1.00"), Decimal("0.00"), Decimal("19.99")]),
    "moment": (pa.timestamp("us", tz="UTC"), MOMENTS),
}
SCHEMA = pa.schema([pa.field(name, data_type) for name, (data_type, _) in POOLS.items()])


def ordered(value: Any) -> Any:
    """NaN is equal to itself and greater than all other numbers."""
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def model(value: Any, condition: Condition) -> bool:
    """What SQL says, value by value."""
    operator, wanted = condition.operator, condition.value
    if operator == "is null":
        return value is None
    if value is None:
        return False
    if operator == "is not null":
        return True
    if operator == "starts with":
        return bool(value.startswith(wanted))
    if operator == "in":
        return any(ordered(value) == ordered(one) for one in wanted)
    one, other = ordered(value), ordered(wanted)
    return bool(
        {
            "=": one == other,
            "!=": one != other,
            "<": one < other,
            "<=": one <= other,
            ">": one > other,
            ">=": one >= other,
        }[operator]
    )


def random_condition(random: Random) -> Condition:
    while True:
        column = random.choice(list(POOLS))
        operator = random.choice(OPERATORS)
        pool = POOLS[column][1]
        value: Any = random.choice(pool)
        if operator == "in":
            value = tuple(random.choices(pool, k=random.randint(1, 3)))
        elif operator in ("is null", "is not null"):
            value = None
        try:
            return checked_condition(Condition(column, operator, value), SCHEMA)
        except ConfigurationError:
            continue


@each(range(8))
def test_rows_are_those_of_the_model_and_no_footer_denies_one_of_them(seed: int) -> None:
    random = Random(seed)
    ruled_out = 0
    for _ in range(60):
        count = random.randint(1, 6)
        columns = {
            name: pa.array([random.choice([*pool, None]) for _ in range(count)], data_type)
            for name, (data_type, pool) in POOLS.items()
        }
        rows = pa.table(columns, SCHEMA)
        stored = rows.append_column("_timestamp", pa.array([MOMENTS[0]] * count, SCHEMA.field("moment").type))
        footer = parquet_footer(encode_segment(stored, segment_format="parquet", compression="zstd"), "segment")
        assert footer is not None
        for _ in range(20):
            condition = random_condition(random)
            expected = [model(value, condition) for value in rows.column(condition.column).to_pylist()]
            assert meets(rows.column(condition.column), condition).to_pylist() == expected, (seed, condition)
            assert groups_that_may_hold(footer, [condition]) or not any(expected), (seed, condition)
            ruled_out += not groups_that_may_hold(footer, [condition])
            batch = rows.combine_chunks().to_batches()[0]
            assert matching(batch, [condition]).num_rows == sum(expected)
    assert ruled_out > 100


@each(
    [
        (Condition("inn", "=", 1), "did you mean 'int'"),
        (Condition("int", "==", 1), "expected one of =, <"),
        (Condition("int", "=", "1"), "expected int64"),
        (Condition("int", "=", 1.5), "expected int64"),
        (Condition("int", "=", None), "expected int64"),
        (Condition("int", "=", 2**63), "expected int64"),
        (Condition("int", "=", True), "has a bool"),
        (Condition("int", "=", np.True_), "has a bool"),
        (Condition("number", "=", True), "has a bool"),
        (Condition("number", "=", 2**53 + 1), "expected double"),
        (Condition("single", ">", 1e39), "expected float"),
        (Condition("single", "=", 1e-60), "expected float"),
        (Condition("text", "=", b"a"), "expected string"),
        (Condition("flag", "<", True), "has no meaning"),
        (Condition("moment", "starts with", "2"), "has no meaning"),
        (Condition("text", "in", ("a", 1)), "expected string"),
        (Condition("text", "in", ()), "at least one"),
    ]
)
def test_what_no_column_can_be_compared_with_is_refused(condition: Condition, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        checked_condition(condition, SCHEMA.append(pa.field("single", pa.float32())))


def test_an_error_does_not_show_the_value() -> None:
    with pytest.raises(ConfigurationError) as error:
        checked_condition(Condition("int", "=", "secret"), SCHEMA)
    assert "secret" not in str(error.value)


def test_a_footer_that_cannot_be_read_is_damage() -> None:
    with pytest.raises(DamagedObject, match="footer"):
        parquet_footer(b"PAR1 but no more", "a/segment.parquet")
    assert parquet_footer(b"ARROW1", "a/segment.arrow") is None


def test_a_column_with_a_dot_in_its_name_is_not_the_field_of_a_nested_one() -> None:
    schema = pa.schema([("place.x", pa.int64()), ("place", pa.struct([("x", pa.int64())]))])
    rows = pa.Table.from_pylist([{"place.x": 5, "place": {"x": 1}}, {"place.x": None, "place": None}], schema)
    stored = rows.append_column("_timestamp", pa.array([MOMENTS[0]] * 2, SCHEMA.field("moment").type))
    footer = parquet_footer(encode_segment(stored, segment_format="parquet", compression="zstd"), "segment")
    assert footer is not None
    for operator, value in (("=", 5), (">", 1), ("in", (5,)), ("is null", None), ("is not null", None)):
        assert groups_that_may_hold(footer, [Condition("place.x", operator, value)]), operator
    # Parquet's writer takes paths, so it writes no statistics for either.
    assert groups_that_may_hold(footer, [Condition("place.x", "=", 1)])


@each([("=", "ü", b"\xc3\xbc"), ("in", ("a", b"b", "ü"), (b"a", b"b", b"\xc3\xbc")), ("starts with", "a", b"a")])
def test_bytes_take_text_as_producers_do(case: tuple[str, Any, Any]) -> None:
    operator, given, expected = case
    assert checked_condition(Condition("key", operator, given), SCHEMA).value == expected


@each(["\ud800", 1])
def test_bytes_take_no_other_value(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="the condition on column 'key' has a"):
        checked_condition(Condition("key", "=", value), SCHEMA)


def test_text_takes_no_bytes() -> None:
    with pytest.raises(ConfigurationError, match="expected string"):
        checked_condition(Condition("text", "=", b"a"), SCHEMA)
