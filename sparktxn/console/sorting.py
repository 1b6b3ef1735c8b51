"""The order of a table's rows, as a request chooses it by a link in the head of a column: no script sorts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from sparktxn.console.requestparameters import RequestParameters

__all__ = ["Sort", "asked_sort"]

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
