"""Checks of a run's index of aborted transactions, which has no checksum (PROTOCOL.md)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from sparktxn.errors import DamagedObject
from sparktxn.format import names
from sparktxn.log.keep.replay import Replay
from sparktxn.log.keep.runs import aborted_of
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.values.structs import AbortedTransaction, ManifestRef, PartitionSegments, SegmentRef

__all__ = ["check_index_ends", "check_index_segments", "read_index"]


def read_index(objects: ObjectStore, folder: str, run: ManifestRef) -> Sequence[AbortedTransaction]:
    """Return the aborted transactions in a run's index.

    Raises:
        DamagedObject: it is missing or damaged.
    """
    (found,) = aborted_of(objects, folder, [run])
    return found


def check_index_ends(
    found: Sequence[AbortedTransaction],
    objects: ObjectStore,
    folder: str,
    run: ManifestRef,
    replay: Replay,
    located: PartitionSegments,
) -> None:
    """Check a run's aborted transactions against the replay, if that has seen them end.

    Raises:
        DamagedObject: the index holds other transactions than the log.
    """
    partition = replay.parts.get(("partition", located.topic_id, located.partition))
    replayed = replay.parts.get(located.key)
    if partition is None or replayed is None or run in replayed.sealed:
        return
    # Another process may have sealed the records after the abort, and this one before it: that run ends at the abort.
    first = min(transaction.last_offset for transaction in found)
    others = [other for other in replayed.sealed if other.end_offset > first]
    known = {*replayed.aborted, *(one for some in aborted_of(objects, folder, others) for one in some)}
    for transaction in found:
        if transaction.last_offset >= partition.log_start_offset and transaction not in known:
            name = names.transaction_index(folder, run.folder, run.base_offset)
            raise DamagedObject(name, f"it holds {transaction}, and the log has no such aborted transaction")


def check_index_segments(
    found: Sequence[AbortedTransaction],
    folder: str,
    run: ManifestRef,
    replay: Replay,
    located: PartitionSegments,
) -> None:
    """Check a run's index, which has no checksum, against the segments: readers must leave out those of its producers.

    Raises:
        DamagedObject: a transaction does not begin with a segment of its producer, or ends within segments.
    """
    try:
        segments = [segment for each in located.sealed for segment in replay.manifest(folder, each)]
    except DamagedObject:
        return  # noted where it was read first
    segments += located.segments
    name = names.transaction_index(folder, run.folder, run.base_offset)
    for transaction in found:
        is_known = segments and transaction.first_offset >= segments[0].base_offset
        if is_known and (problem := _aborted_problem(transaction, segments)):
            raise DamagedObject(name, f"it holds {transaction}: {problem}")


def _aborted_problem(transaction: AbortedTransaction, segments: Sequence[SegmentRef]) -> str | None:
    """Return how an aborted transaction contradicts the segments of its partition, which are in offset order."""
    first = bisect_left(segments, transaction.first_offset, key=attrgetter("base_offset"))
    own = segments[first] if first < len(segments) else None
    if own is None or (own.base_offset, own.producer_id) != (transaction.first_offset, transaction.producer_id):
        return "no segment of that producer begins there"
    for segment in segments[first:]:
        is_inside = segment.base_offset <= transaction.last_offset
        if is_inside and segment.end_offset > transaction.last_offset:
            return "a segment is where it ends"
        if segment.producer_id == own.producer_id and is_inside != (segment.transaction == own.transaction):
            return f"it does not end with the producer's transaction {own.transaction}"
    return None
