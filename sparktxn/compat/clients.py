"""The clients as programs for confluent-kafka make them: a broker's address is that of a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sparktxn import admin, consumer, producer
from sparktxn.compat.addresses import Stores
from sparktxn.log.log import Log

__all__ = ["AdminClient", "Consumer", "DeserializingConsumer", "Producer", "SerializingProducer", "applied"]
__all__ += ["use_stores"]


class _Chosen:
    stores: ClassVar[Stores | None] = None


def use_stores(stores: Stores) -> None:
    """Make all clients from now on use `stores`."""
    _Chosen.stores = stores


def applied(config: object, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a client, positional and named, with the store of the broker's address that they name."""
    stores = _Chosen.stores or Stores()
    return stores.applied(config, settings)


class Producer(producer.Producer):
    """confluent-kafka's Producer on a store."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = applied(config, settings)
        super().__init__(given, **others)


class Consumer(consumer.Consumer):
    """confluent-kafka's Consumer on a store."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = applied(config, settings)
        super().__init__(given, **others)


class SerializingProducer(producer.SerializingProducer):
    """confluent-kafka's SerializingProducer on a store, where the package is not installed."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = applied(config, settings)
        super().__init__(given, **others)


class DeserializingConsumer(consumer.DeserializingConsumer):
    """confluent-kafka's DeserializingConsumer on a store, where the package is not installed."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = applied(config, settings)
        super().__init__(given, **others)


class AdminClient(admin.AdminClient):
    """confluent-kafka's AdminClient on a store, which it makes if it is missing, as brokers exist before topics."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = applied(config, settings)
        super().__init__(given, **others)

    def _log(self, *, create: bool = False) -> Log:
        return super()._log(create=True)
