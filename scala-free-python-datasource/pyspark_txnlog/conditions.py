"""Conditions on stored columns: of the option `filters`, and those that Spark pushes down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
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

from pyspark_txnlog.offsets import parse_json
from pyspark_txnlog.times import absolute_ms, parse_time
from sparktxn import ConfigurationError, arguments, did_you_mean
from sparktxn.scan.conditions import OPERATORS, Condition, checked_condition

if TYPE_CHECKING:
    from pyspark_txnlog.options import ReadOptions

__all__ = ["parse_filters", "pushed_condition", "refuse_filters", "typed_filters"]

_EXPECTED: Final = 'expected JSON such as [["key", "=", "DE"], ["amount", ">=", 10]]'
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WITHOUT_VALUE: Final = frozenset({"is null", "is not null"})

_PUSHED: Final[Mapping[type, str]] = {
    EqualTo: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
    IsNull: "is null",
    IsNotNull: "is not null",
    StringStartsWith: "starts with",
}


def parse_filters(name: str, value: str) -> tuple[Condition, ...]:
    """Return the conditions of an option's JSON. `typed_filters` makes their values those of the columns.

    Raises:
        ConfigurationError: it is not a list of [column, operator, value], or an operator is unknown.
    """
    parsed = parse_json(name, value, _EXPECTED)
    if not isinstance(parsed, list) or not parsed:
        raise ConfigurationError(f"option {name!r} is {arguments.shown(value)}: {_EXPECTED}")
    return tuple(_condition(name, one) for one in parsed)


def _condition(name: str, given: Any) -> Condition:
    is_list = isinstance(given, list) and 2 <= len(given) <= 3 and all(isinstance(part, str) for part in given[:2])
    if not is_list:
        raise ConfigurationError(f"option {name!r} has {arguments.shown(given)}: {_EXPECTED}")
    column, operator = given[0], " ".join(given[1].lower().split())
    if operator not in OPERATORS:
        raise ConfigurationError(
            f"option {name!r} has the operator {given[1]!r}: expected one of {', '.join(OPERATORS)}"
            f"{did_you_mean(operator, OPERATORS)}"
        )
    value = given[2] if len(given) == 3 else None
    if (operator in _WITHOUT_VALUE) != (len(given) == 2):
        wanted = "no value" if operator in _WITHOUT_VALUE else "a value"
        raise ConfigurationError(f"option {name!r} has {arguments.shown(given)}: expected {wanted} after {operator!r}")
    if (operator == "in") != isinstance(value, list):
        wanted = "a list" if operator == "in" else "one value"
        raise ConfigurationError(f"option {name!r} has {arguments.shown(given)}: expected {wanted} after {operator!r}")
    return Condition(column, operator, tuple(value) if isinstance(value, list) else value)


def typed_filters(filters: Sequence[Condition], columns: pa.Schema, now_ms: int) -> tuple[Condition, ...]:
    """Return conditions of `parse_filters` with values as the types of `columns` have them.

    Times such as ``-10 minutes`` are before `now_ms`.

    Raises:
        ConfigurationError: there is no such column, or a value is not one of its type.
    """
    typed = []
    for condition in filters:
        value = condition.value
        if condition.column in columns.names and value is not None:
            data_type = columns.field(condition.column).type
            values = value if isinstance(value, tuple) else (value,)
            converted = tuple(_of_json(condition.column, one, data_type, now_ms) for one in values)
            value = converted if isinstance(value, tuple) else converted[0]
        typed.append(checked_condition(Condition(condition.column, condition.operator, value), columns))
    return tuple(typed)


def _of_json(column: str, value: Any, data_type: pa.DataType, now_ms: int) -> Any:
    """Return what a value of JSON means for a column; what means nothing for it stays as it is, to be refused."""
    if isinstance(value, bool):
        return value
    try:
        if pa.types.is_timestamp(data_type):
            return _moment(column, value, data_type, now_ms)
        for is_type, convert in _CONVERSIONS:
            if is_type(data_type):
                return convert(value)
    except (ValueError, TypeError, AttributeError, InvalidOperation):
        pass
    return value


def _moment(column: str, value: Any, data_type: pa.DataType, now_ms: int) -> datetime:
    if data_type.tz is None:
        return datetime.fromisoformat(value)
    # With all of its digits: an option's time ends at milliseconds.
    with suppress(ValueError, TypeError):
        exact = datetime.fromisoformat(value)
        if exact.tzinfo is not None:
            return exact.astimezone(UTC)
    milliseconds = absolute_ms(parse_time(f"filters, column {column}", str(value)), now_ms)
    return _EPOCH + timedelta(milliseconds=milliseconds)


_CONVERSIONS: Final[Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]]]] = (
    (pa.types.is_binary, lambda text: text.encode()),
    (pa.types.is_date, date.fromisoformat),
    (pa.types.is_decimal, lambda number: Decimal(str(number))),
    (pa.types.is_floating, float),
)


def pushed_condition(pushed: Filter, columns: pa.Schema) -> Condition | None:
    """Return the condition on one of `columns` that Spark's filter is; None if it is another."""
    operator = _PUSHED.get(type(pushed))
    known: Any = pushed
    if operator is None or len(known.attribute) != 1:
        return None
    value = getattr(known, "value", None)
    try:
        return checked_condition(Condition(known.attribute[0], operator, value), columns)
    except ConfigurationError:
        return None


def refuse_filters(options: ReadOptions, called: str, instead: str) -> None:
    """Refuse the option `filters` where a function cannot apply it.

    Raises:
        ConfigurationError: it is given.
    """
    if options.filters:
        raise ConfigurationError(f"option 'filters' does not go with {called}: {instead}")
