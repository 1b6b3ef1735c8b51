"""Retention: which records the topics' settings keep, and who may do what meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktxn._engine.format.commands import CreateTopic, DeleteRecords, DeleteTopic, InitProducerId
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from sparktxn.admin import AdminClient
from sparktxn.errors import KafkaException, OutcomeUnknown, RetentionPassed, StoreUnavailable
from sparktxn.maintenance import RetentionReport, ShortenedPartition, apply_retention, rewrite, vacuum
from sparktxn.store import Store, read_task
from sparktxn.testing.faultystore import Died, Fault, FaultyStore, Operation
from tests.producercommands import ProducerCommands
from tests.seeds import examples
from tests.world import ClockedWorld, World

HOUR_MS = 3_600_000


@pytest.fixture
def world() -> Iterator[World]:
    world = World({"t": 1, "other": 1}, checkpoint_entries=10, checkpoint_seal_segments=4)
    yield world
    world.close()


def alter(world: World, topic: str = "t", **values: int) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    with AdminClient({"bootstrap.servers": world.uri, **world.options}) as admin:
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for future in admin.incremental_alter_configs([resource]).values():
            future.result()


def now_ms(world: World) -> int:
    return world.store.log.clock.wall_ms()


def old(world: World, hours: float) -> int:
    return now_ms(world) - int(hours * HOUR_MS)


def aged(world: World, *hours: float, topic: str = "t") -> None:
    """One segment for each age."""
    for hour in hours:
        world.produce("x" * 100, topic=topic, timestamp=old(world, hour))


def seal(world: World) -> None:
    """Have a checkpoint put the segments into a manifest."""
    world.entry()
    world.store.log.checkpoint()
    assert world.store.view(["t"]).partitions["t", 0].sealed


def starts(report: RetentionReport) -> dict[tuple[str, int], tuple[int, int, str]]:
    return {
        (found.topic, found.partition): (found.log_start_offset, found.new_log_start_offset, found.reason)
        for found in report.shortened
    }


def test_topics_keep_everything_until_a_setting_says_otherwise(world: World) -> None:
    world.produce("old", timestamp=1_000)
    before = world.entry()
    assert apply_retention(world.store) == RetentionReport(dry_run=False)
    assert world.entry() == before


def test_the_oldest_segments_go_by_the_age_of_their_newest_record(world: World) -> None:
    aged(world, 5, 4, 1, 3, 0)
    alter(world, retention_ms=2 * HOUR_MS)
    # The one of 3 hours lies behind a younger one: offsets have no holes at the start.
    dry = apply_retention(world.store, dry_run=True)
    assert starts(dry) == {("t", 0): (0, 2, "retention.ms")}
    assert dry.dry_run
    assert len(world.values("t")) == 5
    report = apply_retention(world.store)
    assert report.shortened == dry.shortened
    assert report.shortened[0].records == 2
    assert len(world.values("t")) == 3
    assert apply_retention(world.store) == RetentionReport(dry_run=False)


def test_the_age_of_sealed_runs_counts_too(world: World) -> None:
    aged(world, *(10 for _ in range(25)), *(1 for _ in range(25)))
    seal(world)
    alter(world, retention_ms=2 * HOUR_MS)
    assert starts(apply_retention(world.store)) == {("t", 0): (0, 25, "retention.ms")}


@pytest.mark.parametrize("sealed", [False, True])
def test_the_newest_segments_stay_that_hold_retention_bytes(world: World, sealed: bool) -> None:
    aged(world, *(0 for _ in range(30)))
    if sealed:
        seal(world)
    sizes = [segment.size_bytes for segment in segments(world)]
    alter(world, retention_bytes=sum(sizes[-10:]) - 1)
    assert starts(apply_retention(world.store)) == {("t", 0): (0, 20, "retention.bytes")}
    alter(world, retention_bytes=0)
    assert starts(apply_retention(world.store)) == {("t", 0): (20, 30, "retention.bytes")}


def segments(world: World) -> list[Any]:
    view = world.store.view(["t"])
    tasks = world.store.plan(view, world.store.ranges(view), by_segment=True)
    return [segment for task in tasks for segment in task.segments]


def test_the_setting_that_reaches_further_decides(world: World) -> None:
    aged(world, 5, 4, 3, 0)
    alter(world, retention_ms=HOUR_MS, retention_bytes=0)
    assert starts(apply_retention(world.store)) == {("t", 0): (0, 4, "retention.bytes")}


def test_nothing_at_or_above_the_last_stable_offset_goes(world: World) -> None:
    aged(world, 5)
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", b"open", timestamp=old(world, 5))
    producer.flush()
    aged(world, 5)
    alter(world, retention_ms=HOUR_MS, retention_bytes=0)
    assert starts(apply_retention(world.store)) == {("t", 0): (0, 1, "retention.ms")}
    producer.commit_transaction()
    (found,) = apply_retention(world.store).shortened
    assert found.new_log_start_offset == 3
    assert world.values("t") == []


def test_only_the_named_topics_are_looked_at(world: World) -> None:
    for topic in ("t", "other"):
        aged(world, 5, topic=topic)
        alter(world, topic, retention_ms=HOUR_MS)
    assert starts(apply_retention(world.store, ["other"])) == {("other", 0): (0, 1, "retention.ms")}
    with pytest.raises(KafkaException, match="missing"):
        apply_retention(world.store, ["t", "missing"])
    assert len(world.values("t")) == 1


def test_a_view_from_before_still_reads_until_a_vacuum_passes_it(world: World) -> None:
    aged(world, 5, 0)
    view = world.store.view(["t"])
    tasks = world.store.plan(view, world.store.ranges(view))
    alter(world, retention_ms=HOUR_MS)
    apply_retention(world.store)
    rows = [row for task in tasks for batch in read_task(task, world.store.options) for row in batch.to_pylist()]
    assert len(rows) == 2
    newer = world.store.view(["t"])
    with pytest.raises(RetentionPassed):
        world.store.plan(newer, {("t", 0): (0, 1)})
    assert vacuum(world.store, dry_run=True).segments == 0


def test_a_topic_that_is_deleted_meanwhile_stops_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for topic in ("t", "other"):
        aged(world, 5, topic=topic)
        alter(world, topic, retention_ms=HOUR_MS)
    send, log = world.store.log.send, world.store.log
    deleted: list[object] = []

    def after_deleting(commands: Any, *more: Any) -> Any:
        if not deleted and isinstance(commands[0], DeleteRecords):
            deleted.append(send([DeleteTopic("gone", "other", world.topic_id("other"))]).wait())
        return send(commands, *more)

    monkeypatch.setattr(log, "send", after_deleting)
    report = apply_retention(world.store)
    assert starts(report) == {("t", 0): (0, 1, "retention.ms")}
    assert [lost.about for lost in report.lost] == ["partition 0 of topic 'other'"]


def test_what_is_not_known_at_the_deadline_is_reported(world: World) -> None:
    aged(world, 5)
    alter(world, retention_ms=HOUR_MS)
    with world.losing_answers():
        report = apply_retention(world.store)
    assert (report.shortened, report.unresolved) == ((), 1)
    # It has happened: the next call finds nothing to do.
    assert apply_retention(world.store) == RetentionReport(dry_run=False)
    assert world.values("t") == []


@given(
    ages=st.lists(st.integers(0, 6), max_size=12),
    retention_hours=st.integers(0, 6),
    kept=st.none() | st.integers(0, 12),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=examples(25, 300))
def test_what_stays_is_what_the_settings_keep(
    ages: list[int], retention_hours: int, kept: int | None, seed: int
) -> None:
    """Against a model: the longest prefix of old segments, or all but the newest that hold enough bytes."""
    draw = random.Random(seed)
    world = World({"t": 1}, checkpoint_entries=4, checkpoint_seal_segments=2)
    try:
        for age in ages:
            aged(world, age + 0.5)
            if draw.random() < 0.2:
                world.entry()
                world.store.log.checkpoint()
            if draw.random() < 0.2:
                rewrite(world.store, {"rewrite.min.segments": 2})
        sizes = [segment.file_share_bytes for segment in segments(world)]
        retention_bytes = -1 if kept is None else sum(sizes[len(sizes) - kept :]) if kept <= len(sizes) else 10**9
        alter(world, retention_ms=retention_hours * HOUR_MS, retention_bytes=retention_bytes)
        by_age = 0
        while by_age < len(ages) and ages[by_age] + 0.5 > retention_hours:
            by_age += 1
        by_size = 0 if kept is None else max(0, len(ages) - kept)
        report = apply_retention(world.store)
        expected = max(by_age, by_size)
        assert [found.new_log_start_offset for found in report.shortened] == ([expected] if expected else [])
        assert [row["offset"] for row in world.rows("t")] == list(range(expected, len(ages)))
    finally:
        world.close()


def test_a_report_counts_offsets() -> None:
    found = ShortenedPartition(
        topic="t", partition=0, log_start_offset=3, new_log_start_offset=10, reason="retention.ms"
    )
    assert found.records == 7


class Aged(ClockedWorld):
    """A store with segments of four ages, on a clock that the test moves; retention keeps the last two of them."""

    def __init__(self) -> None:
        super().__init__(timeout_check_interval_ms=10**15)
        self.store = self.handle()
        settings = {"retention.ms": str(5 * HOUR_MS // 2)}
        log = self.store.log
        log.submit([CreateTopic("t", "t", 2, settings)])
        producer = ProducerCommands.of(None, log.submit([InitProducerId("init", None, 60_000)])[0])
        for number in range(4):
            now_ms = self.clock.wall_ms()
            for partition in (0, 1):
                append = producer.append((1, partition), number)
                append = replace(append, timestamp_min_ms=now_ms, timestamp_max_ms=now_ms)
                log.submit([append])
            self.clock.sleep(HOUR_MS / 1000)

    def handle(self, objects: ObjectStore | None = None) -> Store:
        return Store(f"memory://{self.name}", {}, self.process(objects))

    def starts(self) -> list[int]:
        view = self.handle().view(["t"])
        return [partition.log_start_offset for _, partition in sorted(view.partitions.items())]


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE])
def test_after_a_fault_at_any_operation_the_next_call_ends_what_is_left(fault: Fault) -> None:
    world = Aged()
    faulty = FaultyStore(world.objects)
    apply_retention(world.handle(faulty))
    kept = [2, 2]
    assert world.starts() == kept
    operations = len(faulty.operations)
    assert operations > 4
    for number in range(1, operations + 1):
        world = Aged()
        late: list[Callable[[], object]] = []

        def fate(operation: Operation, number: int = number) -> Fault:
            return fault if operation.number == number else Fault.NONE

        with suppress(Died, StoreUnavailable, OutcomeUnknown):
            apply_retention(world.handle(FaultyStore(world.objects, fate, later=late.append)), timeout_s=30)
        assert all(start in (0, end) for start, end in zip(world.starts(), kept, strict=True)), number
        for put in late:
            put()
        report = apply_retention(world.handle())
        assert report.lost == ()
        assert world.starts() == kept, number
