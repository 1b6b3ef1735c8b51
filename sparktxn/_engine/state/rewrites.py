"""Rewriting: a partition's segments are replaced by others with the same records (PROTOCOL.md, "Rewriting"); vacuums.

A compaction is a rewrite whose segments lack records: those that newer records of their keys replace.

Validation goes by the ranges that entries have rewritten, which every replica has. It never asks which segments a
checkpoint has sealed, or for a manifest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from sparktxn._engine.format.commands import CommandResult, Rewrite, Vacuum
from sparktxn._engine.format.names import parse_sealed_entry
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.requests import remember, remembered
from sparktxn._engine.state.transactions.partitions import check_born, stable_end
from sparktxn._foundation.values.structs import (
    CompactedPrefix,
    Compaction,
    CompactionPass,
    PartitionSegments,
    PartitionState,
    RewrittenRange,
)
from sparktxn.errors import ErrorCode

_PASSES_MAX: Final = 100


def rewrite(delta: Delta, command: Rewrite, context: Context) -> CommandResult | Refusal:
    """Put a run in the place of a range's segments, unless another rewrite has touched the range since the plan.

    A log start that has moved into the range makes no difference, and nor do appends.
    """
    if known := remembered(delta, context, command.request_id):
        return known
    where = f"partition {command.partition} of topic id {command.topic_id}"
    partition: PartitionState | None = delta.get(("partition", command.topic_id, command.partition))
    if partition is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} does not exist, or no longer")
    if problem := _problem(command, context):
        return Refusal(ErrorCode.INVALID_REQUEST, f"a rewrite of {where} has {problem}")
    if refusal := _outside(partition, command, where):
        return refusal
    stable = stable_end(partition.open_transactions, partition.log_end_offset)
    if command.compaction is not None and command.compaction.end_offset > stable:
        return Refusal(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{where} cannot be compacted up to offset {command.compaction.end_offset}: its records are stable up to "
            f"{stable}",
        )
    located: PartitionSegments = delta.get(("segments", command.topic_id, command.partition))
    for other in located.rewritten:
        if other.entry > command.planned_entry and _meet(other, command):
            return Refusal(
                ErrorCode.RANGE_REWRITTEN,
                f"entry {other.entry} has rewritten offsets {other.base_offset} to {other.end_offset} of {where}, "
                f"after this rewrite was planned at entry {command.planned_entry}: plan again",
            )
    for segment in command.segments:
        if refusal := check_born(delta, segment, context):
            return refusal
    if refusal := _check_folder(delta, command, context):
        return refusal
    added = RewrittenRange(command.base_offset, command.end_offset, context.entry, command.run)
    compacted = _compacted(located.compacted, command.compaction, context, is_keyed=partition.keyed is True)
    delta.put(replace(located, rewritten=_with(located.rewritten, added), compacted=compacted))
    return remember(delta, context, command.request_id, CommandResult(base_offset=command.base_offset))


def _outside(partition: PartitionState, command: Rewrite, where: str) -> Refusal | None:
    """Refuse a range that is not in the partition, or holds the first record of a transaction that is open.

    Later segments of one are up to the planner: they may be in sealed runs, which differ between processes.
    """
    about = f"offsets {command.base_offset} to {command.end_offset} of {where} cannot be rewritten"
    if not partition.log_start_offset < command.end_offset <= partition.log_end_offset:
        has = f"it has records from {partition.log_start_offset} to {partition.log_end_offset}"
        return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"{about}: {has}")
    for each in partition.open_transactions:
        if command.base_offset <= each.first_offset < command.end_offset:
            why = f"the transaction of {each.transactional_id!r} from offset {each.first_offset} on is open"
            return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"{about}: {why}")
    return None


def _meet(one: RewrittenRange, other: Rewrite) -> bool:
    return one.base_offset < other.end_offset and other.base_offset < one.end_offset


def _problem(command: Rewrite, context: Context) -> str | None:
    """Return what contradicts itself in a rewrite; None if nothing does."""
    run = command.run
    if not 0 <= command.base_offset <= run.base_offset < run.end_offset <= command.end_offset:
        return (
            f"a run with offsets {run.base_offset} to {run.end_offset} for offsets {command.base_offset} to "
            f"{command.end_offset}"
        )
    if not 0 <= command.planned_entry < context.entry:
        return f"the plan of entry {command.planned_entry}: expected 0 to {context.entry - 1}"
    if run.level or run.aborted_count or run.committed_late:
        return "a run with a level, or with ended transactions: those stay where they are"
    compaction = command.compaction
    if compaction is not None and not max(command.end_offset, compaction.tombstones_end) <= compaction.end_offset:
        return (
            f"a compaction up to offset {compaction.end_offset}, of tombstones up to {compaction.tombstones_end}, for "
            f"offsets {command.base_offset} to {command.end_offset}"
        )
    if compaction is not None and compaction.committed_entry > command.planned_entry:
        return f"a compaction of records that entry {compaction.committed_entry} committed, after its plan"
    return None


def _compacted(
    known: CompactedPrefix | None, compaction: Compaction | None, context: Context, *, is_keyed: bool
) -> CompactedPrefix | None:
    """Return up to where the partition is compacted, after one more compaction or rewrite.

    Of a keyed partition the first pass says which deletes are gone: a reader that has not seen them must know it.
    """
    if compaction is None:
        return known
    before = known or CompactedPrefix(1, 0)
    gone, since = before.deletes_gone if is_keyed else (0, 0)
    if is_keyed and compaction.tombstones_end > gone:
        gone, since = compaction.tombstones_end, context.entry
    timed = before.passes[1:] if before.deletes_gone[0] and is_keyed else before.passes
    passes = tuple(each for each in timed if each.end_offset > compaction.tombstones_end)
    if known is None or known.end_offset < compaction.end_offset:
        passes = (*passes, CompactionPass(compaction.end_offset, context.timestamp_ms))
    # Of too many the oldest is forgotten: the tombstones that it covers count as compacted with the next ones.
    return CompactedPrefix(
        max(before.end_offset, compaction.end_offset),
        max(before.committed_entry, compaction.committed_entry),
        (*([CompactionPass(gone, -since)] if gone else []), *passes[-_PASSES_MAX:]),
    )


def _check_folder(delta: Delta, command: Rewrite, context: Context) -> Refusal | None:
    """Refuse a run that a vacuum may already have deleted, or that knows entries which are not there."""
    written = parse_sealed_entry(command.run.folder)
    horizon = delta.store().horizon
    if written is None or not horizon <= written < context.entry:
        return Refusal(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"run {command.run.folder!r} has expired (written at entry {written}, expected {horizon} to "
            f"{context.entry - 1}): rewrite its records again",
        )
    return None


def _with(ranges: Iterable[RewrittenRange], added: RewrittenRange) -> tuple[RewrittenRange, ...]:
    """Return `ranges` and `added` in the order of offsets: the others lose the offsets that they have in common."""
    others = tuple(ranges)
    before = (
        replace(other, end_offset=min(other.end_offset, added.base_offset))
        for other in others
        if other.base_offset < added.base_offset
    )
    after = (
        replace(other, base_offset=max(other.base_offset, added.end_offset))
        for other in others
        if other.end_offset > added.end_offset
    )
    # Both are in the order of offsets, as the ranges were.
    return (*before, added, *after)


# The vacuum's command: what may be deleted is decided by an entry (PROTOCOL.md, "Deleting").


def vacuum(delta: Delta, command: Vacuum, context: Context) -> CommandResult | Refusal:
    """Raise the horizon and the segment floor: both only grow, and neither passes this entry."""
    store = delta.store()
    if command.horizon < store.horizon or command.segment_floor < store.segment_floor:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"a vacuum to horizon {command.horizon} and segment floor {command.segment_floor} would lower them: they "
            f"are {store.horizon} and {store.segment_floor}; plan again",
        )
    if command.horizon > context.entry or command.segment_floor > context.entry:
        return Refusal(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"a vacuum to horizon {command.horizon} and segment floor {command.segment_floor}: expected entries of the "
            f"log, up to {context.entry}",
        )
    if (command.horizon, command.segment_floor) == (store.horizon, store.segment_floor):
        return CommandResult(duplicate=True)
    delta.put(replace(store, horizon=command.horizon, segment_floor=command.segment_floor))
    return CommandResult.EMPTY
