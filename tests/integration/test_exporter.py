"""The exporter: what its page says of a store, that a scrape writes nothing, and that its work is bounded."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from sparktxn import TopicPartition
from sparktxn._engine.log.views.entryhistory import HistoryReplay
from sparktxn._engine.log.views.entrysummary import EntrySummary, summaries
from sparktxn._engine.objectstore import ObjectStore
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.clock import SystemClock
from sparktxn.maintenance import rewrite, vacuum
from sparktxn.metrics.families import STORE_FAMILIES as FAMILIES
from sparktxn.store import Store
from sparktxn.store import storefigures as figures_module
from sparktxn.store.storemetrics import StoreMetrics
from sparktxn.testing.silentstore import SilentStore
from tests.log.storecommits import staged
from tests.world import ClockedWorld, World, open_log

AT_ONCE = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0}


@pytest.fixture
def world() -> Iterator[World]:
    made = World({"t": 2})
    yield made
    made.close()


def read(world: World, metrics: StoreMetrics | None = None) -> dict[str, dict[tuple[str, ...], float]]:
    """What the page has, by name and labels."""
    body, content_type = (metrics or StoreMetrics(world.store)).page()
    assert content_type.startswith("text/plain; version=")
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for line in body.decode().splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
            by_label = dict(re.findall(r'(\w+)="([^"]*)"', labels or ""))
            found.setdefault(name, {})[tuple(by_label[label] for label in FAMILIES[name].labels)] = float(value)
    return found


def one(figures: dict[str, dict[tuple[str, ...], float]], name: str) -> float:
    (value,) = figures[name].values()
    return value


def commit_group(world: World, offset: int, partition: int = 0, group: str = "g") -> None:
    consumer = world.consumer(group_id=group)
    consumer.commit(offsets=[TopicPartition("t", partition, offset)], asynchronous=False)


def test_offsets_and_lags_are_those_of_readers_of_committed_records(world: World) -> None:
    world.produce("a", "b", "c")
    commit_group(world, 1)
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "open", partition=0)
    producer.flush()
    found = read(world)
    assert found["kafka_topic_partitions"] == {("t",): 2}
    assert found["kafka_topic_partition_oldest_offset"] == {("t", "0"): 0, ("t", "1"): 0}
    assert found["kafka_topic_partition_current_offset"] == {("t", "0"): 4, ("t", "1"): 0}
    assert found["txnlog_topic_partition_last_stable_offset"] == {("t", "0"): 3, ("t", "1"): 0}
    assert found["kafka_consumergroup_current_offset"] == {("g", "t", "0"): 1}
    assert found["kafka_consumergroup_lag"] == {("g", "t", "0"): 2}
    assert found["kafka_consumergroup_lag_sum"] == {("g", "t"): 2}
    assert found["kafka_consumergroup_current_offset_sum"] == {("g", "t"): 1}
    assert found["kafka_consumergroup_members"] == {("g",): 0}
    assert one(found, "txnlog_open_transactions") == 1
    assert found["txnlog_open_transaction_age_seconds"].keys() == {("orders",)}
    assert one(found, "txnlog_open_transaction_age_seconds_max") >= 0
    producer.commit_transaction()
    found = read(world)
    assert found["kafka_consumergroup_lag"] == {("g", "t", "0"): 4}
    assert one(found, "txnlog_open_transactions") == 0
    assert one(found, "txnlog_open_transaction_age_seconds_max") == 0


def test_commits_and_aborts_are_counted_from_the_first_scrape_on(world: World) -> None:
    metrics = StoreMetrics(world.store)
    producer = world.transactional()

    def transaction(*, commits: bool) -> None:
        producer.begin_transaction()
        producer.produce("t", "v", partition=0)
        producer.flush()
        (producer.commit_transaction if commits else producer.abort_transaction)()

    transaction(commits=True)
    assert read(world, metrics)["txnlog_transactions_total"] == {("committed",): 0, ("aborted",): 0}
    entries = world.entry()
    transaction(commits=True)
    transaction(commits=True)
    transaction(commits=False)
    # Another producer of the id fences this one, whose open transaction is aborted.
    producer.begin_transaction()
    producer.produce("t", "v", partition=0)
    producer.flush()
    world.transactional()
    found = read(world, metrics)
    assert found["txnlog_transactions_total"] == {("committed",): 2, ("aborted",): 2}
    assert one(found, "txnlog_entries_total") == world.entry() > entries
    assert read(world, metrics)["txnlog_transactions_total"] == {("committed",): 2, ("aborted",): 2}


def test_prepared_transactions_and_those_that_hang_do_not_hide_each_other(world: World) -> None:
    for name in ("prepared", "open"):
        producer = world.transactional(name)
        producer.begin_transaction()
        producer.produce("t", name, partition=0)
        producer.flush()
        if name == "prepared":
            producer.prepare_transaction()
    found = read(world)
    assert one(found, "txnlog_open_transactions") == 2
    assert one(found, "txnlog_prepared_transactions") == 1
    assert found["txnlog_open_transaction_age_seconds"].keys() == {("open",)}
    assert found["txnlog_prepared_transaction_age_seconds"].keys() == {("prepared",)}
    assert (
        one(found, "txnlog_open_transaction_age_seconds_max") == found["txnlog_open_transaction_age_seconds"]["open",]
    )
    prepared = found["txnlog_prepared_transaction_age_seconds"]["prepared",]
    assert one(found, "txnlog_prepared_transaction_age_seconds_max") == prepared


def test_the_ids_that_abort_are_counted_one_by_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures_module, "_ABORTING_COUNTED", 2)
    metrics = StoreMetrics(world.store)
    read(world, metrics)
    for name, outcomes in (("good", "cc"), ("mixed", "cacc"), ("bad", "aaa"), ("worse", "aaaa")):
        producer = world.transactional(name)
        for outcome in outcomes:
            producer.begin_transaction()
            producer.produce("t", name, partition=0)
            producer.flush()
            (producer.commit_transaction if outcome == "c" else producer.abort_transaction)()
    assert read(world, metrics)["txnlog_transactional_id_transactions_total"] == {
        ("bad", "committed"): 0,
        ("bad", "aborted"): 3,
        ("worse", "committed"): 0,
        ("worse", "aborted"): 4,
    }


def test_a_store_that_no_vacuum_has_worked_on_says_how_old_it_is() -> None:
    world = ClockedWorld()
    log = world.process()
    with Store(log.objects.uri, {}, log) as store:
        store.create_topic("t")
        world.clock.sleep(200_000)
        body = StoreMetrics(store).page()[0].decode()
    assert "\ntxnlog_never_vacuumed_age_seconds 200000.0\n" in body
    world.close()


def test_a_scrape_counts_so_many_entries_and_the_next_one_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures_module, "_ENTRIES_PER_SCRAPE", 3)
    metrics = StoreMetrics(world.store)
    producer = world.transactional()
    read(world, metrics)
    for _ in range(5):
        producer.begin_transaction()
        producer.produce("t", "v")
        producer.commit_transaction()
    counted = []
    for _ in range(3):
        found = read(world, metrics)
        counted.append((found["txnlog_transactions_total"]["committed",], one(found, "txnlog_entries_to_count")))
    assert counted == [(3, 2), (5, 0), (5, 0)]


def test_the_replay_that_counts_begins_anew_after_many_entries(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures_module, "_ENTRIES_PER_REPLAY", 2)
    begun: list[object] = []

    def begin(objects: ObjectStore) -> HistoryReplay[EntrySummary]:
        begun.append(objects)
        return summaries(objects)

    monkeypatch.setattr(figures_module, "summaries", begin)
    metrics = StoreMetrics(world.store)
    producer = world.transactional()
    read(world, metrics)
    for number in range(6):
        producer.begin_transaction()
        producer.produce("t", "v")
        producer.commit_transaction()
        assert read(world, metrics)["txnlog_transactions_total"]["committed",] == number + 1
    assert len(begun) == 3


def test_entries_that_a_vacuum_has_deleted_are_said_to_be_uncounted(world: World) -> None:
    metrics = StoreMetrics(world.store)
    read(world, metrics)
    for _ in range(3):
        world.produce("v")
        world.store.log.checkpoint()
    vacuum(world.store, AT_ONCE)
    vacuum(world.store, AT_ONCE)
    found = read(world, metrics)
    assert one(found, "txnlog_horizon_entry") > 1
    assert 0 <= one(found, "txnlog_last_vacuum_age_seconds") < 600
    assert one(found, "txnlog_entries_uncounted_total") > 0
    world.produce("v")
    assert one(read(world, metrics), "txnlog_entries_to_count") == 0


def test_small_files_are_those_that_a_rewrite_merges(world: World) -> None:
    assert "txnlog_last_vacuum_age_seconds" not in read(world)
    for number in range(6):
        world.produce(str(number))
    found = read(world)
    assert found["txnlog_topic_small_files"] == {("t",): 6}
    assert found["txnlog_topic_size_bytes"]["t",] > 0
    rewrite(world.store, {"rewrite.min.segments": 2})
    found = read(world)
    assert found["txnlog_topic_small_files"] == {("t",): 0}
    assert found["txnlog_topic_size_bytes"]["t",] > 0


def test_partitions_of_groups_are_bounded_and_the_sums_are_of_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures_module, "_GROUP_PARTITIONS_SHOWN", 1)
    world.produce("a", "b")
    world.produce("c", partition=1)
    commit_group(world, 1)
    commit_group(world, 0, partition=1)
    found = read(world)
    assert found["kafka_consumergroup_lag"] == {("g", "t", "0"): 1}
    assert found["kafka_consumergroup_lag_sum"] == {("g", "t"): 2}
    assert one(found, "txnlog_group_partitions_left_out") == 1


def test_a_scrape_writes_nothing(world: World) -> None:
    world.produce("a")
    before = {info.name: info.modified_ms for info in world.store.log.objects.list("")}
    read(world)
    assert {info.name: info.modified_ms for info in world.store.log.objects.list("")} == before


def test_a_store_that_does_not_answer_is_not_up() -> None:
    silent = SilentStore(MemoryStore(f"exporter-{uuid.uuid4().hex}", SystemClock()))
    with Store(silent.uri, {}, open_log(silent)) as store:
        metrics = StoreMetrics(store, 0.05)
        with silent.silence():
            body, _ = metrics.page()
        figures = [line for line in body.decode().splitlines() if not line.startswith("#")]
        assert [line.split()[0] for line in figures] == ["txnlog_up", "txnlog_scrape_duration_seconds"]
        assert figures[0] == "txnlog_up 0.0"
        assert b"txnlog_up 1.0" in metrics.page()[0]


def test_the_requests_of_a_scrape_do_not_grow_with_the_store() -> None:
    silent = SilentStore(MemoryStore(f"exporter-{uuid.uuid4().hex}", SystemClock()))
    requests = []
    with Store(silent.uri, {}, open_log(silent)) as store:
        metrics = StoreMetrics(store)
        for partitions in (1, 300):
            store.create_topic(f"t-{partitions}", partitions)
            metrics.page()
            before = silent.requests
            metrics.page()
            requests.append(silent.requests - before)
    assert requests[0] == requests[1] <= 8


def test_an_exporter_that_follows_for_long_adopts_the_checkpoints_of_writers() -> None:
    name = f"exporter-{uuid.uuid4().hex}"
    objects = MemoryStore(name, SystemClock())
    writing: Any = {"checkpoint_entries": 10}
    with (
        Store(name, {}, open_log(objects, **writing)) as writer,
        Store(name, {}, open_log(objects, **writing)) as store,
    ):
        writer.create_topic("t")
        metrics = StoreMetrics(store)
        for _ in range(60):
            writer.commit(staged(writer, b"v"))
            metrics.page()
        assert store.log.checkpoint_entry > 30
