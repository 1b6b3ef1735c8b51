"""Runs that a replay seals for itself: their objects are in its memory, and no other process sees them.

A replay of many entries would otherwise hold all segments since its start one by one, and copy them with each append.
Sealed they take some 20 bytes each. Merging keeps the number of runs small, as in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparktxn.format import names
from sparktxn.log.keep.sealing import seal
from sparktxn.objectstore.contract import ObjectReader
from sparktxn.values.fieldtypes import TopicIdPartition
from sparktxn.values.structs import PartitionSegments, PartitionState

__all__ = ["OwnRuns"]

_RUNS_TO_MERGE: Final = 64


class OwnRuns:
    """Reads a store's objects, and those of the runs that it has sealed itself."""

    def __init__(self, objects: ObjectReader) -> None:
        self.uri = objects.uri
        self._objects = objects
        self._own: dict[TopicIdPartition, dict[str, bytes]] = {}
        self._count = 0

    def get(self, name: str) -> bytes | None:
        """Return the object's bytes, or None."""
        parsed = names.parse_partition_object(name)
        own = None if parsed is None else self._own.get(parsed[:2], {}).get(name)
        return self._objects.get(name) if own is None else own

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        """Return `get` of each name."""
        return [self.get(name) for name in names]

    def seal(self, folder: str, partition: PartitionState, located: PartitionSegments, entry: int) -> PartitionSegments:
        """Return the same records' places after `entry`, with all single segments in runs of this reader.

        `folder` is the partition's folder. Runs that are no longer named, because they were merged or lie below the log
        start, are forgotten.
        """
        own = self._own.setdefault((located.topic_id, located.partition), {})
        sealed = seal(
            self, own.__setitem__, self._token, folder, partition, located, (), entry, runs_to_merge=_RUNS_TO_MERGE
        )
        self.keep_named(sealed)
        return sealed

    def keep_named(self, located: PartitionSegments) -> None:
        """Forget the runs of a partition that its places do not name."""
        where = (located.topic_id, located.partition)
        named = {run.folder for run in located.sealed}
        left = {name: data for name, data in self._own.get(where, {}).items() if _run_of(name) in named}
        self._own[where] = left

    def _token(self) -> str:
        self._count += 1
        return f"{self._count:020d}"


def _run_of(name: str) -> str | None:
    parsed = names.parse_partition_object(name)
    return None if parsed is None else names.parse_sealed_folder(parsed[2])
