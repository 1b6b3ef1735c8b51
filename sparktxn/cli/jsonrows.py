"""Lines of JSON to rows of a typed topic: the inverse of what `txnlog consume` prints of one."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from sparktxn.cli.failures import WrongUsage
from sparktxn.errors import did_you_mean

__all__ = ["table_of_lines"]


def table_of_lines(lines: Sequence[bytes], schema: pa.Schema, first_line: int) -> pa.Table:
    """Return the rows that `lines` hold, each a JSON object with columns of `schema`; a missing column is null.

    Binary values are base64, dates and times ISO 8601. `first_line` is the number of the first line, for errors.

    Raises:
        WrongUsage: a line is not such an object.
    """
    rows = []
    for number, line in enumerate(lines, first_line):
        try:
            rows.append(_row(line, schema))
        except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
            expected = ", ".join(f"{field.name} {field.type}" for field in schema)
            raise WrongUsage(f"line {number} is no record of the topic: {error}; expected {expected}") from None
    return pa.Table.from_pylist(rows, schema)


def _row(line: bytes, schema: pa.Schema) -> dict[str, Any]:
    given = msgspec.json.decode(line)
    if not isinstance(given, dict):
        raise TypeError("it is no JSON object")
    for name in given:
        if name not in schema.names:
            raise ValueError(f"there is no column {name!r}{did_you_mean(name, schema.names)}")
    row = {}
    for field in schema:
        value = given.get(field.name)
        if value is None and not field.nullable:
            raise ValueError(f"column {field.name!r} must not be null")
        try:
            row[field.name] = _value(field.type, value)
            pa.array([row[field.name]], field.type)
        except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
            raise ValueError(f"column {field.name!r}: {error}") from None
    return row


def _value(kind: pa.DataType, value: Any) -> Any:
    """Return what Arrow takes for a value of JSON; other values are left for Arrow to refuse."""
    if value is None:
        return None
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_value(kind.value_type, item) for item in value]
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return [(_value(kind.key_type, key), _value(kind.item_type, item)) for key, item in pairs]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        fields = {kind.field(index).name: kind.field(index).type for index in range(kind.num_fields)}
        return {name: _value(fields[name], item) if name in fields else item for name, item in value.items()}
    if isinstance(value, str):
        if pa.types.is_binary(kind):
            return base64.b64decode(value, validate=True)
        if pa.types.is_date(kind):
            return date.fromisoformat(value)
        if pa.types.is_timestamp(kind):
            return datetime.fromisoformat(value)
    if pa.types.is_decimal(kind) and isinstance(value, str | int):
        return Decimal(value)
    return value
