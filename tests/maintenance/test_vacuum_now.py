"""A vacuum says what keeps what, and until when; with `now` it writes the checkpoints that it goes by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings

from sparktxn import TopicPartition
from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import HALVES_PREFIX
from sparktxn._engine.log.log import Log
from sparktxn._foundation.values.structs import HalfState
from sparktxn._rows.scan.plan import object_of, segments_between
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from sparktxn.errors import ConfigurationError, ViewExpired
from sparktxn.maintenance import publish_tables, rewrite, vacuum, verify
from sparktxn.producer import Producer
from sparktxn.store import Store, read_task
from tests.maintenance.vacuumworld import DAY_S, EVERYTHING
from tests.property.test_vacuum_listing import STEPS, Listing
from tests.seeds import examples
from tests.simulation.truth import digest_of
from tests.world import ClockedWorld

DAY_MS = DAY_S * 1000


class Shop(ClockedWorld):
    """Real records in topic `kept`, and in `gone`, which is deleted after entry `before`. No checkpoint is due."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(checkpoint_entries=100_000, inline_bytes=0, **settings)
        self.log = self.process()
        self.uri = self.lend("shop", self.log)
        self.store = Store(self.uri, {}, self.log)
        self.admin = AdminClient({"bootstrap.servers": self.uri})
        for name in ("kept", "gone"):
            self.admin.create_topics([NewTopic(name, 1)])[name].result()
            self.produce(name, "a", "b")
        self.before = self.log.refresh()
        self.admin.delete_topics(["gone"])["gone"].result()
        self.clock.sleep(1)

    def produce(self, topic: str, *values: str) -> None:
        with Producer({"bootstrap.servers": self.uri}) as producer:
            for value in values:
                producer.produce(topic, value, partition=0)

    def transactional(self, name: str, timeout_ms: int = 60_000) -> Producer:
        producer = Producer(
            {"bootstrap.servers": self.uri, "transactional.id": name, "transaction.timeout.ms": timeout_ms}
        )
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("kept", name, partition=0)
        producer.flush()
        return producer

    def limits(self, given: dict[str, Any] | None = None, **asked: Any) -> dict[str, Any]:
        report = vacuum(self.store, EVERYTHING | (given or {}), **asked)
        return {limit.reason: limit for limit in report.limits}

    def reads_deleted(self) -> bool:
        with suppress(ViewExpired):
            return "gone" in self.store.view(["gone"], entry=self.before).topics
        return False

    def files(self) -> list[str]:
        return [info.name for info in self.objects.list(names.TOPICS) if "/gone" in info.name]

    def close(self) -> None:
        self.admin.close()
        super().close()


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.close()


def test_without_now_a_deleted_topic_is_read_until_two_checkpoints_later_and_the_report_says_so(shop: Shop) -> None:
    for dry_run in (True, False):
        limits = shop.limits(dry_run=dry_run)
        assert limits.keys() == {"checkpoints"}
        assert limits["checkpoints"].entry == 1
        assert limits["checkpoints"].until_ms is None
        assert "--now" in limits["checkpoints"].text
    assert shop.reads_deleted()
    shop.log.checkpoint()
    assert "only the checkpoint of entry" in shop.limits(dry_run=True)["checkpoints"].text
    shop.produce("kept", "c")
    shop.log.checkpoint()
    assert shop.limits()["checkpoints"].entry == shop.before + 1
    assert not shop.reads_deleted()
    assert shop.files() == []


def test_with_now_it_is_gone_at_once_and_a_second_one_writes_nothing(shop: Shop) -> None:
    values = [row["value"] for row in rows(shop.store)]
    assert shop.limits(now=True) == {}
    assert not shop.reads_deleted()
    assert shop.files() == []
    assert [row["value"] for row in rows(shop.store)] == values
    assert verify(shop.store).problems == ()
    before = {info.name for info in shop.objects.list("")}
    assert shop.limits(now=True) == {}
    assert {info.name for info in shop.objects.list("")} == before


def test_a_dry_run_writes_nothing_with_now_either(shop: Shop) -> None:
    before = {info.name for info in shop.objects.list("")}
    assert "checkpoints" in shop.limits(now=True, dry_run=True)
    assert {info.name for info in shop.objects.list("")} == before


def test_now_is_true_or_false(shop: Shop) -> None:
    with pytest.raises((TypeError, ConfigurationError), match="now"):
        vacuum(shop.store, EVERYTHING, now="at once")  # type: ignore[arg-type]


def test_now_deletes_nothing_that_the_retention_keeps_and_says_until_when(shop: Shop) -> None:
    week_ms = 7 * DAY_MS
    limits = shop.limits({"vacuum.retention.ms": week_ms}, now=True)
    assert limits.keys() == {"retention"}
    until_ms = limits["retention"].until_ms
    assert abs(until_ms - shop.clock.wall_ms() - week_ms) < 2_000
    assert "7 d" in limits["retention"].text
    assert shop.reads_deleted()
    shop.clock.sleep(7 * DAY_S - 5)
    assert shop.limits({"vacuum.retention.ms": week_ms}).keys() == {"retention"}
    shop.clock.sleep(6)
    assert shop.clock.wall_ms() >= until_ms
    assert shop.limits({"vacuum.retention.ms": week_ms}) == {}
    assert not shop.reads_deleted()


def test_files_that_may_be_of_an_upload_stay_for_their_age_whatever_now_says(shop: Shop) -> None:
    limits = shop.limits({"vacuum.segment.age.ms": DAY_MS}, now=True)
    assert limits.keys() == {"segment age"}
    assert "file" in limits["segment age"].text
    files = shop.files()
    assert files
    shop.clock.sleep((limits["segment age"].until_ms - shop.clock.wall_ms()) / 1000)
    assert shop.limits({"vacuum.segment.age.ms": DAY_MS}) == {}
    assert shop.files() == []


def test_a_long_transaction_time_out_keeps_files_and_open_and_prepared_ones_their_records(shop: Shop) -> None:
    opened = shop.transactional("long", 600_000)
    prepared = shop.transactional("waits")
    prepared.prepare_transaction()
    limits = shop.limits(now=True)
    assert limits.keys() == {"transaction time-out", "open transactions", "prepared transactions"}
    assert "'long'" in limits["transaction time-out"].text
    assert limits["transaction time-out"].until_ms - shop.clock.wall_ms() <= 1_200_000
    assert "('long')" in limits["open transactions"].text
    assert "('waits')" in limits["prepared transactions"].text
    opened.abort_transaction()
    assert shop.limits(dry_run=True).keys() == {"checkpoints", "transaction time-out", "prepared transactions"}


def test_versions_of_tables_keep_entries_for_their_history(shop: Shop) -> None:
    def alter(**settings: str) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        asked = [ConfigResource(ResourceType.TOPIC, "kept", incremental_configs=entries)]
        for future in shop.admin.incremental_alter_configs(asked).values():
            future.result()

    alter(table_formats="delta", table_history_ms=str(DAY_MS))
    publish_tables(shop.store)
    first = shop.log.refresh()
    shop.clock.sleep(10)
    shop.produce("kept", "c")
    publish_tables(shop.store)
    second_ms = shop.clock.wall_ms()
    limits = shop.limits(now=True)
    assert "table versions" in limits
    assert limits["table versions"].entry == first
    assert "'kept'" in limits["table versions"].text
    assert abs(limits["table versions"].until_ms - second_ms - DAY_MS) < 2_000
    assert shop.reads_deleted(), "the log is kept from the first version on"
    shop.clock.sleep(DAY_S + 20)
    publish_tables(shop.store)
    assert shop.limits(now=True) == {}
    assert not shop.reads_deleted()


def rows(store: Store) -> list[dict[str, Any]]:
    tasks = store.plan_view(store.view())
    return [row for task in tasks for batch in read_task(task, store.options) for row in batch.to_pylist()]


def unneeded_files(log: Log) -> list[str]:
    """Return the objects of topics that neither the newest view nor a half message needs."""
    needed = {
        f"{names.partition_folder(segment.topic, segment.topic_id, segment.partition)}{segment.segment}"
        for half in log.snapshot([HALVES_PREFIX]).records
        if isinstance(half, HalfState)
        for segment in half.segments
    }
    runs: set[str | None] = set()
    for partition in log.view(None).partitions.values():
        found = segments_between(log.objects, partition, partition.log_start_offset, partition.log_end_offset)
        needed.update(object_of(partition, segment) for segment in found)
        runs.update(run.folder for run in partition.sealed)
        runs.update(each.run.folder for each in partition.rewritten)
    listed = [(info.name, names.parse_partition_object(info.name)) for info in log.objects.list(names.TOPICS)]
    assert all(parsed is not None for _, parsed in listed)
    return [
        name
        for name, parsed in listed
        if parsed is not None and name not in needed and names.parse_sealed_folder(parsed[2]) not in runs
    ]


@settings(max_examples=examples(8, 150), deadline=None)
@given(steps=STEPS)
@example(steps=[*[("commit", 0, 0)] * 10, ("prepare", 1, 0), *[("commit", 0, 0)] * 2, ("delete topic", 0, 1)])
def test_after_now_nothing_is_left_that_no_view_needs_in_random_histories(steps: list[tuple[str, int, int]]) -> None:
    """Once no transaction can be under way that has uploaded a file: a transaction time-out, twice."""
    listing = Listing()
    for each in steps:
        listing.step(*each)
    world = listing.world
    world.clock.sleep(10_000)
    reader = world.process()
    world.process().vacuum(now=True)
    world.clock.sleep(10_000)
    report = world.process().vacuum(now=True)
    assert {limit.reason for limit in report.limits} <= {"half messages", "open transactions"}
    newest = world.process().log.refresh()
    assert newest - report.horizon <= 4
    assert unneeded_files(world.process().log) == []
    reader.log.view(None)
    assert digest_of(reader.log) == digest_of(world.process().log)
    assert verify(world.process().store, read_records=False).problems == ()
    assert world.process().vacuum(dry_run=True).names == ()


@pytest.mark.parametrize("seed", range(examples(4, 40)))
def test_reads_stay_as_they_are_and_verify_finds_nothing_in_random_stores(seed: int) -> None:
    random = Random(seed)
    shop = Shop()
    try:
        shop.admin.create_topics([NewTopic("gone", 1)])["gone"].result()
        for _ in range(random.randrange(5, 25)):
            action = random.choice(
                ["produce", "produce", "commit", "abort", "delete", "rewrite", "checkpoint", "vacuum"]
            )
            if action == "produce":
                shop.produce(random.choice(["kept", "gone"]), *("v" * random.randrange(1, 9)))
            elif action in ("commit", "abort"):
                producer = shop.transactional("x")
                (producer.commit_transaction if action == "commit" else producer.abort_transaction)()
            elif action == "delete":
                end = shop.store.view(["kept"]).partitions["kept", 0].last_stable_offset
                deleted = shop.admin.delete_records([TopicPartition("kept", 0, end)])
                assert all(future.result() for future in deleted.values())
            elif action == "rewrite":
                rewrite(shop.store, {"rewrite.min.segments": 2})
            elif action == "checkpoint":
                shop.log.checkpoint()
            else:
                vacuum(shop.store, EVERYTHING, now=random.random() < 0.5)
            shop.clock.sleep(random.choice([0, 1, 200]))
        reader = shop.process()
        reader.view(None)
        expected = rows(shop.store)
        vacuum(shop.store, EVERYTHING, now=True)
        assert rows(shop.store) == expected
        with Store(shop.objects.uri, {}, reader) as beside:
            assert rows(beside) == expected, "a process that was open goes on"
        assert verify(shop.store).problems == ()
        shop.produce("kept", "after")
        assert len(rows(shop.store)) == len(expected) + 1
    finally:
        shop.close()
