"""What administrators pass and get, in confluent-kafka's shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, Final, TypeAlias

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import force_setattr

from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.quantities import html_table
from sparktxn._kafka.message import TopicPartition
from sparktxn._kafka.unsupported import AclOperation
from sparktxn.errors import ConfigurationError

_CONSTANTS: Final = (
    "CONFIG_SOURCE_DEFAULT_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG",
    "CONFIG_SOURCE_GROUP_CONFIG",
    "CONFIG_SOURCE_STATIC_BROKER_CONFIG",
    "CONFIG_SOURCE_UNKNOWN_CONFIG",
    "RESOURCE_ANY",
    "RESOURCE_BROKER",
    "RESOURCE_GROUP",
    "RESOURCE_TOPIC",
    "RESOURCE_TRANSACTIONAL_ID",
    "RESOURCE_UNKNOWN",
)

__all__ = [
    "AlterConfigOpType",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "DeletedRecords",
    "DescribeClusterResult",
    "ListOffsetsResultInfo",
    "NewPartitions",
    "NewTopic",
    "Node",
    "OffsetSpec",
    "ResourceType",
    "TopicCollection",
    "TopicDescription",
    "TopicPartitionInfo",
    "node_of",
    "resource_type",
    *_CONSTANTS,
]

Columns: TypeAlias = pa.Schema | Sequence[tuple[str, str, bool]]
"""Declared columns: an Arrow schema, or (name, type, nullable) of each."""


def _name(argument: str) -> Callable[[object], str]:
    """Return the check of an attribute that names something; whether it may be empty is for the call that uses it."""
    return lambda value: arguments.identifier(argument, value, may_be_empty=True)


def _count(argument: str) -> Callable[[object], int]:
    return lambda value: arguments.integer(argument, value)


class _OfTopic(arguments.Checked):
    """What is asked for of a topic: sorted by its name, and equal to what asks for the same."""

    topic: str

    def __lt__(self, other: object) -> bool:
        return self.topic < other.topic if isinstance(other, type(self)) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.topic)


class NewTopic(_OfTopic):
    """A topic to create: of Kafka's record, or with `schema` a typed one. There are no replicas to count or place."""

    _checks: ClassVar = {
        "topic": _name("topic"),
        "num_partitions": _count("num_partitions"),
        "replication_factor": _count("replication_factor"),
        "config": lambda value: arguments.mapping("config", value),
    }

    def __init__(
        self,
        topic: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignment: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        schema: Columns | None = None,
    ) -> None:
        self.topic = topic
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignment = replica_assignment
        self.config: dict[str, Any] = config  # type: ignore[assignment]
        self.schema = schema

    def __str__(self) -> str:
        return f"NewTopic(topic={self.topic})"

    def __repr__(self) -> str:
        return f"NewTopic(topic={self.topic!r}, num_partitions={self.num_partitions})"


class NewPartitions(_OfTopic):
    """The partition count that a topic is to have."""

    _checks: ClassVar = {"topic": _name("topic"), "new_total_count": _count("new_total_count")}

    def __init__(
        self, topic: str, new_total_count: int, replica_assignment: Sequence[Sequence[int]] | None = None
    ) -> None:
        self.topic = topic
        self.new_total_count = new_total_count
        self.replica_assignment = replica_assignment

    def __str__(self) -> str:
        return f"NewPartitions(topic={self.topic},new_total_count={self.new_total_count})"

    def __repr__(self) -> str:
        return f"NewPartitions(topic={self.topic!r}, new_total_count={self.new_total_count})"


class ResourceType(IntEnum):
    """What has settings (Kafka's ids)."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    BROKER = 4
    TRANSACTIONAL_ID = 5


RESOURCE_UNKNOWN: Final = ResourceType.UNKNOWN.value
RESOURCE_ANY: Final = ResourceType.ANY.value
RESOURCE_TOPIC: Final = ResourceType.TOPIC.value
RESOURCE_GROUP: Final = ResourceType.GROUP.value
RESOURCE_BROKER: Final = ResourceType.BROKER.value
RESOURCE_TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID.value


class AlterConfigOpType(IntEnum):
    """How a setting is changed (Kafka's ids)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(IntEnum):
    """Where a setting's value comes from (Kafka's ids)."""

    UNKNOWN_CONFIG = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


CONFIG_SOURCE_UNKNOWN_CONFIG: Final = ConfigSource.UNKNOWN_CONFIG.value
CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG: Final = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG: Final = ConfigSource.DYNAMIC_BROKER_CONFIG.value
CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG: Final = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value
CONFIG_SOURCE_STATIC_BROKER_CONFIG: Final = ConfigSource.STATIC_BROKER_CONFIG.value
CONFIG_SOURCE_DEFAULT_CONFIG: Final = ConfigSource.DEFAULT_CONFIG.value
CONFIG_SOURCE_GROUP_CONFIG: Final = ConfigSource.GROUP_CONFIG.value


class ConfigEntry(arguments.Checked):
    """A setting and its value; in `incremental_alter_configs`, also what to do with it."""

    _checks: ClassVar = {
        "name": _name("name"),
        "source": lambda value: arguments.integer("source", value, 0, arguments.INT32_MAX),
        "incremental_operation": lambda value: (
            None if value is None else arguments.instance("incremental_operation", value, AlterConfigOpType)
        ),
    }

    def __init__(
        self,
        name: str,
        value: str | None,
        source: ConfigSource = ConfigSource.UNKNOWN_CONFIG,
        is_read_only: bool = False,
        is_default: bool = False,
        is_sensitive: bool = False,
        is_synonym: bool = False,
        synonyms: Sequence[str] = (),
        incremental_operation: AlterConfigOpType | None = None,
    ) -> None:
        self.name = name
        self.value = value
        self.source: int = source
        self.is_read_only = arguments.boolean("is_read_only", is_read_only)
        self.is_default = arguments.boolean("is_default", is_default)
        self.is_sensitive = arguments.boolean("is_sensitive", is_sensitive)
        self.is_synonym = arguments.boolean("is_synonym", is_synonym)
        self.synonyms = {synonym: synonym for synonym in arguments.items("synonyms", synonyms, str)}
        self.incremental_operation = incremental_operation

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'

    def __repr__(self) -> str:
        return f"ConfigEntry({self.name}={self.value!r})"


def _entries(name: str, value: object) -> list[ConfigEntry]:
    return [] if value is None else arguments.items(name, value, ConfigEntry)


class ConfigResource(arguments.Checked):
    """What has settings, by type and name; equal and hashed by these."""

    _checks: ClassVar = {
        "restype": lambda value: resource_type(value),
        "name": _name("name"),
        "set_config_dict": lambda value: arguments.mapping("set_config_dict", value),
        "incremental_configs": lambda value: _entries("incremental_configs", value),
    }

    Type: ClassVar[type[ResourceType]] = ResourceType

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        set_config: Mapping[str, str] | None = None,
        described_configs: Mapping[str, ConfigEntry] | None = None,
        error: object = None,
        incremental_configs: Sequence[ConfigEntry] | None = None,
    ) -> None:
        self.restype: ResourceType = restype  # type: ignore[assignment]
        self.name = name
        self.set_config_dict = arguments.mapping("set_config", set_config)
        self.configs = described_configs
        self.error = error
        self.incremental_configs: list[ConfigEntry] = incremental_configs  # type: ignore[assignment]

    @property
    def restype_int(self) -> int:
        """The type's id."""
        return int(self.restype)

    def set_config(self, name: str, value: str, overwrite: bool = True) -> None:
        """Set what `alter_configs` is to set; without `overwrite` a value that is there stays."""
        name = arguments.identifier("name", name)
        if arguments.boolean("overwrite", overwrite) or name not in self.set_config_dict:
            self.set_config_dict[name] = value

    def add_incremental_config(self, config_entry: ConfigEntry) -> None:
        """Add one more change to make."""
        arguments.instance("config_entry", config_entry, ConfigEntry)
        self.incremental_configs.append(config_entry)

    def __eq__(self, other: object) -> bool:
        return (
            (self.restype, self.name) == (other.restype, other.name)
            if isinstance(other, ConfigResource)
            else NotImplemented
        )

    def __lt__(self, other: object) -> bool:
        return (
            (self.restype, self.name) < (other.restype, other.name)
            if isinstance(other, ConfigResource)
            else NotImplemented
        )

    def __hash__(self) -> int:
        return hash((self.restype, self.name))

    def __repr__(self) -> str:
        return f"ConfigResource(ResourceType.{self.restype.name},{self.name})"


def resource_type(value: object) -> ResourceType:
    """Return a type of resource by its name or number."""
    number = value if not isinstance(value, str) else ResourceType.__members__.get(str.upper(value))
    if isinstance(number, int) and not isinstance(number, bool) and number in ResourceType.__members__.values():
        return ResourceType(number)
    expected = "one of " + ", ".join(ResourceType.__members__)
    raise ConfigurationError(f"restype is {arguments.described(value)}: expected {expected}")


class OffsetSpec(Struct, frozen=True):
    """Which offset `list_offsets` is to return: made with its four class methods."""

    earliest_: bool = False
    max_timestamp_: bool = False
    timestamp_ms: int | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "earliest_", arguments.boolean("earliest_", self.earliest_))
        force_setattr(self, "max_timestamp_", arguments.boolean("max_timestamp_", self.max_timestamp_))
        force_setattr(self, "timestamp_ms", arguments.integer_or_none("timestamp", self.timestamp_ms))

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """Return the log start offset."""
        return cls(earliest_=True)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """Return the end: under read_committed the last stable offset."""
        return cls()

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """Return the offset of the record with the greatest timestamp, the first of several."""
        return cls(max_timestamp_=True)

    @classmethod
    def for_timestamp(cls, timestamp: int) -> OffsetSpec:
        """Return the first offset whose record is not older than `timestamp` milliseconds."""
        return cls(timestamp_ms=timestamp)


def asked_of(partition: TopicPartition, spec: OffsetSpec) -> TopicPartition:
    """Return `partition` with what is asked for as its offset, as Kafka's requests number it."""
    logical = -2 if spec.earliest_ else -3 if spec.max_timestamp_ else -1
    asked = logical if spec.timestamp_ms is None else spec.timestamp_ms
    return TopicPartition(partition.topic, partition.partition, asked)


class ListOffsetsResultInfo(Struct, frozen=True):
    """An offset that was asked for, -1 if there is none; `timestamp` is its record's where a time was asked for."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class DeletedRecords(Struct, frozen=True):
    """A partition's log start offset after records were deleted."""

    low_watermark: int


class Node(Struct, frozen=True):
    """The store, as a broker."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def id_string(self) -> str:
        """The id as text."""
        return str(self.id)

    def __str__(self) -> str:
        rack = f" (Rack - {self.rack})" if self.rack else ""
        return f"({self.id}) {self.host}:{self.port}{rack}"


def node_of(uri: str) -> Node:
    """Return the one node of a store."""
    return Node(0, uri, 0)


class TopicPartitionInfo(Struct, frozen=True):
    """A partition."""

    id: int
    leader: Node
    replicas: list[Node]
    isr: list[Node]


class TopicDescription(Struct, frozen=True):
    """A topic; `schema` is its declared columns, or None for Kafka's record."""

    name: str
    topic_id: int
    is_internal: bool
    partitions: list[TopicPartitionInfo]
    schema: tuple[tuple[str, str, bool], ...] | None = None
    authorized_operations: list[AclOperation] | None = None

    def _repr_html_(self) -> str:
        columns = None if self.schema is None else ", ".join(f"{name} {kind}" for name, kind, _ in self.schema)
        rows = [("partitions", len(self.partitions)), ("columns", columns or "Kafka's record")]
        return html_table(f"topic {self.name}", ("", ""), rows)


class TopicCollection:
    """Topics to describe, by name."""

    def __init__(self, topic_names: Sequence[str]) -> None:
        self.topic_names = arguments.identifiers("topic_names", topic_names)

    def __repr__(self) -> str:
        return f"TopicCollection({self.topic_names})"


class DescribeClusterResult(Struct, frozen=True):
    """The store: `cluster_id` is the id it was created with."""

    cluster_id: str
    controller: Node
    nodes: list[Node]
    authorized_operations: list[AclOperation] | None = None
