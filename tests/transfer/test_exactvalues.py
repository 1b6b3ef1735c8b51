"""Values of text, of JSON and of CSV: exactly what is written, or an error; whole columns as value by value."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn.transfer.csvrows import WrongText, typed_column
from sparktxn.transfer.exactvalues import WrongLine, text_reader
from sparktxn.transfer.jsonrows import JsonRows, encoded, json_values
from tests.seeds import examples

UTC_US = pa.timestamp("us", tz="UTC")
UTC_MS = pa.timestamp("ms", tz="UTC")
LOCAL_US = pa.timestamp("us")
CENTS = pa.decimal128(38, 2)
PAIR = pa.struct([("a", pa.int32()), pa.field("b", pa.string(), nullable=False)])
TIMES_OF_IDS = pa.map_(pa.int64(), UTC_US)


def read(kind: pa.DataType, text: str) -> Any:
    """Return the value that a line of JSON gives."""
    rows = JsonRows(pa.schema([("v", kind)]))
    return rows.table([(7, b'{"v": %s}' % text.encode())]).to_pylist()[0]["v"]


KEPT = [
    (pa.int64(), "9223372036854775807", 2**63 - 1),
    (pa.int8(), "-128", -128),
    (pa.int64(), "12.0", 12),
    (pa.int32(), "1e3", 1_000),
    (pa.float64(), "0.1", 0.1),
    (pa.float64(), "0.10000000000000001", 0.1),
    (pa.float64(), "9007199254740992", 2.0**53),
    (pa.float64(), "5e-324", 5e-324),
    (pa.float64(), "1.7976931348623157e308", 1.7976931348623157e308),
    (pa.float64(), '"-Infinity"', -math.inf),
    (pa.float64(), "5.960464477539063e-08", 2.0**-24),
    (pa.float64(), "1e23", 1e23),
    (pa.float64(), "0.1000000000000000000000000000", 0.1),
    (pa.float32(), "0.1", struct.unpack("f", struct.pack("f", 0.1))[0]),
    (pa.float32(), "0.10000000149011612", struct.unpack("f", struct.pack("f", 0.1))[0]),
    (CENTS, "12.50", Decimal("12.50")),
    (CENTS, '"12.5"', Decimal("12.50")),
    (CENTS, "12345678901234567890.12", Decimal("12345678901234567890.12")),
    (CENTS, "1e2", Decimal("100.00")),
    (CENTS, "1.50000", Decimal("1.50")),
    (pa.decimal128(38, 38), "1E-38", Decimal("1E-38")),
    (pa.bool_(), "true", True),
    (pa.string(), '"\\u2028\\ufeff\\u0000"', "\u2028\ufeff\0"),
    (pa.binary(), '"aGk="', b"hi"),
    (pa.binary(), '""', b""),
    (pa.date32(), '"0001-01-01"', date(1, 1, 1)),
    (UTC_US, '"2024-01-01T00:00:00.123456000Z"', datetime(2024, 1, 1, 0, 0, 0, 123456, UTC)),
    (UTC_US, '"2024-03-31 02:30+02:00"', datetime(2024, 3, 31, 0, 30, tzinfo=UTC)),
    (UTC_US, '"2024-03-31 02:30:00-02"', datetime(2024, 3, 31, 4, 30, tzinfo=UTC)),
    (LOCAL_US, '"9999-12-31T23:59:59.999999"', datetime(9999, 12, 31, 23, 59, 59, 999999)),
    (LOCAL_US, '"2024-01-01"', datetime(2024, 1, 1)),
    (UTC_MS, "1700000000001", datetime(2023, 11, 14, 22, 13, 20, 1_000, UTC)),
    (PAIR, '{"b": "x"}', {"a": None, "b": "x"}),
    (TIMES_OF_IDS, '{"1": null}', [(1, None)]),
    (TIMES_OF_IDS, '[[1, null], [1, "1970-01-01T00:00:00Z"]]', [(1, None), (1, datetime(1970, 1, 1, tzinfo=UTC))]),
]
REFUSED = [
    (pa.int64(), "1.5", "1.5 is not of type int64: expected a whole number"),
    (pa.int8(), "-0.9", "-0.9 is not of type int8"),
    (pa.int8(), "128", "from -128 to 127"),
    (pa.int64(), "9007199254740993.0", "is not of type int64"),
    (pa.int64(), "9223372036854775808", "is not of type int64"),
    (pa.int64(), "1" * 5_000, "5000 characters"),
    (pa.int64(), '"5"', "'5' is not of type int64"),
    (pa.int64(), "true", "True is not of type int64"),
    (pa.bool_(), "1", "1 is not of type bool: expected true or false"),
    (pa.float64(), "9007199254740993", "would become 9007199254740992.0 as double"),
    (pa.float64(), "90071992547409900", "would become"),
    (pa.float64(), "100000000000000000000000", "would become"),
    (pa.float64(), "1e400", "would become inf"),
    (pa.float64(), "1e-400", "would become 0.0"),
    (pa.float64(), "1.23456789012345678901", "round it, or give the topic a decimal"),
    (pa.float32(), "16777217", "would become 16777216.0 as float"),
    (pa.float32(), "0.123456789", "would become"),
    (pa.float64(), '"1.5"', "expected a number"),
    (pa.float64(), "NaN", 'expected "NaN", in quotes'),
    (CENTS, "1.005", "2 of them behind the point"),
    (CENTS, "1e999999999", "does not fit"),
    (pa.decimal128(3, 1), "100", "does not fit"),
    (CENTS, '"NaN"', "is not of type decimal128"),
    (CENTS, "true", "True is not of type decimal128"),
    (pa.string(), "5", "5 is not of type string: expected text, in quotes"),
    (pa.string(), '"\\ud800"', "half of a surrogate pair"),
    (pa.binary(), '"aGk"', "is not base64"),
    (pa.binary(), '"aGl="', "is not base64"),
    (pa.date32(), "19000", '19000 is not of type date32[day]: expected text such as "2026-05-01"'),
    (pa.date32(), '"2024-02-30"', "is not a date"),
    (UTC_US, "1700000000000", "is not of type timestamp"),
    (UTC_US, "1700000000.5", "is not of type timestamp"),
    (UTC_MS, "1700000000000.9", "is not of type int64"),
    (UTC_US, '"2024-01-01T00:00:00.1234567Z"', "has 7 digits of a second"),
    (UTC_MS, '"2024-01-01T00:00:00.1234Z"', "has 4 digits of a second"),
    (UTC_US, '"2024-01-01T00:00:00"', "has no zone"),
    (LOCAL_US, '"2024-01-01T00:00:00Z"', "has a zone"),
    (UTC_US, '"2024-02-30T00:00:00Z"', "is not a timestamp"),
    (UTC_US, '"2024-01-01T00:00:00+24:00"', "expected one from -23:59 to +23:59"),
    (UTC_US, '"9999-12-31T23:59:59-01:00"', "outside the years"),
    (pa.list_(pa.int64()), "[1.5]", "1.5 is not of type int64"),
    (pa.list_(pa.int64()), '"[1]"', "expected a JSON array"),
    (PAIR, '{"a": 1}', "'b' is null, and may not be"),
    (PAIR, '{"b": "x", "c": 1}', "member 'c' is unknown"),
    (PAIR, '{"b": "x", "b": "y"}', "an object has 'b' twice"),
    (PAIR, "[]", "expected a JSON object"),
    (TIMES_OF_IDS, '{"x": null}', "'x' is not of type int64"),
    (TIMES_OF_IDS, "[[null, null]]", "keys that are not null"),
    (TIMES_OF_IDS, "[[1]]", "an array of [key, value]"),
    (pa.string(), "[" * 100_000 + "]" * 100_000, "nested too deeply"),
]


@pytest.mark.parametrize(("kind", "text", "value"), KEPT)
def test_what_json_says_is_kept(kind: pa.DataType, text: str, value: Any) -> None:
    found = read(kind, text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(("kind", "text", "reason"), REFUSED)
def test_what_a_type_does_not_hold_is_refused(kind: pa.DataType, text: str, reason: str) -> None:
    with pytest.raises(WrongLine) as caught:
        read(kind, text)
    assert caught.value.line == 7
    assert reason in str(caught.value)


@pytest.mark.parametrize("text", ["-0", "-0.0", "-0e5"])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_minus_zero_keeps_its_sign(kind: pa.DataType, text: str) -> None:
    assert math.copysign(1, read(kind, text)) == -1
    column = typed_column(pa.chunked_array([[text]]), pa.field("v", kind), bytes_are_text=False)
    assert math.copysign(1, column[0].as_py()) == -1


def test_rows_are_counted_without_their_columns() -> None:
    rows = JsonRows(pa.schema([("a", pa.int64()), ("b", pa.string())]), ignored=None)
    assert rows.table([(1, b"{}"), (2, b'{"c": 1}'), (3, b"{}")]).num_rows == 3
    mixed = rows.table([(1, b"{}"), (2, b'{"b": "x"}'), (3, b"{}")])
    assert mixed.to_pylist() == [{"b": None}, {"b": "x"}, {"b": None}]


def test_bytes_of_kafkas_record_are_text_or_base64() -> None:
    rows = JsonRows(pa.schema([("key", pa.binary()), ("value", pa.binary())]), is_record=True)
    lines = [b'{"value": "x"}', b'{"value_base64": "/w==", "key": "k"}', b'{"value": null}']
    assert rows.table(enumerate(lines, 1)).to_pylist() == [
        {"key": None, "value": b"x"},
        {"key": b"k", "value": b"\xff"},
        {"key": None, "value": None},
    ]
    for line, reason in (
        (b'{"key": "k"}', "column 'value' is missing"),
        (b'{"value": "x", "value_base64": "eA=="}', "there twice"),
    ):
        with pytest.raises(WrongLine, match=reason):
            rows.table([(1, line)])


FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.one_of(
    FINITE.map(repr),
    FINITE.map("{:.17g}".format),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.integers().map(str),
    st.datetimes().map(str),
    st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
    st.dates().map(str),
    st.sampled_from(["nan", "NaN", "inf", "-Infinity", "1e400", "0x10", "+5", " 5", "", "true", "TRUE", "T", "1_0"]),
    st.text("0123456789.eE+-:TZ ", max_size=30),
)
SCALARS = [
    pa.bool_(),
    pa.int8(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.date32(),
    LOCAL_US,
    UTC_US,
    UTC_MS,
    CENTS,
    pa.decimal128(38, 38),
]


@settings(max_examples=examples(250, 10_000), deadline=None)
@given(text=TEXTS, kind=st.sampled_from(SCALARS))
def test_a_column_is_read_as_its_values_are(text: str, kind: pa.DataType) -> None:
    try:
        alone: Any = pa.scalar(text_reader(kind)(text), kind)
    except ValueError:
        alone = None
    try:
        column = typed_column(pa.chunked_array([[None, text]]), pa.field("v", kind), bytes_are_text=False)
        found = column[1]
    except WrongText as error:
        found = None if error.row == 1 else error.row
    assert repr(found) == repr(alone)


@settings(max_examples=examples(150, 5_000), deadline=None)
@given(number=st.floats(width=32), wide=st.floats())
def test_numbers_come_back_from_json_bit_by_bit(number: float, wide: float) -> None:
    for kind, value in ((pa.float32(), number), (pa.float64(), wide)):
        field = pa.field("v", kind)
        column = pa.array([value], kind)
        line = encoded({"v": json_values(field, column)[0]})
        found = JsonRows(pa.schema([field])).table([(1, line)]).column(0).combine_chunks()
        same = found.cast(pa.float64()).to_pylist()[0]
        assert struct.pack("d", same) == struct.pack("d", column.to_pylist()[0]) or (same != same and value != value)
