"""Catalogs of published tables: what is in the database, of which moment it is, and what is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparktxn import Store, open_table
from sparktxn.admin import AdminClient
from sparktxn.errors import CommandRefused, ConfigurationError
from sparktxn.maintenance import copy_store, export_ducklake, publish_tables
from sparktxn.values.fieldtypes import Columns
from tests.world import World, next_number

DELTA = {"table.formats": "delta"}


@pytest.fixture
def world() -> Iterator[World]:
    """A store with the tables ``one`` and ``two``, and a topic that is none."""
    made = World({"plain": 1})
    made.store.create_topic("one", 3, settings=DELTA)
    made.store.create_topic("two", 1, settings={"table.formats": "iceberg"})
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.ducklake"


def commit(world: World, *topics: str) -> None:
    """One transaction with a record in each topic."""
    producer = world.transactional(f"writer-{next_number()}")
    with producer.transaction():
        for topic in topics:
            producer.produce(topic, "x", partition=0)


def rows(file: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(file)) as database:
        return database.execute(query).fetchall()


def test_the_newest_versions_are_in_one_snapshot(world: World, file: Path) -> None:
    commit(world, "one", "two")
    world.produce("a", "b", topic="one", partition=2)
    entry = publish_tables(world.store, location="s3a://bucket/shop").entry
    report = export_ducklake(world.store, file)
    assert (report.file, report.entry) == (str(file), entry)
    assert [(each.topic, each.version, each.files, each.records) for each in report.tables] == [
        ("one", 0, 2, 3),
        ("two", 0, 1, 1),
    ]
    assert rows(file, "SELECT key, value FROM ducklake_metadata") == [
        ("version", "1.0"),
        ("created_by", "txnlog"),
        ("data_path", f"{file}.files/"),
        ("encrypted", "false"),
    ]
    assert rows(file, "SELECT snapshot_id, next_catalog_id, next_file_id FROM ducklake_snapshot") == [(entry, 3, 3)]
    assert rows(file, "SELECT table_id, table_name, begin_snapshot, end_snapshot FROM ducklake_table") == [
        (1, "one", entry, None),
        (2, "two", entry, None),
    ]
    files = "SELECT table_id, path, record_count, row_id_start FROM ducklake_data_file ORDER BY row_id_start, table_id"
    folders = [f"s3a://bucket/shop/topics/{name}-{world.topic_id(name)}/kafka_partition" for name in ("one", "two")]
    found = [(id_, path.rpartition("=")[0], count, start) for id_, path, count, start in rows(file, files)]
    assert found == [(1, folders[0], 1, 0), (2, folders[1], 1, 0), (1, folders[0], 2, 2 << 48)]
    paths = [path.rpartition("/")[2] for _, path, _, _ in rows(file, files)]
    assert sorted(paths) == sorted(
        path.rpartition("/")[2] for topic in ("one", "two") for path in open_table(world.store, topic).paths
    )
    assert rows(file, "SELECT * FROM ducklake_table_stats WHERE table_id = 1")[0][1:3] == (3, 3 << 48)
    columns = "SELECT column_name, column_type, parent_column FROM ducklake_column WHERE table_id = 2"
    assert rows(file, columns) == [
        ("key", "blob", None),
        ("value", "blob", None),
        ("headers", "list", None),
        ("element", "struct", 3),
        ("key", "varchar", 4),
        ("value", "blob", 4),
        ("timestamp", "timestamptz", None),
        ("offset", "int64", None),
        ("kafka_partition", "int32", None),
    ]
    skipped = "SELECT column_id, min_value, max_value FROM ducklake_file_column_stats WHERE data_file_id = 1"
    assert rows(file, skipped)[1:] == [(8, "0", "1"), (9, "2", "2")]


def test_no_further_snapshot_can_be_written(world: World, file: Path) -> None:
    publish_tables(world.store)
    export_ducklake(world.store, file)
    with (
        closing(sqlite3.connect(file)) as database,
        pytest.raises(sqlite3.IntegrityError, match="an export of a store: only its topics can be written"),
    ):
        database.execute("INSERT INTO ducklake_snapshot VALUES (100, '', 1, 1, 1)")


def test_each_export_of_the_same_versions_has_the_same_bytes(world: World, file: Path) -> None:
    commit(world, "one", "two")
    publish_tables(world.store)
    export_ducklake(world.store, file)
    first = file.read_bytes()
    file.unlink()
    commit(world, "one")
    export_ducklake(world.store, file)
    assert file.read_bytes() == first
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_columns_have_the_types_of_topics(world: World, file: Path) -> None:
    columns: Columns = (("n", "int8", False), ("d", "decimal128(9, 2)", True), ("m", "map<string, list<int64>>", True))
    world.store.create_topic("typed", 1, schema=columns, settings=DELTA)
    publish_tables(world.store)
    export_ducklake(world.store, file, ["typed"])
    shown = "SELECT column_id, column_name, column_type, nulls_allowed, parent_column FROM ducklake_column"
    assert rows(file, shown)[:7] == [
        (1, "n", "int8", 0, None),
        (2, "d", "decimal(9,2)", 1, None),
        (3, "m", "map", 1, None),
        (4, "key", "varchar", 1, 3),
        (5, "value", "list", 1, 3),
        (6, "element", "int64", 1, 5),
        (7, "_timestamp", "timestamptz", 0, None),
    ]
    names = "SELECT source_name, target_field_id, is_partition FROM ducklake_name_mapping"
    assert [row for row in rows(file, names) if row[0] == "list" or row[2]] == [
        ("list", 6, 0),
        ("kafka_partition", 9, 1),
    ]


def test_a_file_that_exists_is_left_alone(world: World, file: Path, tmp_path: Path) -> None:
    publish_tables(world.store)
    file.write_text("other")
    with pytest.raises(ConfigurationError, match=r"shop.ducklake' exists: an export makes a new catalog"):
        export_ducklake(world.store, file)
    assert file.read_text() == "other"
    with pytest.raises(ConfigurationError, match=r"folder '.*/missing' does not exist: make it"):
        export_ducklake(world.store, tmp_path / "missing" / "file")
    with pytest.raises(ConfigurationError, match="cannot be written: File name too long"):
        export_ducklake(world.store, file.with_name("x" * 300))
    with pytest.raises(ConfigurationError, match=r"file has NUL at position 1 of .*: no path has it"):
        export_ducklake(world.store, "a\0b")


def test_versions_that_are_not_of_one_moment_are_refused(world: World, file: Path) -> None:
    publish_tables(world.store)
    commit(world, "one", "two")
    publish_tables(world.store, ["one"])
    with pytest.raises(ConfigurationError, match=r"'two' is published up to entry \d+, and topic 'one' up to .* both"):
        export_ducklake(world.store, file)
    assert not file.exists()
    assert export_ducklake(world.store, file, ["two"]).tables[0].records == 0
    file.unlink()
    publish_tables(world.store)
    assert [table.records for table in export_ducklake(world.store, file).tables] == [1, 1]


def test_a_table_without_new_records_is_of_a_later_moment_too(world: World, file: Path) -> None:
    publish_tables(world.store)
    commit(world, "one")
    entry = publish_tables(world.store).entry
    report = export_ducklake(world.store, file)
    assert report.entry == entry
    assert [(table.topic, table.version) for table in report.tables] == [("one", 1), ("two", 0)]


def test_what_has_no_version_is_refused(world: World, file: Path) -> None:
    with pytest.raises(ConfigurationError, match="no topic has a published version: txnlog tables publish --apply"):
        export_ducklake(world.store, file)
    publish_tables(world.store, ["one"])
    assert [table.topic for table in export_ducklake(world.store, file).tables] == ["one"]
    file.unlink()
    for topic, message in (
        ("plain", "is not a table: set its table.formats"),
        ("two", "has no published version: txn"),
    ):
        with pytest.raises(ConfigurationError, match=f"topic '{topic}' {message}"):
            export_ducklake(world.store, file, ["one", topic])
    with pytest.raises(CommandRefused, match="topic 'three' does not exist"):
        export_ducklake(world.store, file, ["three"])
    world.store.create_topic("ONE", 1, settings=DELTA)
    publish_tables(world.store)
    with pytest.raises(ConfigurationError, match="topics 'ONE' and 'one' are one table to DuckDB: name the ones"):
        export_ducklake(world.store, file)
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        admin.delete_topics(["ONE"])["ONE"].result()
    assert [table.topic for table in export_ducklake(world.store, file).tables] == ["one", "two"]


def test_a_copy_publishes_before_it_is_exported(tmp_path: Path, file: Path) -> None:
    with Store.open(tmp_path / "store", create=True) as store:
        store.create_topic("one", 1, schema=pa.schema([("id", pa.int64())]), settings=DELTA)
        publish_tables(store)
        copy_store(store, str(tmp_path / "copy"))
    with Store.open(tmp_path / "copy") as copied:
        with pytest.raises(ConfigurationError, match="topic 'one' was not published since the store was copied: txn"):
            export_ducklake(copied, file)
        publish_tables(copied)
        assert export_ducklake(copied, file).tables[0].version == 1
