"""What engines use: a store, and what its handles share in one process.

Names are imported when they are first used: a process that stages or reads the rows of a task needs no log.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from sparktxn._engine.state.limits import PARTITION_COUNT_MAX

if TYPE_CHECKING:
    from sparktxn._engine.state.internal import INTERNAL_TOPICS
    from sparktxn._rows.scan.columns import output_schema
    from sparktxn._rows.scan.latesttask import LatestTask
    from sparktxn._rows.scan.plan import ranges_within, rows_at_most
    from sparktxn._rows.scan.reader import segment_values
    from sparktxn._rows.scan.storedfiles import merged_files, whole_files
    from sparktxn._rows.stage.batchcommits import CommitResult, ReplayMismatch, SinkCommit
    from sparktxn._rows.stage.columnconversion import check_columns
    from sparktxn.store.readtask import read_task
    from sparktxn.store.registry import read_object
    from sparktxn.store.stageplan import StagePlan
    from sparktxn.store.store import SYSTEM_TABLES, Store, TableSelection, TableTask, read_table_task

__all__ = [
    "INTERNAL_TOPICS",
    "PARTITION_COUNT_MAX",
    "SYSTEM_TABLES",
    "CommitResult",
    "LatestTask",
    "ReplayMismatch",
    "SinkCommit",
    "StagePlan",
    "Store",
    "TableSelection",
    "TableTask",
    "check_columns",
    "merged_files",
    "output_schema",
    "ranges_within",
    "read_object",
    "read_table_task",
    "read_task",
    "rows_at_most",
    "segment_values",
    "whole_files",
]

_HOMES: Final = {
    "check_columns": "sparktxn._rows.stage.columnconversion",
    "INTERNAL_TOPICS": "sparktxn._engine.state.internal",
    "merged_files": "sparktxn._rows.scan.storedfiles",
    "whole_files": "sparktxn._rows.scan.storedfiles",
    "output_schema": "sparktxn._rows.scan.columns",
    "ranges_within": "sparktxn._rows.scan.plan",
    "rows_at_most": "sparktxn._rows.scan.plan",
    "read_object": "sparktxn.store.registry",
    "segment_values": "sparktxn._rows.scan.reader",
    "CommitResult": "sparktxn._rows.stage.batchcommits",
    "LatestTask": "sparktxn._rows.scan.latesttask",
    "ReplayMismatch": "sparktxn._rows.stage.batchcommits",
    "SYSTEM_TABLES": "sparktxn.store.store",
    "SinkCommit": "sparktxn._rows.stage.batchcommits",
    "StagePlan": "sparktxn.store.stageplan",
    "Store": "sparktxn.store.store",
    "TableSelection": "sparktxn.store.store",
    "TableTask": "sparktxn.store.store",
    "read_table_task": "sparktxn.store.store",
    "read_task": "sparktxn.store.readtask",
}


if not TYPE_CHECKING:  # a type checker would take any name for one that exists

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
