from __future__ import annotations

import pickle
from functools import partial

import pytest
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.log.views.viewing import HistoryView
from sparktxn._engine.state.internal import INTERNAL_TOPICS, first_offset
from sparktxn._foundation.values.structs import AbortedTransaction, TopicState
from sparktxn._rows.scan.plan import (
    ReadTask,
    aborted_between,
    plan_ranges,
    ranges_within,
    rows_at_most,
    segments_between,
)
from sparktxn._rows.scan.reader import read
from sparktxn.errors import ConfigurationError, DamagedObject, RetentionPassed, ViewExpired
from tests.each import each
from tests.unit.scan.log_builder import CountingStore, PartitionLog, compacted, memory_store, read_view

KEY = ("orders", 0)
INTERNAL = INTERNAL_TOPICS[min(INTERNAL_TOPICS)]


def plan(log: PartitionLog, start: int, end: int, **options: object) -> list[ReadTask]:
    last_stable = options.pop("last_stable_offset", None)
    view = read_view(log.view(last_stable_offset=last_stable))  # type: ignore[arg-type]
    return plan_ranges(log.objects, log.objects.uri, view, {KEY: (start, end)}, **options)  # type: ignore[arg-type]


def three_sealed_runs_and_two_segments(objects: CountingStore) -> PartitionLog:
    log = PartitionLog(objects)
    for _ in range(3):
        log.append(10)
        log.append(10)
        log.control()
        log.seal()
    log.append(10)
    log.append(10)
    return log


@each(
    [
        (0, 83, [0, 10, 21, 31, 42, 52, 63, 73]),
        (9, 10, [0]),
        (10, 11, [10]),
        (20, 21, []),  # a control record
        (19, 22, [10, 21]),
        (60, 74, [52, 63, 73]),
        (82, 999, [73]),
        (83, 999, []),
        (5, 5, []),
    ]
)
def test_segments_of_a_range(start: int, end: int, bases: list[int]) -> None:
    log = three_sealed_runs_and_two_segments(CountingStore())
    found = segments_between(log.objects, log.view(), start, end)
    assert [segment.base_offset for segment in found if end > start] == bases


def test_only_the_manifests_of_the_range_are_loaded_and_only_once() -> None:
    objects = CountingStore()
    log = three_sealed_runs_and_two_segments(objects)
    for _ in range(2):
        segments_between(objects, log.view(), 25, 30)
    segments_between(objects, log.view(), 65, 70)
    assert objects.asked == [names.manifest(log.folder, log.sealed[1].folder)]


@pytest.mark.parametrize("damage", ["bit", "missing", "count"])
def test_a_damaged_manifest_is_named(damage: str) -> None:
    log = PartitionLog(memory_store())
    log.append(5)
    run = log.seal()
    name = names.manifest(log.folder, run.folder)
    if damage == "missing":
        log.objects.delete([name])
    elif damage == "bit":
        data = bytearray(log.objects.get(name) or b"")
        data[len(data) // 2] ^= 1
        log.objects.put(name, bytes(data))
    else:
        log.sealed[0] = replace(run, segment_count=2)
    with pytest.raises(DamagedObject) as caught:
        plan(log, 0, 5)
    assert caught.value.object_name == name


@pytest.mark.parametrize("kind", ["manifest", "index"])
def test_what_the_vacuum_took_is_an_expired_view(kind: str) -> None:
    log = PartitionLog(memory_store())
    log.append(5)
    log.abort(9, 0)
    run = log.seal()
    of_kind = {
        "manifest": names.manifest(log.folder, run.folder),
        "index": names.transaction_index(log.folder, run.folder, run.base_offset),
    }
    log.objects.delete([of_kind[kind]])
    with pytest.raises(DamagedObject):
        plan(log, 0, 5)
    log.objects.put(names.horizon(log.entry), b"horizon")
    with pytest.raises(DamagedObject):
        plan(log, 0, 5)
    log.objects.put(names.horizon(log.entry + 1), b"horizon")
    with pytest.raises(ViewExpired, match="open a newer view"):
        plan(log, 0, 5)


@pytest.mark.holes(32)
def test_a_run_of_a_checkpoint_that_vacuum_has_passed_is_an_expired_view() -> None:
    """The view's entry is above the horizon; the objects that its process knew the run by were named below it."""
    log = PartitionLog(memory_store())
    log.append(5)
    run = log.seal()
    view = read_view(replace(log.view(), base_entry=log.entry - 1))
    log.objects.delete([names.manifest(log.folder, run.folder)])
    log.objects.put(names.horizon(log.entry - 1), b"horizon")
    with pytest.raises(DamagedObject):
        plan_ranges(log.objects, "memory://", view, {KEY: (0, 5)})
    log.objects.put(names.horizon(log.entry), b"horizon")
    with pytest.raises(ViewExpired, match="a vacuum up to entry"):
        plan_ranges(log.objects, "memory://", view, {KEY: (0, 5)})


# Kafka's own index (TransactionIndexTest.testCollectAbortedTransactions) and its six queries.
KAFKA_INDEX = [
    AbortedTransaction(0, 0, 10, 11),
    AbortedTransaction(1, 5, 15, 13),
    AbortedTransaction(2, 18, 35, 25),
    AbortedTransaction(3, 32, 50, 40),
]


@pytest.mark.kafka("K76", "K77")
@pytest.mark.parametrize("sealed", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(
    ("start", "end", "found"),
    [(0, 100, [0, 1, 2, 3]), (0, 32, [0, 1, 2]), (0, 35, [0, 1, 2, 3]), (10, 35, [0, 1, 2, 3]), (11, 35, [1, 2, 3]),
     (20, 41, [2, 3])],
)  # fmt: skip
def test_aborted_transactions_of_a_range(start: int, end: int, found: list[int], sealed: int) -> None:
    log = PartitionLog(memory_store())
    position = 0
    for index, aborted in enumerate(KAFKA_INDEX):
        log.append(aborted.last_offset - position)
        log.control()
        position = log.end
        log.aborted.append(aborted)
        if index < sealed:
            log.seal()
    assert aborted_between(log.objects, log.view(), start, end) == tuple(KAFKA_INDEX[index] for index in found)


@pytest.mark.kafka("K78")
def test_an_abort_in_a_later_run_covers_earlier_records() -> None:
    log = PartitionLog(memory_store())
    log.append(10, 5, transaction=1)
    log.seal()
    log.append(10, 6)
    log.seal()
    log.append(10, 6)
    log.abort(5, 0)
    log.seal()
    assert plan(log, 0, 10) == []
    assert [task.segments[0].base_offset for task in plan(log, 0, 15)] == [10]


@pytest.mark.kafka("K77", "K79")
def test_indexes_are_not_read_past_the_one_that_shows_no_older_transaction_open() -> None:
    objects = CountingStore()
    log = PartitionLog(objects)
    runs = []
    for _ in range(40):
        log.append(5, 9, transaction=1)
        log.abort(9, log.end - 5)
        runs.append(log.seal())
    aborted_between(objects, log.view(), 0, 5)
    assert names.transaction_index(log.folder, runs[-1].folder, runs[-1].base_offset) not in objects.asked


@pytest.mark.kafka("K75")
def test_runs_without_aborted_transactions_have_no_index_to_read() -> None:
    objects = CountingStore()
    log = three_sealed_runs_and_two_segments(objects)
    assert aborted_between(objects, log.view(), 0, 80) == ()
    assert objects.asked == []


@pytest.mark.kafka("K73")
@pytest.mark.parametrize(
    ("isolation", "end"), [("read_committed", 12), ("read_uncommitted", 21)], ids=["committed", "uncommitted"]
)
def test_the_end_is_what_the_isolation_level_sees(isolation: str, end: int) -> None:
    log = PartitionLog(memory_store())
    log.append(12)
    log.append(9, 5, transaction=1)
    tasks = plan(log, 0, 10**9, isolation=isolation, last_stable_offset=12)
    assert (tasks[0].start_offset, tasks[-1].end_offset) == (0, end)
    assert plan(log, end, 10**9, isolation=isolation, last_stable_offset=12) == []


def test_uncommitted_readers_get_aborted_rows_too() -> None:
    log = PartitionLog(memory_store())
    log.append(4, 5, transaction=1)
    log.abort(5, 0)
    assert plan(log, 0, 5) == []
    (task,) = plan(log, 0, 5, isolation="read_uncommitted")
    assert task.aborted == ()
    assert task.segments == tuple(log.segments)


@each(
    [
        (None, [(3, 40)]),
        (1, [(3, 11), (11, 21), (21, 31), (31, 40)]),
        (17, [(3, 21), (21, 31), (31, 40)]),
        (20, [(3, 21), (21, 40)]),
        (1000, [(3, 40)]),
    ]
)
def test_tasks_tile_the_range_at_segment_boundaries(rows_per_task: int | None, bounds: list[tuple[int, int]]) -> None:
    log = PartitionLog(memory_store())
    log.append(10)
    log.control()
    for _ in range(4):
        log.append(10)
    tasks = plan(log, 3, 40, rows_per_task=rows_per_task)
    assert [(task.start_offset, task.end_offset) for task in tasks] == bounds
    for task in tasks:
        assert task.segments[0].base_offset < task.end_offset
        assert task.segments[-1].end_offset > task.start_offset


def test_a_task_carries_only_the_aborted_ranges_of_its_segments() -> None:
    log = PartitionLog(memory_store())
    log.append(10, 5)
    log.append(10, 6)
    log.aborted = [AbortedTransaction(5, 3, 6, 7), AbortedTransaction(6, 12, 14, 15), AbortedTransaction(99, 0, 19, 20)]
    tasks = plan(log, 0, 20, rows_per_task=10)
    assert [task.aborted for task in tasks] == [(log.aborted[0],), (log.aborted[1],)]


def test_ranges_keep_their_order_and_empty_ones_give_no_task() -> None:
    objects = memory_store()
    logs = [PartitionLog(objects, partition=partition) for partition in range(3)]
    logs[0].append(4)
    logs[1].control(3)
    logs[2].append(4)
    view = read_view(*(log.view() for log in logs))
    ranges = {("orders", 2): (0, 9), ("orders", 1): (0, 9), ("orders", 0): (1, 4)}
    tasks = plan_ranges(objects, objects.uri, view, ranges)
    assert [(task.partition, task.start_offset, task.end_offset) for task in tasks] == [(2, 0, 4), (0, 1, 4)]


def test_tasks_can_be_pickled() -> None:
    log = PartitionLog(memory_store())
    log.append(4)
    tasks = plan(log, 0, 4, columns=["value", "offset"])
    assert pickle.loads(pickle.dumps(tasks)) == tasks


def test_a_start_below_the_log_start_is_an_error_with_both_offsets() -> None:
    log = PartitionLog(memory_store())
    log.append(10)
    log.log_start = 6
    assert plan(log, 6, 10)
    with pytest.raises(RetentionPassed, match=r"offset 5 of partition 0 of topic 'orders'.*offset 6: .*start at 6"):
        plan(log, 5, 10)


@pytest.mark.parametrize(
    ("key", "message"),
    [(("order", 0), "topic 'order' .* did you mean 'orders'"), (("orders", 9), "partition 9 .* 0 to 7")],
)
def test_a_partition_outside_the_view_is_an_error(key: tuple[str, int], message: str) -> None:
    log = PartitionLog(memory_store())
    with pytest.raises(ConfigurationError, match=message):
        plan_ranges(log.objects, "", read_view(log.view()), {key: (0, 1)})


def test_a_column_that_no_topic_has_is_an_error() -> None:
    log = PartitionLog(memory_store())
    log.append(1)
    with pytest.raises(ConfigurationError):
        plan(log, 0, 1, columns=["valu"])


@pytest.mark.parametrize(
    ("rows_max", "ends"), [(11, [14, 1, 0]), (5, [8, 1, 0]), (110, [104, 10, 0]), (1000, [104, 10, 0])]
)
def test_a_limit_is_shared_out_as_kafkas_connector_does(rows_max: int, ends: list[int]) -> None:
    topic = TopicState("t", 1, 3, {}, None, 1)
    parts = [PartitionView(topic, number, 9, 0, end, end, (), (), ()) for number, end in enumerate((104, 10, 0))]
    view = ReadView(9, 0, {"t": topic}, {("t", part.partition): part for part in parts})
    ranges = {("t", 0): (4, 104), ("t", 1): (0, 10), ("t", 2): (0, 0)}
    found = ranges_within(view, ranges, rows_max)
    assert found == {key: (start, end) for (key, (start, _)), end in zip(ranges.items(), ends, strict=True)}
    with pytest.raises(ConfigurationError):
        ranges_within(view, ranges, 0)


def test_offsets_of_a_tasks_rows_are_known_without_reading_them() -> None:
    log = PartitionLog(memory_store())
    log.append(3)
    log.append(4, 5)
    log.append(2)
    log.aborted = [AbortedTransaction(5, 4, 5, 6)]
    (task,) = plan(log, 1, 8)
    assert [*task.kept_offsets(lambda _: [])] == [(1, 3), (3, 4), (6, 7), (7, 8)]


def test_offsets_of_rows_that_a_compaction_has_left_are_read() -> None:
    log = compacted()
    log.append(2)
    (task,) = plan(log, 1, 11)
    assert [*task.kept_offsets(partial(read, log.objects))] == [(2, 3), (5, 6), (6, 7), (8, 9), (10, 11)]


def test_rows_are_counted_by_offsets_and_of_an_internal_topic_by_entries() -> None:
    log = PartitionLog(memory_store())
    log.append(9)
    history = HistoryView(INTERNAL, 0, 9, 0, first_offset(9), first_offset(9), (), (), ())
    view = read_view(log.view(), history)
    asked = {KEY: (2, 7), (INTERNAL.name, 0): (first_offset(3), first_offset(6))}
    assert rows_at_most(view, asked) == 5 + 3
