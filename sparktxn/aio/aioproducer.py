"""`AIOProducer`: the producer for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any, ClassVar, Final

from sparktxn.aio.calls import AIOClient, awaited
from sparktxn.errors import KafkaError, KafkaException
from sparktxn.kafka.message import Message
from sparktxn.producer import Producer
from sparktxn.values import arguments

__all__ = ["AIOProducer"]

_POLL_S: Final = 0.1


class AIOProducer(AIOClient[Producer]):
    """A `Producer` whose methods are awaited; it is made inside a running loop.

    `produce` gives a future for each record. Callbacks of settings, such as ``error_cb``, are coroutine functions.
    `timeout` is in seconds, as in `Producer`. `close` stores what waits, or aborts the open transaction.
    """

    _kind: ClassVar[str] = "producer"

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
            producer_conf: the settings of `Producer`.
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
        **kwargs: Any,
    ) -> asyncio.Future[Message]:
        """Take a record, and wait while there is no room for it; see `Producer.produce`.

        Args:
            topic: the topic.
            value: text or bytes, or None.
            key: text or bytes, or None.
            kwargs: ``partition``, ``timestamp`` and ``headers``.

        Returns:
            A future of the message as it was stored. It raises KafkaException if it was not. In a transaction it is
            done once the record is flushed or committed.

        Raises:
            KafkaException, TypeError: `Producer.produce` does not take the record.
        """
        self._check()
        delivered: asyncio.Future[Message] = self._loop.create_future()

        def report(error: KafkaError | None, message: Message) -> None:
            self._loop.call_soon_threadsafe(self._settle, delivered, error, message)

        await self._threads.run(partial(self._take, topic, value, key, on_delivery=report, **kwargs))
        if not delivered.done():
            self._waiting.add(delivered)
            if self._polling is None or self._polling.done():
                self._polling = self._loop.create_task(self._poll_while_any_waits())
        return delivered

    def _take(self, *args: Any, **kwargs: Any) -> None:
        while True:
            try:
                self._client.produce(*args, **kwargs)
            except BufferError:
                self._client.poll(_POLL_S)
            else:
                return

    def _settle(self, delivered: asyncio.Future[Message], error: KafkaError | None, message: Message) -> None:
        self._waiting.discard(delivered)
        if delivered.done():  # its caller has cancelled it
            return
        if error is None:
            delivered.set_result(message)
        else:
            delivered.set_exception(KafkaException(error))

    async def _poll_while_any_waits(self) -> None:
        """Deliver reports: the producer has no thread that does."""
        while self._waiting and not self._closed:
            await self._threads.run(partial(self._client.poll, _POLL_S))

    async def _at_rest(self) -> None:
        if self._polling is not None:
            await asyncio.wait([self._polling])

    abort_transaction = awaited(Producer.abort_transaction)
    begin_transaction = awaited(Producer.begin_transaction)
    cluster_id = awaited(Producer.cluster_id)
    commit_transaction = awaited(Producer.commit_transaction)
    flush = awaited(Producer.flush)
    init_transactions = awaited(Producer.init_transactions)
    list_topics = awaited(Producer.list_topics)
    poll = awaited(Producer.poll)
    purge = awaited(Producer.purge)
    send_offsets_to_transaction = awaited(Producer.send_offsets_to_transaction)
    set_sasl_credentials = awaited(Producer.set_sasl_credentials)
