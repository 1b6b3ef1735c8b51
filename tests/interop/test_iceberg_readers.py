"""pyiceberg and DuckDB read each version of a topic's Iceberg table (`make interop`)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sparktxn._engine.format.names import PARTITION_COLUMN
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._rows.tableformats import iceberg
from sparktxn._rows.tableformats.version import TableFile, TableVersion
from tests.everytype import EVERY_TYPE, FULL_ROW
from tests.interop.engines import Engine
from tests.livedhistory import place_of
from tests.mergedfiles import START, merged_file, milliseconds

pytestmark = pytest.mark.interop

READERS = pytest.mark.parametrize("reader", ["pyiceberg", "duckdb"])

NUMBERS: Columns = (("number", "int64", True),)


@dataclass
class Topic:
    """A topic's folder, whose versions are published as an Iceberg table."""

    folder: Path
    columns: Columns | None = None
    versions: list[list[dict[str, Any]]] = field(default_factory=list)
    _rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _written: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _ends: dict[int, int] = field(default_factory=dict)

    @property
    def location(self) -> str:
        return f"file://{self.folder}"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What the newest version has, in the order of partitions and offsets."""
        return sorted((row for rows in self._rows.values() for row in rows), key=place_of)

    def file(self, partition: int, rows: Iterable[dict[str, Any]], *, is_rewrite: bool = False) -> TableFile:
        """Write a file of the next offsets of a partition; every third one has no record."""
        base = self._ends.get(partition, 0)
        name = f"{base:020d}-{len(self._written):020d}.offsets.parquet"
        file, written = merged_file(self.folder, name, self.columns, partition, base, rows, changes_data=not is_rewrite)
        self._ends[partition] = file.offset_max + 1
        self._written[file.path] = written
        return file

    def publish(self, *added: TableFile, removed: Iterable[TableFile] = (), first: int = 0, **changes: Any) -> None:
        """Write the next version."""
        number, removed = len(self.versions), tuple(removed)
        for each in removed:
            del self._rows[each.path]
        self._rows |= {each.path: self._written[each.path] for each in added}
        values: dict[str, Any] = {
            "topic": "orders",
            "topic_id": 1,
            "table_id": "3f7ad9b2-6c6e-5f0e-9c0b-6a5d7a5e8f10",
            "location": self.location,
            "columns": self.columns,
            "is_new_schema": number == 0,
            "version": number,
            "entry": 10 * number + 7,
            "published_entry": 10 * number + 9,
            "timestamp_ms": milliseconds(START) + 1000 * number,
            "added": added,
            "removed": removed,
        }
        version = TableVersion(**values | changes)
        previous = json.loads(self.read(iceberg.metadata_name(number - 1))) if number else None
        for name, data in iceberg.publication(version, previous, self.read, first=first):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(data)
        (self.folder / iceberg.VERSION_HINT).write_bytes(iceberg.version_hint(number))
        self.versions.append(self.rows)

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def request(self, what: str, version: int | None = None, *, where: str = "", snapshot: int | None = None) -> Any:
        """Describe a read of a version's metadata, the newest its if it is None; `snapshot` is a version in it."""
        number = len(self.versions) - 1 if version is None else version
        metadata = f"{self.location}/{iceberg.metadata_name(number)}"
        chosen = None if snapshot is None else snapshot + 1
        return {"what": what, "metadata": metadata, "where": where, "snapshot": chosen}


def _records(*keys: bytes) -> list[dict[str, Any]]:
    return [{"key": key, "value": b"value", "headers": [{"key": "h", "value": None}]} for key in keys]


def answers(engines: Engine, *requests: dict[str, Any]) -> list[Any]:
    return engines.ask_all(requests)


@READERS
def test_readers_see_the_records_of_each_version(tmp_path, engines, reader):
    topic = Topic(tmp_path)
    topic.publish()
    first = topic.file(0, _records(b"a", b"b", b"c"))
    second = topic.file(1, _records(b"d"))
    topic.publish(first, second)
    topic.publish(topic.file(0, _records(b"e")), topic.file(12, _records(b"f")), removed=[first])
    topic.publish()
    topic.publish(removed=[second])
    assert [len(rows) for rows in topic.versions] == [0, 4, 3, 3, 2]
    own = [topic.request(reader, version) for version in range(5)]
    travelled = [topic.request(reader, snapshot=version) for version in range(5)]
    found = answers(engines, *own, *travelled)
    assert found[:5] == topic.versions
    assert found[5:] == topic.versions


@READERS
def test_readers_see_values_of_every_type(tmp_path, engines, reader):
    topic = Topic(tmp_path, columns=EVERY_TYPE)
    topic.publish(topic.file(3, [FULL_ROW, {"long": 0}]))
    assert answers(engines, topic.request(reader)) == [topic.rows]
    assert topic.rows[0].items() >= FULL_ROW.items()


def test_readers_have_the_types_of_the_table(tmp_path, engines):
    topic = Topic(tmp_path, columns=(("byte", "int8", True), ("local", "timestamp[us]", True)))
    topic.publish(topic.file(0, [{"byte": 1}]))
    assert answers(engines, topic.request("described")) == [
        [
            [
                "4: byte: optional int",
                "5: local: optional timestamp",
                "1: _timestamp: required timestamptz",
                "2: _offset: required long",
                "3: kafka_partition: optional int",
            ],
            [
                "byte INTEGER",
                "local TIMESTAMP",
                "_timestamp TIMESTAMP WITH TIME ZONE",
                "_offset BIGINT",
                "kafka_partition INTEGER",
            ],
        ]
    ]


@READERS
def test_a_column_that_is_declared_later_is_null_in_older_files(tmp_path, engines, reader):
    topic = Topic(tmp_path, columns=NUMBERS)
    topic.publish(topic.file(0, [{"number": 1}]))
    old = topic.rows
    topic.columns = (*NUMBERS, ("text", "string", True), ("s", "struct<a: list<int8>>", True))
    topic.publish(topic.file(0, [{"number": 2, "text": "x", "s": {"a": [1]}}]), is_new_schema=True)
    assert topic.rows[1].items() >= {"number": 2, "text": "x", "s": {"a": [1]}}.items()
    found = answers(engines, topic.request(reader, 0), topic.request(reader), topic.request(reader, snapshot=0))
    assert found == [old, [old[0] | {"text": None, "s": None}, topic.rows[1]], old]


@READERS
@pytest.mark.parametrize("name", ["offset", "a.b", "a b", "Größe", "a`b", 'a"b', "kafka_partition2"])
def test_readers_find_columns_of_any_name(tmp_path, engines, reader, name):
    topic = Topic(tmp_path, columns=((name, "int64", True), ("s", "struct<b: int64>", True)))
    topic.publish(topic.file(0, [{name: 1, "s": {"b": 2}}, {}]))
    assert answers(engines, topic.request(reader)) == [topic.rows]


@READERS
def test_readers_see_merged_manifests(tmp_path, engines, reader):
    topic = Topic(tmp_path)
    files = [topic.file(number % 3, _records(str(number).encode())) for number in range(20)]
    for file in files:
        topic.publish(file)
    topic.publish(removed=files[5:9])
    assert sum(len(rows) for rows in topic.versions) == 226
    requests = [topic.request(reader, snapshot=version) for version in range(21)]
    assert answers(engines, *requests) == topic.versions


@READERS
def test_readers_see_the_versions_that_are_kept(tmp_path, engines, reader):
    topic = Topic(tmp_path)
    files = [topic.file(0, _records(str(number).encode())) for number in range(12)]
    for number, file in enumerate(files):
        topic.publish(file, removed=files[number - 1 : number], first=min(number, 9))
    metadata = json.loads(topic.read(iceberg.metadata_name(11)))
    names = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    past = iceberg.past_names(names, metadata, 9, topic.read)
    assert len(past) > 20
    for name in past:
        (tmp_path / name).unlink()
    requests = [topic.request(reader, snapshot=version) for version in (9, 10, 11)]
    own = [topic.request(reader, version) for version in (9, 10, 11)]
    assert answers(engines, *requests, *own) == topic.versions[9:] * 2


def test_pyiceberg_opens_only_files_that_may_have_what_is_asked_for(tmp_path, engines):
    topic = Topic(tmp_path)
    files = [topic.file(number % 2, _records(b"a", b"b")) for number in range(8)]
    topic.publish(*sorted(files[:4], key=lambda file: file.path))
    topic.publish(*sorted(files[4:], key=lambda file: file.path))
    conditions = {
        "kafka_partition = 1": files[1::2],
        "offset >= 6": files[6:],
        "kafka_partition = 0 and offset < 3": files[0:3:2],
        "timestamp >= '2026-03-01T00:00:05.500+00:00'": files[6:],
        "offset is null": [],
    }
    requests = [topic.request("planned", where=where) for where in conditions]
    expected = [sorted(f"{topic.location}/{file.path}" for file in each) for each in conditions.values()]
    assert answers(engines, *requests) == expected


def test_duckdb_filters_by_partition_offset_and_time(tmp_path, engines):
    topic = Topic(tmp_path)
    files = [topic.file(number % 2, _records(b"a", b"b")) for number in range(8)]
    topic.publish(*files)
    where = "kafka_partition = 1 and \"offset\" >= 3 and timestamp < timestamptz '2026-03-01 00:00:07+00'"
    limit = START + timedelta(seconds=7)
    expected = [row for row in topic.rows if row["offset"] >= 3 and row["timestamp"] < limit]
    assert answers(engines, topic.request("duckdb", where=where)) == [
        [row for row in expected if row[PARTITION_COLUMN] == 1]
    ]
