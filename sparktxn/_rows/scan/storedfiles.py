"""Read tasks → files: which objects hold a view's records, and which of them another engine may read as they are.

Those are Parquet files of which every row belongs to the view. The log knows them, because a segment belongs to at most
one transaction (PROTOCOL.md, "Reading records"). The offsets of the rows follow from the file's base offset. A file
that a rewrite has made says them itself, so that an engine can read a part of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import itemgetter
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import FilePart, SegmentRef
from sparktxn._rows.scan.aborted import AbortedRanges
from sparktxn._rows.scan.columns import OFFSET, reserved_name
from sparktxn._rows.scan.plan import ReadTask, by_file

_PARQUET: Final = ".parquet"


class CommittedFile(Struct, frozen=True, kw_only=True):
    """A file that holds records of a view.

    `record_count` counts the records in it that are the view's, or of aborted transactions that only a filter leaves
    out. If `is_whole`, it is a Parquet file of which every row belongs to the view: another engine may read `path`.
    Row N has the offset that the file's column `offset_column` says. None: it has the offset `base_offset` + N, if
    `is_whole`. The file of inline records is the entry that carries them.
    """

    topic: str
    partition: int
    base_offset: int
    record_count: int
    size_bytes: int
    is_whole: bool
    offset_column: str | None
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
                offset_column=reserved_name(OFFSET, task.schema) if first.has_offset_column else None,
                path=f"{task.store_uri.rstrip('/')}/{task.segment_name(first)}",
            )


def have_cut_parts(tasks: Iterable[ReadTask]) -> bool:
    """Return whether a task reads only some rows of a part of a file: what is left of it, only its segments say."""
    return any(
        isinstance(part, FilePart) and (part.base_offset < task.start_offset or part.end_offset > task.end_offset)
        for task in tasks
        for part in task.segments
    )


def whole_files(tasks: Iterable[ReadTask], *, offset_max: int) -> tuple[list[ReadTask], list[ReadTask]]:
    """Return `tasks` in two parts: one whose segments are Parquet files of which every row is read, and the rest.

    The rest has Arrow segments, segments of which only some rows are read, and internal topics. It also has segments
    with a base offset above `offset_max`, those that a rewrite has put into one file with others, and those with gaps.
    Files that say their rows' offsets are better taken out by `merged_files` first.

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


def unfit_segments(tasks: Iterable[ReadTask]) -> dict[str, int]:
    """Return how many segments no other engine reads, by the reason; `tasks` are the rest that `whole_files` returns.

    The reasons are ``inline`` (a log entry carries the records), ``arrow`` (no Parquet file), and ``cut`` (only some
    rows are read). Tasks of internal topics are counted as ``computed``.
    """
    found: Counter[str] = Counter()
    for task in tasks:
        if not task.segments:
            found["computed"] += 1
        for segment in task.segments:
            is_parquet = segment.name.endswith(_PARQUET)
            found["cut" if is_parquet else "inline" if names.is_inline(segment.name) else "arrow"] += 1
    return dict(found)


class MergedFile(Struct, frozen=True, kw_only=True):
    """A Parquet file that says the offset of each row, and what of it is read.

    `task` has the file's segments that are read. `ranges` are the offsets of the rows, as (start, end) in order: empty
    if every row is read. Other rows of the file may have offsets that another file has now.
    """

    task: ReadTask
    ranges: tuple[tuple[int, int], ...]


def merged_files(tasks: Iterable[ReadTask]) -> tuple[list[MergedFile], list[ReadTask]]:
    """Return `tasks` in two parts: the files among theirs that say their rows' offsets, each once, and the rest.

    Raises:
        TypeError: an item is not a ReadTask.
    """
    files: dict[tuple[int, int, str], tuple[ReadTask, list[_Kept]]] = {}
    ids: dict[tuple[int, int, str], dict[int, str]] = {}
    rest: list[ReadTask] = []
    for task in arguments.items("tasks", tasks, ReadTask):
        aborted = AbortedRanges(task.aborted)
        others: list[SegmentRef] = []
        for segment in task.segments:
            if not segment.has_offset_column:
                others.append(segment)
                continue
            key = (task.topic_id, task.partition, segment.name)
            first, kept = files.setdefault(key, (task, []))
            if first is not task and task.transactional_ids:
                # A task knows the ids of its own segments, and a file may be in several.
                ids.setdefault(key, dict(first.transactional_ids)).update(task.transactional_ids)
            kept += [(low, high, segment) for low, high in aborted.kept(segment, task.start_offset, task.end_offset)]
        if others or not task.segments:
            rest.append(replace(task, segments=tuple(others)))
    made = [
        _merged_file(replace(task, transactional_ids=ids[key]) if key in ids else task, kept)
        for key, (task, kept) in files.items()
        if kept
    ]
    return made, rest


_Kept: TypeAlias = tuple[int, int, SegmentRef]
"""Offsets of a segment that are read: from the first number to the second."""


def _merged_file(task: ReadTask, kept: list[_Kept]) -> MergedFile:
    ordered = sorted(kept, key=itemgetter(0))
    segments, ranges = [ordered[0][2]], [ordered[0][:2]]
    for (_, last_end, last), (start, end, segment) in pairwise(ordered):
        if segment is not last and segment != last:
            segments.append(segment)
        # Between neighbours in a file it has no row: one range reads both.
        follows = segment.first_row == last.first_row + last.row_count
        joins = follows and last_end == last.end_offset and start == segment.base_offset
        if joins or last_end == start:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((start, end))
    begins = ordered[0][0] == segments[0].base_offset and segments[0].first_row == 0
    ends = ordered[-1][1] == segments[-1].end_offset
    ends = ends and segments[-1].first_row + segments[-1].row_count == segments[-1].file_records
    is_whole = begins and ends and len(ranges) == 1
    return MergedFile(
        task=replace(task, segments=tuple(segments), aborted=()), ranges=() if is_whole else tuple(ranges)
    )
