"""Commit order (PROTOCOL.md, "Commit order"): what a reader of whole transactions gets between two log entries.

A read from entry *a* to entry *b* has the records of the transactions that entries a+1 to b committed. It also has what
they appended outside transactions. A transaction is never split and an open one holds back no other. Offsets of
one partition may come out of order between two reads: a transaction that began early may be committed late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from sparktxn._engine.log.keep.sealedruns import committed_from, joined, not_rewritten
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.state.transactions.partitions import CommittedRanges
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._foundation.values.structs import CommittedTransaction, ManifestRef, RewrittenRange, SegmentRef
from sparktxn._rows.scan.columns import output_schema
from sparktxn._rows.scan.plan import (
    ReadTask,
    by_partition,
    computed_tasks,
    current_segments,
    needs_segments,
    not_in_view,
    rewritten_segments,
    task_of,
)
from sparktxn.errors import ConfigurationError

Bounds = Mapping[TopicPartitionKey, tuple[int, int | None]]
"""By (topic, partition), the least offset to read and the one after the greatest, None for no limit."""


class Piece(NamedTuple):
    """The records of a committed segment that lie within the bounds."""

    entry: int
    start: int
    end: int
    segment: SegmentRef


def committed_between(
    objects: ObjectStore,
    view: PartitionView,
    after_entry: int,
    to_entry: int,
    *,
    by_segment: bool = True,
    with_rewritten: bool = True,
) -> list[tuple[int, SegmentRef]]:
    """Return the segments that entries `after_entry` + 1 to `to_entry` committed, with that entry, in offset order.

    Of sealed runs only the manifests are loaded that may name such a segment. Unless `by_segment`, those that follow
    each other in a merged file are one `FilePart`, with the last of their entries. Those of rewritten ranges are left
    out unless `with_rewritten`.

    Raises:
        DamagedObject: a manifest is missing or altered.
        ViewExpired: a manifest is missing because the vacuum has passed the view.
    """
    late = [transaction for run in view.sealed for transaction in run.committed_late]
    committed = [transaction for transaction in (*late, *view.committed) if after_entry < transaction.entry <= to_entry]
    runs = [run for run in view.sealed if _may_name(run, after_entry, to_entry, committed)]
    segments = current_segments(objects, view, runs)
    segments += not_rewritten(view.segments, view.rewritten)
    rewritten = [each for each in view.rewritten if _may_name(each.run, after_entry, to_entry, ())]
    if rewritten and with_rewritten:
        segments += _rewritten_between(objects, view, rewritten, after_entry, to_entry, by_segment=by_segment)
        segments.sort(key=attrgetter("base_offset"))
    ranges = CommittedRanges(committed)
    found = ((ranges.entry_of(segment), segment) for segment in segments)
    return [(entry, segment) for entry, segment in found if after_entry < entry <= to_entry]


def _rewritten_between(
    objects: ObjectStore,
    view: PartitionView,
    rewritten: Sequence[RewrittenRange],
    after_entry: int,
    to_entry: int,
    *,
    by_segment: bool,
) -> list[SegmentRef]:
    """Return the segments of rewritten ranges, or parts of files, that the entries after `after_entry` committed.

    Segments of other entries may be among them. Those of a part never are: it is read as a whole.
    """
    segments = rewritten_segments(objects, view, rewritten, by_segment=by_segment)
    if by_segment or not any(
        committed_from(part) <= entry < part.committed_entry for part in segments for entry in (after_entry, to_entry)
    ):
        return segments
    segments = rewritten_segments(objects, view, rewritten, by_segment=True)
    return joined(segment for segment in segments if after_entry < segment.committed_entry <= to_entry)


def _may_name(run: ManifestRef, after_entry: int, to_entry: int, committed: Sequence[CommittedTransaction]) -> bool:
    if run.entry_min > to_entry:
        return False
    if run.committed_entry_max > after_entry:
        return True
    return any(
        transaction.first_offset < run.end_offset and transaction.last_offset >= run.base_offset
        for transaction in committed
    )


def checked_bounds(view: ReadView, bounds: object) -> dict[TopicPartitionKey, tuple[int, int | None]]:
    """Return the bounds that a caller passes; None means all partitions of the view, whole.

    Raises:
        TypeError: they are not dict of (start, end or None) by (topic, partition).
        ConfigurationError: a partition is not in the view, or an offset is below 0.
    """
    if bounds is None:
        return dict.fromkeys(view.partitions, (0, None))
    checked = {}
    for key, given in by_partition("bounds", bounds).items():
        if key not in view.partitions:
            raise not_in_view(view, *key)
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise TypeError(f"bounds[{key}] is {arguments.described(given)}: expected (start offset, end offset)")
        start = arguments.integer(f"the start of bounds[{key}]", given[0], 0)
        checked[key] = (start, arguments.integer_or_none(f"the end of bounds[{key}]", given[1], 0))
    return checked


class CommitRange(NamedTuple):
    """What entries `after_entry` + 1 to `to_entry` have committed, within `bounds` and nowhere else."""

    after_entry: int
    to_entry: int
    bounds: Bounds


def checked_commits(view: object, after_entry: object, to_entry: object, bounds: object) -> CommitRange:
    """Return the range of commits of a view that a caller passes; `to_entry` None means up to the view's entry.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: an entry is below 0 or after the view's, or `bounds` is wrong, see `checked_bounds`.
    """
    view = arguments.instance("view", view, ReadView)
    after_entry = arguments.integer("after_entry", after_entry, 0)
    last = arguments.integer_or_none("to_entry", to_entry, 0)
    if last is not None and last > view.entry:
        raise ConfigurationError(f"to_entry is {last}: expected at most the view's entry, {view.entry}")
    return CommitRange(after_entry, view.entry if last is None else last, checked_bounds(view, bounds))


def plan_commits(
    objects: ObjectStore,
    view: ReadView,
    commits: CommitRange,
    *,
    columns: Sequence[str] | None = None,
    rows_per_task: int | None = None,
    by_segment: bool = True,
) -> list[ReadTask]:
    """Return the tasks that read a range of commits of `view`.

    They come partition by partition, in the order of the bounds, each partition's rows in offset order. A task has at
    most about `rows_per_task` rows (None: no limit); files are not split. Of an internal topic it has at most so
    many entries. Records below a log start are left out. Unless `by_segment`, a task names merged files, and not their
    segments, where `columns` let it.

    Raises:
        ConfigurationError: a topic has no such column.
        DamagedObject: a manifest is missing or altered.
        ViewExpired: a manifest is missing because the vacuum has passed the view.
    """
    after_entry, to_entry, bounds = commits
    tasks: list[ReadTask] = []
    for key, (start, end) in bounds.items():
        partition = view.partitions[key]
        output_schema(partition.topic.schema, columns)
        low, high = max(start, partition.unread_from(after_entry)), partition.unread_from(to_entry)
        high = high if end is None else min(end, high)
        tasks += computed_tasks(objects.uri, partition, low, high, columns, rows_per_task)
        named = by_segment or needs_segments(partition, columns)
        pieces = pieces_between(objects, partition, after_entry, to_entry, start, end, by_segment=named)
        for group in _groups(pieces, rows_per_task):
            segments = [piece.segment for piece in group]
            tasks.append(task_of(objects.uri, partition, group[0].start, group[-1].end, segments, (), columns))
    return tasks


def pieces_between(
    objects: ObjectStore,
    view: PartitionView,
    after_entry: int,
    to_entry: int,
    start: int,
    end: int | None,
    *,
    by_segment: bool = True,
) -> list[Piece]:
    """Return what the entries after `after_entry`, up to `to_entry`, committed of a range, in offset order."""
    start = max(start, view.log_start_offset)
    end = view.log_end_offset if end is None else end
    pieces = []
    for entry, segment in committed_between(objects, view, after_entry, to_entry, by_segment=by_segment):
        low, high = max(start, segment.base_offset), min(end, segment.end_offset)
        if low < high:
            pieces.append(Piece(entry, low, high, segment))
    return pieces


def _groups(pieces: Sequence[Piece], rows_per_task: int | None) -> Iterator[list[Piece]]:
    group: list[Piece] = []
    rows = 0
    for piece in pieces:
        count = piece.segment.rows_between(piece.start, piece.end)
        is_same_file = bool(group) and group[-1].segment.name == piece.segment.name
        if group and not is_same_file and rows_per_task is not None and rows + count > rows_per_task:
            yield group
            group, rows = [], 0
        group.append(piece)
        rows += count
    if group:
        yield group
