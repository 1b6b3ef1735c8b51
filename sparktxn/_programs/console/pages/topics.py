"""The topics, and one topic as it is now or was at an entry."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from sparktxn._engine.log.views.entryhistory import first_entry
from sparktxn._foundation.config.topic import TOPIC_SETTINGS, setting_text, table_formats
from sparktxn._programs.console.filesizes import Figures, partition_figures, topic_figures
from sparktxn._programs.console.pages.groups import topic_groups
from sparktxn._programs.console.pagesource import Page, Source
from sparktxn._programs.console.pagetext import segment_path
from sparktxn._programs.console.requestparameters import RequestParameters, asked_sort

_ROWS: Final = 100
_SORTED: Final = ("topic", "typed", "partitions", "offsets", "behind", "size_bytes", "segments")
_SORTED_PARTITIONS: Final = (
    *("partition", "log_start_offset", "last_stable_offset", "log_end_offset"),
    *("behind", "size_bytes", "segments", "segment_bytes"),
)


def topics(source: Source, asked: RequestParameters) -> Page:
    """Return a page of the topics; `q` is a part of their names, `start` the first name, or with `sort` `skip` rows."""
    view = source.view()
    part, start, skip = asked.text("q").lower(), asked.text("start"), asked.number("skip", 0) or 0
    sort = asked_sort(asked, _SORTED, "topic", "/topics", {"q": asked.text("q")})
    names = sorted(name for name in view.topics if part in name.lower() and name >= start)
    figures = topic_figures(view)
    by_name = sort.text == "topic"
    rows = [
        {
            "topic": name,
            "partitions": view.topics[name].partition_count,
            "typed": view.topics[name].schema is not None,
            "tables": list(table_formats(view.topics[name].settings)),
            **figures[name]._asdict(),
        }
        for name in (names[skip : skip + _ROWS] if by_name else names)
    ]
    content = {
        "entry": view.entry,
        "q": asked.text("q"),
        "sort": sort,
        "total": len(view.topics),
        "topics": rows if by_name else sort.of(rows)[skip : skip + _ROWS],
        "next": names[_ROWS] if by_name and not skip and len(names) > _ROWS else None,
        "next_skip": skip + _ROWS if (skip or not by_name) and len(names) > skip + _ROWS else None,
    }
    return Page("topics.html", "Topics", content)


def topic(source: Source, asked: RequestParameters, name: str) -> Page:
    """Return one topic; `entry` or `at` choose an older entry, `start` the first partition of the page."""
    newest = source.view().entry
    entry = asked.entry()
    view = source.topic_view(name, entry)
    found = view.topics[name]
    start = asked.number("start", 0) or 0
    total, rows, next_start = Figures(), [], None
    for number in range(found.partition_count):
        partition = view.partitions[name, number]
        figures = partition_figures(partition)
        total = total.plus(figures)
        rows.append(
            {
                "partition": number,
                "log_start_offset": partition.log_start_offset,
                "last_stable_offset": partition.last_stable_offset,
                "log_end_offset": partition.log_end_offset,
                **figures._asdict(),
                "segment_bytes": figures.segment_bytes,
            }
        )
    if start + _ROWS < found.partition_count:
        next_start = start + _ROWS
    is_now = view.entry == newest
    given = {"entry": None if is_now else view.entry}
    sort = asked_sort(asked, _SORTED_PARTITIONS, "partition", f"/topics/{segment_path(name)}", given)
    groups = topic_groups(source, view, name) if is_now else []
    content: dict[str, Any] = {
        "topic": name,
        "topic_id": found.topic_id,
        "created_entry": found.created_entry,
        "entry": view.entry,
        "timestamp_ms": view.timestamp_ms,
        "newest_entry": newest,
        "first_entry": max(found.created_entry, first_entry(source.log.objects) - 1),
        "is_now": is_now,
        "settings": dict(found.settings),
        "store_settings": dict(source.log.store_state().topic_defaults),
        "defaults": {one.name: setting_text(one.name, one.default) for one in TOPIC_SETTINGS},
        "columns": [{"column": column, "type": kind, "nullable": null} for column, kind, null in found.schema or ()],
        "typed": found.schema is not None,
        "partition_count": found.partition_count,
        **total._asdict(),
        "segment_bytes": total.segment_bytes,
        "sort": sort,
        "partitions": sort.of(rows)[start : start + _ROWS],
        "next": next_start,
        "groups": groups[:_ROWS],
        "groups_left_out": max(0, len(groups) - _ROWS),
        "table": _table(source, found.topic_id, list(table_formats(found.settings))),
    }
    return Page("topic.html", name, content)


def _table(source: Source, topic_id: int, formats: list[str]) -> dict[str, Any] | None:
    """Return the newest published version of a topic's table; None if it is none."""
    table = next((one for one in source.log.tables() if one.topic_id == topic_id), None)
    if table is None:
        return {"formats": formats, "version": None} if formats else None
    return {
        "formats": formats,
        "version": table.version,
        "entry": table.entry,
        "published_timestamp_ms": table.timestamp_ms,
        "location": table.location,
        "versions_kept": len(list(islice(table.kept, 1_000))),
    }
