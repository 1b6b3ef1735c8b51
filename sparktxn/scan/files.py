"""Read tasks → files: which objects hold a view's records, and which of them another engine may read as they are.

Those are Parquet files of which every row belongs to the view. The log knows them, because a segment belongs to at most
one transaction (PROTOCOL.md, "Reading records"). A file is read whole or not at all, but for bounds that a read sets
itself. The offsets of its rows follow from the file's base offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sparktxn import arguments
from sparktxn.scan.aborted import AbortedRanges
from sparktxn.scan.plan import ReadTask, by_file
from sparktxn.structs import SegmentRef

__all__ = ["CommittedFile", "committed_files", "whole_files"]

_PARQUET: Final = ".parquet"


class CommittedFile(Struct, frozen=True, kw_only=True):
    """A file that holds records of a view.

    `record_count` counts the records in it that are the view's, or of aborted transactions that only a filter leaves
    out. If `is_whole`, it is a Parquet file of which every row belongs to the view: another engine may read `path`.
    Then row N has the offset `base_offset` + N. In a file that a rewrite or a compaction has made offsets grow with
    gaps. The file of inline records is the entry that carries them.
    """

    topic: str
    partition: int
    base_offset: int
    record_count: int
    size_bytes: int
    is_whole: bool
    path: str


def committed_files(tasks: Iterable[ReadTask]) -> Iterator[CommittedFile]:
    """Yield the files that `tasks` read, in their order."""
    for task in tasks:
        aborted = AbortedRanges(task.aborted)
        start, end = task.start_offset, task.end_offset
        for segments in by_file(task.segments):
            first = segments[0]
            whole = [one for one in segments if aborted.kept(one, start, end) == [(one.base_offset, one.end_offset)]]
            has_all = sum(segment.row_count for segment in whole) == first.file_records
            yield CommittedFile(
                topic=task.topic,
                partition=task.partition,
                base_offset=first.base_offset,
                record_count=sum(segment.row_count for segment in segments),
                size_bytes=first.size_bytes,
                is_whole=has_all and first.name.endswith(_PARQUET),
                path=f"{task.store_uri.rstrip('/')}/{task.segment_name(first)}",
            )


def whole_files(tasks: Iterable[ReadTask], *, offset_max: int) -> tuple[list[ReadTask], list[ReadTask]]:
    """Return `tasks` in two parts: one whose segments are Parquet files of which every row is read, and the rest.

    The rest has Arrow segments, segments of which only some rows are read, and internal topics. It also has segments
    with a base offset above `offset_max`, those that a rewrite has put into one file with others, and those with gaps.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: `offset_max` is below 0.
    """
    offset_max = arguments.integer("offset_max", offset_max, 0)
    whole: list[ReadTask] = []
    rest: list[ReadTask] = []
    for task in arguments.items("tasks", tasks, ReadTask):
        aborted = AbortedRanges(task.aborted)
        files: list[SegmentRef] = []
        others: list[SegmentRef] = []
        for segment in task.segments:
            kept = aborted.kept(segment, task.start_offset, task.end_offset)
            is_whole = kept == [(segment.base_offset, segment.end_offset)] and segment.base_offset <= offset_max
            is_whole = is_whole and segment.record_count == segment.row_count == segment.file_records
            (files if is_whole and segment.name.endswith(_PARQUET) else others).append(segment)
        if files:
            whole.append(replace(task, segments=tuple(files), aborted=()))
        if others or not task.segments:
            rest.append(replace(task, segments=tuple(others)))
    return whole, rest
