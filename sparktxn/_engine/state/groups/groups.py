"""Consumer groups: committed offsets, those that wait for their transaction (KIP-447), and who holds a partition.

Who is a member is in `membership.py`.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sparktxn._engine.format.commands import CommandResult, DeleteGroup, OffsetCommit, TxnOffsetCommit
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.internal import partition_exists
from sparktxn._engine.state.limits import METADATA_BYTES_MAX
from sparktxn._engine.state.requests import remember, remembered
from sparktxn._engine.state.transactions.transactions import join_transaction
from sparktxn._foundation.values.structs import (
    NO_PRODUCER_ID,
    CommittedOffset,
    GroupState,
    MemberState,
    PendingOffset,
    PendingOffsets,
)
from sparktxn.errors import ErrorCode

__all__ = [
    "METADATA_BYTES_MAX",
    "check_member",
    "delete_group",
    "end_offset",
    "note_sign_of_life",
    "offset_commit",
    "pending_offsets",
    "txn_offset_commit",
]


# Fencing of a group's commits: a member commits offsets only for partitions that it holds (KIP-1251).
#
# A partition bears the epoch since which its member holds it. A commit is accepted if that is not above the epoch
# that the member names, and this not above the member's own. So an entry that moves other partitions refuses no
# commit that is under way, and a former owner is refused whatever it names.


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


_REMEDY: Final = (
    "One consumer of a group may read a partition: stop the other one, or assign() different partitions to each. "
    "To continue with this consumer, abort its transaction, and subscribe() again or seek() to what committed() returns"
)


def _check(delta: Delta, command: OffsetCommit | TxnOffsetCommit) -> Refusal | None:
    if not command.group_id:
        return Refusal(ErrorCode.INVALID_REQUEST, "the group id is empty")
    for offset in command.offsets:
        where = f"partition {offset.partition} of topic id {offset.topic_id}"
        if not partition_exists(delta.get, offset.topic_id, offset.partition):
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} does not exist, or no longer")
        if offset.offset < 0:
            return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset.offset} for {where} is below 0")
        if offset.metadata is not None and len(offset.metadata.encode()) > METADATA_BYTES_MAX:
            return Refusal(
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
                f"the metadata for {where} has more than {METADATA_BYTES_MAX} bytes",
            )
    return None


def _check_owner(delta: Delta, command: OffsetCommit | TxnOffsetCommit, producer_id: int) -> Refusal | None:
    """Refuse offsets that another consumer of the group has moved since this one started from them.

    The consumer's own commits move its start along: an offset whose owner is the same is never in the way.
    """
    group_id, owner = command.group_id, command.owner
    for offset in command.offsets:
        if offset.started_from < 0:
            continue
        where = f"partition {offset.partition} of topic id {offset.topic_id}"
        current: CommittedOffset | None = delta.get(("offset", group_id, offset.topic_id, offset.partition))
        moved = current is not None and current.effective_entry != offset.started_from
        if current is not None and moved and not (owner and current.owner == owner):
            started = f"the one of entry {offset.started_from}" if offset.started_from else "none"
            return Refusal(
                ErrorCode.ILLEGAL_GENERATION,
                f"another consumer of group {group_id!r}, or an administrator, has committed offset {current.offset} "
                f"for {where} in entry {current.effective_entry}; this consumer has started from {started}. {_REMEDY}",
            )
        for pending in pending_offsets(delta, group_id, offset.topic_id, offset.partition):
            if pending.producer_id != producer_id and not (owner and pending.owner == owner):
                return Refusal(
                    ErrorCode.ILLEGAL_GENERATION,
                    f"the open transaction of {pending.transactional_id!r} holds offset {pending.offset} of another "
                    f"consumer of group {group_id!r} for {where}. {_REMEDY}",
                )
    return None


def pending_offsets(delta: Delta, group_id: str, topic_id: int, partition: int) -> tuple[PendingOffset, ...]:
    """Return a group's offsets for a partition that are in open transactions."""
    found: PendingOffsets | None = delta.get(("pending_offsets", group_id, topic_id, partition))
    return () if found is None else found.offsets


def _put_pending(delta: Delta, where: tuple[str, int, int], producer_id: int, offset: PendingOffset | None) -> None:
    """Set a producer's pending offset, or remove it."""
    others = [pending for pending in pending_offsets(delta, *where) if pending.producer_id != producer_id]
    offsets = others if offset is None else sorted([*others, offset], key=lambda pending: pending.producer_id)
    if offsets:
        delta.put(PendingOffsets(*where, tuple(offsets)))
    else:
        delta.remove(("pending_offsets", *where))


def offset_commit(delta: Delta, command: OffsetCommit, context: Context) -> CommandResult | Refusal:
    """Set a group's offsets; they win over transactional ones that were sent before."""
    if known := remembered(delta, context, command.request_id):
        return known
    if refusal := _check(delta, command) or check_member(delta, command, ErrorCode.STALE_MEMBER_EPOCH):
        return refusal
    if refusal := _check_owner(delta, command, NO_PRODUCER_ID):
        return refusal
    note_sign_of_life(delta, command, context)
    for offset in command.offsets:
        delta.put(
            CommittedOffset(
                command.group_id,
                offset.topic_id,
                offset.partition,
                offset.offset,
                offset.metadata,
                offset.leader_epoch,
                context.timestamp_ms,
                context.entry,
                context.entry,
                command.owner,
            )
        )
    return remember(delta, context, command.request_id, CommandResult())


def txn_offset_commit(delta: Delta, command: TxnOffsetCommit, context: Context) -> CommandResult | Refusal:
    """Note a group's offsets in a transaction; they take effect if it commits."""
    begun = join_transaction(delta, command, context, ErrorCode.PRODUCER_FENCED)
    if isinstance(begun, Refusal):
        return begun
    if begun.transaction.prepared is not None:
        return _after_preparing(delta, command)
    if begun.ended:
        return CommandResult(duplicate=True)
    if refusal := _check(delta, command) or check_member(delta, command, ErrorCode.ILLEGAL_GENERATION):
        return refusal
    if refusal := _check_owner(delta, command, command.producer_id):
        return refusal
    note_sign_of_life(delta, command, context)
    waiting = set(begun.transaction.offsets)
    for offset in command.offsets:
        where = (command.group_id, offset.topic_id, offset.partition)
        waiting.add(where)
        pending = PendingOffset(
            command.transactional_id,
            command.producer_id,
            offset.offset,
            offset.metadata,
            offset.leader_epoch,
            context.entry,
            command.owner,
        )
        _put_pending(delta, where, command.producer_id, pending)
    delta.put(replace(begun.transaction, offsets=tuple(sorted(waiting))))
    return CommandResult()


def _after_preparing(delta: Delta, command: TxnOffsetCommit) -> CommandResult | Refusal:
    """Let a prepared transaction take no offsets, except a repetition of what it has noted."""
    for offset in command.offsets:
        pending = _pending_of(delta, (command.group_id, offset.topic_id, offset.partition), command.producer_id)
        given = (offset.offset, offset.metadata, offset.leader_epoch)
        if pending is None or (pending.offset, pending.metadata, pending.leader_epoch) != given:
            return Refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"transaction {command.transaction} of {command.transactional_id!r} is prepared: "
                "it takes no more offsets",
            )
    return CommandResult(duplicate=True)


def end_offset(delta: Delta, where: tuple[str, int, int], producer_id: int, committed: bool, context: Context) -> None:
    """End a producer's pending offset: of two commits for one partition, the one sent later stands (K104, K108)."""
    pending = _pending_of(delta, where, producer_id)
    if pending is None:
        return
    _put_pending(delta, where, producer_id, None)
    current: CommittedOffset | None = delta.get(("offset", *where))
    if committed and (current is None or current.entry <= pending.entry):
        delta.put(
            CommittedOffset(
                *where,
                pending.offset,
                pending.metadata,
                pending.leader_epoch,
                context.timestamp_ms,
                pending.entry,
                context.entry,
                pending.owner,
            )
        )


def _pending_of(delta: Delta, where: tuple[str, int, int], producer_id: int) -> PendingOffset | None:
    """Return a producer's pending offset, or None."""
    found = (pending for pending in pending_offsets(delta, *where) if pending.producer_id == producer_id)
    return next(found, None)


def delete_group(delta: Delta, command: DeleteGroup, context: Context) -> CommandResult | Refusal:
    """Forget a group's offsets that are as the proposer saw them; a transaction that held some ends without (K109)."""
    if known := remembered(delta, context, command.request_id):
        return known
    if delta.get(("group", command.group_id)) is not None:
        return Refusal(
            ErrorCode.NON_EMPTY_GROUP, f"group {command.group_id!r} has members: close its consumers, or remove them"
        )
    for topic_id, partition, entry in command.offsets:
        offset: CommittedOffset | None = delta.get(("offset", command.group_id, topic_id, partition))
        if offset is not None and offset.entry == entry:
            delta.remove(offset.key)
    for topic_id, partition, producer_id, entry in command.pending:
        where = (command.group_id, topic_id, partition)
        pending = _pending_of(delta, where, producer_id)
        if pending is not None and pending.entry == entry:
            _put_pending(delta, where, producer_id, None)
    return remember(delta, context, command.request_id, CommandResult())
