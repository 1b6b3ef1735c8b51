"""Read tasks → whole files: which Parquet segments an engine may read with its own reader, every row of them.

It may because a segment belongs to at most one transaction (PROTOCOL.md, "Reading records"). A file is read whole or
not at all, but for bounds that a read sets itself. The offsets of its rows follow from the file's base offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from sparktxn import arguments
from sparktxn.scan.aborted import AbortedRanges
from sparktxn.scan.plan import ReadTask
from sparktxn.structs import SegmentRef

__all__ = ["whole_files"]

_PARQUET: Final = ".parquet"


def whole_files(tasks: Iterable[ReadTask], *, offset_max: int) -> tuple[list[ReadTask], list[ReadTask]]:
    """Return `tasks` in two parts: one whose segments are Parquet files of which every row is read, and the rest.

    The rest has Arrow segments, segments of which only some rows are read, and internal topics. It also has segments
    with a base offset above `offset_max`, and those that a rewrite has put into one file with others.

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
            is_whole = is_whole and segment.record_count == segment.file_records
            (files if is_whole and segment.name.endswith(_PARQUET) else others).append(segment)
        if files:
            whole.append(replace(task, segments=tuple(files), aborted=()))
        if others or not task.segments:
            rest.append(replace(task, segments=tuple(others)))
    return whole, rest
