"""Members of Kafka's classic protocol in the log's own groups (KIP-848, as its coordinator serves them).

The log divides the partitions, at once and for all members, so no member leads. A join is answered with the epoch that
the member has reached, as its generation. SyncGroup is answered with what the log gives it. A heartbeat asks the member
to join again when it has to give something back, or when it holds other partitions than it knows.
"""

from __future__ import annotations

from typing import NamedTuple

from sparktxn._engine.format.commands import Command, JoinGroup, ReleasePartitions, UpdateMember
from sparktxn._engine.log.log import Log
from sparktxn._foundation.values.structs import MemberState
from sparktxn._programs.gateway.groups.grouprosters import (
    INCONSISTENT_GROUP_PROTOCOL,
    GroupRosters,
    Joining,
    places_of,
    unknown_member,
)
from sparktxn._programs.gateway.groups.members import Member, Members
from sparktxn._programs.gateway.wire.consumerprotocol import MemberSubscription
from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.store.options import TopicIdPartition, TopicPartitionKey


class Joined(NamedTuple):
    """What the log says of a member that has joined.

    It `waits` if others still hold partitions that it is to have, and `is_idle` if it has none.
    """

    member_id: str
    generation: int
    waits: bool
    is_idle: bool


class ClassicGroups:
    """Serves the members of groups by the log. Its methods wait for the store: they are for threads."""

    def __init__(self, log: Log, members: Members, roster: GroupRosters) -> None:
        self._log = log
        self._members = members
        self._roster = roster

    def join(self, asked: Joining, subscription: MemberSubscription) -> Joined:
        """Make a client a member; one that is a member already gives back what it reads no more.

        Raises:
            CommandRefused: as `GroupRosters.joining` and `GroupRosters.submit_join`.
            StoreError: call again.
        """
        state = self._roster.joining(asked)
        if state is None:
            member_id = asked.member_id or self._members.new_id(asked.client_id)
            self._roster.submit_join(_join(self._log.ids.token(), asked, subscription, member_id))
        else:
            member_id = state.member_id
            commands = self._rejoin(asked, subscription, state)
            if commands:
                self._log.submit(commands)
        return self.joined(asked.group_id, member_id, subscription)

    def joined(self, group_id: str, member_id: str, subscription: MemberSubscription) -> Joined:
        """Return what the log says now of a member that has joined.

        Raises:
            CommandRefused: UNKNOWN_MEMBER_ID, it was taken out since.
        """
        state = self._log.member(group_id, member_id)
        if state is None:
            raise unknown_member(group_id, member_id)
        member = self._members.serve(state)
        member.note_joined(state.member_epoch, subscription.protocol, self._places(subscription.owned))
        waits = not state.revoking and len(state.assigned) < len(state.target)
        return Joined(member_id, state.member_epoch, waits, not state.assigned)

    def _rejoin(self, asked: Joining, subscription: MemberSubscription, state: MemberState) -> list[Command]:
        """Return what a member that joins again asks of the log; nothing if it holds what it held."""
        wanted = _join(self._log.ids.token(), asked, subscription, state.member_id)
        is_changed = (state.topics, state.assignors) != (wanted.topics, wanted.assignors)
        owned = self._places(subscription.owned)
        if not owned:
            timeouts = (state.session_timeout_ms, state.rebalance_timeout_ms)
            is_other = timeouts != (wanted.session_timeout_ms, wanted.rebalance_timeout_ms)
            return [wanted] if is_changed or is_other or state.revoking or state.left else []
        commands: list[Command] = []
        given = tuple(place for place in places_of(state.revoking) if place not in owned)
        if given:
            commands.append(self._release(state, given))
        if state.topics != subscription.topics:
            token = self._log.ids.token()
            commands.append(
                UpdateMember(token, state.group_id, state.member_id, state.member_epoch, subscription.topics)
            )
        return commands

    def sync(
        self, group_id: str, member_id: str, instance_id: str, generation: int, protocol: str | None
    ) -> frozenset[TopicPartitionKey]:
        """Return what a member that has joined is to read.

        Raises:
            CommandRefused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION; REBALANCE_IN_PROGRESS: its
                group has changed since it has joined, and it joins again before it reads anything. So members that
                join together come to one generation.
            StoreError: call again.
        """
        state, member = self._member(group_id, member_id, instance_id, generation, is_fresh=True)
        if protocol is not None and member.protocol not in (None, protocol):
            raise CommandRefused(
                INCONSISTENT_GROUP_PROTOCOL, f"member {member_id!r} has joined by {member.protocol!r}, not {protocol!r}"
            )
        unread = [place for place in places_of(state.revoking) if place not in member.owned]
        if unread or generation < state.member_epoch:
            raise CommandRefused(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group_id!r} has changed since: join again")
        member.note_answered(generation, frozenset(state.assigned))
        names = self._log.topic_names()
        return frozenset(
            (names[topic_id], number) for topic_id, number in places_of(state.assigned) if topic_id in names
        )

    def _release(self, state: MemberState, places: tuple[TopicIdPartition, ...]) -> ReleasePartitions:
        return ReleasePartitions(
            self._log.ids.token(), state.group_id, state.member_id, state.member_epoch, state.changed_entry, places
        )

    def heartbeat(self, group_id: str, member_id: str, instance_id: str, generation: int) -> None:
        """Note that a member lives.

        Raises:
            CommandRefused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION; REBALANCE_IN_PROGRESS: it joins
                again, to give partitions back or to get others.
            StoreError: call again.
        """
        state, member = self._member(group_id, member_id, instance_id, generation)
        if member.generation == generation and member.answered is None:
            return  # It has joined, and will ask what it is to read.
        holds = frozenset(state.assigned)
        if member.generation != generation and self._is_certain(state, generation):
            member.note_answered(generation, holds)
        if state.revoking or member.generation != generation or member.answered != holds:
            raise CommandRefused(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group_id!r} has changed: join again")

    def _is_certain(self, state: MemberState, generation: int) -> bool:
        """Return True if a member of this generation can only know what it holds now, by whichever gateway.

        Within an epoch a member may get more, once others have given it back.
        """
        newest = max((held.since_epoch for held in state.assigned), default=-1)
        if newest < generation:
            return True
        group = self._log.group(state.group_id)
        is_alone = group is not None and group.epoch == generation and group.members == (state.member_id,)
        return is_alone and newest == generation

    def _member(
        self, group_id: str, member_id: str, instance_id: str, generation: int, *, is_fresh: bool = False
    ) -> tuple[MemberState, Member]:
        state = self._roster.member(group_id, member_id, instance_id, generation, is_fresh=is_fresh)
        member = self._members.serve(state)
        if not max(member.generation, 0) <= generation <= state.member_epoch:
            raise CommandRefused(
                ErrorCode.ILLEGAL_GENERATION,
                f"member {member_id!r} of group {group_id!r} has generation {state.member_epoch}, not {generation}",
            )
        return state, member

    def _places(self, partitions: frozenset[TopicPartitionKey]) -> frozenset[TopicIdPartition]:
        topics = {name: self._log.topic(name) for name, _ in partitions}
        return frozenset((topic.topic_id, number) for name, number in partitions if (topic := topics[name]) is not None)


def _join(token: str, asked: Joining, subscription: MemberSubscription, member_id: str) -> JoinGroup:
    return JoinGroup(
        request_id=token,
        group_id=asked.group_id,
        member_id=member_id,
        topics=subscription.topics,
        session_timeout_ms=asked.session_timeout_ms,
        rebalance_timeout_ms=asked.rebalance_timeout_ms,
        assignors=subscription.assignors,
        classic=True,
        instance_id=asked.instance_id,
        client_id=asked.client_id,
    )
