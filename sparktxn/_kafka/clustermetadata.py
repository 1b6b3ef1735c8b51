"""What `list_topics` returns, in confluent-kafka's shapes. A store has no brokers: it is its own single one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field

from sparktxn._foundation.values.structs import TopicState
from sparktxn.errors import ErrorCode, KafkaError

_BROKER_ID: Final = 0


class BrokerMetadata(Struct, frozen=True):
    """The store, as a broker: `host` is its address."""

    id: int = -1
    host: str | None = None
    port: int = -1

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


class PartitionMetadata(Struct, frozen=True):
    """A partition."""

    id: int = -1
    leader: int = _BROKER_ID
    replicas: list[int] = field(default_factory=lambda: [_BROKER_ID])
    isrs: list[int] = field(default_factory=lambda: [_BROKER_ID])
    error: KafkaError | None = None

    def __str__(self) -> str:
        return str(self.id)


class TopicMetadata(Struct, frozen=True):
    """A topic and its partitions by number; `error` if it does not exist."""

    topic: str | None = None
    partitions: dict[int, PartitionMetadata] = {}
    error: KafkaError | None = None

    def __str__(self) -> str:
        return str(self.topic)


class ClusterMetadata(Struct, frozen=True):
    """All topics by name."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, BrokerMetadata] = {}
    topics: dict[str, TopicMetadata] = {}
    orig_broker_id: int = _BROKER_ID
    orig_broker_name: str = ""

    def __str__(self) -> str:
        return str(self.cluster_id)


class GroupMember(Struct, frozen=True):
    """A member of a group, as `AdminClient.list_groups` returns it."""

    id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    metadata: bytes | None = None
    assignment: bytes | None = None


class GroupMetadata(Struct, frozen=True):
    """A group, as `AdminClient.list_groups` returns it; `state` is Kafka's word for it."""

    broker: BrokerMetadata | None = None
    id: str | None = None
    error: KafkaError | None = None
    state: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    members: list[GroupMember] = []

    def __str__(self) -> str:
        return str(self.id)


def cluster_metadata(uri: str, topics: Iterable[TopicState], asked: str | None = None) -> ClusterMetadata:
    """Return the metadata of `topics`, and an error for the one that was asked for, if it is not among them."""
    found: dict[str, TopicMetadata] = {}
    for topic in topics:
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
