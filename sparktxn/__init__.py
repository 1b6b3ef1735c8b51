"""A transactional log on object storage, with Kafka's transactions and no broker.

Names are imported when they are first used, so that a process pays only for what it touches.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sparktxn.errors import BatchRefused as BatchRefused
    from sparktxn.errors import CommandRefused as CommandRefused
    from sparktxn.errors import ConfigurationError as ConfigurationError
    from sparktxn.errors import DamagedObject as DamagedObject
    from sparktxn.errors import KafkaError as KafkaError
    from sparktxn.errors import KafkaException as KafkaException
    from sparktxn.errors import OutcomeUnknown as OutcomeUnknown
    from sparktxn.errors import ProducerFenced as ProducerFenced
    from sparktxn.errors import RetentionPassed as RetentionPassed
    from sparktxn.errors import SegmentExpired as SegmentExpired
    from sparktxn.errors import StoreNotFound as StoreNotFound
    from sparktxn.errors import StoreUnavailable as StoreUnavailable
    from sparktxn.errors import TransactionAborted as TransactionAborted
    from sparktxn.errors import ViewExpired as ViewExpired
    from sparktxn.errors import did_you_mean as did_you_mean
    from sparktxn.log.views import PartitionView as PartitionView
    from sparktxn.log.views import ReadView as ReadView
    from sparktxn.scan.plan import ReadTask as ReadTask
    from sparktxn.scan.reader import output_schema as output_schema
    from sparktxn.stage.staged import StagedSegment as StagedSegment
    from sparktxn.store import CommitResult as CommitResult
    from sparktxn.store import SinkCommit as SinkCommit
    from sparktxn.store import StagePlan as StagePlan
    from sparktxn.store import Store as Store
    from sparktxn.store import read_task as read_task
    from sparktxn.structs import TopicState as TopicState

_HOMES: Final = {
    "sparktxn.errors": (
        "BatchRefused",
        "CommandRefused",
        "ConfigurationError",
        "DamagedObject",
        "KafkaError",
        "KafkaException",
        "OutcomeUnknown",
        "ProducerFenced",
        "RetentionPassed",
        "SegmentExpired",
        "StoreNotFound",
        "StoreUnavailable",
        "TransactionAborted",
        "ViewExpired",
        "did_you_mean",
    ),
    "sparktxn.log.views": ("PartitionView", "ReadView"),
    "sparktxn.scan.plan": ("ReadTask",),
    "sparktxn.scan.reader": ("output_schema",),
    "sparktxn.stage.staged": ("StagedSegment",),
    "sparktxn.store": ("CommitResult", "SinkCommit", "StagePlan", "Store", "read_task"),
    "sparktxn.structs": ("TopicState",),
}
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [*_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
