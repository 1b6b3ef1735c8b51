"""The rewrite as a job: what it selects, what it reports, and what other jobs make of it."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from sparktxn import Producer, read_arrow
from sparktxn._engine.format import names
from sparktxn._engine.format.manifest import decode_manifest
from sparktxn._engine.log.keep.sealedruns import not_rewritten
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn._foundation.values.structs import ManifestRef, RewrittenRange, SegmentRef
from sparktxn._rows.scan.offsets import offset_for_time
from sparktxn._rows.scan.plan import Order, segments_between
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from sparktxn.errors import CommandRefused, ConfigurationError, DamagedObject
from sparktxn.maintenance import (
    apply_retention,
    apply_rewrite,
    compact,
    plan_rewrite,
    publish_tables,
    rewrite,
    run_rewrite_task,
    verify,
)
from sparktxn.maintenance.rewriting.rewriteplan import plan_tasks
from sparktxn.store import read_task
from sparktxn.transfer import export_topic
from tests.world import World

TWO = {"rewrite.min.segments": 2}


@pytest.fixture
def world() -> Iterator[World]:
    made = World({"t": 2, "other": 1})
    yield made
    made.close()


def write(world: World, count: int, *, topic: str = "t", partition: int = 0, **kwargs: Any) -> None:
    """Segments of a record each."""
    for number in range(count):
        world.produce(f"{topic} {partition} {number}", topic=topic, partition=partition, **kwargs)


def segments(world: World, topic: str = "t", partition: int = 0) -> list[SegmentRef]:
    view = world.store.view([topic]).partitions[topic, partition]
    return segments_between(world.store.log.objects, view, 0, view.log_end_offset)


def files(world: World, topic: str = "t", partition: int = 0) -> list[str]:
    return list(dict.fromkeys(segment.name for segment in segments(world, topic, partition)))


def objects(world: World) -> set[str]:
    return {info.name for info in world.store.log.objects.list(names.TOPICS)}


def test_a_dry_run_says_what_would_be_merged_and_writes_nothing(world: World) -> None:
    write(world, 6)
    before, entry = objects(world), world.entry()
    report = rewrite(world.store, dry_run=True)
    assert (report.ranges, report.segment_files, report.new_files) == (1, 6, 0)
    assert (objects(world), world.entry()) == (before, entry)
    done = rewrite(world.store)
    assert (done.ranges, done.segment_files, done.size_bytes) == (1, 6, report.size_bytes)
    assert (done.new_files, done.lost, done.unresolved) == (1, (), 0)
    assert len(files(world)) == 1
    assert done.new_size_bytes == segments(world)[0].size_bytes


def test_few_segments_are_left_as_they_are(world: World) -> None:
    write(world, 4)
    assert rewrite(world.store).ranges == 0
    write(world, 1)
    assert rewrite(world.store).ranges == 1
    assert rewrite(world.store).ranges == 0, "what is merged is not merged again"
    write(world, 4)
    assert rewrite(world.store).ranges == 1, "a small file of a rewrite counts as one"
    assert len(files(world)) == 1


def test_topics_are_selected(world: World) -> None:
    for topic, partition in (("t", 0), ("t", 1), ("other", 0)):
        write(world, 5, topic=topic, partition=partition)
    assert rewrite(world.store, {"rewrite.topics": "t"}).ranges == 2
    assert (len(files(world, "t", 1)), len(files(world, "t", 0)), len(files(world, "other"))) == (1, 1, 5)
    assert rewrite(world.store, {"rewrite.topics": " other , t"}).ranges == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"rewrite.partitions": "0"},
        {"rewrite.target.bytes": 2**26},
        {"rewrite.min.segments": 1},
        {"rewrite.topic": "t"},
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(world: World, wrong: dict[str, Any]) -> None:
    write(world, 6)
    before = objects(world)
    with pytest.raises(ConfigurationError, match=r"rewrite\."):
        rewrite(world.store, wrong)
    assert objects(world) == before


def test_a_topic_that_does_not_exist_is_named(world: World) -> None:
    with pytest.raises(CommandRefused, match="'orders'"):
        rewrite(world.store, {"rewrite.topics": "orders"})


def test_young_segments_wait(world: World) -> None:
    write(world, 5, timestamp=1_000)
    write(world, 5)
    assert rewrite(world.store, {"rewrite.min.age.ms": 3_600_000}).segment_files == 5
    assert len(files(world)) == 6


def test_files_end_at_the_target_and_are_not_written_again(world: World) -> None:
    rows = pa.table({"value": [f"{number * 7919 % 10_007:05}" * 40 for number in range(400)]})
    for _ in range(12):
        with world.producer() as producer:
            producer.produce_arrow("t", rows.append_column("partition", pa.nulls(400, pa.int32()).fill_null(0)))
    before = world.rows("t")
    smallest = min(segment.size_bytes for segment in segments(world))
    given = {**TWO, "rewrite.target.bytes": 3 * smallest}
    report = rewrite(world.store, given)
    assert 1 < report.new_files < 12
    assert world.rows("t") == before
    assert rewrite(world.store, {**given, "rewrite.min.segments": report.new_files + 1}).ranges == 0


def test_arrow_becomes_parquet_whatever_its_size(world: World) -> None:
    settings = {"segment.format": "arrow", "append.inline.bytes": "0"}
    world.store.create_topic("arrow", 1, settings=settings)
    write(world, 1, topic="arrow")
    before = world.rows("arrow")
    size_bytes = segments(world, "arrow")[0].size_bytes
    assert rewrite(world.store, {"rewrite.target.bytes": max(1_024, size_bytes)}).ranges == 1
    assert files(world, "arrow")[0].endswith(".offsets.parquet")
    assert world.rows("arrow") == before


def test_append_time_stays_that_of_each_entry(world: World) -> None:
    world.store.create_topic("appended", 1, settings={"message.timestamp.type": "LogAppendTime"})
    write(world, 6, topic="appended", timestamp=1_000)
    before = world.rows("appended")
    assert rewrite(world.store).ranges == 1
    assert world.rows("appended") == before
    # The times that the producers gave stay in the file, too.
    (name,) = [name for name in objects(world) if name.endswith(files(world, "appended")[0])]
    data = world.store.log.objects.get(name)
    assert data is not None
    table = pa.parquet.read_table(pa.BufferReader(data))
    assert {time.timestamp() for time in table["timestamp"].to_pylist()} == {1.0}


def opened(world: World, records: int = 1) -> Producer:
    """A transaction that stays open, with segments of a record each."""
    producer = world.transactional()
    producer.begin_transaction()
    for number in range(records):
        producer.produce("t", f"in a transaction {number}", partition=0)
        producer.flush()
    return producer


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_an_open_transaction_holds_back_its_own_records_alone(world: World, ends: str) -> None:
    """A task is on one side of it: what is committed after its first record is merged too."""
    write(world, 5)
    producer = opened(world)
    write(world, 5)
    (below, above) = plan_rewrite(world.store, {"rewrite.topics": "t"})
    assert (below.base_offset, below.end_offset, above.base_offset, above.end_offset) == (0, 5, 6, 11)
    assert rewrite(world.store).segment_files == 10
    assert len(files(world)) == 3
    getattr(producer, f"{ends}_transaction")()
    write(world, 2)
    before = world.rows("t")
    report = rewrite(world.store)
    assert (report.segment_files, report.aborted_records) == (5, ends == "abort")
    assert (len(files(world)), world.rows("t")) == (1, before)


def test_a_prepared_transaction_holds_back_its_own_records_alone(world: World) -> None:
    producer = opened(world)
    producer.prepare_transaction()
    write(world, 5)
    assert rewrite(world.store).segment_files == 5
    producer.commit_transaction()
    assert len(files(world)) == 2


def test_later_segments_of_an_open_transaction_end_a_task_too(world: World) -> None:
    """The state cannot refuse a range that has them: which segments are sealed differs between processes."""
    producer = opened(world)
    write(world, 5)
    producer.produce("t", "later", partition=0)
    producer.flush()
    world.store.log.checkpoint()
    write(world, 5)
    ranges = [(task.base_offset, task.end_offset) for task in plan_rewrite(world.store, {"rewrite.topics": "t"})]
    assert ranges == [(1, 6), (7, 12)]
    producer.abort_transaction()
    assert rewrite(world.store).aborted_records == 2, "those at both ends are left out with what is between them"


def test_what_its_producer_aborts_later_takes_no_record_of_a_rewrite(world: World) -> None:
    """An aborted range goes by the producer: the one before it has committed records in the range."""
    producer = opened(world, 3)
    producer.commit_transaction()
    other = world.transactional("other")
    other.begin_transaction()
    other.produce("t", "other", partition=0)
    other.flush()
    write(world, 5)
    producer.begin_transaction()
    producer.produce("t", "aborted", partition=0)
    producer.flush()
    assert rewrite(world.store, {"rewrite.min.segments": 3}).segment_files == 8
    kept = [b"in a transaction %d" % number for number in range(3)]
    later = [b"t 0 %d" % number for number in range(5)]
    assert (values(world, "commit"), values(world, "offset")) == (kept + later, kept)
    producer.abort_transaction()
    assert (values(world, "commit"), values(world, "offset")) == (kept + later, kept)
    other.commit_transaction()
    assert values(world, "commit") == values(world, "offset") == [*kept, b"other", *later]


def test_a_file_above_an_open_transaction_is_whole_in_commit_order_and_unread_in_offset_order(world: World) -> None:
    """No file is cut by the last stable offset: the state refuses a range with the first record of what is open."""
    write(world, 5)
    producer = opened(world)
    write(world, 5)
    rewrite(world.store)
    below, above = (segment.name for segment in segments(world) if segment.base_offset in (0, 6))
    listed = {order: world.store.files("t", order=order) for order in ORDERS}
    assert {order: [file.path.rsplit("/", 1)[1] for file in files] for order, files in listed.items()} == {
        "commit": [below, above],
        "offset": [below],
    }
    assert all(file.is_whole for files in listed.values() for file in files)
    view = world.store.view(["t"])
    ranges = world.store.ranges(view, isolation="read_uncommitted")
    uncommitted = world.store.plan(view, ranges, isolation="read_uncommitted", by_segment=False)
    assert len({segment.name for task in uncommitted for segment in task.segments}) == 3
    assert values(world, "offset") == values(world, "commit")[:5]
    producer.abort_transaction()
    assert values(world, "offset") == values(world, "commit")
    assert [file.is_whole for file in world.store.files("t", order="offset")] == [True, True]


@pytest.mark.parametrize("setting", [{"retention.ms": "1"}, {"retention.bytes": "1"}])
def test_retention_leaves_rewritten_records_above_an_open_transaction(world: World, setting: dict[str, str]) -> None:
    write(world, 5, timestamp=1)
    producer = opened(world)
    write(world, 5, timestamp=1)
    rewrite(world.store)
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
        for name, value in setting.items():
            resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(60)
    (short,) = apply_retention(world.store).shortened
    assert short.new_log_start_offset == 5
    producer.commit_transaction()
    assert len(values(world, "offset")) == 6


def test_a_compaction_ends_below_an_open_transaction_and_leaves_what_is_merged_above(world: World) -> None:
    world.store.create_topic("keyed", 1, settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    for _ in range(5):
        world.produce("below", key="k", topic="keyed", partition=0)
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("keyed", "open", "k", partition=0)
    producer.flush()
    for _ in range(5):
        world.produce("above", key="k", topic="keyed", partition=0)
    assert rewrite(world.store).ranges == 2
    assert compact(world.store).removed_records == 4
    producer.commit_transaction()
    kept = [(row["offset"], row["value"]) for row in read_arrow(world.store, "keyed").read_all().to_pylist()]
    assert kept == [(4, b"below"), (5, b"open"), *((offset, b"above") for offset in range(6, 11))]
    assert compact(world.store).removed_records == 6
    assert verify(world.store).problems == ()


ORDERS: tuple[Order, ...] = ("commit", "offset")


def values(world: World, order: Order) -> list[bytes]:
    return [row["value"] for row in read_arrow(world.store, "t", order=order).read_all().to_pylist()]


def test_a_partition_of_aborted_records_alone_is_left(world: World) -> None:
    producer = world.transactional()
    for _ in range(6):
        producer.begin_transaction()
        producer.produce("t", "aborted", partition=0)
        producer.flush()
        producer.abort_transaction()
    assert rewrite(world.store, TWO).ranges == 0
    assert world.values("t") == []


def test_tasks_are_picklable_and_their_results_may_come_in_any_order(world: World) -> None:
    for partition in (0, 1):
        write(world, 6, partition=partition)
    before = world.rows("t")
    tasks = pickle.loads(pickle.dumps(plan_rewrite(world.store)))
    done = [pickle.loads(pickle.dumps(run_rewrite_task(task, world.options))) for task in reversed(tasks)]
    report = apply_rewrite(world.store, done)
    assert (report.ranges, report.segment_files, report.new_files) == (2, 12, 2)
    assert world.rows("t") == before
    again = apply_rewrite(world.store, done)
    assert (again.ranges, len(again.lost)) == (0, 2)
    assert all("plan again" in lost.reason for lost in again.lost)
    assert world.rows("t") == before


def test_what_other_processes_have_made_takes_effect_before_they_get_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their ranges follow each other in one partition: an entry could name all of them."""
    monkeypatch.setattr("sparktxn.maintenance.taskrunning.TASKS_PER_RUN", 2)
    write(world, 45)
    before = world.rows("t")
    given = {**TWO, "rewrite.target.bytes": 1_024}
    tasks = plan_rewrite(world.store, given)
    assert len(tasks) > 4, "two groups of tasks must be done before the one that fails"
    left: list[int] = []

    def run(work: Any, some: Any) -> list[Any]:
        left.append(len(files(world)))
        if len(left) == 3:
            raise RuntimeError("an executor was lost")
        return [work(task) for task in some]

    with pytest.raises(RuntimeError, match="an executor was lost"):
        rewrite(world.store, given, run=run)
    replaced = [sum(task.files for task in tasks[:done]) for done in (0, 2, 4)]
    made = [0, 2, 4]
    assert left == [45 - gone + new for gone, new in zip(replaced, made, strict=True)]
    assert world.rows("t") == before


def test_tasks_of_many_segments_are_handed_out_few_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is handed out together bounds the driver's memory."""
    monkeypatch.setattr("sparktxn.maintenance.taskrunning.SEGMENTS_PER_RUN", 9)
    monkeypatch.setattr("sparktxn.maintenance.rewriting.rewriteplan._SEGMENTS_PER_TASK", 4)
    write(world, 18)
    before, handed_out = world.rows("t"), list[list[int]]()

    def run(work: Any, some: Any) -> list[Any]:
        handed_out.append([len(task.read.segments) for task in some])
        return [work(task) for task in some]

    report = rewrite(world.store, TWO, run=run)
    assert handed_out == [[4, 4], [4, 4], [2]]
    assert (report.ranges, report.segment_files) == (3, 18), "an entry for each time"
    assert world.rows("t") == before


@pytest.fixture
def sealed() -> Iterator[World]:
    """Sealed runs of two segments, of which some have aborted records and some are rewritten."""
    made = World({"t": 1}, checkpoint_entries=4, checkpoint_seal_segments=2)
    for part in range(3):
        write(made, 7)
        aborted = made.transactional()
        aborted.begin_transaction()
        aborted.produce("t", b"aborted", partition=0)
        aborted.flush()
        write(made, 1)
        aborted.abort_transaction()
        if part == 1:
            rewrite(made.store, {**TWO, "rewrite.target.bytes": 1_024})
    made.store.log.refresh()
    made.store.log.checkpoint()
    yield made
    made.close()


def test_a_plan_does_not_depend_on_how_much_of_it_is_in_memory(sealed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = sealed.store.log
    view = log.view(["t"])
    runs, stable = view.partitions["t", 0].sealed, view.partitions["t", 0].last_stable_offset
    assert len(runs) > 2
    for target_bytes in (1_024, 4_096, 2**20):
        settings = RewriteSettings(target_bytes=target_bytes, min_segments=2)
        expected = list(plan_tasks(log.objects, view, settings))
        assert expected
        for at_once in (1, 5, 12):
            monkeypatch.setattr("sparktxn.maintenance.rewriting.rewriteplan._SEGMENTS_AT_ONCE", at_once)
            assert list(plan_tasks(log.objects, view, settings)) == expected
            for offset in range(1, stable, 5):
                some = [*plan_tasks(log.objects, view, settings, {("t", 0): offset})]
                assert all(task.end_offset > offset for task in some)
        monkeypatch.undo()


class _Segments(list[SegmentRef]):
    """A list that says whether it is still held."""


def test_a_plan_reads_manifests_when_it_comes_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"t": 1}, checkpoint_entries=4, checkpoint_seal_segments=2)
    for _ in range(7):
        write(world, 6)
        world.store.log.refresh()
        world.store.log.checkpoint()
    monkeypatch.setattr("sparktxn.maintenance.rewriting.rewriteplan._SEGMENTS_AT_ONCE", 2)
    monkeypatch.setattr("sparktxn.maintenance.rewriting.rewriteplan._SEGMENTS_PER_TASK", 3)
    asked: list[tuple[int, int]] = []
    held: list[weakref.ref[_Segments]] = []

    def noted(objects: Any, view: Any, start: int, end: int, **keywords: Any) -> _Segments:
        assert not any(each() for each in held), "segments that were planned are in memory with the next ones"
        asked.append((start, end))
        found = _Segments(segments_between(objects, view, start, end, **keywords))
        held.append(weakref.ref(found))
        return found

    monkeypatch.setattr("sparktxn.maintenance.rewriting.rewriteplan.segments_between", noted)
    log = world.store.log
    view = log.view(["t"])
    tasks = plan_tasks(log.objects, view, RewriteSettings(target_bytes=1_024, min_segments=2))
    next(tasks)
    begun = len(asked)
    assert [*tasks]
    assert begun < len(asked)
    starts = [view.partitions["t", 0].log_start_offset, *(end for _, end in asked)]
    assert [start for start, _ in asked] == starts[:-1], "what is asked for together is the whole partition"
    assert starts[-1] == view.partitions["t", 0].last_stable_offset
    world.close()


def test_other_processes_may_do_the_tasks(world: World) -> None:
    for partition in (0, 1):
        write(world, 6, partition=partition)
    before = world.rows("t")

    def run(work: Any, tasks: Any) -> list[Any]:
        work, tasks = pickle.loads(pickle.dumps((work, tasks)))
        return [work(task) for task in reversed(tasks)]

    report = rewrite(world.store, run=run)
    assert (report.ranges, report.new_files, report.lost) == (2, 2, ())
    assert world.rows("t") == before
    write(world, 6)
    with pytest.raises(TypeError, match="what run returns"):
        rewrite(world.store, run=lambda work, tasks: ["nothing"])  # type: ignore[list-item]
    assert world.rows("t")[: len(before) // 2] == before[: len(before) // 2]


def test_one_entry_takes_the_tasks_that_follow_each_other(world: World) -> None:
    write(world, 40)
    before, entry = world.rows("t"), world.entry()
    tasks = plan_rewrite(world.store, {**TWO, "rewrite.target.bytes": 1_024})
    assert len(tasks) > 2
    done = [run_rewrite_task(task, world.options) for task in tasks]
    assert apply_rewrite(world.store, done).ranges == 1
    assert world.entry() == entry + 1
    assert world.rows("t") == before


def test_a_rewrite_that_is_out_of_time_says_what_is_left(world: World) -> None:
    write(world, 6)
    report = apply_rewrite(world.store, [run_rewrite_task(task) for task in plan_rewrite(world.store)], timeout_s=0)
    assert (report.ranges, report.unresolved) == (0, 1)
    assert rewrite(world.store).ranges == 1


def test_offsets_by_time_are_found_in_every_part(world: World) -> None:
    for number in range(8):
        world.produce(str(number), partition=0, timestamp=1_000 * (number + 1))
    assert rewrite(world.store).ranges == 1
    write(world, 1, timestamp=100_000)
    view = world.store.view(["t"]).partitions["t", 0]
    found = [offset_for_time(world.store.log.objects, view, 1_000 * number) for number in range(10)]
    assert found == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert offset_for_time(world.store.log.objects, view, 100_001) is None


def test_retention_by_size_counts_the_new_files(world: World) -> None:
    world.store.create_topic("kept", 1, settings={"retention.bytes": "400"})
    write(world, 12, topic="kept")
    (before,) = apply_retention(world.store, ["kept"], dry_run=True).shortened
    rewrite(world.store)
    assert sum(segment.file_share_bytes for segment in segments(world, "kept")) < 2_000
    (after,) = apply_retention(world.store, ["kept"]).shortened
    assert 0 < after.new_log_start_offset < before.new_log_start_offset
    assert [row["offset"] for row in world.rows("kept")] == list(range(after.new_log_start_offset, 12))
    assert verify(world.store).problems == ()


def test_tasks_do_not_divide_a_file(world: World) -> None:
    write(world, 10)
    rewrite(world.store)
    write(world, 3)
    view = world.store.view(["t"])
    tasks = world.store.plan(view, {("t", 0): (0, 13)}, rows_per_task=2)
    assert [len(task.segments) for task in tasks] == [1, 2, 1]
    rows = [row["offset"] for task in tasks for batch in read_task(task) for row in batch.to_pylist()]
    assert rows == list(range(13))
    commits = world.store.plan_commits(view, 0, rows_per_task=2)
    assert [len(task.segments) for task in commits] == [1, 2, 1]
    batches = [batch.num_rows for task in tasks for batch in read_task(task, batch_rows=3)]
    assert batches == [3, 3, 3, 1, 1, 1, 1]


def test_counting_alone_reads_no_file(world: World) -> None:
    write(world, 10)
    rewrite(world.store)
    view = world.store.view(["t"])
    for columns in ([], ["offset"], ["partition", "producer_id"]):
        (task,) = world.store.plan(view, {("t", 0): (2, 9)}, columns=columns)
        assert sum(batch.num_rows for batch in read_task(task)) == 7


def test_a_segment_that_lies_across_a_range_is_damage() -> None:
    segment = SegmentRef("s", 2, 3, 1, "00000000", 1, 0, 0, 0, -1, 1, 1, 1)
    run = ManifestRef("run", 0, 9, 1, 0, 1, 1, 1, 1, 1, "00000000")
    assert not_rewritten([segment], [RewrittenRange(2, 5, 1, run)]) == []
    assert not_rewritten([segment], [RewrittenRange(0, 2, 1, run), RewrittenRange(5, 9, 1, run)]) == [segment]
    for range_ in (RewrittenRange(0, 3, 1, run), RewrittenRange(4, 9, 1, run), RewrittenRange(3, 4, 1, run)):
        with pytest.raises(DamagedObject, match="lie across"):
            not_rewritten([segment], [range_])


def test_a_manifest_that_contradicts_its_file_is_damage(world: World) -> None:
    write(world, 6)
    rewrite(world.store)
    (manifest,) = [name for name in objects(world) if name.endswith("/manifest")]
    data = world.store.log.objects.get(manifest)
    assert data is not None
    table = pa.parquet.read_table(pa.BufferReader(data))
    assert [row["first_row"] for row in table.to_pylist()] == list(range(6))
    index = table.schema.get_field_index("first_row")
    wrong = table.set_column(index, table.schema.field(index), pa.array([6] * 6, pa.int64()))
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(wrong, sink, store_schema=False)
    with pytest.raises(DamagedObject, match="its file has 6 rows"):
        decode_manifest(sink.getvalue().to_pybytes(), manifest)


@pytest.mark.parametrize("is_table", [False, True])
@pytest.mark.parametrize("format_", ["arrow", "parquet"])
def test_a_null_struct_whose_fields_are_not_null_can_be_merged_and_exported(
    world: World, format_: str, is_table: bool, tmp_path: Path
) -> None:
    """Its fields are null in memory, for Spark, and for a column that was added later; Parquet has no such value."""
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    world.store.create_topic(
        "structs",
        1,
        schema=pa.schema([("id", pa.int64()), ("s", inner)]),
        settings={"segment.format": format_, **({"table.formats": "delta"} if is_table else {})},
    )
    hidden = pa.Array.from_buffers(inner, 2, pa.array([1, None]).buffers()[:1], 1, 0, [pa.array([1, None], pa.int32())])
    with Producer({"bootstrap.servers": world.store.uri}) as producer:
        producer.produce_arrow("structs", pa.table({"id": pa.array([1, 2]), "s": hidden}))
        producer.flush()
        producer.produce_arrow("structs", pa.table({"id": pa.array([3])}))
    expected = [{"a": 1}, None, None]
    export_topic(world.store, "structs", tmp_path / "folder", columns=["s"])
    if is_table:
        assert publish_tables(world.store).tables[0].added_records == 3
    else:
        assert rewrite(world.store, TWO).ranges == 1
    assert read_arrow(world.store, "structs", columns=["s"]).read_all()["s"].to_pylist() == expected
