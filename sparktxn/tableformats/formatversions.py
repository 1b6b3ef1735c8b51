"""Which versions a table has in a format: there are gaps where the topic was not a table of this format.

The names of objects alone say it. Publishing, vacuuming, verifying and repairing ask here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

__all__ = ["FOLDERS", "FormatVersions", "is_metadata", "versions_in"]

FOLDERS: Final = {"delta": "_delta_log/", "iceberg": "metadata/"}
"""Where each format has its metadata, below the topic's folder."""

_COMPLETE: Final = {
    "delta": re.compile(r"_delta_log/([0-9]{20})\.json"),
    "iceberg": re.compile(r"metadata/v([1-9][0-9]*)\.metadata\.json"),
}
_FIRST_NUMBER: Final = {"delta": 0, "iceberg": 1}
_CHECKPOINT: Final = re.compile(r"_delta_log/([0-9]{20})\.checkpoint\.parquet")
_LIST: Final = re.compile(r"metadata/snap-([1-9][0-9]*)\.avro")
_OURS: Final = {
    "delta": re.compile(r"_delta_log/(?:[0-9]{20}\.(?:json|checkpoint\.parquet)|_last_checkpoint)"),
    "iceberg": re.compile(
        r"metadata/(?:v[0-9]+\.metadata\.json|snap-[0-9]+\.avro|[0-9]{20}-[0-9]+\.avro|version-hint\.text)"
    ),
}


class FormatVersions(Struct, frozen=True):
    """The versions of a table in one format, in their order: those that the object is there for which completes them.

    `checkpoints` are Delta's. A version of Delta is read from the newest checkpoint that is not above it. `begun` are
    those of which another object is there: a checkpoint, or Iceberg's list of manifests.
    """

    versions: tuple[int, ...]
    is_delta: bool = False
    checkpoints: frozenset[int] = frozenset()
    begun: frozenset[int] = frozenset()

    def newest_below(self, version: int, first: int) -> int | None:
        """Return the newest version below `version`, and not below `first`; None if there is none."""
        return max((each for each in self.versions if first <= each < version), default=None)

    def needed_from(self, first: int) -> int | None:
        """Return the version from whose metadata on those from `first` on are read; None if there are none of these.

        >>> FormatVersions((0, 1, 4, 5), True, frozenset({4})).needed_from(2)
        4
        >>> FormatVersions((0, 1, 4, 5), True, frozenset({4})).needed_from(1)
        0
        """
        oldest = next((each for each in self.versions if each >= first), None)
        if oldest is None:
            return None
        if not self.is_delta:
            return oldest
        return max((each for each in self.checkpoints if each <= oldest), default=0)


def versions_in(format_name: str, names: Iterable[str]) -> FormatVersions:
    """Return the versions that objects say, by their names below the topic's folder.

    >>> versions_in("iceberg", ["metadata/v1.metadata.json", "metadata/snap-1.avro", "metadata/v7.metadata.json"])
    FormatVersions(versions=(0, 6), is_delta=False, checkpoints=frozenset(), begun=frozenset({0}))
    """
    listed = list(names)
    complete, least = _COMPLETE[format_name], _FIRST_NUMBER[format_name]
    found = sorted(int(match[1]) - least for match in map(complete.fullmatch, listed) if match)
    if format_name != "delta":
        lists = frozenset(int(match[1]) - least for match in map(_LIST.fullmatch, listed) if match)
        return FormatVersions(tuple(found), begun=lists)
    checkpoints = frozenset(int(match[1]) for match in map(_CHECKPOINT.fullmatch, listed) if match)
    return FormatVersions(tuple(found), True, checkpoints, checkpoints)


def is_metadata(format_name: str, name: str) -> bool:
    """Return whether an object is a format's metadata of this package, by its name below the topic's folder."""
    return _OURS[format_name].fullmatch(name) is not None
