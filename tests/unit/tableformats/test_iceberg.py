"""The metadata of a topic as an Iceberg table: its bytes, and what a version keeps of the one before.

Readers of Iceberg tables are in `tests/interop/test_iceberg_readers.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from msgspec.structs import replace

from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._rows.tableformats import iceberg
from sparktxn._rows.tableformats import version as icebergnames
from sparktxn._rows.tableformats.columnstatistics import ColumnStatistics
from sparktxn._rows.tableformats.icebergmanifests import ENTRY, FULL_FILES, MERGED_MANIFESTS, decode_file, decode_list
from sparktxn._rows.tableformats.icebergschema import ambiguous_name, last_column_id, name_mapping, schema_of
from sparktxn._rows.tableformats.version import TableFile, TableVersion, table_schema

LOCATION = "s3a://lake/store/topics/orders-1"
START_MS = 1_772_323_200_000
NESTED: Columns = (
    ("a", "int8", True),
    ("b", "list<struct<c: int64 not null, d: map<string, decimal128(9, 2)>>>", False),
    ("e", "timestamp[us]", True),
)
EXISTING, ADDED, DELETED = range(3)

EARLIER_FIRST = [
    ("metadata/00000000000000000009-0.avro", "09b0c69f770265f2"),
    ("metadata/snap-1.avro", "5b08fcb3c75f8aab"),
    ("metadata/v1.metadata.json", "88445cd62853aa65"),
]
EARLIER_SECOND = [
    ("metadata/00000000000000000019-0.avro", "a69ed4bd5a5644fb"),
    ("metadata/00000000000000000019-1.avro", "457851e84dbe64d1"),
    ("metadata/snap-2.avro", "b94905e19c0a9f6f"),
    ("metadata/v2.metadata.json", "a191f1d480ecf1fd"),
]
"""Digests of the objects of two versions, as version 0.1.0 wrote them, and as they are now."""
GOLDEN_FIRST = [
    ("metadata/00000000000000000009-0.avro", "b49764daccd217b4"),
    ("metadata/snap-1.avro", "f8044024ce49b3a5"),
    ("metadata/v1.metadata.json", "88445cd62853aa65"),
]
GOLDEN_SECOND = [
    ("metadata/00000000000000000019-0.avro", "561b5ac4ff89a4e7"),
    ("metadata/00000000000000000019-1.avro", "3dc94312728aefeb"),
    ("metadata/snap-2.avro", "871454c78b45e9a6"),
    ("metadata/v2.metadata.json", "a191f1d480ecf1fd"),
]


def _file(number: int = 0, partition: int = 0, **changes: Any) -> TableFile:
    """Describe the file with the offsets from `1000 * number` on."""
    values: dict[str, Any] = {
        "path": f"kafka_partition={partition}/{1000 * number:020d}-0123456789abcdefghij.offsets.parquet",
        "partition": partition,
        "size_bytes": 5000 + number,
        "record_count": 10,
        "offset_min": 1000 * number,
        "offset_max": 1000 * number + 12,
        "timestamp_min_ms": START_MS,
        "timestamp_max_ms": START_MS + 5,
    }
    return TableFile(**values | changes)


class Table:
    """The metadata of a table's versions, and which objects were read for the newest one."""

    def __init__(self, columns: Columns | None = None, *, is_earlier: bool = False) -> None:
        self.columns = columns
        self._is_earlier = is_earlier
        self.objects: dict[str, bytes] = {}
        self.version = -1
        self.reads: list[str] = []

    @property
    def metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = json.loads(self.objects[iceberg.metadata_name(self.version)])
        return metadata

    @property
    def summary(self) -> dict[str, str]:
        summary: dict[str, str] = self.metadata["snapshots"][-1]["summary"]
        return summary

    @property
    def counts(self) -> list[tuple[int, int, int]]:
        """How many files each manifest of the newest version has: existing, added and deleted ones."""
        names = ("existing_files_count", "added_files_count", "deleted_files_count")
        return [tuple(each[name] for name in names) for each in self.listed()]

    def publish(
        self, *added: TableFile, removed: Iterable[TableFile] = (), first: int = 0, **changes: Any
    ) -> list[tuple[str, bytes]]:
        number = self.version + 1
        version = _version(number, columns=self.columns, added=added, removed=tuple(removed), **changes)
        self.reads.clear()
        before = self.metadata if number else None
        found = iceberg.publication(version, before, self._read, first=first, is_earlier=self._is_earlier)
        assert not {name for name, _ in found} & self.objects.keys()
        self.objects |= dict(found)
        self.version = number
        return found

    def listed(self, version: int | None = None) -> list[dict[str, Any]]:
        number = self.version if version is None else version
        return [each.listed for each in decode_list(self.objects[iceberg.list_name(number)])]

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of all manifests of the newest version."""
        names = [each["manifest_path"].removeprefix(f"{LOCATION}/") for each in self.listed()]
        return [entry for name in names for entry in decode_file(ENTRY, self.objects[name])[1]]

    def files(self) -> list[tuple[str, int]]:
        """Return the files of the newest version, with the sequence numbers of those that added them."""
        live = [each for each in self.entries() if each["status"] != DELETED]
        return sorted(
            (each["data_file"]["file_path"].removeprefix(f"{LOCATION}/"), each["sequence_number"]) for each in live
        )

    def _read(self, name: str) -> bytes:
        self.reads.append(name)
        return self.objects[name]


def _version(number: int = 0, **changes: Any) -> TableVersion:
    values: dict[str, Any] = {
        "topic": "orders",
        "topic_id": 1,
        "table_id": "3f7ad9b2-6c6e-5f0e-9c0b-6a5d7a5e8f10",
        "location": LOCATION,
        "columns": None,
        "is_new_schema": number == 0,
        "version": number,
        "entry": 10 * number + 7,
        "published_entry": 10 * number + 9,
        "timestamp_ms": START_MS + 1000 * number,
        "added": (),
        "removed": (),
    }
    return TableVersion(**values | changes)


def _first(*added: TableFile, **changes: Any) -> Table:
    table = Table()
    table.publish(*added, **changes)
    return table


def _digests(objects: Iterable[tuple[str, bytes]]) -> list[tuple[str, str]]:
    return [(name, hashlib.sha256(data).hexdigest()[:16]) for name, data in objects]


def test_the_bytes_of_a_version_never_change():
    """Processes of different releases write the metadata of one version."""
    table = Table(NESTED, is_earlier=True)
    first = table.publish(_file(0), _file(0, partition=1))
    second = table.publish(_file(1), removed=[_file(0)])
    assert _digests(first) == EARLIER_FIRST
    assert _digests(second) == EARLIER_SECOND
    table = Table(NESTED)
    offset = ColumnStatistics(("_offset",), pa.int64(), 10, 0, 0, 12, 80)
    file = _file(0, statistics=(ColumnStatistics(("a",), pa.int8(), 10, 1, -3, 5, 40), offset))
    assert _digests(table.publish(file, _file(0, partition=1))) == GOLDEN_FIRST
    assert _digests(table.publish(_file(1), removed=[_file(0)])) == GOLDEN_SECOND


def test_the_hint_is_the_number_in_the_name_of_the_metadata():
    assert iceberg.VERSION_HINT == "metadata/version-hint.text"
    assert (iceberg.metadata_name(0), iceberg.version_hint(0)) == ("metadata/v1.metadata.json", b"1")
    assert [icebergnames.hinted_version(hint) for hint in (iceberg.version_hint(7), b"", b"v8")] == [7, None, None]


def test_the_metadata_of_a_table_without_files():
    table = _first()
    metadata = table.metadata
    assert metadata.pop("schemas") == [schema_of(None, 0)]
    properties = metadata.pop("properties")
    assert properties.pop("schema.name-mapping.default") == name_mapping(schema_of(None, 0))
    nowhere = "txnlog:a-topic-takes-no-files-of-other-writers"
    assert properties == {
        "gc.enabled": "false",
        "write.format.default": "parquet",
        "write.data.path": nowhere,
        "write.metadata.path": nowhere,
    }
    (snapshot,) = metadata.pop("snapshots")
    summary = snapshot.pop("summary")
    assert summary["operation"] == "append"
    assert (summary["txnlog.entry"], summary["txnlog.published-entry"]) == ("7", "9")
    assert snapshot == {
        "snapshot-id": 1,
        "sequence-number": 1,
        "timestamp-ms": START_MS,
        "manifest-list": f"{LOCATION}/metadata/snap-1.avro",
        "schema-id": 0,
    }
    field = {"field-id": 1000, "name": "kafka_partition", "source-id": 3, "transform": "identity"}
    assert metadata == {
        "format-version": 2,
        "table-uuid": "3f7ad9b2-6c6e-5f0e-9c0b-6a5d7a5e8f10",
        "location": LOCATION,
        "last-sequence-number": 1,
        "last-updated-ms": START_MS,
        "last-column-id": 9,
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": [field]}],
        "default-spec-id": 0,
        "last-partition-id": 1000,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "current-snapshot-id": 1,
        "snapshot-log": [{"snapshot-id": 1, "timestamp-ms": START_MS}],
        "metadata-log": [],
        "refs": {"main": {"snapshot-id": 1, "type": "branch"}},
    }
    assert table.listed() == []


def test_a_manifest_is_avro_with_what_iceberg_asks_for_in_its_header():
    data = _first(_file(3, partition=258)).objects["metadata/00000000000000000009-0.avro"]
    reader = fastavro.reader(BytesIO(data))
    header = {name: text for name, text in reader.metadata.items() if name != "avro.schema"}
    assert json.loads(header.pop("schema")) == schema_of(None, 0)
    assert json.loads(header.pop("partition-spec"))[0]["name"] == "kafka_partition"
    ids = {"schema-id": "0", "partition-spec-id": "0"}
    assert header == ids | {"format-version": "2", "content": "data", "avro.codec": "null"}
    ms = [(1000 * (START_MS + each)).to_bytes(8, "little") for each in (0, 5)]
    (entry,) = reader
    assert entry == {
        "status": ADDED,
        "snapshot_id": 1,
        "sequence_number": 1,
        "file_sequence_number": 1,
        "data_file": {
            "content": 0,
            "file_path": f"{LOCATION}/kafka_partition=258/00000000000000003000-0123456789abcdefghij.offsets.parquet",
            "file_format": "PARQUET",
            "partition": {"kafka_partition": 258},
            "record_count": 10,
            "file_size_in_bytes": 5003,
            "column_sizes": [],
            "value_counts": [{"key": 1, "value": 10}, {"key": 2, "value": 10}],
            "null_value_counts": [{"key": 1, "value": 0}, {"key": 2, "value": 0}],
            "lower_bounds": [{"key": 1, "value": ms[0]}, {"key": 2, "value": b"\xb8\x0b\0\0\0\0\0\0"}],
            "upper_bounds": [{"key": 1, "value": ms[1]}, {"key": 2, "value": b"\xc4\x0b\0\0\0\0\0\0"}],
        },
    }


def test_a_list_says_what_each_manifest_has():
    table = _first(_file(0, partition=258), _file(3, partition=7))
    data = table.objects["metadata/snap-1.avro"]
    reader = fastavro.reader(BytesIO(data))
    header = {name: text for name, text in reader.metadata.items() if not name.startswith("avro.")}
    ids = {"snapshot-id": "1", "parent-snapshot-id": "null", "sequence-number": "1", "format-version": "2"}
    assert header == ids | {
        "txnlog.offset-ranges": "[[[7,3000,3012],[258,0,12]]]",
        "txnlog.statistics": "footers",
    }
    bounds = {"lower_bound": b"\7\0\0\0", "upper_bound": b"\2\1\0\0"}
    assert list(reader) == [
        {
            "manifest_path": f"{LOCATION}/metadata/00000000000000000009-0.avro",
            "manifest_length": len(table.objects["metadata/00000000000000000009-0.avro"]),
            "partition_spec_id": 0,
            "content": 0,
            "sequence_number": 1,
            "min_sequence_number": 1,
            "added_snapshot_id": 1,
            "added_files_count": 2,
            "existing_files_count": 0,
            "deleted_files_count": 0,
            "added_rows_count": 20,
            "existing_rows_count": 0,
            "deleted_rows_count": 0,
            "partitions": [{"contains_null": False, "contains_nan": False, **bounds}],
        }
    ]


def test_times_that_iceberg_cannot_hold_have_no_bounds():
    table = _first(_file(timestamp_min_ms=-(2**63), timestamp_max_ms=2**63 - 1))
    file = table.entries()[0]["data_file"]
    assert [[each["key"] for each in file[name]] for name in ("lower_bounds", "upper_bounds")] == [[2], [2]]


def test_columns_that_are_declared_later_move_no_number():
    before, after = schema_of(NESTED, 0), schema_of((*NESTED, ("f", "list<int8>", True)), 1)
    *declared, timestamp, offset, partition = before["fields"]
    *more, new = after["fields"][:-3]
    assert more == declared
    assert after["fields"][-3:] == [timestamp, offset, partition]
    assert [timestamp["id"], offset["id"], partition["id"]] == [1, 2, 3]
    assert (last_column_id(before), new["id"], last_column_id(after)) == (11, 12, 13)
    assert declared[1] == {
        "id": 5,
        "name": "b",
        "required": True,
        "type": {
            "type": "list",
            "element-id": 6,
            "element-required": False,
            "element": {
                "type": "struct",
                "fields": [
                    {"id": 7, "name": "c", "required": True, "type": "long"},
                    {
                        "id": 8,
                        "name": "d",
                        "required": False,
                        "type": {
                            "type": "map",
                            "key-id": 9,
                            "key": "string",
                            "value-id": 10,
                            "value-required": False,
                            "value": "decimal(9, 2)",
                        },
                    },
                ],
            },
        },
    }


def test_the_name_mapping_has_all_that_files_have():
    found = json.loads(name_mapping(schema_of(NESTED, 0)))
    assert [each["names"] for each in found] == [[name] for name in table_schema(NESTED).names[:-1]]
    mapped = [{"field-id": 9, "names": ["key"]}, {"field-id": 10, "names": ["value"]}]
    struct = [{"field-id": 7, "names": ["c"]}, {"field-id": 8, "names": ["d"], "fields": mapped}]
    element = {"field-id": 6, "names": ["element"], "fields": struct}
    assert found[1] == {"field-id": 5, "names": ["b"], "fields": [element]}


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        (None, None),
        (NESTED, None),
        ((("a.b", "int8", True), ("a", "struct<c: int8>", True)), None),
        ((("a.b", "int8", True), ("a", "struct<b: int8>", True)), "a.b"),
        ((("a.element", "int8", True), ("a", "list<int8>", True)), "a.element"),
    ],
)
def test_a_name_is_ambiguous_if_its_dots_may_be_those_of_a_struct(columns, name):
    assert ambiguous_name(columns) == name


def test_a_new_schema_is_added_to_those_before():
    table = Table(NESTED)
    table.publish()
    table.columns = (*NESTED, ("f", "int8", True))
    table.publish(is_new_schema=True)
    table.publish(_file())
    metadata = table.metadata
    assert metadata["schemas"] == [schema_of(NESTED, 0), schema_of(table.columns, 1)]
    assert (metadata["current-schema-id"], metadata["last-column-id"]) == (1, 12)
    assert [each["schema-id"] for each in metadata["snapshots"]] == [0, 1, 1]
    assert metadata["properties"]["schema.name-mapping.default"] == name_mapping(schema_of(table.columns, 1))


def test_a_version_follows_the_one_before():
    table = _first(_file())
    table.publish(_file(1))
    metadata = table.metadata
    assert [each.get("parent-snapshot-id") for each in metadata["snapshots"]] == [None, 1]
    assert [each["snapshot-id"] for each in metadata["snapshot-log"]] == [1, 2]
    assert metadata["metadata-log"] == [
        {"metadata-file": f"{LOCATION}/metadata/v1.metadata.json", "timestamp-ms": START_MS}
    ]
    totals = {name: table.summary[f"total-{name}"] for name in ("data-files", "records", "files-size")}
    assert totals == {"data-files": "2", "records": "20", "files-size": "10001"}
    assert table.listed()[0] == table.listed(0)[0]
    assert table.reads == ["metadata/snap-1.avro"]


def test_times_do_not_go_back():
    table = _first(timestamp_ms=START_MS)
    table.publish(timestamp_ms=START_MS - 1)
    assert [each["timestamp-ms"] for each in table.metadata["snapshot-log"]] == [START_MS, START_MS]
    assert table.metadata["last-updated-ms"] == START_MS


def test_a_removed_file_is_deleted_in_a_manifest_that_replaces_its_own():
    files = [_file(number, partition) for partition in range(2) for number in range(3)]
    table = _first(*files)
    table.publish(_file(3))
    table.publish(removed=[files[1], files[5]])
    entries = table.entries()
    assert [each["status"] for each in entries] == [ADDED, EXISTING, DELETED, EXISTING, EXISTING, EXISTING, DELETED]
    assert [each["snapshot_id"] for each in entries] == [2, 1, 3, 1, 1, 1, 3]
    assert [each["sequence_number"] for each in entries] == [2, 1, 1, 1, 1, 1, 1]
    kept, replaced = table.listed()
    assert kept == table.listed(1)[1]
    assert (replaced["sequence_number"], replaced["min_sequence_number"]) == (3, 1)
    assert (replaced["existing_rows_count"], replaced["deleted_rows_count"]) == (40, 20)
    assert table.reads == ["metadata/snap-2.avro", "metadata/00000000000000000009-0.avro"]
    summary = {name: table.summary[name] for name in ("operation", "deleted-data-files", "deleted-records")}
    assert summary == {"operation": "delete", "deleted-data-files": "2", "deleted-records": "20"}
    table.publish(removed=[files[0]])
    assert table.counts == [(0, 1, 0), (3, 0, 1)]


def test_a_manifest_is_left_out_after_all_of_its_files_were_removed():
    table = _first(_file(0), _file(1))
    table.publish(removed=[_file(0), _file(1)])
    assert table.counts == [(0, 0, 2)]
    table.publish()
    assert table.counts == []
    assert table.summary["total-data-files"] == "0"


def test_a_file_may_come_back():
    table = _first(_file(0), _file(1))
    table.publish(removed=[_file(0)])
    table.publish(_file(0))
    assert table.files() == [(_file(0).path, 3), (_file(1).path, 1)]
    table.publish(removed=[_file(0)])
    assert table.files() == [(_file(1).path, 1)]


def test_only_manifests_that_may_have_a_removed_file_are_read():
    table = Table()
    for number in range(6):
        table.publish(*(_file(number, partition) for partition in range(2)))
    table.publish(removed=[_file(2, 1)])
    assert table.reads == ["metadata/snap-6.avro", "metadata/00000000000000000029-0.avro"]


@pytest.mark.parametrize(
    ("added", "removed", "operation"),
    [
        ([True], [], "append"),
        ([], [True], "delete"),
        ([True], [True], "overwrite"),
        ([False], [False], "replace"),
        ([False, True], [False], "overwrite"),
        ([False], [False, True], "overwrite"),
        ([False, True], [], "overwrite"),
        ([], [], "append"),
    ],
)
def test_the_operation_says_whether_data_changes(added, removed, operation):
    table = _first(_file(0), _file(1))
    gone = [_file(number, changes_data=changes) for number, changes in enumerate(removed)]
    table.publish(*(_file(5 + number, changes_data=changes) for number, changes in enumerate(added)), removed=gone)
    assert table.summary["operation"] == operation


@pytest.mark.parametrize(("count", "files"), [(300, 1), (60, 40), (20, 700)])
def test_the_list_stays_short_and_few_manifests_are_read(count, files):
    table, most = Table(), 0
    for number in range(count):
        table.publish(*(_file(number * files + each) for each in range(files)))
        most = max(most, len(table.reads))
    assert most <= 1 + MERGED_MANIFESTS
    counts = [existing + added for existing, added, _ in table.counts]
    assert sum(counts) == count * files
    assert max(counts) < 2 * FULL_FILES
    assert len([each for each in counts if each < FULL_FILES]) < 3 * MERGED_MANIFESTS + 2
    expected = [(_file(number).path, number // files + 1) for number in range(count * files)]
    assert table.files() == expected


def test_the_list_stays_short_while_each_version_removes_a_file():
    table, most = Table(), 0
    for number in range(400):
        table.publish(_file(number), removed=[_file(number - 60)] if number >= 60 else [])
        most = max(most, len(table.counts))
    assert most < 2 * MERGED_MANIFESTS + 3
    assert table.files() == [(_file(number).path, number + 1) for number in range(340, 400)]


def test_a_merged_manifest_keeps_sequence_numbers_and_has_no_deleted_files():
    table = _first(_file(0), _file(1))
    table.publish(removed=[_file(0)])
    for number in range(2, 9):
        table.publish(_file(number))
    table.publish()
    assert table.counts == [(8, 0, 0)]
    assert [each["sequence_number"] for each in table.entries()] == [1, *range(3, 10)]
    assert [each["snapshot_id"] for each in table.entries()] == [1, *range(3, 10)]
    assert table.listed()[0]["min_sequence_number"] == 1
    table.publish(removed=[_file(4)])
    assert table.counts == [(7, 0, 1)]


def test_many_files_are_in_manifests_of_about_the_same_size():
    table = _first(*(_file(number) for number in range(FULL_FILES * 3 - 1)))
    assert table.counts == [(0, 767, 0), (0, 768, 0)]


def test_a_table_may_begin_with_any_version():
    version = _version(5, is_new_schema=True, added=(_file(),))
    objects = dict(iceberg.publication(version, None, lambda name: pytest.fail(name)))
    assert list(objects) == [
        "metadata/00000000000000000059-0.avro",
        "metadata/snap-6.avro",
        "metadata/v6.metadata.json",
    ]
    metadata = json.loads(objects["metadata/v6.metadata.json"])
    assert (metadata["current-snapshot-id"], metadata["last-sequence-number"]) == (6, 6)
    assert "parent-snapshot-id" not in metadata["snapshots"][0]


def test_versions_that_cannot_be_read_are_left_out_and_their_metadata_is_past():
    table = Table()
    for number in range(8):
        table.publish(_file(number), removed=[_file(number - 1)] if number else [], first=max(0, number - 2))
    metadata = table.metadata
    assert [each["snapshot-id"] for each in metadata["snapshots"]] == [6, 7, 8]
    assert [each["snapshot-id"] for each in metadata["snapshot-log"]] == [6, 7, 8]
    files = [each["metadata-file"].rpartition("/")[2] for each in metadata["metadata-log"]]
    assert files == ["v6.metadata.json", "v7.metadata.json"]
    others = [iceberg.VERSION_HINT, _file().path, "_delta_log/00000000000000000000.json"]
    past = iceberg.past_names([*table.objects, *others], metadata, 5, table.objects.__getitem__)
    needed = table.objects.keys() - set(past)
    assert needed == {
        *(f"metadata/snap-{number}.avro" for number in (6, 7, 8)),
        *(f"metadata/v{number}.metadata.json" for number in (6, 7, 8)),
        *(f"metadata/{10 * version + 9:020d}-{each}.avro" for version in (5, 6, 7) for each in range(2)),
    }
    assert set(past) < table.objects.keys()


def test_the_only_version_that_can_be_read_has_no_metadata_before():
    table = _first(_file())
    table.publish(first=1)
    assert table.metadata["metadata-log"] == []
    assert [each["snapshot-id"] for each in table.metadata["snapshots"]] == [2]
    assert iceberg.past_names(table.objects, table.metadata, 1, table.objects.__getitem__) == [
        "metadata/snap-1.avro",
        "metadata/v1.metadata.json",
    ]


@pytest.mark.parametrize("columns", [None, (("id", "int64", True),)])
def test_after_a_gap_the_snapshots_from_before_it_can_be_read(columns):
    table = Table()
    for number in range(3):
        table.publish(_file(number))
    version = replace(_version(6, added=[_file(0), _file(9)]), columns=columns)
    objects = dict(iceberg.publication(version, None, table.objects.__getitem__, first=1, older=table.metadata))
    metadata = json.loads(objects["metadata/v7.metadata.json"])
    assert [each["snapshot-id"] for each in metadata["snapshots"]] == [2, 3, 7]
    assert [each["snapshot-id"] for each in metadata["snapshot-log"]] == [2, 3, 7]
    files = [each["metadata-file"].rpartition("/")[2] for each in metadata["metadata-log"]]
    assert files == ["v2.metadata.json", "v3.metadata.json"]
    assert "parent-snapshot-id" not in metadata["snapshots"][-1]
    # The columns of the snapshots before are there under their own number.
    assert [each["schema-id"] for each in metadata["schemas"]] == ([0] if columns is None else [0, 1])
    assert [each["schema-id"] for each in metadata["snapshots"]] == ([0, 0, 0] if columns is None else [0, 0, 1])
    assert metadata["snapshots"][-1]["summary"]["total-data-files"] == "2"
    listed = iceberg.IcebergFiles(metadata, {**table.objects, **objects}.__getitem__)
    assert {version: len(listed.files(version)) for version in listed.versions} == {1: 2, 2: 3, 6: 2}
    past = iceberg.past_names([*table.objects, *objects], metadata, 1, {**table.objects, **objects}.__getitem__)
    assert sorted(past) == ["metadata/snap-1.avro", "metadata/v1.metadata.json"]


def test_metadata_of_another_version_is_refused():
    table = _first()
    with pytest.raises(ValueError, match="before version 2 is of 0"):
        iceberg.publication(_version(2), table.metadata, table.objects.__getitem__)


@pytest.mark.parametrize("file", [_file(0, path="kafka_partition=0/other.parquet"), _file(7), _file(0, partition=1)])
def test_a_removed_file_that_no_manifest_has_is_refused(file):
    table = _first(_file(0), _file(1))
    with pytest.raises(ValueError, match=r"\.parquet is removed, and no manifest has it"):
        table.publish(removed=[file])


@pytest.mark.parametrize("name", ["metadata/00000000000000000009-0.avro", "metadata/snap-1.avro"])
def test_damage_is_a_value_error(name):
    table = _first(_file(0), _file(1))
    data = table.objects[name]
    for length in range(len(data)):
        table.objects[name] = data[:length]
        with pytest.raises(ValueError, match=r"."):
            table.publish(removed=[_file(0)])
    for place in range(len(data)):
        table.objects[name] = data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]
        # Most damage is seen. The rest changes values.
        try:
            table.publish(removed=[_file(0)])
        except ValueError:
            continue
        for made in ("metadata/00000000000000000019-0.avro", "metadata/snap-2.avro", "metadata/v2.metadata.json"):
            del table.objects[made]
        table.version = 0
