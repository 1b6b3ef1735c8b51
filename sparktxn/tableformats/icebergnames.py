"""What the objects of an Iceberg table are called, below the topic's folder. It needs no package of Iceberg's."""

from __future__ import annotations

from typing import Final

__all__ = ["METADATA_FOLDER", "VERSION_HINT", "hinted_version", "metadata_name", "snapshot_id", "version_hint"]

METADATA_FOLDER: Final = "metadata/"

VERSION_HINT: Final = f"{METADATA_FOLDER}version-hint.text"
"""The hint that says which metadata is the newest."""


def snapshot_id(version: int) -> int:
    """Return the id of a version's snapshot, which also is its sequence number. Iceberg counts from 1."""
    return version + 1


def metadata_name(version: int) -> str:
    """Return the name of a version's metadata."""
    return f"{METADATA_FOLDER}v{snapshot_id(version)}.metadata.json"


def version_hint(version: int) -> bytes:
    """Return the hint that names the metadata of `version` as the newest."""
    return str(snapshot_id(version)).encode()


def hinted_version(hint: bytes) -> int | None:
    """Return the version whose metadata a hint names; None if the hint says nothing that can be read."""
    return int(hint) - 1 if hint.isdigit() else None
