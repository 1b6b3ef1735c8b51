"""One transactional id at a gateway: its open transaction, and what that has in memory."""

from __future__ import annotations

import threading
from typing import Final

from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.gateway.transactions.clientsequences import ClientSequences
from sparktxn.gateway.transactions.transactionmemory import TransactionShare
from sparktxn.log.log import Log
from sparktxn.producer.currenttransaction import CurrentTransaction
from sparktxn.producer.outbox import MEMORY_BYTES_MAX, Outbox
from sparktxn.producer.reports import Reports
from sparktxn.stage.buffers import Buffers, Limits, TopicBuffer
from sparktxn.stage.pendingsegment import PendingSegment, Uploads
from sparktxn.values.fieldtypes import TopicIdPartition
from sparktxn.values.structs import ProducerIdAndEpoch

__all__ = ["HeldTransaction"]

_LIMITS: Final = Limits(records_max=100_000, batch_records_max=10_000, bytes_max=MEMORY_BYTES_MAX)
"""As much may wait as in a producer of this package with its defaults; the gateway bounds the sum of all."""


class HeldTransaction:
    """One transactional id at this gateway. Its `lock` is held by the request that works on it."""

    def __init__(
        self,
        log: Log,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        number: int,
        timeout_ms: int,
        memory: TransactionShare,
        *,
        is_new: bool,
    ) -> None:
        self.lock = threading.Lock()
        self.identity = identity
        self.is_open = False
        self.is_dropped = False
        self._failure: str | None = None
        self.sequences = ClientSequences(log, identity, is_new=is_new)
        self.partitions: set[TopicIdPartition] = set()
        self.groups: set[str] = set()
        self.memory = memory
        self.topics: dict[int, TopicBuffer] = {}
        self.buffers: Buffers = Buffers(
            Uploads.of(log), _LIMITS, on_waiting=lambda: None, served=lambda: 0, waiting_in=_waiting_in
        )
        self.outbox = Outbox(log, self.buffers, Reports())
        self.outbox.take_identity(identity)
        self.open = CurrentTransaction(
            log, self.outbox, transactional_id, timeout_ms, delivery_timeout_s=timeout_ms / 1000
        )
        self.open.number = number

    def begin(self) -> None:
        """Open the next transaction, with nothing in it."""
        self.open.begin()
        self.is_open, self._failure = True, None
        self.partitions, self.groups = set(), set()

    def end(self, *, committed: bool) -> None:
        """Note that the transaction has ended."""
        self.open.ended()
        self.sequences.ended(committed=committed)
        self.is_open, self._failure = False, None
        self.memory.clear()
        if self.outbox.identity != self.identity:
            self.identity = self.outbox.identity
            self.sequences = ClientSequences(self.open.log, self.identity, is_new=True)

    def fail(self, reason: str) -> CommandRefused:
        """Note that the transaction cannot be committed any more, and return the error that has its client abort it.

        The text is kept, and no error: that would grow by the frames of each request that it refuses.
        """
        self._failure = reason
        return CommandRefused(ErrorCode.TRANSACTION_ABORTABLE, reason)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the transaction was open at another gateway when this one was asked: it may have ended since."""
        return self._failure is not None and not self.is_open

    def check_usable(self) -> None:
        """Raise the error that has a client abort the transaction, if it has failed.

        Raises:
            CommandRefused: TRANSACTION_ABORTABLE.
        """
        if self._failure is not None:
            raise self.fail(self._failure)

    def drop(self) -> None:
        """Drop its records: another takes its place, or nothing does."""
        self.is_dropped = True
        self.outbox.let_go()
        self.memory.close()


def _waiting_in(segment: PendingSegment) -> int:
    """Return how many records of a segment wait: none once they are durable."""
    return segment.record_count if segment.staged is None or segment.staged.data else 0
