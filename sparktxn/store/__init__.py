"""What engines use: a store, and what its handles share in one process.

Names are imported when they are first used: a process that stages or reads the rows of a task needs no log.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from sparktxn.state.limits import PARTITION_COUNT_MAX

if TYPE_CHECKING:
    from sparktxn.stage.batchcommits import CommitResult, ReplayMismatch, SinkCommit
    from sparktxn.store.stageplan import StagePlan
    from sparktxn.store.store import SYSTEM_TABLES, Store, TableSelection, TableTask, read_table_task
    from sparktxn.store.taskrows import read_task

__all__ = [
    "PARTITION_COUNT_MAX",
    "SYSTEM_TABLES",
    "CommitResult",
    "ReplayMismatch",
    "SinkCommit",
    "StagePlan",
    "Store",
    "TableSelection",
    "TableTask",
    "read_table_task",
    "read_task",
]

_HOMES: Final = {
    "CommitResult": "sparktxn.stage.batchcommits",
    "ReplayMismatch": "sparktxn.stage.batchcommits",
    "SYSTEM_TABLES": "sparktxn.store.store",
    "SinkCommit": "sparktxn.stage.batchcommits",
    "StagePlan": "sparktxn.store.stageplan",
    "Store": "sparktxn.store.store",
    "TableSelection": "sparktxn.store.store",
    "TableTask": "sparktxn.store.store",
    "read_table_task": "sparktxn.store.store",
    "read_task": "sparktxn.store.taskrows",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
