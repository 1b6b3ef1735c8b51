"""The files of a Delta table's versions, read back from its log."""

from __future__ import annotations

from urllib.parse import unquote

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from sparktxn.tableformats.deltaactions import Add, decode, encode
from sparktxn.tableformats.deltacheckpoint import checkpoint_files

__all__ = ["DeltaFiles"]


class DeltaFiles:
    """The files of one version, from which each commit leads to those of the next one.

    Args:
        checkpoint: the checkpoint of the version; None for the one before version 0.

    Attributes:
        files: its files, by path below the topic's folder: each as the action that has added it, without what depends
            on the version.

    Raises:
        ValueError: the checkpoint cannot be decoded.
    """

    def __init__(self, checkpoint: bytes | None) -> None:
        self.files: dict[str, Add] = {}
        for add in () if checkpoint is None else checkpoint_files(checkpoint):
            self._add(add)

    def apply(self, commit: bytes) -> None:
        """Go on to the version of a commit.

        Raises:
            ValueError: the bytes are not a commit, or it adds a file that is there as new data, or removes one that is
                not there.
        """
        actions = decode(commit)
        if encode(actions) != commit:
            # The decoder passes over names that it does not know, whatever their bytes.
            raise ValueError("it is not the JSON of its actions")
        for action in actions:
            if action.remove is not UNSET:
                path = unquote(action.remove.path)
                if self.files.pop(path, None) is None:
                    raise ValueError(f"it removes {path}, which the version before does not have")
            if action.add is not UNSET:
                if not action.add.data_change:
                    # It may be there with other statistics.
                    self.files.pop(unquote(action.add.path), None)
                self._add(action.add)

    def _add(self, add: Add) -> None:
        path = unquote(add.path)
        if path in self.files:
            raise ValueError(f"it adds {path}, which is there")
        msgspec.json.decode(add.stats)
        self.files[path] = replace(add, modification_time=0, data_change=False)
