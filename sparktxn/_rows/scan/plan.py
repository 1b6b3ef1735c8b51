"""Offset ranges of a read view → read tasks: self-contained, picklable, and read without the log.

A task names the segments to fetch and the aborted ranges to leave out. Segments that an aborted transaction holds whole
are left out here, so no reader fetches them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.segment import stored_schema
from sparktxn._engine.log.follow.confirm import Premise, judge
from sparktxn._engine.log.keep.sealedruns import (
    ManifestCache,
    aborted_of,
    is_rewritten,
    not_rewritten,
    rewritten_segments_of,
    segments_of,
)
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.config.topic import topic_setting
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._foundation.values.structs import AbortedTransaction, ManifestRef, RewrittenRange, SegmentRef
from sparktxn._rows.scan.aborted import AbortedRanges
from sparktxn._rows.scan.columns import OFFSET, TIMESTAMP, metadata_names, output_schema, reserved_name
from sparktxn._rows.scan.conditions import Condition
from sparktxn.errors import (
    ConfigurationError,
    DamagedObject,
    ErrorCode,
    RetentionPassed,
    StoreError,
    ViewExpired,
    did_you_mean,
)

Isolation = Literal["read_committed", "read_uncommitted"]
ISOLATIONS: Final = get_args(Isolation)

Order = Literal["commit", "offset"]
"""What decides where a read of committed records ends: the view's entry, or each partition's last stable offset."""

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

_Part = TypeVar("_Part", SegmentRef, ManifestRef, RewrittenRange)

_INDEXES_PER_FETCH: Final = 16


class LocatedSegment(NamedTuple):
    """A segment and where its records lie: the object's name, and the log entry that it is, if one carries them."""

    segment: SegmentRef
    object_name: str
    carrier: int | None


class ReadTask(Struct, frozen=True):
    """A part of a partition's range, to be read by any process that can reach the store's objects.

    The tasks of a range of offsets tile it: each starts where the one before it ends. `segments` are those with rows to
    return, in offset order; `aborted` is empty for read_uncommitted and in commit order. `schema` and `columns` are as
    in `columns.output_schema`. Some of the segments may be parts of merged files, with those of several
    (`FilePart`). A task of an internal topic has no segments: its rows are computed from the entries that
    its offsets name. Segments without a record that meets all `conditions` are left out when it is read. Of the others,
    all rows are returned.
    """

    store_uri: str
    topic: str
    topic_id: int
    partition: int
    start_offset: int
    end_offset: int
    segments: tuple[SegmentRef, ...]
    aborted: tuple[AbortedTransaction, ...]
    schema: tuple[tuple[str, str, bool], ...] | None
    columns: tuple[str, ...] | None
    timestamp_type: int
    view_entry: int
    transactional_ids: dict[int, str] = {}
    conditions: tuple[Condition, ...] = ()

    def located(self, segments: Iterable[SegmentRef]) -> list[LocatedSegment]:
        """Return segments of the task with where their records lie."""
        return _located(names.partition_folder(self.topic, self.topic_id, self.partition), segments)

    def segment_name(self, segment: SegmentRef) -> str:
        """Return the object name of one of the task's segments: of inline records it is their entry's."""
        return self.located([segment])[0].object_name

    def kept_offsets(self, read: Callable[[ReadTask], Iterable[pa.RecordBatch]]) -> Iterator[tuple[int, int]]:
        """Yield the offsets of the task's rows as (start, end) ranges in order.

        The log alone says them, but for segments with gaps, and rows that are computed: those are read.

        Args:
            read: returns a task's rows, as `read_task` does.
        """
        ranges = AbortedRanges(self.aborted)
        parts: list[tuple[SegmentRef, ...]] = [(segment,) for segment in self.segments]
        for segments in parts or [()]:
            if segments and not segments[0].has_gaps:
                yield from ranges.kept(segments[0], self.start_offset, self.end_offset)
                continue
            column = reserved_name(OFFSET, self.schema)
            for batch in read(replace(self, segments=segments, columns=(column,), conditions=())):
                yield from ((offset, offset + 1) for offset in batch.column(0).to_pylist())


def located_in(view: PartitionView, segment: SegmentRef) -> LocatedSegment:
    """Return a segment of a partition with where its records lie."""
    return _located(_folder(view), [segment])[0]


def object_of(view: PartitionView, segment: SegmentRef) -> str:
    """Return the name of the object that holds a segment's records."""
    return located_in(view, segment).object_name


def _located(folder: str, segments: Iterable[SegmentRef]) -> list[LocatedSegment]:
    found = []
    for segment in segments:
        carrier = names.carrier(segment.name, segment.entry)
        object_name = folder + segment.name if carrier is None else names.entry(carrier)
        found.append(LocatedSegment(segment, object_name, carrier))
    return found


_end_offset: Final = attrgetter("end_offset")
_base_offset: Final = attrgetter("base_offset")
_manifests = ManifestCache()


def timestamp_type(view: PartitionView) -> int:
    """Return CREATE_TIME or LOG_APPEND_TIME, as the topic's settings say."""
    log_append = topic_setting(view.topic.settings, "message.timestamp.type") == "LogAppendTime"
    return LOG_APPEND_TIME if log_append else CREATE_TIME


def end_of(view: PartitionView, isolation: Isolation, order: Order = "offset") -> int:
    """Return the offset after the last one that a reader of this isolation level sees in this order."""
    to_the_end = isolation == "read_uncommitted" or order == "commit"
    return view.log_end_offset if to_the_end else view.last_stable_offset


def missing_object(
    objects: ObjectStore,
    name: str,
    view_entry: int,
    *,
    base_entry: int | None = None,
    damage: DamagedObject | None = None,
) -> StoreError:
    """Return the error for an object that a view at `view_entry` names and that is not there, or is another: `damage`.

    Below the horizon the vacuum may have deleted it (ViewExpired); otherwise nothing may have (DamagedObject). Sealed
    runs are kept only if the checkpoint that names them, `base_entry`, is not below the horizon either.
    """
    passed = judge(objects, Premise(view_entry, base_entry))
    if passed is None:
        return damage or DamagedObject(name, f"it is missing, and the view at entry {view_entry} names it")
    if passed.entries:
        return ViewExpired(
            f"the read view at entry {view_entry} is older than entry {passed.horizon}, from which the vacuum has kept "
            f"everything; object {name!r} is gone: open a newer view"
        )
    return ViewExpired(
        f"the read view at entry {view_entry} names objects of the checkpoint after entry {base_entry}, which a "
        f"vacuum up to entry {passed.horizon} has passed; object {name!r} is gone: open a newer view"
    )


def segments_between(
    objects: ObjectStore,
    view: PartitionView,
    start: int,
    end: int,
    *,
    by_segment: bool = True,
    cache: ManifestCache | None = _manifests,
) -> list[SegmentRef]:
    """Return the partition's segments with records from offset `start` to `end` (exclusive), in offset order.

    Loads only the manifests of the sealed runs that the range touches. Unless `by_segment`, those that follow each
    other in a merged file are one `FilePart`. Without a `cache` the manifests are read and let go: a caller that reads
    all of a partition once leaves what readers have there.

    Raises:
        DamagedObject: a manifest is missing or altered.
        ViewExpired: a manifest is missing because the vacuum has passed the view.
    """
    found = current_segments(objects, view, _overlapping(view.sealed, start, end), cache=cache)
    found += not_rewritten(_overlapping(view.segments, start, end), view.rewritten)
    if not view.rewritten:
        return list(_overlapping(found, start, end))
    ranges = _overlapping(view.rewritten, start, end)
    found += rewritten_segments(objects, view, ranges, by_segment=by_segment, cache=cache)
    return list(_overlapping(sorted(found, key=_base_offset), start, end))


def current_segments(
    objects: ObjectStore, view: PartitionView, runs: Sequence[ManifestRef], *, cache: ManifestCache | None = _manifests
) -> list[SegmentRef]:
    """Return the segments of the sealed runs `runs` that no rewrite has replaced, in offset order.

    Raises:
        DamagedObject: a manifest is missing or altered.
        ViewExpired: a manifest is missing because the vacuum has passed the view.
    """
    runs = [run for run in runs if not is_rewritten(run, view.rewritten)]
    manifests = segments_of(objects, _folder(view), runs, cache=cache, absent=_absent(objects, view))
    return [segment for manifest in manifests for segment in not_rewritten(manifest, view.rewritten)]


def rewritten_segments(
    objects: ObjectStore,
    view: PartitionView,
    ranges: Sequence[RewrittenRange],
    *,
    by_segment: bool,
    cache: ManifestCache | None = _manifests,
) -> list[SegmentRef]:
    """Return the segments of the partition's rewritten ranges `ranges`, in offset order.

    Unless `by_segment`, those that follow each other in a merged file are one `FilePart`.

    Raises:
        DamagedObject: a manifest is missing or altered.
        ViewExpired: a manifest is missing because the vacuum has passed the view.
    """
    # Unlike sealed runs they are named by the log, and kept for as long as a view of it.
    return rewritten_segments_of(
        objects,
        _folder(view),
        ranges,
        cache=cache,
        absent=lambda name: missing_object(objects, name, view.entry),
        by_segment=by_segment,
    )


def _overlapping(parts: Sequence[_Part], start: int, end: int) -> Sequence[_Part]:
    first = bisect_right(parts, start, key=_end_offset)
    last = bisect_left(parts, end, key=_base_offset)
    return parts[first:last]


def _folder(view: PartitionView) -> str:
    return names.partition_folder(view.topic.name, view.topic.topic_id, view.partition)


def _absent(objects: ObjectStore, view: PartitionView) -> Callable[[str], StoreError]:
    return lambda name: missing_object(objects, name, view.entry, base_entry=view.base_entry)


def aborted_between(objects: ObjectStore, view: PartitionView, start: int, end: int) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions with records from offset `start` to `end` (exclusive), ordered by their ends.

    A transaction is in the index of the run where it ended, so runs after the range are read too. This ends at a
    transaction whose last stable offset shows that none older was still open (kafka TransactionIndex.collectAborted).

    Raises:
        DamagedObject: an index is missing or altered.
        ViewExpired: an index is missing because the vacuum has passed the view.
    """
    found: list[AbortedTransaction] = []
    for transactions in _aborted_in_order(objects, view, start):
        for aborted in transactions:
            if aborted.last_offset >= start and aborted.first_offset < end:
                found.append(aborted)
            if aborted.last_stable_offset >= end:
                return tuple(found)
    return tuple(found)


def _aborted_in_order(objects: ObjectStore, view: PartitionView, start: int) -> Iterator[Sequence[AbortedTransaction]]:
    first = bisect_right(view.sealed, start, key=_end_offset)
    runs = [run for run in view.sealed[first:] if run.aborted_count]
    for position in range(0, len(runs), _INDEXES_PER_FETCH):
        some = runs[position : position + _INDEXES_PER_FETCH]
        yield from aborted_of(objects, _folder(view), some, absent=_absent(objects, view))
    yield view.aborted


def plan_ranges(
    objects: ObjectStore,
    uri: str,
    view: ReadView,
    ranges: Mapping[TopicPartitionKey, tuple[int, int]],
    *,
    isolation: Isolation = "read_committed",
    columns: Sequence[str] | None = None,
    rows_per_task: int | None = None,
    by_segment: bool = True,
) -> list[ReadTask]:
    """Return the tasks that read `ranges`, (start, end) offsets by (topic, partition), in the order of `ranges`.

    An end past what the isolation level sees is lowered to it. A range with nothing to return gives no task. A task has
    at most about `rows_per_task` rows (None: no limit); files are not split. Of an internal topic it has at most so
    many entries. Unless `by_segment`, a task names merged files, and not their segments, where `columns` let it.

    Raises:
        RetentionPassed: a start is below the partition's log start offset.
        ConfigurationError: a partition is not in the view, or a topic has no such column.
    """
    tasks: list[ReadTask] = []
    for (topic, partition), (start, end) in ranges.items():
        partition_view = view.partitions.get((topic, partition))
        if partition_view is None:
            raise not_in_view(view, topic, partition)
        if start < partition_view.log_start_offset:
            raise _retention_passed(partition_view, start)
        output_schema(partition_view.topic.schema, columns)
        tasks.extend(computed_tasks(uri, partition_view, start, end, columns, rows_per_task))
        whole = _whole_range(
            objects, uri, partition_view, start, end, isolation=isolation, columns=columns, by_segment=by_segment
        )
        if whole is not None:
            tasks.extend(_split(whole, rows_per_task))
    return tasks


def rows_at_most(view: ReadView, ranges: Mapping[TopicPartitionKey, tuple[int, int]]) -> int:
    """Return about how many rows `ranges` hold: their offsets, or the entries of an internal topic."""
    arguments.instance("view", view, ReadView)
    return sum(view.partitions[key].rows_at_most(*bounds) for key, bounds in checked_ranges(view, ranges).items())


def ranges_within(
    view: ReadView, ranges: Mapping[TopicPartitionKey, tuple[int, int]], rows_max: int
) -> dict[TopicPartitionKey, tuple[int, int]]:
    """Return the beginnings of `ranges` that hold at most about `rows_max` rows: offsets are counted, not records.

    The limit is shared out in proportion to what each partition has, as Kafka's connector does. Of an internal topic a
    range has at most so many entries, which are whole.
    """
    arguments.instance("view", view, ReadView)
    rows_max = arguments.integer("rows_max", rows_max, 1)
    checked = checked_ranges(view, ranges)
    all_rows = sum(view.partitions[key].shared_rows(*bounds) for key, bounds in checked.items())
    return {
        key: (start, view.partitions[key].end_within(start, end, rows_max, all_rows))
        for key, (start, end) in checked.items()
    }


def by_partition(name: str, given: object) -> dict[TopicPartitionKey, Any]:
    """Return what a caller passes as the argument `name`: a mapping by (topic, partition).

    Raises:
        TypeError: it is not a mapping, or a key is not such a pair.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} is {arguments.described(given)}: expected a dict by (topic, partition)")
    checked: dict[TopicPartitionKey, Any] = {}
    for key, value in given.items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise TypeError(f"a key of {name} is {arguments.described(key)}: expected (topic, partition)")
        topic = arguments.text(f"the topic of a key of {name}", key[0])
        checked[topic, arguments.integer(f"the partition of a key of {name}", key[1], 0)] = value
    return checked


def checked_ranges(view: ReadView, ranges: object) -> dict[TopicPartitionKey, tuple[int, int]]:
    """Return the ranges of offsets that a caller passes as `ranges`.

    Raises:
        TypeError: it is not a dict of (start, end) by (topic, partition).
        ConfigurationError: a partition is not in the view, or an offset is below 0.
    """
    checked = {}
    for key, given in by_partition("ranges", ranges).items():
        if key not in view.partitions:
            raise ConfigurationError(f"ranges has {key}: expected partitions of the view")
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise TypeError(f"ranges[{key}] is {arguments.described(given)}: expected (start offset, end offset)")
        start, end = (arguments.integer(f"an offset of ranges[{key}]", offset, 0) for offset in given)
        checked[key] = (start, end)
    return checked


def computed_tasks(
    uri: str, view: PartitionView, start: int, end: int, columns: Sequence[str] | None, entries_per_task: int | None
) -> Iterator[ReadTask]:
    """Yield the tasks whose rows no segment holds: each replays its entries from the nearest checkpoint before them."""
    for first, last in view.computed_ranges(start, end, entries_per_task):
        yield task_of(uri, view, first, last, (), (), columns)


def not_in_view(view: ReadView, topic: str, partition: int) -> ConfigurationError:
    """Return the error for a partition that a caller names and `view` does not have."""
    if topic not in view.topics:
        reason = f"topic {topic!r} is not in the read view{did_you_mean(topic, view.topics)}"
    else:
        count = view.topics[topic].partition_count
        reason = f"partition {partition} of topic {topic!r} is not in the read view: it has partitions 0 to {count - 1}"
    return ConfigurationError(reason, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _retention_passed(view: PartitionView, start: int) -> RetentionPassed:
    return RetentionPassed(
        f"offset {start} of partition {view.partition} of topic {view.topic.name!r} is below its log start offset "
        f"{view.log_start_offset}: those records are deleted; start at {view.log_start_offset} or later"
    )


def _whole_range(
    objects: ObjectStore,
    uri: str,
    view: PartitionView,
    start: int,
    end: int,
    *,
    isolation: Isolation,
    columns: Sequence[str] | None,
    by_segment: bool,
) -> ReadTask | None:
    """Return one task for the whole range, with only what it needs; None if there is nothing to return."""
    end = min(end, end_of(view, isolation))
    if start >= end:
        return None
    by_segment = by_segment or needs_segments(view, columns)
    segments: Sequence[SegmentRef] = segments_between(objects, view, start, end, by_segment=by_segment)
    if not segments:
        return None
    aborted: tuple[AbortedTransaction, ...] = ()
    if isolation == "read_committed" and (aborted := aborted_between(objects, view, start, end)):
        ranges = AbortedRanges(aborted)
        segments = [segment for segment in segments if ranges.kept(segment, start, end)]
        if not segments:
            return None
    return task_of(uri, view, start, end, segments, aborted, columns)


def task_of(
    uri: str,
    view: PartitionView,
    start: int,
    end: int,
    segments: Sequence[SegmentRef],
    aborted: tuple[AbortedTransaction, ...],
    columns: Sequence[str] | None,
) -> ReadTask:
    """Return a task that reads `segments`, from offset `start` to `end`, without what `aborted` leaves out."""
    return ReadTask(
        store_uri=uri,
        topic=view.topic.name,
        topic_id=view.topic.topic_id,
        partition=view.partition,
        start_offset=start,
        end_offset=end,
        segments=tuple(segments),
        aborted=aborted,
        schema=view.topic.schema,
        columns=None if columns is None else tuple(columns),
        timestamp_type=timestamp_type(view),
        view_entry=view.entry,
    )


def needs_segments(view: PartitionView, columns: Sequence[str] | None) -> bool:
    """Return whether a read of `columns` needs a partition's segments, and not only the files that hold their records.

    So do columns that only the log says, and offsets that are read without what files store: the log has them all.
    """
    topic, kind = view.topic, timestamp_type(view)
    asked = set(output_schema(topic.schema, columns).names)
    stored = asked.intersection(stored_schema(topic.schema).names)
    if kind == LOG_APPEND_TIME and reserved_name(TIMESTAMP, topic.schema) in asked:
        return True
    if asked.intersection(metadata_names(topic.schema)):
        return True
    return not stored and reserved_name(OFFSET, topic.schema) in asked


def by_file(segments: Iterable[SegmentRef]) -> list[list[SegmentRef]]:
    """Return `segments` in their order, each run of those in one file together: a file is fetched and decoded once."""
    return [list(file) for _, file in groupby(segments, attrgetter("name"))]


class _Group(NamedTuple):
    """Consecutive segments that one task reads."""

    start_offset: int
    segments: list[SegmentRef]


def _split(whole: ReadTask, rows_per_task: int | None) -> Iterator[ReadTask]:
    if rows_per_task is None and not whole.aborted:
        yield whole
        return
    groups: list[_Group] = []
    rows = 0
    for segments in by_file(whole.segments):
        start = max(segments[0].base_offset, whole.start_offset)
        count = sum(segment.rows_between(whole.start_offset, whole.end_offset) for segment in segments)
        if groups and (rows_per_task is None or rows + count <= rows_per_task):
            groups[-1].segments.extend(segments)
            rows += count
        else:
            groups.append(_Group(start if groups else whole.start_offset, segments))
            rows = count
    ranges = AbortedRanges(whole.aborted)
    ends = [group.start_offset for group in groups[1:]] + [whole.end_offset]
    for group, end in zip(groups, ends, strict=True):
        yield replace(
            whole,
            start_offset=group.start_offset,
            end_offset=end,
            segments=tuple(group.segments),
            aborted=_touching(ranges, group, end),
        )


def _touching(ranges: AbortedRanges, group: _Group, end: int) -> tuple[AbortedTransaction, ...]:
    """Return the aborted ranges that leave rows out of the group's segments: a task carries no others."""
    touching: dict[AbortedTransaction, None] = {}
    for segment in group.segments:
        start = max(group.start_offset, segment.base_offset)
        touching.update(dict.fromkeys(ranges.overlapping(segment, start, min(end, segment.end_offset))))
    return tuple(touching)
