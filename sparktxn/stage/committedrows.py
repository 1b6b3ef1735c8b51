"""How many rows a sink's batch has committed: the log's entry says it, the batch's fingerprint does not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparktxn.errors import DamagedObject, ViewExpired
from sparktxn.format.commands import Append, SinkBatchCommit
from sparktxn.values.structs import SinkBatch

if TYPE_CHECKING:
    from sparktxn.log.log import Log
    from sparktxn.stage.stagedsegment import StagedSegment

__all__ = ["committed_rows", "rows_by_topic"]


def committed_rows(log: Log, transactional_id: str, batch: SinkBatch) -> dict[str, int] | None:
    """Return the number of rows that `batch` has committed, by topic; None if a vacuum has passed its entry.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    # Imported late: the tasks that stage rows for Spark read no log, and each of their processes would import it.
    from sparktxn.log.follow.tail import commands_of
    from sparktxn.log.views.entrysummary import read_entries

    try:
        (entry,) = read_entries(log.objects, batch.entry, batch.entry)
        commands = commands_of(log.objects, entry)
    except (ViewExpired, DamagedObject):
        return None
    own = {
        (command.producer_id, command.transaction)
        for command in commands
        if isinstance(command, SinkBatchCommit)
        and (command.transactional_id, command.batch_id) == (transactional_id, batch.batch_id)
    }
    appended = (command for command in commands if isinstance(command, Append))
    return rows_by_topic((each for each in appended if (each.producer_id, each.transaction) in own), log)


def rows_by_topic(segments: Iterable[Append | StagedSegment], log: Log) -> dict[str, int]:
    """Return the number of rows of `segments`, by topic; a topic that `log` does not know has its id for a name."""
    names, rows = log.topic_names(), dict[str, int]()
    for segment in segments:
        name = names.get(segment.topic_id, f"topic id {segment.topic_id}")
        rows[name] = rows.get(name, 0) + segment.record_count
    return rows
