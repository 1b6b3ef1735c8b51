"""The clients for asyncio as programs for confluent-kafka make them, where the package is not installed."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

from sparktxn import aio
from sparktxn.compat.clients import applied

__all__ = ["AIOConsumer", "AIOProducer"]


class AIOProducer(aio.AIOProducer):
    """confluent-kafka's AIOProducer on a store."""

    def __init__(
        self,
        producer_conf: Mapping[str, Any],
        max_workers: int = 4,
        executor: Executor | None = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
    ) -> None:
        super().__init__(applied(producer_conf, {})[0], max_workers, executor, batch_size, buffer_timeout)


class AIOConsumer(aio.AIOConsumer):
    """confluent-kafka's AIOConsumer on a store."""

    def __init__(
        self, consumer_conf: Mapping[str, Any], max_workers: int = 100, executor: Executor | None = None
    ) -> None:
        super().__init__(applied(consumer_conf, {})[0], max_workers, executor)
