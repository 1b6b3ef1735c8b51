"""Where a read starts and ends: what options say, resolved to one offset for every partition of a read view.

As in Spark's Kafka source, a timestamp for all partitions comes before timestamps by partition, and these before
offsets. Options that name partitions name all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

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
from sparktxn.config.times import Time, TimeAgo, absolute_ms
from sparktxn.errors import did_you_mean
from sparktxn.values.fieldtypes import TopicPartitionKey

if TYPE_CHECKING:
    from sparktxn import ReadView, Store
    from sparktxn.scan.plan import Isolation, Order

__all__ = ["Bound", "bound_of", "check_ranges", "named_partitions", "resolved"]

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
