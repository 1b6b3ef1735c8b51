"""Requests of one console take turns where they advance what they share: inside a page, and after it was sent."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparktxn._engine.log.log import Log
from sparktxn._foundation.process.clock import acquired_in_time
from sparktxn.errors import KafkaException, OutcomeUnknown
from sparktxn.store.options import Result, ThreadBackground


@contextmanager
def held(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock, for which the request waits until its deadline.

    Raises:
        OutcomeUnknown: another request has held it until then.
    """
    if not acquired_in_time(lock):
        raise OutcomeUnknown("another request was reading the log until the deadline: load the page again")
    try:
        yield
    finally:
        lock.release()


class FewAtATime:
    """Does what takes memory on a few threads of its own.

    Requests that come together take it one after another. The threads are always the same, since what an allocator
    keeps of freed memory it keeps for each thread.
    """

    def __init__(self, log: Log, threads: int) -> None:
        self._log = log
        self._background = ThreadBackground("console-reading", threads)

    async def do(self, work: Callable[[], Result], timeout_s: float | None) -> Result:
        """Return what `work` returns, which may wait for its turn, and for the store, so long (None: no limit).

        Raises:
            OutcomeUnknown: others have had their turns until then.
        """
        asked_s = self._log.clock.monotonic_s()

        def in_turn() -> Result:
            left_s = None if timeout_s is None else asked_s + timeout_s - self._log.clock.monotonic_s()
            if left_s is not None and left_s <= 0:
                raise OutcomeUnknown("other requests were reading records until the deadline: load the page again")
            with self._log.within(left_s):
                return work()

        return await asyncio.wrap_future(self._background.submit(in_turn))


class ReadsOn(ABC):
    """Something of a log that is read a little at a time, after the pages that ask for it were sent."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._reading = threading.Lock()

    def read_on(self, seconds: float) -> None:
        """Read what is missing for about so long; do nothing while another thread does. Raise nothing.

        A page that asks again has the rest read.
        """
        if not self._reading.acquire(blocking=False):
            return
        try:
            with self._log.within(2 * seconds):
                until_s = self._log.clock.monotonic_s() + seconds
                while self._log.clock.monotonic_s() < until_s and self._read_some():
                    pass
        except KafkaException as error:
            self._note_failure(error)
        finally:
            self._reading.release()

    @abstractmethod
    def _read_some(self) -> bool:
        """Read a little of what is missing; False if nothing is."""

    @abstractmethod
    def _note_failure(self, error: KafkaException) -> None:
        """Note why the reading has ended early."""
