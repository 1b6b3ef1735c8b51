"""What a producer holds of its process: a share of a log, a lingering thread, and records that wait."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from sparktxn.process.background import after_threads
from sparktxn.process.events import log_event
from sparktxn.process.fork import ForkGuard, made_before
from sparktxn.store.registry import release_dropped

if TYPE_CHECKING:
    from sparktxn.log.log import Log
    from sparktxn.producer.linger import Linger
    from sparktxn.producer.outbox import Outbox
    from sparktxn.stage.buffers import Buffers

__all__ = ["Holdings", "watch"]

_finishing: set[Holdings] = set()


class Holdings:
    """What is left when a producer is dropped without `close()`, or the interpreter ends before it is closed."""

    def __init__(self, client_id: str, log: Log, outbox: Outbox, buffers: Buffers, linger: Linger | None) -> None:
        self._client_id = client_id
        self._log = log
        self._outbox = outbox
        self._buffers = buffers
        self._linger = linger
        self._fork = ForkGuard()
        self._dropped_before = 0

    def give_back(self) -> None:
        """Store what the lingering thread has not sent yet, warn of records that are lost, and give the log back.

        For a producer that is gone. Does not wait for the thread.
        """
        self._dropped_before = self._outbox.dropped_records
        _finishing.add(self)
        if self._linger is None or not self._linger.finish(self._end):
            self._end()

    def warn_at_exit(self) -> None:
        """Log how many records the end of the interpreter loses, if it loses any."""
        lost = self._buffers.not_stored()
        if lost:
            log_event("records_lost_at_exit", records=lost, client_id=self._client_id)

    def _end(self) -> None:
        lost = self._buffers.not_stored() + self._outbox.dropped_records - self._dropped_before
        if lost:
            log_event("records_lost_by_drop", client_id=self._client_id, records=lost)
        _finishing.discard(self)
        release_dropped(self._log, self._fork)


class _Holder(Protocol):
    """What this module knows of a producer."""

    _holdings: Holdings | None
    _unusable: str | None
    _accepting: dict[Any, Any]


_producers: weakref.WeakSet[_Holder] = weakref.WeakSet()


def watch(producer: _Holder) -> None:
    """Take part in what becomes of `producer` after a fork, and at the end of the interpreter."""
    _producers.add(producer)


def _after_fork_in_child() -> None:
    for producer in _producers:
        producer._unusable = producer._unusable or made_before("producer")
        producer._accepting.clear()  # produce() then takes the way that checks the handle
        producer._holdings = None  # what it holds is the parent's to give back


def _at_exit() -> None:
    """Warn about all records that wait: the threads that would have stored them have ended."""
    for producer in list(_producers):
        holdings, producer._holdings = producer._holdings, None
        if holdings is not None:
            holdings.warn_at_exit()
    for holdings in list(_finishing):
        holdings.warn_at_exit()


after_threads(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
