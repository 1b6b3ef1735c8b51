"""Which members the log has, for the requests that name them; Kafka's codes for those that it has not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from sparktxn._engine.format.commands import JoinGroup, LeaveGroup
from sparktxn._engine.log.log import Log
from sparktxn._foundation.values.structs import HeldPartition, MemberState
from sparktxn._programs.gateway.groups.members import Members
from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.store.memberexpiry import reserved_because, submit_join
from sparktxn.store.options import TopicIdPartition

INCONSISTENT_GROUP_PROTOCOL: Final = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
MEMBER_ID_REQUIRED: Final = 79
_INVALID_GROUP_ID: Final = 24

_SESSION_MS_MIN: Final = 100
_SESSION_MS_MAX: Final = 1_800_000
_FRESH_S: Final = 0.1
"""How old the state may be that a heartbeat goes by."""


class Joining(NamedTuple):
    """A request to join. A new member that `needs_id` is given an id, and joins with it then."""

    group_id: str
    member_id: str
    instance_id: str
    client_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    needs_id: bool


def check_group_id(group_id: str) -> None:
    """Check that a client may use a group of this name.

    Raises:
        CommandRefused: INVALID_GROUP_ID.
    """
    if reason := reserved_because(group_id):
        raise CommandRefused(_INVALID_GROUP_ID, reason)


class GroupRosters:
    """The members of all groups, as the log has them. Its methods wait for the store: they are for threads."""

    def __init__(self, log: Log, members: Members) -> None:
        self._log = log
        self._members = members

    def joining(self, asked: Joining) -> MemberState | None:
        """Return the member that joins again; None for one that is to be added.

        Raises:
            CommandRefused: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID;
                MEMBER_ID_REQUIRED: its text is the id.
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
        state = self._log.member(asked.group_id, asked.member_id) if asked.member_id else None
        if asked.instance_id:
            if asked.member_id and (state is None or state.instance_id != asked.instance_id):
                raise self._not_static(asked.group_id, asked.member_id, asked.instance_id)
            return state
        if state is not None or self._members.is_expected(asked.group_id, asked.member_id):
            return state
        if asked.member_id:
            raise unknown_member(asked.group_id, asked.member_id)
        if asked.needs_id:
            member_id = self._members.new_id(asked.client_id)
            self._members.expect(asked.group_id, member_id)
            raise CommandRefused(MEMBER_ID_REQUIRED, member_id)
        return None

    def submit_join(self, join: JoinGroup) -> None:
        """Join, as `store.joining.submit_join`.

        Raises:
            CommandRefused: GROUP_MAX_SIZE_REACHED, UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, INVALID_TOPIC;
                INCONSISTENT_GROUP_PROTOCOL, the group has members of the other kind.
            StoreError: call again.
        """
        submit_join(self._log, join)

    def member(
        self, group_id: str, member_id: str, instance_id: str, generation: int = -1, *, is_fresh: bool = False
    ) -> MemberState:
        """Return what the log says of a member: as of now, or of a moment ago unless the member were refused by that.

        Raises:
            CommandRefused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
            StoreError: call again.
        """
        self._log.refresh(max_age_s=0 if is_fresh else _FRESH_S)
        state = self._log.member(group_id, member_id)
        if not is_fresh and (state is None or state.member_epoch < generation):
            self._log.refresh()
            state = self._log.member(group_id, member_id)
        if state is None or (instance_id and state.instance_id != instance_id):
            self._members.forget(group_id, member_id)
            raise (
                self._not_static(group_id, member_id, instance_id)
                if instance_id
                else unknown_member(group_id, member_id)
            )
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
                raise unknown_member(group_id, instance_id)
            member_id = found[0].member_id
        else:
            self.member(group_id, member_id, instance_id)
        self._log.submit([LeaveGroup(self._log.ids.token(), group_id, member_id)])
        self._members.forget(group_id, member_id)
        return member_id

    def _not_static(self, group_id: str, member_id: str, instance_id: str) -> CommandRefused:
        if any(other.instance_id == instance_id for other in self._log.group_members(group_id)):
            return CommandRefused(
                ErrorCode.FENCED_INSTANCE_ID,
                f"another consumer of group {group_id!r} has joined with group.instance.id {instance_id!r}: give each "
                "consumer its own",
            )
        return unknown_member(group_id, member_id)


def unknown_member(group_id: str, member_id: str) -> CommandRefused:
    """Return the refusal of a member that the log does not have."""
    return CommandRefused(
        ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id!r} has no member {member_id!r}, or no longer: join again"
    )


def places_of(held: Iterable[HeldPartition]) -> list[TopicIdPartition]:
    """Return the partitions that the member holds; their times are left out."""
    return [(one.topic_id, one.partition) for one in held]
