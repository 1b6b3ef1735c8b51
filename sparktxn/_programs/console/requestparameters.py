"""What a request asks for: its parameters, checked, the errors of those that are wrong, and the order of a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from sparktxn._foundation.values.quantities import counted
from sparktxn.errors import ConfigurationError
from sparktxn.store.options import Parser, absolute_ms, integer, parse_time

_INT64_MAX = 2**63 - 1
_TEXT_MAX = 4_096
_LINES_MAX = 32_768


Word = TypeVar("Word", bound=str)


class WrongRequest(Exception):
    """A parameter of a request is wrong: its message names it, what it was, and what was expected."""


class NotFound(Exception):
    """What a request names does not exist."""


class Hidden(Exception):
    """A request asks for values, and this console does not show them."""


class Refused(Exception):
    """A request asks for a change that it may not make."""


class RequestParameters:
    """The parameters of one request. Those that are empty count as not given.

    The methods raise `WrongRequest` for a wrong value.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name: value for name, value in given.items() if value != ""}

    def text(self, name: str, default: str = "") -> str:
        """Return a text of a sane length."""
        value = self._given.get(name, default)
        if len(value) > _TEXT_MAX:
            raise WrongRequest(f"{name} has {counted(len(value), 'character')}: expected at most {_TEXT_MAX}")
        return value

    def entered(self, name: str) -> str:
        """Return what was entered into a field of a form, which is shown again with its error."""
        return self._given.get(name, "")[:_LINES_MAX]

    def lines(self, name: str) -> list[str]:
        """Return the lines of a text that are not empty, without spaces around them."""
        value = self._given.get(name, "")
        if len(value) > _LINES_MAX:
            raise WrongRequest(f"{name} has {counted(len(value), 'character')}: expected at most {_LINES_MAX}")
        return [line.strip() for line in value.splitlines() if line.strip()]

    def settings(self, name: str) -> dict[str, str]:
        """Return settings, of which each line of a text has one as ``name=value``."""
        found: dict[str, str] = {}
        for line in self.lines(name):
            setting, separator, value = line.partition("=")
            if not separator or not setting.strip():
                raise WrongRequest(f"{name} has a line {line[:80]!r}: expected name=value")
            if setting.strip() in found:
                raise WrongRequest(f"{name} has {setting.strip()[:80]!r} twice: expected it once")
            found[setting.strip()] = value
        return found

    def number(self, name: str, default: int | None = None, *, least: int = 0, most: int = _INT64_MAX) -> int | None:
        """Return a whole number from `least` to `most`; `default` if it is not given."""
        value = self._given.get(name)
        return default if value is None else int(_parsed(integer(least, most), name, value))

    def count(self, name: str, default: int, *, most: int) -> int:
        """Return how many rows a page has."""
        found = self.number(name, default, least=1, most=most)
        assert found is not None
        return found

    def time_ms(self, name: str, now_ms: int) -> int | None:
        """Return a time in milliseconds: ISO 8601 (UTC without a zone), milliseconds, or so long ago."""
        value = self._given.get(name)
        if value is None:
            return None
        return absolute_ms(_parsed(partial(parse_time, zone=UTC), name, value[:_TEXT_MAX]), now_ms)

    def choice(self, name: str, allowed: Collection[Word], default: Word) -> Word:
        """Return one of some words."""
        given = self._given.get(name, default)
        for word in allowed:
            if word == given:
                return word
        raise WrongRequest(f"{name} is {given[:40]!r}: expected one of {', '.join(allowed)}")

    def entry(self) -> int | None:
        """Return the older entry that a view is asked for at: the field `entry`, else the slider `at`."""
        return self.number("entry" if self.has("entry") else "at")

    def flag(self, name: str) -> bool:
        """Return whether a box is ticked."""
        return self.choice(name, ("0", "1"), "0") == "1"

    def has(self, name: str) -> bool:
        """Return whether a parameter is given."""
        return name in self._given


def _parsed(parse: Parser, name: str, value: str) -> Any:
    try:
        return parse(name, value)
    except ConfigurationError as error:
        raise WrongRequest(str(error)) from None


# The order of a table's rows, as a request chooses it by a link in the head of a column: no script sorts.

Row = TypeVar("Row", bound=Mapping[str, Any])


class Sort(Struct, frozen=True):
    """By which member of its rows a table is sorted, and what the links in its head keep of the request.

    `parameter` names the table's order in an address: the member, with ``-`` before it if the greatest comes first.
    """

    parameter: str
    column: str
    descending: bool
    address: str
    given: dict[str, Any]

    @property
    def text(self) -> str:
        """The value of the parameter."""
        return f"-{self.column}" if self.descending else self.column

    def of(self, rows: Sequence[Row]) -> list[Row]:
        """Return rows in this order; those without a value are last, and equal ones stay as they were."""
        known = [row for row in rows if row[self.column] is not None]
        known.sort(key=lambda row: row[self.column], reverse=self.descending)
        return [*known, *(row for row in rows if row[self.column] is None)]


def asked_sort(
    asked: RequestParameters,
    columns: Collection[str],
    default: str,
    address: str,
    given: Mapping[str, Any],
    parameter: str = "sort",
) -> Sort:
    """Return the order that a request asks for, of some columns; `default` may begin with ``-``, too.

    Raises:
        WrongRequest: it names another column.
    """
    allowed = [*columns, *(f"-{column}" for column in columns)]
    chosen = asked.choice(parameter, allowed, default)
    kept = {name: value for name, value in given.items() if value is not None and value != ""}
    return Sort(parameter, chosen.removeprefix("-"), chosen.startswith("-"), address, kept)
