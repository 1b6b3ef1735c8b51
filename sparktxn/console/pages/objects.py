"""Files: how many of which size a topic has, which entries keep them, and what a vacuum would delete."""

from __future__ import annotations

from typing import Any, Final

from sparktxn.console.asked import Asked
from sparktxn.console.figures import topic_figures
from sparktxn.console.shownstore import Page, Source
from sparktxn.log.views.entryhistory import first_entry
from sparktxn.scan.plan import object_of, segments_between
from sparktxn.scan.transactioncolumns import committed_ranges

__all__ = ["files", "topic_files"]

_TOPICS: Final = 100
_SEGMENTS: Final = 200
_SIZES: Final = (1_024, 16_384, 262_144, 1_048_576, 8_388_608, 67_108_864)


def files(source: Source, asked: Asked) -> Page:
    """Return the topics by the size of their files, and from which entry on everything is kept."""
    view = source.view()
    figures = topic_figures(view)
    ordered = sorted(figures.items(), key=lambda item: (-item[1].size_bytes, item[0]))
    state = source.log.store_state()
    content = {
        "entry": view.entry,
        "horizon": state.horizon,
        "first_entry": first_entry(source.log.objects),
        "checkpoint_entry": source.log.checkpoint_entry,
        "segments": sum(one.segments for one in figures.values()),
        "size_bytes": sum(one.size_bytes for one in figures.values()),
        "topics": [
            {
                "topic": name,
                "segments": one.segments,
                "size_bytes": one.size_bytes,
                "segment_bytes": one.segment_bytes,
                "small_files": one.has_small_files,
            }
            for name, one in ordered[:_TOPICS]
        ],
        "left_out": max(0, len(ordered) - _TOPICS),
    }
    return Page("files.html", "Files", content)


def topic_files(source: Source, asked: Asked, name: str) -> Page:
    """Return the segments of one partition of a topic from offset `from` on, and how many have which size."""
    view = source.topic_view(name, None)
    number = asked.number("partition", 0, most=view.topics[name].partition_count - 1) or 0
    partition = view.partitions[name, number]
    start = asked.number("from", partition.log_start_offset) or 0
    committed = committed_ranges(partition)
    found = _from(source, partition, start)
    rows: list[dict[str, Any]] = [
        {
            "base_offset": segment.base_offset,
            "end_offset": segment.end_offset,
            "records": segment.row_count,
            "size_bytes": segment.file_share_bytes,
            "file_bytes": segment.size_bytes,
            "object": object_of(partition, segment),
            "entry": segment.entry,
            "committed_entry": committed.entry_of(segment) or None,
        }
        for segment in found[:_SEGMENTS]
    ]
    sizes = [{"below": below, "segments": 0} for below in (*_SIZES, None)]
    for row in rows:
        place = next((place for place, below in enumerate(_SIZES) if row["file_bytes"] < below), len(_SIZES))
        sizes[place]["segments"] += 1  # type: ignore[operator]
    content = {
        "topic": name,
        "partition": number,
        "partition_count": view.topics[name].partition_count,
        "entry": view.entry,
        "start": start,
        "segments": rows,
        "sizes": sizes,
        "most": max((size["segments"] for size in sizes), default=0) or 1,  # type: ignore[type-var]
        "next": found[_SEGMENTS].base_offset if len(found) > _SEGMENTS else None,
    }
    return Page("topic_files.html", f"{name}: files", content)


def _from(source: Source, partition: Any, start: int) -> list[Any]:
    """Return the segments from an offset on, enough for a page: few manifests are read."""
    end = partition.log_end_offset
    width = 1_024
    while True:
        found = segments_between(source.log.objects, partition, start, min(end, start + width))
        if len(found) > _SEGMENTS or start + width >= end:
            return found
        width *= 8
