"""Conditions on columns: which records meet them, and which segments hold none that does.

A segment is left out by the statistics of its Parquet footer, or after its columns of the conditions alone are decoded.
Comparisons are those of SQL: null meets none of them. NaN is equal to itself and greater than all other numbers, as
Spark has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from sparktxn.errors import ConfigurationError, did_you_mean
from sparktxn.values import arguments

__all__ = [
    "OPERATORS",
    "Condition",
    "checked_condition",
    "converted_condition",
    "fitting",
    "groups_that_may_hold",
    "matching",
    "meets",
]

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "!=": pc.not_equal,
}
_WITH_NAN: Final = frozenset({">", ">="})
"""What NaN meets with every other number."""
_NULLS: Final = frozenset({"is null", "is not null"})

OPERATORS: Final = (*_COMPARISONS, "in", "starts with", *sorted(_NULLS))
"""What a condition may ask."""

_MAY_HOLD: Final[dict[str, Callable[[Any, Any, Any], bool]]] = {
    "=": lambda least, greatest, value: least <= value <= greatest,
    "!=": lambda least, greatest, value: True,
    "<": lambda least, greatest, value: least < value,
    "<=": lambda least, greatest, value: least <= value,
    ">": lambda least, greatest, value: greatest > value,
    ">=": lambda least, greatest, value: greatest >= value,
    "in": lambda least, greatest, values: any(least <= value <= greatest for value in values),
    "starts with": lambda least, greatest, prefix: least[: len(prefix)] <= prefix <= greatest[: len(prefix)],
}
"""Whether a value from `least` to `greatest` can meet a condition."""


class Condition(Struct, frozen=True):
    """One condition on a stored column. `value` is a tuple for ``in``, and None for ``is null`` and ``is not null``.

    Values are Python's for the column's Arrow type: `bytes` for a key, or text, which means its UTF-8; aware datetimes
    for a timestamp.
    """

    column: str
    operator: str
    value: Any = None


def checked_condition(condition: Condition, schema: pa.Schema) -> Condition:
    """Return a condition with its value as the column's type in `schema` has it.

    Raises:
        ConfigurationError: `schema` has no such column, the operator is unknown or means nothing for the column's
            type, or the value is of another type.
    """
    return converted_condition(condition, schema, lambda value, data_type: _of_type(condition, value, data_type))


def converted_condition(
    condition: Condition, schema: pa.Schema, convert: Callable[[Any, pa.DataType], Any]
) -> Condition:
    """Return a condition with each of its values as `convert` makes it of the column's type in `schema`.

    Raises:
        ConfigurationError: `schema` has no such column, or the operator is unknown or means nothing for the column's
            type.
    """
    name, operator = condition.column, condition.operator
    if name not in schema.names:
        known = ", ".join(schema.names)
        raise ConfigurationError(
            f"a condition names column {arguments.shown(name)}: expected one of {known}"
            f"{did_you_mean(name, schema.names)}"
        )
    if operator not in OPERATORS:
        raise ConfigurationError(
            f"the condition on column {name!r} has the operator {arguments.shown(operator)}: expected one of "
            f"{', '.join(OPERATORS)}"
        )
    data_type = schema.field(name).type
    if operator in _NULLS:
        return condition
    if not _is_comparable(data_type, operator):
        raise ConfigurationError(f"column {name!r} is {data_type}: {operator!r} has no meaning for it")
    if operator == "in":
        values = condition.value
        if not isinstance(values, tuple) or not values:
            raise ConfigurationError(f"the condition on column {name!r} has no values: 'in' expects at least one")
        return Condition(name, operator, tuple(convert(value, data_type) for value in values))
    return Condition(name, operator, convert(condition.value, data_type))


def _is_comparable(data_type: pa.DataType, operator: str) -> bool:
    if pa.types.is_nested(data_type):
        return False
    if operator == "starts with":
        return bool(pa.types.is_string(data_type) or pa.types.is_binary(data_type))
    return operator in ("=", "!=", "in") or not pa.types.is_boolean(data_type)


def _of_type(condition: Condition, value: Any, data_type: pa.DataType) -> Any:
    try:
        # As producers take keys and values. Text that has no UTF-8 is not a value of the column.
        is_text = isinstance(value, str) and pa.types.is_binary(data_type)
        return fitting(value.encode() if is_text else value, data_type)
    except ValueError:
        kind = type(value).__name__
        raise ConfigurationError(
            f"the condition on column {condition.column!r} has a {kind}: expected {data_type}"
        ) from None


def fitting(value: Any, data_type: pa.DataType) -> Any:
    """Return a value as a type has it; a number of a floating type is the nearest one.

    Raises:
        ValueError: the type has no such value.
    """
    # Arrow takes truth values for numbers.
    if value is not None and (pa.types.is_boolean(data_type) or not isinstance(value, bool | np.bool_)):
        try:
            converted = pa.scalar(value, data_type).as_py()
            # Arrow cuts fractions off without a word, and makes large numbers infinite.
            if _is_near(converted, value) if pa.types.is_floating(data_type) else converted == value:
                return converted
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            pass
    raise ValueError(f"{data_type} has no such value")


def _is_near(converted: float, value: Any) -> bool:
    return math.isinf(converted) == math.isinf(value) and (converted == 0) == (value == 0)


def matching(rows: _Rows, conditions: Iterable[Condition]) -> _Rows:
    """Return the rows that meet all `conditions`, whose columns they have."""
    for condition in conditions:
        rows = rows.filter(meets(rows.column(condition.column), condition))
    return rows


def meets(column: pa.Array | pa.ChunkedArray, condition: Condition) -> Any:
    """Return for each value of a column whether it meets a condition; never null."""
    operator, value = condition.operator, condition.value
    if operator in _NULLS:
        return pc.is_null(column) if operator == "is null" else pc.is_valid(column)
    if operator == "starts with":
        return pc.fill_null(pc.starts_with(column, value), False)
    # is_in() takes -0.0 and 0.0 for two values.
    if operator == "in" and not pa.types.is_floating(column.type):
        return pc.fill_null(pc.is_in(column, pa.array(value, column.type)), False)
    if operator == "in":
        return reduce(pc.or_, (meets(column, Condition(condition.column, "=", one)) for one in value))
    return pc.fill_null(_compared(column, operator, value), False)


def _compared(column: Any, operator: str, value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return _compared_with_nan(column, operator)
    found = _COMPARISONS[operator](column, pa.scalar(value, column.type))
    with_nan = operator in _WITH_NAN and pa.types.is_floating(column.type)
    return pc.or_(found, pc.is_nan(column)) if with_nan else found


def _compared_with_nan(column: Any, operator: str) -> Any:
    """Compare like Spark: NaN is equal to itself and greater than all else."""
    is_nan = pc.is_nan(column)
    if operator in ("<", "!="):
        return pc.invert(is_nan)
    if operator == "<=":
        return pc.is_valid(column)
    return pc.and_(is_nan, False) if operator == ">" else is_nan


def groups_that_may_hold(metadata: pq.FileMetaData, conditions: Sequence[Condition]) -> set[int]:
    """Return the row groups of a Parquet file, by number, whose statistics do not rule out that a row meets all."""
    leaves = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    columns = {(leaf.path, leaf.name): index for index, leaf in enumerate(leaves)}
    return {
        group
        for group in range(metadata.num_row_groups)
        if all(_may_hold(metadata.row_group(group), columns, condition) for condition in conditions)
    }


def _may_hold(group: pq.RowGroupMetaData, columns: dict[tuple[str, str], int], condition: Condition) -> bool:
    # The path alone may be that of a nested column's field: names of columns may have dots.
    index = columns.get((condition.column, condition.column))
    if index is None:
        # A nested column has other paths. One that is null in every row may be left out of the file.
        nested = any(path.startswith(f"{condition.column}.") for path, _ in columns)
        return nested or condition.operator == "is null"
    statistics = group.column(index).statistics
    if statistics is None:
        return True
    if condition.operator in _NULLS:
        if not statistics.has_null_count:
            return True
        rows = group.num_rows if condition.operator == "is not null" else 0
        return bool(statistics.null_count != rows)
    if not statistics.has_min_max:
        return True
    values = condition.value if condition.operator == "in" else (condition.value,)
    # Statistics leave NaN out, and some types have them in another form than values.
    if any(type(statistics.min) is not type(one) or isinstance(one, float) for one in values):
        return True
    return _MAY_HOLD[condition.operator](statistics.min, statistics.max, condition.value)
