"""Files: how many of which size a topic has, and what a vacuum would delete of those that are not needed now."""

from __future__ import annotations

from typing import Any, Final

from sparktxn import PartitionView
from sparktxn._engine.log.views.entryhistory import first_entry
from sparktxn._programs.console.filesizes import FILE_SIZES, Sizes, topic_figures
from sparktxn._programs.console.pagesource import Page, Source
from sparktxn._programs.console.pagetext import size
from sparktxn._programs.console.plots import Histogram, histogram
from sparktxn._programs.console.requestparameters import RequestParameters, asked_sort
from sparktxn._rows.scan.plan import object_of, segments_between
from sparktxn._rows.scan.transactioncolumns import committed_ranges
from sparktxn.maintenance import vacuum

_TOPICS: Final = 100
_SEGMENTS: Final = 200
_DRAWN: Final = 6
_SORTED: Final = ("topic", "size_bytes", "segments", "segment_bytes")


def files(source: Source, asked: RequestParameters) -> Page:
    """Return the topics by the size of their files, and from which entry on everything is kept.

    If `run` is 1, a vacuum is run dry: it lists the store's objects, and says what it would delete now and what stays.
    """
    view = source.view()
    figures = topic_figures(view)
    ordered = sorted(figures.items(), key=lambda item: (-item[1].size_bytes, item[0]))
    state = source.log.store_state()
    partitions: dict[str, list[PartitionView]] = {name: [] for name, _ in ordered[:_DRAWN]}
    for (name, _), partition in view.partitions.items():
        if name in partitions:
            partitions[name].append(partition)
    drawn = {name: source.sizes.of(some) for name, some in partitions.items()}
    left = sum(one.manifests_left for one in drawn.values())
    sort = asked_sort(asked, _SORTED, "-size_bytes", "/files", {})
    rows = sort.of(
        [
            {
                "topic": name,
                "segments": one.segments,
                "size_bytes": one.size_bytes,
                "segment_bytes": one.segment_bytes,
                "small_files": one.small_files,
            }
            for name, one in ordered
        ]
    )
    content = {
        "entry": view.entry,
        "horizon": state.horizon,
        "first_entry": first_entry(source.log.objects),
        "checkpoint_entry": source.log.checkpoint_entry,
        "segments": sum(one.segments for one in figures.values()),
        "size_bytes": sum(one.size_bytes for one in figures.values()),
        "sort": sort,
        "topics": rows[:_TOPICS],
        "left_out": max(0, len(ordered) - _TOPICS),
        "histograms": [_drawn(name, sizes) for name, sizes in drawn.items()],
        "manifests_left": left,
        "vacuum": _vacuum(source) if asked.flag("run") else None,
    }
    return Page("files.html", "Files", content, source.sizes.read_on if left else None)


def _drawn(title: str, sizes: Sizes) -> Histogram:
    bounds = [f"< {size(below)}" for below in FILE_SIZES]
    names = ["in entries", *bounds, f"≥ {size(FILE_SIZES[-1])}"]
    return histogram(title, names, [sizes.carried, *sizes.counts])


def _vacuum(source: Source) -> dict[str, Any]:
    """Return how many bytes and files of topics a vacuum would delete now, and why it would leave others."""
    would = vacuum(source.store, dry_run=True)
    return {
        "horizon": would.horizon,
        "files": would.segments + would.sealed_files,
        "size_bytes": would.size_bytes,
        "stays": [limit.text for limit in would.limits],
    }


def topic_files(source: Source, asked: RequestParameters, name: str) -> Page:
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
    sizes = source.sizes.of(one for (topic, _), one in view.partitions.items() if topic == name)
    content = {
        "topic": name,
        "partition": number,
        "partition_count": view.topics[name].partition_count,
        "entry": view.entry,
        "start": start,
        "segments": rows,
        "sizes": [
            {"below": below, "files": count} for below, count in zip((*FILE_SIZES, None), sizes.counts, strict=True)
        ],
        "in_entries": sizes.carried,
        "histogram": _drawn("Files of all partitions by size", sizes),
        "manifests_left": sizes.manifests_left,
        "next": found[_SEGMENTS].base_offset if len(found) > _SEGMENTS else None,
    }
    return Page("topic_files.html", f"{name}: files", content, source.sizes.read_on if sizes.manifests_left else None)


def _from(source: Source, partition: Any, start: int) -> list[Any]:
    """Return the segments from an offset on, enough for a page: few manifests are read."""
    end = partition.log_end_offset
    width = 1_024
    while True:
        found = segments_between(source.log.objects, partition, start, min(end, start + width))
        if len(found) > _SEGMENTS or start + width >= end:
            return found
        width *= 8
