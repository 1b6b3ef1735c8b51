"""Where a read starts and ends: what options say, as one offset for every partition of a read view; and limits.

As in Spark's Kafka source, a timestamp for all partitions comes before timestamps by partition, and these before
offsets. Options that name partitions name all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from pyspark_txnlog.options.groups import GroupStart, committed_start
from pyspark_txnlog.options.offsets import (
    COMMITTED,
    EARLIEST,
    LATEST,
    ByPartition,
    Offsets,
    partition_exists,
)
from sparktxn import ConfigurationError
from sparktxn.errors import did_you_mean
from sparktxn.store.options import SystemClock, Time, TimeAgo, TopicPartitionKey, absolute_ms

if TYPE_CHECKING:
    from sparktxn import ReadView, Store
    from sparktxn.store.options import Clock
    from sparktxn.store.reading import Isolation, Order


_PARTITIONS_SHOWN_MAX: Final = 10

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}

Unmatched = Literal["error", "latest"]


class Bound(Struct, frozen=True, kw_only=True):
    """One end of a read. `name` is the option that gives it: offsets, a time for all partitions, or times for each.

    `unmatched` says what happens where no record has the time or a later one. `group` is set for a start at the offsets
    that a consumer group has committed.
    """

    name: str
    offsets: Offsets | None = None
    time: Time | None = None
    times: ByPartition | None = None
    unmatched: Unmatched = "latest"
    group: GroupStart | None = None


def bound_of(end: Literal["starting", "ending"], values: Mapping[str, Any], default: str) -> Bound:
    """Return the bound that the option with the highest precedence gives.

    A start without a record from its time on is an error unless `startingOffsetsByTimestampStrategy` is latest, or the
    time is relative. An end without one is the latest offset, always.
    """
    unmatched: Unmatched = values["startingOffsetsByTimestampStrategy"] if end == "starting" else "latest"
    timestamp, timestamps, offsets = f"{end}Timestamp", f"{end}OffsetsByTimestamp", f"{end}Offsets"
    given = values.get(timestamp)
    if given is not None:
        return _at(timestamp, given, unmatched)
    if timestamps in values:
        return Bound(name=timestamps, times=values[timestamps], unmatched=unmatched)
    found = values.get(offsets, default)
    if found == COMMITTED:
        return Bound(name=offsets, group=_group_start(values))
    return _at(offsets, found, unmatched) if isinstance(found, TimeAgo) else Bound(name=offsets, offsets=found)


def _group_start(values: Mapping[str, Any]) -> GroupStart:
    if "kafka.group.id" not in values:
        raise ConfigurationError(
            "option 'startingOffsets' is committed: expected the option kafka.group.id, which names the group whose "
            "committed offsets are meant"
        )
    return GroupStart(group_id=values["kafka.group.id"], reset=values["autoOffsetReset"])


def _at(name: str, time: Time, unmatched: Unmatched) -> Bound:
    return Bound(name=name, time=time, unmatched="latest" if isinstance(time, TimeAgo) else unmatched)


def named_partitions(bound: Bound) -> ByPartition | None:
    """Return what a bound says of single partitions; None if it is for all of them."""
    return bound.times if bound.times is not None else bound.offsets if isinstance(bound.offsets, dict) else None


def resolved(
    bound: Bound,
    store: Store,
    view: ReadView,
    partitions: Sequence[TopicPartitionKey],
    *,
    latest: Mapping[TopicPartitionKey, int],
    order: Order,
    isolation: Isolation,
    now_ms: int,
) -> dict[TopicPartitionKey, int]:
    """Return an offset for each of `partitions`.

    `latest` is where each one ends, `now_ms` what relative times refer to. An offset that a time gives may be above it.

    Raises:
        ConfigurationError: the option does not name exactly the partitions that are read. Or it gives an offset past
            the end, or a time after which there is no record.
    """
    named = named_partitions(bound)
    if named is not None:
        _check_named(bound.name, named, view, partitions)
    if bound.group is not None:
        return committed_start(store, view, partitions, bound.group, latest).offsets
    if bound.offsets is not None:
        return {partition: _explicit(bound.name, bound.offsets, view, partition, latest) for partition in partitions}
    offsets = {}
    for topic, number in partitions:
        time_ms = bound.times[topic][number] if bound.times is not None else absolute_ms(bound.time or 0, now_ms)
        part = view.partitions[topic, number]
        found = store.offset_for_time(part, time_ms, order=order, isolation=isolation)
        if found is None and bound.unmatched == "error":
            raise ConfigurationError(
                f"option {bound.name!r}: partition {number} of topic {topic!r} has no record at or after timestamp "
                f"{time_ms}. To start with the next record, set startingOffsetsByTimestampStrategy to latest"
            )
        offsets[topic, number] = latest[topic, number] if found is None else found
    return offsets


def _check_named(name: str, named: ByPartition, view: ReadView, partitions: Sequence[TopicPartitionKey]) -> None:
    """Raise unless the option names exactly the partitions that are read."""
    read = set(partitions)
    for topic, numbers in named.items():
        if topic not in view.topics:
            raise ConfigurationError(
                f"option {name!r} names topic {topic!r}, which is not read{did_you_mean(topic, view.topics)}"
            )
        for number in numbers:
            partition_exists(name, view, topic, number)
            if (topic, number) not in read:
                raise ConfigurationError(
                    f"option {name!r} names partition {number} of topic {topic!r}, which is not read"
                )
    missing = [partition for partition in partitions if partition[1] not in named.get(partition[0], {})]
    if missing:
        shown = ", ".join(f"{topic}-{number}" for topic, number in missing[:_PARTITIONS_SHOWN_MAX])
        more = f" and {len(missing) - _PARTITIONS_SHOWN_MAX} more" if len(missing) > _PARTITIONS_SHOWN_MAX else ""
        hint = " (-2 is earliest, -1 is latest)" if name in ("startingOffsets", "endingOffsets") else ""
        raise ConfigurationError(
            f"option {name!r} does not name {shown}{more}: expected all partitions that are read{hint}"
        )


def _explicit(
    name: str, offsets: Offsets, view: ReadView, partition: TopicPartitionKey, latest: Mapping[TopicPartitionKey, int]
) -> int:
    topic, number = partition
    asked = _WORDS[offsets] if isinstance(offsets, str) else offsets[topic][number]
    if asked == EARLIEST:
        return view.partitions[partition].log_start_offset
    if asked == LATEST:
        return latest[partition]
    if asked > latest[partition]:
        raise ConfigurationError(
            f"option {name!r} has offset {asked} for partition {number} of topic {topic!r}: the last that can be "
            f"read is {latest[partition]}"
        )
    return asked


def check_ranges(
    start: Bound, starts: Mapping[TopicPartitionKey, int], end: Bound, ends: Mapping[TopicPartitionKey, int]
) -> None:
    """Raise if a partition starts after its end.

    Raises:
        ConfigurationError: names the options, the partition and both offsets.
    """
    for (topic, number), offset in starts.items():
        if offset > ends[topic, number]:
            raise ConfigurationError(
                f"the start offset {offset} (option {start.name!r}) is greater than the end offset "
                f"{ends[topic, number]} (option {end.name!r}) for partition {number} of topic {topic!r}"
            )


# Time travel: the entry, the time or the transaction as of which a batch reads the store.

_OPTIONS: Final = ("asOfEntry", "asOfTimestamp", "asOfTransaction")
AS_OF_OPTIONS: Final = frozenset(name.lower() for name in _OPTIONS)
"""The options in lower case, as Spark passes them on."""


class AsOfPoint(Struct, frozen=True):
    """An entry, or a time in milliseconds since 1970; with neither, now."""

    entry: int | None = None
    timestamp_ms: int | None = None


class AsOf(Struct, frozen=True):
    """What a batch reads: the store as of an entry, a time or a transaction; at most one is not None."""

    entry: int | None = None
    time: Time | None = None
    transaction: str | None = None

    def resolved(self, store: Store) -> AsOfPoint:
        """Return the entry or time that is meant; a transaction means the entry that committed it.

        Raises:
            ConfigurationError: the log has no such committed transaction.
        """
        if self.transaction is not None:
            return AsOfPoint(entry=store.transaction_entry(self.transaction))
        if self.time is not None:
            return AsOfPoint(timestamp_ms=absolute_ms(self.time, SystemClock().wall_ms()))
        return AsOfPoint(entry=self.entry)


def as_of_options(values: Mapping[str, Any]) -> AsOf:
    """Return what the parsed options `values` say.

    Raises:
        ConfigurationError: more than one of them is given.
    """
    given = [name for name in _OPTIONS if name in values]
    if len(given) > 1:
        raise ConfigurationError(f"options {' and '.join(map(repr, given))} exclude each other: give one")
    return AsOf(*(values.get(name) for name in _OPTIONS))


# How much a micro-batch takes, and whether it waits for more.

Ranges = Mapping["TopicPartitionKey", tuple[int, int]]


class TriggerLimits(Struct, frozen=True, kw_only=True):
    """What the options say of a micro-batch: at least, and at most."""

    rows_min: int | None
    rows_max: int | None
    bytes_max: int | None
    delay_ms_max: int

    def default_limit(self) -> ReadLimit:
        """Return what Spark hands back for each micro-batch; for ``once`` it asks for all that is available instead."""
        if self.rows_max is not None:
            return ReadMaxRows(self.rows_max)
        if self.bytes_max is not None:
            return ReadMaxBytes(self.bytes_max)
        if self.rows_min is not None:
            return ReadMinRows(self.rows_min)
        return ReadAllAvailable()


class Pace:
    """When the last micro-batch was let through: the first one is, and then one each `delay_ms_max`, however small.

    As in Spark's Kafka source, this counts also where there is nothing to read.
    """

    def __init__(self, limits: TriggerLimits, clock: Clock | None = None) -> None:
        self._limits = limits
        self._clock = clock or SystemClock()
        self._passed_s: float | None = None

    def waits(self, rows: Callable[[], int]) -> bool:
        """Return whether a micro-batch of so many records as `rows` returns has too few, and may wait for more."""
        if self._limits.rows_min is None:
            return False
        now_s = self._clock.monotonic_s()
        in_time = self._passed_s is not None and now_s - self._passed_s < self._limits.delay_ms_max / 1000
        if in_time and rows() < self._limits.rows_min:
            return True
        self._passed_s = now_s
        return False


def rows_within(store: Store, view: ReadView, ranges: Ranges, bytes_max: int) -> int | None:
    """Return how many records the oldest entries of `ranges` have whose segments stay within `bytes_max`.

    At least 1, so that the oldest transaction is read however large it is; None if all of them do.
    """
    rows_by_entry: dict[int, int] = {}
    bytes_by_entry: dict[int, int] = {}
    for task in store.plan(view, dict(ranges), isolation="read_uncommitted", by_segment=True, rows="all"):
        for segment in task.segments:
            rows = segment.rows_between(task.start_offset, task.end_offset)
            rows_by_entry[segment.entry] = rows_by_entry.get(segment.entry, 0) + rows
            bytes_by_entry[segment.entry] = bytes_by_entry.get(segment.entry, 0) + segment.size_bytes
    rows = size_bytes = 0
    for entry in sorted(rows_by_entry):
        size_bytes += bytes_by_entry[entry]
        if size_bytes > bytes_max:
            return max(1, rows)
        rows += rows_by_entry[entry]
    return None
