"""The records of consumer groups: a group with members, its members, since when it has none, and who subscribes."""

from __future__ import annotations

from msgspec import Struct

from sparktxn.values.fieldtypes import Int64, Natural, Positive, StateKey, StoredTopicIdPartition, TopicNameText

__all__ = ["EmptyGroup", "GroupState", "HeldPartition", "MemberState", "OffsetToCommit", "SubscribedTopic"]


class GroupState(Struct, frozen=True, gc=False, tag="group", forbid_unknown_fields=True):
    """A consumer group that has members. `epoch` is the entry that last changed the targets of its members."""

    group_id: str
    epoch: Positive
    assignor: str
    members: tuple[str, ...]

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("group", self.group_id)


class EmptyGroup(Struct, frozen=True, gc=False, tag="empty_group", forbid_unknown_fields=True):
    """A consumer group whose last member has gone: in which entry, and that entry's timestamp (KIP-211)."""

    group_id: str
    entry: Positive
    timestamp_ms: Int64

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("empty_group", self.group_id)


class HeldPartition(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A partition that a member holds, with the group's epoch since which it does (KIP-1251)."""

    topic_id: Int64
    partition: Natural
    since_epoch: Positive


class MemberState(Struct, frozen=True, gc=False, tag="member", forbid_unknown_fields=True):
    """A member of a consumer group.

    It holds the partitions in `assigned` and those in `revoking`, which it is asked to give back. `target` is what it
    is to hold in the group's epoch; it has reached that once `member_epoch` is the group's. `left` is True for a static
    member that is away and keeps its place. `last_entry` is the last entry with a command that names the member,
    `changed_entry` the one since which `revoking` is what it is, 0 while it is empty.
    """

    group_id: str
    member_id: str
    instance_id: str
    client_id: str
    host: str
    topics: tuple[str, ...]
    session_timeout_ms: Positive
    rebalance_timeout_ms: Positive
    assignors: tuple[str, ...]
    classic: bool
    member_epoch: Natural
    left: bool = False
    target: tuple[StoredTopicIdPartition, ...] = ()
    assigned: tuple[HeldPartition, ...] = ()
    revoking: tuple[HeldPartition, ...] = ()
    last_entry: Natural = 0
    changed_entry: Natural = 0

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("member", self.group_id, self.member_id)


class SubscribedTopic(Struct, frozen=True, gc=False, tag="subscribers", forbid_unknown_fields=True):
    """The groups with a member that subscribes to a topic, which need not exist."""

    name: TopicNameText
    group_ids: tuple[str, ...]

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("subscribers", self.name)


class OffsetToCommit(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """One partition's offset in an offset commit: the next offset to read.

    `started_from` is the `effective_entry` of the committed offset that the owner has started from, 0 if there was
    none. It is -1 if the owner has not started from any: then nothing is compared.
    """

    topic_id: Int64
    partition: Int64
    offset: Int64
    metadata: str | None = None
    leader_epoch: Int64 = -1
    started_from: Int64 = -1
