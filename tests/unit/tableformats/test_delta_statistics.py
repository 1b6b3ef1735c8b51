"""The statistics of a Delta table's files: no value is outside of its bounds, and the property names what has them."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktxn._engine.format.schema import stored_schema, with_offsets
from sparktxn._engine.format.segment import parquet_options
from sparktxn._engine.format.statistics import numbered_columns
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._rows.tableformats.columnstatistics import statistics_of
from sparktxn._rows.tableformats.delta import bounded_columns, statistics_text
from sparktxn._rows.tableformats.version import TableFile

DAYS = (date(1, 1, 1), date(9999, 12, 31))
TIMES = (datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999))
OWN = ["_offset", "_timestamp"]


def written(columns: Columns, *groups: list[dict[str, Any]], is_numbered: bool = True) -> TableFile:
    """A merged file with row groups of these rows, as a publication describes it."""
    schema = with_offsets(stored_schema(columns))
    rows = [row for group in groups for row in group]
    filled = [
        dict.fromkeys(schema.names) | {"_timestamp": datetime(2026, 1, 1, tzinfo=UTC), "_offset": place} | row
        for place, row in enumerate(rows)
    ]
    table = pa.Table.from_pylist(filled, schema)
    sink = pa.BufferOutputStream()
    kept = numbered_columns(schema) if is_numbered else schema
    with pq.ParquetWriter(sink, kept, **parquet_options(table, "zstd")) as writer:
        first = 0
        for group in groups:
            writer.write_table(table.slice(first, len(group)))
            first += len(group)
    data = sink.getvalue()
    return TableFile(
        path="kafka_partition=0/a.parquet",
        partition=0,
        size_bytes=len(data),
        record_count=len(rows),
        offset_min=0,
        offset_max=len(rows) - 1,
        timestamp_min_ms=0,
        timestamp_max_ms=0,
        statistics=statistics_of(pq.read_metadata(pa.BufferReader(data))),
    )


def described(data_type: str, *values: Any) -> tuple[Any, Any, Any, bool]:
    """The least and the greatest value of a column, its nulls, and whether all bounds are tight."""
    columns: Columns = (("c", data_type, True),)
    found = json.loads(statistics_text(written(columns, [{"c": value} for value in values]), columns), parse_float=str)
    low, high = found["minValues"].get("c"), found["maxValues"].get("c")
    return low, high, found["nullCount"].get("c"), found["tightBounds"]


@pytest.mark.parametrize(
    ("data_type", "values", "expected"),
    [
        ("int8", [-128, 127, None], (-128, 127, 1, True)),
        ("int64", [-(2**63), 2**63 - 1], (-(2**63), 2**63 - 1, 0, True)),
        ("int64", [None, None], (None, None, 2, True)),
        ("float", [0.1, 1.5], ("0.10000000149011612", "1.5", 0, True)),
        ("double", [0.0], ("-0.0", "0.0", 0, False)),
        ("double", [-0.0, 0.0, None], ("-0.0", "0.0", 1, False)),
        ("double", [1.0, math.inf], (None, None, 0, True)),
        ("double", [1.0, math.nan], (None, None, None, True)),
        (
            "decimal128(38, 10)",
            [Decimal("-9999999999999999999999999999.9999999999")],
            ("-9999999999999999999999999999.9999999999",) * 2 + (0, True),
        ),
        ("decimal128(9, 2)", [Decimal("0.05"), Decimal("-0.05")], ("-0.05", "0.05", 0, True)),
        ("decimal128(5, 5)", [Decimal("0.00001")], ("0.00001", "0.00001", 0, True)),
        ("decimal128(18, 0)", [Decimal("0"), Decimal("-7")], (-7, 0, 0, True)),
        ("date32", list(DAYS), ("0001-01-01", "9999-12-31", 0, True)),
        ("timestamp[us]", [TIMES[0]], ("0001-01-01T00:00:00.000",) * 2 + (0, True)),
        (
            "timestamp[us]",
            [datetime(2020, 1, 2, 3, 4, 5, 1)],
            ("2020-01-02T03:04:05.000", "2020-01-02T03:04:05.001", 0, False),
        ),
        (
            "timestamp[us]",
            [datetime(1960, 1, 2, 3, 4, 5, 999_999)],
            ("1960-01-02T03:04:05.999", "1960-01-02T03:04:06.000", 0, False),
        ),
        ("timestamp[us, tz=UTC]", [datetime(2020, 1, 1, tzinfo=UTC)], ("2020-01-01T00:00:00.000Z",) * 2 + (0, True)),
        # The next millisecond has no text in Delta.
        ("timestamp[us]", [TIMES[1]], (None, None, 0, True)),
        ("string", ["", "b"], ("", "b", 0, True)),
        ("string", ["a" * 32], ("a" * 32, "a" * 32, 0, True)),
        ("string", ["é" * 33], ("é" * 32, "é" * 32 + "\U0010ffff", 0, False)),
        ("string", ["a" * 31 + "\U0010ffff" * 3], ("a" * 31 + "\U0010ffff", "a" * 31 + "\U0010ffff" * 4, 0, False)),
        ("string", ["x" * 5000], (None, None, 0, True)),
        ("binary", [b"a"], (None, None, None, True)),
        ("bool", [True], (None, None, None, True)),
        ("list<int64>", [[1]], (None, None, None, True)),
    ],
)
def test_a_column_has_bounds_that_json_can_hold(data_type, values, expected):
    assert described(data_type, *values) == expected


@pytest.mark.parametrize("days", [-(2**31), 2**31 - 1, 2_932_897, -719_163])
def test_days_that_have_no_text_in_delta_are_no_bounds(days):
    columns: Columns = (("c", "date32", True),)
    file = written(columns, [{"c": days}])
    assert "c" not in json.loads(statistics_text(file, columns))["minValues"]
    assert bounded_columns([file], columns) == OWN


@pytest.mark.parametrize("milliseconds", [-(2**63), 2**63 - 1, 253_402_300_800_000, -62_135_596_800_001])
def test_times_that_have_no_text_in_delta_are_no_bounds(milliseconds):
    """delta-rs would find no rows by a condition on a column that the property names, and a file has no bounds of."""
    columns: Columns = (("c", "int64", True),)
    file = written(columns, [{"c": 1, "_timestamp": milliseconds}])
    assert json.loads(statistics_text(file, columns))["minValues"] == {"_offset": 0, "c": 1}
    assert bounded_columns([file], columns) == ["_offset", "c"]


def test_nested_columns_have_no_bounds():
    """Polars 2.1 reads no table in which some fields of a struct have bounds, and others have none."""
    columns: Columns = (
        ("s", "struct<x: int64>", True),
        ("l", "list<struct<x: int64>>", True),
        ("m", "map<string, int64>", True),
    )
    file = written(columns, [{"s": {"x": 1}}])
    assert json.loads(statistics_text(file, columns))["nullCount"].keys() == {*OWN}
    assert bounded_columns([file], columns) == OWN


def test_a_column_that_a_file_does_not_have_is_null_in_it():
    file = written((("a", "int64", True),), [{"a": 1}] * 2)
    columns: Columns = (("a", "int64", True), ("b", "string", True))
    found = json.loads(statistics_text(file, columns))
    assert found["nullCount"] == {"_offset": 0, "_timestamp": 0, "a": 0, "b": 2}
    assert bounded_columns([file], columns) == [*OWN, "a", "b"]


def test_the_property_names_what_each_file_has_bounds_of():
    columns: Columns = (("a", "double", True), ("b", "string", True), ("c", "int64", True))
    sound = written(columns, [{"a": 1.0, "b": "x", "c": 1}])
    with_nan = written(columns, [{"a": 1.0, "b": "x", "c": 1}], [{"a": math.nan, "b": "x", "c": None}])
    long = written(columns, [{"a": None, "b": "x" * 5000, "c": None}])
    assert bounded_columns([], columns) == [*OWN, "a", "b", "c"]
    assert bounded_columns([sound], columns) == [*OWN, "a", "b", "c"]
    assert bounded_columns([sound, with_nan], columns) == [*OWN, "b", "c"]
    assert bounded_columns([long, with_nan], columns) == [*OWN, "c"]
    assert bounded_columns([replace(sound, statistics=None)], columns) == ["_offset"]


def test_fractions_of_files_without_numbers_of_columns_have_no_bounds():
    """Earlier writers did not leave out the bounds of a column with NaN."""
    columns: Columns = (("a", "double", True), ("c", "int64", True))
    file = written(columns, [{"a": 1.0, "c": 1}], is_numbered=False)
    assert bounded_columns([file], columns) == [*OWN, "c"]


def test_columns_beyond_the_first_ones_have_no_bounds():
    columns: Columns = tuple((f"c{number}", "int64", True) for number in range(300))
    file = written(columns, [{"c0": 1}])
    assert bounded_columns([file], columns) == [*OWN, *(f"c{number}" for number in range(198))]
    assert len(json.loads(statistics_text(file, columns))["nullCount"]) == 200


def test_names_that_are_paths_of_others_have_no_bounds():
    """Parquet's writer takes one path for both: bounds of one would be written for the other."""
    columns: Columns = (("a.b", "double", True), ("a", "struct<b: double>", True), ("c`d", "int64", True))
    file = written(columns, [{"a.b": math.nan, "a": {"b": 1.0}, "c`d": 1}])
    assert bounded_columns([file], columns) == [*OWN, "`c``d`"]


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-128, 127),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "decimal128(38, 9)": st.decimals(
        allow_nan=False, allow_infinity=False, places=9, min_value=-(10**28), max_value=10**28
    ),
    "string": st.text(max_size=50) | st.text("a\U0010ffff", min_size=28, max_size=40),
    "date32": st.dates(),
    "timestamp[us]": st.datetimes(),
}


def _columns_of_values() -> st.SearchStrategy[tuple[str, list[Any]]]:
    def values(data_type: str) -> st.SearchStrategy[tuple[str, list[Any]]]:
        return st.tuples(st.just(data_type), st.lists(st.none() | VALUES[data_type], min_size=1, max_size=6))

    return st.sampled_from(sorted(VALUES)).flatmap(values)


@given(_columns_of_values())
@example(("double", [-0.0, math.nan]))
@example(("double", [5.229569649802633e16]))
def test_no_value_is_outside_of_its_bounds(column):
    data_type, values = column
    columns: Columns = (("c", data_type, True),)
    rows = [{"c": value} for value in values]
    file = written(columns, rows[:2], *([rows[2:]] if rows[2:] else []))
    found = json.loads(statistics_text(file, columns), parse_float=Decimal)
    known = [value for value in values if value is not None]
    is_bounded = "c" in bounded_columns([file], columns)
    assert is_bounded == (not known or "c" in found["minValues"])
    if "c" in found["nullCount"]:
        assert found["nullCount"]["c"] == len(values) - len(known)
    if "c" in found["minValues"]:
        low, high = (_parsed(found[side]["c"], data_type) for side in ("minValues", "maxValues"))
        assert all(low <= _comparable(value) <= high for value in known)
        if found["tightBounds"]:
            assert {low, high} <= {_comparable(value) for value in known}


def _parsed(bound: Any, data_type: str) -> Any:
    if data_type == "date32":
        return date.fromisoformat(bound)
    if data_type == "timestamp[us]":
        return datetime.fromisoformat(bound)
    return _comparable(float(bound) if data_type in ("float", "double") else bound)


def _comparable(value: Any) -> Any:
    """A value in an order that engines have: of texts that of their bytes, of numbers without rounding."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return Decimal(value) if isinstance(value, int | float) else value


def test_a_bound_of_text_is_not_below_it_in_the_order_of_utf_16_either():
    """Java compares texts so, where an engine does not compare their bytes: only U+E000 and above differ."""
    low, high, _, _ = described("string", "a" * 40)
    assert low.encode("utf-16-be") <= ("a" * 40).encode("utf-16-be") <= high.encode("utf-16-be")


def test_times_are_rounded_away_from_each_other():
    moment = datetime(2020, 1, 1, microsecond=1_500)
    low, high, _, is_tight = described("timestamp[us]", moment, moment + timedelta(microseconds=1))
    assert (low, high, is_tight) == ("2020-01-01T00:00:00.001", "2020-01-01T00:00:00.002", False)
