"""What makes a file the same: each file takes effect once in a topic, whichever way it is imported."""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePath
from typing import Final, NamedTuple

from sparktxn.format.names import PARTITION_COLUMN
from sparktxn.store import Store
from sparktxn.structs import TopicState

__all__ = ["BATCH", "FileIdentity", "imported_by", "name_of", "partition_of"]

BATCH: Final = 0
"""The batch id of an import, in its file's transactional id."""
_FOLDER: Final = re.compile(rf"(?:partition|{PARTITION_COLUMN})=([0-9]{{1,5}})")


class FileIdentity(NamedTuple):
    """A file's name, with its folder if that is a partition's, its size, and the SHA-256 of its content."""

    name: str
    size_bytes: int
    digest: str

    def transactional_id(self, topic: TopicState) -> str:
        """Return the id under which a topic's import of this file is known again."""
        text = f"{topic.topic_id}\0{self.name}\0{self.size_bytes}\0{self.digest}"
        return f"import-{hashlib.sha256(text.encode()).hexdigest()[:40]}"

    @property
    def writer_id(self) -> str:
        """What the log is to call the import."""
        return f"import of {self.name}"


def name_of(path: PurePath) -> str:
    """Return what of a file's path makes it another file: its name, with the folder if that is a partition's."""
    return f"{path.parent.name}/{path.name}" if _FOLDER.fullmatch(path.parent.name) else path.name


def partition_of(path: PurePath) -> int | None:
    """Return the partition that the folder of a file says, or None."""
    folder = _FOLDER.fullmatch(path.parent.name)
    return None if folder is None else int(folder[1])


def imported_by(store: Store, transactional_id: str) -> int | None:
    """Return the entry that has imported the file of an id, as this process knows the log; None if none has."""
    transaction = store.log.transaction(transactional_id)
    sink = None if transaction is None else transaction.sink
    return None if sink is None else next((one.entry for one in sink.batches if one.batch_id == BATCH), None)
