"""Half transactions: records that wait, invisible and without offsets, for the outcome of a local transaction.

They are RocketMQ's transactional messages (PROTOCOL.md, "Half transactions"). A half transaction is named by a
producer group and a transaction id. The first settlement wins, whether it comes from the producer or from a check. On
commit its segments get their places at the ends of their partitions, in the entry that commits it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from sparktxn._engine.format.commands import (
    CheckHalf,
    CommandResult,
    DeleteHalf,
    DiscardHalf,
    EndHalf,
    PrepareHalf,
    ResumeHalf,
)
from sparktxn._engine.format.names import carried_segment, inline_file_name, is_inline, segment_token
from sparktxn._engine.state.delta import Context, Delta, ReadState, Refusal
from sparktxn._engine.state.limits import HALF_WAIT_MS_MAX, LOG_END_OFFSET_MAX, TIMESTAMP_MS_MAX
from sparktxn._engine.state.requests import REQUEST_WINDOW
from sparktxn._engine.state.settings import half_rejection
from sparktxn._engine.state.transactions.partitions import check_born, inline_problem, segment_problem
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import (
    HalfDue,
    HalfOutcome,
    HalfOutcomes,
    HalfSegment,
    HalfState,
    PartitionSegments,
    PartitionState,
    SegmentRef,
    SettledHalf,
    StateKey,
    StoreState,
    TopicState,
)
from sparktxn.errors import ErrorCode

HALF_OUTCOME_BUCKETS: Final = 1_024
"""Records over which the outcomes of settled half transactions are spread."""

HALF_OUTCOMES_KEPT: Final = 32
"""Outcomes that a bucket keeps, however old they are. Those of the window's entries are kept in any case."""

_DUE_SLOT_BITS: Final = 13
_SAID: Final = {
    HalfOutcome.COMMITTED: "committed",
    HalfOutcome.ROLLED_BACK: "rolled back",
    HalfOutcome.DELETED: "deleted",
}


def outcomes_key(transaction_id: str) -> StateKey:
    """Return the key of the record that keeps the outcome of a half transaction."""
    return ("half_outcomes", zlib.crc32(transaction_id.encode("utf-8", "surrogatepass")) % HALF_OUTCOME_BUCKETS)


def due_slot(due_ms: int) -> int:
    """Return the slot of a due time: the parts that say what is due go by slots of 8,192 ms."""
    return due_ms >> _DUE_SLOT_BITS


def settled_half(read: ReadState, group_id: str, transaction_id: str) -> SettledHalf | None:
    """Return how a half transaction was settled; None if it is not settled, or not remembered."""
    known: HalfOutcomes | None = read(outcomes_key(transaction_id))
    for settled in reversed(known.settled) if known else ():
        if (settled.group_id, settled.transaction_id) == (group_id, transaction_id):
            return settled
    return None


def prepare_half(delta: Delta, command: PrepareHalf, context: Context) -> CommandResult | Refusal:
    """Note a half transaction, or add segments to one that is pending.

    A repetition, which names segments that it has, changes nothing. Inline segments get names that say which entry
    carries them: it is not the one that places them.
    """
    named = _named(command)
    if not command.group_id or not command.transaction_id or not command.segments:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"{named} has no group, no transaction id or no segment: it needs all of them"
        )
    known: HalfState | None = delta.get(("half", command.group_id, command.transaction_id))
    settled = settled_half(delta.get, command.group_id, command.transaction_id)
    sent = _as_sent(known.segments) if known is not None else ()
    count = len(sent)
    if settled is not None or (known is not None and sent[: len(command.segments)] == command.segments):
        if settled is None or _is_of(settled, command):
            return CommandResult(duplicate=True)
        return Refusal(ErrorCode.INVALID_TXN_STATE, f"{named} has been {_said(settled)}: it takes no more messages")
    if known is not None and known.discarded_entry:
        return Refusal(ErrorCode.INVALID_TXN_STATE, f"{named} {_discarded(known)}")
    if known is not None and sent != command.segments[:count]:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{named} exists with other messages: use a new transaction id")
    if refusal := _check_new(delta, command, command.segments[count:], context):
        return refusal
    if refusal := _check_wait(named, command.immunity_ms):
        return refusal
    due_ms = _after(context, command.immunity_ms)
    added = tuple(_as_carried(segment, context) for segment in command.segments[count:])
    if known is not None:
        _remove_due(delta, known)
        half = replace(known, segments=known.segments + added, immunity_ms=command.immunity_ms, due_ms=due_ms)
    else:
        half = HalfState(
            group_id=command.group_id,
            transaction_id=command.transaction_id,
            segments=added,
            immunity_ms=command.immunity_ms,
            prepared_entry=context.entry,
            prepared_timestamp_ms=context.timestamp_ms,
            due_ms=due_ms,
        )
    _put_pending_half(delta, half, command.immunity_ms, context)
    return CommandResult()


def rejection(read: ReadState, commands: Iterable[PrepareHalf]) -> Refusal | None:
    """Return why a topic, or the store, rejects what a list with `commands` leaves pending.

    A message that is committed by its own list is an ordinary one. `read` reads the state after the list.
    """
    store: StoreState = read(("store",)) or StoreState()
    for command in commands:
        if read(("half", command.group_id, command.transaction_id)) is None:
            continue
        for segment in command.segments:
            topic: TopicState | None = read(("topic", segment.topic))
            if topic is not None and (refusal := half_rejection(topic, store)):
                return refusal
    return None


def check_half(delta: Delta, command: CheckHalf, context: Context) -> CommandResult | Refusal:
    """Claim a check: of two claims that have seen the same number of checks, the first one wins."""
    half = _pending_half(delta, command)
    if isinstance(half, Refusal):
        return half
    named = _named(command)
    if command.checker and (command.checks + 1, command.checker) == (half.checks, half.checker):
        return CommandResult(duplicate=True)
    if command.checks != half.checks or not command.checker:
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"{named} has been checked {counted(half.checks, 'time')}, not {command.checks}: another "
            "checker has claimed this one",
        )
    if refusal := _check_wait(named, command.wait_ms):
        return refusal
    _remove_due(delta, half)
    due_ms = _after(context, command.wait_ms)
    checked = replace(half, checks=half.checks + 1, checker=command.checker, due_ms=due_ms)
    _put_pending_half(delta, checked, command.wait_ms, context)
    return CommandResult()


def end_half(delta: Delta, command: EndHalf, context: Context) -> CommandResult | Refusal:
    """Commit a half transaction or roll it back: the first settlement wins, and the same one again changes nothing.

    A discarded one is refused either way, until it is resumed.
    """
    outcome = HalfOutcome.COMMITTED if command.committed else HalfOutcome.ROLLED_BACK
    settled = settled_half(delta.get, command.group_id, command.transaction_id)
    if settled is not None and settled.outcome == outcome:
        return CommandResult(duplicate=True, committed=command.committed)
    half = _pending_half(delta, command)
    if isinstance(half, Refusal):
        return half
    named = _named(command)
    for segment in half.segments if command.committed else ():
        if refusal := _place(delta, segment, named, context):
            return refusal
    _settle_half(delta, half, outcome, "check" if command.by_check else "client", context)
    return CommandResult(committed=command.committed)


def discard_half(delta: Delta, command: DiscardHalf, context: Context) -> CommandResult | Refusal:
    """Discard a half transaction whose number of checks is the one that was seen: it is kept, and checked no more."""
    half = _unsettled_half(delta, command)
    if isinstance(half, Refusal):
        return half
    if half.discarded_entry:
        return CommandResult(duplicate=True)
    if command.checks != half.checks:
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"{_named(command)} has been checked {counted(half.checks, 'time')}, not {command.checks}: read it again",
        )
    _remove_due(delta, half)
    delta.put(replace(half, discarded_entry=context.entry))
    return CommandResult()


def resume_half(delta: Delta, command: ResumeHalf, context: Context) -> CommandResult | Refusal:
    """Make a discarded half transaction pending again, with no checks."""
    half = _unsettled_half(delta, command)
    if isinstance(half, Refusal):
        return half
    if refusal := _check_wait(_named(command), command.wait_ms):
        return refusal
    if not half.discarded_entry:
        return CommandResult(duplicate=True)
    due_ms = _after(context, command.wait_ms)
    resumed = replace(half, checks=0, checker="", due_ms=due_ms, discarded_entry=0)
    _put_pending_half(delta, resumed, command.wait_ms, context)
    return CommandResult()


def delete_half(delta: Delta, command: DeleteHalf, context: Context) -> CommandResult | Refusal:
    """Settle a discarded half transaction without any effect."""
    settled = settled_half(delta.get, command.group_id, command.transaction_id)
    if settled is not None and settled.outcome == HalfOutcome.DELETED:
        return CommandResult(duplicate=True)
    half = _unsettled_half(delta, command)
    if isinstance(half, Refusal):
        return half
    if not half.discarded_entry:
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"{_named(command)} is pending: discard it first, or let its checker decide",
        )
    _settle_half(delta, half, HalfOutcome.DELETED, "administrator", context)
    return CommandResult()


def _check_new(
    delta: Delta, command: PrepareHalf, segments: tuple[HalfSegment, ...], context: Context
) -> Refusal | None:
    """Refuse segments that a half transaction cannot take, and records of no segment."""
    named = _named(command)
    for segment in segments:
        topic: TopicState | None = delta.get(("topic", segment.topic))
        exists = topic is not None and topic.topic_id == segment.topic_id
        if not exists or delta.get(("partition", segment.topic_id, segment.partition)) is None:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _missing(named, segment))
        data = command.data.get(segment.segment, b"")
        if problem := segment_problem(segment) or inline_problem(segment, data):
            return Refusal(ErrorCode.INVALID_RECORD, f"segment {segment.segment!r} has {problem}")
        # No vacuum deletes the entry that is about to carry the records.
        if not data and (refusal := check_born(delta, segment.segment, context)):
            return refusal
    if not command.data.keys() <= {segment.segment for segment in command.segments}:
        return Refusal(ErrorCode.INVALID_RECORD, f"{named} has inline records of no segment of it")
    return None


def _as_sent(segments: tuple[HalfSegment, ...]) -> tuple[HalfSegment, ...]:
    """Return segments under the names that their `prepare_half` gave them."""
    return tuple(replace(segment, segment=inline_file_name(segment.segment)) for segment in segments)


def _as_carried(segment: HalfSegment, context: Context) -> HalfSegment:
    """Return a segment under the name that says which entry carries it, if one does."""
    if not is_inline(segment.segment):
        return segment
    return replace(segment, segment=carried_segment(segment.segment, context.entry))


def _named(command: Any) -> str:
    return f"half transaction {command.transaction_id!r} of producer group {command.group_id!r}"


def _discarded(half: HalfState) -> str:
    return (
        f"was discarded after {counted(half.checks, 'check')}: an administrator may resume or delete it; "
        "nothing of it took effect"
    )


def _missing(named: str, segment: HalfSegment) -> str:
    where = f"partition {segment.partition} of topic {segment.topic!r} (id {segment.topic_id})"
    return f"{where} does not exist, or no longer: {named} cannot be committed; roll it back"


def _is_of(settled: SettledHalf, command: PrepareHalf) -> bool:
    return settled.token == segment_token(command.segments[-1].segment)


def _said(settled: SettledHalf) -> str:
    return f"{_SAID[settled.outcome]} in entry {settled.entry} (by: {settled.source})"


def _check_wait(named: str, wait_ms: int) -> Refusal | None:
    if 0 <= wait_ms <= HALF_WAIT_MS_MAX:
        return None
    return Refusal(
        ErrorCode.INVALID_REQUEST, f"{named} is to wait for {wait_ms} ms: expected 0 to {HALF_WAIT_MS_MAX} ms"
    )


def _pending_half(delta: Delta, command: Any) -> HalfState | Refusal:
    """Return the record of a half transaction that is pending: neither settled nor discarded."""
    half = _unsettled_half(delta, command)
    if isinstance(half, HalfState) and half.discarded_entry:
        return Refusal(ErrorCode.INVALID_TXN_STATE, f"{_named(command)} {_discarded(half)}")
    return half


def _unsettled_half(delta: Delta, command: Any) -> HalfState | Refusal:
    """Return the record of a half transaction that is pending or discarded."""
    half: HalfState | None = delta.get(("half", command.group_id, command.transaction_id))
    if half is not None:
        return half
    settled = settled_half(delta.get, command.group_id, command.transaction_id)
    if settled is not None:
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"{_named(command)} has been {_said(settled)}: that is its outcome",
        )
    return Refusal(
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        f"{_named(command)} is not known: it was never prepared, or settled so long ago that its outcome is forgotten",
    )


def _after(context: Context, wait_ms: int) -> int:
    return min(context.timestamp_ms + wait_ms, TIMESTAMP_MS_MAX)


def _put_pending_half(delta: Delta, half: HalfState, wait_ms: int, context: Context) -> None:
    delta.put(half)
    slot = due_slot(half.due_ms)
    delta.put(HalfDue(half.group_id, slot, half.transaction_id, half.due_ms, wait_ms, context.entry))


def _remove_due(delta: Delta, half: HalfState) -> None:
    delta.remove(("half_due", half.group_id, due_slot(half.due_ms), half.transaction_id))


def _settle_half(delta: Delta, half: HalfState, outcome: HalfOutcome, source: str, context: Context) -> None:
    """Remove the half transaction, and remember its outcome.

    A bucket forgets outcomes that are older than the window, but for the last ones.
    """
    if not half.discarded_entry:
        _remove_due(delta, half)
    delta.remove(half.key)
    token = segment_token(half.segments[-1].segment)
    noted = SettledHalf(half.group_id, half.transaction_id, outcome, source, context.entry, token)
    key = outcomes_key(half.transaction_id)
    known: HalfOutcomes | None = delta.get(key)
    settled = (*known.settled, noted) if known else (noted,)
    oldest = context.entry - REQUEST_WINDOW
    old = (one for one in settled[:-HALF_OUTCOMES_KEPT] if one.entry > oldest)
    delta.put(HalfOutcomes(int(key[1]), (*old, *settled[-HALF_OUTCOMES_KEPT:])))


def _place(delta: Delta, segment: HalfSegment, named: str, context: Context) -> Refusal | None:
    """Put a segment at the end of its partition, as records of no producer that this entry commits."""
    where = (segment.topic_id, segment.partition)
    partition: PartitionState | None = delta.get(("partition", *where))
    if partition is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _missing(named, segment))
    base_offset = partition.log_end_offset
    if base_offset + segment.record_count > LOG_END_OFFSET_MAX:
        return Refusal(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"partition {segment.partition} of topic id {segment.topic_id} has no more offsets for {named}",
        )
    by_entry = segment.timestamp_max_ms < 0
    delta.put(replace(partition, log_end_offset=base_offset + segment.record_count))
    located: PartitionSegments = delta.get(("segments", *where))
    placed = SegmentRef(
        segment.segment,
        base_offset,
        segment.record_count,
        segment.size_bytes,
        segment.checksum,
        context.entry,
        -1,
        -1,
        -1,
        -1,
        context.timestamp_ms if by_entry else segment.timestamp_min_ms,
        context.timestamp_ms if by_entry else segment.timestamp_max_ms,
        context.entry,
    )
    delta.put(replace(located, segments=(*located.segments, placed)))
    return None
