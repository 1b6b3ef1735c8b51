"""Counts and greatest offsets from the log alone, however many rows there are.

Only segments that a compaction by key has left gaps in are fetched, for the column of their offsets. Of internal topics
the entries are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark_txnlog.options.filters import refuse_filters
from pyspark_txnlog.options.keywords import option_texts
from pyspark_txnlog.options.options import READ, ReadOptions
from pyspark_txnlog.reading.batch_reader import TaskPartition, TxnLogReader, read_schema
from sparktxn import read_task
from sparktxn.values import arguments

if TYPE_CHECKING:
    from sparktxn import ReadTask

__all__ = ["count", "max_offset"]


def count(uri: str, topic: str, options: Mapping[str, Any] | None = None, **named: Any) -> int:
    """Return how many rows ``spark.read.format("txnlog")`` would return for a topic. Needs no session.

    Args:
        uri: the store.
        topic: one topic. The rows of an internal one are not stored: they are read to be counted.
        options: those of ``spark.read.format("txnlog")``; as keywords where the name has no dot.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: an option is wrong.
        CommandRefused: the topic does not exist.
    """
    tasks = _tasks(uri, topic, options, named)
    return sum(end - start for task in tasks for start, end in task.kept_offsets(read_task))


def max_offset(uri: str, topic: str, options: Mapping[str, Any] | None = None, **named: Any) -> dict[int, int]:
    """Return the greatest offset of the rows that `count` counts, by partition; without those that have no row.

    The arguments and errors are those of `count`.
    """
    greatest: dict[int, int] = {}
    for task in _tasks(uri, topic, options, named):
        for _, end in task.kept_offsets(read_task):
            greatest[task.partition] = max(end - 1, greatest.get(task.partition, -1))
    return greatest


def _tasks(uri: str, topic: str, options: Mapping[str, Any] | None, named: Mapping[str, Any]) -> Iterator[ReadTask]:
    name = arguments.identifier("topic", topic)
    parsed = ReadOptions.parse(option_texts(options, named, path=uri, topic=name), READ)
    refuse_filters(parsed, "count() and max_offset()", "they read no records; count() a data frame that has them")
    schema, pinned = read_schema(parsed)
    parts = TxnLogReader(parsed, schema, pinned, by_segment=True).partitions()
    return (part.task for part in parts if isinstance(part, TaskPartition))
