"""Outside transactions: one thread gathers records, and batches of columns, for linger.ms and publishes them once."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparktxn._engine.log.log import CLOSE_TIMEOUT_S
from sparktxn._engine.log.views.refusals import reading_once
from sparktxn._engine.objectstore.writehealth import with_last_error
from sparktxn._foundation.process.background import start_thread
from sparktxn._foundation.process.clock import Deadline, callers_own_time, is_time_up, time_left_s
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.process.handles import Held, hold
from sparktxn._kafka.settings.producer import ProducerSettings
from sparktxn._rows.stage.buffers import Buffers, TopicBuffer
from sparktxn._rows.stage.columnconversion import conformed, slices
from sparktxn._rows.stage.keyedrows import as_deletes
from sparktxn._rows.stage.pendingsegment import PendingSegment
from sparktxn._rows.stage.recordsizes import row_above
from sparktxn._rows.stage.rowpartitions import given_partitions
from sparktxn._rows.stage.transactionwriter import NO_IDENTITY
from sparktxn.errors import (
    ClockSkewError,
    CommandRefused,
    ErrorCode,
    KafkaError,
    KafkaException,
    StoreError,
    StoreUnavailable,
)
from sparktxn.producer.outbox import Outbox
from sparktxn.producer.reports import DeliveryCallback
from sparktxn.producer.topics import check_partition, too_large
from sparktxn.producer.transactionerrors import TransactionOperation

if TYPE_CHECKING:
    from sparktxn._engine.log.log import Log


_RENEWED_BY: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)
_RETRY_PAUSE_S: Final = 0.1

# A thread may append, unnoticed, in the instant in which its partition is emptied: look once more before sleeping.
_CHECK_AGAIN_S: Final = 0.05


class _Bell:
    """What the thread waits for. It refers to nothing of the producer, so that a waiting thread keeps none alive."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.rung = False
        self.hurried = False
        self.closed = False
        self.is_exit = False
        self.last_work: tuple[Linger, Callable[[], None]] | None = None

    def wait(self, patience_s: float | None) -> bool:
        """Return once there may be work, or after `patience_s`; False once the sender is closed."""
        with self.changed:
            if not (self.rung or self.closed or self.is_exit or self.last_work):
                self.changed.wait(patience_s)
            self.rung = False
            return not self.closed and (not self.is_exit or self.last_work is not None)

    def finish(self) -> None:
        """End the thread at the interpreter's exit: after the round under way, or what its dropped producer left."""
        with self.changed:
            self.is_exit = True
            self.changed.notify_all()


class Linger:
    """Publishes what waits in `buffers` until it is closed. Reports and errors are queued, never raised."""

    def __init__(
        self,
        log: Log,
        outbox: Outbox,
        buffers: Buffers,
        settings: ProducerSettings,
        *,
        on_round: Callable[[], None],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        self._log = log
        self._outbox = outbox
        self._buffers = buffers
        self._settings = settings
        self._on_round = on_round
        self._on_error = on_error
        self._bell = _Bell()
        self._thread: threading.Thread | None = None
        self._life = Deadline(log.clock, None)

    def start(self) -> None:
        """Start the thread, before the first record is taken. Calling it again changes nothing.

        Raises:
            KafkaException: ``_CRIT_SYS_RESOURCE``: the machine gives no thread.
        """
        bell = self._bell
        with bell.changed:
            if bell.closed or self._thread is not None:
                return
            held = hold()
            try:
                self._thread = start_thread(
                    "sparktxn-sender",
                    _serve,
                    bell,
                    weakref.ref(self),
                    held,
                    finish=bell.finish,
                    give_up=self._life.end,
                )
            except KafkaException:
                held.release()
                raise

    def notice(self) -> None:
        """Say that records wait."""
        with self._bell.changed:
            self._bell.rung = True
            self._bell.changed.notify_all()

    def hurry(self) -> None:
        """Send what waits now, without lingering; here, if the exit of the interpreter has ended the thread."""
        with self._bell.changed:
            self._bell.hurried = self._bell.rung = True
            self._bell.changed.notify_all()
        if self._bell.is_exit and self._thread is not None and not self._thread.is_alive():
            with callers_own_time():  # in that thread's place
                self.work()

    def close(self) -> None:
        """Stop the thread after the round under way, or give it up at the caller's deadline: it then sends no more."""
        with self._bell.changed:
            self._bell.closed = True
            self._bell.changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(time_left_s(CLOSE_TIMEOUT_S))
            self._life.end()
            if self._thread.is_alive():
                self._outbox.withdraw()

    def finish(self, then: Callable[[], None]) -> bool:
        """Have the thread publish what waits, for delivery.timeout.ms at most, call `then`, and end.

        False if there is no thread: then nothing waits, and `then` is not called.
        """
        bell = self._bell
        with bell.changed:
            if self._thread is None or bell.closed:
                return False
            bell.last_work = (self, then)
            bell.hurried = True
            bell.changed.notify_all()
            return True

    def work(self) -> bool:
        """Publish in rounds until nothing waits; False if nothing did. Called by the thread."""
        worked = False
        with self._life.governs():
            while self._gather() and not is_time_up():
                worked = True
                try:
                    with self._log.within(self._settings.delivery_timeout_s), self._outbox.exclusive():
                        self._round()
                except KafkaException as refused:
                    # What the store does not allow is not a failure of the sender: each record's report says it.
                    self._outbox.discard(refused.args[0])
                except Exception as error:  # noqa: BLE001 - logged with its trace
                    log_event("sender_failed", client_id=self._settings.client_id, exc_info=True)
                    self._outbox.discard(KafkaError(ErrorCode.LOCAL_FAIL, f"the sender has failed: {error}"))
                self._on_round()
        return worked

    def finish_work(self) -> None:
        """Publish what waits of a producer that is gone; what fails for delivery.timeout.ms is given up."""
        with self._log.within(self._settings.delivery_timeout_s):
            self.work()

    def _gather(self) -> bool:
        """Wait for linger.ms or a full batch; False if no record waits, and once closed."""
        bell = self._bell
        with bell.changed:
            if not self._buffers.has_records():
                bell.hurried = False
                return False
            linger = Deadline(self._log.clock, self._settings.linger_s)
            while not (
                bell.closed or bell.hurried or bell.is_exit or bell.last_work or linger.passed()
                or self._is_batch_full()
            ):  # fmt: skip
                bell.changed.wait(linger.remaining_s())
            is_leaving = bell.is_exit and not bell.last_work and self._thread is threading.current_thread()
            return not (bell.closed or is_leaving)

    def _is_batch_full(self) -> bool:
        return (
            self._buffers.buffered() >= self._settings.batch_messages_max
            or self._buffers.buffered_bytes() >= self._settings.batch_bytes_max
        )

    def _round(self) -> None:
        """Publish all that waits, or report why not by the delivery timeout."""
        while True:
            try:
                self._publish()
            except CommandRefused as refused:
                self._outbox.discard(refused.error)
            except StoreError as error:
                if _is_refusal(error) and self._outbox.withdraw():
                    self._report(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.error.str()))
                elif error.error.retriable() and not is_time_up() and not self._bell.closed:
                    self._log.clock.sleep(_RETRY_PAUSE_S)
                    continue
                else:
                    self._give_up(error)
            return

    def _publish(self) -> None:
        if self._outbox.identity == NO_IDENTITY:
            self._outbox.initialise()
        self._outbox.resolve()
        segments = self._outbox.stage()
        if not segments:
            return
        try:
            self._outbox.publish(TransactionOperation.PUBLISH, segments)
            self._outbox.resolve()
        except CommandRefused as refused:
            if refused.error.code() in _RENEWED_BY:
                self._outbox.initialise()
            self._publish_each(segments)

    def _publish_each(self, segments: list[PendingSegment]) -> None:
        """Publish in one list a segment: a deleted topic then fails its own records only."""
        for segment in segments:
            try:
                self._outbox.publish(TransactionOperation.PUBLISH, [segment])
                self._outbox.resolve()
            except CommandRefused as refused:
                self._outbox.discard(refused.error, lambda dropped, failed=segment: dropped is failed)  # type: ignore[misc]

    def _give_up(self, error: KafkaException) -> None:
        """Report a time-out for all that waits. The report of a list that may be stored says so."""
        said = with_last_error(error.error.str(), self._log.objects)
        not_stored = KafkaError(ErrorCode.LOCAL_MSG_TIMED_OUT, f"not stored within delivery.timeout.ms: {said}")
        if self._outbox.withdraw():
            self._report(not_stored)
            return
        reason = f"the outcome is not known after delivery.timeout.ms (possibly persisted): {said}"
        not_known = KafkaError(ErrorCode.LOCAL_MSG_TIMED_OUT, reason)
        self._on_error(not_known)
        self._outbox.give_up(not_known)
        self._outbox.discard(not_stored)

    def _report(self, error: KafkaError) -> None:
        """Report that what waits never will be stored."""
        self._on_error(error)
        self._outbox.discard(error)


def _is_refusal(error: StoreError) -> bool:
    """Return whether the store refuses to write until an administrator acts; a clock may be set right in time."""
    return isinstance(error, StoreUnavailable) and not error.transient and not isinstance(error, ClockSkewError)


def _serve(bell: _Bell, reference: weakref.ref[Linger], held: Held) -> None:
    """Work whenever the bell rings. Between two rings this thread refers to nothing of the producer."""
    patience_s: float | None = _CHECK_AGAIN_S
    try:
        while bell.wait(patience_s):
            if bell.last_work is not None:
                sender, then = bell.last_work
                sender.finish_work()
                then()
                return
            found = reference()
            patience_s = _CHECK_AGAIN_S if found is not None and found.work() else None
            del found
    finally:
        held.release()


# Records that are given many at a time: as dictionaries of produce()'s arguments, or as columns.


def produce_each(
    produce: Callable[..., None],
    topic: str,
    messages: list[dict[str, Any]],
    partition: int,
    callback: DeliveryCallback | None,
) -> int:
    """Call `produce` for each of `messages` and return how many it took; a refused one gets its error as ``_error``.

    Raises:
        KafkaException: _STATE: no record may be produced.
    """
    with reading_once():
        return sum(_is_queued(produce, topic, message, partition, callback) for message in messages)


def _is_queued(
    produce: Callable[..., None],
    topic: str,
    message: dict[str, Any],
    partition: int,
    callback: DeliveryCallback | None,
) -> bool:
    given = {name: value for name, value in message.items() if name != "_error"}
    given.setdefault("partition", partition)
    if "callback" not in given and "on_delivery" not in given:
        given["callback"] = callback
    try:
        produce(topic, **given)
    except TypeError as error:
        message["_error"] = KafkaError(ErrorCode.LOCAL_INVALID_ARG, str(error))
    except BufferError as error:
        message["_error"] = KafkaError(ErrorCode.LOCAL_QUEUE_FULL, str(error), retriable=True)
    except KafkaException as error:
        if error.error.code() == ErrorCode.LOCAL_STATE:
            raise
        message["_error"] = error.error
    else:
        return True
    return False


def checked_columns(
    target: TopicBuffer, *, tables: Sequence[pa.Table], now_ms: int, partition: int, delete: bool = False
) -> tuple[TopicBuffer, list[tuple[pa.Table, pa.Array | None]]]:
    """Return `target`, and all rows as it stores them; if `partition` is below 0, also those that the rows name.

    With `delete` each row deletes its key.

    All are checked before the caller queues any: a call that fails has queued nothing.

    Raises:
        ConfigurationError: a column is unknown, missing or of another type.
        KafkaException: _UNKNOWN_PARTITION; MSG_SIZE_TOO_LARGE, a record is above what the topic takes; INVALID_RECORD,
            a key is too long, or belongs to another partition.
    """
    check_partition(target, partition)
    checked = []
    for table in tables:
        for rows in slices(table):
            if delete:
                rows = as_deletes(target.stage, rows)
            records = conformed(target.stage, rows, now_ms)
            if (largest := row_above(records, target.size_max)) is not None:
                raise too_large(target, largest)
            given = None
            if partition < 0 or target.stage.primary_key:
                given = given_partitions(target.stage, rows, records, None if partition < 0 else partition)
            checked.append((records, given))
    return target, checked
