"""Formats of a table that are switched off and on, and processes that cannot write one of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparktxn import Producer, Store
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from sparktxn.errors import ConfigurationError, StoreUnavailable, extra_to_install
from sparktxn.maintenance import RefusedTable, publish_tables, vacuum, verify
from sparktxn.maintenance.publishing import publish as publishing
from tests.deltareader import DeltaVersions
from tests.icebergreader import IcebergVersions

FAST = {"store.fsync": False}
NOW = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}
FOLDER = "topics/one-1/"
NEEDS = f"table.formats=iceberg needs the package 'fastavro': {extra_to_install('iceberg')}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store", create=True, options=FAST) as made:
        made.create_topic("one", settings={"table.formats": "delta,iceberg"})
        yield made


def alter(store: Store, topic: str = "one", **settings: str) -> None:
    """Change settings of a topic; an empty text deletes one."""
    with AdminClient({"bootstrap.servers": store.uri, **FAST}) as admin:
        entries = [
            ConfigEntry(
                name.replace("_", "."),
                value or None,
                incremental_operation=AlterConfigOpType.SET if value else AlterConfigOpType.DELETE,
            )
            for name, value in settings.items()
        ]
        resource = ConfigResource("topic", topic, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result()


def commit(store: Store, *topics: str) -> None:
    with Producer({"bootstrap.servers": store.uri, **FAST}) as producer:
        for topic in topics or ("one",):
            producer.produce(topic, b"value")


def published(store: Store, formats: str) -> int:
    """The version that a record more makes, in some formats."""
    alter(store, table_formats=formats)
    commit(store)
    (table,) = publish_tables(store).tables
    return table.version


def vacuum_all(store: Store) -> list[str]:
    for _ in range(2):
        commit(store)
        store.log.checkpoint()
    vacuum(store, NOW)
    return [info.name.removeprefix(FOLDER) for info in store.log.objects.list(FOLDER)]


def test_versions_of_a_format_have_gaps(store: Store) -> None:
    for formats in ("delta,iceberg", "delta", "iceberg", "delta,iceberg", "iceberg", "delta", "delta,iceberg"):
        published(store, formats)
        assert verify(store).problems == ()
    delta, iceberg = DeltaVersions(store.log.objects, FOLDER), IcebergVersions(store.log.objects, FOLDER)
    # The snapshots from before a gap are in the newest metadata, too.
    assert iceberg.readable(6) == [0, 2, 3, 4, 6]
    assert [version for version in range(7) if delta.exists(version)] == [0, 1, 3, 5, 6]
    for version in range(7):
        assert not delta.exists(version) or len(delta.rows(version)) == version + 1
    assert {
        version: sum(rows for _, rows in iceberg.files(version, 6).values()) for version in iceberg.readable(6)
    } == {version: version + 1 for version in (0, 2, 3, 4, 6)}
    assert vacuum_all(store)
    assert iceberg.readable(6) == [0, 2, 3, 4, 6]
    assert verify(store).problems == ()


def test_a_vacuum_goes_by_the_oldest_version_that_a_format_has(store: Store) -> None:
    for formats in ("delta,iceberg", "delta,iceberg", "delta"):
        published(store, formats)
    alter(store, table_history_ms="0")
    published(store, "delta")
    assert published(store, "delta,iceberg") == 4
    alter(store, table_history_ms="86400000")
    left = vacuum_all(store)
    # The oldest promised version is 3: Iceberg's oldest one is above it.
    assert [name for name in left if "metadata.json" in name or "snap-" in name] == [
        "metadata/snap-5.avro",
        "metadata/v5.metadata.json",
    ]
    assert [version for version in range(5) if f"_delta_log/{version:020}.json" in left] == [3, 4]
    assert verify(store).problems == ()


@pytest.mark.parametrize(("kept", "gone"), [("delta", "iceberg"), ("iceberg", "delta")])
def test_a_format_that_is_off_goes_with_its_last_version(store: Store, kept: str, gone: str) -> None:
    folder = {"delta": "_delta_log/", "iceberg": "metadata/"}[gone]
    published(store, "delta,iceberg")
    published(store, kept)
    before = vacuum_all(store)
    assert [name for name in before if name.startswith(folder)]
    alter(store, table_history_ms="0")
    for _ in range(3):
        published(store, kept)
    assert not [name for name in vacuum_all(store) if name.startswith(folder)]
    assert verify(store).problems == ()
    assert published(store, "delta,iceberg") == 5
    assert verify(store).problems == ()
    assert len(DeltaVersions(store.log.objects, FOLDER).rows(5)) > 5


def test_a_format_that_is_switched_on_is_published_without_a_new_record(store: Store) -> None:
    assert published(store, "delta") == 0
    assert publish_tables(store).tables == ()
    alter(store, table_formats="delta,iceberg")
    (foreseen,) = publish_tables(store, dry_run=True).tables
    (table,) = publish_tables(store).tables
    assert (foreseen.version, table.version, table.added_files) == (1, 1, 0)
    assert IcebergVersions(store.log.objects, FOLDER).readable(1) == [1]
    assert publish_tables(store).unchanged == ("one",)
    alter(store, table_formats="iceberg")
    assert publish_tables(store).unchanged == ("one",)


def test_a_version_is_finished_though_its_topic_is_no_table_any_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(store)

    def die(*_: object) -> None:
        raise StoreUnavailable("the publisher has died")

    with monkeypatch.context() as patched:
        patched.setattr(publishing, "write_metadata", die)
        with pytest.raises(StoreUnavailable):
            publish_tables(store)
    alter(store, table_formats="")
    assert publish_tables(store).tables == ()
    assert len(DeltaVersions(store.log.objects, FOLDER).rows(0)) == 1
    assert IcebergVersions(store.log.objects, FOLDER).readable(0) == [0]


@pytest.fixture
def without_fastavro(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name == "fastavro" or name.startswith(("fastavro.", "sparktxn._rows.tableformats.iceberg")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastavro", None)


@pytest.mark.usefixtures("without_fastavro")
def test_a_process_without_a_formats_package_publishes_the_other_topics(store: Store) -> None:
    store.create_topic("other", settings={"table.formats": "delta"})
    commit(store, "one", "other")
    entry = store.log.refresh()
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError) as refused:
            publish_tables(store, ["one"], dry_run=dry_run)
        assert refused.value.args[0].str() == f"topic 'one': {NEEDS}"
        with pytest.raises(ConfigurationError):
            publish_tables(store, ["other", "one"], dry_run=dry_run)
    assert store.log.refresh() == entry
    assert [table.topic for table in publish_tables(store, dry_run=True).tables] == ["other"]
    report = publish_tables(store)
    assert [table.topic for table in report.tables] == ["other"]
    assert report.refused == (RefusedTable("one", f"topic 'one': {NEEDS}"),)
    assert not store.log.objects.list(f"{FOLDER}metadata/")
    alter(store, "other", table_formats="")
    with pytest.raises(ConfigurationError, match="pip install"):
        publish_tables(store)


def test_what_another_process_cannot_write_does_not_stop_it(store: Store, request: pytest.FixtureRequest) -> None:
    store.create_topic("other", settings={"table.formats": "delta"})
    commit(store, "one", "other")
    publish_tables(store)
    request.getfixturevalue("without_fastavro")
    commit(store, "one", "other")
    assert [table.version for table in publish_tables(store).tables] == [1]
    # Without Iceberg the topic is published here, too.
    assert published(store, "delta") == 1
    deleted = store.log.objects.list(f"{FOLDER}metadata/")
    store.log.objects.delete([info.name for info in deleted])
    commit(store, "one", "other")
    assert len(publish_tables(store).tables) == 2
