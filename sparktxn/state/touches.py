"""Which parts of the state a command touches, as far as the command says so itself.

A reader of the log loads the parts that an entry touches in one step. It leaves an entry unapplied until a part that
it touches is read (`log/follow/deferred.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from sparktxn.format import commands
from sparktxn.format.checkpoint import part_of
from sparktxn.format.commands import Command
from sparktxn.state.halfmessages import outcomes_key
from sparktxn.state.intents import INTENT_WINDOW, intent_key
from sparktxn.state.requests import request_key
from sparktxn.structs import StateRecord, TransactionState

__all__ = ["CONFINED", "STEADY_TABLES", "is_unsteady", "touched_by_end", "touches", "transaction_of"]

_Parts = tuple[str, ...]

CONFINED: Final[frozenset[type]] = frozenset(
    {
        commands.AddOffsetsToTxn,
        commands.AddPartitionsToTxn,
        commands.Append,
        commands.CancelIntent,
        commands.EndTxn,
        commands.ExpectEndOffset,
        commands.OffsetCommit,
        commands.SettleIntent,
        commands.SinkBatchCommit,
        commands.TxnOffsetCommit,
    }
)
"""Commands that read and change records in the parts of `touches`, and otherwise only read steady records.

`end_txn` also touches what its transaction has registered, see `touched_by_end`; it is confined unless the transaction
is prepared.
"""

STEADY_TABLES: Final = frozenset({"store", "partition"})
"""Tables of which a confined command reads records outside its parts: the store's, and whether a partition exists."""

_STORE: Final = part_of(("store",))


def touches(command: Command, entry: int) -> _Parts:
    """Return the parts that applying `command` in entry `entry` reads or changes, as far as it names them."""
    return _TOUCHES[type(command)](command, entry)


def transaction_of(command: Any) -> str | None:
    """Return the transactional id in whose transaction a confined command is; None if it is in none."""
    return command.transactional_id if type(command) in _IN_A_TRANSACTION else None


def touched_by_end(transaction: TransactionState) -> frozenset[str]:
    """Return the parts that ending a transaction reads or changes, apart from that of its own record."""
    parts = {part for where in transaction.partitions for part in _in_partition(*where, transaction.producer_id)}
    return frozenset(parts.union(_group(group_id) for group_id, _, _ in transaction.offsets))


def is_unsteady(key: tuple[str | int, ...], record: StateRecord | None) -> bool:
    """Return True if putting `record` changes what confined commands read outside their parts."""
    return key[0] == "store" or (record is None and key[0] == "partition")


@lru_cache(maxsize=65_536)
def _in_partition(topic_id: int, partition: int, producer_id: int) -> _Parts:
    return (
        part_of(("partition", topic_id, partition)),
        part_of(("segments", topic_id, partition)),
        part_of(("producer", topic_id, partition, producer_id)),
    )


def _group(group_id: str) -> str:
    return part_of(("offset", group_id, 0, 0))


def _request(request_id: str) -> str:
    return part_of(request_key(request_id))


def _topic(command: Any, entry: int) -> _Parts:
    return (_STORE, _request(command.request_id), part_of(("topic", command.name)))


def _alter_store(command: commands.AlterStore, entry: int) -> _Parts:
    return (_STORE, _request(command.request_id))


def _delete_records(command: commands.DeleteRecords, entry: int) -> _Parts:
    return (_request(command.request_id), *_in_partition(command.topic_id, command.partition, 0)[:2])


def _rewrite(command: commands.Rewrite, entry: int) -> _Parts:
    return (_STORE, _request(command.request_id), *_in_partition(command.topic_id, command.partition, 0)[:2])


def _init_producer_id(command: commands.InitProducerId, entry: int) -> _Parts:
    transaction = _transaction(command, entry) if command.transactional_id else ()
    return (_STORE, _request(command.request_id), *transaction)


def _transaction(command: Any, entry: int) -> _Parts:
    return (part_of(("transaction", command.transactional_id)),)


def _add_partitions_to_txn(command: commands.AddPartitionsToTxn, entry: int) -> _Parts:
    # Segments and producers are touched by the transaction's end.
    parts = [part for where in command.partitions for part in _in_partition(*where, command.producer_id)]
    return (*_transaction(command, entry), *parts)


def _append(command: commands.Append, entry: int) -> _Parts:
    parts = _in_partition(command.topic_id, command.partition, command.producer_id)
    return parts if command.transactional_id is None else (*parts, part_of(("transaction", command.transactional_id)))


def _expect_end_offset(command: commands.ExpectEndOffset, entry: int) -> _Parts:
    return (*_transaction(command, entry), part_of(("partition", command.topic_id, command.partition)))


def _txn_offset_commit(command: commands.TxnOffsetCommit, entry: int) -> _Parts:
    return (*_transaction(command, entry), _group(command.group_id))


def _group_request(command: Any, entry: int) -> _Parts:
    return (_request(command.request_id), _group(command.group_id))


def _subscribing(command: commands.JoinGroup | commands.UpdateMember, entry: int) -> _Parts:
    topics = {part_of(("topic", name)) for name in command.topics}
    return (*_group_request(command, entry), *sorted(topics))


def _expire_member(command: commands.ExpireMember, entry: int) -> _Parts:
    return (_group(command.group_id),)


def _expire_producers(command: commands.ExpireProducers, entry: int) -> _Parts:
    where = (command.topic_id, command.partition)
    producers = {part_of(("producer", *where, producer_id)) for producer_id, *_ in command.producers}
    return (part_of(("partition", *where)), *sorted(producers))


def _expire_offsets(command: commands.ExpireOffsets, entry: int) -> _Parts:
    # Whether the partitions of idle offsets exist is not read.
    partitions = {part_of(("partition", *where)) for where in command.partitions}
    return (_group(command.group_id), *sorted(partitions))


def _intent(command: commands.SettleIntent | commands.CancelIntent, entry: int) -> _Parts:
    first = max(command.base_entry, entry - INTENT_WINDOW) + 1
    return tuple({part_of(intent_key(number)) for number in range(min(first, entry), entry + 1)})


def _store(command: commands.Vacuum | commands.RequireFeatures, entry: int) -> _Parts:
    return (_STORE,)


def _half(command: Any, entry: int) -> _Parts:
    # When its checks are due goes by entries' times, and where it is committed by its record.
    half = part_of(("half", command.group_id, command.transaction_id))
    return (half, part_of(outcomes_key(command.transaction_id)))


def _prepare_half(command: commands.PrepareHalf, entry: int) -> _Parts:
    read = {part_of(("partition", segment.topic_id, segment.partition)) for segment in command.segments}
    read |= {part_of(("topic", segment.topic)) for segment in command.segments}
    return (_STORE, *_half(command, entry), *sorted(read))


def _nothing(command: commands.Appends, entry: int) -> _Parts:
    # It replaces commands in an object, which name what they touch.
    return ()


_TOUCHES: Final[Mapping[type, Callable[[Any, int], _Parts]]] = {
    commands.AddOffsetsToTxn: _transaction,
    commands.AddPartitionsToTxn: _add_partitions_to_txn,
    commands.AlterStore: _alter_store,
    commands.AlterTopic: _topic,
    commands.Append: _append,
    commands.Appends: _nothing,
    commands.CancelIntent: _intent,
    commands.CreatePartitions: _topic,
    commands.CreateTopic: _topic,
    commands.DeleteGroup: _group_request,
    commands.DeleteRecords: _delete_records,
    commands.DeleteTopic: _topic,
    commands.EndTxn: _transaction,
    commands.ExpectEndOffset: _expect_end_offset,
    commands.ExpireMember: _expire_member,
    commands.ExpireOffsets: _expire_offsets,
    commands.ExpireProducers: _expire_producers,
    commands.ExpireTransactionalId: _transaction,
    commands.InitProducerId: _init_producer_id,
    commands.JoinGroup: _subscribing,
    commands.LeaveGroup: _group_request,
    commands.OffsetCommit: _group_request,
    commands.PrepareTxn: _transaction,
    commands.ReleasePartitions: _group_request,
    commands.RequireFeatures: _store,
    commands.SettleIntent: _intent,
    commands.SinkBatchCommit: _transaction,
    commands.TxnOffsetCommit: _txn_offset_commit,
    commands.CheckHalf: _half,
    commands.DeleteHalf: _half,
    commands.DiscardHalf: _half,
    commands.EndHalf: _half,
    commands.PrepareHalf: _prepare_half,
    commands.ResumeHalf: _half,
    commands.UpdateMember: _subscribing,
    commands.Rewrite: _rewrite,
    commands.Vacuum: _store,
}

_IN_A_TRANSACTION: Final[frozenset[type]] = CONFINED - {
    commands.CancelIntent,
    commands.OffsetCommit,
    commands.SettleIntent,
}
