"""The first page: rates from the log's own history, open transactions, groups that are behind, and the topics."""

from __future__ import annotations

from itertools import accumulate, islice, takewhile
from typing import Any, Final

from sparktxn import ReadView
from sparktxn._programs.console.filesizes import Figures, topic_figures
from sparktxn._programs.console.pages.groups import GroupOffsets, group_rows, known_groups
from sparktxn._programs.console.pages.history import history_rows, shown_span
from sparktxn._programs.console.pages.transactions import open_rows
from sparktxn._programs.console.pagesource import Page, Source
from sparktxn._programs.console.plots import CURVES_MAX, OUTCOMES, Buckets, plot, rates, topic_colours
from sparktxn._programs.console.requestparameters import RequestParameters

_TOP: Final = 10
_OFFSETS_COUNTED: Final = 10_000


def overview(source: Source, asked: RequestParameters) -> Page:
    """Return the overview; `span` chooses the time of its plots."""
    view = source.view()
    known = source.past.up_to(view.entry)
    now_ms = max(source.now_ms(), view.timestamp_ms)
    chosen = shown_span(asked, known, now_ms, view.timestamp_ms)
    buckets = rates(chosen.tallies, chosen.start_ms, chosen.end_ms)
    colours = _colours(view, buckets)
    by_topic = topic_figures(view)
    total = Figures()
    for figures in by_topic.values():
        total = total.plus(figures)
    transactions = source.transactions()
    opened = open_rows(source, transactions)
    known_offsets = known_groups(source)
    counted = dict(islice(known_offsets.items(), _countable(known_offsets)))
    groups = group_rows(source, view, counted)
    behind = sorted((row for row in groups if row["lag"]), key=lambda row: -row["lag"])
    content: dict[str, Any] = {
        "store": source.uri,
        "store_id": source.store.store_id,
        "entry": view.entry,
        "timestamp_ms": view.timestamp_ms,
        "age_ms": max(0, now_ms - view.timestamp_ms),
        "topics": len(view.topics),
        "partitions": len(view.partitions),
        "offsets": total.offsets,
        "segments": total.segments,
        "size_bytes": total.size_bytes,
        "transactional_ids": len(transactions),
        "history": history_rows(known, chosen),
        "plots": [
            plot("Records per second", "records/s", buckets, buckets.records, colours),
            plot("Bytes per second", "bytes/s", buckets, buckets.size_bytes, colours),
            plot("Ends of transactions per second", "ends/s", buckets, buckets.endings, OUTCOMES),
        ],
        "open_transactions": opened[:_TOP],
        "open_count": len(opened),
        "groups": len(known_offsets),
        "groups_counted": len(counted),
        "groups_behind": behind[:_TOP],
        "behind_count": len(behind),
        "largest_topics": [
            {"topic": name, **figures._asdict(), "segment_bytes": figures.segment_bytes}
            for name, figures in sorted(by_topic.items(), key=lambda item: -item[1].size_bytes)[:_TOP]
        ],
        "small_files": sorted(name for name, figures in by_topic.items() if figures.small_files)[:_TOP],
    }
    return Page("overview.html", "Overview", content, None if known.is_complete else source.past.read_on)


def _colours(view: ReadView, buckets: Buckets) -> dict[str, str]:
    """Return the colour of each topic: those that plots show have different ones."""
    ids = {name: topic.topic_id for name, topic in view.topics.items()}
    shown = dict.fromkeys(
        name
        for series in (buckets.records, buckets.size_bytes)
        for name in sorted(series, key=lambda name: (-sum(series[name]), name))[:CURVES_MAX]
    )
    return topic_colours(list(shown), ids)


def _countable(known: GroupOffsets) -> int:
    """Return how many groups have at most so many offsets together that counting them takes no time to speak of."""
    sums = accumulate(map(len, known.values()))
    return max(1, sum(1 for _ in takewhile(lambda offsets: offsets <= _OFFSETS_COUNTED, sums)))
