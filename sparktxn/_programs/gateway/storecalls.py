"""Calls of the store, on threads, and one that follows the log: the gateway's loop waits for its clients alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Final, ParamSpec

from sparktxn._engine.log.log import Log
from sparktxn._foundation.process.clock import Clock, Deadline
from sparktxn._foundation.process.events import log_event
from sparktxn.errors import StoreError
from sparktxn.store.options import Result, ThreadBackground

P = ParamSpec("P")


class StoreCalls:
    """Runs calls on at most `workers` threads, each for at most `timeout_s`."""

    def __init__(self, clock: Clock, workers: int, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._threads = ThreadBackground("sparktxn-gateway", workers)

    async def run(self, call: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Return what `call` returns; it goes on if the waiting task is cancelled."""
        work = partial(self._in_time, partial(call, *args, **kwargs))
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Result] = loop.create_future()
        self._threads.submit(work).add_done_callback(partial(_hand_over, loop, outcome))
        try:
            return await outcome
        finally:
            # An error has this frame: they would keep each other, and the request, until garbage is collected.
            del outcome, work

    def close(self, timeout_s: float | None) -> None:
        """End the threads, once their calls have returned."""
        self._threads.close(timeout_s)

    def _in_time(self, call: Callable[[], Result]) -> Result:
        with Deadline(self._clock, self._timeout_s).governs():
            return call()


def _hand_over(loop: asyncio.AbstractEventLoop, outcome: asyncio.Future[Result], done: Future[Result]) -> None:
    """Have the loop take what a call has returned; asyncio's own way takes it round twice more."""
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(_settle, outcome, done)


def _settle(outcome: asyncio.Future[Result], done: Future[Result]) -> None:
    if outcome.done():  # the waiting task was cancelled
        return
    if done.cancelled():
        outcome.cancel()
    elif (error := done.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(done.result())


# The end of the log, for those that wait for it: one poll at a time serves all waiting fetches.

_PAUSE_S_MIN: Final = 0.005
_PAUSE_S_MAX: Final = 0.1
"""How long a poll waits for the next one: the longer, the longer nothing has come."""
_AFTER_ERROR_S: Final = 1.0


class LogEnd:
    """Knows the newest entry, and polls the log while a request waits for a newer one. For the loop's thread."""

    def __init__(self, log: Log, calls: StoreCalls) -> None:
        self._log = log
        self._calls = calls
        self._changed = asyncio.Event()
        self._waiting = 0
        self._polling: asyncio.Task[None] | None = None
        self.entry = 0
        self.has_ended = False
        """Whether no request may wait any longer, as the gateway ends."""

    def end(self) -> None:
        """Let no request wait any longer: the gateway ends."""
        self.has_ended = True
        self._changed.set()

    def note(self, entry: int) -> None:
        """Note an entry that this process has read or written."""
        if entry > self.entry:
            self.entry = entry
            self._changed.set()
            self._changed = asyncio.Event()

    async def wait_beyond(self, entry: int, timeout_s: float) -> None:
        """Return once the log ends after `entry`, or after `timeout_s`."""
        if self.entry > entry or timeout_s <= 0 or self.has_ended:
            return
        self._waiting += 1
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(timeout_s):
                while self.entry <= entry and not self.has_ended:
                    await self._changed.wait()
        except TimeoutError:
            return
        finally:
            self._waiting -= 1

    async def _poll(self) -> None:
        pause_s = _PAUSE_S_MIN
        try:
            while self._waiting:
                before = self.entry
                try:
                    self.note(await self._calls.run(self._log.refresh))
                    pause_s = _PAUSE_S_MIN if self.entry > before else min(2 * pause_s, _PAUSE_S_MAX)
                except StoreError as error:
                    log_event("gateway_poll_failed", error=error)
                    pause_s = _AFTER_ERROR_S
                await asyncio.sleep(pause_s)
        finally:
            self._polling = None
