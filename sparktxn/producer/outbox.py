"""What a producer has on its way: records that wait are uploaded, named in the log in order, and reported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sparktxn._engine.format.commands import Command, CommandResult
from sparktxn._foundation.process.clock import acquired_in_time
from sparktxn._foundation.values.fieldtypes import TopicIdPartition, TopicPartitionKey
from sparktxn._kafka.settings.producer import ProducerSettings
from sparktxn._rows.stage.buffers import Buffers, Limits
from sparktxn._rows.stage.pendingsegment import PendingSegment, Uploads, stage_inline, upload_missing
from sparktxn._rows.stage.stagedsegment import INLINE_LIST_BYTES_MAX, StagedSegment
from sparktxn._rows.stage.transactionwriter import TransactionIdentity, TransactionWriter
from sparktxn.errors import KafkaError, KafkaException, OutcomeUnknown
from sparktxn.producer.reports import Reports
from sparktxn.producer.transactionerrors import TransactionOperation

if TYPE_CHECKING:
    from sparktxn._engine.log.log import Log

MEMORY_BYTES_MAX: Final = 64 * 1024 * 1024
"""What may wait in memory, whatever queue.buffering.max.kbytes allows, before segments are sent off early."""


class Outbox(TransactionWriter):
    """Own what is between a producer's buffers and the log. Its callers hold `exclusive`."""

    def __init__(self, log: Log, buffers: Buffers, reports: Reports) -> None:
        super().__init__(log)
        self._buffers = buffers
        self._reports = reports
        self._lock = threading.Lock()
        self._operation = TransactionOperation.PUBLISH
        self._named: Sequence[PendingSegment] = ()
        self._before_count = 0
        self._is_given_up = False
        self.stored_records: dict[TopicPartitionKey, int] = {}
        """Records that entries of this producer name, by (topic, partition)."""
        self.dropped_records = 0
        """Records that `discard` has dropped; a transaction sets it to 0 when it begins."""
        self.published_records: dict[TopicIdPartition, int] = {}
        """Records that flush() has published, by (topic id, partition); a transaction empties it when it begins."""

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other threads of this producer from publishing.

        Raises:
            OutcomeUnknown: another thread published until the caller's deadline.
        """
        if not acquired_in_time(self._lock):
            raise OutcomeUnknown("another thread of this producer was publishing until the deadline: call again")
        try:
            yield
        finally:
            self._lock.release()

    @property
    def under_way(self) -> TransactionOperation | None:
        """What the list whose outcome is not known was sent for."""
        return self._operation if self._under_way is not None else None

    def stage(self) -> list[PendingSegment]:
        """Make all that waits ready for a list that is sent next, and return it in order.

        The list carries what is small; the rest is uploaded.

        Raises:
            CommandRefused: INVALID_TIMESTAMP, a record is dated before 1970.
            OutcomeUnknown, StoreUnavailable: some is not uploaded; call again.
        """
        segments = self._buffers.take()
        stage_inline(segments, INLINE_LIST_BYTES_MAX)
        upload_missing(segments)
        return segments

    def stage_open(self) -> list[PendingSegment]:
        """Make all that waits ready, and return what a transaction may publish before it ends.

        Rows of keyed topics are uploaded, and named in the list that ends the transaction. Raises as `stage`.
        """
        segments = self._buffers.take()
        published = [segment for segment in segments if not segment.topic.primary_key]
        stage_inline(published, INLINE_LIST_BYTES_MAX)
        upload_missing(segments)
        return published

    def keyed_topic(self) -> str | None:
        """Return a keyed topic of which rows wait; None if there is none."""
        return next((topic.name for topic in self._buffers.topics() if topic.primary_key), None)

    def upload(self) -> list[PendingSegment]:
        """Upload all that waits, in parallel if it is more than one segment, and return it in order.

        Raises:
            OutcomeUnknown, StoreUnavailable: some is not uploaded; call again.
        """
        segments = self._buffers.take()
        upload_missing(segments)
        return segments

    def waited_s(self) -> float:
        """Return for how many seconds the oldest segment that is not stored has been tried; 0 if there is none."""
        made = [segment.made_s for segment in self._buffers.take() if segment.staged is None or segment.staged.data]
        return self._log.clock.monotonic_s() - min(made) if made else 0.0

    def publish(
        self,
        operation: TransactionOperation,
        segments: Sequence[PendingSegment],
        after: Sequence[Command] = (),
        transaction: TransactionIdentity | None = None,
        *,
        before: Sequence[Command] = (),
    ) -> None:
        """Send one list: `before`, the uploaded `segments`, then `after`.

        `resolve` returns its outcome; where it is refused or lost, the segments still wait.
        """
        staged = [_staged(segment) for segment in segments]
        self.send(staged, before=before, after=after, transaction=transaction)
        self._before_count = len(before)
        self._operation, self._named = operation, segments

    def give_up(self, error: KafkaError) -> None:
        """Report `error` for the records of the list under way, whose outcome is not known, and put it no more.

        The next list is sent once it is known what became of this one, as its sequences depend on that.
        """
        assert self._under_way is not None, "no list is under way"
        self._is_given_up = True
        self._under_way.ticket.let_go()
        # Reports first: a record that is in neither would not be waited for.
        for segment in self._named:
            self._reports.add(segment.failed(error))
        self._buffers.settle(self._named)

    def resolve(self, *, cancel: bool = False) -> list[CommandResult]:
        """Return the results of the list under way, as `TransactionWriter` does; none of one given up and not written.

        Raises:
            CommandRefused, OutcomeUnknown, StoreUnavailable, OutcomeLost: as there.
        """
        try:
            return super().resolve(cancel=cancel)
        except KafkaException:
            sent = self._under_way
            if not self._is_given_up or sent is None or not sent.ticket.is_done():
                raise
            self._under_way = None
            return []
        finally:
            self._is_given_up = self._is_given_up and self._under_way is not None

    def _stored(self, results: Sequence[CommandResult]) -> None:
        """Queue the reports of the records that the list has named; its segments wait no more."""
        named, self._named = self._named, ()
        for segment, result in zip(named, results[self._before_count :], strict=False):
            place = (segment.topic.name, segment.partition)
            self.stored_records[place] = self.stored_records.get(place, 0) + segment.record_count
            if segment.report_count:
                by_entry = self._by_entry[segment.topic.topic_id]
                self._reports.add(segment.delivered(result.base_offset, result.timestamp_ms if by_entry else None))
        if self._operation is TransactionOperation.PUBLISH:
            self._count_published(named)
        self._buffers.settle(named)

    def _count_published(self, segments: Sequence[PendingSegment]) -> None:
        for segment in segments:
            where = (segment.topic.topic_id, segment.partition)
            self.published_records[where] = self.published_records.get(where, 0) + segment.record_count

    def discard(self, error: KafkaError, chosen: Callable[[PendingSegment], bool] = lambda _: True) -> None:
        """Drop what waits and is under no list, and report `error` for it."""
        held = set(map(id, self._named)) if self.is_busy else set()
        dropped = [segment for segment in self._buffers.take() if id(segment) not in held and chosen(segment)]
        for segment in dropped:
            self.dropped_records += segment.record_count
            if segment.report_count:
                self._reports.add(segment.failed(error))
        self._buffers.settle(dropped)
        for segment in dropped:
            segment.drop()


def buffers_of(
    log: Log, settings: ProducerSettings, *, on_waiting: Callable[[], object], served: Callable[[], int]
) -> Buffers:
    """Return the buffers of a producer with these settings, whose segments are uploaded as `log` uploads."""

    def waiting_in(segment: PendingSegment) -> int:
        # Durable records of a transaction wait no more, except for reports that an early publish could bring.
        if segment.staged is None or segment.staged.data or settings.transactional_id is None:
            return segment.record_count
        return segment.report_count if settings.publish_on_flush else 0

    bytes_max = min(settings.queue_bytes_max, MEMORY_BYTES_MAX)
    limits = Limits(settings.queue_messages_max, settings.batch_messages_max, bytes_max)
    return Buffers(Uploads.of(log), limits, on_waiting=on_waiting, served=served, waiting_in=waiting_in)


def _staged(segment: PendingSegment) -> StagedSegment:
    if segment.staged is None:
        raise AssertionError(f"{segment.describe()} is named before it is uploaded")
    return segment.staged
