"""Completing tasks for the columns of a record's transaction: producers, and the entries that committed segments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from sparktxn._engine.log.views.knownstate import Known
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.state.transactions.partitions import CommittedRanges
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._foundation.values.structs import TransactionState
from sparktxn._rows.scan.columns import TRANSACTIONAL_ID, metadata_names, reserved_name
from sparktxn._rows.scan.plan import ReadTask


def committed_ranges(view: PartitionView) -> CommittedRanges:
    """Return which entry committed each segment of a partition, as a view of it knows."""
    late = [transaction for run in view.sealed for transaction in run.committed_late]
    return CommittedRanges([*late, *view.committed])


def transactional_ids_of(records: Iterable[TransactionState]) -> dict[int, str]:
    """Return the transactional ids of `records` by each producer id that they remember."""
    known = {}
    for record in records:
        known[record.producer_id] = record.transactional_id
        for remembered in (record.prepared, record.last_prepared):
            if remembered is not None:
                known[remembered.producer_id] = record.transactional_id
        if record.previous_producer_id >= 0:
            known[record.previous_producer_id] = record.transactional_id
    return known


def with_metadata(view: ReadView, tasks: Sequence[ReadTask], log: Known) -> list[ReadTask]:
    """Return `tasks` of `view`, complete for the columns of the record's transaction that they ask for.

    Tasks that ask for none are returned as they are. Transactional ids are those that `log` knows, which is asked only
    if a task needs them.
    """
    ranges: dict[TopicPartitionKey, CommittedRanges] = {}
    known: Mapping[int, str] | None = None
    completed = []
    for task in tasks:
        asked = set(task.columns or ()) & set(metadata_names(task.schema))
        if not asked:
            completed.append(task)
            continue
        key = (task.topic, task.partition)
        if key not in ranges:
            ranges[key] = committed_ranges(view.partitions[key])
        task = replace(task, segments=tuple(ranges[key].noted(task.segments)))
        if reserved_name(TRANSACTIONAL_ID, task.schema) in asked:
            known = transactional_ids_of(log.transactions()) if known is None else known
            # Rows of keyed topics are appended outside of the transaction, by its producer.
            producers = {segment.producer_id for segment in task.segments}
            ids = {producer_id: known[producer_id] for producer_id in producers if producer_id in known}
            task = replace(task, transactional_ids=ids)
        completed.append(task)
    return completed
