"""Tables in a list and as a job: what their versions do not show, since when, and that other stores pay nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sparktxn import TopicPartition
from sparktxn._foundation.process.clock import SystemClock
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from sparktxn.errors import CommandRefused, ConfigurationError, StoreUnavailable
from sparktxn.maintenance import TableInfo, list_tables, maintain, publish_tables, rewrite, vacuum
from sparktxn.maintenance.publishing.tablelist import has_tables
from tests.world import World

AT_ONCE = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0}
DELTA = {"table.formats": "delta"}


@pytest.fixture
def world() -> Iterator[World]:
    made = World({"other": 1})
    made.store.create_topic("t", 2, settings=DELTA)
    yield made
    made.close()


def listed(world: World, *topics: str) -> TableInfo:
    (found,) = list_tables(world.store, topics or None)
    return found


def waiting(world: World) -> tuple[int, int | None]:
    found = listed(world)
    return found.waiting_records, found.waiting_ms


def set_formats(world: World, value: str | None) -> None:
    change = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entries = [ConfigEntry("table.formats", value, incremental_operation=change)]
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result()


def objects(world: World) -> dict[str, bytes | None]:
    store = world.store.log.objects
    return {info.name: store.get(info.name) for info in store.list("")}


def test_a_topic_without_a_version_is_listed_with_what_it_has(world: World) -> None:
    assert listed(world) == TableInfo(topic="t", topic_id=world.topic_id("t"), formats=("delta",))
    world.produce("0", "1", partition=1)
    records, age_ms = waiting(world)
    assert records == 2
    assert age_ms is not None
    assert listed(world).version is None


def test_what_is_committed_after_a_version_waits_until_the_next(world: World) -> None:
    world.produce("0", "1")
    report = publish_tables(world.store, location="s3a://bucket/shop")
    found = listed(world)
    assert (found.version, found.entry, found.waiting_records, found.waiting_ms) == (0, report.entry, 0, None)
    assert found.location == f"s3a://bucket/shop/topics/t-{world.topic_id('t')}"
    assert found.published_timestamp_ms is not None
    world.produce("2")
    world.produce("3", "4", partition=1)
    world.produce("not in the table", topic="other")
    assert waiting(world)[0] == 3
    rewrite(world.store, {"rewrite.min.segments": 2})
    assert waiting(world)[0] == 3, "a rewrite publishes nothing"
    publish_tables(world.store)
    assert (listed(world).version, *waiting(world)) == (1, 0, None)


def test_records_of_an_open_transaction_wait_once_it_commits(world: World) -> None:
    publish_tables(world.store)
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "open", partition=0)
    producer.flush()
    world.produce("1")
    assert waiting(world)[0] == 1
    publish_tables(world.store)
    assert waiting(world) == (0, None), "it holds no publication back"
    producer.commit_transaction()
    assert waiting(world)[0] == 1
    producer.begin_transaction()
    producer.produce("t", "aborted", partition=0)
    producer.flush()
    producer.abort_transaction()
    assert waiting(world)[0] == 1


def test_deleted_records_do_not_wait(world: World) -> None:
    world.produce("0", "1", "2")
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        partition = TopicPartition("t", 0, 2)
        admin.delete_records([partition])[partition].result()
    assert waiting(world)[0] == 1


def test_the_oldest_record_that_waits_has_waited_since_its_entry(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_tables(world.store)
    world.produce("0", partition=1)
    first_ms = world.store.view(["t"]).timestamp_ms
    world.produce("1", partition=0)
    world.produce("other", topic="other")
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _: first_ms + 60_000)
    assert waiting(world) == (2, 60_000)
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _: first_ms - 60_000)
    assert waiting(world) == (2, 0), "by a clock that is behind"


@pytest.mark.parametrize("last", ["t", "other"])
def test_where_a_vacuum_has_deleted_the_entry_the_first_one_left_counts(last: str) -> None:
    world = World({"other": 1}, checkpoint_entries="4")
    log = world.store.log
    world.store.create_topic("t", 1, settings=DELTA)
    try:
        world.produce(*map(str, range(3)))
        for number in range(12):
            world.produce(str(number), topic="other" if number < 11 else last)
        for _ in range(2):
            log.refresh()
            log.checkpoint()
            world.store.create_topic(f"new-{log.entry}", 1)
        vacuum(world.store, AT_ONCE)
        assert log.store_state().horizon > 4
        records, age_ms = waiting(world)
        assert records == 3 + (last == "t")
        assert age_ms is not None
    finally:
        world.close()


def test_a_topic_that_is_no_table_any_more_keeps_its_versions(world: World) -> None:
    world.produce("0")
    publish_tables(world.store)
    set_formats(world, None)
    world.produce("1")
    found = listed(world)
    assert (found.formats, found.version, found.waiting_records, found.deleted) == ((), 0, 1, False)
    assert publish_tables(world.store).tables == ()
    set_formats(world, "delta")
    assert [table.version for table in publish_tables(world.store).tables] == [1]


def test_the_table_of_a_deleted_topic_is_listed_as_such(world: World) -> None:
    world.produce("0")
    publish_tables(world.store)
    old = world.topic_id("t")
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        admin.delete_topics(["t"])["t"].result()
    found = listed(world, "t")
    assert (found.topic_id, found.version, found.deleted, found.waiting_records) == (old, 0, True, 0)
    world.store.create_topic("t", 1, settings=DELTA)
    publish_tables(world.store)
    assert [(each.topic_id, each.version, each.deleted) for each in list_tables(world.store, ["t"])] == [
        (old, 1, True),
        (world.topic_id("t"), 0, False),
    ]


def test_topics_are_selected_and_wrong_ones_are_refused(world: World) -> None:
    world.store.create_topic("u", 1, settings=DELTA)
    assert [found.topic for found in list_tables(world.store)] == ["t", "u"]
    assert listed(world, "u").topic == "u"
    with pytest.raises(ConfigurationError, match="'other' is not a table"):
        list_tables(world.store, ["t", "other"])
    with pytest.raises(CommandRefused, match="missing"):
        list_tables(world.store, ["missing"])
    with pytest.raises(TypeError):
        list_tables(world.store, "t")


def test_a_topic_that_is_deleted_meanwhile_is_left_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.store.create_topic("u", 1, settings=DELTA)
    log = world.store.log
    view = log.view

    def overtaken(topics: Any) -> Any:
        monkeypatch.undo()
        with AdminClient({"bootstrap.servers": world.uri}) as admin:
            admin.delete_topics(["u"])["u"].result()
        return view(topics)

    monkeypatch.setattr(log, "view", overtaken)
    assert listed(world).topic == "t"


def test_maintain_publishes_what_is_new_and_then_nothing(world: World) -> None:
    for number in range(6):
        world.produce(str(number))
    report = maintain(world.store, AT_ONCE)
    assert report.failed == ()
    assert report.tables is not None
    assert [(table.version, table.added_files, table.added_records) for table in report.tables.tables] == [(0, 1, 6)]
    for _ in range(3):
        maintain(world.store, AT_ONCE)
    entry = world.entry()
    again = maintain(world.store, AT_ONCE)
    assert again.tables is not None
    assert (again.failed, again.tables.tables, again.tables.unchanged, world.entry()) == ((), (), ("t",), entry)


def test_what_a_round_of_maintain_has_merged_is_published_by_it(world: World) -> None:
    for number in range(6):
        world.produce(str(number))
        publish_tables(world.store)
    report = maintain(world.store)
    assert report.failed == ()
    assert report.rewrite is not None
    assert report.tables is not None
    assert report.rewrite.new_files == 1
    (table,) = report.tables.tables
    assert (table.version, table.added_files, table.removed_files, table.added_records) == (6, 1, 6, 0)


def test_a_dry_run_of_maintain_says_what_would_be_published_and_writes_nothing(world: World) -> None:
    world.produce("0")
    before = objects(world)
    report = maintain(world.store, dry_run=True)
    assert report.tables is not None
    assert report.tables.dry_run
    assert [(table.topic, table.version, table.added_records) for table in report.tables.tables] == [("t", 0, 1)]
    assert objects(world) == before


def test_a_list_writes_nothing(world: World) -> None:
    world.produce("0")
    publish_tables(world.store)
    world.produce("1")
    before = objects(world)
    list_tables(world.store)
    assert objects(world) == before


def test_a_store_without_tables_pays_nothing_for_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"t": 1})
    try:
        world.produce("0")
        assert list_tables(world.store) == []
        report = maintain(world.store)
        assert (report.tables, report.failed) == (None, ())
        asked: list[str] = []
        for method in ("get", "list"):
            monkeypatch.setattr(world.store.log.objects, method, asked.append)
        monkeypatch.setattr(world.store.log.objects, "get_many", lambda names: asked.extend(names) or [])
        assert not has_tables(world.store.log)
        assert asked == []
    finally:
        monkeypatch.undo()
        world.close()


def test_publishing_that_fails_stops_no_other_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("the store did not answer")

    monkeypatch.setattr(sys.modules["sparktxn.maintenance.maintain"], "publish_tables", failing)
    report = maintain(world.store)
    assert [failed.job for failed in report.failed] == ["tables"]
    assert report.tables is None
    assert report.vacuum is not None
