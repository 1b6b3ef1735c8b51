"""Compaction by key: what is left, when a partition is compacted, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
import pytest
from msgspec.structs import replace

from sparktxn import ConfigurationError, KafkaException, Producer, TopicPartition
from sparktxn._engine.format.commands import AlterTopic
from sparktxn._engine.log.log import Log
from sparktxn._rows.scan.plan import aborted_between, plan_ranges
from sparktxn._rows.scan.reader import read
from sparktxn.admin import AdminClient
from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.maintenance import (
    CompactReport,
    apply_compact,
    apply_retention,
    compact,
    plan_compact,
    rewrite,
    run_compact_task,
    verify,
)
from sparktxn.store import Store
from tests.world import ClockedWorld, World

DAY_MS: Final = 86_400_000
Record = tuple[int, bytes | None, bytes | None]


class Prices(World):
    """A store with the compacted topic 'prices' of one partition, which compacts whatever is new."""

    def __init__(self, **settings: str) -> None:
        super().__init__({})
        self.settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", **settings}
        self.store.create_topic("prices", settings=self.settings)
        self.plain = self.producer()

    def put(self, *records: tuple[str, str | None], producer: Producer | None = None, timestamp: int = 0) -> None:
        """Writes records, as one segment."""
        writer = producer or self.plain
        for key, value in records:
            writer.produce("prices", value, key, partition=0, timestamp=timestamp)
        writer.flush()

    def set(self, **settings: str | None) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.submit(AlterTopic(f"set {given}", "prices", self.topic_id("prices"), given))

    def found(self, entry: int | None = None) -> list[Record]:
        view = self.store.view(["prices"], entry=entry)
        tasks = plan_ranges(self.store.log.objects, self.uri, view, self.store.ranges(view))
        batches = [batch for task in tasks for batch in read(self.store.log.objects, task)]
        return [(row["offset"], row["key"], row["value"]) for batch in batches for row in batch.to_pylist()]

    def compact(self, **given: Any) -> CompactReport:
        report = compact(self.store, given)
        assert verify(self.store).problems == ()
        return report


@pytest.fixture
def prices() -> Iterator[Prices]:
    world = Prices()
    yield world
    world.close()


# --- what is left -----------------------------------------------------------------------------------------------------


@pytest.mark.kafka("K103")
def test_the_newest_record_of_each_key_stays_at_its_offset(prices: Prices) -> None:
    prices.put(("a", "1"), ("b", "1"), ("a", "2"))
    prices.put(("c", "1"), ("b", "2"))
    before = prices.entry()
    report = prices.compact()
    left = [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2")]
    assert prices.found() == left
    assert (report.removed_records, report.left_records, report.segment_files, report.new_files) == (2, 3, 2, 1)
    assert [offset for offset, _, _ in prices.found(before)] == [0, 1, 2, 3, 4], "time travel reads all of them"
    assert prices.ends("prices") == {0: (5, 5)}
    prices.put(("d", "1"))
    assert prices.found() == [*left, (5, b"d", b"1")]


@pytest.mark.kafka("K97")
def test_aborted_records_never_win_a_key(prices: Prices) -> None:
    prices.put(("a", "kept"))
    producer = prices.transactional()
    producer.begin_transaction()
    prices.put(("a", "aborted"), producer=producer)
    producer.abort_transaction()
    prices.put(("b", "1"))
    report = prices.compact()
    assert (report.removed_records, report.aborted_records) == (0, 1)
    assert prices.found() == [(0, b"a", b"kept"), (3, b"b", b"1")]


@pytest.mark.kafka("K96")
def test_nothing_at_or_above_the_last_stable_offset_is_compacted(prices: Prices) -> None:
    prices.put(("a", "1"))
    prices.put(("a", "2"))
    producer = prices.transactional()
    producer.begin_transaction()
    prices.put(("b", "open"), producer=producer)
    prices.put(("a", "3"))
    assert prices.compact().removed_records == 1
    assert prices.found() == [(1, b"a", b"2")]
    producer.commit_transaction()
    assert prices.found() == [(1, b"a", b"2"), (2, b"b", b"open"), (3, b"a", b"3")]
    assert prices.compact().removed_records == 1
    assert prices.found() == [(2, b"b", b"open"), (3, b"a", b"3")]


@pytest.mark.kafka("K99")
def test_a_producer_whose_records_are_gone_still_has_its_sequence(prices: Prices) -> None:
    """Its batch that comes again after a lost answer is not a second record, though nothing of it is left."""
    with prices.losing_answers() as sent:
        prices.put(("a", "1"))
    prices.put(("a", "2"))
    prices.compact()
    assert prices.found() == [(1, b"a", b"2")]
    (again,) = prices.store.log.submit(sent[0])[:1]
    assert again.duplicate
    prices.put(("b", "1"))
    assert prices.found() == [(1, b"a", b"2"), (2, b"b", b"1")]


@pytest.mark.kafka("K100")
def test_indexes_of_aborted_transactions_stay(prices: Prices) -> None:
    producer = prices.transactional()
    producer.begin_transaction()
    prices.put(("a", "aborted"), producer=producer)
    producer.abort_transaction()
    prices.put(("a", "1"))
    before = prices.store.view(["prices"])
    prices.compact()
    objects, after = prices.store.log.objects, prices.store.view(["prices"])
    ranges = [aborted_between(objects, view.partitions["prices", 0], 0, 10) for view in (before, after)]
    assert ranges[0] == ranges[1]
    assert len(ranges[0]) == 1


@pytest.mark.kafka("K102")
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_is_compacted_in_two_rounds_keeps_its_outcome(commit: bool) -> None:
    world = Prices(**{"min.compaction.lag.ms": "3600000"})
    try:
        now_ms = world.store.log.clock.wall_ms()
        world.put(("a", "before"), timestamp=1)
        producer = world.transactional()
        producer.begin_transaction()
        world.put(("a", "first"), producer=producer, timestamp=1)
        world.put(("b", "second"), producer=producer, timestamp=now_ms)
        (producer.commit_transaction if commit else producer.abort_transaction)()
        world.put(("c", "after"), timestamp=1)
        first = world.compact()
        assert first.partitions == 1
        kept = [(1, b"a", b"first"), (2, b"b", b"second")] if commit else [(0, b"a", b"before")]
        assert world.found() == [*kept, (4, b"c", b"after")]
        world.set(min_compaction_lag_ms="0")
        world.compact()
        assert world.found() == [*kept, (4, b"c", b"after")]
    finally:
        world.close()


def test_records_from_before_the_policy_that_have_no_key_stay(prices: Prices) -> None:
    prices.set(cleanup_policy="delete")
    with prices.producer() as keyless:
        keyless.produce("prices", "keyless")
        keyless.produce("prices", "1", "a")
        keyless.produce("prices", "2", "a")
        keyless.flush()
        prices.set(cleanup_policy="compact")
        assert prices.compact().removed_records == 1
    assert prices.found() == [(0, None, b"keyless"), (2, b"a", b"2")]


def test_what_is_below_the_log_start_counts_no_more(prices: Prices) -> None:
    prices.put(("a", "1"), ("b", "1"), ("c", "1"))
    prices.put(("c", "2"))
    admin = AdminClient({"bootstrap.servers": prices.uri})
    prices.clients.append(admin)
    for future in admin.delete_records([TopicPartition("prices", 0, 1)]).values():
        future.result()
    report = prices.compact()
    assert (report.removed_records, report.left_records) == (1, 2)
    assert prices.found() == [(1, b"b", b"1"), (3, b"c", b"2")]


# --- tombstones ---------------------------------------------------------------------------------------------------


class Clocked:
    """A compacted topic on a clock that the test moves."""

    def __init__(self) -> None:
        self.world = ClockedWorld()
        self.log: Log = self.world.process()
        self.uri = self.world.lend("process", self.log)
        self.store = Store(self.world.objects.uri, {}, self.log)
        self.store.create_topic("prices", settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        self.producer = Producer({"bootstrap.servers": self.uri})

    def put(self, key: str, value: str | None) -> None:
        self.producer.produce("prices", value, key)
        self.producer.flush()

    def left(self) -> list[tuple[bytes, bytes | None]]:
        assert compact(self.store).lost == ()
        view = self.store.view(["prices"])
        tasks = plan_ranges(self.log.objects, self.uri, view, self.store.ranges(view))
        batches = [batch for task in tasks for batch in read(self.log.objects, task)]
        return [(row["key"], row["value"]) for batch in batches for row in batch.to_pylist()]


@pytest.mark.kafka("K98")
def test_a_tombstone_goes_a_day_after_its_first_compaction() -> None:
    """Not a day after it was written: a consumer may have read what it removes until it was compacted."""
    topic = Clocked()
    try:
        topic.put("a", "1")
        topic.put("a", None)
        topic.world.clock.now_s += 3 * DAY_MS / 1000
        topic.put("b", "1")
        assert topic.left() == [(b"a", None), (b"b", b"1")]
        topic.world.clock.now_s += DAY_MS / 1000 - 10
        topic.put("c", None)
        assert topic.left() == [(b"a", None), (b"b", b"1"), (b"c", None)]
        topic.world.clock.now_s += 20
        topic.put("d", "1")
        assert topic.left() == [(b"b", b"1"), (b"c", None), (b"d", b"1")]
        topic.world.clock.now_s += DAY_MS / 1000
        topic.put("d", "2")
        assert topic.left() == [(b"b", b"1"), (b"d", b"2")]
    finally:
        topic.producer.close()
        topic.world.close()


def test_of_tombstones_alone_the_last_one_stays() -> None:
    world = Prices(**{"delete.retention.ms": "0"})
    try:
        world.put(("a", None), ("b", None))
        world.compact()
        # A record that the log start passes at once, so that something is new.
        producer = world.transactional()
        producer.begin_transaction()
        world.put(("b", None), producer=producer)
        producer.commit_transaction()
        world.compact()
        assert world.found() == [(2, b"b", None)]
    finally:
        world.close()


# --- when a partition is compacted ------------------------------------------------------------------------------------


def test_it_is_compacted_once_enough_is_new() -> None:
    world = Prices(**{"min.cleanable.dirty.ratio": "0.5"})
    try:
        for key in ("a", "b", "c", "d"):
            world.put((key, "x" * 1_000))
        assert world.compact().partitions == 1
        world.put(("a", "x" * 1_000))
        assert world.compact().partitions == 0, "a fifth is new"
        for key in ("b", "c", "d", "e", "f"):
            world.put((key, "x" * 1_000))
        assert world.compact().removed_records == 4
    finally:
        world.close()


def test_it_is_compacted_at_last_when_a_record_has_waited() -> None:
    world = Prices(**{"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "3600000"})
    try:
        now_ms = world.store.log.clock.wall_ms()
        world.put(("a", "1"), timestamp=now_ms)
        world.put(("a", "2"), timestamp=now_ms)
        assert world.compact().partitions == 0
        world.put(("b", "1"), timestamp=now_ms - 3_700_000)
        assert world.compact().removed_records == 1
    finally:
        world.close()


def test_young_records_are_left() -> None:
    world = Prices(**{"min.compaction.lag.ms": "3600000"})
    try:
        now_ms = world.store.log.clock.wall_ms()
        for value, age_ms in (("1", 9_000_000), ("2", 8_000_000), ("3", 1_000), ("4", 7_000_000)):
            world.put(("a", value), timestamp=now_ms - age_ms)
        assert world.compact().removed_records == 1
        assert [value for _, _, value in world.found()] == [b"2", b"3", b"4"]
    finally:
        world.close()


def test_retention_applies_if_the_policy_has_both() -> None:
    for policy, left in (("compact", 2), ("compact,delete", 0), ("delete, Compact", 0)):
        world = Prices(**{"cleanup.policy": policy, "retention.ms": "1000"})
        try:
            world.put(("a", "1"), ("b", "1"), timestamp=1_000)
            apply_retention(world.store)
            assert len(world.found()) == left
        finally:
            world.close()


# --- steps, races and refusals ----------------------------------------------------------------------------------


def test_another_process_does_the_tasks(prices: Prices) -> None:
    prices.put(("a", "1"), ("a", "2"))
    calls = []

    def run(work: Callable[..., Any], tasks: Any) -> list[Any]:
        calls.append(len(tasks))
        return [work(task) for task in tasks]

    assert compact(prices.store, run=run).removed_records == 1
    assert calls == [1]
    assert prices.found() == [(1, b"a", b"2")]


def test_what_other_processes_have_made_takes_effect_before_they_get_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktxn.maintenance.taskrunning.TASKS_PER_RUN", 2)
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    world = World({})
    try:
        world.store.create_topic("keys", 5, settings=settings)
        for partition in range(5):
            for number in range(2):
                world.produce(str(number), topic="keys", partition=partition, key="a")
        seen = []

        def run(work: Callable[..., Any], tasks: Any) -> list[Any]:
            seen.append((len(tasks), len(world.rows("keys"))))
            if len(seen) == 3:
                raise RuntimeError("an executor was lost")
            return [work(task) for task in tasks]

        with pytest.raises(RuntimeError, match="an executor was lost"):
            compact(world.store, run=run)
        assert seen == [(2, 10), (2, 8), (1, 6)]
        assert len(world.rows("keys")) == 6
    finally:
        world.close()


def test_of_a_rewrite_and_a_compaction_of_one_plan_the_second_is_lost(prices: Prices) -> None:
    for number in range(3):
        prices.put(("a", str(number)))
    (task,) = plan_compact(prices.store)
    done = run_compact_task(task, prices.store.options)
    assert rewrite(prices.store, {"rewrite.min.segments": 2}).ranges == 1
    report = apply_compact(prices.store, [done])
    assert (report.partitions, len(report.lost)) == (0, 1)
    assert len(prices.found()) == 3, "it was lost, and yet something is gone"
    assert compact(prices.store).removed_records == 2


def test_many_runs_take_effect_together(prices: Prices, monkeypatch: pytest.MonkeyPatch) -> None:
    """More segments than a manifest should name."""
    monkeypatch.setattr(import_module("sparktxn.maintenance.rewriting.compact"), "_SEGMENTS_PER_RUN", 2)
    for number in range(9):
        prices.put((f"key {number % 7}", str(number)))
    entry = prices.entry()
    assert prices.compact().left_records == 7
    assert prices.entry() == entry + 1
    located = prices.store.view(["prices"]).partitions["prices", 0]
    assert [(each.base_offset, each.end_offset) for each in located.rewritten] == [(0, 4), (4, 6), (6, 8), (8, 9)]
    assert [offset for offset, _, _ in prices.found()] == [2, 3, 4, 5, 6, 7, 8]


def test_a_deadline_that_has_passed_begins_nothing(prices: Prices) -> None:
    prices.put(("a", "1"), ("a", "2"))
    (task,) = plan_compact(prices.store)
    done = run_compact_task(replace(task), prices.store.options)
    report = apply_compact(prices.store, [done], timeout_s=0)
    assert (report.partitions, report.unresolved) == (0, 1)
    assert len(prices.found()) == 2


def test_topics_that_are_not_compacted_are_left_out_or_refused(prices: Prices) -> None:
    prices.store.create_topic("orders")
    prices.put(("a", "1"), ("a", "2"))
    with pytest.raises(ConfigurationError, match=r"'orders', whose cleanup\.policy is delete"):
        compact(prices.store, {"compact.topics": "prices,orders"})
    assert compact(prices.store, {"compact.topics": "prices"}).partitions == 1


def test_a_topic_with_columns_is_not_compacted(prices: Prices) -> None:
    schema = pa.schema([("id", pa.int64())])
    with pytest.raises(CommandRefused, match="declared columns") as refused:
        prices.store.create_topic("typed", schema=schema, settings={"cleanup.policy": "compact"})
    assert refused.value.error.code() == ErrorCode.INVALID_CONFIG
    prices.store.create_topic("typed", schema=schema)
    with pytest.raises(CommandRefused, match="declared columns"):
        prices.submit(AlterTopic("typed", "typed", prices.topic_id("typed"), {"cleanup.policy": "compact,delete"}))


@pytest.mark.parametrize("wrong", ["", "compact,remove", "compact delete", 3, None])
def test_a_wrong_policy_is_refused(prices: Prices, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected delete, compact, or compact,delete"):
        prices.store.create_topic("wrong", settings={"cleanup.policy": wrong})


# --- records without a key ------------------------------------------------------------------------------------------


def _produce(world: Prices) -> None:
    world.plain.produce("prices", "value")


def _produce_arrow(world: Prices) -> None:
    world.plain.produce_arrow("prices", pa.table({"key": [b"a", None], "value": [b"1", b"2"]}))


def _without_the_column(world: Prices) -> None:
    world.plain.produce_arrow("prices", pa.table({"value": pa.array([], pa.binary())}))


def _transaction(world: Prices) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    try:
        producer.produce("prices", "value")
    finally:
        producer.abort_transaction()


def _stager(world: Prices) -> None:
    """As on an executor of Spark."""
    stager = world.store.stage_plan(["prices"]).open(seed=0)
    stager.write(pa.table({"key": [None], "value": [b"1"], "topic": ["prices"]}, schema=_ROWS))


_ROWS = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string())])


@pytest.mark.parametrize("write", [_produce, _produce_arrow, _without_the_column, _transaction, _stager])
def test_a_record_without_a_key_is_refused_before_anything_is_written(
    prices: Prices, write: Callable[[Prices], None]
) -> None:
    objects = prices.store.log.objects
    segments = set(objects.list_names("topics/"))
    with pytest.raises(KafkaException, match="no key") as refused:
        write(prices)
    assert refused.value.error.code() == ErrorCode.INVALID_RECORD
    prices.plain.flush()
    assert set(objects.list_names("topics/")) == segments
    assert prices.found() == []


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_limited_read_gets_a_transaction_with_the_record_that_has_replaced_its_own(rounds: int) -> None:
    """A record outside transactions replaces that of a transaction, in one compaction, or again in the next one."""
    prices = Prices()
    prices.store.create_topic("other")
    writer = prices.transactional("job")
    writer.begin_transaction()
    writer.produce("prices", "of the transaction", "k", partition=0)
    writer.produce("other", "of the transaction", "k")
    writer.commit_transaction()
    for number in range(rounds):
        prices.put(("k", f"newer {number}"))
        compact(prices.store)
    view = prices.store.view(["prices", "other"])
    end = prices.store.commit_cut(view, 0, rows_max=1).entry
    tasks = prices.store.plan_commits(view, 0, to_entry=end)
    rows = [row for task in tasks for batch in read(prices.store.log.objects, task) for row in batch.to_pylist()]
    assert [(row["topic"], row["value"]) for row in rows] == [
        ("prices", f"newer {rounds - 1}".encode()),
        ("other", b"of the transaction"),
    ]
    prices.close()
