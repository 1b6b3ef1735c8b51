"""Moving the offsets of a group without members: what would move, and moving exactly that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from sparktxn.admin.groups import alter_group_offsets, check_without_members
from sparktxn.admin.topics import existing_topic, refusal
from sparktxn.errors import ConfigurationError, ErrorCode
from sparktxn.kafka.groups import ConsumerGroupTopicPartitions
from sparktxn.kafka.message import TopicPartition
from sparktxn.log.log import Log
from sparktxn.log.views.readview import PartitionView, ReadView
from sparktxn.log.write.storeclock import store_now_ms
from sparktxn.scan.offsets import offset_for_time
from sparktxn.scan.plan import end_of
from sparktxn.store.memberexpiry import expire_overdue, overdue_members
from sparktxn.values.fieldtypes import TopicPartitionKey

__all__ = ["RESET_TARGETS", "OffsetMove", "OffsetReset", "ResetTarget", "apply_reset", "planned_reset"]

ResetTarget = Literal["earliest", "latest", "offset", "shift", "time"]
RESET_TARGETS: Final[tuple[ResetTarget, ...]] = ("earliest", "latest", "offset", "shift", "time")


class OffsetReset(Struct, frozen=True):
    """Which offsets of a group are to move, and where to.

    Args:
        group_id: the group.
        topics: each is ``TOPIC``, or ``TOPIC:0,2`` for some partitions; none: all that the group has offsets for.
        target: the log start, the last stable offset, the offset `value`, by `value` offsets, or the first record that
            is not older than `value` in milliseconds.
        value: what the last three of these take.
    """

    group_id: str
    topics: tuple[str, ...]
    target: ResetTarget
    value: int = 0


class OffsetMove(Struct, frozen=True):
    """A partition's committed offset (None: there is none), and the one that it gets."""

    topic: str
    partition: int
    offset: int | None
    new_offset: int


def planned_reset(log: Log, reset: OffsetReset, view_of: Callable[[list[str]], ReadView]) -> list[OffsetMove]:
    """Return the moves; nothing is written. An offset outside of its partition becomes its start or its end.

    Members that are overdue by the store's clock do not count: `apply_reset` takes them out.

    Args:
        log: the log.
        reset: what is to move.
        view_of: returns a view that has some topics.

    Raises:
        KafkaException: ``NON_EMPTY_GROUP``; ``GROUP_ID_NOT_FOUND``: no topics are given, and the group has no offsets;
            ``UNKNOWN_TOPIC_OR_PARTITION``.
        ConfigurationError: a topic is malformed, or an offset that the group does not have is to be shifted.
    """
    log.refresh()
    _check_no_live_members(log, reset.group_id)
    names = log.topic_names()
    current = {
        (names[one.topic_id], one.partition): one.offset
        for one in log.group_offsets(reset.group_id)
        if one.topic_id in names
    }
    places = [place for text in reset.topics for place in _places(log, text)] if reset.topics else sorted(current)
    if not places:
        raise refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"group {reset.group_id!r} has no offsets")
    view = view_of(sorted({topic for topic, _ in places}))
    return [_move(log, reset, _partition(view, place), current) for place in dict.fromkeys(places)]


def apply_reset(log: Log, group_id: str, moves: Sequence[OffsetMove]) -> None:
    """Give the group the new offsets of `moves`, all or none.

    Raises:
        KafkaException: ``UNKNOWN_MEMBER_ID``: the group has members; ``UNKNOWN_TOPIC_OR_PARTITION``.
    """
    expire_overdue(log, [group_id])
    wanted = [TopicPartition(move.topic, move.partition, move.new_offset) for move in moves]
    alter_group_offsets(log, ConsumerGroupTopicPartitions(group_id, wanted))


def _check_no_live_members(log: Log, group_id: str) -> None:
    members = log.group_members(group_id)
    if members:
        now_ms = store_now_ms(log.objects, log.clock, log.ids)
        late = {one.member.member_id for one in overdue_members(log, group_id, now_ms)}
        members = [member for member in members if member.member_id not in late]
    check_without_members(group_id, len(members))


def _places(log: Log, text: str) -> list[TopicPartitionKey]:
    """Return the partitions that ``topic`` or ``topic:0,2`` names."""
    topic, colon, numbers = text.partition(":")
    count = existing_topic(log, topic).partition_count
    if not colon:
        return [(topic, number) for number in range(count)]
    named = numbers.split(",")
    if not all(number.isascii() and number.isdigit() and len(number) < 10 for number in named):
        raise ConfigurationError(f"{text!r} is malformed: expected TOPIC or TOPIC:0,1")
    wrong = [number for number in named if int(number) >= count]
    if wrong:
        raise ConfigurationError(f"topic {topic!r} has partitions 0 to {count - 1}, not {wrong[0]}")
    return [(topic, int(number)) for number in named]


def _partition(view: ReadView, place: TopicPartitionKey) -> PartitionView:
    found = view.partitions.get(place)
    if found is None:
        raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{place[0]}-{place[1]} was deleted meanwhile")
    return found


def _move(
    log: Log, reset: OffsetReset, partition: PartitionView, current: Mapping[TopicPartitionKey, int]
) -> OffsetMove:
    place = (partition.topic.name, partition.partition)
    start, end, now = partition.log_start_offset, end_of(partition, "read_committed"), current.get(place)
    wanted: int | None
    if reset.target == "shift":
        if now is None:
            reason = f"group {reset.group_id!r} has no offset for {place[0]}-{place[1]} that could be shifted"
            raise ConfigurationError(f"{reason}: choose an offset instead")
        wanted = now + reset.value
    elif reset.target == "time":
        wanted = offset_for_time(log.objects, partition, reset.value, "read_committed")
    else:
        wanted = {"earliest": start, "latest": end, "offset": reset.value}[reset.target]
    return OffsetMove(*place, now, end if wanted is None else min(max(wanted, start), end))
