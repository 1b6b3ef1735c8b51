"""Micro-batches: a writer's batch takes effect once, and a superseded run takes none (PROTOCOL.md, "Micro-batches")."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sparktxn._engine.format.commands import CommandResult, SinkBatchCommit
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.transactions.transactions import join_transaction
from sparktxn._foundation.values.structs import SinkBatch, SinkState, TransactionState
from sparktxn.errors import ErrorCode

# The fingerprint of a micro-batch: what a repetition must have again (PROTOCOL.md, "Micro-batches").
#
# It begins with a digest of sizes, and a digest of the content follows, after the name of its kind. Earlier versions
# recorded the sizes alone.

_SEPARATOR: Final = ":"


def fingerprint(sizes: str, kind: str = "", content: str = "") -> str:
    """Return the fingerprint of rows with these digests of their sizes and, of this kind, of their content."""
    return _SEPARATOR.join([sizes, kind, content] if kind else [sizes])


def is_same_content(one: str, other: str) -> bool:
    """Return whether two fingerprints are of the same rows, as far as both say.

    Where they have no digest of one kind, sizes are compared: of rows of fixed width that are as many they are equal.
    """
    if _kind(one) == _kind(other):
        return one == other
    return is_same_size(one, other)


def is_same_size(one: str, other: str) -> bool:
    """Return whether two fingerprints are of as many rows in each topic, with as many bytes."""
    return one.partition(_SEPARATOR)[0] == other.partition(_SEPARATOR)[0]


def _kind(text: str) -> str:
    return text.partition(_SEPARATOR)[2].partition(_SEPARATOR)[0]


_BATCHES_TO_RETAIN: Final = 20
_RUNS_TO_RETAIN: Final = 100


def check_batch(sink: SinkState | None, batch: SinkBatchCommit) -> SinkBatch | Refusal | None:
    """Return None if the batch is new, the committed batch that it replays, or why it is refused."""
    if sink is None:
        return None
    if batch.writer_id != sink.writer_id:
        if batch.writer_id in sink.past_writers:
            return Refusal(
                ErrorCode.PRODUCER_FENCED,
                f"writer {batch.writer_id!r} of {batch.transactional_id!r} was superseded by {sink.writer_id!r}: "
                "start the query from its newest checkpoint, or give it a transactionalId of its own",
            )
        return None
    if batch.run_id in sink.superseded_runs:
        return Refusal(
            ErrorCode.PRODUCER_FENCED,
            f"run {batch.run_id!r} of query {batch.writer_id!r} was superseded by run {sink.run_id!r}: stop it",
        )
    if not sink.batches or batch.batch_id > sink.batches[-1].batch_id:
        return None
    known = remembered_batch(sink, batch.batch_id)
    if known is not None and is_same_content(known.fingerprint, batch.fingerprint):
        return known
    return Refusal(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, _not_the_same(batch, known, sink.batches[-1]))


def remembered_batch(sink: SinkState, batch_id: int) -> SinkBatch | None:
    """Return the committed batch of that id, if it is among those that are kept."""
    return next((known for known in sink.batches if known.batch_id == batch_id), None)


def _not_the_same(batch: SinkBatchCommit, known: SinkBatch | None, last: SinkBatch) -> str:
    """Return why a batch id that was used, or passed over, cannot be committed."""
    named = f"batch {batch.batch_id} of {batch.writer_id!r}"
    if known is None:
        return (
            f"{named} is below the last committed one, {last.batch_id}, and no longer remembered: whether it had the "
            "same rows is not known. The checkpoint folder was reset or is shared, or a version does not grow"
        )
    return (
        f"{named} was committed before with other rows (fingerprint {known.fingerprint}, now {batch.fingerprint}): the "
        "source does not replay, or the checkpoint folder was reset or is shared"
    )


def sink_batch_commit(delta: Delta, command: SinkBatchCommit, context: Context) -> CommandResult | Refusal:
    """Note the transaction as a writer's batch, with its run and writer as the current ones, from its commit on."""
    begun = join_transaction(delta, command, context, ErrorCode.PRODUCER_FENCED)
    if isinstance(begun, Refusal):
        return begun
    if begun.ended:
        return _after_the_end(begun.transaction, command)
    sink = begun.transaction.pending_sink or begun.transaction.sink
    found = check_batch(sink, command)
    if isinstance(found, Refusal):
        return found
    if found is not None:
        return Refusal(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, f"batch {command.batch_id} was committed before")
    batch = SinkBatch(command.batch_id, command.fingerprint, context.entry)
    if sink is None:
        changed = SinkState(command.writer_id, command.run_id, batches=(batch,))
    elif sink.writer_id != command.writer_id:
        past_writers = (*sink.past_writers, sink.writer_id)[-_RUNS_TO_RETAIN:]
        changed = SinkState(command.writer_id, command.run_id, past_writers=past_writers, batches=(batch,))
    else:
        superseded = sink.superseded_runs
        if sink.run_id and sink.run_id != command.run_id:
            superseded = (*superseded, sink.run_id)[-_RUNS_TO_RETAIN:]
        batches = (*sink.batches, batch)[-_BATCHES_TO_RETAIN:]
        changed = replace(sink, run_id=command.run_id, superseded_runs=superseded, batches=batches)
    delta.put(replace(begun.transaction, pending_sink=changed))
    return CommandResult()


def _after_the_end(transaction: TransactionState, command: SinkBatchCommit) -> CommandResult | Refusal:
    """Let an ended or prepared transaction take no batch, except a repetition of the one that it has noted."""
    sink = transaction.sink if transaction.prepared is None else transaction.pending_sink
    if sink is not None and (sink.writer_id, sink.run_id) == (command.writer_id, command.run_id):
        noted = sink.batches[-1]
        is_its_own = noted.entry >= transaction.start_entry
        if is_its_own and (noted.batch_id, noted.fingerprint) == (command.batch_id, command.fingerprint):
            return CommandResult(duplicate=True)
    return Refusal(
        ErrorCode.INVALID_TXN_STATE,
        f"transaction {command.transaction} of {command.transactional_id!r} has ended, or is prepared, without batch "
        f"{command.batch_id} of {command.writer_id!r}: it takes no more batches",
    )
