"""What manifests say of columns: no value is outside of its bounds, and single values have Iceberg's binary form."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._rows.tableformats.icebergmanifests import metrics
from tests.unit.tableformats.test_delta_statistics import VALUES, written

DECIMAL = "decimal128(38, 9)"
TYPES: dict[str, Any] = {
    "int8": IntegerType(),
    "int64": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    DECIMAL: DecimalType(38, 9),
    "string": StringType(),
    "date32": DateType(),
    "timestamp[us]": TimestampType(),
    "bool": BooleanType(),
}


def described(data_type: str, values: list[Any]) -> dict[str, Any]:
    """What the manifest has of a column with these values, with bounds as pyiceberg takes them."""
    columns: Columns = (("c", data_type, True),)
    rows = [{"c": value} for value in values]
    found = metrics(written(columns, rows[:2], *([rows[2:]] if rows[2:] else [])), columns)
    own: dict[str, Any] = {
        name: next((each["value"] for each in pairs if each["key"] == 4), None) for name, pairs in found.items()
    }
    for bound in ("lower_bounds", "upper_bounds"):
        if own[bound] is not None:
            own[bound] = from_bytes(TYPES[data_type], own[bound])
    return own


def comparable(value: Any, data_type: str) -> Any:
    """A value as pyiceberg has bounds of it."""
    if data_type == "date32":
        return (value - date(1970, 1, 1)).days
    if data_type == "timestamp[us]":
        since = value - datetime(1970, 1, 1)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return value.encode() if isinstance(value, str) else value


def _columns_of_values() -> st.SearchStrategy[tuple[str, list[Any]]]:
    known = VALUES | {"bool": st.booleans()}
    return st.sampled_from(sorted(known)).flatmap(
        lambda data_type: st.tuples(st.just(data_type), st.lists(st.none() | known[data_type], min_size=1, max_size=6))
    )


@given(_columns_of_values())
@example(("double", [-0.0, math.nan]))
@example((DECIMAL, [Decimal("-0.000000128"), Decimal("0.000000127")]))
@example(("string", ["a" * 15 + "\ud7ff" + "b"]))
@example(("string", ["\U0010ffff" * 17]))
def test_no_value_is_outside_of_its_bounds(column):
    data_type, values = column
    found = described(data_type, values)
    known = [comparable(value, data_type) for value in values if value is not None]
    assert found["value_counts"] == len(values)
    assert found["null_value_counts"] in (len(values) - len(known), None)
    for bound, is_right in (
        ("lower_bounds", lambda low, each: low <= each),
        ("upper_bounds", lambda high, each: each <= high),
    ):
        if (limit := found[bound]) is not None:
            limit = limit.encode() if isinstance(limit, str) else limit
            assert all(is_right(limit, each) for each in known)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a" * 16], ("a" * 16, "a" * 16)),
        (["a" * 17], ("a" * 16, "a" * 15 + "b")),
        (["a" * 15 + "\ud7ffx"], ("a" * 15 + "\ud7ff", "a" * 15 + "\ue000")),
        (["a" * 15 + "\U0010ffff" * 2], ("a" * 15 + "\U0010ffff", "a" * 14 + "b")),
        (["\U0010ffff" * 17], ("\U0010ffff" * 16, None)),
    ],
)
def test_texts_are_cut_as_iceberg_cuts_them(values, expected):
    found = described("string", values)
    assert (found["lower_bounds"], found["upper_bounds"]) == expected


def test_fields_of_structs_have_numbers_of_their_own_and_those_in_lists_are_left_out():
    columns: Columns = (("l", "list<int64>", True), ("s", "struct<x: int64, in: struct<y: double>>", True))
    found = metrics(written(columns, [{"l": [1], "s": {"x": 7, "in": {"y": 1.5}}}]), columns)
    # The list has 4 and its element 5, the struct 6.
    assert [each["key"] for each in found["lower_bounds"]] == [1, 2, 7, 9]
    assert {each["key"]: each["value"] for each in found["upper_bounds"]}[7] == (7).to_bytes(8, "little")


@pytest.mark.parametrize("days", [-(2**31), 2**31 - 1, 2_932_897, -719_163])
def test_days_that_engines_cannot_show_are_no_bounds(days):
    columns: Columns = (("c", "date32", True),)
    assert [each["key"] for each in metrics(written(columns, [{"c": days}]), columns)["lower_bounds"]] == [1, 2]
