"""Members of Kafka's classic protocol in the log's own groups (KIP-848, as its coordinator serves them).

The log divides the partitions, at once and for all members. So no member leads: a join is answered with the epoch that
the member has reached, as its generation, and SyncGroup with what the log gives it. A heartbeat asks the member to join
again when it has to give something back, or when it holds other partitions than it was told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.format.commands import Command, JoinGroup, LeaveGroup, ReleasePartitions, UpdateMember
from sparktxn.gateway.members import Member, Members
from sparktxn.gateway.wire.consumerprotocol import Subscription
from sparktxn.log.log import Log
from sparktxn.store.memberexpiry import expire_overdue
from sparktxn.values.fieldtypes import TopicIdPartition, TopicPartitionKey
from sparktxn.values.structs import HeldPartition, MemberState

__all__ = ["INCONSISTENT_GROUP_PROTOCOL", "MEMBER_ID_REQUIRED", "ClassicGroups", "Joined", "Joining", "places_of"]

INCONSISTENT_GROUP_PROTOCOL: Final = 23
_INVALID_GROUP_ID: Final = 24
MEMBER_ID_REQUIRED: Final = 79

_SESSION_MS_MIN: Final = 100
_SESSION_MS_MAX: Final = 1_800_000
_FRESH_S: Final = 0.1
"""How old the state may be that a heartbeat goes by."""


class Joining(NamedTuple):
    """A request to join."""

    group_id: str
    member_id: str
    instance_id: str
    client_id: str
    host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    subscription: Subscription
    needs_id: bool
    """Whether a new member is given an id, and joins with it then."""


class Joined(NamedTuple):
    """What the log says of a member that has joined: `waits` if others still hold partitions that it is to have."""

    member_id: str
    generation: int
    waits: bool


class ClassicGroups:
    """Serves the members of groups by the log. Its methods wait for the store: they are for threads."""

    def __init__(self, log: Log, members: Members) -> None:
        self._log = log
        self._members = members

    def join(self, asked: Joining) -> Joined:
        """Make a client a member; one that is a member already gives back what it reads no more.

        Raises:
            CommandRefused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT,
                GROUP_MAX_SIZE_REACHED; MEMBER_ID_REQUIRED: its text is the id.
            StoreError: call again.
        """
        if not asked.group_id:
            raise CommandRefused(_INVALID_GROUP_ID, "the group id is empty")
        if not _SESSION_MS_MIN <= asked.session_timeout_ms <= _SESSION_MS_MAX:
            raise CommandRefused(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"session.timeout.ms is {asked.session_timeout_ms}: expected {_SESSION_MS_MIN} to {_SESSION_MS_MAX}",
            )
        self._log.refresh()
        state = self._known(asked)
        if state is None:
            member_id = asked.member_id or self._members.new_id(asked.client_id)
            self._submit_join(_join(self._log.ids.token(), asked, member_id))
        else:
            member_id = state.member_id
            commands = self._rejoin(asked, state)
            if commands:
                self._log.submit(commands)
        return self.joined(asked, member_id)

    def joined(self, asked: Joining, member_id: str) -> Joined:
        """Return what the log says now of a member that has joined.

        Raises:
            CommandRefused: UNKNOWN_MEMBER_ID, it was taken out since.
        """
        state = self._log.member(asked.group_id, member_id)
        if state is None:
            raise _unknown(asked.group_id, member_id)
        member = self._members.serve(state)
        member.note_joined(state.member_epoch, asked.subscription.protocol)
        return Joined(member_id, state.member_epoch, not state.revoking and len(state.assigned) < len(state.target))

    def _known(self, asked: Joining) -> MemberState | None:
        """Return the member that joins again; None for one that is to be added."""
        state = self._log.member(asked.group_id, asked.member_id) if asked.member_id else None
        if asked.instance_id:
            if asked.member_id and (state is None or state.instance_id != asked.instance_id):
                raise self._not_static(asked.group_id, asked.member_id, asked.instance_id)
            return state
        if state is not None or self._members.is_expected(asked.group_id, asked.member_id):
            return state
        if asked.member_id:
            raise _unknown(asked.group_id, asked.member_id)
        if asked.needs_id:
            member_id = self._members.new_id(asked.client_id)
            self._members.expect(asked.group_id, member_id)
            raise CommandRefused(MEMBER_ID_REQUIRED, member_id)
        return None

    def _not_static(self, group_id: str, member_id: str, instance_id: str) -> CommandRefused:
        if any(other.instance_id == instance_id for other in self._log.group_members(group_id)):
            return CommandRefused(
                ErrorCode.FENCED_INSTANCE_ID,
                f"another consumer of group {group_id!r} has joined with group.instance.id {instance_id!r}: give each "
                "consumer its own",
            )
        return _unknown(group_id, member_id)

    def _rejoin(self, asked: Joining, state: MemberState) -> list[Command]:
        """Return what a member that joins again asks of the log; nothing if it holds what it held."""
        subscription = asked.subscription
        wanted = _join(self._log.ids.token(), asked, state.member_id)
        is_changed = (state.topics, state.assignors) != (wanted.topics, wanted.assignors)
        owned = self._places(subscription.owned)
        if not owned:
            timeouts = (state.session_timeout_ms, state.rebalance_timeout_ms)
            is_other = timeouts != (wanted.session_timeout_ms, wanted.rebalance_timeout_ms)
            return [wanted] if is_changed or is_other or state.revoking or state.left else []
        commands: list[Command] = []
        given = tuple(place for place in places_of(state.revoking) if place not in owned)
        if given:
            token = self._log.ids.token()
            commands.append(
                ReleasePartitions(
                    token, state.group_id, state.member_id, state.member_epoch, state.changed_entry, given
                )
            )
        if state.topics != subscription.topics:
            token = self._log.ids.token()
            commands.append(
                UpdateMember(token, state.group_id, state.member_id, state.member_epoch, subscription.topics)
            )
        return commands

    def _submit_join(self, join: JoinGroup) -> None:
        """Join; where the group is full, take out those that are overdue, and join again."""
        try:
            self._log.submit([join])
        except CommandRefused as refused:
            if refused.error.code() != ErrorCode.GROUP_MAX_SIZE_REACHED:
                raise
            expire_overdue(self._log, [join.group_id])
            self._log.submit([join])

    def sync(
        self, group_id: str, member_id: str, instance_id: str, generation: int, protocol: str | None
    ) -> frozenset[TopicPartitionKey]:
        """Return what a member that has joined is to read.

        Raises:
            CommandRefused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION; REBALANCE_IN_PROGRESS: it has
                been given partitions since it has joined, and joins again.
            StoreError: call again.
        """
        state, member = self._member(group_id, member_id, instance_id, generation, max_age_s=0)
        if protocol is not None and member.protocol not in (None, protocol):
            raise CommandRefused(
                INCONSISTENT_GROUP_PROTOCOL, f"member {member_id!r} has joined by {member.protocol!r}, not {protocol!r}"
            )
        if any(held.since_epoch > generation for held in state.assigned):
            raise CommandRefused(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group_id!r} has changed since: join again")
        member.note_told(generation, frozenset(places_of(state.assigned)))
        names = self._log.topic_names()
        return frozenset(
            (names[topic_id], number) for topic_id, number in places_of(state.assigned) if topic_id in names
        )

    def heartbeat(self, group_id: str, member_id: str, instance_id: str, generation: int) -> None:
        """Note that a member lives.

        Raises:
            CommandRefused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION; REBALANCE_IN_PROGRESS: it joins
                again, to give partitions back or to get others.
            StoreError: call again.
        """
        state, member = self._member(group_id, member_id, instance_id, generation)
        if member.generation == generation and member.told is None:
            return  # It has joined, and will ask what it is to read.
        holds = frozenset(places_of(state.assigned))
        if member.generation != generation and self._is_certain(state, generation):
            member.note_told(generation, holds)
        if state.revoking or member.generation != generation or member.told != holds:
            raise CommandRefused(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group_id!r} has changed: join again")

    def _is_certain(self, state: MemberState, generation: int) -> bool:
        """Return True if a member of this generation can only know what it holds now, whoever has told it.

        Within an epoch a member may get more, once others have given it back.
        """
        newest = max((held.since_epoch for held in state.assigned), default=-1)
        if newest < generation:
            return True
        group = self._log.group(state.group_id)
        is_alone = group is not None and group.epoch == generation and group.members == (state.member_id,)
        return is_alone and newest == generation

    def _member(
        self, group_id: str, member_id: str, instance_id: str, generation: int, max_age_s: float = _FRESH_S
    ) -> tuple[MemberState, Member]:
        state = self._state(group_id, member_id, instance_id, generation, max_age_s)
        member = self._members.serve(state)
        if not max(member.generation, 0) <= generation <= state.member_epoch:
            raise CommandRefused(
                ErrorCode.ILLEGAL_GENERATION,
                f"member {member_id!r} of group {group_id!r} has generation {state.member_epoch}, not {generation}",
            )
        return state, member

    def _state(
        self, group_id: str, member_id: str, instance_id: str, generation: int, max_age_s: float = _FRESH_S
    ) -> MemberState:
        """Return what the log says of a member; it is asked anew before a member is refused.

        Raises:
            CommandRefused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        self._log.refresh(max_age_s=max_age_s)
        state = self._log.member(group_id, member_id)
        if max_age_s and (state is None or state.member_epoch < generation):
            self._log.refresh()
            state = self._log.member(group_id, member_id)
        if state is None or (instance_id and state.instance_id != instance_id):
            self._members.forget(group_id, member_id)
            raise self._not_static(group_id, member_id, instance_id) if instance_id else _unknown(group_id, member_id)
        return state

    def leave(self, group_id: str, member_id: str, instance_id: str) -> str:
        """Take a member out of its group, by its id or by its instance id; return its id.

        Raises:
            CommandRefused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
            StoreError: call again.
        """
        if instance_id and not member_id:
            self._log.refresh()
            found = [other for other in self._log.group_members(group_id) if other.instance_id == instance_id]
            if not found:
                raise _unknown(group_id, instance_id)
            member_id = found[0].member_id
        else:
            self._state(group_id, member_id, instance_id, -1)
        self._log.submit([LeaveGroup(self._log.ids.token(), group_id, member_id)])
        self._members.forget(group_id, member_id)
        return member_id

    def _places(self, partitions: frozenset[TopicPartitionKey]) -> frozenset[TopicIdPartition]:
        topic_of: Callable[[str], int | None] = lambda name: (  # noqa: E731
            None if (topic := self._log.topic(name)) is None else topic.topic_id
        )
        return frozenset((topic_id, number) for name, number in partitions if (topic_id := topic_of(name)) is not None)


def _join(token: str, asked: Joining, member_id: str) -> JoinGroup:
    subscription = asked.subscription
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
        host=asked.host,
    )


def _unknown(group_id: str, member_id: str) -> CommandRefused:
    return CommandRefused(
        ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id!r} has no member {member_id!r}, or no longer: join again"
    )


def places_of(held: tuple[HeldPartition, ...]) -> list[TopicIdPartition]:
    """Return what is held, without since when."""
    return [(one.topic_id, one.partition) for one in held]
