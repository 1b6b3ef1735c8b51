"""`AIOConsumer`: the consumer for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ClassVar

from sparktxn.aio.calls import AIOClient, awaited, on_loop
from sparktxn.consumer import Consumer
from sparktxn.kafka.message import Message, TopicPartition
from sparktxn.process.clock import Deadline, SystemClock
from sparktxn.values import arguments

__all__ = ["AIOConsumer"]

AsyncRebalanceCallback = Callable[["AIOConsumer", list[TopicPartition]], Awaitable[Any]]


class AIOConsumer(AIOClient[Consumer]):
    """A `Consumer` whose methods are awaited; it is made inside a running loop.

    Callbacks are coroutine functions: those of settings (``error_cb``, ``on_commit``) and of `subscribe`. They run on
    the loop, inside the call that they belong to, and may await methods of this consumer.

    `timeout` is in seconds; -1 or None waits without end. A read whose task is cancelled, as by ``asyncio.timeout``,
    goes on until its own time-out. What it finds is returned by the next read. Messages that are left when the consumer
    is closed count as read. `close` leaves the group.
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
        self._kept: deque[Message] = deque()
        self._left: Future[list[Message]] | None = None

    def __repr__(self) -> str:
        return f"AIO{self._client!r}"

    async def poll(self, timeout: float | None = -1.0) -> Message | None:
        """Return the next message within `timeout` seconds; see `Consumer.poll`.

        `consume` costs less for each of many messages.
        """

        def read(timeout_s: float | None) -> list[Message]:
            message = self._client.poll(timeout_s)
            return [] if message is None else [message]

        found = await self._read(read, 1, timeout)
        return found[0] if found else None

    async def consume(self, num_messages: int = 1, timeout: float | None = -1.0) -> list[Message]:
        """Return up to `num_messages` messages within `timeout` seconds; see `Consumer.consume`."""
        num_messages = arguments.integer("num_messages", num_messages, 0)
        return await self._read(partial(self._client.consume, num_messages), num_messages, timeout)

    async def _read(
        self, read: Callable[[float | None], list[Message]], limit: int, timeout: float | None
    ) -> list[Message]:
        """Return what earlier reads have left, else what `read` finds within `timeout` seconds."""
        deadline = Deadline(SystemClock(), arguments.timeout_s("timeout", timeout))
        while not self._kept and limit:
            self._check()
            earlier = self._left
            reading = self._left = earlier or self._threads.begin(partial(read, deadline.remaining_s()))
            # It is not cancelled with this task: what the thread takes must reach a caller.
            answer = asyncio.wrap_future(reading)
            answer.add_done_callback(_retrieve)
            await asyncio.wait([answer], timeout=deadline.remaining_s() if earlier else None)
            if self._left is reading and answer.done():
                self._left = None
                self._kept.extend(answer.result())
            if earlier is None or deadline.passed():
                break
        return [self._kept.popleft() for _ in range(min(limit, len(self._kept)))]

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
        await self._call("subscribe", topics, **callbacks)

    def _wrapped(self, callback: AsyncRebalanceCallback) -> Callable[..., Any]:
        run = on_loop(self._loop, callback)
        return lambda _, partitions: run(self, partitions)

    assign = awaited(Consumer.assign)
    assignment = awaited(Consumer.assignment)
    cluster_id = awaited(Consumer.cluster_id)
    commit = awaited(Consumer.commit)
    committed = awaited(Consumer.committed)
    consumer_group_metadata = awaited(Consumer.consumer_group_metadata)
    get_watermark_offsets = awaited(Consumer.get_watermark_offsets)
    incremental_assign = awaited(Consumer.incremental_assign)
    incremental_unassign = awaited(Consumer.incremental_unassign)
    list_topics = awaited(Consumer.list_topics)
    offsets_for_times = awaited(Consumer.offsets_for_times)
    pause = awaited(Consumer.pause)
    position = awaited(Consumer.position)
    resume = awaited(Consumer.resume)
    seek = awaited(Consumer.seek)
    set_sasl_credentials = awaited(Consumer.set_sasl_credentials)
    store_offsets = awaited(Consumer.store_offsets)
    unassign = awaited(Consumer.unassign)
    unsubscribe = awaited(Consumer.unsubscribe)


def _retrieve(answer: asyncio.Future[list[Message]]) -> None:
    """Note that an error has been seen: one that no caller waits for is not logged."""
    if not answer.cancelled():
        answer.exception()
