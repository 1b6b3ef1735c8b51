"""Time-outs of transactions: proposed by any process that checks, decided by an entry (PROTOCOL.md, "Time-outs").

A transaction that has published and does not end holds up every reader of its partitions. A process that writes
alongside it, or reads up to it, notes when it first saw it. Once the transaction's own time-out has passed since, by
this process's monotonic clock, it proposes the abort. A difference of entries' timestamps says nothing: they are
others' clocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from sparktxn._engine.format.commands import Command, EndTxn
from sparktxn._engine.log.follow.follower import Follower
from sparktxn._engine.log.write.queue import Ticket
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.process.clock import Clock, Deadline
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values.structs import (
    PartitionState,
    PendingOffsets,
    StateRecord,
    TransactionState,
    TransactionStatus,
)
from sparktxn.errors import CommandRefused, KafkaException

_PROPOSAL_TIMEOUT_S: Final = 10.0

_Seen = tuple[str, int, int, int]


class Overdue(NamedTuple):
    """A transaction whose time-out has passed, and for how long it is known to have been open."""

    transaction: TransactionState
    open_ms: int


def timeout_abort(overdue: Overdue) -> EndTxn:
    """Return the command that aborts it, and nothing else: it names producer, epoch, and number of the transaction."""
    transaction = overdue.transaction
    return EndTxn(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.transaction,
        committed=False,
        timed_out_after_ms=overdue.open_ms,
    )


def overdue(
    transactions: Iterable[TransactionState], open_ms: Callable[[TransactionState], tuple[int, int] | None]
) -> list[Overdue]:
    """Return the transactions that are open for longer than their time-out, but for prepared ones.

    Their coordinators decide how those end. `open_ms` says for how long one has been open, and by how much that may be
    too long; None if it is not known.
    """
    found = []
    for transaction in transactions:
        may_time_out = transaction.status is TransactionStatus.ONGOING and transaction.prepared is None
        known = open_ms(transaction) if may_time_out else None
        if known is not None and known[0] - known[1] > transaction.timeout_ms:
            found.append(Overdue(transaction, known[0]))
    return found


class Observations:
    """When this process has first seen each open transaction, by its monotonic clock. For one thread at a time."""

    def __init__(self) -> None:
        self._first_seen_s: dict[_Seen, float] = {}

    def overdue(self, transactions: Iterable[TransactionState], now_s: float) -> list[Overdue]:
        """Return those seen open for longer than their time-out; `transactions` are all that are watched now.

        One that is seen for the first time is noted, one that is not among them any more is forgotten.
        """
        seen: dict[_Seen, float] = {}

        def open_ms(transaction: TransactionState) -> tuple[int, int]:
            key = (
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.transaction,
            )
            seen[key] = self._first_seen_s.get(key, now_s)
            return int((now_s - seen[key]) * 1000), 0

        found = overdue(transactions, open_ms)
        self._first_seen_s = seen
        return found


class Timeouts:
    """Watches what holds up the partitions that this process knows, alongside its callers' work."""

    def __init__(
        self,
        follower: Follower,
        send: Callable[[Sequence[Command]], Ticket],
        background: Background,
        clock: Clock,
        *,
        interval_s: float,
    ) -> None:
        self._follower = follower
        self._send = send
        self._background = background
        self._clock = clock
        self._interval_s = interval_s
        self._check_at_s = clock.monotonic_s() + interval_s
        self._busy = threading.Lock()
        self._observations = Observations()

    def check_if_due(self) -> None:
        """Check in the background, at most once an interval. Costs a reading of the clock; never raises."""
        if self._clock.monotonic_s() < self._check_at_s or not self._busy.acquire(blocking=False):
            return
        self._check_at_s = self._clock.monotonic_s() + self._interval_s
        try:
            self._background.submit(self._run)
        except RuntimeError:
            # The handle is being closed: the next process that checks proposes.
            self._busy.release()

    def _run(self) -> None:
        try:
            with Deadline(self._clock, _PROPOSAL_TIMEOUT_S).governs():
                self._propose()
        except KafkaException as error:
            # A reader may have no right to write, and the store may be down: others look too.
            log_event("time_out_not_proposed", error=error)
        finally:
            self._busy.release()

    def _propose(self) -> None:
        with self._follower.locked("time-outs"):
            held = self._holding()
        overdue = self._observations.overdue(held, self._clock.monotonic_s())
        proposals = [(found, self._send([timeout_abort(found)])) for found in overdue]
        try:
            for found, ticket in proposals:
                try:
                    ticket.wait()
                except CommandRefused:
                    # It has ended meanwhile.
                    continue
                name, number = found.transaction.transactional_id, found.transaction.transaction
                log_event("transaction_timed_out", transaction=number, transactional_id=name, open_ms=found.open_ms)
        finally:
            # What was not answered by now is not to travel with another client's later call.
            for _, ticket in proposals:
                ticket.let_go()

    def _holding(self) -> list[TransactionState]:
        """Return the transactions that hold a last stable offset or a group's offset, in the parts touched here."""
        parts = self._follower.tail.parts
        # After this, what is deferred leaves no transaction open that it names.
        parts.catch_up_open()
        ids = {
            transactional_id
            for prefix in ("partitions/", "groups/")
            for part in parts.loaded(prefix)
            for record in parts.part_applied(part).values()
            for transactional_id in _held_by(record)
        }
        found = [parts.get_following(("transaction", transactional_id)) for transactional_id in sorted(ids)]
        return [transaction for transaction in found if transaction is not None]


def _held_by(record: StateRecord) -> Iterable[str]:
    """Return the transactional ids whose transactions hold back the readers of a partition or of a group's offset."""
    if isinstance(record, PartitionState):
        return (open_.transactional_id for open_ in record.open_transactions)
    if isinstance(record, PendingOffsets):
        return (pending.transactional_id for pending in record.offsets)
    return ()
