"""Transactional ids (KIP-664): listing, describing, aborting, fencing, and finding transactions that hang."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import force_setattr

from sparktxn._engine.format.commands import EndTxn, InitProducerId
from sparktxn._engine.log.log import Log
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.arrowvalues import byte_strings
from sparktxn._foundation.values.structs import (
    OpenTransaction,
    ProducerIdAndEpoch,
    ProducerState,
    TopicState,
    TransactionStatus,
)
from sparktxn._foundation.values.structs import TransactionState as TransactionRecord
from sparktxn._kafka.message import TopicPartition
from sparktxn.admin.topics import existing_topic, refusal
from sparktxn.errors import ErrorCode

# Regular expressions that clients of a server send: matched by RE2, in time that grows with the texts alone.
#
# Python's `re` backtracks, without end for some patterns, and keeps the interpreter's lock meanwhile. One pattern of
# one client would stop a gateway for all of them. Kafka's brokers use RE2, too. It has no look-ahead and no back
# references.

_PATTERN_LENGTH_MAX: Final = 1_000


def matching_texts(pattern: str, texts: Iterable[str]) -> list[str]:
    """Return the texts of which a pattern matches the whole, in their order; a dot matches a line's end, too.

    Raises:
        ValueError: it is not a pattern of RE2, or has over 1,000 characters; the message says which.
    """
    if len(pattern) > _PATTERN_LENGTH_MAX:
        raise ValueError(f"a pattern has {len(pattern)} characters: expected at most {_PATTERN_LENGTH_MAX}")
    try:
        # Alone first: a pattern such as `a)|(b` is none, but would be one within the group.
        pc.match_substring_regex(_column([""]), pattern)
        found = list(texts)
        matched = pc.match_substring_regex(_column(found), rf"\A(?s:{pattern})\z")
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise ValueError(f"{pattern!r} is not a regular expression of RE2: {reason}") from error
    return [text for text, is_matched in zip(found, matched.to_pylist(), strict=True) if is_matched]


def _column(texts: list[str]) -> pa.Array:
    return byte_strings([text.encode() for text in texts], pa.string())


_COORDINATOR_ID: Final = 0
_ABORTED: Final = "an administrator has aborted its transaction"
_FENCED: Final = "an administrator has fenced it"


class TransactionState(StrEnum):
    """Kafka's names of a transactional id's states."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


class TransactionListing(Struct, frozen=True):
    """A transactional id."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(Struct, frozen=True):
    """A transactional id in more words.

    `transaction_start_time_ms` is None before the first transaction. `prepared` is the identity that prepared the open
    transaction, which then only waits for its end; None if it is not prepared. `transaction` counts the transactions.
    """

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int | None
    topic_partitions: list[TopicPartition]
    transaction: int
    prepared: ProducerIdAndEpoch | None = None


class AbortTransactionSpec(Struct, frozen=True):
    """An open transaction, as `describe_producers` shows it in one of its partitions; -1 is any coordinator epoch."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1

    def __post_init__(self) -> None:
        arguments.instance("topic_partition", self.topic_partition, TopicPartition)
        for name in ("producer_id", "producer_epoch", "coordinator_epoch"):
            force_setattr(self, name, arguments.integer(name, getattr(self, name), -1))


class HangingTransaction(Struct, frozen=True):
    """A transaction that holds up a partition, and that no process will end.

    `transactional_id` is None if none owns it: then nothing but an error in this program has made it.
    """

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int
    duration_ms: int
    transactional_id: str | None = None


def list_transactions(
    log: Log,
    states: Iterable[TransactionState | str] | None,
    producer_ids: Iterable[int] | None,
    duration_filter_ms: int,
    transactional_id_pattern: str | None,
) -> list[TransactionListing]:
    """Return the transactional ids that pass every filter, by name, as last known (K122).

    A state that is not one of Kafka's matches nothing and is reported by a warning. `duration_filter_ms` lets those
    pass whose last transaction began longer ago, by this process' clock; below 0 means no filter.

    Raises:
        KafkaException: ``INVALID_REQUEST``: the pattern is not a regular expression of RE2.
    """
    wanted = _known_states(states) if states else None
    ids = frozenset(producer_ids or ())
    now_ms = log.clock.wall_ms()
    found = [
        TransactionListing(record.transactional_id, record.producer_id, _state_of(record))
        for record in log.transactions()
        if (not ids or record.producer_id in ids)
        and (duration_filter_ms < 0 or now_ms - record.start_timestamp_ms > duration_filter_ms)
    ]
    kept = [listing for listing in found if wanted is None or listing.state in wanted]
    if transactional_id_pattern:
        kept = _matching(transactional_id_pattern, kept)
    return sorted(kept, key=lambda listing: listing.transactional_id)


def _matching(pattern: str, listings: list[TransactionListing]) -> list[TransactionListing]:
    try:
        names = set(matching_texts(pattern, [listing.transactional_id for listing in listings]))
    except ValueError as error:
        raise refusal(ErrorCode.INVALID_REQUEST, str(error)) from None
    return [listing for listing in listings if listing.transactional_id in names]


def _known_states(states: Iterable[TransactionState | str]) -> frozenset[TransactionState]:
    names = {str(state) for state in states}
    unknown = names - {state.value for state in TransactionState}
    if unknown:
        log_event("states_unknown", states=sorted(unknown), expected=[*TransactionState])
    return frozenset(TransactionState(name) for name in names - unknown)


def _state_of(record: TransactionRecord) -> TransactionState:
    return TransactionState[record.status.name]


def describe_transaction(log: Log, transactional_id: str) -> TransactionDescription:
    """Return a transactional id as last known; partitions of deleted topics are left out (K123).

    Raises:
        KafkaException: ``TRANSACTIONAL_ID_NOT_FOUND``; ``INVALID_REQUEST``: the id is empty.
    """
    record = _existing(log, transactional_id)
    names = {topic.topic_id: topic.name for topic in log.topics()}
    partitions = [TopicPartition(names[where[0]], where[1]) for where in record.partitions if where[0] in names]
    return TransactionDescription(
        coordinator_id=_COORDINATOR_ID,
        state=_state_of(record),
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_start_time_ms=record.start_timestamp_ms if record.start_timestamp_ms >= 0 else None,
        topic_partitions=sorted(partitions),
        transaction=record.transaction,
        prepared=record.prepared,
    )


def _existing(log: Log, transactional_id: str) -> TransactionRecord:
    if not transactional_id:
        raise refusal(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    record = log.transaction(transactional_id)
    if record is None:
        raise refusal(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id!r} is not known")
    return record


def abort_transaction(log: Log, spec: AbortTransactionSpec) -> None:
    """Abort an open transaction in all its partitions, and fence its producer, which gets the reason (K126).

    Raises:
        KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``; ``INVALID_TXN_STATE``: it is not open there (any more);
            ``INVALID_PRODUCER_EPOCH``, ``TRANSACTION_COORDINATOR_FENCED``: the partition has seen other epochs.
    """
    log.refresh()
    where = spec.topic_partition
    topic = existing_topic(log, where.topic)
    located = log.partition(topic.topic_id, where.partition)
    if located is None:
        raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} does not exist")
    opened = next((open_ for open_ in located[0].open_transactions if open_.producer_id == spec.producer_id), None)
    producer = log.producer(topic.topic_id, where.partition, spec.producer_id)
    if opened is None or producer is None:
        reason = f"producer {spec.producer_id} has no open transaction in {where.topic} [{where.partition}]"
        raise refusal(ErrorCode.INVALID_TXN_STATE, reason)
    _check_epochs(spec, producer)
    record = _owner(log, opened, topic, where.partition)
    if record is None:
        reason = f"no transactional id owns the transaction of producer {spec.producer_id}: it cannot be aborted"
        raise refusal(ErrorCode.INVALID_TXN_STATE, reason)
    abort_ongoing(log, record)


def ongoing_transaction(log: Log, transactional_id: str) -> TransactionRecord:
    """Return the transactional id with its open transaction, as last known.

    Raises:
        KafkaException: ``TRANSACTIONAL_ID_NOT_FOUND``; ``INVALID_TXN_STATE``: no transaction is open.
    """
    record = _existing(log, transactional_id)
    if record.status is not TransactionStatus.ONGOING:
        raise refusal(ErrorCode.INVALID_TXN_STATE, f"transactional id {transactional_id!r} has no open transaction")
    return record


def abort_ongoing(log: Log, record: TransactionRecord) -> None:
    """Abort the very transaction of `record`, in all partitions and groups that it has by then, and fence its producer.

    Raises:
        KafkaException: it has ended, or has another producer; then nothing has changed.
    """
    command = EndTxn(
        record.transactional_id,
        record.producer_id,
        record.producer_epoch,
        record.transaction,
        committed=False,
        fence_reason=_ABORTED,
    )
    log.submit([command])


def _check_epochs(spec: AbortTransactionSpec, producer: ProducerState) -> None:
    if spec.producer_epoch != producer.producer_epoch:
        raise refusal(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {spec.producer_id} has epoch {producer.producer_epoch} there, not {spec.producer_epoch}",
        )
    if 0 <= spec.coordinator_epoch < producer.coordinator_epoch:
        raise refusal(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"the partition has seen coordinator epoch {producer.coordinator_epoch}: {spec.coordinator_epoch} is older",
        )


def _owner(log: Log, opened: OpenTransaction, topic: TopicState, partition: int) -> TransactionRecord | None:
    """Return the transactional id whose ongoing transaction this is; None if there is none, which cannot be."""
    record = log.transaction(opened.transactional_id)
    if record is None or record.status is not TransactionStatus.ONGOING:
        return None
    published_by = record.prepared.producer_id if record.prepared is not None else record.producer_id
    is_in = (topic.topic_id, partition) in record.partitions
    return record if is_in and published_by == opened.producer_id else None


def fence_producer(log: Log, transactional_id: str) -> ProducerIdAndEpoch:
    """Initialise a transactional id, so that its producer is fenced and its open transaction aborted (K127).

    The abort holds for a prepared transaction too. An id that is not known is made.
    """
    record = log.transaction(transactional_id)
    timeout_ms = record.timeout_ms if record is not None else 60_000
    command = InitProducerId(log.ids.token(), transactional_id, timeout_ms, fence_reason=_FENCED)
    (result,) = log.submit([command])
    return ProducerIdAndEpoch(result.producer_id, result.producer_epoch)


def find_hanging_transactions(
    log: Log, topics: Sequence[TopicState], partition: int | None, max_transaction_timeout_ms: int
) -> list[HangingTransaction]:
    """Return transactions that hold up a partition for longer than any transaction may take, as last known (K125).

    Prepared ones are not among them: a database decides those. The duration is counted from the entry that began the
    transaction, by this process' clock. For a transaction that no transactional id owns it is counted from its last
    record.
    """
    now_ms = log.clock.wall_ms()
    hanging = []
    for topic in topics:
        for number in range(topic.partition_count) if partition is None else (partition,):
            located = log.partition(topic.topic_id, number)
            for opened in located[0].open_transactions if located is not None else ():
                found = _hanging(log, topic, number, opened, now_ms)
                if found is not None and found.duration_ms > max_transaction_timeout_ms:
                    hanging.append(found)
    return hanging


def _hanging(
    log: Log, topic: TopicState, partition: int, opened: OpenTransaction, now_ms: int
) -> HangingTransaction | None:
    producer = log.producer(topic.topic_id, partition, opened.producer_id)
    if producer is None:
        return None
    owner = _owner(log, opened, topic, partition)
    if owner is not None and owner.prepared is not None:
        return None
    return HangingTransaction(
        topic_partition=TopicPartition(topic.name, partition),
        producer_id=opened.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
        start_offset=opened.first_offset,
        last_timestamp=producer.timestamp_ms,
        duration_ms=now_ms - (owner.start_timestamp_ms if owner is not None else producer.timestamp_ms),
        transactional_id=owner.transactional_id if owner is not None else None,
    )
