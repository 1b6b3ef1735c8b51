"""A topic as an Iceberg table, format version 2: the metadata of each version (PROTOCOL.md, "Tables").

A version is a snapshot. All is a pure function of the version and of the metadata of the version before. So two
processes that write an object write the same bytes. The names are those of Iceberg's Hadoop tables, which need no
catalog: readers open the newest `metadata/v<number>.metadata.json`.

Iceberg has no feature that makes an engine refuse to write. Properties do: see `_PROPERTIES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from sparktxn._engine.format.names import PARTITION_COLUMN
from sparktxn._rows.tableformats.icebergmanifests import (
    EARLIER_ENTRY,
    ENTRY,
    Entry,
    IcebergSnapshot,
    decode_file,
    decode_list,
    encode_list,
    has_statistics,
    is_live,
    manifests,
)
from sparktxn._rows.tableformats.icebergschema import PARTITION_ID, last_column_id, name_mapping, schema_of
from sparktxn._rows.tableformats.version import (
    METADATA_FOLDER,
    VERSION_HINT,
    TableFile,
    TableVersion,
    metadata_name,
    snapshot_id,
    version_hint,
)

__all__ = ["VERSION_HINT", "IcebergFiles", "list_name", "metadata_name", "past_names", "publication", "version_hint"]


# The files of an Iceberg table's snapshots, read back from its metadata.


class IcebergFiles:
    """The files of the snapshots that one metadata file has; each manifest is read once.

    Args:
        metadata: the decoded metadata.
        read: read an object by its name below the topic's folder.
    """

    def __init__(self, metadata: Mapping[str, Any], read: Callable[[str], bytes]) -> None:
        self._base = f"{metadata['location']}/"
        self._read = read
        self._lists = {
            snapshot["snapshot-id"] - 1: self._below(snapshot["manifest-list"]) for snapshot in metadata["snapshots"]
        }
        self._manifests: dict[str, dict[str, Entry]] = {}

    @property
    def versions(self) -> list[int]:
        """The versions that are snapshots of the metadata, from the oldest one on."""
        return sorted(self._lists)

    def files(self, version: int) -> dict[str, Entry]:
        """Return a version's files, by path below the topic's folder: each as its manifest describes it.

        Raises:
            ValueError: a list or a manifest is damaged, or the version has a file twice.
        """
        found: dict[str, Entry] = {}
        for manifest in decode_list(self._read(self._lists[version])):
            files = self._files(self._below(manifest.listed["manifest_path"]), manifest.listed["manifest_length"])
            if twice := found.keys() & files.keys():
                raise ValueError(f"version {version} has {min(twice)} in two manifests")
            if len(files) != manifest.file_count:
                raise ValueError(f"the list of version {version} counts {manifest.file_count} files, not {len(files)}")
            found |= files
        return found

    def _files(self, name: str, size_bytes: int) -> dict[str, Entry]:
        if name not in self._manifests:
            data = self._read(name)
            if len(data) != size_bytes:
                raise ValueError(f"{name} has {len(data)} bytes, and not the {size_bytes} of the list")
            _, entries = decode_file(ENTRY, data, EARLIER_ENTRY)
            described = (entry["data_file"] for entry in entries if is_live(entry))
            self._manifests[name] = {self._below(file["file_path"]): file for file in described}
        return self._manifests[name]

    def _below(self, address: str) -> str:
        """Return the name of an object below the topic's folder.

        Raises:
            ValueError: it is elsewhere.
        """
        if not address.startswith(self._base):
            raise ValueError(f"it names {address}, which is not below {self._base}")
        return address.removeprefix(self._base)


_PARTITION_FIELD: Final = 1000
"""The number of the first partition field, as Iceberg counts them."""

_SPEC: Final = {
    "spec-id": 0,
    "fields": [
        {"field-id": _PARTITION_FIELD, "name": PARTITION_COLUMN, "source-id": PARTITION_ID, "transform": "identity"}
    ],
}

_NAME_MAPPING: Final = "schema.name-mapping.default"
_PUBLISHED_ENTRY: Final = "txnlog.published-entry"

_NOWHERE: Final = "txnlog:a-topic-takes-no-files-of-other-writers"
"""No address of files: errors of engines show it."""

_PROPERTIES: Final = {
    # The log decides which files exist. Engines then refuse to expire snapshots and to delete files that are in none.
    "gc.enabled": "false",
    "write.format.default": "parquet",
    # Engines find no file system for these, and so write neither files nor metadata. Iceberg commits to no table
    # without a catalog that has the second one, whatever the change is. Readers take no notice.
    "write.data.path": _NOWHERE,
    "write.metadata.path": _NOWHERE,
}

_NAME: Final = re.compile(
    rf"{METADATA_FOLDER}(?:v(?P<metadata>[0-9]+)\.metadata\.json|snap-(?P<list>[0-9]+)\.avro|(?P<entry>[0-9]{{20}})-[0-9]+\.avro)"
)

_encoder: Final = msgspec.json.Encoder(order="sorted")

_NONE_BEFORE: Final[Mapping[str, Any]] = {
    "schemas": [],
    "snapshots": [],
    "snapshot-log": [],
    "metadata-log": [],
    "last-updated-ms": -(1 << 63),
}


def list_name(version: int) -> str:
    """Return the name of a version's list of manifests, below the topic's folder."""
    return f"{METADATA_FOLDER}snap-{snapshot_id(version)}.avro"


def publication(
    version: TableVersion,
    previous: Mapping[str, Any] | None,
    read: Callable[[str], bytes],
    *,
    first: int = 0,
    older: Mapping[str, Any] | None = None,
    whole: Callable[[], TableVersion] | None = None,
    is_earlier: bool = False,
) -> list[tuple[str, bytes]]:
    """Return the objects of a version in the order in which they are put: its metadata is the last one.

    After a version that an earlier version of this package has written all manifests are written anew, so that all
    files have statistics.

    Args:
        version: the version. Without metadata before it, it has all files of the table as added ones.
        previous: the decoded metadata of the version before; None for the first one that has metadata.
        read: read an object of the versions before by its name, which is below the topic's folder, as all names are.
        first: the oldest version that can be read; snapshots of older ones are left out.
        older: without `previous`, the decoded metadata of an earlier version, whose snapshots can still be read: the
            topic was not an Iceberg table in between. The snapshot of this version has none of them as its parent.
        whole: returns the version as one that has none before it, with the statistics of all files.
        is_earlier: make it as an earlier version of this package did.

    Raises:
        ValueError: `previous` is of another version, a manifest is damaged, or none has a removed file.
    """
    if previous is not None and previous["current-snapshot-id"] != version.version:
        raise ValueError(f"the metadata before version {version.version} is of {previous['current-snapshot-id'] - 1}")
    schema = _schema(version, previous, older)
    listed = None if previous is None else read(list_name(version.version - 1))
    again = None
    if listed is not None and whole is not None and not is_earlier and not has_statistics(listed):
        again = {file.path: file for file in whole().added}
    snapshot = IcebergSnapshot(
        number=snapshot_id(version.version),
        location=version.location,
        prefix=f"{METADATA_FOLDER}{version.published_entry:020d}",
        header=_manifest_header(schema),
        added=version.added,
        removed=version.removed,
        read=read,
        columns=version.columns,
        again=again,
        is_earlier=is_earlier,
    )
    before = [] if listed is None else decode_list(listed)
    found, objects = manifests(snapshot, before)
    parent = None if previous is None else version.version
    objects.append((list_name(version.version), encode_list(snapshot, parent, found)))
    metadata = _metadata(version, previous, older, schema, first)
    return [*objects, (metadata_name(version.version), _encoder.encode(metadata))]


def past_names(
    names: Iterable[str], metadata: Mapping[str, Any], version: int, read: Callable[[str], bytes]
) -> list[str]:
    """Return those of `names` that are metadata, and that no version needs from `version` on.

    `metadata` is that of `version`, or of a later one. A manifest that a snapshot does not name is not named by a later
    one, so only the list of this snapshot is read.

    Raises:
        ValueError: the list is damaged.
    """
    number = snapshot_id(version)
    oldest = next(each for each in metadata["snapshots"] if each["snapshot-id"] == number)
    entry = int(oldest["summary"][_PUBLISHED_ENTRY])
    listed = decode_list(read(list_name(number - 1)))
    needed = {each.listed["manifest_path"].removeprefix(f"{metadata['location']}/") for each in listed}
    return [name for name in names if name not in needed and _is_past(name, number, entry)]


def _is_past(name: str, number: int, entry: int) -> bool:
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    if found["entry"] is not None:
        return int(found["entry"]) <= entry
    return int(found["metadata"] or found["list"]) < number


def _schema(
    version: TableVersion, previous: Mapping[str, Any] | None, older: Mapping[str, Any] | None
) -> dict[str, Any]:
    if previous is None:
        number = older["current-schema-id"] if older is not None else 0
        schema = schema_of(version.columns, number)
        is_known = older is None or schema in older["schemas"]
        return schema if is_known else schema_of(version.columns, number + 1)
    number = previous["current-schema-id"]
    if version.is_new_schema:
        return schema_of(version.columns, number + 1)
    return next(dict(each) for each in previous["schemas"] if each["schema-id"] == number)


def _manifest_header(schema: Mapping[str, Any]) -> dict[str, str]:
    return {
        "schema": _encoder.encode(schema).decode(),
        "schema-id": str(schema["schema-id"]),
        "partition-spec": _encoder.encode(_SPEC["fields"]).decode(),
        "partition-spec-id": "0",
        "format-version": "2",
        "content": "data",
    }


def _metadata(
    version: TableVersion,
    previous: Mapping[str, Any] | None,
    older: Mapping[str, Any] | None,
    schema: Mapping[str, Any],
    first: int,
) -> dict[str, Any]:
    number, oldest = snapshot_id(version.version), snapshot_id(first)
    before: Mapping[str, Any] = previous or older or _NONE_BEFORE
    # Iceberg refuses metadata whose times go back, and clocks of writers may.
    timestamp_ms = max(version.timestamp_ms, before["last-updated-ms"])
    snapshots = [*before["snapshots"], _snapshot(version, previous, schema["schema-id"], timestamp_ms)]
    log = [*before["snapshot-log"], {"snapshot-id": number, "timestamp-ms": timestamp_ms}]
    schemas = [each for each in before["schemas"] if each["schema-id"] != schema["schema-id"]]
    return {
        "format-version": 2,
        "table-uuid": version.table_id,
        "location": version.location,
        "last-sequence-number": number,
        "last-updated-ms": timestamp_ms,
        "last-column-id": max(last_column_id(schema), before.get("last-column-id", 0)),
        "schemas": [*schemas, schema],
        "current-schema-id": schema["schema-id"],
        "partition-specs": [_SPEC],
        "default-spec-id": 0,
        "last-partition-id": _PARTITION_FIELD,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": _PROPERTIES | {_NAME_MAPPING: name_mapping(schema)},
        "current-snapshot-id": number,
        "snapshots": [each for each in snapshots if each["snapshot-id"] >= oldest],
        "snapshot-log": [each for each in log if each["snapshot-id"] >= oldest],
        "metadata-log": _metadata_log(version, before, first),
        "refs": {"main": {"snapshot-id": number, "type": "branch"}},
    }


def _metadata_log(version: TableVersion, before: Mapping[str, Any], first: int) -> list[Any]:
    if before is _NONE_BEFORE:
        return []
    last = before["current-snapshot-id"] - 1
    file = f"{version.location}/{metadata_name(last)}"
    log = [*before["metadata-log"], {"metadata-file": file, "timestamp-ms": before["last-updated-ms"]}]
    kept = {f"{version.location}/{metadata_name(each)}" for each in range(first, last + 1)}
    return [each for each in log if each["metadata-file"] in kept]


def _snapshot(
    version: TableVersion, previous: Mapping[str, Any] | None, schema_id: int, timestamp_ms: int
) -> dict[str, Any]:
    snapshot: dict[str, Any] = {
        "snapshot-id": snapshot_id(version.version),
        "sequence-number": snapshot_id(version.version),
        "timestamp-ms": timestamp_ms,
        "manifest-list": f"{version.location}/{list_name(version.version)}",
        "schema-id": schema_id,
        "summary": _summary(version, previous),
    }
    return snapshot if previous is None else snapshot | {"parent-snapshot-id": previous["current-snapshot-id"]}


def _summary(version: TableVersion, previous: Mapping[str, Any] | None) -> dict[str, str]:
    """Return what a version changes and has, as texts, which Iceberg demands."""
    before = {} if previous is None else previous["snapshots"][-1]["summary"]
    numbers = {
        "txnlog.entry": version.entry,
        _PUBLISHED_ENTRY: version.published_entry,
        "changed-partition-count": len({file.partition for file in (*version.added, *version.removed)}),
        "total-delete-files": 0,
        "total-position-deletes": 0,
        "total-equality-deletes": 0,
    }
    added, removed = _totals(version.added), _totals(version.removed)
    for name in added:
        numbers[f"added-{name}"] = added[name]
        numbers[f"removed-{name}" if name == "files-size" else f"deleted-{name}"] = removed[name]
        numbers[f"total-{name}"] = int(before.get(f"total-{name}", 0)) + added[name] - removed[name]
    return {"operation": _operation(version)} | {name: str(number) for name, number in numbers.items()}


def _totals(files: Sequence[TableFile]) -> dict[str, int]:
    return {
        "data-files": len(files),
        "records": sum(file.record_count for file in files),
        "files-size": sum(file.size_bytes for file in files),
    }


def _operation(version: TableVersion) -> str:
    """Return what a version does, in Iceberg's terms: readers that follow a table read only what is appended."""
    files = (*version.added, *version.removed)
    if files and not any(file.changes_data for file in files):
        return "replace"
    if not version.removed and all(file.changes_data for file in version.added):
        return "append"
    return "overwrite" if version.added else "delete"
