"""Files of this machine that belong to no store, and how their versions show that they have changed."""

from __future__ import annotations

import os

from sparktxn.objectstore.contract import ForeignFile

__all__ = ["list_files", "read_file", "version_of"]


def read_file(path: str) -> ForeignFile | None:
    """Return a file, or None if it does not exist.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            version = version_of(os.fstat(file.fileno()))
            return ForeignFile(file.read(), version)
    except FileNotFoundError:
        return None


def version_of(status: os.stat_result) -> str:
    """Return what differs once a file has been replaced or written to."""
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def list_files(folder: str) -> list[str]:
    """Return all files below a folder, in order, but for those to which only links of folders lead."""
    return sorted(os.path.join(top, file) for top, _, files in os.walk(folder) for file in files)
