"""The files of an Iceberg table's snapshots, read back from its metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparktxn.tableformats.icebergavro import EARLIER_ENTRY, ENTRY, decode_file
from sparktxn.tableformats.icebergmanifests import Entry, decode_list, is_live

__all__ = ["IcebergFiles"]


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
