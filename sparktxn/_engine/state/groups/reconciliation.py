"""Reconciliation: which member of a group holds which partition, after each entry that changes the group (KIP-848).

Kafka's members each advance at their own heartbeat. Here one entry advances all of them. A member that loses partitions
has them in `revoking`. The member that waits for a partition gets it in the entry that frees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import compress
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec.structs import replace

from sparktxn._engine.state.delta import Context, Delta
from sparktxn._engine.state.groups.assignors import ASSIGNORS, Subscriber
from sparktxn._engine.state.internal import topic_named
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.structs import EmptyGroup, GroupState, HeldPartition, MemberState, SubscribedTopic

_NO_TOPIC: Final = 0

_place_of: Final[Callable[[HeldPartition], TopicIdPartition]] = attrgetter("topic_id", "partition")


class Roster:
    """The members of a group while a command changes them.

    A command changes `members`, and then calls `rebalance`, `renew` or `reconcile`, which puts the records that differ.
    An epoch is the number of the entry that made it, so no epoch comes back, also not in a later life of the group.
    """

    def __init__(self, delta: Delta, context: Context, group_id: str) -> None:
        self._delta = delta
        self._context = context
        self._group_id = group_id
        self._group: GroupState | None = delta.get(("group", group_id))
        ids = self._group.members if self._group is not None else ()
        self._before: dict[str, MemberState] = {id_: delta.get(("member", group_id, id_)) for id_ in ids}
        self.members = dict(self._before)

    def holder_of(self, instance_id: str) -> MemberState | None:
        """Return the member with an instance id; None if there is none, or the id is empty."""
        if not instance_id:
            return None
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def rebalance(self, deleted_topic_id: int = _NO_TOPIC) -> None:
        """Begin a new epoch with new targets. Partitions of `deleted_topic_id` are held by no member any more."""
        if not self.members:
            self._delta.remove(("group", self._group_id))
            self._delta.put(EmptyGroup(self._group_id, self._context.entry, self._context.timestamp_ms))
            self._put_members()
            return
        order = self._in_order()
        topics = self._topics()
        assignor = _assignor_of(order)
        subscribers = [
            Subscriber(member.topics, member.target, frozenset(_places_of((*member.assigned, *member.revoking))))
            for member in order
        ]
        for member, target in zip(order, ASSIGNORS[assignor](subscribers, topics), strict=True):
            self.members[member.member_id] = replace(member, target=target)
        self._begin_epoch(assignor, deleted_topic_id)

    def renew(self) -> None:
        """Begin a new epoch with the same targets."""
        self._begin_epoch(_assignor_of(self._in_order()), _NO_TOPIC)

    def reconcile(self) -> None:
        """Give what is free to the members that wait for it, in the present epoch."""
        assert self._group is not None
        self._reconcile(self._group.epoch, _NO_TOPIC)
        self._put_members()

    def _begin_epoch(self, assignor: str, deleted_topic_id: int) -> None:
        self._reconcile(self._context.entry, deleted_topic_id)
        if self._group is None and self._delta.get(("empty_group", self._group_id)) is not None:
            self._delta.remove(("empty_group", self._group_id))
        self._delta.put(GroupState(self._group_id, self._context.entry, assignor, tuple(sorted(self.members))))
        self._put_members()

    def _in_order(self) -> list[MemberState]:
        """Return the members, static ones first, by their instance ids; the others by their member ids."""
        return sorted(self.members.values(), key=_order_of)

    def _topics(self) -> dict[str, tuple[int, int]]:
        """Return the existing topics to which a member subscribes."""
        found = {}
        for name in _names_of(self.members.values()):
            topic = topic_named(self._delta.get, name)
            if topic is not None:
                found[name] = (topic.topic_id, topic.partition_count)
        return found

    def _reconcile(self, epoch: int, deleted_topic_id: int) -> None:
        """Move every member as far as it can go: first what it must give, then what it may take."""
        kept = _Kept(self._context.entry, deleted_topic_id)
        for member_id, member in self.members.items():
            self.members[member_id] = _given(member, self._before.get(member_id), epoch, kept)
        waiting = [
            member
            for member in self.members.values()
            if not member.revoking and len(member.assigned) < len(member.target)
        ]
        if not waiting:
            return
        # Targets are disjoint: a partition of one member's target is held by another only if that one is to revoke it.
        owed = {place for member in self.members.values() for place in _places_of(member.revoking)}
        for member in waiting:
            holds = set(_places_of(member.assigned))
            free = [place for place in member.target if place not in holds and place not in owed]
            if free:
                taken = [HeldPartition(*place, epoch) for place in free]
                assigned = tuple(sorted((*member.assigned, *taken), key=_place_of))
                self.members[member.member_id] = replace(member, assigned=assigned)

    def _put_members(self) -> None:
        """Put the records of members that differ from those before, and remove those of members that are gone."""
        for member_id, before in self._before.items():
            if member_id not in self.members:
                self._delta.remove(before.key)
        for member_id, member in self.members.items():
            known = self._before.get(member_id)
            if member is known:
                continue
            revoking = known.revoking if known is not None else ()
            if member.revoking != revoking:
                member = replace(member, changed_entry=self._context.entry if member.revoking else 0)
            self._delta.put(member)
        self._index()

    def _index(self) -> None:
        """Note at each topic whether the group subscribes to it."""
        before, after = _names_of(self._before.values()), _names_of(self.members.values())
        for name in sorted(before ^ after):
            known: SubscribedTopic | None = self._delta.get(("subscribers", name))
            group_ids = set(known.group_ids) if known is not None else set()
            group_ids ^= {self._group_id}
            if group_ids:
                self._delta.put(SubscribedTopic(name, tuple(sorted(group_ids))))
            else:
                self._delta.remove(("subscribers", name))


def rebalance_subscribers(delta: Delta, context: Context, name: str, deleted_topic_id: int = _NO_TOPIC) -> None:
    """Begin a new epoch in every group that subscribes to a topic which a command has changed."""
    subscribed: SubscribedTopic | None = delta.get(("subscribers", name))
    for group_id in subscribed.group_ids if subscribed is not None else ():
        Roster(delta, context, group_id).rebalance(deleted_topic_id)


class _Kept(NamedTuple):
    """What a member is asked to give back, and not merely loses: what no client reads is free at once."""

    entry: int
    deleted_topic_id: int

    def holds(self, member: MemberState, held: HeldPartition) -> bool:
        """Return False if no client reads the partition.

        It was given in this entry, its topic is deleted, or the member is away.
        """
        return held.since_epoch != self.entry and held.topic_id != self.deleted_topic_id and not member.left


def _given(member: MemberState, before: MemberState | None, epoch: int, kept: _Kept) -> MemberState:
    """Return the member after it has been asked for what is not in its target; it takes the epoch if it owes nothing.

    A partition that is wanted again before it was given back stays, as if nothing had happened.
    """
    if before is not None and member.target == before.target and not member.revoking:
        return member if member.member_epoch == epoch else replace(member, member_epoch=epoch)
    target = set(member.target)
    held = sorted((*member.assigned, *member.revoking), key=_place_of)
    is_kept = [place in target for place in map(_place_of, held)]
    assigned = tuple(compress(held, is_kept))
    unwanted = (one for one, stays in zip(held, is_kept, strict=True) if not stays)
    revoking = tuple(one for one in unwanted if kept.holds(member, one))
    return replace(
        member, assigned=assigned, revoking=revoking, member_epoch=member.member_epoch if revoking else epoch
    )


def _assignor_of(members: Iterable[MemberState]) -> str:
    """Return the assignor that most members prefer, of those that all of them know; of any if they share none."""
    preferences = [member.assignors for member in members]
    shared = [name for name in ASSIGNORS if all(name in names for names in preferences)] or list(ASSIGNORS)
    votes = [next(name for name in names if name in shared) for names in preferences]
    return max(shared, key=votes.count)


def _order_of(member: MemberState) -> tuple[bool, str]:
    return (not member.instance_id, member.instance_id or member.member_id)


def _names_of(members: Iterable[MemberState]) -> set[str]:
    return set().union(*{member.topics for member in members})


def _places_of(held: Iterable[HeldPartition]) -> list[TopicIdPartition]:
    return list(map(_place_of, held))
