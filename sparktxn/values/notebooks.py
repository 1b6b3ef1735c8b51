"""How values show themselves in a notebook: as HTML tables, which Jupyter asks for by ``_repr_html_``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Final

__all__ = ["html_table"]

_ROWS_MAX: Final = 200


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a row of `columns` and at most 200 of `rows`; all text is escaped, None is empty."""
    shown = list(islice(rows, _ROWS_MAX + 1))
    lines = [f"<table><caption>{escape(caption)}</caption>", _row("th", columns)]
    lines += [_row("td", row) for row in shown[:_ROWS_MAX]]
    if len(shown) > _ROWS_MAX:
        lines.append(_row("td", ["…"] * len(columns)))
    return "\n".join([*lines, "</table>"])


def _row(cell: str, values: Iterable[object]) -> str:
    cells = (f"<{cell}>{'' if value is None else escape(str(value))}</{cell}>" for value in values)
    return f"<tr>{''.join(cells)}</tr>"
