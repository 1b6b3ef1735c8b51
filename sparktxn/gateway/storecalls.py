"""Calls of the store, on threads: the loop of the gateway itself waits for nothing but its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import ParamSpec

from sparktxn.process.background import ThreadBackground
from sparktxn.process.clock import Clock, Deadline
from sparktxn.values.fieldtypes import Result

__all__ = ["StoreCalls"]

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
