"""Membership of consumer groups: joining, subscribing, giving partitions back, leaving and expiring (KIP-848).

A command changes the members of a group, and the same entry divides the partitions anew (`reconciliation.py`). No
command compares times: a proposer measures, and names what it has seen of the member.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sparktxn._engine.format.commands import (
    CommandResult,
    ExpireMember,
    JoinGroup,
    LeaveGroup,
    ReleasePartitions,
    UpdateMember,
)
from sparktxn._engine.format.names import check_topic_name
from sparktxn._engine.state import limits
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.groups.assignors import ASSIGNORS
from sparktxn._engine.state.groups.reconciliation import Roster
from sparktxn._engine.state.requests import remember, remembered
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import MemberState
from sparktxn.errors import ConfigurationError, ErrorCode

_SESSION: Final = "session"
_REBALANCE: Final = "rebalance"


def join_group(delta: Delta, command: JoinGroup, context: Context) -> CommandResult | Refusal:
    """Make a consumer a member; one that is a member already has begun anew, and read nothing yet."""
    if known := remembered(delta, context, command.request_id):
        return known
    if refusal := _check_join(command) or _check_topics(command.topics):
        return refusal
    roster = Roster(delta, context, command.group_id)
    member = roster.members.get(command.member_id)
    if member is not None and member.instance_id != command.instance_id:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"member {command.member_id!r} of group {command.group_id!r} has instance id {member.instance_id!r}, not "
            f"{command.instance_id!r}: join under a new member id",
        )
    holder = roster.holder_of(command.instance_id) if member is None else None
    if holder is not None and not (holder.left or command.classic):
        return Refusal(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"a consumer of group {command.group_id!r} has group.instance.id {command.instance_id!r} and is running: "
            "close it first, or give each consumer its own",
        )
    if member is None and holder is None and len(roster.members) >= limits.GROUP_MEMBERS_MAX:
        return Refusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {command.group_id!r} has {counted(len(roster.members), 'member')}, and takes no more",
        )
    _admit(roster, member, holder, command, context)
    return remember(delta, context, command.request_id, CommandResult())


def _admit(
    roster: Roster, member: MemberState | None, holder: MemberState | None, command: JoinGroup, context: Context
) -> None:
    """Add the consumer to the members: anew, again as `member`, or in the place of the static member `holder`."""
    joined = MemberState(
        command.group_id,
        command.member_id,
        command.instance_id,
        command.client_id,
        command.host,
        command.topics,
        command.session_timeout_ms,
        command.rebalance_timeout_ms,
        command.assignors,
        command.classic,
        member_epoch=0,
        last_entry=context.entry,
    )
    before = member or holder
    if member is not None:
        joined = replace(joined, member_epoch=member.member_epoch, target=member.target, assigned=member.assigned)
    elif holder is not None:
        # What the member before held, this one gets in this epoch: whatever that one has sent is older.
        joined = replace(joined, target=holder.target)
        del roster.members[holder.member_id]
    roster.members[command.member_id] = joined
    if before is None or (before.topics, before.assignors) != (joined.topics, joined.assignors):
        roster.rebalance()
    elif holder is not None:
        roster.renew()
    else:
        roster.reconcile()


def update_member(delta: Delta, command: UpdateMember, context: Context) -> CommandResult | Refusal:
    """Change what a member subscribes to; the group's partitions are divided anew if that differs."""
    if known := remembered(delta, context, command.request_id):
        return known
    if refusal := _check_topics(command.topics):
        return refusal
    roster = Roster(delta, context, command.group_id)
    member = _known_member(roster, command)
    if isinstance(member, Refusal):
        return member
    roster.members[member.member_id] = replace(member, topics=command.topics, last_entry=context.entry)
    if command.topics != member.topics:
        roster.rebalance()
    else:
        roster.reconcile()
    return remember(delta, context, command.request_id, CommandResult())


def release_partitions(delta: Delta, command: ReleasePartitions, context: Context) -> CommandResult | Refusal:
    """Take back partitions that the member owes, unless what it owes has changed since it was asked.

    A release that comes late must not take away a partition that the member was given again, reads, and owes anew.
    """
    if known := remembered(delta, context, command.request_id):
        return known
    roster = Roster(delta, context, command.group_id)
    member = _known_member(roster, command)
    if isinstance(member, Refusal):
        return member
    given = set(command.partitions) if command.changed_entry == member.changed_entry else set()
    kept = tuple(held for held in member.revoking if (held.topic_id, held.partition) not in given)
    roster.members[member.member_id] = replace(member, revoking=kept, last_entry=context.entry)
    roster.reconcile()
    return remember(delta, context, command.request_id, CommandResult())


def leave_group(delta: Delta, command: LeaveGroup, context: Context) -> CommandResult | Refusal:
    """Take the member out of the group, or note that it is away; a consumer that is not a member has left."""
    if known := remembered(delta, context, command.request_id):
        return known
    roster = Roster(delta, context, command.group_id)
    member = roster.members.get(command.member_id)
    if member is None:
        return CommandResult(duplicate=True)
    if command.keeps_place and member.instance_id:
        away = replace(member, left=True, last_entry=context.entry)
        roster.members[member.member_id] = away
        roster.reconcile()
    else:
        del roster.members[member.member_id]
        roster.rebalance()
    return remember(delta, context, command.request_id, CommandResult())


def expire_member(delta: Delta, command: ExpireMember, context: Context) -> CommandResult | Refusal:
    """Take out a member that has been silent, or owes partitions, since what the proposer saw; else do nothing."""
    if command.reason not in (_SESSION, _REBALANCE):
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"reason {command.reason!r} is not valid: expected 'session' or 'rebalance'"
        )
    roster = Roster(delta, context, command.group_id)
    member = roster.members.get(command.member_id)
    if member is None or member.member_epoch < command.member_epoch:
        return CommandResult(duplicate=True)
    is_session = command.reason == _SESSION
    if command.last_entry != (member.last_entry if is_session else member.changed_entry):
        return CommandResult(duplicate=True)
    if not is_session and not member.revoking:
        return CommandResult(duplicate=True)
    timeout_ms = member.session_timeout_ms if is_session else member.rebalance_timeout_ms
    if command.after_ms < timeout_ms:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"member {command.member_id!r} of group {command.group_id!r} has {timeout_ms} ms, and expires after "
            f"{command.after_ms} ms",
        )
    del roster.members[member.member_id]
    roster.rebalance()
    return CommandResult.EMPTY


def _check_join(command: JoinGroup) -> Refusal | None:
    if not command.group_id:
        return Refusal(ErrorCode.INVALID_REQUEST, "the group id is empty")
    if not command.member_id:
        return Refusal(ErrorCode.INVALID_REQUEST, "the member id is empty: the consumer chooses one")
    for timeout_ms in (command.session_timeout_ms, command.rebalance_timeout_ms):
        if not 1 <= timeout_ms <= limits.GROUP_TIMEOUT_MS_MAX:
            return Refusal(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"time-out {timeout_ms} ms of a member is out of range: expected 1 to {limits.GROUP_TIMEOUT_MS_MAX}",
            )
    unknown = [name for name in command.assignors if name not in ASSIGNORS]
    if unknown or not command.assignors:
        return Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"assignors {command.assignors} are not supported: expected one or more of {', '.join(ASSIGNORS)}",
        )
    return None


def _check_topics(topics: tuple[str, ...]) -> Refusal | None:
    if topics != tuple(sorted(set(topics))):
        return Refusal(ErrorCode.INVALID_REQUEST, "the topics of a subscription are not sorted, or one occurs twice")
    for name in topics:
        try:
            check_topic_name(name)
        except ConfigurationError as error:
            return Refusal(ErrorCode.INVALID_TOPIC, str(error))
    return None


def _known_member(roster: Roster, command: UpdateMember | ReleasePartitions) -> MemberState | Refusal:
    member = roster.members.get(command.member_id)
    if member is None:
        return Refusal(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {command.group_id!r} has no member {command.member_id!r}, or no longer: join again",
        )
    if command.member_epoch > member.member_epoch:
        return Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member {command.member_id!r} of group {command.group_id!r} has epoch {member.member_epoch}, and the "
            f"command names {command.member_epoch}: join again",
        )
    return member
