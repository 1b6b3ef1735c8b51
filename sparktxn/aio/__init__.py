"""Clients for asyncio, with the methods of confluent-kafka's ``aio``: `AIOProducer` and `AIOConsumer`.

Each method of a client is awaited, and runs on a thread of its own meanwhile. Callbacks are coroutine functions.
"""

from sparktxn.aio.calls import AIOConsumer, AIOProducer

__all__ = ["AIOConsumer", "AIOProducer"]


def __dir__() -> list[str]:
    return sorted(__all__)
