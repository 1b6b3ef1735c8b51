"""`AIOConsumer`: the consumer for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

from sparktxn.aio.calls import AIOClient, AwaitedMethod, Left, awaited, ended, in_callback, on_loop
from sparktxn.consumer import Consumer
from sparktxn.errors import ErrorCode, KafkaException
from sparktxn.kafka.message import Message, TopicPartition
from sparktxn.process.clock import Deadline, SystemClock
from sparktxn.values import arguments
from sparktxn.values.fieldtypes import Result

__all__ = ["AIOConsumer"]


_STEP_S: Final = 0.1
"""How soon a read ends whose task is cancelled."""

AsyncRebalanceCallback = Callable[["AIOConsumer", list[TopicPartition]], Awaitable[Any]]


class _Read:
    """One read on a thread: in short steps, so that it ends soon after it was given up."""

    def __init__(self, read: Callable[[int, float], list[Message]], limit: int, timeout_s: float | None) -> None:
        self._read = read
        self._limit = limit
        self._deadline = Deadline(SystemClock(), timeout_s)
        self.given_up = False
        self.error: BaseException | None = None

    def run(self) -> list[Message]:
        """Return up to so many messages. What fails after some were found is kept in `error`."""
        found: list[Message] = []
        while True:
            left_s = self._deadline.remaining_s()
            step_s = _STEP_S if left_s is None else min(_STEP_S, left_s)
            try:
                found += self._read(self._limit - len(found), step_s)
            except Exception as error:
                if not found:
                    raise
                self.error = error
            if len(found) >= self._limit or self.given_up or self.error is not None or self._deadline.passed():
                return found


class AIOConsumer(AIOClient[Consumer]):
    """A `Consumer` whose methods are awaited; it is made inside a running loop.

    Callbacks are coroutine functions: those of settings (``error_cb``, ``on_commit``) and of `subscribe`. They run on
    the loop, inside the call that they belong to, and may await methods of this consumer.

    `timeout` is in seconds; -1 or None waits without end. ``async for message in consumer`` gives message after
    message. A read whose task is cancelled, as by ``asyncio.timeout``, takes no message. The next read returns what it
    has found, which counts as not read until then. Another call whose task is cancelled goes on, and the next calls
    wait for it; the same call then says how it has ended. `close` leaves the group.
    """

    _kind: ClassVar[str] = "consumer"

    def __init__(
        self, consumer_conf: Mapping[str, Any], max_workers: int = 100, executor: Executor | None = None
    ) -> None:
        """Open the store at ``bootstrap.servers``.

        Args:
            consumer_conf: the settings of `Consumer`.
            max_workers: the most calls that are under way at once.
            executor: runs the calls, in place of threads of this consumer's own. A callback that awaits needs two.

        Raises:
            RuntimeError: no loop is running.
            ConfigurationError, StoreNotFound: see `Consumer`.
        """
        super().__init__(Consumer, consumer_conf, max_workers, executor)
        self._turn = asyncio.Lock()
        self._found: deque[Message] = deque()
        self._failed: BaseException | None = None
        self._reading: tuple[_Read, Future[list[Message]]] | None = None

    async def poll(self, timeout: float | None = -1.0) -> Message | None:
        """Return the next message within `timeout` seconds; see `Consumer.poll`.

        `consume` costs less for each of many messages.
        """

        def read(_: int, timeout_s: float) -> list[Message]:
            message = self._client.poll(timeout_s)
            return [] if message is None else [message]

        found = await self._read(read, 1, timeout)
        return found[0] if found else None

    async def consume(self, num_messages: int = 1, timeout: float | None = -1.0) -> list[Message]:
        """Return up to `num_messages` messages within `timeout` seconds; see `Consumer.consume`."""
        return await self._read(self._client.consume, arguments.integer("num_messages", num_messages, 0), timeout)

    def __aiter__(self) -> AsyncIterator[Message]:
        """Yield each message as `poll` returns it, and wait for the next one without end.

        The end of a partition is left out. Leave the loop by `break`, then close the consumer. A loop that is cancelled
        loses no message: the next one goes on.

        Raises:
            KafkaException: what a message's error() is otherwise.
        """
        return self._messages()

    async def _messages(self) -> AsyncIterator[Message]:
        while True:
            message = await self.poll()
            error = None if message is None else message.error()
            if message is not None and error is None:
                yield message
            elif error is not None and error.code() != ErrorCode.LOCAL_PARTITION_EOF:
                raise KafkaException(error)

    async def _read(
        self, read: Callable[[int, float], list[Message]], limit: int, timeout: float | None
    ) -> list[Message]:
        """Return what earlier reads have left, else what `read` finds within `timeout` seconds."""
        deadline = Deadline(SystemClock(), arguments.timeout_s("timeout", timeout))
        if not in_callback() and await self._under_way(deadline.remaining_s()) is not None:
            return []
        await self._earlier("read")
        self._check()
        try:
            async with asyncio.timeout(deadline.remaining_s()):
                await self._turn.acquire()
        except TimeoutError:
            return []
        try:
            await self._end_left_read()
            self._check()
            if self._failed is not None and not self._found:
                failed, self._failed = self._failed, None
                raise failed
            if not self._found and limit:
                reading = _Read(read, limit, deadline.remaining_s())
                self._reading = reading, self._threads.begin(reading.run)
                try:
                    await self._end_left_read()
                except asyncio.CancelledError:
                    reading.given_up = True
                    raise
            return [self._found.popleft() for _ in range(min(limit, len(self._found)))]
        finally:
            self._turn.release()

    async def _end_left_read(self) -> None:
        """Take what a read has found that has ended, or was given up."""
        if self._reading is None:
            return
        reading, future = self._reading
        await ended(future)
        if self._reading is None or self._reading[0] is not reading:
            return
        self._reading = None
        self._found.extend(future.result())
        self._failed = reading.error

    async def _earlier(self, name: str, key: Hashable = None, timeout_s: float | None = None) -> Left | None:
        if name != "read" and self._reading is not None and self._reading[0].given_up and not in_callback():
            await self._end_left_read()
        return await super()._earlier(name, key, timeout_s)

    def _prepared(self, call: AwaitedMethod, run: Callable[[], Result]) -> Callable[[], Result]:
        """Return what runs a method once the messages that no read has returned count as not read."""
        if not call.waits or not self._found or in_callback():
            return run
        unread, self._found = list(self._found), deque(one for one in self._found if one.error() is not None)

        def after() -> Result:
            self._client.unread(unread)
            return run()

        return after

    async def _at_rest(self) -> None:
        if self._reading is not None:
            self._reading[0].given_up = True
            with suppress(Exception):
                await self._end_left_read()
        unread, self._found = list(self._found), deque()
        if unread:
            with suppress(KafkaException):
                await self._threads.run(partial(self._client.unread, unread))

    async def subscribe(
        self,
        topics: Sequence[str],
        on_assign: AsyncRebalanceCallback | None = None,
        on_revoke: AsyncRebalanceCallback | None = None,
        on_lost: AsyncRebalanceCallback | None = None,
    ) -> None:
        """Read all partitions of `topics`; see `Consumer.subscribe`.

        `on_assign`, `on_revoke` and `on_lost` are coroutine functions, and get this consumer.
        """
        given = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        callbacks = {name: self._wrapped(callback) for name, callback in given.items() if callback is not None}
        key = (tuple(topics), *given.values()) if isinstance(topics, list | tuple) else None
        await self._call(AwaitedMethod("subscribe", True, True, False), key, None, topics, **callbacks)

    def _wrapped(self, callback: AsyncRebalanceCallback) -> Callable[..., Any]:
        run = on_loop(self._loop, callback)
        return lambda _, partitions: run(self, partitions)

    assign = awaited(Consumer.assign, leaves=True)
    assignment = awaited(Consumer.assignment)
    cluster_id = awaited(Consumer.cluster_id, waits=False)
    commit = awaited(Consumer.commit, leaves=True)
    committed = awaited(Consumer.committed)
    consumer_group_metadata = awaited(Consumer.consumer_group_metadata)
    get_watermark_offsets = awaited(Consumer.get_watermark_offsets, waits=False)
    incremental_assign = awaited(Consumer.incremental_assign, reports=True)
    incremental_unassign = awaited(Consumer.incremental_unassign, reports=True)
    list_topics = awaited(Consumer.list_topics, waits=False)
    offsets_for_times = awaited(Consumer.offsets_for_times, waits=False)
    pause = awaited(Consumer.pause, leaves=True)
    position = awaited(Consumer.position)
    resume = awaited(Consumer.resume, leaves=True)
    seek = awaited(Consumer.seek, leaves=True)
    set_sasl_credentials = awaited(Consumer.set_sasl_credentials, waits=False)
    store_offsets = awaited(Consumer.store_offsets, leaves=True)
    unassign = awaited(Consumer.unassign, leaves=True)
    unsubscribe = awaited(Consumer.unsubscribe, leaves=True)
