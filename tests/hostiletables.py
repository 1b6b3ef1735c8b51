"""Random typed tables with hostile values, and what makes two tables the same: each value, bit by bit."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

__all__ = ["plain", "random_table", "records"]

TEXTS = [
    "", " ", '"', '""', ",", "\n", "\r\n", "\r", "a\r\nb", 'say "hi", twice\n', "\u2028", "\u2029", "\x85", "\ufeff",
    "\ufeffa", "\0", "\x1f", "\t", "NA", "null", "None", "NaN", "nan", r"\N", "\\", '\\"', "'", "true", "1", "0x10",
    "2024-01-01", "é", "e\u0301", "😀", "\ud7ff", "\uffff", "-", "#N/A", "{}", "[1]", "<a>", "=1+1", "%s", "x" * 3_000,
]  # fmt: skip
BYTES = [b"", b"\0", b"\xff", b"\xef\xbb\xbf", b"abcd", b"hi", b"\r\n", b'"', bytes(range(256)), b"x" * 3_000]
FLOATS = [
    0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1,
    1 / 3, 2.0**53, 2.0**53 + 2, 1e16, 1e22, 1e23, 2.0**-24, 123456789.12345679,
]  # fmt: skip
SINGLES = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-45, 1.1754943508222875e-38, 3.4028234663852886e38, 0.1, 2.0**24]
_YEARS_US = (-62_135_596_800_000_000, 253_402_300_799_999_999)
TIMES = [*_YEARS_US, -1, 0, 1, 999_999, 1_000, 1_000_000, 1_711_848_600_000_000, _YEARS_US[1] + 1, 2**62, -(2**62)]
DATES = [-719_162, 2_932_896, -1, 0, 1, 59, 11_016, 2_932_897, -719_163]
SCALARS = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC"),
]  # fmt: skip
NAMES = ["v", "offset", "topic", "partition", "value", "key", "timestamp", "a b", 'q"uote', "c,omma", "é", "x.y", "N"]
_FAR_SHARE = 0.1


def random_table(random: Random, columns: int, rows: int) -> pa.Table:
    """Return a table of types that topics may have; `plain` shows its values."""
    # Names that differ by case only are one name to Spark.
    fields = [pa.field(name, random_type(random)) for name in random.sample(NAMES, columns)]
    is_far = random.random() < _FAR_SHARE
    arrays = [array_of(random, field.type, rows, is_far=is_far) for field in fields]
    return pa.table(arrays, schema=pa.schema(fields))


def random_type(random: Random, depth: int = 0) -> pa.DataType:
    """Return a scalar type, a decimal of any scale, or a nested type."""
    kind = random.randrange(10 if depth < 2 else 7)
    if kind < 6:
        return random.choice(SCALARS)
    if kind == 6:
        precision = random.choice([1, 2, 9, 18, 19, 37, 38])
        return pa.decimal128(precision, random.randrange(precision + 1))
    if kind == 7:
        return pa.list_(random_type(random, depth + 1))
    if kind == 8:
        keys = [one for one in SCALARS if not pa.types.is_floating(one)]
        return pa.map_(random.choice(keys), random_type(random, depth + 1))
    names = random.sample(["a", "b", "c"], random.randint(1, 3))
    return pa.struct([(name, random_type(random, depth + 1)) for name in names])


def array_of(random: Random, kind: pa.DataType, count: int, *, is_far: bool) -> pa.Array:
    """Return hostile values; years beyond 1 to 9999 only for `is_far`."""
    return pa.array([_value(random, kind, is_far=is_far) for _ in range(count)], kind)


def _value(random: Random, kind: pa.DataType, *, is_far: bool, nullable: bool = True) -> Any:
    types = pa.types
    if nullable and random.random() < 0.2:
        return None
    if types.is_list(kind):
        return [_value(random, kind.value_type, is_far=is_far) for _ in range(random.randrange(4))]
    if types.is_map(kind):
        keys = {plain_key(key): key for key in (_value(random, kind.key_type, is_far=is_far, nullable=False),) * 2}
        return [(key, _value(random, kind.item_type, is_far=is_far)) for key in keys.values()][: random.randrange(2)]
    if types.is_struct(kind):
        return {field.name: _value(random, field.type, is_far=is_far) for field in kind}
    if types.is_integer(kind):
        edge = 1 << (kind.bit_width - 1)
        return random.choice([-edge, edge - 1, 0, -1, 1, edge // 2, min(2**53 + 1, edge - 1)])
    if types.is_float32(kind):
        return random.choice(SINGLES)
    if types.is_floating(kind):
        return random.choice([*FLOATS, struct.unpack("d", random.randbytes(8))[0]])
    if types.is_decimal(kind):
        unscaled = random.choice(
            [0, 1, -1, 10**kind.precision - 1, -(10**kind.precision) + 1, 5 * 10 ** (kind.precision - 1)]
        )
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -kind.scale))
    if types.is_date(kind):
        return random.choice(DATES if is_far else DATES[:-2])
    if types.is_timestamp(kind):
        return random.choice(TIMES if is_far else TIMES[:-3])
    return random.choice([True, False] if types.is_boolean(kind) else BYTES if types.is_binary(kind) else TEXTS)


def plain_key(key: Any) -> str:
    """Return what makes a map's key the same."""
    return repr(key)


def plain(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return values that are equal if and only if all their bits are; one NaN is as good as another."""
    return [_plain(value) for value in column]


def _plain(value: pa.Scalar) -> Any:
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_map(kind):
        return [(_plain(pair["key"]), _plain(pair["value"])) for pair in _pairs(value)]
    if pa.types.is_list(kind):
        return [_plain(one) for one in value.values]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[index]) for index, field in enumerate(kind)}
    if pa.types.is_temporal(kind):
        return value.value
    found = value.as_py()
    if isinstance(found, float):
        return "NaN" if math.isnan(found) else found.hex()
    return found


def _pairs(value: pa.Scalar) -> pa.Array:
    kind = value.type
    pair = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
    return value.values.cast(pair) if value.values.type != pair else value.values


def records(random: Random, count: int) -> list[dict[str, Any]]:
    """Return hostile Kafka's records, as a producer takes them."""
    data = [None, *BYTES, *(text.encode() for text in TEXTS)]
    headers = [None, [], [("h", None)], [("", b"")], [("h", b"\xff"), ("h", b"text")], [("é\n", b'"')]]
    return [
        {
            "key": random.choice(data),
            "value": random.choice(data),
            "headers": random.choice(headers),
            "timestamp": random.choice([1, 999, 1_700_000_000_001, 253_402_300_799_999]),
        }
        for _ in range(count)
    ]
