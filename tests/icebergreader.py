"""Reads which files an Iceberg table has by its metadata alone, out of any object store."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro

from sparktxn._engine.objectstore.contract import ObjectStore

__all__ = ["IcebergVersions"]

_DELETED = 2


class IcebergVersions:
    """The versions of a topic's table, whose folder ends with a slash."""

    def __init__(self, objects: ObjectStore, folder: str) -> None:
        self._objects, self._folder = objects, folder
        self._location = ""

    def exists(self, version: int) -> bool:
        """Whether the version has its metadata."""
        return self._objects.get(f"{self._folder}metadata/v{version + 1}.metadata.json") is not None

    def metadata(self, version: int) -> dict[str, Any]:
        """What the version's own metadata says."""
        found: dict[str, Any] = json.loads(self._get(f"metadata/v{version + 1}.metadata.json"))
        self._location = found["location"] + "/"
        return found

    def readable(self, newest: int) -> list[int]:
        """The versions that the metadata of the newest one has."""
        return [snapshot["snapshot-id"] - 1 for snapshot in self.metadata(newest)["snapshots"]]

    def files(self, version: int, newest: int) -> dict[str, tuple[int, int]]:
        """The files of a version by the newest metadata: their names in the folder, with size and rows."""
        (snapshot,) = [each for each in self.metadata(newest)["snapshots"] if each["snapshot-id"] == version + 1]
        found = {}
        for manifest in self._records(snapshot["manifest-list"]):
            for entry in self._records(manifest["manifest_path"]):
                if entry["status"] != _DELETED:
                    file = entry["data_file"]
                    name = file["file_path"].removeprefix(self._location)
                    assert name not in found
                    found[name] = file["file_size_in_bytes"], file["record_count"]
        return found

    def _records(self, path: str) -> list[Any]:
        assert path.startswith(self._location)
        return list(fastavro.reader(BytesIO(self._get(path.removeprefix(self._location)))))

    def _get(self, name: str) -> bytes:
        data = self._objects.get(self._folder + name)
        assert data is not None, f"{name} does not exist"
        return data
