"""Publishing topics as tables: what a version has, who is refused, and what goes on meanwhile."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparktxn import Producer, Store, read_task
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from sparktxn.errors import CommandRefused, ConfigurationError, DamagedObject, OutcomeUnknown, StoreUnavailable
from sparktxn.maintenance import copy_store, maintain, vacuum, verify
from sparktxn.maintenance.publishing import publish
from sparktxn.maintenance.publishing.background import Publisher, Rests
from sparktxn.maintenance.publishing.publish import PublishJob, publish_tables
from sparktxn.testing.clocks import ManualClock
from tests.deltareader import DeltaRow, DeltaVersions
from tests.icebergreader import IcebergVersions

FAST = {"store.fsync": False}
TABLE = {"table.formats": "delta,iceberg"}
NOW = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store", create=True, options=FAST) as made:
        for topic in ("one", "two"):
            made.create_topic(topic, 2, settings=TABLE)
        made.create_topic("plain", 2)
        yield made


def producer(store: Store, transactional_id: str) -> Producer:
    made = Producer({"bootstrap.servers": store.uri, "transactional.id": transactional_id, **FAST})
    made.init_transactions()
    return made


def commit(store: Store, topics: str | tuple[str, ...] = "one", records: int = 4, name: str = "job") -> None:
    with producer(store, name) as made:
        made.begin_transaction()
        for topic in (topics,) if isinstance(topics, str) else topics:
            for number in range(records):
                made.produce(topic, b"%d" % number, partition=number % 2)
        made.commit_transaction()


def versions(store: Store, topic: str = "one") -> DeltaVersions:
    (found,) = [each for each in store.topics() if each.name == topic]
    return DeltaVersions(store.log.objects, f"topics/{topic}-{found.topic_id}/")


def committed(store: Store, topic: str, entry: int | None = None) -> list[DeltaRow]:
    """What a read in commit order gives at an entry."""
    batches = (batch for task in store.plan_commits(store.view([topic], entry=entry), 0) for batch in read_task(task))
    rows = (row for batch in batches for row in batch.to_pylist())
    return sorted((topic, row["partition"], row["offset"], row["value"]) for row in rows)


def test_versions_of_several_topics_have_one_entry(store: Store) -> None:
    commit(store, ("one", "two", "plain"))
    report = publish_tables(store)
    assert [(table.topic, table.version, table.added_records) for table in report.tables] == [
        ("one", 0, 4),
        ("two", 0, 4),
    ]
    for topic in ("one", "two"):
        assert versions(store, topic).entry(0) == report.entry
        assert versions(store, topic).rows(0, topic) == committed(store, topic)
    commit(store, "two")
    later = publish_tables(store)
    assert [(table.topic, table.version) for table in later.tables] == [("two", 1)]
    assert later.unchanged == ("one",)


def test_what_is_open_or_aborted_is_in_no_version_and_holds_none_back(store: Store) -> None:
    with producer(store, "open") as still_open, producer(store, "prepared") as prepared:
        for each in (still_open, prepared):
            each.begin_transaction()
            each.produce("one", b"hidden", partition=0)
            each.flush()
        prepared.prepare_transaction()
        commit(store)
        with producer(store, "aborted") as aborted:
            aborted.begin_transaction()
            aborted.produce("one", b"hidden", partition=0)
            aborted.flush()
            aborted.abort_transaction()
        commit(store)
        publish_tables(store)
        assert len(versions(store).rows(0, "one")) == 8
        assert versions(store).rows(0, "one") == committed(store, "one")
        still_open.commit_transaction()
        (table,) = publish_tables(store).tables
        assert (table.added_records, table.removed_files) == (1, 0)
        assert versions(store).rows(1, "one") == committed(store, "one")


def test_a_hint_of_iceberg_that_the_store_refuses_is_written_by_the_next_call(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers by the hint would see an older version until there is another one."""
    hint = "topics/one-1/metadata/version-hint.text"
    commit(store)
    publish_tables(store)
    commit(store)
    put = type(store.log.objects).put

    def refuse(self: Any, name: str, data: bytes) -> None:
        if name == hint:
            raise StoreUnavailable("rateLimitExceeded (HTTP 429)")
        put(self, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(type(store.log.objects), "put", refuse)
        with pytest.raises(StoreUnavailable):
            publish_tables(store)
    assert store.log.objects.get(hint) == b"1"
    publish_tables(store)
    assert store.log.objects.get(hint) == b"2"


def test_a_large_write_is_written_once_more_with_its_offsets(store: Store) -> None:
    values = pa.table({"value": pa.array([b"%d" % number for number in range(5_000)], pa.binary())})
    with producer(store, "bulk") as bulk:
        bulk.begin_transaction()
        bulk.produce_arrow("one", values, 1)
        bulk.commit_transaction()
    (table,) = publish_tables(store, ["one"]).tables
    assert table.added_records == 5_000
    assert versions(store).rows(0, "one") == committed(store, "one")


def test_a_dry_run_writes_nothing(store: Store) -> None:
    commit(store)
    before = (store.log.refresh(), [info.name for info in store.log.objects.list("topics/")])
    report = publish_tables(store, dry_run=True)
    assert [(table.topic, table.version, table.added_records) for table in report.tables] == [
        ("one", 0, 4),
        ("two", 0, 0),
    ]
    assert (store.log.refresh(), [info.name for info in store.log.objects.list("topics/")]) == before


def test_a_topic_that_is_no_table_is_refused(store: Store) -> None:
    with pytest.raises(ConfigurationError, match=r"'plain' is not a table: set its table\.formats"):
        publish_tables(store, ["plain"])
    with pytest.raises(CommandRefused, match="missing"):
        publish_tables(store, ["missing"])


def test_a_store_without_tables_gets_no_entry(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", create=True, options=FAST) as store:
        store.create_topic("plain")
        before = store.log.refresh()
        assert publish_tables(store).tables == ()
        assert store.log.refresh() == before
        assert store.log.store_state().reader_features == ()


def test_the_location_is_what_the_log_says_from_the_first_version_on(store: Store) -> None:
    commit(store)
    publish_tables(store, ["one"], location="s3a://bucket/shop/")
    commit(store)
    publish_tables(store)
    with store.log.known() as state:
        assert [table.location for table in state.tables()] == [
            "s3a://bucket/shop/topics/one-1",
            f"file://{store.uri}/topics/two-2",
        ]


def test_a_copy_publishes_anew_where_it_is(store: Store, tmp_path: Path) -> None:
    for _ in range(3):
        commit(store)
        publish_tables(store)
    copy_store(store, str(tmp_path / "copy"))
    with Store.open(tmp_path / "copy", options=FAST) as copied:
        assert versions(copied).readable() == []
        (one, two) = publish_tables(copied).tables
        assert (one.version, two.version) == (3, 1)
        commit(copied)
        publish_tables(copied)
        assert versions(copied).readable() == [3, 4]
        assert versions(copied).rows(4, "one") == committed(copied, "one")
        iceberg = IcebergVersions(copied.log.objects, "topics/one-1/")
        assert iceberg.metadata(4)["location"] == f"file://{tmp_path}/copy/topics/one-1"
        assert iceberg.files(4, 4) == versions(copied).files(4)
        assert publish_tables(copied).tables == ()
        assert verify(copied).problems == ()
    assert versions(store).readable() == [0, 1, 2]


def test_a_topic_that_becomes_a_table_of_another_format_later_begins_there(store: Store) -> None:
    """Its oldest version that is kept has no commit: each publication but the first one called that damage."""
    alter(store, "table.formats", "iceberg")
    alter(store, "table.history.ms", "0")
    for _ in range(3):
        commit(store)
        publish_tables(store, ["one"])
    alter(store, "table.history.ms", "600000")
    alter(store, "table.formats", "delta,iceberg")
    for _ in range(3):
        commit(store)
        publish_tables(store, ["one"])
    with store.log.known() as state:
        assert state.tables()[0].kept[0].version == 1
    assert versions(store).readable() == [3, 4, 5]
    assert versions(store).rows(5, "one") == committed(store, "one")
    assert verify(store).problems == ()


def hints(store: Store) -> tuple[int, int]:
    """The versions that the hints of Delta and Iceberg name, whose objects are there."""
    objects, folder = store.log.objects, "topics/one-1/"
    found = [
        objects.get(folder + name) or b"" for name in ("_delta_log/_last_checkpoint", "metadata/version-hint.text")
    ]
    checkpoint, snapshot = json.loads(found[0])["version"], int(found[1])
    assert objects.get(f"{folder}_delta_log/{checkpoint:020}.checkpoint.parquet") is not None
    assert objects.get(f"{folder}metadata/v{snapshot}.metadata.json") is not None
    return checkpoint, snapshot - 1


@pytest.mark.parametrize("hint", ["_last_checkpoint", "version-hint.text"])
def test_a_hint_that_a_publisher_has_not_written_is_written_by_the_next(
    store: Store, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vacuum meanwhile deletes nothing that the older hint names."""

    def put(name: str, data: bytes) -> None:
        if name.endswith(hint):
            raise RuntimeError("the publisher dies here")
        written(name, data)

    written = store.log.objects.put
    alter(store, "table.history.ms", "0")
    for _ in range(3):
        commit(store)
        publish_tables(store, ["one"])
    assert hints(store) == (1, 2)
    for _ in range(2):
        commit(store)
        with monkeypatch.context() as patched:
            patched.setattr(store.log.objects, "put", put)
            with pytest.raises(RuntimeError, match="dies here"):
                publish_tables(store, ["one"])
        vacuum_twice(store)
        hints(store)
    publish_tables(store, ["one"])
    vacuum_twice(store)
    newest = versions(store).readable()[-1]
    assert hints(store) == (newest - 1, newest)
    assert versions(store).readable() == [newest - 1, newest]


def test_a_hint_that_comes_late_is_put_right_by_its_writer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names what a vacuum has deleted since: an engine that goes by it would find nothing."""

    def put(name: str, data: bytes) -> None:
        if name.endswith(("_last_checkpoint", "version-hint.text")) and not late:
            late.append(name)
            with Store.open(store.uri, options={**FAST, "checkpoint.fold.bytes.per.minute": 0}) as other:
                for _ in range(2):
                    commit(other)
                    publish_tables(other, ["one"])
                vacuum_twice(other)
        written(name, data)

    written, late = store.log.objects.put, list[str]()
    alter(store, "table.history.ms", "0")
    for number in range(3):
        commit(store)
        if number == 2:
            monkeypatch.setattr(store.log.objects, "put", put)
        publish_tables(store, ["one"])
    assert late == ["topics/one-1/_delta_log/_last_checkpoint"]
    assert hints(store) == (3, 4)


def alter(store: Store, name: str, value: str) -> None:
    """Set a setting of the topic."""
    with AdminClient({"bootstrap.servers": store.uri, **FAST}) as admin:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("topic", "one", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result()


def vacuum_twice(store: Store) -> None:
    """Delete what may go, at once: a horizon is a checkpoint below the newest one."""
    for _ in range(2):
        commit(store)
        store.log.checkpoint()
    vacuum(store, NOW)


def test_columns_that_iceberg_takes_for_one_are_refused(store: Store) -> None:
    columns = pa.schema([("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64())]))])
    store.create_topic("mixed", schema=columns, settings=TABLE)
    with pytest.raises(
        ConfigurationError, match=r"'mixed': it cannot be an Iceberg table: two columns or fields are called 'a\.b'"
    ):
        publish_tables(store, ["mixed"])


def test_maintenance_leaves_each_version_readable(store: Store) -> None:
    expected: dict[tuple[str, int], list[DeltaRow]] = {}
    for number in range(6):
        commit(store, ("one", "two"))
        if number % 2:
            publish_tables(store)
        maintain(store, {"rewrite.min.segments": 2, **NOW})
        publish_tables(store)
        for topic in ("one", "two"):
            for version in versions(store, topic).readable():
                expected.setdefault((topic, version), committed(store, topic))
        store.log.checkpoint()
    vacuum(store, NOW)
    assert len(expected) > 12
    for (topic, version), rows in expected.items():
        assert versions(store, topic).rows(version, topic) == rows
    assert verify(store).problems == ()


def test_a_publisher_beside_writers_shows_whole_transactions(store: Store) -> None:
    ends = threading.Event()

    def write() -> None:
        number = 0
        while not ends.is_set():
            commit(store, ("one", "two"), 2, f"writer {number % 3}")
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        published = [publish_tables(store) for _ in range(6)]
    finally:
        ends.set()
        writer.join()
    assert not any(report.overtaken for report in published)
    for topic in ("one", "two"):
        found = versions(store, topic)
        for version in found.readable():
            assert found.rows(version, topic) == committed(store, topic, found.entry(version))
    one, two = versions(store, "one"), versions(store, "two")
    for version in set(one.readable()) & set(two.readable()):
        if one.entry(version) == two.entry(version):
            assert len(one.rows(version, "one")) == len(two.rows(version, "two"))


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_topic_may_be_deleted_while_an_entry_is_chosen(
    store: Store, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    commit(store, ("one", "two"))
    seen_by = "view" if dry_run else "known_view"
    view, deleted = getattr(store.log, seen_by), list[object]()

    def after_a_deletion(topics: list[str]) -> object:
        if not deleted:
            with AdminClient({"bootstrap.servers": store.uri, **FAST}) as admin:
                deleted.append(admin.delete_topics(["one"])["one"].result())
        return view(topics)

    monkeypatch.setattr(store.log, seen_by, after_a_deletion)
    assert [table.topic for table in publish_tables(store, dry_run=dry_run).tables] == ["two"]


@pytest.fixture
def clock(store: Store) -> ManualClock:
    """The clock of the store's publishers; entries have the machine's times."""
    store.log.clock = clock = ManualClock(time.time())
    return clock


def test_a_process_publishes_what_lags_behind(store: Store, clock: ManualClock) -> None:
    publisher = Publisher(store.log)
    commit(store)
    assert 50 < publisher.step() <= 61, "the first version of each, at once"
    assert versions(store).rows(0, "one") == committed(store, "one")
    assert versions(store, "two").readable() == [0]
    commit(store)
    assert 0 < publisher.step() <= 61
    assert versions(store).readable() == [0], "it may lag by a minute"
    clock.sleep(61)
    publisher.step()
    assert versions(store).rows(1, "one") == committed(store, "one")
    assert versions(store, "two").readable() == [0], "nothing is new"


def test_a_process_leaves_alone_what_another_has_just_published(store: Store, clock: ManualClock) -> None:
    commit(store, ("one", "two"))
    publish_tables(store)
    commit(store, ("one", "two"))
    assert 0 < Publisher(store.log).step() <= 61
    assert versions(store).readable() == [0]


def test_a_process_with_nothing_new_asks_for_nothing(store: Store, clock: ManualClock) -> None:
    publisher = Publisher(store.log)
    commit(store, ("one", "two"))
    publisher.step()
    clock.sleep(61)
    assert publisher.step() == 60
    before = store.log.refresh()
    clock.sleep(61)
    assert publisher.step() == 60
    assert store.log.refresh() == before


def test_an_error_leaves_the_tables_for_a_while(
    store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    commit(store)
    store.log.objects.put_if_absent(f"topics/one-1/_delta_log/{0:020}.json", b"{}")
    publisher = Publisher(store.log)
    assert publisher.step() == 60
    assert "it is not version 0 of the table" in caplog.text


def test_a_long_publication_goes_on_with_its_entry(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a writer that commits more than a publication writes meanwhile would have no version, ever."""
    monkeypatch.setattr(Rests, "rest", lambda _: clock.sleep(70))
    publisher = Publisher(store.log)
    commit(store)
    expected, rewritten = committed(store, "one"), []
    for _ in range(2):
        assert publisher.step() == 0, "each partition's file takes longer than a step begins files"
        view = store.view(["one"])
        rewritten.append(sum(len(view.partitions["one", number].rewritten) for number in range(2)))
        assert not versions(store).readable()
        commit(store)
    assert 0 < publisher.step() <= 61
    assert rewritten == [1, 2], "what is done is in the log"
    assert versions(store).rows(0, "one") == expected
    assert versions(store).readable() == [0]
    assert not caplog.records


def test_a_vacuum_between_two_steps_takes_nothing_of_a_publication(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher(store.log)
    commit(store)
    with monkeypatch.context() as patched:
        patched.setattr(Rests, "rest", lambda _: clock.sleep(70))
        assert publisher.step() == 0
    expected = committed(store, "one")
    for _ in range(3):
        commit(store)
        store.log.checkpoint()
        vacuum(store, NOW)
    while publisher.step() == 0:
        pass
    assert versions(store).rows(0, "one") == expected
    assert not verify(store).problems
    clock.sleep(61)
    publisher.step()
    assert versions(store).rows(1, "one") == committed(store, "one")
    assert not verify(store).problems


def test_a_publication_that_fails_begins_anew_with_less(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher(store.log)
    commit(store)
    with monkeypatch.context() as patched:
        patched.setattr(Rests, "rest", lambda _: clock.sleep(70))
        assert publisher.step() == 0
        patched.setattr(publish, "do_tasks", unavailable)
        assert publisher.step() == 60
    commit(store)
    assert PublishJob(store.log).foreseen().tables[0].added_records == 6, "two are in a file"
    expected = committed(store, "one")
    assert 0 < publisher.step() <= 61
    assert versions(store).rows(0, "one") == expected


def unavailable(*_: object) -> None:
    raise StoreUnavailable("the store does not answer")


def test_a_process_that_folds_publishes(tmp_path: Path) -> None:
    options = {**FAST, "checkpoint.entries": 4}
    with Store.open(tmp_path / "store", create=True, options=options) as store:
        store.create_topic("one", 2, settings=TABLE)
        deadline_s = time.monotonic() + 120
        with Producer({"bootstrap.servers": store.uri, "transactional.id": "job", **options}) as job:
            job.init_transactions()
            while not versions(store).readable() and time.monotonic() < deadline_s:
                job.begin_transaction()
                job.produce("one", b"value")
                job.commit_transaction()
        assert versions(store).readable()[0] == 0


@pytest.mark.parametrize("location", ["", "bucket/shop", "shop"])
def test_a_location_is_a_whole_address(store: Store, location: str) -> None:
    commit(store)
    before = store.log.refresh()
    with pytest.raises(ConfigurationError, match="location"):
        publish_tables(store, location=location)
    assert store.log.refresh() == before


def test_after_a_time_out_nothing_is_published(store: Store) -> None:
    commit(store)
    with pytest.raises((StoreUnavailable, OutcomeUnknown)):
        publish_tables(store, timeout_s=0.0)
    assert versions(store).readable() == []
    with store.log.known() as state:
        assert state.tables() == []


@pytest.mark.parametrize("data", [b"[]", b"{}", b'"text"', b'{"location": 1}', b"\xff"])
def test_metadata_that_says_something_else_is_damage(store: Store, data: bytes) -> None:
    commit(store)
    publish_tables(store)
    name = "topics/one-1/metadata/v1.metadata.json"
    store.log.objects.delete([name])
    store.log.objects.put_if_absent(name, data)
    commit(store)
    if data == b'{"location": 1}':
        publish_tables(store)
        assert IcebergVersions(store.log.objects, "topics/one-1/").readable(1) == [1], "that of another place"
        return
    with pytest.raises(DamagedObject, match=r"v2\.metadata\.json"):
        publish_tables(store)
