"""Calls of the store, on threads: the loop of the gateway itself waits for nothing but its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from sparktxn.process.background import ThreadBackground
from sparktxn.process.clock import Clock, Deadline

__all__ = ["Calls"]

P = ParamSpec("P")
R = TypeVar("R")


class Calls:
    """Runs calls on at most `workers` threads, each for at most `timeout_s`."""

    def __init__(self, clock: Clock, workers: int, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._threads = ThreadBackground("sparktxn-gateway", workers)

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what `call` returns; it goes on if the waiting task is cancelled."""
        work = partial(self._in_time, partial(call, *args, **kwargs))
        return await asyncio.shield(asyncio.wrap_future(self._threads.submit(work)))

    def close(self, timeout_s: float) -> None:
        """End the threads, once their calls have returned."""
        self._threads.close(timeout_s)

    def _in_time(self, call: Callable[[], R]) -> R:
        with Deadline(self._clock, self._timeout_s).governs():
            return call()
