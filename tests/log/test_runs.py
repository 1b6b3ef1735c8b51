"""Sealed runs: every reader of a run refuses one whose objects hold other numbers than what names it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.log.keep.replay import Replay
from sparktxn._engine.log.keep.sealedruns import ManifestCache, aborted_of, rewritten_segments_of, segments_of
from sparktxn._engine.log.keep.sealing import seal
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.process.clock import RandomIds
from sparktxn._foundation.values.structs import ManifestRef, PartitionSegments, PartitionState, RewrittenRange
from sparktxn._rows.scan.plan import aborted_between, segments_between
from sparktxn.errors import DamagedObject
from tests.unit.scan.log_builder import PartitionLog, memory_store


def sealed_log() -> PartitionLog:
    """A partition with one sealed run, of one committed and one aborted transaction, and one segment after it."""
    log = PartitionLog(memory_store())
    log.append(5)
    log.append(2, producer_id=9)
    log.abort(9, 5)
    log.seal()
    log.append(3)
    return log


def planned(log: PartitionLog) -> None:
    """Read as a reader of records does."""
    segments_between(log.objects, log.view(), 0, 5)
    aborted_between(log.objects, log.view(), 0, 5)


def merged(log: PartitionLog) -> None:
    """Read as a process does that merges runs."""
    partition = PartitionState(7, 0, log_end_offset=log.end)
    located = PartitionSegments(7, 0, tuple(log.sealed), tuple(log.segments), ())
    seal(log.objects, log.objects.put, RandomIds().token, log.folder, partition, located, (), log.entry, 2)


def verified(log: PartitionLog) -> None:
    """Read as a vacuum does that verifies a checkpoint."""
    replay = Replay(log.objects, None)
    replay.manifest(log.folder, log.sealed[0])
    aborted_of(log.objects, log.folder, log.sealed)


@pytest.mark.parametrize("read", [planned, merged, verified])
@pytest.mark.parametrize("counts", [{"segment_count": 1}, {"aborted_count": 2}], ids=str)
def test_every_reader_compares_the_counts(read: Callable[[PartitionLog], None], counts: dict[str, int]) -> None:
    log = sealed_log()
    read(log)
    log = sealed_log()
    log.sealed[0] = replace(log.sealed[0], **counts)
    with pytest.raises(DamagedObject, match=f"expected {next(iter(counts.values()))}"):
        read(log)


@pytest.mark.parametrize("of", [segments_of, aborted_of])
def test_many_runs_keep_their_order(
    of: Callable[[ObjectStore, str, list[ManifestRef]], list[tuple[object, ...]]],
) -> None:
    log = PartitionLog(memory_store())
    for producer_id in (8, 9, 10):
        log.append(2, producer_id=producer_id)
        log.abort(producer_id, log.end - 2)
        log.seal()
    singly = [of(log.objects, log.folder, [run])[0] for run in log.sealed]
    assert of(log.objects, log.folder, log.sealed) == singly
    assert of(log.objects, log.folder, []) == []


@pytest.mark.parametrize("by_segment", [False, True])
def test_whole_and_cut_ranges_are_fetched_at_once_and_each_run_once(
    by_segment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = PartitionLog(memory_store())
    for count in (3, 1):
        log.segments = [replace(log.append(2), committed_entry=log.entry) for _ in range(count)]
        log.seal()
    cut, whole = log.sealed
    rewritten = [RewrittenRange(0, 2, 9, cut), RewrittenRange(4, 6, 9, cut), RewrittenRange(6, 8, 9, whole)]
    fetched: list[list[str]] = []

    def get_many(object_names: Sequence[str]) -> list[bytes | None]:
        fetched.append(list(object_names))
        return [log.objects.get(name) for name in object_names]

    monkeypatch.setattr(log.objects, "get_many", get_many)
    found = rewritten_segments_of(log.objects, log.folder, rewritten, by_segment=by_segment)
    assert [(segment.base_offset, segment.end_offset) for segment in found] == [(0, 2), (4, 6), (6, 8)]
    assert fetched == [[names.manifest(log.folder, run.folder) for run in (cut, whole)]]


def test_the_cache_of_manifests_is_bounded_by_bytes() -> None:
    segments = tuple(sealed_log().segments) * 10
    cache = ManifestCache(bytes_max=25 * 700)
    for number in range(3):
        cache.add(("store", f"{number}", "", True), segments)
    assert [cache.get(("store", f"{number}", "", True)) is not None for number in range(3)] == [False, True, True]
    cache.add(("store", "large", "", True), segments * 3)
    assert cache.get(("store", "large", "", True)) is None
    assert cache.get(("store", "2", "", True)) == segments
