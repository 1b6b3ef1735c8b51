"""Fencing of a group's commits: a member commits offsets only for partitions that it holds (KIP-1251).

A partition bears the epoch since which its member holds it. A commit is accepted if that is not above the epoch that
the member names, and this not above the member's own. So an entry that moves other partitions refuses no commit that is
under way, and a former owner is refused whatever it names.
"""

from __future__ import annotations

from msgspec.structs import replace

from sparktxn.errors import ErrorCode
from sparktxn.format.commands import OffsetCommit, TxnOffsetCommit
from sparktxn.state.delta import Context, Delta, Refusal
from sparktxn.values.structs import GroupState, MemberState

__all__ = ["check_member", "note_sign_of_life"]


def check_member(
    delta: Delta,
    command: OffsetCommit | TxnOffsetCommit,
    fenced_code: ErrorCode = ErrorCode.STALE_MEMBER_EPOCH,
) -> Refusal | None:
    """Refuse offsets of a consumer that is not a member of a group with members, or does not hold their partitions.

    `fenced_code` is the code for a member that does not hold a partition; ILLEGAL_GENERATION for one of Kafka's older
    protocol.
    """
    group: GroupState | None = delta.get(("group", command.group_id))
    if not command.member_id:
        if group is not None:
            return Refusal(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {command.group_id!r} has members, and this commit names none: commit with the consumer that "
                "the group has given the partition, or use another group.id",
            )
        if command.generation_id >= 0:
            return Refusal(
                ErrorCode.ILLEGAL_GENERATION, f"group {command.group_id!r} has no generation {command.generation_id}"
            )
        return None
    member: MemberState | None = delta.get(("member", command.group_id, command.member_id))
    if member is None or member.instance_id != (command.instance_id or member.instance_id):
        return _unknown_member(delta, command)
    reason = _why_not_held(member, command)
    if reason is None:
        return None
    return Refusal(ErrorCode.ILLEGAL_GENERATION, reason) if member.classic else Refusal(fenced_code, reason)


def _why_not_held(member: MemberState, command: OffsetCommit | TxnOffsetCommit) -> str | None:
    """Return why the member does not hold a partition of the commit in the epoch that it names; None if it does."""
    epoch = command.generation_id
    who = f"member {member.member_id!r} of group {member.group_id!r}"
    if epoch > member.member_epoch:
        return f"{who} has epoch {member.member_epoch}, and the commit names {epoch}"
    since = {(held.topic_id, held.partition): held.since_epoch for held in (*member.assigned, *member.revoking)}
    for offset in command.offsets:
        held_since = since.get((offset.topic_id, offset.partition))
        if held_since is None or held_since > epoch:
            return (
                f"{who} does not hold partition {offset.partition} of topic id {offset.topic_id} in epoch {epoch}: the "
                "group has given it to another member, which continues from the last committed offset"
            )
    return None


def _unknown_member(delta: Delta, command: OffsetCommit | TxnOffsetCommit) -> Refusal:
    """Return the refusal for a consumer that is not a member: another one has its instance id, or it has expired.

    A consumer whose instance id another member has is fenced for good. Any other one may join again.
    """
    group: GroupState | None = delta.get(("group", command.group_id))
    for other_id in group.members if group is not None and command.instance_id else ():
        other: MemberState = delta.get(("member", command.group_id, other_id))
        if other.instance_id == command.instance_id:
            return Refusal(
                ErrorCode.FENCED_INSTANCE_ID,
                f"another consumer of group {command.group_id!r} has joined with group.instance.id "
                f"{command.instance_id!r}: give each consumer its own",
            )
    return Refusal(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"group {command.group_id!r} has no member {command.member_id!r}, or no longer: join again",
    )


def note_sign_of_life(delta: Delta, command: OffsetCommit | TxnOffsetCommit, context: Context) -> None:
    """Note in the record of the member that a commit names that it has lived in this entry."""
    if command.member_id:
        member: MemberState = delta.get(("member", command.group_id, command.member_id))
        delta.put(replace(member, last_entry=context.entry))
