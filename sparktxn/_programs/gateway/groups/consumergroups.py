"""Members of Kafka's newer protocol (KIP-848) in the log's own groups, which are of the same kind."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from sparktxn._engine.format.commands import Command, JoinGroup, LeaveGroup, ReleasePartitions, UpdateMember
from sparktxn._engine.log.log import Log
from sparktxn._foundation.values.structs import HeldPartition, MemberState
from sparktxn._programs.gateway.groups.grouprosters import GroupRosters, places_of
from sparktxn._programs.gateway.groups.members import Member, Members
from sparktxn.admin.transactions import matching_texts
from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.store.options import TopicIdPartition

_INVALID_GROUP_ID: Final = 24
_INVALID_REGULAR_EXPRESSION: Final = 128
_DEFAULT_ASSIGNOR: Final = "uniform"
_JOINS, _LEAVES, _LEAVES_FOR_A_WHILE = 0, -1, -2


class HeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat: the member's epoch, and what it is to read if that has changed, else None."""

    member_id: str
    epoch: int
    partitions: frozenset[TopicIdPartition] | None = None


class MemberHeartbeat(NamedTuple):
    """What a member says in a heartbeat; None: as before.

    `topics` and `pattern` are what it subscribes to, and `owned` is what it reads.
    """

    group_id: str
    member_id: str
    epoch: int
    instance_id: str
    client_id: str
    topics: tuple[str, ...] | None
    pattern: str | None
    assignor: str | None
    rebalance_timeout_ms: int
    owned: frozenset[TopicIdPartition] | None


class ConsumerGroups:
    """Serves the heartbeats of members. Its methods wait for the store: they are for threads."""

    def __init__(self, log: Log, members: Members, roster: GroupRosters, session_ms: int) -> None:
        self._log = log
        self._members = members
        self._roster = roster
        self._session_ms = session_ms

    def heartbeat(self, given: MemberHeartbeat) -> HeartbeatAnswer:
        """Have a member join, go on or leave, and return its epoch and what it is to read.

        Raises:
            CommandRefused: INVALID_REQUEST, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
                FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, GROUP_MAX_SIZE_REACHED;
                NOT_COORDINATOR: the member is to say what it owns, which its next heartbeat then does.
            StoreError: call again.
        """
        if not given.group_id:
            raise CommandRefused(_INVALID_GROUP_ID, "the group id is empty")
        if given.epoch in (_LEAVES, _LEAVES_FOR_A_WHILE):
            return self._left(given)
        if given.epoch < _JOINS:
            raise CommandRefused(ErrorCode.INVALID_REQUEST, f"member epoch {given.epoch} is below -2")
        if given.epoch == _JOINS:
            return self._joined(given)
        state = self._state(given)
        member = self._members.serve(state)
        if given.pattern is not None:
            member.pattern = given.pattern
        commands = self._changes(given, state, member)
        if commands:
            self._log.submit(commands)
        return self._answered(given, member)

    def _joined(self, given: MemberHeartbeat) -> HeartbeatAnswer:
        if given.topics is None and given.pattern is None:
            raise CommandRefused(ErrorCode.INVALID_REQUEST, "a member that joins subscribes to topics or to a pattern")
        if given.owned:
            raise CommandRefused(ErrorCode.INVALID_REQUEST, "a member that joins reads nothing yet")
        if given.rebalance_timeout_ms <= 0:
            raise CommandRefused(ErrorCode.INVALID_REQUEST, "a member that joins needs a rebalance time-out")
        self._log.refresh()
        member_id = given.member_id or self._members.new_id(given.client_id)
        pattern = given.pattern or ""
        self._roster.submit_join(
            JoinGroup(
                request_id=self._log.ids.token(),
                group_id=given.group_id,
                member_id=member_id,
                topics=self._topics(given.topics or (), pattern),
                session_timeout_ms=self._session_ms,
                rebalance_timeout_ms=given.rebalance_timeout_ms,
                assignors=(given.assignor or _DEFAULT_ASSIGNOR,),
                instance_id=given.instance_id,
                client_id=given.client_id,
            )
        )
        named = given._replace(member_id=member_id)
        member = self._members.serve(self._state(named))
        member.topics, member.pattern, member.answered = given.topics or (), pattern, None
        return self._answered(named, member)

    def _left(self, given: MemberHeartbeat) -> HeartbeatAnswer:
        state = self._roster.member(given.group_id, given.member_id, given.instance_id)
        keeps_place = given.epoch == _LEAVES_FOR_A_WHILE and bool(state.instance_id)
        self._log.submit([LeaveGroup(self._log.ids.token(), given.group_id, given.member_id, keeps_place)])
        self._members.forget(given.group_id, given.member_id)
        return HeartbeatAnswer(given.member_id, given.epoch)

    def _state(self, given: MemberHeartbeat) -> MemberState:
        state = self._roster.member(given.group_id, given.member_id, given.instance_id, given.epoch)
        if given.epoch > state.member_epoch:
            raise CommandRefused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"member {given.member_id!r} has epoch {state.member_epoch}, not {given.epoch}: join again",
            )
        return state

    def _changes(self, given: MemberHeartbeat, state: MemberState, member: Member) -> list[Command]:
        names = (self._log.ids.token(), state.group_id, state.member_id, state.member_epoch)
        commands: list[Command] = []
        released = places_of(held for held in state.revoking if not _reads(given, held))
        if released:
            commands.append(ReleasePartitions(*names, state.changed_entry, tuple(released)))
        if given.topics is not None:
            member.topics = given.topics
        if given.topics is not None or member.pattern:
            topics = self._topics(member.topics, member.pattern)
            if topics != state.topics:
                commands.append(UpdateMember(self._log.ids.token(), *names[1:], topics))
        return commands

    def _topics(self, topics: Collection[str], pattern: str) -> tuple[str, ...]:
        if not pattern:
            return tuple(sorted(set(topics)))
        names = [topic.name for topic in self._log.topics()]
        try:
            found = matching_texts(pattern, names)
        except ValueError as error:
            raise CommandRefused(_INVALID_REGULAR_EXPRESSION, str(error)) from error
        return tuple(sorted({*found, *topics}))

    def _answered(self, given: MemberHeartbeat, member: Member) -> HeartbeatAnswer:
        """Return the answer by the newest state, with what the member is to read unless it knows that already.

        This gateway may not be the one that answered last, so a partition counts as known with the epoch since which
        the member holds it. A member that reads nothing new does not acknowledge what it is to give back. So one that
        may not have learnt of it is asked, once for each change, to say what it owns.
        """
        state = self._state(given)
        known = member.answered or frozenset()
        if given.owned is not None or known.issuperset(state.revoking):
            member.settled_entry = state.changed_entry
        elif member.settled_entry != state.changed_entry:
            member.settled_entry = state.changed_entry
            raise CommandRefused(
                ErrorCode.NOT_COORDINATOR, f"member {given.member_id!r} is to say what it owns: its group has changed"
            )
        holds, places = frozenset(state.assigned), frozenset(places_of(state.assigned))
        is_new = (
            bool(state.revoking)
            or given.epoch < state.member_epoch
            or known != holds
            or _is_whole(given)
            or given.owned not in (None, places)
        )
        member.note_answered(state.member_epoch, holds)
        return HeartbeatAnswer(state.member_id, state.member_epoch, places if is_new else None)


def _is_whole(given: MemberHeartbeat) -> bool:
    """Return whether a member says everything of itself, as it does after an answer that it did not get."""
    return given.owned is not None and (given.topics is not None or given.pattern is not None)


def _reads(given: MemberHeartbeat, held: HeldPartition) -> bool:
    """Return whether a member may read a partition that it is to give back.

    It does not if it says so. It cannot if it names an epoch below the one since which it holds the partition:
    no answer that it has taken has that partition. The log gives a leaver's partitions away at once, and may take them
    back for a joiner before the member's next heartbeat.
    """
    if given.owned is not None:
        return (held.topic_id, held.partition) in given.owned
    return held.since_epoch <= given.epoch
