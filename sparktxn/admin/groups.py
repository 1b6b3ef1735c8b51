"""Consumer groups: their members, their committed offsets, how far behind they are; and resetting offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct

from sparktxn._engine.format.commands import Command, DeleteGroup, LeaveGroup, OffsetCommit, OffsetToCommit
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.log.write.storeclock import store_now_ms
from sparktxn._engine.state.transactions.partitions import last_stable_offset
from sparktxn._foundation.values.fieldtypes import TopicIdPartition, TopicPartitionKey
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import GroupState, HeldPartition, MemberState
from sparktxn._kafka.admin import node_of
from sparktxn._kafka.clustermetadata import BrokerMetadata, GroupMember, GroupMetadata
from sparktxn._kafka.groups import (
    ConsumerGroupDescription,
    ConsumerGroupLag,
    ConsumerGroupListing,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    MemberAssignment,
    MemberDescription,
)
from sparktxn._kafka.message import TopicPartition, topic_partitions
from sparktxn._kafka.unsupported import GROUP_OPERATIONS
from sparktxn._rows.scan.offsets import offset_for_time
from sparktxn._rows.scan.plan import end_of
from sparktxn.admin.topics import existing_topic, refusal
from sparktxn.errors import ConfigurationError, ErrorCode, KafkaError
from sparktxn.store.groupoffsets import answered_offset
from sparktxn.store.memberexpiry import expire_overdue, group_of_members, is_members_name, members_name, overdue_members

Overdue = Collection[tuple[str, str]]
"""Members that count as dead though the log has them yet: (group id, member id)."""


def list_groups(log: Log, overdue: Overdue = ()) -> list[ConsumerGroupListing]:
    """Return all groups as last known, by group id, as if they did not have the members in `overdue`."""
    found = []
    for group_id in sorted({group_of_members(name) for name in log.group_ids()}):
        group, members = _with_members(log, group_id, overdue)
        if group is None:
            found.append(ConsumerGroupListing(group_id))
        else:
            found.append(ConsumerGroupListing(group_id, False, _state_of(group, members), _type_of(members)))
    return found


def _with_members(log: Log, group_id: str, overdue: Overdue) -> tuple[GroupState | None, list[MemberState]]:
    """Return a group with its members; None if it has none, of either kind (`store/memberexpiry.py`)."""
    for name in (group_id, members_name(group_id)):
        group = log.group(name)
        members = [] if group is None else log.group_members(name)
        members = [member for member in members if (group_id, member.member_id) not in overdue]
        if members:
            return group, members
    return None, []


def describe_group(
    log: Log, uri: str, group_id: str, *, operations: bool, overdue: Overdue = ()
) -> ConsumerGroupDescription:
    """Return a group as last known, without the members in `overdue`.

    A group that has neither members nor offsets is DEAD. With `operations` its description has what a program may do
    with it.
    """
    authorized = list(GROUP_OPERATIONS) if operations else None
    node = node_of(uri)
    group, members = _with_members(log, group_id, overdue)
    if group is None:
        has_offsets = log.group_offsets(group_id) or log.group_pending_offsets(group_id)
        state = ConsumerGroupState.EMPTY if has_offsets else ConsumerGroupState.DEAD
        return ConsumerGroupDescription(group_id, state, node, authorized_operations=authorized)
    names = log.topic_names()
    return ConsumerGroupDescription(
        group_id,
        _state_of(group, members),
        node,
        is_simple_consumer_group=False,
        members=[_described(member, names) for member in members],
        partition_assignor=group.assignor,
        authorized_operations=authorized,
        type=_type_of(members),
        group_epoch=group.epoch,
    )


def member_row(member: MemberDescription) -> dict[str, Any]:
    """Return a member as the command and the console show it."""
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "is_away": member.is_away,
        "assignment": [f"{one.topic}-{one.partition}" for one in member.assignment.topic_partitions],
    }


def group_metadata(log: Log, uri: str, asked: str | None, overdue: Overdue = ()) -> list[GroupMetadata]:
    """Return all groups as last known, or the one that is asked for, in the shape of `AdminClient.list_groups`."""
    found = []
    for listed in list_groups(log, overdue):
        if asked is not None and listed.group_id != asked:
            continue
        group = describe_group(log, uri, listed.group_id, operations=False, overdue=overdue)
        found.append(
            GroupMetadata(
                BrokerMetadata(0, uri, 0),
                listed.group_id,
                None,
                group.state.name.capitalize(),
                "consumer",
                group.partition_assignor,
                [GroupMember(member.member_id, member.client_id, member.host) for member in group.members],
            )
        )
    return found


def _state_of(group: GroupState, members: Iterable[MemberState]) -> ConsumerGroupState:
    settled = all(
        member.member_epoch == group.epoch and len(member.assigned) == len(member.target) for member in members
    )
    return ConsumerGroupState.STABLE if settled else ConsumerGroupState.RECONCILING


def _type_of(members: Iterable[MemberState]) -> ConsumerGroupType:
    return ConsumerGroupType.CLASSIC if all(member.classic for member in members) else ConsumerGroupType.CONSUMER


def _described(member: MemberState, names: dict[int, str]) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.client_id,
        "" if is_members_name(member.group_id) else member.host,
        MemberAssignment(_partitions(_places((*member.assigned, *member.revoking)), names)),
        member.instance_id or None,
        MemberAssignment(_partitions(member.target, names)),
        member.member_epoch,
        member.left,
    )


def _places(held: Iterable[HeldPartition]) -> list[TopicIdPartition]:
    return [(one.topic_id, one.partition) for one in held]


def _partitions(places: Iterable[TopicIdPartition], names: dict[int, str]) -> list[TopicPartition]:
    return sorted(TopicPartition(names[topic_id], number) for topic_id, number in places if topic_id in names)


def group_lag(log: Log, overdue: Overdue, group_id: str, *, committed: bool) -> list[ConsumerGroupLag]:
    """Return how far a group is behind as last known, by topic and partition, up to the last stable offset.

    Without `committed` it is up to the log end.
    """
    names = log.topic_names()
    offsets = {
        (found.topic_id, found.partition): found.offset
        for found in log.group_offsets(group_id)
        if answered_offset(found).offset >= 0
    }
    holders = {
        place: member.member_id
        for member in _with_members(log, group_id, overdue)[1]
        for place in _places((*member.assigned, *member.revoking))
    }
    found = []
    for place in offsets.keys() | holders.keys():
        end = _end_offset(log, *place, committed=committed)
        if end is None or place[0] not in names:
            continue  # The topic was deleted.
        offset = offsets.get(place)
        lag = None if offset is None else max(0, end - offset)
        found.append(ConsumerGroupLag(names[place[0]], place[1], offset, end, lag, holders.get(place)))
    return sorted(found, key=lambda one: (one.topic, one.partition))


def _end_offset(log: Log, topic_id: int, partition: int, *, committed: bool) -> int | None:
    found = log.partition_state(topic_id, partition)
    if found is None:
        return None
    return last_stable_offset(found) if committed else found.log_end_offset


def remove_members(log: Log, group_id: str, instance_ids: Sequence[str] | None) -> list[str]:
    """Remove the members with these instance ids, or all of them (None), in one entry; return their member ids.

    Raises:
        KafkaException: ``UNKNOWN_MEMBER_ID``: no member has an instance id.
    """
    log.refresh()
    members = log.group_members(group_id)
    if instance_ids is not None:
        known = {member.instance_id: member for member in members if member.instance_id}
        unknown = [instance_id for instance_id in instance_ids if instance_id not in known]
        if unknown:
            raise refusal(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {group_id!r} has no member with group.instance.id {unknown[0]!r}: expected one of "
                f"{sorted(known)}",
            )
        members = [known[instance_id] for instance_id in dict.fromkeys(instance_ids)]
    commands: list[Command] = [LeaveGroup(log.ids.token(), group_id, member.member_id) for member in members]
    if commands:
        log.submit(commands)
    return [member.member_id for member in members]


def group_offsets(
    log: Log, asked: ConsumerGroupTopicPartitions, *, require_stable: bool
) -> ConsumerGroupTopicPartitions:
    """Return a group's committed offsets, as last known.

    With `require_stable`, a partition whose offset is in an open transaction gets the error ``UNSTABLE_OFFSET_COMMIT``.
    """
    group_id = asked.group_id
    if asked.topic_partitions is not None:
        named = topic_partitions("topic_partitions", asked.topic_partitions)
        found = [_offset_of(log, group_id, partition, require_stable) for partition in named]
        return ConsumerGroupTopicPartitions(group_id, found)
    topic_names = log.topic_names()
    partitions = [
        TopicPartition(topic_names[found.topic_id], found.partition)
        for found in log.group_offsets(group_id)
        if found.topic_id in topic_names
    ]
    answers = [_offset_of(log, group_id, partition, require_stable) for partition in sorted(partitions)]
    return ConsumerGroupTopicPartitions(group_id, answers)


def _offset_of(log: Log, group_id: str, partition: TopicPartition, require_stable: bool) -> TopicPartition:
    answer = TopicPartition(partition.topic, partition.partition)
    topic = log.topic(partition.topic)
    if topic is None or not 0 <= partition.partition < topic.partition_count:
        answer.error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} does not exist")
        return answer
    if require_stable and log.pending_offsets(group_id, topic.topic_id, partition.partition):
        reason = f"an open transaction holds group {group_id!r}'s offset for {partition}"
        answer.error = KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT, reason, retriable=True)
        return answer
    found = log.committed_offset(group_id, topic.topic_id, partition.partition)
    if found is not None:
        offset, leader_epoch = answered_offset(found)
        answer.offset, answer.metadata = offset, found.metadata
        answer.leader_epoch = leader_epoch if leader_epoch >= 0 else None
    return answer


def alter_group_offsets(log: Log, wanted: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
    """Set a group's offsets, all or none.

    Raises:
        KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``; ``OFFSET_OUT_OF_RANGE``: an offset is below 0;
            ``UNKNOWN_MEMBER_ID``: the group has members.
    """
    if not wanted.topic_partitions:
        raise refusal(ErrorCode.INVALID_REQUEST, f"no offsets are given for group {wanted.group_id!r}")
    partitions = topic_partitions("topic_partitions", wanted.topic_partitions)
    log.refresh()
    offsets = []
    for partition in partitions:
        topic = existing_topic(log, partition.topic)
        leader_epoch = -1 if partition.leader_epoch is None else partition.leader_epoch
        where = (topic.topic_id, partition.partition)
        offsets.append(OffsetToCommit(*where, partition.offset, partition.metadata, leader_epoch))
    log.submit([OffsetCommit(log.ids.token(), wanted.group_id, tuple(offsets))])
    return ConsumerGroupTopicPartitions(wanted.group_id, partitions)


def check_without_members(group_id: str, member_count: int) -> None:
    """Refuse a change of a group that has members.

    Raises:
        KafkaException: ``NON_EMPTY_GROUP``.
    """
    if member_count:
        raise refusal(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has {counted(member_count, 'member')}")


def delete_group_offsets(log: Log, wanted: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
    """Forget a group's offsets for some partitions, also those that wait for the end of a transaction.

    Raises:
        KafkaException: ``GROUP_ID_NOT_FOUND``; ``UNKNOWN_TOPIC_OR_PARTITION``; ``GROUP_SUBSCRIBED_TO_TOPIC``: a member
            subscribes to the topic; ``NON_EMPTY_GROUP``: the group has members that do not.
    """
    group_id = wanted.group_id
    if not wanted.topic_partitions:
        raise refusal(ErrorCode.INVALID_REQUEST, f"no partitions are given for group {group_id!r}")
    partitions = topic_partitions("topic_partitions", wanted.topic_partitions)
    log.refresh()
    subscribed = {name for member in log.group_members(group_id) for name in member.topics}
    places = set()
    for partition in partitions:
        if partition.topic in subscribed:
            raise refusal(
                ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                f"a member of group {group_id!r} subscribes to topic {partition.topic!r}: close the consumer first",
            )
        places.add((existing_topic(log, partition.topic).topic_id, partition.partition))
    _forget(log, group_id, places)
    return ConsumerGroupTopicPartitions(group_id, partitions)


def delete_group(log: Log, group_id: str) -> None:
    """Forget a group: its committed offsets, and those that wait for the end of a transaction (K109).

    Offsets that are committed while this runs make the group anew.

    Raises:
        KafkaException: ``GROUP_ID_NOT_FOUND``; ``INVALID_REQUEST``: the id is empty; ``NON_EMPTY_GROUP``: the group has
            members.
    """
    if not group_id:
        raise refusal(ErrorCode.INVALID_REQUEST, "the group id is empty")
    log.refresh()
    _forget(log, group_id, None)


def _forget(log: Log, group_id: str, places: set[TopicIdPartition] | None) -> None:
    """Forget the group's offsets for `places`, or all of them (None); a group without members and offsets is none."""
    offsets = log.group_offsets(group_id)
    pending = [(known, one) for known in log.group_pending_offsets(group_id) for one in known.offsets]
    if not offsets and not pending and log.group(group_id) is None:
        raise refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} has no members and has committed no offsets")
    command = DeleteGroup(
        log.ids.token(),
        group_id,
        tuple(
            (known.topic_id, known.partition, known.entry)
            for known in offsets
            if places is None or (known.topic_id, known.partition) in places
        ),
        tuple(
            (known.topic_id, known.partition, one.producer_id, one.entry)
            for known, one in pending
            if places is None or (known.topic_id, known.partition) in places
        ),
    )
    log.submit([command])


# Moving the offsets of a group without members: what would move, and moving exactly that.

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
    places = [place for text in reset.topics for place in _reset_places(log, text)] if reset.topics else sorted(current)
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


def _reset_places(log: Log, text: str) -> list[TopicPartitionKey]:
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
