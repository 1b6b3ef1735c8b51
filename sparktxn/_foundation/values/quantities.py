"""Sizes, counts, durations and times as people read them: for the command, the console, and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import islice
from typing import Final

_STEP: Final = 1_024
_SIZES: Final = ("KiB", "MiB", "GiB", "TiB")
_DURATIONS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))


def size_text(size_bytes: float) -> str:
    """Return a size in the greatest unit of which it has at least one.

    >>> size_text(999), size_text(1_500_000)
    ('999 B', '1.4 MiB')
    """
    if size_bytes < _STEP:
        return f"{size_bytes:.0f} B"
    value, unit = size_bytes / _STEP, _SIZES[0]
    for unit in _SIZES:
        # What rounds to the next unit has it.
        if round(value, 1) < _STEP or unit == _SIZES[-1]:
            break
        value /= _STEP
    return f"{value:.1f} {unit}"


def duration_text(duration_ms: int) -> str:
    """Return a duration in its two greatest units.

    >>> duration_text(90_061_000), duration_text(250), duration_text(-60_000)
    ('1 d 1 h', '250 ms', '-1 min')
    """
    sign, left = ("-" if duration_ms < 0 else ""), abs(duration_ms)
    parts: list[str] = []
    for unit, length_ms in _DURATIONS:
        count, left = divmod(left, length_ms)
        if count or (unit == "ms" and not parts):
            parts.append(f"{count} {unit}")
    return sign + " ".join(parts[:2])


def time_text(timestamp_ms: int) -> str:
    """Return a time in milliseconds as ISO 8601 in UTC, or as it is if no date can say it.

    >>> time_text(0), time_text(2**62)
    ('1970-01-01T00:00:00.000Z', '4611686018427387904 ms')
    """
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Counts with their nouns, as people write them.

_ES = ("s", "x", "ch", "sh")


def counted(count: int, noun: str, shown: str | None = None) -> str:
    """Return a count with its noun, in the plural unless it is 1; `shown` is the count as text where that differs.

    >>> counted(1, "topic"), counted(2, "entry"), counted(0, "address"), counted(1_000, "record", "1,000")
    ('1 topic', '2 entries', '0 addresses', '1,000 records')
    """
    text = str(count) if shown is None else shown
    if count == 1:
        return f"{text} {noun}"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{text} {noun[:-1]}ies"
    return f"{text} {noun}es" if noun.endswith(_ES) else f"{text} {noun}s"


# How values show themselves in a notebook: as HTML tables, which Jupyter asks for by ``_repr_html_``.

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
