"""Checks of a run's index of aborted transactions, which has no checksum (PROTOCOL.md)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter
from typing import Final

from sparktxn.errors import DamagedObject
from sparktxn.format import names
from sparktxn.log.keep.replay import Replay
from sparktxn.log.keep.runs import aborted_of
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.values.structs import AbortedTransaction, ManifestRef, PartitionSegments, SegmentRef

__all__ = ["check_index_ends", "check_index_segments", "read_index"]

_base_offset: Final = attrgetter("base_offset")


def read_index(objects: ObjectStore, folder: str, run: ManifestRef) -> Sequence[AbortedTransaction]:
    """Return the aborted transactions in a run's index.

    Raises:
        DamagedObject: it is missing or damaged.
    """
    (found,) = aborted_of(objects, folder, [run])
    return found


def check_index_ends(
    found: Sequence[AbortedTransaction],
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
    known = {*replayed.aborted, *(one for other in others for one in replay.aborted(folder, other))}
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
    start = min(transaction.first_offset for transaction in found)
    meeting = [each for each in located.sealed if start < each.end_offset and each.base_offset < run.end_offset]
    try:
        segments = [segment for each in meeting for segment in replay.manifest(folder, each)]
    except DamagedObject:
        return  # noted where it was read first
    by_producer: dict[int, list[SegmentRef]] = {}
    for segment in segments:
        by_producer.setdefault(segment.producer_id, []).append(segment)
    name = names.transaction_index(folder, run.folder, run.base_offset)
    for transaction in found:
        is_known = segments and transaction.first_offset >= segments[0].base_offset
        own = by_producer.get(transaction.producer_id, [])
        problem = _aborted_problem(transaction, segments, own) if is_known else None
        if transaction.last_offset >= run.end_offset:
            problem = f"its run ends at {run.end_offset}"
        if problem:
            raise DamagedObject(name, f"it holds {transaction}: {problem}")


def _aborted_problem(
    transaction: AbortedTransaction, segments: Sequence[SegmentRef], own: Sequence[SegmentRef]
) -> str | None:
    """Return how an aborted transaction contradicts the segments of its partition, and those of its producer.

    Both are in offset order, up to the end of the run in which it was sealed.
    """
    first = bisect_left(own, transaction.first_offset, key=_base_offset)
    if first == len(own) or own[first].base_offset != transaction.first_offset:
        return "no segment of that producer begins there"
    number = own[first].transaction
    after = bisect_right(segments, transaction.last_offset, key=_base_offset)
    if segments[after - 1].end_offset > transaction.last_offset:
        return "a segment is where it ends"
    for segment in islice(own, first, None):
        is_inside = segment.base_offset <= transaction.last_offset
        if is_inside != (segment.transaction == number):
            return f"it does not end with the producer's transaction {number}"
        if not is_inside:
            break
    return None
