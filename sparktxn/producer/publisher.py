"""Uploads what waits and names it in the log, in order, under one producer identity.

One list of commands is under way at a time. While its outcome is unknown nothing else is sent: the same list is waited
for again, so a lost answer never becomes a second append.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from sparktxn.clock import Deadline, acquired_in_time
from sparktxn.errors import CommandRefused, KafkaError, OutcomeLost, OutcomeUnknown
from sparktxn.format.commands import Append, Command, CommandResult
from sparktxn.producer.buffers import Buffers
from sparktxn.producer.failures import Operation
from sparktxn.producer.reports import Reports
from sparktxn.producer.segments import PendingSegment
from sparktxn.state.producers import next_sequence
from sparktxn.structs import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch

if TYPE_CHECKING:
    from sparktxn.log.committer import Ticket
    from sparktxn.log.log import Log

__all__ = ["Publisher", "TransactionIdentity"]

_Sequences = dict[tuple[int, int], int]


class TransactionIdentity(Struct, frozen=True):
    """What every command of a transaction names."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction: int


class _Publication(Struct):
    """A list of commands that was sent: its segments come first in it."""

    operation: Operation
    ticket: Ticket
    segments: list[PendingSegment]
    sequences: _Sequences


class Publisher:
    """Owns a producer's identity, its sequences and the list that is under way. Its callers hold `exclusive`."""

    def __init__(self, log: Log, buffers: Buffers, reports: Reports) -> None:
        self._log = log
        self._buffers = buffers
        self._reports = reports
        self._lock = threading.Lock()
        self._sequences: _Sequences = {}
        self._publication: _Publication | None = None
        self._given_up = False
        self.identity = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        self.dropped_records = 0
        """Records that `discard` has dropped; a transaction sets it to 0 when it begins."""

    @contextmanager
    def exclusive(self, deadline: Deadline) -> Iterator[None]:
        """Keep other threads of this producer from publishing; requests meanwhile keep `deadline`.

        Raises:
            OutcomeUnknown: another thread published until the deadline.
        """
        if not acquired_in_time(self._lock, deadline.remaining_s()):
            raise OutcomeUnknown("another thread of this producer was publishing until the deadline: call again")
        try:
            with deadline.governs():
                yield
        finally:
            self._lock.release()

    def take_identity(self, identity: ProducerIdAndEpoch) -> None:
        """Goes on under another producer id or epoch, whose sequences begin at 0."""
        self.identity = identity
        self._sequences = {}

    @property
    def under_way(self) -> Operation | None:
        """What the list whose outcome is not known was sent for."""
        return self._publication.operation if self._publication is not None else None

    def upload(self, deadline: Deadline) -> list[PendingSegment]:
        """All that waits, uploaded: in parallel where it is more than one segment.

        Raises:
            OutcomeUnknown, StoreUnavailable: some is not; call again.
        """
        segments = self._buffers.take()
        missing = [segment for segment in segments if segment.staged is None]
        for segment in missing[1:]:
            segment.start()
        for segment in missing:
            segment.finish(deadline)
        return segments

    def waited_s(self) -> float:
        """For how many seconds the oldest segment that is not uploaded has been tried; 0 if there is none."""
        made = [segment.made_s for segment in self._buffers.take() if segment.staged is None]
        return self._log.clock.monotonic_s() - min(made) if made else 0.0

    def send(
        self,
        operation: Operation,
        segments: Sequence[PendingSegment],
        others: Sequence[Command] = (),
        transaction: TransactionIdentity | None = None,
    ) -> None:
        """Sends one list, all or nothing: the uploaded `segments`, then `others`. `resolve` tells its outcome."""
        sequences = dict(self._sequences)
        commands: list[Command] = [self._append(segment, sequences, transaction) for segment in segments]
        ticket = self._log.send([*commands, *others])
        self._publication = _Publication(operation, ticket, list(segments), sequences)
        # Either let_go() has seen the list, or this sees that nobody waits for it any more.
        if self._given_up:
            ticket.let_go()

    def resolve(self, deadline: Deadline) -> list[CommandResult]:
        """The results of the list that is under way, if there is one; its records' reports are queued.

        Raises:
            CommandRefused: nothing of it was written; its segments still wait.
            OutcomeUnknown, StoreUnavailable: not known by the deadline: call again.
            OutcomeLost: nobody can tell any more. Nothing may follow under this identity: a sequence that is repeated
                could be taken for a batch that was stored.
        """
        publication = self._publication
        if publication is None:
            return []
        try:
            results = publication.ticket.wait(deadline)
        except CommandRefused:
            self._publication = None
            raise
        except OutcomeLost:
            self._publication = None
            self.take_identity(ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH))
            raise
        self._publication = None
        self._sequences = publication.sequences
        for segment, result in zip(publication.segments, results, strict=False):
            if segment.report_count:
                self._reports.add(segment.delivered(result.base_offset, result.timestamp_ms))
        self._buffers.settle(publication.segments)
        return results

    def let_go(self) -> None:
        """Gives up the list that is under way: this process puts it no more. For a producer that does not come back."""
        self._given_up = True
        publication = self._publication
        if publication is not None:
            publication.ticket.let_go()

    def withdraw(self) -> bool:
        """True if nothing is under way any more: the list, if there was one, will never be written."""
        if self._publication is None:
            return True
        if self._publication.ticket.withdraw():
            self._publication = None
            return True
        return False

    def discard(self, error: KafkaError, chosen: Callable[[PendingSegment], bool] = lambda _: True) -> None:
        """Drops what waits and is under no list, and reports `error` for it."""
        held = {id(segment) for segment in self._publication.segments} if self._publication is not None else set()
        dropped = [segment for segment in self._buffers.take() if id(segment) not in held and chosen(segment)]
        self._buffers.settle(dropped)
        for segment in dropped:
            self.dropped_records += segment.record_count
            if segment.report_count:
                self._reports.add(segment.failed(error))
            segment.drop()

    def _append(
        self, segment: PendingSegment, sequences: _Sequences, transaction: TransactionIdentity | None
    ) -> Append:
        staged = segment.staged
        if staged is None:
            raise AssertionError(f"{segment.describe()} is named before it is uploaded")
        where = (staged.topic_id, staged.partition)
        base_sequence = sequences.get(where, 0)
        sequences[where] = next_sequence(base_sequence, staged.record_count)
        if transaction is None:
            return staged.append(self.identity, base_sequence)
        return staged.append(
            self.identity,
            base_sequence,
            transactional_id=transaction.transactional_id,
            transaction=transaction.transaction,
        )
