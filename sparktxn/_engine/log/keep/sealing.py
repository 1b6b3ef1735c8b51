"""Sealing: a partition's single segments become a run with a manifest, so that the state does not grow with them.

A run's folder has a unique name: two processes may seal the same segments differently, and each checkpoint names its
own. Runs of one level are merged into a longer one when there are enough of them. So their number grows with the
logarithm of the log's length. Validation never asks what is sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.manifest import encode_manifest
from sparktxn._engine.format.segment import checksum
from sparktxn._engine.format.snapshot import encode_snapshot, snapshot_entry
from sparktxn._engine.format.txnindex import encode_transaction_index
from sparktxn._engine.log.keep.sealedruns import aborted_of, segments_of
from sparktxn._engine.objectstore.contract import ObjectReader
from sparktxn._engine.state.transactions.partitions import CommittedRanges
from sparktxn._foundation.values.structs import (
    AbortedTransaction,
    CommittedTransaction,
    ManifestRef,
    PartitionSegments,
    PartitionState,
    ProducerState,
    SegmentRef,
)

Put = Callable[[str, bytes], object]
"""Stores an object under a name that no other writer uses."""


def seal(
    objects: ObjectReader,
    put: Put,
    token: Callable[[], str],
    folder: str,
    partition: PartitionState,
    located: PartitionSegments,
    producers: Sequence[ProducerState],
    entry: int,
    runs_to_merge: int,
) -> PartitionSegments:
    """Return the same records' places, with all single segments in a sealed run; the run's objects are written.

    `folder` is the partition's folder, `producers` are the partition's, and all are of the state after `entry`. As many
    runs of one level as `runs_to_merge` become one of the next level. `token` makes the folder of each run unique.

    Raises:
        StoreUnavailable: an object could not be written; what was written is garbage that no checkpoint names.
    """
    run = _write_run(
        put,
        token,
        folder,
        located.segments,
        located.aborted,
        located.committed,
        partition.log_end_offset,
        producers,
        entry,
        level=0,
    )
    sealed = (*located.sealed, run)
    while len(tail := _mergeable(sealed)) >= runs_to_merge:
        sealed = (*sealed[: -len(tail)], _merge(objects, put, token, folder, tail, producers, entry))
    return replace(located, sealed=sealed, segments=(), aborted=(), committed=())


def _mergeable(sealed: tuple[ManifestRef, ...]) -> tuple[ManifestRef, ...]:
    """Return the runs at the end that have the level of the last one."""
    start = len(sealed)
    while start and sealed[start - 1].level == sealed[-1].level:
        start -= 1
    return sealed[start:]


def _merge(
    objects: ObjectReader,
    put: Put,
    token: Callable[[], str],
    folder: str,
    runs: Sequence[ManifestRef],
    producers: Sequence[ProducerState],
    entry: int,
) -> ManifestRef:
    segments: list[SegmentRef] = []
    aborted: list[AbortedTransaction] = []
    late: list[CommittedTransaction] = []
    for run in runs:
        late += run.committed_late
        segments += segments_of(objects, folder, [run])[0]
        aborted += aborted_of(objects, folder, [run])[0]
    end_offset, level = runs[-1].end_offset, runs[-1].level + 1
    return _write_run(put, token, folder, segments, aborted, late, end_offset, producers, entry, level=level)


def _write_run(
    put: Put,
    token: Callable[[], str],
    folder: str,
    segments: Sequence[SegmentRef],
    aborted: Sequence[AbortedTransaction],
    committed: Sequence[CommittedTransaction],
    end_offset: int,
    producers: Sequence[ProducerState],
    entry: int,
    *,
    level: int,
) -> ManifestRef:
    base_offset = segments[0].base_offset
    run_folder = names.sealed_folder(base_offset, entry, token())
    segments = CommittedRanges(committed).noted(segments)
    data = encode_manifest(segments)
    if aborted:
        index = names.transaction_index(folder, run_folder, base_offset)
        put(index, encode_transaction_index(aborted))
    snapshot = encode_snapshot([snapshot_entry(producer) for producer in producers])
    put(names.snapshot(folder, run_folder, end_offset), snapshot)
    put(names.manifest(folder, run_folder), data)
    return ManifestRef(
        folder=run_folder,
        base_offset=base_offset,
        end_offset=end_offset,
        segment_count=len(segments),
        level=level,
        entry_min=segments[0].entry,
        entry_max=segments[-1].entry,
        timestamp_min_ms=min(segment.timestamp_min_ms for segment in segments),
        timestamp_max_ms=max(segment.timestamp_max_ms for segment in segments),
        size_bytes=sum(segment.size_bytes for segment in segments),
        checksum=checksum(data),
        aborted_count=len(aborted),
        committed_entry_max=max(segment.committed_entry for segment in segments),
        committed_late=tuple(transaction for transaction in committed if transaction.first_offset < base_offset),
    )
