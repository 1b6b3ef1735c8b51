"""What an administrator sees of groups with members, and may do to them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count
from typing import Any

import pytest

from sparktxn import IsolationLevel, Producer, TopicPartition
from sparktxn._engine.format.commands import (
    Command,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetToCommit,
    ReleasePartitions,
)
from sparktxn.admin import (
    AdminClient,
    ConsumerGroupLag,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    MemberAssignment,
    MemberDescription,
    NewTopic,
)
from sparktxn.errors import ErrorCode, KafkaException
from sparktxn.store import Store, read_table_task

_stores = count()
STABLE, RECONCILING = ConsumerGroupState.STABLE, ConsumerGroupState.RECONCILING
CLASSIC, CONSUMER = ConsumerGroupType.CLASSIC, ConsumerGroupType.CONSUMER


class Group:
    """A group whose members' commands a test sends itself, in a store with topic `t` of two partitions."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.admin = AdminClient({"bootstrap.servers": uri})
        for future in self.admin.create_topics([NewTopic("t", 2), NewTopic("other", 1)]).values():
            future.result(0)
        self.store = Store.open(uri)
        self.log = self.store.log

    def close(self) -> None:
        self.store.close()
        self.admin.close()

    def submit(self, *commands: Command) -> None:
        self.log.submit(commands)

    def join(self, member_id: str, *, classic: bool = False, instance_id: str = "") -> None:
        named = (classic, instance_id, f"client of {member_id}", "host")
        self.submit(JoinGroup(self.log.ids.token(), "g", member_id, ("t",), 60_000, 60_000, ("uniform",), *named))

    def epoch(self, member_id: str) -> int:
        member = self.log.member("g", member_id)
        assert member is not None
        return member.member_epoch

    def release(self, member_id: str) -> None:
        member = self.log.member("g", member_id)
        assert member is not None
        owed = tuple((held.topic_id, held.partition) for held in member.revoking)
        known = (member.member_epoch, member.changed_entry)
        self.submit(ReleasePartitions(self.log.ids.token(), "g", member_id, *known, owed))

    def commit(self, member_id: str, partition: int, offset: int) -> None:
        offsets = (OffsetToCommit(1, partition, offset),)
        self.submit(OffsetCommit(self.log.ids.token(), "g", offsets, self.epoch(member_id), member_id))


@pytest.fixture
def group() -> Iterator[Group]:
    group = Group(f"memory://admin-groups-{next(_stores)}")
    yield group
    group.close()


def only(answers: dict[Any, Future[Any]]) -> Any:
    (future,) = answers.values()
    return future.result(timeout=0)


def refused(answer: dict[Any, Future[Any]] | Future[Any]) -> int:
    with pytest.raises(KafkaException) as caught:
        only(answer) if isinstance(answer, dict) else answer.result(timeout=0)
    return caught.value.error.code()


def partitions(*numbers: int) -> MemberAssignment:
    return MemberAssignment([TopicPartition("t", number) for number in numbers])


@pytest.mark.kafka("G22")
def test_a_group_passes_its_states(group: Group) -> None:
    states = []

    def look() -> None:
        states.append(only(group.admin.describe_consumer_groups(["g"])).state)

    look()
    group.join("m1")
    look()
    group.join("m2")
    look()
    group.release("m1")
    look()
    group.commit("m1", 0, 1)
    for member_id in ("m1", "m2"):
        group.submit(LeaveGroup(group.log.ids.token(), "g", member_id))
    look()
    only(group.admin.delete_consumer_groups(["g"]))
    look()
    dead, empty = ConsumerGroupState.DEAD, ConsumerGroupState.EMPTY
    assert states == [dead, STABLE, RECONCILING, STABLE, empty, dead]


@pytest.mark.kafka("G22")
def test_members_are_described(group: Group) -> None:
    group.join("m1", instance_id="i")
    first = group.epoch("m1")
    group.join("m2")
    described = only(group.admin.describe_consumer_groups(["g"]))
    assert (described.is_simple_consumer_group, described.partition_assignor) == (False, "uniform")
    assert (described.type, described.group_epoch) == (CONSUMER, group.epoch("m2"))
    assert described.members == [
        MemberDescription("m1", "client of m1", "host", partitions(0, 1), "i", partitions(0), first),
        MemberDescription("m2", "client of m2", "host", partitions(), None, partitions(1), described.group_epoch),
    ]
    group.submit(LeaveGroup(group.log.ids.token(), "g", "m1", keeps_place=True))
    away, there = only(group.admin.describe_consumer_groups(["g"])).members
    assert (away.is_away, there.is_away) == (True, False)


def test_groups_are_listed_by_state_and_type(group: Group) -> None:
    group.join("m1", classic=True)
    empty = ConsumerGroupTopicPartitions("empty", [TopicPartition("t", 0, 1)])
    only(group.admin.alter_consumer_group_offsets([empty]))

    def listed(**filters: Any) -> list[tuple[str, bool, ConsumerGroupState, ConsumerGroupType]]:
        found = group.admin.list_consumer_groups(**filters).result(timeout=0).valid
        return [(one.group_id, one.is_simple_consumer_group, one.state, one.type) for one in found]

    without, with_member = ("empty", True, ConsumerGroupState.EMPTY, CLASSIC), ("g", False, STABLE, CLASSIC)
    assert listed() == [without, with_member]
    assert listed(states=[STABLE]) == [with_member]
    assert listed(states=[], types=[]) == listed()
    assert listed(states={ConsumerGroupState.EMPTY, RECONCILING}) == [without]
    assert listed(types=[CONSUMER]) == []
    group.join("m2")
    assert listed(types=[CONSUMER]) == [("g", False, RECONCILING, CONSUMER)]
    with pytest.raises(TypeError, match="states"):
        group.admin.list_consumer_groups(states=["STABLE"])  # type: ignore[list-item]


def test_offsets_of_a_group_with_members_are_its_members_alone(group: Group) -> None:
    group.join("m1")
    group.commit("m1", 0, 5)
    wanted = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 1)])
    other = ConsumerGroupTopicPartitions("g", [TopicPartition("other", 0)])
    assert refused(group.admin.alter_consumer_group_offsets([wanted])) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(group.admin.delete_consumer_groups(["g"])) == ErrorCode.NON_EMPTY_GROUP
    assert refused(group.admin.delete_consumer_group_offsets([wanted])) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert refused(group.admin.delete_consumer_group_offsets([other])) == ErrorCode.NON_EMPTY_GROUP
    assert group.admin.remove_members_from_consumer_group("g").result(0) == ["m1"]
    only(group.admin.alter_consumer_group_offsets([wanted]))


def test_single_offsets_are_deleted(group: Group) -> None:
    here, there = TopicPartition("t", 0, 1), TopicPartition("t", 1, 2)
    only(group.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("g", [here, there])]))
    wanted = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 1)])
    answer = only(group.admin.delete_consumer_group_offsets([wanted]))
    assert (answer.group_id, answer.topic_partitions) == ("g", [TopicPartition("t", 1)])
    (left,) = only(group.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])).topic_partitions
    assert left == here
    missing = ConsumerGroupTopicPartitions("missing", [here])
    assert refused(group.admin.delete_consumer_group_offsets([missing])) == ErrorCode.GROUP_ID_NOT_FOUND
    nothing = ConsumerGroupTopicPartitions("g", [])
    assert refused(group.admin.delete_consumer_group_offsets([nothing])) == ErrorCode.INVALID_REQUEST
    no_topic = ConsumerGroupTopicPartitions("g", [TopicPartition("missing", 0)])
    assert refused(group.admin.delete_consumer_group_offsets([no_topic])) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_members_are_removed_by_their_instance_ids(group: Group) -> None:
    for number in range(3):
        group.join(f"m{number}", instance_id=f"i{number}")
    removed = group.admin.remove_members_from_consumer_group("g", ["i2", "i0", "i2"])
    assert removed.result(0) == ["m2", "m0"]
    unknown = group.admin.remove_members_from_consumer_group("g", ["i1", "i0"])
    assert refused(unknown) == ErrorCode.UNKNOWN_MEMBER_ID
    group.log.refresh()
    assert [member.member_id for member in group.log.group_members("g")] == ["m1"]
    assert group.admin.remove_members_from_consumer_group("missing").result(0) == []


def test_how_far_a_group_is_behind(group: Group) -> None:
    with Producer({"bootstrap.servers": group.uri, "transactional.id": "w"}) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("t", b"1", partition=0)
        producer.begin_transaction()
        producer.produce("t", b"2", partition=0)
        producer.flush()
        group.join("m1")
        group.commit("m1", 0, 1)
        group.submit(OffsetCommit("loose", "loose", (OffsetToCommit(-3, 0, 7), OffsetToCommit(1, 0, 0))))
        stable = [ConsumerGroupLag("t", 0, 1, 2, 1, "m1"), ConsumerGroupLag("t", 1, None, 0, None, "m1")]
        assert only(group.admin.describe_consumer_group_lag(["g"])) == stable
        to_the_end = group.admin.describe_consumer_group_lag(["g"], isolation_level=IsolationLevel.READ_UNCOMMITTED)
        assert only(to_the_end)[0] == ConsumerGroupLag("t", 0, 1, 3, 2, "m1")
        internal, ordinary = only(group.admin.describe_consumer_group_lag(["loose"]))
        assert (internal.topic, internal.end_offset, internal.member_id) == (
            "__consumer_offsets",
            (group.log.entry + 1) << 20,
            None,
        )
        assert ordinary == ConsumerGroupLag("t", 0, 0, 2, 2, None)
        producer.abort_transaction()
    for future in group.admin.delete_topics(["t"]).values():
        future.result(0)
    assert only(group.admin.describe_consumer_group_lag(["g"])) == []


def test_the_system_table_names_the_members(group: Group) -> None:
    group.join("m1", instance_id="i")
    group.join("m2")
    group.commit("m1", 0, 0)
    (task,) = group.store.plan_table("groups")
    rows = [row for batch in read_table_task(task, group.store.options) for row in batch.to_pylist()]
    columns = ("partition", "offset", "member_id", "group_instance_id", "client_id", "host", "member_epoch")
    epoch = group.epoch("m1")
    assert [tuple(row[column] for column in columns) for row in rows] == [
        (0, 0, "m1", "i", "client of m1", "host", epoch),
        (1, None, "m1", "i", "client of m1", "host", epoch),
    ]
