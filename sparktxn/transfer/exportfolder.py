"""The folder of an export: it appears whole, or not at all; and its files."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

from sparktxn._engine.format.names import PARTITION_COLUMN
from sparktxn._foundation.process.clock import RandomIds
from sparktxn.errors import ConfigurationError

PARTITION_FOLDER: Final = re.compile(rf"(?:partition|{PARTITION_COLUMN})=([0-9]{{1,5}})")
"""The name of a folder with the files of one partition."""

_SUCCESS: Final = "_SUCCESS"


def exported_files(folder: Path) -> dict[int, list[Path]]:
    """Return the files of a folder that an export has written, by partition and in the order of names.

    Raises:
        ConfigurationError: it is not an export, or is not whole, or there is something else in it.
        OSError: it cannot be read.
    """
    found = sorted(folder.iterdir())
    if folder / _SUCCESS not in found:
        raise ConfigurationError(
            f"{str(folder)!r} is a folder without a file {_SUCCESS}: expected files, or the whole folder of an export"
        )
    numbers: dict[Path, int] = {}
    for path in found:
        if path.name == _SUCCESS:
            continue
        named = PARTITION_FOLDER.fullmatch(path.name)
        if named is None or not path.is_dir():
            raise ConfigurationError(
                f"{str(path)!r} is in the folder of an export: expected only folders such as partition=0 there; "
                "give its files one by one"
            )
        numbers[path] = int(named[1])
    return {numbers[path]: sorted(path.iterdir()) for path in sorted(numbers, key=lambda path: numbers[path])}


class ExportFolder:
    """A hidden folder whose content becomes that of `target`.

    The hidden folder is next to the target and takes its place in one step. A mount, or a folder in one that may not be
    written to, has no such step. Then the hidden folder is in the target. Its folders are moved up one by one, and the
    file ``_SUCCESS`` last.

    Args:
        target: a folder that does not exist or is empty, or a symbolic link to an empty one.

    Raises:
        ConfigurationError: the target has files, or cannot be written to.
    """

    def __init__(self, target: Path) -> None:
        try:
            self._target = Path(os.path.realpath(target))
            exists = _is_free(target)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"folder {str(target)!r} cannot be used: {error}") from None
        name = f".{self._target.name}-{RandomIds().token()}"
        self.hidden = self._target.parent / name
        self._is_inside = exists and not self._can_replace()
        if self._is_inside:
            self.hidden = self._target / name
        try:
            self.hidden.mkdir(parents=True)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigurationError(f"folder {str(self.hidden.parent)!r} cannot be written to: {reason}") from None

    def _can_replace(self) -> bool:
        """Return whether another folder can take the target's place, by trying it with an empty one."""
        try:
            self.hidden.mkdir()
        except OSError:
            return False
        try:
            shutil.copystat(self._target, self.hidden)
            self.hidden.rename(self._target)
        except OSError:
            self.hidden.rmdir()
            return False
        return True

    def publish(self) -> None:
        """Make the files durable and visible, with ``_SUCCESS``.

        Raises:
            OSError: the disk does not take them.
        """
        (self.hidden / _SUCCESS).touch()
        _make_durable(self.hidden)
        if self._is_inside:
            for path in sorted(self.hidden.iterdir(), key=lambda path: path.name == _SUCCESS):
                path.rename(self._target / path.name)
            self.hidden.rmdir()
            _fsync(self._target)
        else:
            self.hidden.rename(self._target)
            _fsync(self._target.parent)

    def abandon(self) -> None:
        """Delete the hidden folder."""
        shutil.rmtree(self.hidden, ignore_errors=True)


def _is_free(target: Path) -> bool:
    """Return whether there is an empty folder; False if there is nothing."""
    if target.is_dir() and not any(target.iterdir()):
        return True
    if os.path.lexists(target):
        raise ConfigurationError(f"folder {str(target)!r} exists: expected one that does not, or that is empty")
    return False


def _make_durable(folder: Path) -> None:
    for path, _, files in os.walk(folder):
        for file in files:
            _fsync(Path(path, file))
        _fsync(Path(path))


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
