"""Columns of every type that a topic can have, and a row of them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from sparktxn._foundation.values.fieldtypes import Columns

__all__ = ["EVERY_TYPE", "FULL_ROW"]

EVERY_TYPE: Columns = (
    ("truth", "bool", True),
    ("byte", "int8", True),
    ("short", "int16", True),
    ("integer", "int32", True),
    ("long", "int64", False),
    ("real", "float", True),
    ("double", "double", True),
    ("text", "string", True),
    ("bytes", "binary", True),
    ("day", "date32", True),
    ("moment", "timestamp[us, tz=UTC]", True),
    ("local", "timestamp[us]", True),
    ("price", "decimal128(20, 3)", True),
    ("total", "decimal128(38, 0)", True),
    ("list", "list<int64 not null>", True),
    ("bytes_of", "list<int8>", True),
    ("map", "map<string, double>", True),
    (
        "nested",
        "struct<a: int32 not null, b: list<struct<c: timestamp[us, tz=UTC]>>, m: map<int64, binary not null>>",
        True,
    ),
)

FULL_ROW: dict[str, Any] = {
    "truth": True,
    "byte": -128,
    "short": 32767,
    "integer": -(2**31),
    "long": 2**63 - 1,
    "real": 1.5,
    "double": 1e300,
    "text": "grüße ☃",
    "bytes": b"\0\xff",
    "day": date(1, 1, 1),
    "moment": datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "local": datetime(2020, 1, 2, 3, 4, 5, 6),
    "price": Decimal("-12345678901234567.891"),
    "total": Decimal(10**38 - 1),
    "list": [1, -2],
    "bytes_of": [-1, None],
    "map": [("b", 1.0), ("a", None)],
    "nested": {"a": 1, "b": [{"c": datetime(1999, 12, 31, tzinfo=UTC)}, {"c": None}, None], "m": [(7, b"x")]},
}
