"""What `list_topics` returns, in confluent-kafka's shapes. A store has no brokers: it is its own single one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from sparktxn.errors import ErrorCode, KafkaError
from sparktxn.structs import TopicState

__all__ = ["BrokerMetadata", "ClusterMetadata", "PartitionMetadata", "TopicMetadata", "cluster_metadata"]

_BROKER_ID: Final = 0


class BrokerMetadata(Struct, frozen=True):
    """The store, as a broker: `host` is its address."""

    id: int
    host: str
    port: int


class PartitionMetadata(Struct, frozen=True):
    """A partition."""

    id: int
    leader: int = _BROKER_ID
    replicas: tuple[int, ...] = (_BROKER_ID,)
    isrs: tuple[int, ...] = (_BROKER_ID,)
    error: KafkaError | None = None


class TopicMetadata(Struct, frozen=True):
    """A topic and its partitions by number; `error` if it does not exist."""

    topic: str
    partitions: dict[int, PartitionMetadata]
    error: KafkaError | None = None


class ClusterMetadata(Struct, frozen=True):
    """All topics by name."""

    cluster_id: str
    controller_id: int
    brokers: dict[int, BrokerMetadata]
    topics: dict[str, TopicMetadata]
    orig_broker_id: int = _BROKER_ID
    orig_broker_name: str = ""


def cluster_metadata(uri: str, topics: Iterable[TopicState], asked: str | None = None) -> ClusterMetadata:
    """The metadata of `topics`, or of the one named `asked` (with its error, if it is not there)."""
    found: dict[str, TopicMetadata] = {}
    for topic in topics:
        if asked is None or topic.name == asked:
            partitions = {number: PartitionMetadata(number) for number in range(topic.partition_count)}
            found[topic.name] = TopicMetadata(topic.name, partitions)
    if asked is not None and asked not in found:
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {asked!r} does not exist in {uri}")
        found[asked] = TopicMetadata(asked, {}, error)
    return ClusterMetadata(
        cluster_id=uri,
        controller_id=_BROKER_ID,
        brokers={_BROKER_ID: BrokerMetadata(_BROKER_ID, uri, 0)},
        topics=found,
        orig_broker_name=uri,
    )
