"""Where a micro-batch ends that begins below what a compaction has left of a keyed topic: by offset, within its limits.

No transaction is whole there, so that none is split. All rows below a compaction's end are committed, and in a keyed
partition offset order is commit order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparktxn import read_task
from sparktxn.store.options import TopicPartitionKey
from sparktxn.store.reading import compacted_entry, key_columns

if TYPE_CHECKING:
    from sparktxn import ReadTask, ReadView, Store


def compacted_ends(
    store: Store,
    view: ReadView,
    after_entry: int,
    floors: Mapping[TopicPartitionKey, int],
    *,
    rows_max: int | None,
    bytes_max: int | None,
) -> dict[TopicPartitionKey, int]:
    """Return up to which offsets a micro-batch reads those of some partitions that are below a compaction's end.

    Args:
        store: the store.
        view: the view in which the micro-batch is chosen.
        after_entry: the entry up to which the partitions have been read.
        floors: by partition, the offset from which it is read.
        rows_max: how many rows the micro-batch has at most; None: no limit.
        bytes_max: about how many bytes of stored segments; None: no limit.

    Raises:
        DamagedObject, ViewExpired: as `Store.plan_commits`.
    """
    bounds = {}
    for key, floor in floors.items():
        partition = view.partitions[key]
        is_below = key_columns(partition.topic.settings) and compacted_entry(partition, floor) > after_entry
        if is_below and partition.compacted is not None:
            bounds[key] = (floor, partition.compacted.end_offset)
    if not bounds:
        return {}
    tasks: dict[TopicPartitionKey, list[ReadTask]] = defaultdict(list)
    for task in store.plan_commits(view, after_entry, bounds=bounds, columns=(), by_segment=True, rows="all"):
        tasks[task.topic, task.partition].append(task)
    rows = {key: sum(map(_rows, own)) for key, own in tasks.items()}
    total, ends = sum(rows.values()), {key: end for key, (_, end) in bounds.items()}
    limits = [] if rows_max is None else [rows_max]
    if bytes_max is not None and total:
        limits.append(max(1, bytes_max * total // max(1, sum(_bytes(task) for own in tasks.values() for task in own))))
    limit = min(limits, default=total)
    if total <= limit:
        return ends
    shares = {key: limit * count // total for key, count in rows.items()}
    if not any(shares.values()):
        shares = dict.fromkeys(shares, 0) | {next(iter(shares)): limit}
    read = partial(_cut, store=store)
    return ends | {key: read(own, bounds[key][0], shares[key]) for key, own in tasks.items()}


def _rows(task: ReadTask) -> int:
    return sum(segment.rows_between(task.start_offset, task.end_offset) for segment in task.segments)


def _bytes(task: ReadTask) -> int:
    return sum(segment.size_bytes * segment.row_count // segment.file_records for segment in task.segments)


def _cut(tasks: Sequence[ReadTask], start: int, rows_max: int, *, store: Store) -> int:
    """Return the offset after the first `rows_max` rows of tasks, or `start` for none of them.

    Of the segment that it lies in the column of the offsets is read, if the log alone does not say them.
    """
    position, left = start, rows_max
    for task in tasks:
        for segment in task.segments:
            rows = segment.rows_between(task.start_offset, task.end_offset)
            if rows > left:
                kept = replace(task, segments=(segment,)).kept_offsets(partial(read_task, options=store.options))
                offsets = (offset for first, end in kept for offset in range(first, end))
                return max([position, *(offset + 1 for offset in islice(offsets, left))])
            position, left = segment.end_offset, left - rows
    return position
