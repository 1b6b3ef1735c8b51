"""Commands of a consumer group's members, and what must hold of a group's records after every entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from sparktxn._engine.format.commands import (
    ExpireMember,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetToCommit,
    ReleasePartitions,
    UpdateMember,
)
from sparktxn._engine.state.internal import INTERNAL_TOPICS
from sparktxn._foundation.values.structs import GroupState, MemberState, StateKey
from tests.purelog import PureLog

__all__ = ["GroupLog", "check_group", "holdings", "places"]

Place = tuple[int, int]

_requests = count()


def _request() -> str:
    return f"request {next(_requests)}"


def places(held: Iterable[Any]) -> tuple[Place, ...]:
    """The partitions of tuples of held partitions, without their epochs."""
    return tuple((one.topic_id, one.partition) for one in held)


def holdings(member: MemberState) -> dict[Place, int]:
    """Since which epoch the member holds each of its partitions."""
    return {(one.topic_id, one.partition): one.since_epoch for one in (*member.assigned, *member.revoking)}


class GroupLog(PureLog):
    """A log without a store, with short forms for the commands of one group's members."""

    group_id = "group"

    def member(self, member_id: str) -> MemberState:
        """The record of a member."""
        record: MemberState = self.records["member", self.group_id, member_id]
        return record

    def group(self) -> GroupState | None:
        """The record of the group; None without members."""
        return self.records.get(("group", self.group_id))

    def members(self) -> dict[str, MemberState]:
        """The members by id."""
        group = self.group()
        return {} if group is None else {id_: self.member(id_) for id_ in group.members}

    def joining(self, member_id: str, *topics: str, **more: Any) -> JoinGroup:
        """The command with which a consumer joins, of one second's session and five seconds to give back."""
        given: dict[str, Any] = {
            "session_timeout_ms": 1_000,
            "rebalance_timeout_ms": 5_000,
            "assignors": ("uniform",),
        } | more
        return JoinGroup(_request(), self.group_id, member_id, tuple(sorted(topics)), **given)

    def join(self, member_id: str, *topics: str, **more: Any) -> MemberState:
        """Joins; returns the record that this leaves."""
        self.submit(self.joining(member_id, *topics, **more))
        return self.member(member_id)

    def updating(self, member_id: str, *topics: str, epoch: int | None = None) -> UpdateMember:
        """The command with which a member subscribes to other topics."""
        known = self.member(member_id).member_epoch if epoch is None else epoch
        return UpdateMember(_request(), self.group_id, member_id, known, tuple(sorted(topics)))

    def releasing(
        self, member_id: str, given: Sequence[Place] | None = None, *, epoch: int | None = None
    ) -> ReleasePartitions:
        """The command with which a member gives back what it is asked for."""
        member = self.member(member_id)
        known = member.member_epoch if epoch is None else epoch
        named = places(member.revoking) if given is None else tuple(given)
        return ReleasePartitions(_request(), self.group_id, member_id, known, member.changed_entry, named)

    def release(self, member_id: str) -> None:
        """Gives back all that the member is asked for."""
        self.submit(self.releasing(member_id))

    def leaving(self, member_id: str, *, keeps_place: bool = False) -> LeaveGroup:
        """The command with which a member leaves."""
        return LeaveGroup(_request(), self.group_id, member_id, keeps_place)

    def expiring(self, member_id: str, reason: str = "session", **other: Any) -> ExpireMember:
        """The command with which another process takes a silent member out, as the records are now."""
        member = self.member(member_id)
        seen = member.last_entry if reason == "session" else member.changed_entry
        given: dict[str, Any] = {"member_epoch": member.member_epoch, "last_entry": seen, "after_ms": 5_000} | other
        return ExpireMember(self.group_id, member_id, reason=reason, **given)

    def committing(
        self, member_id: str, epoch: int, *where: Place, offset: int = 1, instance_id: str = ""
    ) -> OffsetCommit:
        """The command with which a member commits an offset for each of some partitions."""
        offsets = tuple(OffsetToCommit(*place, offset) for place in where)
        return OffsetCommit(_request(), self.group_id, offsets, epoch, member_id, instance_id=instance_id)


def check_group(records: Mapping[StateKey, Any], group_id: str) -> None:
    """Fails unless the records of a group fit each other, and say of each partition who is to have it.

    Raises:
        AssertionError: they do not.
    """
    group: GroupState | None = records.get(("group", group_id))
    members: list[MemberState] = [
        record for key, record in records.items() if key[0] == "member" and key[1] == group_id
    ]
    assert sorted(member.member_id for member in members) == list(group.members if group is not None else ())
    names = {name for member in members for name in member.topics}
    indexed = {key[1] for key, record in records.items() if key[0] == "subscribers" and group_id in record.group_ids}
    assert indexed == names, "the index of subscribed topics differs"
    assert group is None or ("empty_group", group_id) not in records, "a group with members counts as empty"
    if group is None:
        return
    assert members, "a group without members has a record"
    held = [place for member in members for place in holdings(member)]
    assert len(held) == len(set(held)), "a partition has two holders"
    targets = [place for member in members for place in member.target]
    assert len(targets) == len(set(targets)), "a partition is in two targets"
    topics = {name: INTERNAL_TOPICS.get(name) or records.get(("topic", name)) for name in names}
    existing = {name: topic for name, topic in topics.items() if topic is not None}
    wanted = {(topic.topic_id, number) for topic in existing.values() for number in range(topic.partition_count)}
    assert set(targets) == wanted, "not every partition is in a target"
    subscriptions = {frozenset(name for name in member.topics if name in existing) for member in members}
    if group.assignor == "uniform" and len(subscriptions) == 1:
        sizes = [len(member.target) for member in members]
        assert max(sizes) - min(sizes) <= 1, f"targets are not balanced: {sizes}"
    for member in members:
        _check_member(member, group, {topic.topic_id for name, topic in existing.items() if name in member.topics})
    waiting = {place for member in members for place in member.target if place not in holdings(member)}
    free = waiting.difference(held)
    able = {place for member in members if not member.revoking for place in member.target}
    assert not free & able, "a partition is free, and the member that is to have it does not get it"


def _check_member(member: MemberState, group: GroupState, topic_ids: set[int]) -> None:
    target = set(member.target)
    assert {topic_id for topic_id, _ in target} <= topic_ids, "a target has a topic that its member does not want"
    assert set(places(member.assigned)) <= target
    assert not set(places(member.revoking)) & target, "a member is to give back what it is to have"
    for held in (member.target, member.assigned, member.revoking):
        assert list(held) == sorted(held, key=lambda one: tuple(one) if isinstance(one, tuple) else places([one]))
    assert member.member_epoch <= group.epoch
    assert bool(member.revoking) or member.member_epoch == group.epoch, "a member that owes nothing is behind"
    assert all(since <= member.member_epoch for since in holdings(member).values())
    assert bool(member.revoking) == bool(member.changed_entry)
    assert not (member.left and member.revoking), "a member that is away owes partitions"
