"""Conditions on stored columns: of the option `filters`, and those that Spark pushes down."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

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

from pyspark_txnlog.options.offsets import parse_json
from sparktxn import ConfigurationError
from sparktxn.store.options import Condition, arguments, checked_condition, conditions_of, parse_conditions

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_txnlog.options.options import ReadOptions

_EXPECTED: Final = (
    """expected JSON such as [["key", "=", "DE"], ["amount", ">=", 10]], or a text: key = 'DE' and amount >= 10"""
)

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


def parse_filters(named: str, value: str) -> tuple[Condition, ...]:
    """Return the conditions of an option: SQL's text, or JSON. `typed_conditions` gives values the columns' types.

    Raises:
        ConfigurationError: it is neither a text of conditions nor a list of [column, operator, value].
    """
    if not value.lstrip().startswith(("[", "{")):
        try:
            return parse_conditions(value)
        except ConfigurationError as error:
            raise ConfigurationError(f"{named}: {error}") from None
    # A float would have lost digits of a decimal.
    parsed = parse_json(named, value, _EXPECTED, Decimal)
    if not isinstance(parsed, list) or not parsed:
        raise ConfigurationError(f"{named} is {arguments.shown(value)}: {_EXPECTED}")
    return tuple(condition for one in parsed for condition in _conditions(named, one))


def _conditions(named: str, given: Any) -> tuple[Condition, ...]:
    is_list = isinstance(given, list) and 2 <= len(given) <= 3 and all(isinstance(part, str) for part in given[:2])
    if not is_list:
        raise ConfigurationError(f"{named} has {arguments.shown(given)}: {_EXPECTED}")
    column, operator, *rest = given
    if rest == [None] or (not rest and not operator.lower().strip().startswith("is ")):
        raise ConfigurationError(f"{named} has {arguments.shown(given)}: expected a value after {operator!r}")
    value = tuple(rest[0]) if rest and isinstance(rest[0], list) else rest[0] if rest else None
    try:
        return conditions_of(column, operator, value)
    except ConfigurationError as error:
        raise ConfigurationError(f"{named} has {arguments.shown(given)}: {error}") from None


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
