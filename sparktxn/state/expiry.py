"""Forgetting what is idle: transactional ids, producers, offsets, and what deleted topics have left behind.

The proposer has measured, and may be late: each command names what the proposer saw, and nothing that has changed
since is forgotten. Time takes no part here.
"""

from __future__ import annotations

from sparktxn.errors import ErrorCode
from sparktxn.format.commands import CommandResult, ExpireOffsets, ExpireProducers, ExpireTransactionalId
from sparktxn.state.delta import Context, Delta, Refusal
from sparktxn.state.groups.groups import pending_offsets
from sparktxn.state.internal import partition_exists
from sparktxn.state.transactions.transactions import is_valid_transition, transition
from sparktxn.values.structs import CommittedOffset, EmptyGroup, ProducerState, TransactionState, TransactionStatus

__all__ = ["expire_offsets", "expire_producers", "expire_transactional_id"]


def expire_transactional_id(delta: Delta, command: ExpireTransactionalId, context: Context) -> CommandResult | Refusal:
    """Pass DEAD and forget the id: its next producer gets a new producer id (K46, K48)."""
    transaction: TransactionState | None = delta.get(("transaction", command.transactional_id))
    if transaction is None:
        return CommandResult(duplicate=True)
    seen = (command.producer_id, command.producer_epoch, command.transaction)
    if seen != (transaction.producer_id, transaction.producer_epoch, transaction.transaction):
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"transactional id {command.transactional_id!r} has been used since it was found idle",
        )
    if not is_valid_transition(transaction.status, TransactionStatus.DEAD):
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"transactional id {command.transactional_id!r} has an open transaction ({transaction.status.name}): "
            "it does not expire",
        )
    dead = transition(transaction, TransactionStatus.DEAD)
    delta.remove(dead.key)
    return CommandResult()


def expire_producers(delta: Delta, command: ExpireProducers, context: Context) -> CommandResult | Refusal:
    """Forget those that are as the proposer saw them: of a partition that exists, none with an open transaction."""
    where = (command.topic_id, command.partition)
    exists = delta.get(("partition", *where)) is not None
    forgotten = False
    for producer_id, *seen in command.producers:
        known: ProducerState | None = delta.get(("producer", *where, producer_id))
        if known is None or seen != [known.producer_epoch, known.last_sequence, known.coordinator_epoch]:
            continue
        if exists and known.current_transaction_first_offset >= 0:
            continue
        delta.remove(known.key)
        forgotten = True
    return CommandResult(duplicate=not forgotten)


def expire_offsets(delta: Delta, command: ExpireOffsets, context: Context) -> CommandResult | Refusal:
    """Forget a group's committed offsets in partitions that do not exist: topic ids are never used again.

    Those that are idle are forgotten if the group has had no members since what the proposer saw (KIP-211).
    """
    forgotten = False
    for where in command.partitions:
        key = ("offset", command.group_id, *where)
        if not partition_exists(delta.get, *where) and delta.get(key) is not None:
            delta.remove(key)
            forgotten = True
    if _is_empty_since(delta, command):
        for topic_id, partition, entry in command.idle:
            offset: CommittedOffset | None = delta.get(("offset", command.group_id, topic_id, partition))
            if offset is None or offset.effective_entry != entry:
                continue
            if not pending_offsets(delta, command.group_id, topic_id, partition):
                delta.remove(offset.key)
                forgotten = True
        if command.empty_entry and not command.partitions and not command.idle:
            delta.remove(("empty_group", command.group_id))
            forgotten = True
    return CommandResult(duplicate=not forgotten)


def _is_empty_since(delta: Delta, command: ExpireOffsets) -> bool:
    """Return True if the group has no members, and has had none since the entry that the command names."""
    if delta.get(("group", command.group_id)) is not None:
        return False
    empty: EmptyGroup | None = delta.get(("empty_group", command.group_id))
    return command.empty_entry == (0 if empty is None else empty.entry)
