"""Methods of a client that are awaited while they run on threads."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from sparktxn.process.background import ThreadBackground
from sparktxn.values import arguments

__all__ = ["Threads", "awaited", "on_loop", "settings_on_loop"]

R = TypeVar("R")

_CALLBACKS = ("error_cb", "throttle_cb", "stats_cb", "on_commit")


class Threads:
    """The threads of one client: at most `max_workers` of its own, or those of `executor`."""

    def __init__(self, max_workers: int, executor: Executor | None) -> None:
        max_workers = arguments.integer("max_workers", max_workers, 1)
        self._executor = None if executor is None else arguments.instance("executor", executor, Executor)
        self._own = None if self._executor is not None else ThreadBackground("sparktxn-aio", max_workers)

    def begin(self, call: Callable[[], R]) -> Future[R]:
        """Begin a call on a thread."""
        if self._own is not None:
            return self._own.submit(call)
        assert self._executor is not None
        return self._executor.submit(call)

    async def run(self, call: Callable[[], R]) -> R:
        """Run a call on a thread, and wait for it. It goes on if the waiting task is cancelled."""
        return await asyncio.shield(asyncio.wrap_future(self.begin(call)))

    def close(self) -> None:
        """End the threads of its own, once their calls have returned."""
        if self._own is not None:
            self._own.close()


def awaited(method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return a client's method as one of a class for asyncio, which has `_call`."""

    @functools.wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await self._call(method.__name__, *args, **kwargs)

    return call


def on_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """Return what runs a coroutine function on the loop, for a client that calls it on a thread and waits."""

    def call(*args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            found = callback(*args, **kwargs)
            return await found if isinstance(found, Awaitable) else found

        return asyncio.run_coroutine_threadsafe(run(), loop).result()

    return call


def settings_on_loop(config: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    """Return settings whose callbacks run on the loop."""
    given = arguments.mapping("config", config)
    return {
        name: on_loop(loop, value) if name in _CALLBACKS and callable(value) else value for name, value in given.items()
    }
