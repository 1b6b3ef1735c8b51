"""`with producer.transaction(…)`: commit at the block's end, abort after an exception, and take the consumer along."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from sparktxn.errors import KafkaException, StoreError
from sparktxn.kafka.message import ConsumerGroupMetadata, TopicPartition
from sparktxn.producer.recordvalues import Positioned
from sparktxn.producer.states import TransactionPhase

__all__ = ["transaction_block"]

_OPEN: Final = frozenset({TransactionPhase.IN_TRANSACTION, TransactionPhase.ABORTABLE_ERROR})
_MAY_COMMIT: Final = frozenset(
    {
        TransactionPhase.COMMITTING_TRANSACTION,
        TransactionPhase.PREPARING_TRANSACTION,
        TransactionPhase.PREPARED_TRANSACTION,
    }
)
_FATAL: Final = (
    "this producer can only be closed. Its consumer is back where the block began: unless another instance has taken "
    "over, begin again with a new producer"
)
_UNKNOWN: Final = (
    "it is not known whether the transaction was committed. Close the producer and the consumer, and make new ones: "
    "they start from the offsets that are committed"
)


class _Producer(Protocol):
    """What a block needs of a producer."""

    @property
    def transaction_state(self) -> TransactionPhase: ...

    def begin_transaction(self) -> None: ...

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: ConsumerGroupMetadata
    ) -> None: ...

    def commit_transaction(self) -> None: ...

    def abort_transaction(self) -> None: ...


class _Source:
    """The consumer whose positions the block commits: it returns to where the block began if that fails.

    Another object with a consumer's `assignment`, `position` and `consumer_group_metadata` stays where it is.
    """

    def __init__(self, consumer: Positioned | None) -> None:
        self._consumer = consumer
        self._end: Any = getattr(consumer, "end_block", None)
        self._began: Any = consumer.begin_block() if self._end is not None else None  # type: ignore[union-attr]

    def send_offsets(self, producer: _Producer) -> None:
        """Add the positions to the transaction."""
        consumer = self._consumer
        if consumer is not None:
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())

    def end(self, *, committed: bool) -> None:
        """Go on after the transaction."""
        if self._end is not None:
            self._end(self._began, committed)

    def fail(self, producer: _Producer, error: BaseException, *, commits: bool) -> None:
        """Go back to where the block began, unless the transaction may still have been committed."""
        state = producer.transaction_state
        if state is TransactionPhase.FATAL_ERROR:
            # A refusal has written nothing. After another error of a commit, the log may hold the transaction.
            unknown = commits and isinstance(error.__cause__, StoreError)
            if self._end is not None:
                error.add_note(_UNKNOWN if unknown else _FATAL)
            if unknown:
                return
        if state not in _MAY_COMMIT:
            self.end(committed=False)


@contextmanager
def transaction_block(producer: _Producer, offsets_from: Positioned | None) -> Iterator[None]:
    """Begin a transaction; commit it when the block ends, abort it after an exception."""
    producer.begin_transaction()
    source = _Source(None)
    try:
        source = _Source(offsets_from)
        yield
        source.send_offsets(producer)
    except BaseException as error:
        _abort_after(producer, error)
        source.fail(producer, error, commits=False)
        raise
    try:
        producer.commit_transaction()
    except KafkaException as error:
        if error.error.txn_requires_abort():
            _abort_after(producer, error)
        source.fail(producer, error, commits=True)
        raise
    source.end(committed=True)


def _abort_after(producer: _Producer, error: BaseException) -> None:
    """Abort the open transaction, if it can be; `error` is what the caller will see, whatever the abort says."""
    if producer.transaction_state in _OPEN:
        try:
            producer.abort_transaction()
        except KafkaException as abort_error:
            error.add_note(f"the abort that followed failed: {abort_error}")
