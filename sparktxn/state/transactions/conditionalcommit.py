"""Conditional commits: a transaction takes effect only if partitions end where its producer expects.

Kafka has no such command. KurrentDB calls it the expected revision of a stream.
"""

from __future__ import annotations

from sparktxn.errors import ErrorCode
from sparktxn.format.commands import CommandResult, ExpectEndOffset
from sparktxn.state.delta import Context, Delta, Refusal
from sparktxn.state.transactions.transactions import join_transaction
from sparktxn.values.structs import PartitionState

__all__ = ["expect_end_offset"]


def expect_end_offset(delta: Delta, command: ExpectEndOffset, context: Context) -> CommandResult | Refusal:
    """Pass if the partition ends at the offset that the command names; the transaction begins with it if it is new.

    In a transaction that has committed, or is prepared, it was checked before: the list is repeated.
    """
    begun = join_transaction(delta, command, context, ErrorCode.PRODUCER_FENCED)
    if isinstance(begun, Refusal):
        return begun
    if begun.ended:
        return CommandResult(duplicate=True)
    partition: PartitionState | None = delta.get(("partition", command.topic_id, command.partition))
    where = f"partition {command.partition} of topic id {command.topic_id}"
    if partition is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} does not exist, or no longer")
    if partition.log_end_offset != command.log_end_offset:
        return Refusal(
            ErrorCode.UNEXPECTED_END_OFFSET,
            f"{where} ends at offset {partition.log_end_offset}, and the transaction expects {command.log_end_offset}: "
            "abort it, read the records that were appended meanwhile, and begin again",
        )
    if begun.changed:
        delta.put(begun.transaction)
    return CommandResult()
