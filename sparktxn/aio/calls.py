"""What clients for asyncio have in common: methods that are awaited while they run on threads.

A call goes on when the task that awaits it is cancelled. It is then *left*: the next calls wait for its end, and the
same call returns or raises what became of it.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ClassVar, Concatenate, Final, Generic, NamedTuple, ParamSpec, Self, TypeVar

from sparktxn.consumer import Consumer
from sparktxn.errors import ErrorCode, KafkaException, OutcomeUnknown
from sparktxn.kafka.message import TopicPartition
from sparktxn.process.background import ThreadBackground
from sparktxn.process.clock import Deadline, SystemClock
from sparktxn.producer import Producer
from sparktxn.values import arguments
from sparktxn.values.fieldtypes import Result

__all__ = ["AIOClient", "AwaitedMethod", "Left", "awaited", "ended", "in_callback", "on_loop", "seen"]

C = TypeVar("C", bound=Consumer | Producer)
P = ParamSpec("P")

_CALLBACKS: Final = ("error_cb", "throttle_cb", "stats_cb", "on_commit")
_REST_S: Final = 30.0
"""How long close() waits for a call that was left."""

_is_in_callback: Final = contextvars.ContextVar("sparktxn.aio.in_callback", default=False)


def in_callback() -> bool:
    """Return True in a callback of a client: the call that it belongs to may be one that was left."""
    return _is_in_callback.get()


class _Threads:
    """The threads of one client: at most `max_workers` of its own, or those of `executor`."""

    def __init__(self, max_workers: int, executor: Executor | None) -> None:
        max_workers = arguments.integer("max_workers", max_workers, 1)
        self._executor = None if executor is None else arguments.instance("executor", executor, Executor)
        self._own = None if self._executor is not None else ThreadBackground("sparktxn-aio", max_workers)

    def begin(self, call: Callable[[], Result]) -> Future[Result]:
        """Begin a call on a thread."""
        if self._own is not None:
            return self._own.submit(call)
        assert self._executor is not None
        return self._executor.submit(call)

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run a call on a thread, and wait for it. It goes on if the waiting task is cancelled."""
        begun = self.begin(call)
        await ended(begun)
        return begun.result()

    def close(self) -> None:
        """End the threads of its own, once their calls have returned."""
        if self._own is not None:
            self._own.close()


class Left(NamedTuple):
    """A call whose task was cancelled, and the arguments by which the same call is known.

    With `reports` the same call returns what became of it, and does not run again.
    """

    name: str
    key: Hashable
    future: Future[Any]
    reports: bool

    def error(self) -> BaseException | None:
        """Return what it has raised, once it has ended."""
        return self.future.exception() if not self.future.cancelled() else RuntimeError(f"{self.name}() did not begin")


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
    _recovers: ClassVar[frozenset[str]] = frozenset()
    """The calls that may follow one that was left and has failed."""

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
        self._left: list[Left] = []
        self._closing: asyncio.Task[None] | None = None
        self._is_close_reported = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AIO{self._client!r}"

    @property
    def _closed(self) -> bool:
        return self._closing is not None

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError(f"this {self._kind} is closed")

    async def _call(
        self, call: AwaitedMethod, key: Hashable, timeout_s: float | None, *args: Any, **kwargs: Any
    ) -> Any:
        """Run a method of the client, after those that were left; return what became of the same call if it was."""
        earlier = await self._earlier(call.name, key, timeout_s) if call.waits else None
        if earlier is not None and earlier.reports:
            self._forget(earlier)
            return earlier.future.result()
        self._check()
        before = list(self._left)
        begun = self._threads.begin(self._prepared(call, partial(getattr(self._client, call.name), *args, **kwargs)))
        try:
            await ended(begun)
        except asyncio.CancelledError:
            if call.leaves:
                self._left.append(Left(call.name, key, begun, call.reports))
            raise
        try:
            found = begun.result()
        except KafkaException as error:
            if earlier is not None and error.error.code() == ErrorCode.LOCAL_NO_OFFSET:
                self._forget(earlier)
                return earlier.future.result()  # it has committed all that there was
            raise
        if call.leaves:
            self._forget(*before)  # its caller has gone on
        return found

    def _prepared(self, call: AwaitedMethod, run: Callable[[], Result]) -> Callable[[], Result]:
        """Return what runs a method, and before it what the client needs."""
        return run

    async def _earlier(self, name: str, key: Hashable = None, timeout_s: float | None = None) -> Left | None:
        """Wait for the calls that were left; return the one that is the same call, if there is one.

        Raises:
            OutcomeUnknown: one has not ended in time.
            BaseException: what another call has raised: its caller was cancelled, and has not seen it.
        """
        if not self._left or in_callback():
            return None
        known = list(self._left)
        under_way = await self._under_way(timeout_s)
        if under_way is not None:
            raise OutcomeUnknown(f"{under_way.name}(), whose task was cancelled, is under way: call {name}() again")
        same = None
        for left in known:
            error = left.error()
            if (left.name, left.key) == (name, key) and (error is None or left.reports):
                same = left
            elif (left.name, left.key) == (name, key):
                self._forget(left)  # it runs again
            elif error is not None:
                self._forget(left)
                if name not in self._recovers:
                    error.add_note(f"raised by {left.name}(), whose task was cancelled; {name}() was not begun")
                    raise error
            elif not left.reports:
                self._forget(left)
        return same

    async def _under_way(self, timeout_s: float | None) -> Left | None:
        """Wait for the calls that were left; return one that has not ended in time."""
        deadline = Deadline(SystemClock(), timeout_s)
        for left in list(self._left):
            await ended(left.future, deadline.remaining_s())
            if not left.future.done():
                return left
        return None

    def _forget(self, *past: Left) -> None:
        self._left = [left for left in self._left if left not in past]

    async def close(self) -> None:
        """Close the client, as its own `close` does, and free the handle; calling twice is harmless.

        If the task that awaits it is cancelled, it goes on. The next call waits for it, and raises what it has raised.
        """
        if self._is_close_reported:
            return
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.wait([self._closing])
        self._is_close_reported = True
        self._closing.result()

    async def _close(self) -> None:
        try:
            await self._at_rest()
            await self._under_way(_REST_S)
            await self._threads.run(self._client.close)
        finally:
            await asyncio.to_thread(self._threads.close)

    async def _at_rest(self) -> None:
        """Wait for what this client does by itself, which ends once it is closed."""


class AwaitedMethod(NamedTuple):
    """A method of the client: whether it waits for calls that were left, and what it is when it is left itself."""

    name: str
    waits: bool
    leaves: bool
    reports: bool


def awaited(
    method: Callable[Concatenate[Any, P], Result], *, waits: bool = True, leaves: bool = False, reports: bool = False
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, Result]]:
    """Return a client's method as one of an `AIOClient`.

    Args:
        method: the method of the client.
        waits: whether it begins after the calls that were left.
        leaves: whether other calls wait for it when it was left: it changes something.
        reports: whether the same call then returns what became of it, and does not run again.
    """
    signature = inspect.signature(method)
    call = AwaitedMethod(method.__name__, waits, leaves or reports, reports)

    @functools.wraps(method)
    async def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        try:
            given = dict(signature.bind(self, *args, **kwargs).arguments)
        except TypeError:
            given = {}  # the method itself says what is wrong
        timeout = given.pop("timeout", None)
        timeout_s = arguments.timeout_s("timeout", timeout) if timeout is not None else None
        found: Result = await self._call(call, _key(given), timeout_s, *args, **kwargs)
        return found

    return run


def _key(given: Mapping[str, Any]) -> Hashable:
    """Return what equal arguments have in common, but for the client itself."""
    return tuple((name, _content(value)) for name, value in given.items() if name != "self")


def _content(value: Any) -> Hashable:
    if isinstance(value, list | tuple):
        return tuple(map(_content, value))
    return (repr(value), value.metadata) if isinstance(value, TopicPartition) else repr(value)


async def ended(future: Future[Any], timeout_s: float | None = None) -> None:
    """Wait until a call has ended, or for `timeout_s`. It goes on if the waiting task is cancelled."""
    answer = asyncio.wrap_future(future)
    answer.add_done_callback(seen)
    await asyncio.wait([answer], timeout=timeout_s)


def seen(answer: asyncio.Future[Any]) -> None:
    """Note that an error has been seen: one that no caller waits for is not logged."""
    if not answer.cancelled():
        answer.exception()


def on_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """Return what runs a coroutine function on the loop, for a client that calls it on a thread and waits."""

    def call(*args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            _is_in_callback.set(True)
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
