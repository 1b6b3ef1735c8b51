"""The clients as programs for confluent-kafka make them: a broker's address is that of a store."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, Final

from sparktxn import admin, consumer, producer
from sparktxn.compat.addresses import Stores
from sparktxn.kafka.admin import NewTopic
from sparktxn.log.log import Log

__all__ = ["AdminClient", "Consumer", "DeserializingConsumer", "Producer", "SerializingProducer", "use_stores"]

_LOGGER: Final = logging.getLogger("sparktxn")


class _Chosen:
    stores: ClassVar[Stores | None] = None


def use_stores(stores: Stores) -> None:
    """Make all clients from now on use `stores`."""
    _Chosen.stores = stores


def _applied(config: object, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    stores = _Chosen.stores or Stores()
    return stores.applied(config, settings)


class Producer(producer.Producer):
    """confluent-kafka's Producer on a store."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = _applied(config, settings)
        super().__init__(given, **others)


class Consumer(consumer.Consumer):
    """confluent-kafka's Consumer on a store."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = _applied(config, settings)
        super().__init__(given, **others)


class SerializingProducer(producer.SerializingProducer):
    """confluent-kafka's SerializingProducer on a store, where the package is not installed."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = _applied(config, settings)
        super().__init__(given, **others)


class DeserializingConsumer(consumer.DeserializingConsumer):
    """confluent-kafka's DeserializingConsumer on a store, where the package is not installed."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = _applied(config, settings)
        super().__init__(given, **others)


class AdminClient(admin.AdminClient):
    """confluent-kafka's AdminClient on a store, which it makes if it is missing, as brokers exist before topics."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given, others = _applied(config, settings)
        super().__init__(given, **others)

    def _log(self, *, create: bool = False) -> Log:
        return super()._log(create=True)

    def create_topics(self, new_topics: Sequence[NewTopic], **options: Any) -> dict[str, Future[None]]:
        """Create topics; one that asks for compaction keeps all its records instead, with a warning.

        A reader of a compacted topic takes each key's last record, so it finds the same in a topic with all of them.
        Options and futures are those of the class above.
        """
        return super().create_topics([_without_compaction(new) for new in new_topics], **options)


def _without_compaction(new: object) -> Any:
    """Return a topic that is not compacted; whatever else it is, the call checks."""
    if not isinstance(new, NewTopic) or "compact" not in str(new.config.get("cleanup.policy", "")):
        return new
    _LOGGER.warning("topic %r keeps all records: compaction, which cleanup.policy asks for, does not exist", new.topic)
    config = {name: value for name, value in new.config.items() if name != "cleanup.policy"}
    if "delete" not in str(new.config["cleanup.policy"]):
        # No record of such a topic goes because of its age or the topic's size.
        config |= {"retention.ms": "-1", "retention.bytes": "-1"}
    return NewTopic(
        new.topic, new.num_partitions, new.replication_factor, new.replica_assignment, config, schema=new.schema
    )
