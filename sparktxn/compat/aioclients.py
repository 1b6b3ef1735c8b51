"""The clients for asyncio as programs for confluent-kafka make them, where the package is not installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparktxn import aio
from sparktxn.compat.clients import applied

__all__ = ["AIOConsumer", "AIOProducer"]


class AIOProducer(aio.AIOProducer):
    """confluent-kafka's AIOProducer on a store."""

    def __init__(self, producer_conf: Mapping[str, Any], *args: Any, **others: Any) -> None:
        super().__init__(applied(producer_conf, {})[0], *args, **others)


class AIOConsumer(aio.AIOConsumer):
    """confluent-kafka's AIOConsumer on a store."""

    def __init__(self, consumer_conf: Mapping[str, Any], *args: Any, **others: Any) -> None:
        super().__init__(applied(consumer_conf, {})[0], *args, **others)
