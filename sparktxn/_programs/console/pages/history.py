"""The span of time that plots show, as a request chooses it, and what a page says of how far its figures reach."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparktxn._programs.console.history.entryfigures import SPANS, KnownPast, Tally
from sparktxn._programs.console.requestparameters import RequestParameters

_HOUR: Final = "hour"
_ALL: Final = "all"


class Shown(NamedTuple):
    """What plots show: the tallies, first that of entries, and from when to when."""

    span: str
    tallies: list[Tally]
    start_ms: int
    end_ms: int


def shown_span(
    asked: RequestParameters, known: KnownPast, now_ms: int, newest_ms: int, *, entries_only: bool = False
) -> Shown:
    """Return what the parameter `span` chooses: the last hour unless the store has been idle for that long.

    Time of which nothing is known yet is not shown as silence. With `entries_only` only what entries say counts.
    """
    hour_ms = SPANS[_HOUR]
    assert hour_ms is not None
    is_idle = known.first_timestamp_ms is None or newest_ms < now_ms - hour_ms
    span = asked.choice("span", SPANS, _ALL if is_idle else _HOUR)
    # In a young store the buckets of all time are the finer ones.
    tallies = [
        min(one.by_span[_ALL], one.by_span[span], key=lambda tally: tally.width_ms)
        for one in (known.tallies[:1] if entries_only else known.tallies)
    ]
    from_ms = now_ms if known.first_timestamp_ms is None else known.first_timestamp_ms
    if len(tallies) > 1 and known.is_complete:
        from_ms = min([from_ms, *(number * one.width_ms for one in tallies for number in one.buckets)])
    length_ms = SPANS[span]
    if length_ms is None:
        return Shown(span, tallies, from_ms, max(newest_ms, from_ms))
    return Shown(span, tallies, max(now_ms - length_ms, min(from_ms, now_ms)), now_ms)


def history_rows(known: KnownPast, shown: Shown) -> dict[str, Any]:
    """Return what a page says of its history; `is_complete` is False while loads of pages read on."""
    return {
        "first_entry": known.first_entry,
        "first_timestamp_ms": known.first_timestamp_ms,
        "entries": known.entries,
        "entries_left": known.entries_left,
        "partitions_left": known.partitions_left,
        "is_complete": known.is_complete,
        "older": known.older,
        "undated": known.undated,
        "problem": known.problem,
        "span": shown.span,
        "spans": list(SPANS),
    }
