"""Conditions as users write them: SQL's text, lists of column, operator and value, and what their values mean.

One grammar is for the command, Spark's option `filters` and tables. What has no meaning here is an error, and never a
condition that no record meets::

    conditions := condition ("and" condition)*
    condition  := column operator value | column ["not"] "in" "(" value ("," value)* ")"
                | column "between" value "and" value | column "like" value | column "starts with" value
                | column "is" ["not"] "null"
    operator   := "=" | "==" | "<>" | "!=" | "<" | "<=" | ">" | ">="
    column     := name | `name` | "name"
    value      := 'text' | "text" | word
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple, NoReturn

import pyarrow as pa
from msgspec import Struct

from sparktxn.config.times import absolute_ms, parse_time
from sparktxn.errors import ConfigurationError, did_you_mean
from sparktxn.scan.conditions import Condition, converted_condition, fitting
from sparktxn.values import arguments

__all__ = ["ACCEPTED", "Literal", "conditions_of", "parse_conditions", "typed_conditions"]

ACCEPTED: Final = (
    *("=", "<>", "<", "<=", ">", ">="),
    *("in", "not in", "between", "like", "starts with", "is null", "is not null"),
)
"""The operators, as messages list them."""

_SAME: Final = {"==": "=", "<>": "!="}
_TURNED: Final = {"=<": "<=", "=>": ">=", "=!": "!=", "><": "<>"}
_PLAIN: Final = frozenset({"=", "!=", "<", "<=", ">", ">=", "starts with"})
_NULLS: Final = frozenset({"is null", "is not null"})
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
