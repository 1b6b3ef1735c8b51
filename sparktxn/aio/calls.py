"""The clients for asyncio: confluent-kafka's methods, awaited while they run on threads.

A call goes on when the task that awaits it is cancelled. It is then *left*: the next calls wait for its end, and the
same call returns or raises what became of it.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Concatenate, Final, Generic, NamedTuple, ParamSpec, Self, TypeVar

from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._foundation.process.clock import Deadline, SystemClock
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import Result
from sparktxn._kafka.message import Message, TopicPartition
from sparktxn.consumer import Consumer
from sparktxn.errors import ErrorCode, KafkaError, KafkaException, OutcomeUnknown
from sparktxn.producer import Producer

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


_PRODUCE_ARROW: Final = AwaitedMethod("produce_arrow", waits=True, leaves=True, reports=False)


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


# `AIOConsumer`: the consumer for asyncio.

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


# `AIOProducer`: the producer for asyncio.

_POLL_S: Final = 0.1
_DELIVERY: Final = ("on_delivery", "dr_cb")

AsyncDeliveryCallback = Callable[[KafkaError | None, Message], object]
"""A coroutine function, or a function that does not block."""


class AIOProducer(AIOClient[Producer]):
    """A `Producer` whose methods are awaited; it is made inside a running loop.

    `produce` gives a future for each record. Callbacks of settings, such as ``error_cb``, are coroutine functions.
    `timeout` is in seconds, as in `Producer`. `close` stores what waits, or aborts the open transaction.

    A call whose task is cancelled, as by ``asyncio.timeout``, goes on, and the next calls wait for it. The same call
    then says how it has ended: commit_transaction() after a cancelled one returns if that has committed, and raises
    what that has raised.
    """

    _kind: ClassVar[str] = "producer"
    _recovers: ClassVar[frozenset[str]] = frozenset({"abort_transaction"})

    def __init__(
        self,
        producer_conf: Mapping[str, Any],
        max_workers: int = 4,
        executor: Executor | None = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
    ) -> None:
        """Open the store at ``bootstrap.servers``.

        Args:
            producer_conf: the settings of `Producer`. ``on_delivery`` may be a coroutine function.
            max_workers: the most calls that are under way at once.
            executor: runs the calls, in place of threads of this producer's own. It needs two.
            batch_size: changes nothing, as records are gathered by the setting ``linger.ms``.
            buffer_timeout: changes nothing, as above.

        Raises:
            RuntimeError: no loop is running.
            ConfigurationError, StoreNotFound: see `Producer`.
        """
        arguments.integer("batch_size", batch_size, 1)
        arguments.timeout_s("buffer_timeout", buffer_timeout)
        super().__init__(Producer, producer_conf, max_workers, executor)
        self._on_delivery = next((producer_conf[name] for name in _DELIVERY if producer_conf.get(name)), None)
        self._is_transactional = bool(producer_conf.get("transactional.id"))
        self._waiting: set[asyncio.Future[Message]] = set()
        self._polling: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Records that wait, and delivery reports not yet delivered."""
        return 0 if self._closed else len(self._client)

    def __bool__(self) -> bool:
        """Always True."""
        return True

    async def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        on_delivery: AsyncDeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]] | None = None,
    ) -> asyncio.Future[Message]:
        """Take a record, and wait while there is no room for it; see `Producer.produce`.

        If its task is cancelled, the record is taken or not: `on_delivery` is called for a record that is taken, and
        for no other.

        Args:
            topic: the topic.
            value: text or bytes, or None.
            key: text or bytes, or None.
            partition: the partition; below 0 it is chosen by `key`.
            on_delivery: called on the loop with an error or None, and the message as it was stored. The setting of this
                name is for records that have none.
            timestamp: in milliseconds since 1970; 0 is now.
            headers: names and values.

        Returns:
            A future of the message as it was stored. It raises KafkaException if it was not. In a transaction it is
            done once the record is flushed or committed.

        Raises:
            KafkaException, TypeError: `Producer.produce` does not take the record.
        """
        await self._earlier("produce a record")
        self._check()
        given_up = False
        delivered: asyncio.Future[Message] = self._loop.create_future()
        if self._is_transactional:
            delivered.add_done_callback(
                seen
            )  # its commit says so, too, and an error that no task awaits need not be logged
        report = self._report(delivered, arguments.function("on_delivery", on_delivery) or self._on_delivery)
        record = partial(self._client.produce, topic, value, key, partition, None, report, timestamp, headers)

        def take() -> None:
            while not given_up:
                try:
                    record()
                except BufferError:
                    self._client.poll(_POLL_S)
                else:
                    self._loop.call_soon_threadsafe(self._taken, delivered)
                    return

        taking = self._threads.begin(take)
        try:
            await ended(taking)
        except asyncio.CancelledError:
            given_up = True
            delivered.add_done_callback(seen)
            self._leave(taking)
            raise
        taking.result()
        return delivered

    async def produce_arrow(self, topic: str, batch: object, partition: int = -1, *, delete: bool = False) -> None:
        """Take the rows of `batch` for `topic`, or for one `partition` of it; each deletes its key with `delete`.

        `batch` is a record batch, a table or a data frame, and what it may have is as in `Producer.produce_arrow`.
        If its task is cancelled, the call goes on: the rows are taken, or the next call raises why they are not.

        Raises:
            TypeError, ConfigurationError, KafkaException: as there.
        """
        # Two calls are never the same one: what a table shows of itself does not say which rows it has.
        await self._call(_PRODUCE_ARROW, object(), None, topic, batch, partition, delete=delete)

    def _leave(self, taking: Future[None]) -> None:
        """Let the next calls wait until the record is taken, or known not to be: only its on_delivery says which."""
        at_rest: Future[None] = Future()
        taking.add_done_callback(lambda _: at_rest.set_result(None))
        self._left.append(Left("produce", None, at_rest, False))

    def _taken(self, delivered: asyncio.Future[Message]) -> None:
        """Have reports delivered from now on.

        Those of a transaction come with its flush or its end: a poll would publish what the commit is to carry.
        """
        if delivered.done() or self._closed or self._is_transactional:
            return
        self._waiting.add(delivered)
        if self._polling is None or self._polling.done():
            self._polling = self._loop.create_task(self._poll_while_any_waits())

    def _report(
        self, delivered: asyncio.Future[Message], callback: AsyncDeliveryCallback | None
    ) -> Callable[[KafkaError | None, Message], None]:
        call_back = None if callback is None else on_loop(self._loop, callback)  # type: ignore[arg-type]

        def report(error: KafkaError | None, message: Message) -> None:
            try:
                if call_back is not None:
                    call_back(error, message)
            except Exception as failed:  # noqa: BLE001 - whatever the callback does, the call that reports has not failed
                what = {"message": "on_delivery of a record has failed", "exception": failed}
                self._loop.call_soon_threadsafe(self._loop.call_exception_handler, what)
            self._loop.call_soon_threadsafe(self._settle, delivered, error, message)

        return report

    def _settle(self, delivered: asyncio.Future[Message], error: KafkaError | None, message: Message) -> None:
        self._waiting.discard(delivered)
        if delivered.done():  # its caller has cancelled it
            return
        if error is None:
            delivered.set_result(message)
        else:
            delivered.set_exception(KafkaException(error))

    async def flush(self, timeout: float | None = -1) -> int:
        """Store what waits, and deliver the reports; how many records and reports are left. See `Producer.flush`."""
        deadline = Deadline(SystemClock(), arguments.timeout_s("timeout", timeout))
        left = await self._flushed(timeout)
        if not left and self._waiting and not in_callback():
            # Another thread may be calling the last callbacks.
            await asyncio.wait(set(self._waiting), timeout=deadline.remaining_s())
        return left

    async def _poll_while_any_waits(self) -> None:
        """Deliver reports: the producer has no thread that does."""
        while self._waiting and not self._closed:
            await self._threads.run(partial(self._client.poll, _POLL_S))

    async def _at_rest(self) -> None:
        if self._polling is not None:
            await asyncio.wait([self._polling])

    abort_transaction = awaited(Producer.abort_transaction, reports=True)
    begin_transaction = awaited(Producer.begin_transaction, reports=True)
    cluster_id = awaited(Producer.cluster_id, waits=False)
    commit_transaction = awaited(Producer.commit_transaction, reports=True)
    _flushed = awaited(Producer.flush)
    init_transactions = awaited(Producer.init_transactions, reports=True)
    list_topics = awaited(Producer.list_topics, waits=False)
    poll = awaited(Producer.poll, waits=False)
    purge = awaited(Producer.purge)
    send_offsets_to_transaction = awaited(Producer.send_offsets_to_transaction, leaves=True)
    set_sasl_credentials = awaited(Producer.set_sasl_credentials, waits=False)
