"""Conditions on columns: as text, which records meet them, and which segments hold none that does.

A segment is left out by the statistics of its Parquet footer, or after its columns of the conditions alone are decoded.
Comparisons are those of SQL: null meets none of them. NaN is equal to itself and greater than all other numbers, as
Spark has it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from sparktxn._foundation.config.values import absolute_ms, parse_time
from sparktxn._foundation.values import arguments
from sparktxn.errors import ConfigurationError, did_you_mean

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


# Conditions as users write them: SQL's text, lists of column, operator and value, and what their values mean.
#
# One grammar is for the command, Spark's option `filters` and tables. What has no meaning here is an error, and never
# a condition that no record meets::
#
# conditions := condition ("and" condition)* condition := column operator value | column ["not"] "in" "(" value (","
# value)* ")" | column "between" value "and" value | column "like" value | column "starts with" value | column "is"
# ["not"] "null" operator := "=" | "==" | "<>" | "!=" | "<" | "<=" | ">" | ">=" column := name | `name` | "name" value
# := 'text' | "text" | word

ACCEPTED: Final = (
    *("=", "<>", "<", "<=", ">", ">="),
    *("in", "not in", "between", "like", "starts with", "is null", "is not null"),
)
"""The operators, as messages list them."""

_SAME: Final = {"==": "=", "<>": "!="}
_TURNED: Final = {"=<": "<=", "=>": ">=", "=!": "!=", "><": "<>"}
_PLAIN: Final = frozenset({"=", "!=", "<", "<=", ">", ">=", "starts with"})
_KEYWORDS: Final = frozenset({"and", "or", "not", "in", "is", "between", "like", "null"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`)|(?P<operator>[=<>!]+)|(?P<mark>[(),])"""
    r"""|(?P<word>[^\s'"`=<>!(),]+))"""
)
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]{1,4})?", re.IGNORECASE)
_NUMBER_DIGITS_MAX: Final = 400
_NO_FINITE_NUMBER: Final = re.compile(r"nan|[+-]?inf(inity)?", re.IGNORECASE)
_WORD: Final = re.compile(r"\w[\w.:@/-]*")
"""What is clearly a text without quotes: no sign of an expression, of a pattern or of another kind of quotes."""
_TOO_FINE: Final = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")


class Literal(Struct, frozen=True):
    """A value as text has it: its meaning depends on the column. Words that are not quoted are not texts if in doubt.

    SQL has columns in double quotes, so such a text is not a column's name.
    """

    text: str
    quote: str = ""


class _Token(NamedTuple):
    kind: str
    text: str
    quote: str = ""

    def is_word(self, *words: str) -> bool:
        """Return whether it is one of these keywords."""
        return self.kind == "word" and self.text.lower() in words


_END: Final = _Token("end", "")


def conditions_of(column: str, operator: str, value: Any = None) -> tuple[Condition, ...]:
    """Return the conditions that an operator means together, which may be one that conditions do not have.

    Raises:
        ConfigurationError: the operator is unknown, or `value` is not what it takes.
    """
    word = " ".join(operator.lower().split())
    word = _SAME.get(word, word)
    if word in _NULLS:
        if value is not None:
            raise ConfigurationError(
                f"the condition on column {column!r} has a value: expected no value after {word!r}"
            )
        return (Condition(column, word),)
    if word in _PLAIN:
        if isinstance(value, tuple):
            raise ConfigurationError(
                f"the condition on column {column!r} has a list: expected one value after {word!r}"
            )
        return (Condition(column, word, value),)
    if word not in ("in", "not in", "between", "like"):
        meant = f"; did you mean {_TURNED[word]!r}?" if word in _TURNED else did_you_mean(word, ACCEPTED)
        raise ConfigurationError(
            f"the condition on column {column!r} has the operator {operator!r}: expected one of {', '.join(ACCEPTED)}"
            f"{meant}"
        )
    if word == "like":
        return (_like(column, value),)
    if not isinstance(value, tuple) or not value or (word == "between" and len(value) != len(("low", "high"))):
        wanted = "two values" if word == "between" else "a list"
        raise ConfigurationError(f"the condition on column {column!r}: expected {wanted} after {word!r}")
    if word == "between":
        return (Condition(column, ">=", value[0]), Condition(column, "<=", value[1]))
    return (Condition(column, "in", value),) if word == "in" else tuple(Condition(column, "!=", one) for one in value)


def _like(column: str, value: Any) -> Condition:
    pattern = value.text if isinstance(value, Literal) else value
    if not isinstance(pattern, str) or (isinstance(value, Literal) and not value.quote):
        raise ConfigurationError(f"the condition on column {column!r}: expected a text in quotes after 'like'")
    start = arguments.text(f"the condition on column {column!r}", pattern).removesuffix("%")
    if any(special in start for special in "%_\\"):
        raise ConfigurationError(
            f"the condition on column {column!r} has the pattern {pattern!r}: expected a text that ends with the only "
            "%, and has no _ and no backslash; 'starts with' takes any text"
        )
    return Condition(column, "=" if start == pattern else "starts with", Literal(start, "'"))


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Return the conditions of a text such as ``fare >= 5 and zone in ('north', 'south')``; all of them are to hold.

    `typed_conditions` gives their values the types of the columns.

    Raises:
        ConfigurationError: it has another form; the message says where.
    """
    return tuple(_Parser(text).conditions())


class _Parser:
    """Reads one text, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [*self._split(), _END]
        self._at = 0

    def _split(self) -> Iterator[_Token]:
        at = 0
        while self._text[at:].strip():
            found = _TOKEN.match(self._text, at)
            if found is None:
                self._refuse(f"a quote is not closed at {self._text[at:].strip()!r}")
            at = found.end()
            kind, token = str(found.lastgroup), found[str(found.lastgroup)]
            if kind == "quoted":
                quote = token[0]
                yield _Token(kind, token[1:-1].replace(quote * 2, quote), quote)
            else:
                yield _Token(kind, token)

    def _refuse(self, reason: str) -> NoReturn:
        raise ConfigurationError(
            f'{self._text!r} is malformed: {reason}; expected COLUMN OPERATOR VALUE, such as "fare >= 5 and zone = '
            f"'north'\", with one of the operators {', '.join(ACCEPTED)}"
        )

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += token is not _END
        return token

    def _expect(self, text: str) -> None:
        token = self._take()
        if token.kind == "quoted" or token.text.lower() != text:
            self._refuse(f"expected {text!r} before {token.text!r}" if token is not _END else f"{text!r} is missing")

    def conditions(self) -> Iterator[Condition]:
        """Yield the conditions, to the end of the text."""
        while True:
            yield from self._condition()
            token = self._take()
            if token is _END:
                return
            if token.is_word("or"):
                self._refuse("'or' is not supported, all conditions hold together: use 'in (…)' for values of a column")
            if not token.is_word("and"):
                self._refuse(f"expected 'and' before {token.text!r}: a text with spaces or signs is to be in quotes")

    def _condition(self) -> tuple[Condition, ...]:
        column = self._take()
        if column.kind not in ("word", "quoted") or column.quote == "'" or column.is_word(*_KEYWORDS):
            self._refuse(f"a column is missing before {column.text!r}" if column is not _END else "a column is missing")
        operator = self._operator()
        if operator in _NULLS:
            return conditions_of(column.text, operator)
        if operator in ("in", "not in"):
            return conditions_of(column.text, operator, tuple(self._list()))
        value = self._value()
        if operator == "between":
            self._expect("and")
            return conditions_of(column.text, operator, (value, self._value()))
        return conditions_of(column.text, operator, value)

    def _operator(self) -> str:
        token = self._take()
        word = token.text.lower()
        if token.kind == "operator":
            if token.text in _TURNED:
                self._refuse(f"there is no operator {token.text!r}, {_TURNED[token.text]!r} is one")
            if _SAME.get(token.text, token.text) not in _PLAIN:
                self._refuse(f"there is no operator {token.text!r}")
            return token.text
        if token.is_word("in", "between", "like"):
            return word
        if token.is_word("starts"):
            self._expect("with")
            return "starts with"
        if token.is_word("not"):
            if self._next.is_word("in"):
                self._take()
                return "not in"
            self._refuse("'not' goes before 'in' and after 'is' only")
        if not token.is_word("is"):
            self._refuse("an operator is missing" if token is _END else f"{token.text!r} is not an operator")
        negated = self._next.is_word("not")
        self._at += negated
        self._expect("null")
        return "is not null" if negated else "is null"

    def _list(self) -> Iterator[Literal]:
        self._expect("(")
        while True:
            yield self._value()
            token = self._take()
            if token.kind == "mark" and token.text == ")":
                return
            if token.kind != "mark" or token.text != ",":
                self._refuse("')' is missing" if token is _END else f"expected ',' or ')' before {token.text!r}")

    def _value(self) -> Literal:
        token = self._take()
        if token.is_word("null"):
            self._refuse("null is equal to nothing: write 'is null' or 'is not null', or the text in quotes")
        if token.kind not in ("word", "quoted") or token.quote == "`" or token.is_word(*_KEYWORDS):
            self._refuse("a value is missing" if token is _END else f"a value is missing before {token.text!r}")
        return Literal(token.text, token.quote)


def typed_conditions(conditions: Sequence[Condition], columns: pa.Schema, now_ms: int) -> tuple[Condition, ...]:
    """Return conditions with values as the types of `columns` have them; times such as ``-10 minutes`` are before now.

    Values are literals of text, or of JSON.

    Raises:
        ConfigurationError: there is no such column, or a value is not one of its type.
    """

    def converted(condition: Condition) -> Condition:
        return converted_condition(
            condition, columns, lambda value, data_type: _typed(condition.column, value, data_type, columns, now_ms)
        )

    return tuple(converted(condition) for condition in conditions)


def _typed(column: str, value: Any, data_type: pa.DataType, columns: pa.Schema, now_ms: int) -> Any:
    """Return what a value means for a column."""
    if isinstance(value, Literal):
        _check_text(column, value, data_type, columns)
        value = value.text
    try:
        if pa.types.is_timestamp(data_type) and not isinstance(value, bool):
            return fitting(_moment(column, value, data_type, now_ms), data_type)
        return fitting(_converted(value, data_type), data_type)
    except (ValueError, TypeError, AttributeError, LookupError, InvalidOperation, OverflowError):
        shown = value if isinstance(value, Decimal) else arguments.shown(value)
        raise ConfigurationError(f"the condition on column {column!r} has {shown}: expected {data_type}") from None


def _check_text(column: str, value: Literal, data_type: pa.DataType, columns: pa.Schema) -> None:
    """Refuse what is not clearly a text, where the column has texts."""
    if value.quote == "'" or not (pa.types.is_binary(data_type) or pa.types.is_string(data_type)):
        return
    kind = ""
    if value.text in columns.names:
        kind = "a column"
    elif not value.quote and _NUMBER.fullmatch(value.text):
        kind = "a number"
    elif not value.quote and value.text.lower() in ("true", "false"):
        kind = "a truth value"
    elif not value.quote and not _WORD.fullmatch(value.text):
        kind = "a word with signs"
    if kind:
        raise ConfigurationError(
            f"the condition on column {column!r}, of {data_type}, has {value.text}, {kind}: expected a text, such as "
            f"'{value.text}' in quotes"
        )


def _converted(value: Any, data_type: pa.DataType) -> Any:
    if isinstance(value, bool):
        return value
    if pa.types.is_binary(data_type):
        return value.encode()
    if pa.types.is_date(data_type):
        return date.fromisoformat(value)
    if pa.types.is_boolean(data_type):
        return {"true": True, "false": False}[value.lower()]
    if pa.types.is_floating(data_type):
        return _float(value)
    if pa.types.is_decimal(data_type):
        return _number(value)
    if pa.types.is_integer(data_type):
        number = _number(value)
        return int(number) if number == number.to_integral_value() else number
    return value


def _float(value: Any) -> float | int:
    """Return the nearest number, of digits alone the whole one.

    Raises:
        ValueError: it is none, or beyond all numbers but infinity and zero.
    """
    if _NO_FINITE_NUMBER.fullmatch(str(value).strip()):
        return float(value)
    number = _number(value)
    if number.as_tuple().exponent == 0:
        return int(number)
    nearest = float(number)
    if math.isinf(nearest) or (number and not nearest):
        raise ValueError(value)
    return nearest


def _number(value: Any) -> Decimal:
    """Return a number with all of its digits.

    Raises:
        ValueError: it is none, or so long that it is one of no column.
    """
    text = str(value).strip()
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    number = Decimal(text)
    if number and abs(number.adjusted()) > _NUMBER_DIGITS_MAX:
        raise ValueError(text)
    return number


def _moment(column: str, value: Any, data_type: pa.DataType, now_ms: int) -> datetime:
    text = str(value).strip()
    exact: datetime | None = None
    # Digits alone are milliseconds; Python cuts those of a fraction off after the sixth without a word.
    with suppress(ValueError):
        exact = None if text.isdigit() or _TOO_FINE.search(text) else datetime.fromisoformat(text)
    if data_type.tz is None:
        if exact is None or exact.tzinfo is not None:
            raise ConfigurationError(
                f"the condition on column {column!r} has {arguments.shown(value)}: expected a time without a zone such "
                f"as 2024-05-01T12:00:00, as the column, of {data_type}, has none"
            )
        return exact
    if exact is not None and exact.tzinfo is not None:
        return exact.astimezone(UTC)
    if _TOO_FINE.search(text):
        raise ConfigurationError(
            f"the condition on column {column!r} has {arguments.shown(value)}: expected at most six digits of a second"
        )
    parsed = parse_time(f"the condition on column {column!r}", text)
    return _EPOCH + timedelta(milliseconds=absolute_ms(parsed, now_ms))
