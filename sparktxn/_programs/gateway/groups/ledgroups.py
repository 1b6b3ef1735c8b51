"""Groups whose members divide their work among themselves: one of them leads, and its bytes mean nothing here.

Such are the groups of Kafka Connect and Kafka Streams. Their members are in the log as those of a group of another
name, which subscribes to nothing that exists. So every gateway sees them, and their sessions are those of all groups.
What a member has sent is in its record, with the epoch of the group that it has joined for. An epoch that all members
have joined for is a generation. The record of its leader has what the leader has assigned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sparktxn._engine.format.commands import JoinGroup, LeaveGroup
from sparktxn._engine.log.log import Log
from sparktxn._foundation.values.structs import MemberState
from sparktxn._programs.gateway.groups.grouprosters import (
    INCONSISTENT_GROUP_PROTOCOL,
    GroupRosters,
    Joining,
    unknown_member,
)
from sparktxn._programs.gateway.groups.members import Members
from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.store.memberexpiry import group_of_members, is_members_name, members_name

_ROUND: Final = "__round."
_NO_EPOCH: Final = -1
_FRESH_S: Final = 0.1


class Sent(Struct, frozen=True):
    """What the record of a member holds, in place of its host.

    Args:
        protocol_type: the type of the group.
        protocols: the member's protocols with its bytes, in order of preference.
        joined: the epoch that it has joined for.
        assigned: the last generation in which it has led, and `assignments` what it has assigned then, by member id.
    """

    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    joined: int = _NO_EPOCH
    assigned: int = _NO_EPOCH
    assignments: Mapping[str, bytes] = {}

    @property
    def names(self) -> list[str]:
        """The protocols' names."""
        return [name for name, _ in self.protocols]

    def metadata(self, protocol: str) -> bytes:
        """Return the bytes for a protocol."""
        return dict(self.protocols).get(protocol, b"")


class Led(NamedTuple):
    """A member of the log's with what it has sent."""

    state: MemberState
    sent: Sent


class Generation(NamedTuple):
    """One that all members have joined for."""

    number: int
    protocol_type: str
    protocol: str
    leader_id: str
    members: Sequence[Led]


class RebalanceProgress(NamedTuple):
    """How far a group is: the epoch that its members join for, how long they may take, the generation once all have."""

    epoch: int
    timeout_s: float
    generation: Generation | None


class Described(NamedTuple):
    """A group in Kafka's words, with the bytes that each member has sent and was assigned."""

    state: str
    protocol_type: str
    protocol: str
    members: Sequence[tuple[Led, bytes, bytes]]


class LedGroups:
    """Serves such groups. Its methods wait for the store: they are for threads."""

    def __init__(self, log: Log, members: Members, roster: GroupRosters) -> None:
        self._log = log
        self._members = members
        self._roster = roster

    def has(self, group_id: str, *, max_age_s: float = _FRESH_S) -> bool:
        """Return True if a group has members that divide their work themselves, by a state of up to `max_age_s`.

        Raises:
            StoreError: call again.
        """
        name = members_name(group_id)
        if max_age_s:
            with self._log.last_known() as state:
                has_members = state.group(name) is not None
                if has_members or state.group(group_id) is not None:
                    return has_members
        self._log.refresh(max_age_s=max_age_s)
        return self._log.group(name) is not None

    def described(self, group_id: str) -> Described | None:
        """Return a group as last known; None if it has no members of this kind."""
        name = members_name(group_id)
        epoch, led = self._round(name)
        if not led:
            return None
        protocol_type = led[0].sent.protocol_type
        if any(member.sent.joined != epoch for member in led):
            return Described("PreparingRebalance", protocol_type, "", [(member, b"", b"") for member in led])
        protocol = _chosen([member.sent.names for member in led])
        leader = _leader(led).sent
        is_assigned = leader.assigned == epoch
        given = leader.assignments if is_assigned else {}
        members = [(member, member.sent.metadata(protocol), given.get(member.state.member_id, b"")) for member in led]
        return Described("Stable" if is_assigned else "CompletingRebalance", protocol_type, protocol, members)

    def group_ids(self) -> list[str]:
        """Return the ids of all such groups, as last known."""
        return [group_of_members(group.group_id) for group in self._log.groups() if is_members_name(group.group_id)]

    # Joining

    def join(self, asked: Joining, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> str:
        """Make a client a member, or have it join for the next generation; return its id.

        Raises:
            CommandRefused: as `GroupRosters.joining`; INCONSISTENT_GROUP_PROTOCOL: it shares no protocol with others.
            StoreError: call again.
        """
        if not protocol_type or not protocols:
            raise CommandRefused(INCONSISTENT_GROUP_PROTOCOL, "a member names no protocol")
        named = asked._replace(group_id=members_name(asked.group_id) if asked.group_id else "")
        self._log.refresh(max_age_s=_FRESH_S)
        self._log.decide(lambda: self._check_shared(named, protocol_type, {name for name, _ in protocols}))
        state = self._roster.joining(named)
        if self._log.group(asked.group_id) is not None:
            raise CommandRefused(
                INCONSISTENT_GROUP_PROTOCOL, f"group {asked.group_id!r} has members whose partitions the log divides"
            )
        epoch, led = self._round(named.group_id)
        if state is None:
            member_id = asked.member_id or self._members.new_id(asked.client_id)
            self._put(named, member_id, (), Sent(protocol_type, protocols, epoch))
            return member_id
        known = _sent(state)
        if known.joined == epoch and all(member.sent.joined == epoch for member in led):
            has_led = known.assigned == epoch
            if known.protocols == protocols and not has_led:
                return state.member_id  # It repeats itself: the generation stands.
            # Other topics make the log begin an epoch, for which all have to join.
            sent = replace(known, protocols=protocols, joined=_NO_EPOCH, assignments={})
            self._put(named, state.member_id, (f"{_ROUND}{epoch}",), sent)
        else:
            sent = replace(known, protocols=protocols, joined=epoch, assignments={})
            self._put(named, state.member_id, state.topics, sent)
        return state.member_id

    def gathered(self, asked: Joining, member_id: str) -> RebalanceProgress:
        """Return how far the group is. A member that waits joins for each new epoch.

        Raises:
            CommandRefused: UNKNOWN_MEMBER_ID, it was taken out since.
            StoreError: call again.
        """
        named = asked._replace(group_id=members_name(asked.group_id))
        state = self._log.member(named.group_id, member_id)
        if state is None:
            raise unknown_member(asked.group_id, member_id)
        self._members.serve(state)
        epoch = self._epoch(named.group_id)
        sent = _sent(state)
        if sent.joined != epoch:
            self._put(named, member_id, state.topics, replace(sent, joined=epoch, assignments={}))
        epoch, led = self._round(named.group_id)
        timeout_s = max(member.state.rebalance_timeout_ms for member in led) / 1000
        if any(member.sent.joined != epoch for member in led):
            return RebalanceProgress(epoch, timeout_s, None)
        protocol = _chosen([member.sent.names for member in led])
        leader_id = _leader(led).state.member_id
        return RebalanceProgress(epoch, timeout_s, Generation(epoch, sent.protocol_type, protocol, leader_id, led))

    def drop_missing(self, group_id: str, epoch: int) -> None:
        """Take out the members that have not joined for an epoch in time.

        Raises:
            StoreError: call again.
        """
        name = members_name(group_id)
        self._log.refresh()
        newest, led = self._round(name)
        if newest != epoch:
            return
        missing = [member for member in led if member.sent.joined != epoch]
        if missing:
            self._log.submit([LeaveGroup(self._log.ids.token(), name, member.state.member_id) for member in missing])

    # Members of a generation

    def sync(
        self, group_id: str, member_id: str, instance_id: str, generation: int, assignments: Mapping[str, bytes]
    ) -> bytes | None:
        """Return what the leader has assigned to a member; None until it has.

        Raises:
            CommandRefused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION; REBALANCE_IN_PROGRESS: it joins
                again.
            StoreError: call again.
        """
        state = self._checked(members_name(group_id), member_id, instance_id, generation)
        leader = self._leader_of(group_id, generation)
        if member_id == leader.state.member_id and assignments:
            sent = replace(_sent(state), assigned=generation, assignments=assignments)
            self._put(_as_joined(state), member_id, state.topics, sent)
            leader = self._leader_of(group_id, generation)
        given = leader.sent
        return given.assignments.get(member_id, b"") if given.assigned == generation else None

    def heartbeat(self, group_id: str, member_id: str, instance_id: str, generation: int) -> None:
        """Note that a member lives.

        Raises:
            CommandRefused: as `sync`.
            StoreError: call again.
        """
        name = members_name(group_id)
        self._checked(name, member_id, instance_id, generation)
        if self._epoch(name) != generation:
            raise _rebalances(group_id)

    def speaks(self, group_id: str, member_id: str, instance_id: str, generation: int) -> tuple[str, int]:
        """Return the group and the epoch in which the log is to know a member that commits offsets.

        Raises:
            CommandRefused: as `sync`.
            StoreError: call again.
        """
        name = members_name(group_id)
        if not member_id:
            raise unknown_member(group_id, member_id)
        self._checked(name, member_id, instance_id, generation, is_fresh=True)
        return name, generation

    def leave(self, group_id: str, member_id: str, instance_id: str) -> str:
        """Take a member out, as `GroupRosters.leave`."""
        return self._roster.leave(members_name(group_id), member_id, instance_id)

    def _checked(
        self, name: str, member_id: str, instance_id: str, generation: int, *, is_fresh: bool = False
    ) -> MemberState:
        state = self._roster.member(name, member_id, instance_id, generation, is_fresh=is_fresh)
        joined = _sent(state).joined
        if joined != generation and not is_fresh:
            state = self._roster.member(name, member_id, instance_id, generation, is_fresh=True)
            joined = _sent(state).joined
        self._members.serve(state)
        if joined != generation:
            raise CommandRefused(
                ErrorCode.ILLEGAL_GENERATION, f"member {member_id!r} has generation {joined}, not {generation}"
            )
        return state

    def _check_shared(self, named: Joining, protocol_type: str, names: set[str]) -> None:
        _, led = self._round(named.group_id)
        for member in led:
            if member.state.member_id == named.member_id or (
                named.instance_id and member.state.instance_id == named.instance_id
            ):
                continue
            names &= set(member.sent.names)
            if member.sent.protocol_type != protocol_type or not names:
                raise CommandRefused(
                    INCONSISTENT_GROUP_PROTOCOL,
                    f"a member of type {protocol_type!r} shares no protocol with the others of its group",
                )

    def _put(self, named: Joining, member_id: str, topics: tuple[str, ...], sent: Sent) -> None:
        join = JoinGroup(
            request_id=self._log.ids.token(),
            group_id=named.group_id,
            member_id=member_id,
            topics=topics,
            session_timeout_ms=named.session_timeout_ms,
            rebalance_timeout_ms=named.rebalance_timeout_ms,
            assignors=("uniform",),
            classic=True,
            instance_id=named.instance_id,
            client_id=named.client_id,
            host=msgspec.json.encode(sent).decode(),
        )
        self._roster.submit_join(join)

    def _epoch(self, name: str) -> int:
        group = self._log.group(name)
        return _NO_EPOCH if group is None else group.epoch

    def _leader_of(self, group_id: str, generation: int) -> Led:
        """Return the leader of a generation, if it is the newest."""
        epoch, led = self._round(members_name(group_id))
        if epoch != generation:
            raise _rebalances(group_id)
        return _leader(led)

    def _round(self, name: str) -> tuple[int, list[Led]]:
        """Return the epoch that a group's members are to have joined for, and the members: both of one state."""
        with self._log.last_known() as state:
            group, members = state.group(name), state.group_members(name)
        return _NO_EPOCH if group is None else group.epoch, [Led(member, _sent(member)) for member in members]


def _leader(led: Sequence[Led]) -> Led:
    """Return the member that has led last; of those that never have, the one with the least id."""
    return min(led, key=lambda member: (-member.sent.assigned, member.state.member_id))


def _chosen(preferences: Sequence[list[str]]) -> str:
    """Return the protocol that most members prefer, of those that all of them have."""
    shared = [name for name in preferences[0] if all(name in names for names in preferences)] or preferences[0]
    votes = [next((name for name in names if name in shared), shared[0]) for names in preferences]
    return max(shared, key=votes.count)


def _as_joined(state: MemberState) -> Joining:
    return Joining(
        state.group_id,
        state.member_id,
        state.instance_id,
        state.client_id,
        state.session_timeout_ms,
        state.rebalance_timeout_ms,
        needs_id=False,
    )


def _sent(state: MemberState) -> Sent:
    return msgspec.json.decode(state.host, type=Sent)


def _rebalances(group_id: str) -> CommandRefused:
    return CommandRefused(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group_id!r} has changed: join again")
