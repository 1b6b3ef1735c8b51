"""What administrators pass and get of consumer groups, in confluent-kafka's shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import ClassVar

from msgspec import Struct

from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.quantities import html_table
from sparktxn._kafka.admin import Node
from sparktxn._kafka.message import TopicPartition, topic_partitions
from sparktxn._kafka.unsupported import AclOperation


class ConsumerGroupState(Enum):
    """A group's state. STABLE: each member has what it is to have. RECONCILING: one is to give back or to get more.

    EMPTY: it has offsets and no members. DEAD: it has neither. A group here is never in another state.
    """

    UNKNOWN = 0
    UNKOWN = 0  # noqa: PIE796 - confluent-kafka's old spelling
    PREPARING_REBALANCING = 1
    COMPLETING_REBALANCING = 2
    STABLE = 3
    DEAD = 4
    EMPTY = 5
    RECONCILING = 7

    def __lt__(self, other: object) -> bool:
        return self.value < other.value if isinstance(other, ConsumerGroupState) else NotImplemented


class ConsumerGroupType(Enum):
    """Which of Kafka's protocols a group's members use (`group.protocol`); CLASSIC without members."""

    UNKNOWN = 0
    CONSUMER = 1
    CLASSIC = 2

    def __lt__(self, other: object) -> bool:
        return self.value < other.value if isinstance(other, ConsumerGroupType) else NotImplemented


class ConsumerGroupListing(Struct, frozen=True):
    """A group. One without members counts as simple: its offsets may come from consumers that use assign()."""

    group_id: str
    is_simple_consumer_group: bool = True
    state: ConsumerGroupState = ConsumerGroupState.EMPTY
    type: ConsumerGroupType = ConsumerGroupType.CLASSIC


class ListConsumerGroupsResult(Struct, frozen=True):
    """All groups."""

    valid: list[ConsumerGroupListing]
    errors: list[Exception]


class MemberAssignment(Struct, frozen=True):
    """Partitions of a member."""

    topic_partitions: list[TopicPartition] = []


class MemberDescription(Struct, frozen=True):
    """A member of a group: `assignment` is what it holds, with what it is to give back; `target_assignment` its goal.

    `is_away` is True for a static member that has closed and keeps its place.
    """

    member_id: str
    client_id: str
    host: str
    assignment: MemberAssignment
    group_instance_id: str | None = None
    target_assignment: MemberAssignment | None = None
    member_epoch: int = -1
    is_away: bool = False


class ConsumerGroupDescription(Struct, frozen=True):
    """A group in more words; `group_epoch` is -1 without members."""

    group_id: str
    state: ConsumerGroupState
    coordinator: Node
    is_simple_consumer_group: bool = True
    members: list[MemberDescription] = []
    partition_assignor: str = ""
    authorized_operations: list[AclOperation] | None = None
    type: ConsumerGroupType = ConsumerGroupType.CLASSIC
    group_epoch: int = -1

    def _repr_html_(self) -> str:
        rows = (
            (member.member_id, member.client_id, ", ".join(map(_place, member.assignment.topic_partitions)))
            for member in self.members
        )
        return html_table(f"group {self.group_id}: {self.state.name}", ("member", "client", "partitions"), rows)


class ConsumerGroupLag(Struct, frozen=True):
    """How far a group is behind in a partition.

    `offset` and `lag` are None where the group has committed nothing. `end_offset` is the last stable offset, or the
    log end if that was asked for. `member_id` is the member that holds the partition, None if none does.
    """

    topic: str
    partition: int
    offset: int | None
    end_offset: int
    lag: int | None
    member_id: str | None


def _place(partition: TopicPartition) -> str:
    return f"{partition.topic} [{partition.partition}]"


def _name(argument: str) -> Callable[[object], str]:
    return lambda value: arguments.identifier(argument, value, may_be_empty=True)


class ConsumerGroupTopicPartitions(arguments.Checked):
    """A group's offsets: to ask for (None: all), to set, or as they are."""

    _checks: ClassVar = {
        "group_id": _name("group_id"),
        "topic_partitions": lambda value: None if value is None else topic_partitions("topic_partitions", value),
    }

    def __init__(self, group_id: str, topic_partitions: Sequence[TopicPartition] | None = None) -> None:
        self.group_id = group_id
        self.topic_partitions: list[TopicPartition] | None = topic_partitions  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ConsumerGroupTopicPartitions({self.group_id!r}, {self.topic_partitions})"
