"""What a process needs to stage records for a transaction that another one commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sparktxn.process.background import ThreadBackground
from sparktxn.process.clock import RandomIds, SystemClock
from sparktxn.scan.plan import ReadTask
from sparktxn.scan.reader import read
from sparktxn.stage.stager import STAGING_THREADS, SegmentStager, StageTopic
from sparktxn.store.registry import objects_of
from sparktxn.values import arguments

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StagePlan", "read_task"]


class StagePlan(Struct, frozen=True):
    """All that a process needs to stage records: picklable, no secrets in its `repr`."""

    store_uri: str
    options: dict[str, Any]
    born: int
    topics: dict[str, StageTopic]
    inline_bytes: int = 0

    def open(
        self,
        *,
        seed: int,
        default_topic: str | None = None,
        partitioner: str = "consistent_random",
        inline: bool = False,
        digests: bool = True,
    ) -> SegmentStager:
        """Return a stager in this process; equal rows under an equal `seed` go to equal partitions.

        Without `digests` a commit with a `sink` recognises a batch by the number of its rows and bytes only.

        With `inline` it does not upload what is small: the staged segments hold it, for the entry that names them.
        """
        seed = arguments.integer("seed", seed)
        default_topic = arguments.text_or_none("default_topic", default_topic)
        partitioner = arguments.text("partitioner", partitioner)
        inline = arguments.boolean("inline", inline)
        digests = arguments.boolean("digests", digests)
        objects = objects_of(self.store_uri, self.options)
        return SegmentStager(
            objects,
            RandomIds(),
            self.born,
            self.topics,
            seed=seed,
            default_topic=default_topic,
            partitioner=partitioner,
            clock=SystemClock(),
            background=ThreadBackground("sparktxn-stage", STAGING_THREADS),
            digests=digests,
            inline_bytes=self.inline_bytes if inline else 0,
        )

    def __repr__(self) -> str:
        return f"StagePlan(store_uri={self.store_uri!r}, born={self.born}, topics={sorted(self.topics)})"


# The rows of a task, in a process that needs no log to read them.


def read_task(
    task: ReadTask, options: Mapping[str, Any] | None = None, *, batch_rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, in offset order, in any process that can reach the store's objects.

    Raises:
        DamagedObject: a segment is missing or is not what the log names.
        ViewExpired: vacuum has passed the view that the task was planned in.
    """
    arguments.instance("task", task, ReadTask)
    batch_rows = arguments.integer_or_none("batch_rows", batch_rows, 1)
    yield from read(objects_of(task.store_uri, arguments.mapping("options", options)), task, batch_rows=batch_rows)
