"""What the processes of a test did and were answered: what checkers compare with the log."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from msgspec import Struct, field

from sparktxn._engine.format import names
from sparktxn._engine.format.manifest import decode_manifest
from sparktxn._engine.format.txnindex import decode_transaction_index
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.values.structs import AbortedTransaction

__all__ = ["Attempt", "History", "Job", "Observation", "Outcome", "Placed", "observe"]

Placed = tuple[str, int]
"""A segment and its base offset."""


class Outcome(Enum):
    """The answer that a process got about an attempt."""

    UNKNOWN = "unknown"
    """Nothing yet, or that nothing is known."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    REFUSED = "refused"
    """Nothing was written."""
    WITHDRAWN = "withdrawn"
    """Nothing was written, and nothing will be."""


class Job(Struct):
    """Work that outlives its processes: batches, each of which must take effect exactly once.

    `attempts` says which batch each transaction number was for. Like a job's own checkpoint it is written before the
    attempt, so that the next process can ask the log how the last one ended. `committed` are those that have.
    """

    name: str
    batches: int
    attempts: dict[int, int] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """True once every batch has taken effect."""
        return len(self.committed) == self.batches

    def done_at(self, transaction: int) -> int:
        """How many batches the transactions up to this number have committed: later ones belong to another process."""
        return sum(1 for number in self.committed if number <= transaction)


class Attempt(Struct):
    """One try to write one batch in one transaction: (topic id, partition, segment), and the group's offset or None."""

    job: str
    batch: int
    transaction: int
    segments: tuple[tuple[int, int, str], ...]
    offset: int | None
    fused: bool
    outcome: Outcome = Outcome.UNKNOWN


class Observation(Struct, frozen=True):
    """A partition as a process saw it, however it was sealed."""

    log_start_offset: int
    last_stable_offset: int
    log_end_offset: int
    segments: tuple[Placed, ...]
    aborted: tuple[AbortedTransaction, ...]
    topic_id: int = -1


class History(Struct):
    """What was recorded: `views` are (who, entry, partitions), `ends` are (who, entry, digest of its last state)."""

    jobs: list[Job] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    acknowledged: list[tuple[str, int]] = field(default_factory=list)
    views: list[tuple[str, int, dict[tuple[str, int], Observation]]] = field(default_factory=list)
    ends: list[tuple[str, int, str]] = field(default_factory=list)
    operations: int = 0

    def acknowledge(self, job: Job, transaction: int) -> None:
        """A process has got an answer, or has learnt from the log, that a transaction has committed its batch."""
        job.committed[transaction] = job.attempts[transaction]
        self.acknowledged.append((job.name, job.attempts[transaction]))

    def see(self, who: str, objects: ObjectStore, view: ReadView) -> None:
        """Records a view; `objects` is read without faults."""
        self.views.append((who, view.entry, observe(objects, view.partitions)))


def observe(
    objects: ObjectStore, partitions: dict[tuple[str, int], PartitionView]
) -> dict[tuple[str, int], Observation]:
    """The partitions with the contents of their sealed runs."""
    return {key: _observe(objects, view) for key, view in partitions.items()}


def _observe(objects: ObjectStore, view: PartitionView) -> Observation:
    segments, aborted = _sealed_contents(objects, view)
    return Observation(
        view.log_start_offset,
        view.last_stable_offset,
        view.log_end_offset,
        (*segments, *((segment.name, segment.base_offset) for segment in view.segments)),
        (*aborted, *view.aborted),
        view.topic.topic_id,
    )


@lru_cache(maxsize=4_096)
def _places(manifest: bytes, name: str) -> tuple[Placed, ...]:
    return tuple((segment.name, segment.base_offset) for segment in decode_manifest(manifest, name))


def _sealed_contents(objects: ObjectStore, view: PartitionView) -> tuple[list[Placed], list[AbortedTransaction]]:
    """What a partition's sealed runs hold, by the objects themselves."""
    folder = names.partition_folder(view.topic.name, view.topic.topic_id, view.partition)
    segments: list[Placed] = []
    aborted: list[AbortedTransaction] = []
    for run in view.sealed:
        name = names.manifest(folder, run.folder)
        data = objects.get(name)
        assert data is not None, f"{name} is named by a view and does not exist"
        segments += _places(data, name)
        if run.aborted_count:
            name = names.transaction_index(folder, run.folder, run.base_offset)
            data = objects.get(name)
            assert data is not None, f"{name} is named by a view and does not exist"
            aborted += decode_transaction_index(data, name)
    return segments, aborted
