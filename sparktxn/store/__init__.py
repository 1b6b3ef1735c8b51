"""What engines use: a store, and what its handles share in one process."""

from sparktxn.store.store import (
    PARTITION_COUNT_MAX,
    SYSTEM_TABLES,
    CommitResult,
    ReplayMismatch,
    SinkCommit,
    StagePlan,
    Store,
    TableSelection,
    TableTask,
    read_table_task,
    read_task,
)

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
