"""Records that are stored at once: what all connections have sent goes into one entry, and each batch is stored once.

These are records outside transactions, and those of open ones where a gateway does not keep them in its memory.

A batch of an idempotent producer keeps the producer's own id, epoch and sequence. So the log finds what was sent
twice, through whichever gateway (PROTOCOL.md, "Producers"). Batches of others are this process's own.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, NamedTuple

import pyarrow as pa

from sparktxn._engine.format.commands import ExpireProducers
from sparktxn._engine.log.log import Log
from sparktxn._engine.state.transactions.producerfencing import next_sequence
from sparktxn._foundation.process.background import start_thread, without_frames
from sparktxn._foundation.process.clock import Deadline, time_left_s
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values.structs import NO_TRANSACTION, ProducerIdAndEpoch
from sparktxn._rows.stage.pendingsegment import PendingSegment, Uploads, stage_inline, upload_missing
from sparktxn._rows.stage.stagedsegment import INLINE_LIST_BYTES_MAX, StagedSegment, StageTopic
from sparktxn._rows.stage.transactionwriter import NO_IDENTITY, TransactionIdentity, TransactionWriter
from sparktxn.errors import CommandRefused, ErrorCode, KafkaException, OutcomeUnknown
from sparktxn.store.options import TopicIdPartition

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuv"
_WRITERS_MAX: Final = 10_000
"""How many producers' writers are kept: one that is dropped is made again, and the log knows its sequences."""
_RENEWED_BY: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)


class Appended(NamedTuple):
    """Where a batch is: the offset of its first record, or -1 if that is not known any more, and its entry's time."""

    base_offset: int
    timestamp_ms: int


class TransactionOfBatch(NamedTuple):
    """The transaction whose records a batch has, and what the list that appends it has to forget before."""

    identity: TransactionIdentity
    forgets: ExpireProducers | None = None


class _SameToken:
    """Names the segment of a batch, and what its producer sends again: by that name the log knows that it has it.

    The same sequence may come again in another transaction, after an abort.
    """

    def __init__(
        self,
        where: TopicIdPartition,
        identity: ProducerIdAndEpoch,
        base_sequence: int,
        digest: bytes,
        transaction: int,
    ) -> None:
        place = b"%d/%d/%d/%d/%d/" % (*where, identity.producer_id, identity.producer_epoch, base_sequence)
        if transaction != NO_TRANSACTION:
            place += b"%d/" % transaction
        self._token = hashlib.blake2b(place + digest, digest_size=20).digest()

    def token(self) -> str:
        """Return 20 of the digits 0-9 and a-v."""
        return "".join(_DIGITS[byte % len(_DIGITS)] for byte in self._token)


class _Waiting(NamedTuple):
    segment: PendingSegment
    identity: ProducerIdAndEpoch
    base_sequence: int
    open: TransactionOfBatch | None
    outcome: Future[Appended]

    @property
    def where(self) -> TopicIdPartition:
        """Its partition."""
        return (self.segment.topic.topic_id, self.segment.partition)

    @property
    def transaction(self) -> TransactionIdentity | None:
        """The transaction that it belongs to."""
        return None if self.open is None else self.open.identity

    def staged(self) -> StagedSegment:
        """Return the segment, which is uploaded or carried by the list."""
        assert self.segment.staged is not None
        return self.segment.staged

    def fail(self, error: KafkaException) -> None:
        """End it with an error, unless it has ended."""
        if not self.outcome.done():
            self.outcome.set_exception(without_frames(error))


class AppendRounds:
    """Appends what has come in rounds, on a thread of its own; two of them begin at least `linger_s` apart."""

    def __init__(self, log: Log, *, linger_s: float, timeout_s: float) -> None:
        self._log = log
        self._uploads = Uploads.of(log)
        self._linger_s = linger_s
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._next_s = float("-inf")
        self._closed = False
        self._writers: dict[ProducerIdAndEpoch, TransactionWriter] = {}
        self._thread = start_thread(
            "sparktxn-gateway-appends", self._serve, finish=self._finish, give_up=self._finish, ends_first=True
        )

    def add(
        self,
        topic: StageTopic,
        partition: int,
        records: pa.Table,
        identity: ProducerIdAndEpoch = NO_IDENTITY,
        base_sequence: int = -1,
        digest: bytes = b"",
        transaction: TransactionOfBatch | None = None,
    ) -> Future[Appended]:
        """Queue a batch for a partition; its outcome is known once its entry is stored, or refused.

        With `transaction` its records belong to that one.

        `digest` is one of the records of an idempotent producer. A large batch is uploaded at once. The future raises
        CommandRefused where the log refuses the batch, StoreUnavailable and OutcomeUnknown where it is not known by
        the deadline. A batch that is sent again is stored once, if its producer is idempotent.
        """
        uploads = self._uploads
        if identity != NO_IDENTITY:
            where = (topic.topic_id, partition)
            number = NO_TRANSACTION if transaction is None else transaction.identity.transaction
            uploads = uploads._replace(ids=_SameToken(where, identity, base_sequence, digest, number))
        segment = PendingSegment(uploads, topic, partition, records, records.nbytes)
        if not segment.may_be_inline:
            segment.start()
        waiting = _Waiting(segment, identity, base_sequence, transaction, Future())
        with self._changed:
            self._waiting.append(waiting)
            self._changed.notify_all()
        return waiting.outcome

    def close(self) -> None:
        """Append what waits, and end the thread, by the caller's deadline."""
        self._finish()
        self._thread.join(time_left_s(self._timeout_s))

    def _finish(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _serve(self) -> None:
        while taken := self._take():
            try:
                with Deadline(self._log.clock, self._timeout_s).governs():
                    self._round(taken)
            except KafkaException as error:
                for waiting in taken:
                    waiting.fail(error)
            except Exception as error:  # noqa: BLE001 - logged with its trace; what comes later is still appended
                log_event("sender_failed", client_id="gateway", exc_info=True)
                failed = CommandRefused(ErrorCode.UNKNOWN, f"the gateway has failed: {error!r}")
                for waiting in taken:
                    waiting.fail(failed)

    def _take(self) -> list[_Waiting]:
        """Return what waits, once the next round is due; empty once this is closed."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            # A batch that comes alone waits for no others.
            while not self._closed and (wait_s := self._next_s - self._log.clock.monotonic_s()) > 0:
                self._changed.wait(wait_s)
            self._next_s = self._log.clock.monotonic_s() + self._linger_s
            taken, self._waiting = self._waiting, []
            return taken

    def _round(self, taken: Sequence[_Waiting]) -> None:
        usable = self._staged(taken)
        by_producer: dict[ProducerIdAndEpoch, list[_Waiting]] = {}
        for waiting in usable:
            by_producer.setdefault(waiting.identity, []).append(waiting)
        sent = []
        for identity, batches in by_producer.items():
            first, *others = _in_sequence(batches)
            sent.append((self._writer(identity), first, others))
        # The first lists of all are queued before one is waited for: one entry takes them.
        for writer, first, _ in sent:
            self._send(writer, first)
        for writer, first, others in sent:
            self._resolve(writer, first)
            for batches in others:
                self._send(writer, batches)
                self._resolve(writer, batches)

    def _staged(self, taken: Sequence[_Waiting]) -> list[_Waiting]:
        """Upload what no list carries; end those whose records cannot be stored."""
        usable = []
        left_bytes = INLINE_LIST_BYTES_MAX
        for waiting in taken:
            try:
                stage_inline([waiting.segment], left_bytes)
                if waiting.segment.staged is not None and waiting.segment.staged.data:
                    left_bytes -= waiting.segment.staged.size_bytes
                usable.append(waiting)
            except KafkaException as error:
                waiting.fail(error)
        for waiting in usable:
            if waiting.segment.staged is None:
                waiting.segment.start()
        stored = []
        for waiting in usable:
            try:
                upload_missing([waiting.segment])
                stored.append(waiting)
            except KafkaException as error:
                waiting.fail(error)
        return stored

    def _writer(self, identity: ProducerIdAndEpoch) -> TransactionWriter:
        writer = self._writers.pop(identity, None)
        if writer is None:
            writer = TransactionWriter(self._log)
            for oldest in list(self._writers)[: len(self._writers) - _WRITERS_MAX]:
                self._writers.pop(oldest).let_go()
        self._writers[identity] = writer
        return writer

    def _send(self, writer: TransactionWriter, batches: Sequence[_Waiting]) -> None:
        """Send the batches of one producer as one list, once what was under way of it is known."""
        try:
            with suppress(CommandRefused):
                writer.resolve()
            self._identify(writer, batches)
            writer.send([waiting.staged() for waiting in batches], transaction=batches[0].transaction)
        except KafkaException as error:
            for waiting in batches:
                waiting.fail(error)

    def _identify(self, writer: TransactionWriter, batches: Sequence[_Waiting]) -> None:
        """Have the writer continue at the producer's own sequences, or take an identity of this process's."""
        identity = batches[0].identity
        if identity == NO_IDENTITY:
            if writer.identity == NO_IDENTITY:
                writer.initialise()
            return
        writer.take_identity(identity)
        begun: set[TopicIdPartition] = set()
        for waiting in batches:
            if waiting.where not in begun:
                forgets = None if waiting.open is None else waiting.open.forgets
                writer.continue_at(waiting.where, waiting.base_sequence, forgets)
                begun.add(waiting.where)

    def _resolve(self, writer: TransactionWriter, batches: Sequence[_Waiting]) -> None:
        waiting_ = [waiting for waiting in batches if not waiting.outcome.done()]
        if not waiting_:
            return
        try:
            results = writer.resolve()
        except CommandRefused as refused:
            if waiting_[0].identity == NO_IDENTITY and refused.error.code() in _RENEWED_BY:
                writer.take_identity(NO_IDENTITY)
            if len(waiting_) > 1:
                for waiting in waiting_:
                    self._send(writer, [waiting])
                    self._resolve(writer, [waiting])
                return
            waiting_[0].fail(refused)
        except KafkaException as error:
            if isinstance(error, OutcomeUnknown) and waiting_[0].identity == NO_IDENTITY:
                writer.let_go()
                self._writers.pop(NO_IDENTITY, None)
            for waiting in waiting_:
                waiting.fail(error)
        else:
            for waiting, result in zip(waiting_, results, strict=True):
                waiting.outcome.set_result(Appended(result.base_offset, result.timestamp_ms))


def _in_sequence(batches: Sequence[_Waiting]) -> list[list[_Waiting]]:
    """Return the batches of one producer as lists of one transaction, in which each follows its partition's last one.

    What was sent twice comes into another list, where the log knows it.
    """
    if batches[0].identity == NO_IDENTITY:
        return [list(batches)]
    lists: list[list[_Waiting]] = [[]]
    expected: dict[TopicIdPartition, int] = {}
    for waiting in batches:
        is_next = expected.get(waiting.where, waiting.base_sequence) == waiting.base_sequence
        if not is_next or waiting.transaction != (lists[-1] or batches)[0].transaction:
            lists.append([])
            expected = {}
        lists[-1].append(waiting)
        expected[waiting.where] = next_sequence(waiting.base_sequence, waiting.segment.record_count)
    return lists
