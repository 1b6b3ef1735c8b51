"""A transactional log on object storage, with Kafka's transactions and no broker.

Names are imported when they are first used, so that a process pays only for what it touches.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from sparktxn._foundation.process.backgroundjobs import register_background_jobs as _register_background_jobs

if TYPE_CHECKING:
    from sparktxn._engine.log.log import Log
    from sparktxn._engine.log.views.readview import PartitionView as PartitionView
    from sparktxn._engine.log.views.readview import ReadView as ReadView
    from sparktxn._foundation.config.settings import read_properties as read_properties
    from sparktxn._foundation.process.events import EVENTS as EVENTS
    from sparktxn._foundation.values.structs import TopicState as TopicState
    from sparktxn._kafka.admin import Node as Node
    from sparktxn._kafka.admin import TopicCollection as TopicCollection
    from sparktxn._kafka.admin import TopicPartitionInfo as TopicPartitionInfo
    from sparktxn._kafka.groups import ConsumerGroupState as ConsumerGroupState
    from sparktxn._kafka.groups import ConsumerGroupTopicPartitions as ConsumerGroupTopicPartitions
    from sparktxn._kafka.groups import ConsumerGroupType as ConsumerGroupType
    from sparktxn._kafka.library import ConcurrentModificationException as ConcurrentModificationException
    from sparktxn._kafka.library import IllegalStateException as IllegalStateException
    from sparktxn._kafka.library import ThrottleEvent as ThrottleEvent
    from sparktxn._kafka.library import Uuid as Uuid
    from sparktxn._kafka.library import libversion as libversion
    from sparktxn._kafka.library import version as version
    from sparktxn._kafka.message import OFFSET_BEGINNING as OFFSET_BEGINNING
    from sparktxn._kafka.message import OFFSET_END as OFFSET_END
    from sparktxn._kafka.message import OFFSET_INVALID as OFFSET_INVALID
    from sparktxn._kafka.message import OFFSET_STORED as OFFSET_STORED
    from sparktxn._kafka.message import TIMESTAMP_CREATE_TIME as TIMESTAMP_CREATE_TIME
    from sparktxn._kafka.message import TIMESTAMP_LOG_APPEND_TIME as TIMESTAMP_LOG_APPEND_TIME
    from sparktxn._kafka.message import TIMESTAMP_NOT_AVAILABLE as TIMESTAMP_NOT_AVAILABLE
    from sparktxn._kafka.message import ConsumerGroupMetadata as ConsumerGroupMetadata
    from sparktxn._kafka.message import IsolationLevel as IsolationLevel
    from sparktxn._kafka.message import Message as Message
    from sparktxn._kafka.message import TopicPartition as TopicPartition
    from sparktxn._kafka.serialization import ConsumeError as ConsumeError
    from sparktxn._kafka.serialization import KeyDeserializationError as KeyDeserializationError
    from sparktxn._kafka.serialization import KeySerializationError as KeySerializationError
    from sparktxn._kafka.serialization import ProduceError as ProduceError
    from sparktxn._kafka.serialization import SerializationError as SerializationError
    from sparktxn._kafka.serialization import ValueDeserializationError as ValueDeserializationError
    from sparktxn._kafka.serialization import ValueSerializationError as ValueSerializationError
    from sparktxn._kafka.unsupported import AcknowledgeType as AcknowledgeType
    from sparktxn._kafka.unsupported import DeserializingShareConsumer as DeserializingShareConsumer
    from sparktxn._kafka.unsupported import ElectionType as ElectionType
    from sparktxn._kafka.unsupported import Messages as Messages
    from sparktxn._kafka.unsupported import ShareConsumer as ShareConsumer
    from sparktxn._rows.scan.plan import ReadTask as ReadTask
    from sparktxn._rows.scan.storedfiles import CommittedFile as CommittedFile
    from sparktxn._rows.stage.stagedsegment import StagedSegment as StagedSegment
    from sparktxn.consumer import Consumer as Consumer
    from sparktxn.consumer import DeserializingConsumer as DeserializingConsumer
    from sparktxn.errors import BatchRefused as BatchRefused
    from sparktxn.errors import ClockSkewError as ClockSkewError
    from sparktxn.errors import CommandRefused as CommandRefused
    from sparktxn.errors import ConfigurationError as ConfigurationError
    from sparktxn.errors import DamagedObject as DamagedObject
    from sparktxn.errors import ErrorCode as ErrorCode
    from sparktxn.errors import ExpectationFailed as ExpectationFailed
    from sparktxn.errors import FormatVersionError as FormatVersionError
    from sparktxn.errors import KafkaError as KafkaError
    from sparktxn.errors import KafkaException as KafkaException
    from sparktxn.errors import OutcomeLost as OutcomeLost
    from sparktxn.errors import OutcomeUnknown as OutcomeUnknown
    from sparktxn.errors import ProducerFenced as ProducerFenced
    from sparktxn.errors import RetentionPassed as RetentionPassed
    from sparktxn.errors import SegmentExpired as SegmentExpired
    from sparktxn.errors import StoreError as StoreError
    from sparktxn.errors import StoreNotFound as StoreNotFound
    from sparktxn.errors import StoreUnavailable as StoreUnavailable
    from sparktxn.errors import TransactionAborted as TransactionAborted
    from sparktxn.errors import ViewExpired as ViewExpired
    from sparktxn.producer import PreparedTransaction as PreparedTransaction
    from sparktxn.producer import Producer as Producer
    from sparktxn.producer import SerializingProducer as SerializingProducer
    from sparktxn.producer.topics import consistent as consistent
    from sparktxn.producer.topics import fnv1a as fnv1a
    from sparktxn.producer.topics import murmur2 as murmur2
    from sparktxn.store import CommitResult as CommitResult
    from sparktxn.store import ReplayMismatch as ReplayMismatch
    from sparktxn.store import SinkCommit as SinkCommit
    from sparktxn.store import StagePlan as StagePlan
    from sparktxn.store import Store as Store
    from sparktxn.store import read_task as read_task
    from sparktxn.tables import Table as Table
    from sparktxn.tables import open_table as open_table
    from sparktxn.tables import read_arrow as read_arrow
    from sparktxn.tables import to_duckdb as to_duckdb
    from sparktxn.tables import to_pandas as to_pandas
    from sparktxn.tables import to_polars as to_polars

    __version__: str

_HOMES: Final = {
    "sparktxn._foundation.config.settings": "read_properties",
    "sparktxn._foundation.process.events": "EVENTS",
    "sparktxn.consumer": "Consumer DeserializingConsumer",
    "sparktxn.errors": (
        "BatchRefused ClockSkewError CommandRefused ConfigurationError DamagedObject ErrorCode ExpectationFailed "
        "FormatVersionError KafkaError KafkaException OutcomeLost OutcomeUnknown ProducerFenced RetentionPassed "
        "SegmentExpired StoreError StoreNotFound StoreUnavailable TransactionAborted ViewExpired"
    ),
    "sparktxn._kafka.admin": "Node TopicCollection TopicPartitionInfo",
    "sparktxn._kafka.groups": "ConsumerGroupState ConsumerGroupTopicPartitions ConsumerGroupType",
    "sparktxn._kafka.library": (
        "ConcurrentModificationException IllegalStateException ThrottleEvent Uuid libversion version"
    ),
    "sparktxn._kafka.message": (
        "OFFSET_BEGINNING OFFSET_END OFFSET_INVALID OFFSET_STORED TIMESTAMP_CREATE_TIME TIMESTAMP_LOG_APPEND_TIME "
        "TIMESTAMP_NOT_AVAILABLE ConsumerGroupMetadata IsolationLevel Message TopicPartition"
    ),
    "sparktxn._kafka.serialization": (
        "ConsumeError ProduceError SerializationError KeyDeserializationError KeySerializationError "
        "ValueDeserializationError ValueSerializationError"
    ),
    "sparktxn._kafka.unsupported": "AcknowledgeType DeserializingShareConsumer ElectionType Messages ShareConsumer",
    "sparktxn._engine.log.views.readview": "PartitionView ReadView",
    "sparktxn.producer": "PreparedTransaction Producer SerializingProducer",
    "sparktxn.producer.topics": "consistent fnv1a murmur2",
    "sparktxn._rows.scan.storedfiles": "CommittedFile",
    "sparktxn._rows.scan.plan": "ReadTask",
    "sparktxn._rows.stage.stagedsegment": "StagedSegment",
    "sparktxn._rows.stage.batchcommits": "CommitResult ReplayMismatch SinkCommit",
    "sparktxn.store.stageplan": "StagePlan",
    "sparktxn.store.store": "Store",
    "sparktxn.store.readtask": "read_task",
    "sparktxn._foundation.values.structs": "TopicState",
    "sparktxn.tables": "Table open_table read_arrow to_duckdb to_pandas to_polars",
}
"""By module: the names that it is the home of."""

_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = ["__version__", *_HOME_OF]


if not TYPE_CHECKING:  # a type checker would take any name for one that exists

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return _installed_version()
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _start_background_jobs(log: Log) -> None:
    """Fold a log's segments and publish its tables from now on: imported here, as few processes write that much."""
    from sparktxn.maintenance.publishing.background import start_background_jobs

    start_background_jobs(log)


_register_background_jobs(_start_background_jobs)


def _installed_version() -> str:
    """Return the distribution's version; ``unknown`` for a source tree that is not installed."""
    metadata = importlib.import_module("importlib.metadata")
    try:
        return str(metadata.version("sparktxn"))
    except metadata.PackageNotFoundError:
        return "unknown"
