"""The traces of commit order: chains, hung and aborted transactions, transactions that end after they were sealed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.log.keep.sealing import seal
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.log.views.viewing import HistoryView
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.state.internal import INTERNAL_TOPICS, first_offset
from sparktxn._foundation.values.structs import (
    NO_TRANSACTION,
    CommittedTransaction,
    ManifestRef,
    PartitionSegments,
    PartitionState,
    SegmentRef,
    TopicState,
)
from sparktxn._rows.scan import commitorder, microbatchcut
from sparktxn._rows.scan.commitorder import checked_commits, committed_between
from sparktxn._rows.scan.microbatchcut import CommitCut
from sparktxn._rows.scan.plan import ReadTask
from sparktxn._rows.scan.reader import read
from sparktxn.errors import ConfigurationError, DamagedObject
from sparktxn.testing.clocks import SeededIds
from tests.each import each
from tests.unit.scan.log_builder import CountingStore, PartitionLog, memory_store, read_view

OBJECTS = memory_store()
TOPIC = TopicState("t", 1, 8, {}, None, 1)
INTERNAL = INTERNAL_TOPICS[min(INTERNAL_TOPICS)]
NAMES = "00000000000000000000-0000000000000000000"


def plan_commits(
    objects: ObjectStore,
    view: ReadView,
    after_entry: int,
    to_entry: int | None = None,
    *,
    bounds: object = None,
    columns: Sequence[str] | None = None,
    rows_per_task: int | None = None,
) -> list[ReadTask]:
    commits = checked_commits(view, after_entry, to_entry, bounds)
    return commitorder.plan_commits(objects, view, commits, columns=columns, rows_per_task=rows_per_task)


def commit_cut(
    objects: ObjectStore,
    view: ReadView,
    after_entry: int,
    bounds: object = None,
    *,
    rows_max: int | None = None,
    bytes_max: int | None = None,
) -> CommitCut:
    commits = checked_commits(view, after_entry, None, bounds)
    return microbatchcut.commit_cut(objects, view, commits, rows_max=rows_max, bytes_max=bytes_max)


def segment(base: int, rows: int, entry: int, producer: int = 0, transaction: int = 1) -> SegmentRef:
    """A segment of a producer's transaction, or of none if there is no producer."""
    name = f"{NAMES}{base % 10}.parquet"
    plain = producer == 0
    return SegmentRef(
        *(name, base, rows, 100 * rows, "00000000", entry, producer, 0, 0),
        *(NO_TRANSACTION if plain else transaction, 0, 0, entry if plain else 0),
    )


def partition(
    *segments: SegmentRef,
    committed: tuple[tuple[int, int, int, int], ...] = (),
    number: int = 0,
    log_start: int = 0,
    stable: int | None = None,
) -> PartitionView:
    end = max((one.end_offset for one in segments), default=0) + len(committed)
    found = tuple(CommittedTransaction(*one) for one in committed)
    return PartitionView(
        *(TOPIC, number, 99, log_start, end if stable is None else stable, end, (), segments, (), None, found)
    )


def view_of(*partitions: PartitionView) -> ReadView:
    return ReadView(99, 0, {"t": TOPIC}, {("t", one.partition): one for one in partitions})


def offsets(view: PartitionView, after_entry: int, to_entry: int) -> list[tuple[int, int]]:
    """(entry, base offset) of what is found."""
    return [(entry, one.base_offset) for entry, one in committed_between(OBJECTS, view, after_entry, to_entry)]


def test_a_chain_of_overlapping_transactions_is_read_as_each_of_them_commits() -> None:
    # Each begins before the one before it ends: offset order would wait for the end of the chain.
    chain = partition(
        *(
            segment(3 * number, 2, entry=2 * number + 1, producer=number % 2 + 1, transaction=number)
            for number in range(4)
        ),
        committed=((1, 0, 5, 4), (2, 3, 8, 6), (1, 6, 11, 8)),
    )
    assert offsets(chain, 0, 99) == [(4, 0), (6, 3), (8, 6)]
    assert offsets(chain, 4, 6) == [(6, 3)]
    assert offsets(chain, 6, 7) == []


def test_a_hung_transaction_holds_back_no_other_and_an_aborted_one_is_never_read() -> None:
    # Producer 1 is open, producer 2 was aborted, producer 3 has committed, and producer 0 appends outside transactions.
    view = partition(
        segment(0, 1, 1, producer=1),
        segment(1, 1, 2, producer=2),
        segment(2, 1, 3, producer=3),
        segment(3, 1, 4),
        committed=((3, 2, 5, 7),),
    )
    assert offsets(view, 0, 99) == [(7, 2), (4, 3)]
    assert offsets(view, 4, 99) == [(7, 2)]


def sealed_partition(objects: CountingStore) -> tuple[PartitionView, list[ManifestRef]]:
    """Three runs. Producer 1's transaction has segments in the first two of them and was committed in the third."""
    ids = SeededIds(1)
    folder = "topics/t-1/kafka_partition=0/"
    steps = [
        ([segment(0, 1, 1, producer=1), segment(1, 1, 2)], [], 2),
        ([segment(2, 1, 3, producer=1), segment(3, 1, 4, producer=2)], [(2, 3, 4, 5)], 5),
        ([segment(5, 1, 6)], [(1, 0, 6, 7)], 7),
    ]
    located = PartitionSegments(1, 0)
    for segments, committed, end in steps:
        added = tuple(CommittedTransaction(*one) for one in committed)
        located = PartitionSegments(1, 0, located.sealed, tuple(segments), (), (*located.committed, *added))
        state = PartitionState(1, 0, 0, end)
        located = seal(objects, objects.put, ids.token, folder, state, located, (), 9, runs_to_merge=9)
    view = PartitionView(TOPIC, 0, 99, 0, 7, 7, located.sealed, (), (), None, located.committed)
    return view, list(located.sealed)


def test_a_transaction_that_was_committed_after_its_segments_were_sealed_is_found() -> None:
    objects = CountingStore()
    view, runs = sealed_partition(objects)
    assert [run.committed_entry_max for run in runs] == [2, 5, 6]
    assert [run.committed_late for run in runs] == [(), (), (CommittedTransaction(1, 0, 6, 7),)]
    found = committed_between(objects, view, 0, 99)
    assert [(entry, one.base_offset) for entry, one in found] == [(7, 0), (2, 1), (7, 2), (5, 3), (6, 5)]


@each([(0, 1, [0]), (2, 4, [1]), (5, 6, [2]), (6, 7, [0, 1, 2]), (7, 99, []), (2, 99, [0, 1, 2])])
def test_only_runs_are_read_that_may_hold_what_was_committed_between(
    after_entry: int, to_entry: int, read_runs: list[int]
) -> None:
    objects = CountingStore()
    view, runs = sealed_partition(objects)
    committed_between(objects, view, after_entry, to_entry)
    asked = [index for index, run in enumerate(runs) if any(run.folder in name for name in objects.asked)]
    assert asked == read_runs


def test_merging_runs_keeps_the_entries_and_what_began_before_the_merged_run() -> None:
    objects = CountingStore()
    ids = SeededIds(2)
    folder = "topics/t-1/kafka_partition=0/"
    located = PartitionSegments(1, 0)
    first = PartitionSegments(1, 0, (), (segment(0, 1, 1, producer=1),))
    located = seal(objects, objects.put, ids.token, folder, PartitionState(1, 0, 0, 1), first, (), 9, runs_to_merge=9)
    located = PartitionSegments(1, 0, located.sealed, (segment(1, 1, 2, producer=2),))
    located = seal(objects, objects.put, ids.token, folder, PartitionState(1, 0, 0, 2), located, (), 9, runs_to_merge=9)
    # Both end here: the merged run of the last two holds all of producer 2's transaction, and not all of producer 1's.
    ended = (CommittedTransaction(2, 1, 3, 4), CommittedTransaction(1, 0, 4, 5))
    located = PartitionSegments(1, 0, located.sealed[1:], (segment(2, 1, 3),), (), ended)
    located = seal(objects, objects.put, ids.token, folder, PartitionState(1, 0, 0, 5), located, (), 9, runs_to_merge=2)
    (merged,) = located.sealed
    assert merged.committed_late == (CommittedTransaction(1, 0, 4, 5),)
    assert merged.committed_entry_max == 4
    view = PartitionView(TOPIC, 0, 99, 0, 5, 5, (merged,), (), (), None, located.committed)
    assert [(entry, one.base_offset) for entry, one in committed_between(objects, view, 0, 99)] == [(4, 1), (3, 2)]


def test_a_missing_manifest_is_damage() -> None:
    objects = CountingStore()
    view, runs = sealed_partition(objects)
    objects.delete([names.manifest("topics/t-1/kafka_partition=0/", runs[1].folder)])
    with pytest.raises(DamagedObject, match=runs[1].folder):
        committed_between(objects, view, 0, 99)
    assert committed_between(objects, view, 7, 99) == []


def two_partitions() -> ReadView:
    """Entry 4 commits rows of both partitions, 5 one row of the first, 9 three of the second."""
    return view_of(
        partition(segment(0, 2, 3, producer=1), segment(3, 1, 5), committed=((1, 0, 2, 4),)),
        partition(
            segment(0, 1, 3, producer=1),
            segment(2, 3, 8, producer=2),
            committed=((1, 0, 1, 4), (2, 2, 5, 9)),
            number=1,
        ),
    )


@each(
    [
        (0, None, (99, 7, 700)),
        (0, 1, (4, 3, 300)),
        (0, 3, (4, 3, 300)),
        (0, 4, (8, 4, 400)),
        (4, 1, (8, 1, 100)),
        (8, 1, (99, 3, 300)),
        (9, 1, (99, 0, 0)),
    ]
)
def test_a_limit_takes_the_transactions_of_whole_entries(
    after_entry: int, rows_max: int | None, expected: tuple[int, int, int]
) -> None:
    assert commit_cut(OBJECTS, two_partitions(), after_entry, rows_max=rows_max)[:3] == expected


def test_a_limit_of_bytes_does_too() -> None:
    assert commit_cut(OBJECTS, two_partitions(), 0, bytes_max=399)[:3] == (4, 3, 300)
    assert commit_cut(OBJECTS, two_partitions(), 0, rows_max=3, bytes_max=10_000)[:3] == (4, 3, 300)


def test_what_is_unread_begins_with_the_first_record_that_a_later_read_may_get() -> None:
    # Producer 1 is open from offset 1 on, and entry 6 commits what lies after it.
    first = segment(0, 1, 2)
    view = view_of(
        partition(first, segment(1, 1, 3, producer=1), segment(2, 1, 5), segment(3, 1, 6), stable=1),
        partition(segment(0, 1, 4), segment(1, 1, 6), number=1),
    )
    assert [commit_cut(OBJECTS, view, 0, rows_max=rows).unread for rows in (1, 2, 3, 5)] == [
        {("t", 0): 1, ("t", 1): 0},
        {("t", 0): 1, ("t", 1): 1},
        {("t", 0): 1, ("t", 1): 1},
        {("t", 0): 1, ("t", 1): 2},
    ]
    assert commit_cut(OBJECTS, view, 0, {("t", 0): (3, None)}).unread == {("t", 0): 3}


def test_bounds_limit_what_is_counted_and_read() -> None:
    bounds = {("t", 0): (1, 2), ("t", 1): (3, None)}
    assert commit_cut(OBJECTS, two_partitions(), 0, bounds)[:3] == (99, 3, 300)
    tasks = plan_commits(OBJECTS, two_partitions(), 0, bounds=bounds)
    assert [(task.partition, task.start_offset, task.end_offset) for task in tasks] == [(0, 1, 2), (1, 3, 5)]
    assert plan_commits(OBJECTS, two_partitions(), 0, bounds={}) == []


def test_records_below_the_log_start_are_left_out() -> None:
    view = view_of(partition(segment(0, 4, 2), segment(4, 1, 3), log_start=3))
    assert commit_cut(OBJECTS, view, 0) == CommitCut(99, 2, 200, {("t", 0): 5}, oldest_ms=0)
    assert [(task.start_offset, task.end_offset) for task in plan_commits(OBJECTS, view, 0)] == [(3, 5)]


@pytest.mark.parametrize(
    ("after_entry", "start_entry", "log_start_entry", "first"), [(4, 0, 0, 5), (4, 7, 0, 7), (4, 0, 8, 8)]
)
def test_an_internal_topic_is_read_from_the_latest_of_three_entries(
    after_entry: int, start_entry: int, log_start_entry: int, first: int
) -> None:
    end = first_offset(11)
    one = HistoryView(INTERNAL, 0, 10, first_offset(log_start_entry), end, end, (), (), (), None, ())
    view = ReadView(10, 0, {INTERNAL.name: INTERNAL}, {(INTERNAL.name, 0): one})
    bounds = {(INTERNAL.name, 0): (first_offset(start_entry), None)}
    cut = commit_cut(OBJECTS, view, after_entry, bounds=bounds)
    assert (cut.entry, cut.rows) == (10, 11 - first)
    (task,) = plan_commits(OBJECTS, view, after_entry, bounds=bounds)
    assert (task.start_offset, task.end_offset) == (first_offset(first), end)


def test_tasks_take_whole_segments() -> None:
    view = view_of(partition(*(segment(2 * number, 2, 2) for number in range(5))))
    tasks = plan_commits(OBJECTS, view, 0, rows_per_task=4)
    assert [(task.start_offset, task.end_offset, len(task.segments)) for task in tasks] == [
        (0, 4, 2),
        (4, 8, 2),
        (8, 10, 1),
    ]
    assert len(plan_commits(OBJECTS, view, 0)) == 1


def test_rows_come_with_their_offsets_and_without_those_between() -> None:
    log = PartitionLog(memory_store())
    log.append(2, producer_id=1, transaction=1)
    log.append(2, producer_id=2, transaction=1)
    log.append(2, producer_id=1, transaction=1)
    log.control()
    view = read_view(replace(log.view(), committed=(CommittedTransaction(1, 0, 6, log.entry),)))
    (task,) = plan_commits(log.objects, view, 0, columns=["offset", "value"])
    rows = [row for batch in read(log.objects, task) for row in batch.to_pylist()]
    assert rows == [{"offset": offset, "value": b"v%d" % offset} for offset in (0, 1, 4, 5)]


def test_what_is_wrong_is_named() -> None:
    view = two_partitions()
    with pytest.raises(ConfigurationError, match="to_entry is 100: expected at most the view's entry, 99"):
        plan_commits(OBJECTS, view, 0, 100)
    with pytest.raises(ConfigurationError, match="partition 7 of topic 't' is not in the read view"):
        plan_commits(OBJECTS, view, 0, bounds={("t", 7): (0, None)})
    with pytest.raises(TypeError, match=r"bounds\[\('t', 0\)\] is 5 \(int\): expected \(start offset, end offset\)"):
        commit_cut(OBJECTS, view, 0, {("t", 0): 5})
    with pytest.raises(ConfigurationError, match="'nowhere'"):
        plan_commits(OBJECTS, view, 0, columns=["nowhere"])
