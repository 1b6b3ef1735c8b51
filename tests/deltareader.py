"""Reads a Delta table by its log alone, out of any object store: the rows of each version that the log has."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from sparktxn._engine.objectstore.contract import ObjectStore

__all__ = ["DeltaRow", "DeltaVersions"]

DeltaRow = tuple[str, int, int, bytes]
"""Topic, partition, offset and value."""

_LOG: Final = "_delta_log/"


class DeltaVersions:
    """The versions of a topic's table, whose folder ends with a slash."""

    def __init__(self, objects: ObjectStore, folder: str) -> None:
        self._objects, self._folder = objects, folder
        listed = [info.name.removeprefix(folder + _LOG) for info in objects.list(folder + _LOG)]
        self._commits = sorted(int(name[:20]) for name in listed if name[20:] == ".json")
        self._checkpoints = {int(name[:20]) for name in listed if name[20:] == ".checkpoint.parquet"}

    def exists(self, version: int) -> bool:
        """Whether the version has its commit."""
        return version in self._commits

    def readable(self) -> list[int]:
        """Those from the oldest one on of which the log says all: from version 0 or a checkpoint."""
        begins = [number for number in self._commits if number == 0 or number in self._checkpoints]
        return [number for number in self._commits if begins and number >= begins[0]]

    def entry(self, version: int) -> int:
        """What the version says that it shows."""
        return self._said(version, "txnlogEntry")

    def published_entry(self, version: int) -> int:
        """What the version says that has published it."""
        return self._said(version, "txnlogPublishedEntry")

    def _said(self, version: int, what: str) -> int:
        found: int = next(each["commitInfo"][what] for each in self._actions(version) if "commitInfo" in each)
        return found

    def rows(self, version: int, topic: str = "topic") -> list[DeltaRow]:
        """The rows of a version, by partition and offset.

        Raises:
            AssertionError: a file that it names does not exist, or has another size or number of rows.
        """
        return sorted(row for add in self._files(version).values() for row in self._read(add, topic))

    def files(self, version: int) -> dict[str, tuple[int, int]]:
        """The files of a version: their names in the folder, with size and rows."""
        found = self._files(version).values()
        return {unquote(add["path"]): (add["size"], json.loads(add["stats"])["numRecords"]) for add in found}

    def _files(self, version: int) -> dict[str, dict[str, Any]]:
        start = max((number for number in self._checkpoints if number <= version), default=-1)
        files: dict[str, dict[str, Any]] = {}
        if start >= 0:
            rows = pq.read_table(
                pa.BufferReader(self._get(f"{_LOG}{start:020}.checkpoint.parquet")), use_threads=False
            ).to_pylist()
            files = {row["add"]["path"]: row["add"] for row in rows if row["add"] is not None}
        for number in range(start + 1, version + 1):
            for action in self._actions(number):
                if "remove" in action:
                    del files[action["remove"]["path"]]
                if "add" in action:
                    # A file may be added again as it is, with other statistics.
                    assert action["add"]["path"] not in files or not action["add"]["dataChange"]
                    files[action["add"]["path"]] = action["add"]
        return files

    def _read(self, add: dict[str, Any], topic: str) -> list[DeltaRow]:
        data = self._get(unquote(add["path"]))
        assert len(data) == add["size"]
        rows = pq.read_table(pa.BufferReader(data), use_threads=False).to_pylist()
        assert len(rows) == json.loads(add["stats"])["numRecords"]
        values = dict(add["partitionValues"])
        offset = "_offset" if rows and "_offset" in rows[0] else "offset"
        return [(topic, int(values["kafka_partition"]), row[offset], row["value"]) for row in rows]

    def _actions(self, version: int) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._get(f"{_LOG}{version:020}.json").splitlines()]

    def _get(self, name: str) -> bytes:
        data = self._objects.get(self._folder + name)
        assert data is not None, f"{name} does not exist"
        return data
