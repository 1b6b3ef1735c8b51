"""Versions of tables have bounds of columns, by which delta-rs skips files: it finds what the topic has."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from sparktxn import Producer, Store, TopicPartition
from sparktxn._rows.tableformats import delta
from sparktxn.admin.records import delete_records
from sparktxn.maintenance import list_tables, publish_tables, verify
from sparktxn.maintenance.publishing import tableobjects

PROPERTY = "delta.dataSkippingStatsColumns"
COLUMNS = pa.schema([("id", pa.int64()), ("zone", pa.string()), ("fare", pa.float64())])
ROWS: list[dict[str, Any]] = [{"id": 1, "zone": "a", "fare": 1.5}, {"id": 2, "zone": "b", "fare": 2.5}, {"id": 3}]


class Rides:
    """A topic that is a Delta table, and what its readers find."""

    def __init__(self, address: str, store: Store) -> None:
        self._address, self.store = address, store
        store.create_topic("rides", 1, schema=COLUMNS, settings={"table.formats": "delta,iceberg"})

    def publish(self, rows: list[dict[str, Any]], schema: pa.Schema = COLUMNS) -> None:
        with Producer({"bootstrap.servers": self._address}) as producer:
            producer.produce_arrow("rides", pa.Table.from_pylist(rows, schema))
            producer.flush()
        publish_tables(self.store)

    def publish_as_earlier(self, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]) -> None:
        """Publish as a version of this package did that had bounds of two columns."""
        with monkeypatch.context() as earlier:
            earlier.setattr(delta, "commit", lambda version, *_: delta.earlier_commit(version))
            made = partial(tableobjects.iceberg_objects, is_earlier=True)
            earlier.setattr(tableobjects, "iceberg_objects", made)
            self.publish(rows)

    def problems(self) -> list[str]:
        return [str(problem) for problem in verify(self.store).problems]

    @property
    def location(self) -> str:
        (table,) = list_tables(self.store, ["rides"])
        assert table.location is not None
        return table.location

    def found(self, column: str, value: Any, version: int | None = None) -> list[int]:
        """How many rows each way of delta-rs finds that have at least a value."""
        table = DeltaTable(self.location, version=version)
        filters = [(column, ">=", value)]
        return [
            len(table.to_pandas(filters=filters)),
            table.to_pyarrow_table(filters=filters).num_rows,
            table.to_pyarrow_dataset().to_table(filter=pc.field(column) >= value).num_rows,
        ]

    def nulls(self, column: str) -> int:
        found: int = DeltaTable(self.location).to_pyarrow_dataset().to_table(filter=pc.field(column).is_null()).num_rows
        return found

    def iceberg(self) -> StaticTable:
        (table,) = list_tables(self.store, ["rides"])
        assert table.version is not None
        return StaticTable.from_metadata(f"{table.location}/metadata/v{table.version + 1}.metadata.json")

    def entries(self) -> list[dict[str, Any]]:
        """Every entry of the newest snapshot, as pyiceberg shows it: with the bounds of each column."""
        found: list[dict[str, Any]] = self.iceberg().inspect.entries().to_pylist()
        return found

    def bounded(self, version: int | None = None) -> list[str]:
        table = DeltaTable(self.location, version=version)
        return table.metadata().configuration.get(PROPERTY, "").split(",")

    def commit(self, version: int) -> list[dict[str, Any]]:
        folder = self.location.removeprefix("file://")
        with open(f"{folder}/{delta.commit_name(version)}", "rb") as file:
            return [json.loads(line) for line in file]


@pytest.fixture
def rides(tmp_path: Any) -> Iterator[Rides]:
    address = str(tmp_path / "store")
    with Store.open(address, create=True) as store:
        found = Rides(address, store)
        yield found
        assert found.problems() == []


def test_conditions_on_all_columns_find_their_rows(rides: Rides) -> None:
    rides.publish(ROWS)
    rides.publish([{"id": 9, "zone": "z", "fare": -1.0}])
    for column, value, expected in (("id", 2, 3), ("zone", "b", 2), ("fare", 1.5, 2), ("_offset", 1, 3)):
        assert rides.found(column, value) == [expected] * 3, column
    assert rides.nulls("zone") == 1
    assert rides.bounded() == ["_offset", "_timestamp", "id", "zone", "fare"]
    # A commit that changes no property repeats no metadata.
    assert [next(iter(action)) for action in rides.commit(1)] == ["commitInfo", "add"]


def test_a_column_without_bounds_in_one_file_has_no_place_in_the_property(rides: Rides) -> None:
    rides.publish(ROWS)
    rides.publish([{"id": 4, "zone": "x" * 5000, "fare": math.nan}])
    assert rides.bounded(0) == ["_offset", "_timestamp", "id", "zone", "fare"]
    assert rides.bounded() == ["_offset", "_timestamp", "id"]
    rides.publish([{"id": 5, "zone": "c", "fare": 7.0}])
    assert rides.bounded() == ["_offset", "_timestamp", "id"]
    for column, value, expected in (("id", 2, 4), ("zone", "b", 3), ("fare", 2.5, 2)):
        assert rides.found(column, value) == [expected] * 3, column


def test_a_column_that_is_declared_later_is_null_in_the_files_before(rides: Rides) -> None:
    rides.publish(ROWS)
    rides.store.add_columns("rides", [("tip", "double", True)])
    rides.publish([{"id": 4, "tip": 0.5}, {"id": 5}], COLUMNS.append(pa.field("tip", pa.float64())))
    assert rides.bounded() == ["_offset", "_timestamp", "id", "zone", "fare", "tip"]
    assert rides.found("tip", 0.5) == [1, 1, 1]
    assert rides.nulls("tip") == 4
    assert rides.found("id", 1) == [5, 5, 5]
    assert rides.found("id", 1, version=0) == [3, 3, 3]


def test_versions_of_earlier_writers_stay_and_the_next_one_describes_all_files(
    rides: Rides, monkeypatch: pytest.MonkeyPatch
) -> None:
    rides.publish_as_earlier(monkeypatch, ROWS)
    rides.publish_as_earlier(monkeypatch, [{"id": 9, "zone": "z", "fare": -1.0}])
    assert rides.problems() == []
    before = [rides.commit(version) for version in (0, 1)]
    assert rides.found("id", 2)[2] == 0
    rides.publish([{"id": 10}])
    assert [rides.commit(version) for version in (0, 1)] == before
    assert [next(iter(action)) for action in rides.commit(2)] == ["commitInfo", "metaData", "add", "add", "add"]
    assert rides.found("id", 2) == [4, 4, 4]
    assert rides.nulls("zone") == 2
    shown = [each["readable_metrics"]["id"] for each in rides.entries()]
    assert sorted((each["lower_bound"], each["upper_bound"]) for each in shown) == [(1, 3), (9, 9), (10, 10)]
    assert all(each["column_size"] > 0 for each in shown)
    assert sorted(each["data_file"]["value_counts"][0][1] for each in rides.entries()) == [1, 1, 3]
    # One that publishes alongside describes its files as before, until the next version.
    rides.publish_as_earlier(monkeypatch, [{"id": 11}])
    assert rides.problems() == []
    rides.publish([{"id": 12}])
    assert rides.found("id", 2) == [6, 6, 6]


def test_a_version_that_an_earlier_writer_has_left_half_written_is_finished(
    rides: Rides, monkeypatch: pytest.MonkeyPatch
) -> None:
    rides.publish_as_earlier(monkeypatch, ROWS)
    before = rides.commit(0)
    metadata = rides.iceberg().metadata
    with monkeypatch.context() as unfinished:
        unfinished.setattr("sparktxn.maintenance.publishing.publish.is_written", lambda *_: False)
        rides.publish([{"id": 9}])
    assert rides.commit(0) == before
    assert rides.iceberg().metadata.snapshots[0] == metadata.snapshots[0]
    assert rides.found("id", 2) == [3, 3, 3]


def test_iceberg_metadata_that_an_earlier_writer_has_begun_is_finished(
    rides: Rides, monkeypatch: pytest.MonkeyPatch
) -> None:
    rides.publish_as_earlier(monkeypatch, ROWS)
    metadata = rides.location.removeprefix("file://") + "/metadata/v1.metadata.json"
    with open(metadata, "rb") as file:
        data = file.read()
    os.unlink(metadata)
    rides.publish([{"id": 9}])
    with open(metadata, "rb") as file:
        assert file.read() == data
    assert rides.iceberg().scan(row_filter="id >= 2").to_arrow().num_rows == 3


@pytest.mark.parametrize("name", ["files", "partitions", "manifests", "snapshots", "history", "refs", "entries"])
def test_pyiceberg_shows_the_metadata_of_a_table_that_has_lost_and_got_files(
    rides: Rides, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    rides.publish_as_earlier(monkeypatch, ROWS)
    for number in range(9):
        rides.publish([{"id": number, "zone": "x" * number, "fare": math.nan}])
    delete_records(rides.store.log, TopicPartition("rides", 0, 5))
    rides.publish([{"id": 99}])
    # Manifests that the earlier writer has made stay as they are.
    for snapshot in (None, 2, 5):
        inspect = getattr(rides.iceberg().inspect, name)
        takes_snapshot = name in ("files", "partitions", "entries")
        assert (inspect(snapshot_id=snapshot) if takes_snapshot and snapshot else inspect()).num_rows > 0
