"""The machine: one command, or a list of them, applied to a state.

``state(N)`` is a function of entries 1 to N and of nothing else: no clock, no randomness, no I/O, no cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sparktxn.errors import DamagedObject, ErrorCode
from sparktxn.format import commands, names
from sparktxn.format.commands import Command, CommandResult
from sparktxn.state import (
    coordinator,
    expectations,
    expiry,
    features,
    groups,
    halfmessages,
    intents,
    membership,
    partitions,
    prepared,
    rewrites,
    settings,
    sinks,
    topics,
    vacuum,
)
from sparktxn.state.delta import Context, Delta, ReadState, Refusal
from sparktxn.structs import StateKey, StateRecord

__all__ = ["Applied", "apply", "apply_entry", "apply_list"]

Handler = Callable[[Delta, Any, Context], CommandResult | Refusal]

_HANDLERS: Final[Mapping[type, Handler]] = {
    commands.CreateTopic: topics.create_topic,
    commands.AlterTopic: topics.alter_topic,
    commands.AlterStore: settings.alter_store,
    commands.CreatePartitions: topics.create_partitions,
    commands.DeleteTopic: topics.delete_topic,
    commands.DeleteRecords: topics.delete_records,
    commands.InitProducerId: coordinator.init_producer_id,
    commands.AddPartitionsToTxn: coordinator.add_partitions_to_txn,
    commands.AddOffsetsToTxn: coordinator.add_offsets_to_txn,
    commands.EndTxn: coordinator.end_txn,
    commands.ExpectEndOffset: expectations.expect_end_offset,
    commands.PrepareTxn: prepared.prepare_txn,
    commands.Append: partitions.append,
    commands.TxnOffsetCommit: groups.txn_offset_commit,
    commands.OffsetCommit: groups.offset_commit,
    commands.DeleteGroup: groups.delete_group,
    commands.JoinGroup: membership.join_group,
    commands.UpdateMember: membership.update_member,
    commands.ReleasePartitions: membership.release_partitions,
    commands.LeaveGroup: membership.leave_group,
    commands.ExpireMember: membership.expire_member,
    commands.SinkBatchCommit: sinks.sink_batch_commit,
    commands.SettleIntent: intents.settle_intent,
    commands.CancelIntent: intents.cancel_intent,
    commands.Rewrite: rewrites.rewrite,
    commands.Vacuum: vacuum.vacuum,
    commands.RequireFeatures: features.require_features,
    commands.ExpireTransactionalId: expiry.expire_transactional_id,
    commands.ExpireProducers: expiry.expire_producers,
    commands.ExpireOffsets: expiry.expire_offsets,
    commands.PrepareHalf: halfmessages.prepare_half,
    commands.CheckHalf: halfmessages.check_half,
    commands.EndHalf: halfmessages.end_half,
    commands.DiscardHalf: halfmessages.discard_half,
    commands.ResumeHalf: halfmessages.resume_half,
    commands.DeleteHalf: halfmessages.delete_half,
}


class Applied(NamedTuple):
    """What a list of commands changes and answers, and the commands that an entry must carry: those not done before."""

    changes: dict[StateKey, StateRecord | None]
    results: list[CommandResult]
    to_write: list[Command]


def apply(delta: Delta, command: Command, context: Context) -> CommandResult | Refusal:
    """Applies one command to `delta`; after a refusal the delta is of no use."""
    return _HANDLERS[type(command)](delta, command, context)


def apply_entry(delta: Delta, list_: Sequence[Command], context: Context) -> None:
    """Apply commands of the entry that `context` names to `delta`.

    Raises:
        DamagedObject: the state refuses one of them; the delta is then of no use.
    """
    for command in list_:
        result = _HANDLERS[type(command)](delta, command, context)
        if isinstance(result, Refusal):
            name = names.entry(context.entry)
            raise DamagedObject(name, f"the state before it refuses a command of it: {result.reason}")


def apply_list(read: ReadState, list_: Sequence[Command], context: Context) -> Applied | Refusal:
    """Applies a list in order, all or nothing.

    Commands that have taken effect before succeed with their original results and are not to be written again. Of
    appends that are no longer remembered that is so only if another append of the list is: one list has named both.
    """
    changes = Delta(read)
    results: list[CommandResult] = []
    to_write = []
    forgotten = False
    halves: list[commands.PrepareHalf] = []
    for command in list_:
        delta = Delta(changes.get)
        result = _HANDLERS[type(command)](delta, command, context)
        if isinstance(result, Refusal):
            return result
        results.append(result)
        if result is partitions.FORGOTTEN:
            forgotten = True
        if not result.duplicate:
            # What is not written must change nothing either: a follower of the log never sees it.
            changes.changes.update(delta.changes)
            to_write.append(command)
            if isinstance(command, commands.PrepareHalf):
                halves.append(command)
    if halves and (rejected := halfmessages.rejection(changes.get, halves)):
        return rejected
    if forgotten and not _is_repetition(list_, results):
        return Refusal(ErrorCode.INVALID_TXN_STATE, "the transaction has ended without these segments")
    return Applied(changes.changes, results, to_write)


def _is_repetition(list_: Sequence[Command], results: Sequence[CommandResult]) -> bool:
    """True if one of the list's appends names the segment that is stored under its sequences."""
    return any(
        isinstance(command, commands.Append) and result.duplicate and result is not partitions.FORGOTTEN
        for command, result in zip(list_, results, strict=True)
    )
