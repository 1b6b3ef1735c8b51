"""What readers of Delta tables see of a topic's versions, and what writers of Delta tables may not do to it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError
from msgspec.structs import replace

from sparktxn._engine.format.names import PARTITION_COLUMN
from sparktxn._engine.format.schema import offset_column, stored_schema
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._rows.tableformats import delta
from sparktxn._rows.tableformats.columnstatistics import ColumnStatistics
from sparktxn._rows.tableformats.version import TableFile, TableVersion, table_schema
from tests.everytype import EVERY_TYPE, FULL_ROW
from tests.mergedfiles import START, merged_file, milliseconds

TABLE_ID = "3f7ad9b2-6c6e-5f0e-9c0b-6a5d7a5e8f10"
NUMBERS: Columns = (("number", "int64", True),)

# A timestamp without a time zone asks for a feature of readers.
COLUMNS: Columns = tuple(column for column in EVERY_TYPE if column[0] != "local")
ROW = {name: value for name, value in FULL_ROW.items() if name != "local"}


def _version(number: int = 0, **changes: Any) -> TableVersion:
    values: dict[str, Any] = {
        "topic": "orders",
        "topic_id": 1,
        "table_id": TABLE_ID,
        "location": "file:///lake/topics/orders-1",
        "columns": None,
        "is_new_schema": number == 0,
        "version": number,
        "entry": 10 * number + 7,
        "published_entry": 10 * number + 9,
        "timestamp_ms": milliseconds(START) + 1000 * number,
        "added": (),
        "removed": (),
    }
    return TableVersion(**values | changes)


def _file(path: str = "kafka_partition=0/a.parquet", **changes: Any) -> TableFile:
    values: dict[str, Any] = {
        "path": path,
        "partition": 0,
        "size_bytes": 1000,
        "record_count": 3,
        "offset_min": 5,
        "offset_max": 9,
        "timestamp_min_ms": 0,
        "timestamp_max_ms": 1,
    }
    return TableFile(**values | changes)


@dataclass
class Topic:
    """A topic's folder, whose versions are published as a Delta table."""

    folder: Path
    columns: Columns | None = None
    commits: list[bytes] = field(default_factory=list)
    _files: dict[str, TableFile] = field(default_factory=dict)
    _rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _ends: dict[int, int] = field(default_factory=dict)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What the newest version has, in the order of partitions and offsets."""
        return sorted((row for rows in self._rows.values() for row in rows), key=_place)

    def file(self, partition: int, rows: Iterable[dict[str, Any]], *, name: str = "") -> TableFile:
        """Write a file of the next offsets of a partition; every third one has no record."""
        base = self._ends.get(partition, 0)
        name = name or f"{base:020d}-0123456789abcdefghij.offsets.parquet"
        file, written = merged_file(self.folder, name, self.columns, partition, base, rows)
        self._rows[file.path] = written
        self._ends[partition] = file.offset_max + 1
        return file

    def publish(self, *added: TableFile, removed: Iterable[TableFile] = (), **changes: Any) -> None:
        """Write the commit of the next version."""
        removed = tuple(removed)
        for each in removed:
            del self._rows[each.path], self._files[each.path]
        self._files |= {file.path: file for file in added}
        version = _version(len(self.commits), columns=self.columns, added=added, removed=removed, **changes)
        previous = self.commits[-1] if self.commits else None
        self.commits.append(delta.commit(version, lambda: self.whole(version), previous))
        self.write(delta.commit_name(version.version), self.commits[-1])

    def whole(self, version: TableVersion) -> TableVersion:
        files = tuple(file for _, file in sorted(self._files.items()))
        return replace(version, is_new_schema=True, added=files, removed=())

    def checkpoint(self, previous: bytes | None = None, *, first: int = 0) -> bytes:
        """Write the checkpoint of the newest version from the commits from `first` on, and return it."""
        data = delta.checkpoint(previous, self.commits[first:])
        self.write(delta.checkpoint_name(len(self.commits) - 1), data)
        return data

    def write(self, name: str, data: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def objects(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return row[PARTITION_COLUMN], row["_offset" if "_offset" in row else "offset"]


def _by_delta_rs(topic: Topic, version: int | None = None) -> list[dict[str, Any]]:
    return sorted(_rows(DeltaTable(topic.folder, version=version)).to_pylist(), key=_place)


def _rows(table: DeltaTable, condition: str = "true") -> pa.Table:
    """Read as delta-rs itself does: with its files read by pyarrow, a process that ends may abort (delta-rs 1.6)."""
    return pa.table(
        QueryBuilder().register("topic", table).execute(f"select * from topic where {condition}").read_all()
    )


def _by_polars(topic: Topic, version: int | None = None) -> list[dict[str, Any]]:
    frame = polars.scan_delta(str(topic.folder), version=version).collect()
    return sorted(frame.to_arrow().to_pylist(), key=_place)


READERS = pytest.mark.parametrize("read", [_by_delta_rs, _by_polars])


def _records(*keys: bytes) -> list[dict[str, Any]]:
    return [{"key": key, "value": b"value", "headers": [{"key": "h", "value": None}]} for key in keys]


@READERS
def test_readers_see_the_records_of_each_version(tmp_path, read):
    topic = Topic(tmp_path)
    topic.publish()
    versions = [topic.rows]
    first = topic.file(0, _records(b"a", b"b", b"c"))
    topic.publish(first, topic.file(1, _records(b"d")))
    versions.append(topic.rows)
    topic.publish(topic.file(0, _records(b"e")), topic.file(12, _records(b"f")), removed=[first])
    versions.append(topic.rows)
    assert [len(rows) for rows in versions] == [0, 4, 3]
    assert [read(topic, version) for version in range(3)] == versions
    assert read(topic) == versions[-1]


@READERS
def test_readers_see_values_of_every_type(tmp_path, read):
    topic = Topic(tmp_path, columns=COLUMNS)
    topic.publish(topic.file(3, [ROW, {"long": 0}]))
    assert read(topic) == topic.rows
    assert topic.rows[0].items() >= ROW.items()


@READERS
def test_readers_see_times_without_a_zone_at_any_depth(tmp_path, read):
    columns: Columns = (("times", "list<struct<a: map<int32, timestamp[us]>>>", True), ("time", "timestamp[us]", True))
    topic = Topic(tmp_path, columns=columns)
    moment = datetime(2020, 1, 2, 3, 4, 5, 6)
    topic.publish(topic.file(0, [{"times": [{"a": [(1, moment)]}], "time": moment}, {}]))
    assert read(topic) == topic.rows


@pytest.mark.parametrize(
    "data_type", ["timestamp[us]", "list<timestamp[us]>", "map<timestamp[us], int8>", "struct<a: list<timestamp[us]>>"]
)
def test_only_times_without_a_zone_need_a_newer_reader(data_type):
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["timestampNtz", "invariants", "txnlogTopic"],
    }
    assert _actions(_version(columns=(("a", data_type, True),)))["protocol"] == [protocol]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["invariants", "txnlogTopic"]}
    assert _actions(_version(columns=COLUMNS))["protocol"] == [protocol]


def test_delta_rs_has_the_types_of_the_table(tmp_path):
    columns = (*COLUMNS, ("local", "timestamp[us]", True))
    topic = Topic(tmp_path, columns=columns)
    topic.publish()
    seen = pa.schema(DeltaTable(tmp_path).schema().to_arrow())
    schema = table_schema(columns)
    # Delta has one type of instants, of microseconds.
    index = schema.get_field_index("_timestamp")
    assert seen.equals(schema.set(index, schema.field(index).with_type(pa.timestamp("us", tz="UTC"))))


@READERS
def test_a_column_that_is_declared_later_is_null_in_older_files(tmp_path, read):
    topic = Topic(tmp_path, columns=NUMBERS)
    topic.publish(topic.file(0, [{"number": 1}]))
    old = topic.rows
    topic.columns = (*NUMBERS, ("text", "string", True))
    topic.publish(topic.file(0, [{"number": 2, "text": "x"}]), is_new_schema=True)
    assert read(topic, 0) == old
    assert read(topic) == [old[0] | {"text": None}, topic.rows[1]]


@READERS
@pytest.mark.parametrize("name", ["offset", "a.b", "a b", "Größe", "a,;{}()\n\t=", "a`b", 'a"b', "kafka_partition2"])
def test_readers_find_columns_of_any_name(tmp_path, read, name):
    topic = Topic(tmp_path, columns=((name, "int64", True), ("a", "struct<b: int64>", True)))
    topic.publish(topic.file(0, [{name: 1, "a": {"b": 2}}, {}]))
    topic.checkpoint()
    assert read(topic) == topic.rows


@READERS
def test_a_path_is_percent_encoded_except_for_what_every_reader_decodes(tmp_path, read):
    topic = Topic(tmp_path)
    topic.publish(topic.file(0, _records(b"a"), name="50% of=é.parquet"))
    assert _actions_of(topic.commits[0])["add"][0]["path"] == "kafka_partition=0/50%25%20of=%C3%A9.parquet"
    assert read(topic) == topic.rows


@READERS
def test_a_checkpoint_replaces_the_commits_before_it(tmp_path, read):
    topic = Topic(tmp_path)
    first = topic.file(0, _records(b"a", b"b"))
    topic.publish(first)
    topic.publish(topic.file(1, _records(b"c")), removed=[first])
    checkpoint = topic.checkpoint()
    middle = topic.rows
    topic.publish(topic.file(0, _records(b"d")))
    for version in range(2):
        (tmp_path / delta.commit_name(version)).unlink()
    assert [read(topic), read(topic, 1)] == [topic.rows, middle]
    topic.write(delta.LAST_CHECKPOINT, delta.last_checkpoint(1, checkpoint))
    assert [read(topic), read(topic, 1)] == [topic.rows, middle]
    (tmp_path / delta.commit_name(2)).unlink()
    assert read(topic) == middle


def test_the_hint_counts_the_actions_of_the_checkpoint(tmp_path):
    topic = Topic(tmp_path)
    topic.publish(topic.file(0, _records(b"a")), topic.file(1, _records(b"a")))
    assert delta.last_checkpoint(12, topic.checkpoint()) == b'{"version":12,"size":4}'


def test_a_checkpoint_of_a_checkpoint_is_that_of_all_commits(tmp_path):
    topic = Topic(tmp_path, columns=NUMBERS)
    files = [topic.file(number % 3, [{"number": number}]) for number in range(12)]
    topic.publish(*files[:4])
    topic.publish(*files[4:8], removed=files[:3])
    topic.columns = (*NUMBERS, ("local", "timestamp[us]", True))
    topic.publish(files[8], removed=files[5:6], is_new_schema=True)
    # A file may come back, as one that a version has removed and a later one has again.
    topic.publish(files[0], files[9], removed=[files[8]])
    topic.publish(files[10], removed=[files[9]])
    whole = _content(topic.checkpoint())
    for count in range(1, 5):
        before = delta.checkpoint(None, topic.commits[:count])
        assert _content(delta.checkpoint(before, topic.commits[count:])) == whole
    assert _content(delta.checkpoint(topic.checkpoint(), [])) == whole
    paths = [row["add"]["path"] for row in whole.to_pylist()[2:]]
    assert paths == sorted(files[index].path for index in (0, 3, 4, 6, 7, 10))
    assert whole.to_pylist()[0]["protocol"]["readerFeatures"] == ["timestampNtz"]
    assert "timestamp_ntz" in whole.to_pylist()[1]["metaData"]["schemaString"]


def test_a_checkpoint_has_all_that_the_commits_say(tmp_path):
    topic = Topic(tmp_path)
    topic.publish(topic.file(4, _records(b"a")))
    commit = _actions_of(topic.commits[0])
    rows = _content(topic.checkpoint()).to_pylist(maps_as_pydicts="strict")
    assert [sorted(name for name, value in row.items() if value is not None) for row in rows] == [
        ["protocol"],
        ["metaData"],
        ["add"],
    ]
    assert rows[0]["protocol"] == commit["protocol"][0] | {"readerFeatures": None}
    assert rows[1]["metaData"] == commit["metaData"][0] | {"description": None, "createdTime": None}
    assert rows[2]["add"] == commit["add"][0] | {"dataChange": False, "tags": None}


def test_a_checkpoint_may_follow_one_that_another_engine_has_written(tmp_path):
    topic = Topic(tmp_path)
    first = topic.file(0, _records(b"a", b"b"))
    topic.publish(first, topic.file(1, _records(b"c")))
    topic.publish(removed=[first])
    DeltaTable(tmp_path).create_checkpoint()
    foreign = (tmp_path / delta.checkpoint_name(1)).read_bytes()
    topic.publish(topic.file(0, _records(b"d")))
    whole = delta.checkpoint(None, topic.commits)
    followed = delta.checkpoint(foreign, topic.commits[2:])
    assert _content(followed).select(["add", "protocol"]) == _content(whole).select(["add", "protocol"])
    assert _metadata_of(followed) == _metadata_of(whole)
    topic.checkpoint(foreign, first=2)
    assert _by_delta_rs(topic) == topic.rows


def _metadata_of(checkpoint: bytes) -> dict[str, Any]:
    (found,) = pc.drop_null(_content(checkpoint).column("metaData")).to_pylist(maps_as_pydicts="strict")
    return found


def test_a_checkpoint_may_begin_with_all_files_of_a_later_version(tmp_path):
    """Its predecessors have no commits: the table was not a Delta table then."""
    topic = Topic(tmp_path)
    files = [topic.file(0, _records(b"a")), topic.file(1, _records(b"b"))]
    version = _version(7, is_new_schema=True, added=tuple(files))
    whole = delta.commit(version, lambda: version, None)
    checkpoint = delta.checkpoint(None, [whole])
    topic.write(delta.checkpoint_name(7), checkpoint)
    topic.write(delta.commit_name(7), delta.commit(_version(7, added=(files[1],)), lambda: version, None))
    topic.write(delta.LAST_CHECKPOINT, delta.last_checkpoint(7, checkpoint))
    assert _by_delta_rs(topic) == _by_polars(topic) == topic.rows


@pytest.mark.parametrize("previous", [b"", b"PAR1", b"x" * 100])
def test_a_damaged_checkpoint_is_refused(previous):
    with pytest.raises(ValueError, match="cannot be decoded"):
        delta.checkpoint(previous, [_commit(_version())])


def test_a_flipped_bit_of_a_checkpoint_changes_no_file(tmp_path):
    topic = Topic(tmp_path)
    topic.publish(*(topic.file(number, _records(b"a")) for number in range(10)))
    data = topic.checkpoint()
    whole, found = _content(data), 0
    # Pages have checksums. Parquet's footer, after them, has none.
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for position in range(4, pages, 23):
        flipped = bytearray(data)
        flipped[position] ^= 1
        try:
            assert _content(delta.checkpoint(bytes(flipped), [])) == whole
        except ValueError:
            found += 1
    assert found, "no page was read"


def _commit(version: TableVersion, *before: TableFile) -> bytes:
    """The commit of a version after one that has the files of `before`."""
    previous = _version(version.version - 1, columns=version.columns, added=before, is_new_schema=True)
    first = delta.commit(previous, lambda: previous, None) if version.version else None
    whole = replace(version, added=(*before, *version.added), is_new_schema=True)
    return delta.commit(version, lambda: whole, first)


@pytest.mark.parametrize("commits", [[], [_commit(_version(1))]])
def test_a_checkpoint_needs_the_metadata_of_its_table(commits):
    with pytest.raises(ValueError, match="do not begin with the metadata"):
        delta.checkpoint(None, commits)


def test_a_commit_that_is_no_commit_is_refused():
    with pytest.raises(ValueError, match="truncated"):
        delta.checkpoint(None, [b"{"])


def _content(checkpoint: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(checkpoint))


def _actions(version: TableVersion) -> dict[str, list[dict[str, Any]]]:
    return _actions_of(_commit(version))


def _actions_of(commit: bytes) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in commit.splitlines():
        ((name, action),) = json.loads(line).items()
        found.setdefault(name, []).append(action)
    return found


@pytest.mark.parametrize("columns", [None, NUMBERS])
def test_readers_that_skip_files_by_their_statistics_miss_no_row(tmp_path, columns):
    topic = Topic(tmp_path, columns=columns)
    topic.publish(*(topic.file(partition, [{}] * 4) for partition in (0, 1, 0, 1, 0)))
    topic.checkpoint()
    offset = offset_column(stored_schema(columns))
    timestamp = "timestamp" if columns is None else "_timestamp"
    query = QueryBuilder().register("topic", DeltaTable(tmp_path))
    bounds: dict[str, list[Any]] = {
        offset: list(range(-1, 20)),
        timestamp: [START + timedelta(milliseconds=500 * step) for step in range(-1, 20)],
    }
    for column, values in bounds.items():
        for value in values:
            expected = sum(row[column] >= value for row in topic.rows)
            bound = value if isinstance(value, int) else f"'{value.isoformat()}'"
            assert _rows(DeltaTable(tmp_path), f'"{column}" >= {bound}').num_rows == expected
            seen = polars.scan_delta(str(tmp_path)).filter(polars.col(column) >= value).collect()
            assert seen.height == expected
        answer = query.execute(f'select min("{column}") a, max("{column}") b, count(*) n from topic').read_all()
        found = [row[column] for row in topic.rows]
        assert pa.table(answer).to_pylist() == [{"a": min(found), "b": max(found), "n": len(found)}]


def test_delta_rs_reads_only_the_files_that_may_have_rows(tmp_path):
    topic = Topic(tmp_path)
    topic.publish(*(topic.file(0, _records(b"a")) for _ in range(5)))
    for path in sorted(tmp_path.rglob("*.parquet"))[:3]:
        path.unlink()
    late = START + timedelta(seconds=3)
    for condition in ('"offset" >= 3', f"\"timestamp\" >= '{late.isoformat()}'"):
        assert sorted(_rows(DeltaTable(tmp_path), condition).to_pylist(), key=_place) == topic.rows[3:]
    assert polars.scan_delta(str(tmp_path)).filter(polars.col("offset") >= 3).collect().height == 2


def test_a_file_that_only_moves_rows_changes_no_data():
    moved = [_file(f"kafka_partition=0/{name}.parquet", changes_data=False) for name in "ab"]
    actions = _actions(_version(1, added=(moved[0],), removed=(moved[1],)))
    assert [action["dataChange"] for action in actions["add"] + actions["remove"]] == [False, False]


def _appended(table: DeltaTable, mode: str) -> None:
    rows = _rows(table)
    write_deltalake(table, rows, mode=mode)  # type: ignore[call-overload]


WRITES = {
    "append": lambda table: _appended(table, "append"),
    "overwrite": lambda table: _appended(table, "overwrite"),
    "compact": lambda table: table.optimize.compact(),
    "z-order": lambda table: table.optimize.z_order(["offset"]),
    "vacuum": lambda table: table.vacuum(0, dry_run=False, enforce_retention_duration=False),
    "full vacuum": lambda table: table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
    "delete": lambda table: table.delete(),
    "delete some": lambda table: table.delete('"offset" = 0'),
    "update": lambda table: table.update({"value": "null"}),
    "restore": lambda table: table.restore(0),
    "properties": lambda table: table.alter.set_table_properties({"delta.appendOnly": "true"}),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_delta_rs_refuses_to_write(tmp_path, write):
    topic = Topic(tmp_path)
    first = topic.file(0, _records(b"a"))
    topic.publish(first, topic.file(0, _records(b"b")))
    topic.publish(topic.file(0, _records(b"c")), removed=[first])
    # Not in the table yet.
    topic.file(0, _records(b"d"))
    before = topic.objects()
    with pytest.raises(DeltaError, match="txnlogTopic"):
        write(DeltaTable(tmp_path))
    assert topic.objects() == before


def test_what_delta_rs_may_do_without_a_commit_deletes_no_commit(tmp_path):
    topic = Topic(tmp_path)
    topic.publish(topic.file(0, _records(b"a")))
    topic.publish(topic.file(0, _records(b"b")))
    before = topic.objects()
    table = DeltaTable(tmp_path)
    table.create_checkpoint()
    table.cleanup_metadata()
    assert topic.objects().items() >= before.items()
    assert _by_delta_rs(topic) == topic.rows


EARLIER = (
    b'{"commitInfo":{"timestamp":1772323201000,"operation":"PUBLISH","operationParameters":{"entry":"17",'
    b'"publishedEntry":"19"},"engineInfo":"txnlog","txnlogEntry":17,"txnlogPublishedEntry":19}}\n'
    b'{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["invariants","txnlogTopic"]}}\n'
    b'{"metaData":{"id":"3f7ad9b2-6c6e-5f0e-9c0b-6a5d7a5e8f10","name":"orders","format":{"provider":"parquet",'
    b'"options":{}},"schemaString":"{\\"type\\":\\"struct\\",\\"fields\\":[{\\"name\\":\\"gr\xc3\xb6\xc3\x9fe\\",'
    b'\\"type\\":\\"decimal(9,2)\\",\\"nullable\\":true,\\"metadata\\":{}},{\\"name\\":\\"_timestamp\\",'
    b'\\"type\\":\\"timestamp\\",\\"nullable\\":false,\\"metadata\\":{}},{\\"name\\":\\"_offset\\",'
    b'\\"type\\":\\"long\\",\\"nullable\\":false,\\"metadata\\":{}},{\\"name\\":\\"kafka_partition\\",'
    b'\\"type\\":\\"integer\\",\\"nullable\\":false,\\"metadata\\":{}}]}","partitionColumns":["kafka_partition"],'
    b'"configuration":{"delta.deletedFileRetentionDuration":"interval 36500 days",'
    b'"delta.enableExpiredLogCleanup":"false","delta.logRetentionDuration":"interval 36500 days"}}}\n'
    b'{"remove":{"path":"kafka_partition=2/c.parquet","deletionTimestamp":1772323201000,"dataChange":true,'
    b'"extendedFileMetadata":true,"partitionValues":{"kafka_partition":"2"},"size":77}}\n'
    b'{"add":{"path":"kafka_partition=0/a.parquet","partitionValues":{"kafka_partition":"0"},"size":1000,'
    b'"modificationTime":1772323201000,"dataChange":true,"stats":"{\\"numRecords\\":3,\\"minValues\\":'
    b'{\\"_offset\\":5,\\"_timestamp\\":\\"1970-01-01T00:00:00.000Z\\"},\\"maxValues\\":{\\"_offset\\":9,'
    b'\\"_timestamp\\":\\"1970-01-01T00:00:00.001Z\\"},\\"nullCount\\":{\\"_offset\\":0,\\"_timestamp\\":0},'
    b'\\"tightBounds\\":false}"}}\n'
)


def test_the_bytes_of_a_commit_are_these():
    """Processes of different releases write the commits of one table: other bytes would be those of another version."""
    removed = _file("kafka_partition=2/c.parquet", partition=2, size_bytes=77)
    columns: Columns = (("größe", "decimal128(9, 2)", True),)
    version = _version(1, columns=columns, is_new_schema=True, added=(_file(),), removed=(removed,))
    assert delta.earlier_commit(version) == EARLIER
    times = ColumnStatistics(("_timestamp",), pa.timestamp("ms", "UTC"), 3, 0, 0, 1, 60)
    sizes = ColumnStatistics(("größe",), pa.decimal128(9, 2), 3, 1, -105, 20, 60)
    version = replace(version, added=(_file(statistics=(sizes, times)),))
    assert delta.commit(version, lambda: version, EARLIER) == (
        EARLIER.replace(
            b'dEntry":19}}', b'dEntry":19,"txnlogBounded":["_offset","_timestamp","`gr\xc3\xb6\xc3\x9fe`"]}}'
        )
        .replace(
            b'36500 days"}}}',
            b'36500 days","delta.dataSkippingStatsColumns":"_offset,_timestamp,`gr\xc3\xb6\xc3\x9fe`"}}}',
        )
        .replace(b'.000Z\\"}', b'.000Z\\",\\"gr\xc3\xb6\xc3\x9fe\\":-1.05}')
        .replace(b'.001Z\\"}', b'.001Z\\",\\"gr\xc3\xb6\xc3\x9fe\\":0.20}')
        .replace(b'_timestamp\\":0}', b'_timestamp\\":0,\\"gr\xc3\xb6\xc3\x9fe\\":1}')
        .replace(b'Bounds\\":false', b'Bounds\\":true')
    )


def test_names_sort_as_versions_do():
    assert delta.commit_name(12) == "_delta_log/00000000000000000012.json"
    assert delta.checkpoint_name(12) == "_delta_log/00000000000000000012.checkpoint.parquet"
    assert delta.LAST_CHECKPOINT == "_delta_log/_last_checkpoint"
