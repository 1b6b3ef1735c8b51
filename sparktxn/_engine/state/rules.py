"""One row for each command: what applies it, which parts it touches, where it may stand, and the files it names.

A command is added here, as its row, and in `format/commands.py`, as its members. What the row names is in the rooms of
the records that the command changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from sparktxn._engine.format import commands
from sparktxn._engine.format.commands import Command, CommandResult, RequireFeatures
from sparktxn._engine.state import coordinator, halfmessages, intents, rewrites, settings, tables, topics, touchedparts
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.groups import groups, membership
from sparktxn._engine.state.transactions import partitions, sinks, transactions
from sparktxn.errors import ErrorCode

# Features: what a process must know before it reads or writes the store (PROTOCOL.md, "Features").

_FEATURE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


def require_features(delta: Delta, command: RequireFeatures, context: Context) -> CommandResult | Refusal:
    """Add to the features that the store requires; none is ever taken away."""
    for feature in (*command.reader_features, *command.writer_features):
        if not _FEATURE.fullmatch(feature):
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"feature {feature!r} is not valid: expected a letter and up to 63 more of a-z, 0-9 and '_'",
            )
    store = delta.store()
    readers = tuple(sorted({*store.reader_features, *command.reader_features}))
    writers = tuple(sorted({*store.writer_features, *command.writer_features}))
    if (readers, writers) == (store.reader_features, store.writer_features):
        return CommandResult(duplicate=True)
    delta.put(replace(store, reader_features=readers, writer_features=writers))
    return CommandResult.EMPTY


class Scope(Enum):
    """What a command reads and changes apart from the parts that it touches."""

    OPEN = "open"
    """Records that it does not name: to apply it takes the state of all entries before it."""
    CONFINED = "confined"
    """Steady records only (`touchedparts.STEADY_TABLES`)."""
    TRANSACTION = "transaction"
    """Steady records only, in the transaction that the command names.

    `EndTxn` also touches what its transaction has registered, see `touchedparts.touched_by_end`; it is confined unless
    the transaction is prepared.
    """


class Rule(NamedTuple):
    """What the machine and the followers of the log know about one kind of command."""

    handler: Callable[[Delta, Any, Context], CommandResult | Refusal]
    """Applies the command to a delta, which is of no use after a refusal."""
    touches: Callable[[Any, int], touchedparts.Parts]
    """Returns the parts that applying the command in an entry reads or changes, as far as the command names them."""
    scope: Scope
    files: Callable[[Any], Iterator[touchedparts.NamedSegment]] = touchedparts.no_files
    """Yields the files of segments that the command names: all others are garbage once they are old."""


def _appends(delta: Delta, command: commands.Appends, context: Context) -> CommandResult | Refusal:
    raise AssertionError("a reader of the entry puts the appends of the object in its place")


RULES: Final[Mapping[type, Rule]] = {
    commands.CreateTopic: Rule(topics.create_topic, touchedparts.topic, Scope.OPEN),
    commands.AlterTopic: Rule(topics.alter_topic, touchedparts.topic, Scope.OPEN),
    commands.AlterStore: Rule(settings.alter_store, touchedparts.alter_store, Scope.OPEN),
    commands.CreatePartitions: Rule(topics.create_partitions, touchedparts.topic, Scope.OPEN),
    commands.DeleteTopic: Rule(topics.delete_topic, touchedparts.topic, Scope.OPEN),
    commands.DeleteRecords: Rule(topics.delete_records, touchedparts.delete_records, Scope.OPEN),
    commands.InitProducerId: Rule(coordinator.init_producer_id, touchedparts.init_producer_id, Scope.OPEN),
    commands.AddPartitionsToTxn: Rule(
        coordinator.add_partitions_to_txn, touchedparts.add_partitions_to_txn, Scope.TRANSACTION
    ),
    commands.AddOffsetsToTxn: Rule(coordinator.add_offsets_to_txn, touchedparts.transaction, Scope.TRANSACTION),
    commands.EndTxn: Rule(coordinator.end_txn, touchedparts.transaction, Scope.TRANSACTION),
    commands.ExpectEndOffset: Rule(coordinator.expect_end_offset, touchedparts.expect_end_offset, Scope.TRANSACTION),
    commands.PrepareTxn: Rule(transactions.prepare_txn, touchedparts.transaction, Scope.OPEN),
    commands.Appends: Rule(_appends, touchedparts.nothing, Scope.OPEN),
    commands.Append: Rule(partitions.append, touchedparts.append, Scope.TRANSACTION, touchedparts.file_of_append),
    commands.TxnOffsetCommit: Rule(groups.txn_offset_commit, touchedparts.txn_offset_commit, Scope.TRANSACTION),
    commands.OffsetCommit: Rule(groups.offset_commit, touchedparts.group_request, Scope.CONFINED),
    commands.DeleteGroup: Rule(groups.delete_group, touchedparts.group_request, Scope.OPEN),
    commands.JoinGroup: Rule(membership.join_group, touchedparts.subscribing, Scope.OPEN),
    commands.UpdateMember: Rule(membership.update_member, touchedparts.subscribing, Scope.OPEN),
    commands.ReleasePartitions: Rule(membership.release_partitions, touchedparts.group_request, Scope.OPEN),
    commands.LeaveGroup: Rule(membership.leave_group, touchedparts.group_request, Scope.OPEN),
    commands.ExpireMember: Rule(membership.expire_member, touchedparts.expire_member, Scope.OPEN),
    commands.SinkBatchCommit: Rule(sinks.sink_batch_commit, touchedparts.transaction, Scope.TRANSACTION),
    commands.SettleIntent: Rule(intents.settle_intent, touchedparts.intent, Scope.CONFINED),
    commands.CancelIntent: Rule(intents.cancel_intent, touchedparts.intent, Scope.CONFINED),
    commands.Rewrite: Rule(rewrites.rewrite, touchedparts.rewrite, Scope.OPEN, touchedparts.files_of_rewrite),
    commands.PublishTables: Rule(tables.publish_tables, touchedparts.publish_tables, Scope.OPEN),
    commands.Vacuum: Rule(rewrites.vacuum, touchedparts.store, Scope.OPEN),
    commands.RequireFeatures: Rule(require_features, touchedparts.store, Scope.OPEN),
    commands.ExpireTransactionalId: Rule(coordinator.expire_transactional_id, touchedparts.transaction, Scope.OPEN),
    commands.ExpireProducers: Rule(coordinator.expire_producers, touchedparts.expire_producers, Scope.OPEN),
    commands.ExpireOffsets: Rule(coordinator.expire_offsets, touchedparts.expire_offsets, Scope.OPEN),
    commands.PrepareHalf: Rule(
        halfmessages.prepare_half, touchedparts.prepare_half, Scope.OPEN, touchedparts.files_of_half
    ),
    commands.CheckHalf: Rule(halfmessages.check_half, touchedparts.half, Scope.OPEN),
    commands.EndHalf: Rule(halfmessages.end_half, touchedparts.half, Scope.OPEN),
    commands.DiscardHalf: Rule(halfmessages.discard_half, touchedparts.half, Scope.OPEN),
    commands.ResumeHalf: Rule(halfmessages.resume_half, touchedparts.half, Scope.OPEN),
    commands.DeleteHalf: Rule(halfmessages.delete_half, touchedparts.half, Scope.OPEN),
}


def parts_touched_by(command: Command, entry: int) -> touchedparts.Parts:
    """Return the parts that applying `command` in entry `entry` reads or changes, as far as it names them."""
    return RULES[type(command)].touches(command, entry)


def files_named_by(list_: Iterable[Command]) -> Iterator[touchedparts.NamedSegment]:
    """Yield the files of segments that commands name."""
    for command in list_:
        yield from RULES[type(command)].files(command)


def is_confined(command: Command) -> bool:
    """Return True if the command reads and changes its parts, and otherwise only reads steady records."""
    return RULES[type(command)].scope is not Scope.OPEN


def transaction_of(command: Any) -> str | None:
    """Return the transactional id in whose transaction a confined command is; None if it is in none."""
    return command.transactional_id if RULES[type(command)].scope is Scope.TRANSACTION else None
