"""`AIOProducer`: the producer for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ClassVar, Final

from sparktxn.aio.calls import AIOClient, Left, awaited, ended, in_callback, on_loop, seen
from sparktxn.errors import KafkaError, KafkaException
from sparktxn.kafka.message import Message
from sparktxn.process.clock import Deadline, SystemClock
from sparktxn.producer import Producer
from sparktxn.values import arguments

__all__ = ["AIOProducer"]

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
