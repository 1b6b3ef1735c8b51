"""What clients for asyncio have in common: methods that are awaited while they run on threads."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar

from sparktxn.consumer import Consumer
from sparktxn.process.background import ThreadBackground
from sparktxn.producer import Producer
from sparktxn.values import arguments

__all__ = ["AIOClient", "awaited", "on_loop"]

R = TypeVar("R")
C = TypeVar("C", bound=Consumer | Producer)

_CALLBACKS = ("error_cb", "throttle_cb", "stats_cb", "on_commit")


class _Threads:
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


class AIOClient(Generic[C]):
    """A client whose methods are awaited, inside the loop that it was made in; it closes at the end of its block.

    Args:
        make: makes the client of its settings.
        config: the settings; their callbacks are run on the loop.
        max_workers: the most calls that are under way at once.
        executor: runs the calls, in place of threads of this client's own.

    Raises:
        RuntimeError: no loop is running.
    """

    _kind: ClassVar[str]
    """What errors call it."""

    def __init__(
        self,
        make: Callable[[dict[str, Any]], C],
        config: Mapping[str, Any],
        max_workers: int,
        executor: Executor | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = _Threads(max_workers, executor)
        self._client = make(_settings_on_loop(f"{self._kind}_conf", config, self._loop))
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError(f"this {self._kind} is closed")

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self._check()
        return await self._threads.run(partial(getattr(self._client, name), *args, **kwargs))

    async def close(self) -> None:
        """Close the client, as its own `close` does, and free the handle; calling twice is harmless."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._at_rest()
            await self._threads.run(self._client.close)
        finally:
            await asyncio.to_thread(self._threads.close)

    async def _at_rest(self) -> None:
        """Wait for what this client does by itself, which ends once it is closed."""


def awaited(method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return a client's method as one of an `AIOClient`."""

    @functools.wraps(method)
    async def call(self: AIOClient[Any], *args: Any, **kwargs: Any) -> Any:
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


def _settings_on_loop(name: str, config: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    """Return the settings of argument `name`, whose callbacks run on the loop."""
    given = arguments.mapping(name, config)
    return {
        name: on_loop(loop, value) if name in _CALLBACKS and callable(value) else value for name, value in given.items()
    }
