"""Objects in this process's memory: for tests, trials and the simulator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from sparktxn._engine.objectstore.contract import (
    ObjectInfo,
    PutOutcome,
    check_time,
    checked_data,
    checked_object_name,
    checked_prefix,
)
from sparktxn._foundation.process.clock import Clock
from sparktxn.metrics.process import PROCESS


class _Stored(NamedTuple):
    data: bytes
    modified_ms: int


class _Shelf:
    """The objects of one name, by folder: shared by all handles of the process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.folders: dict[str, dict[str, _Stored]] = {}


_shelves: dict[str, _Shelf] = {}
_shelves_lock = threading.Lock()


def _folder_of(name: str) -> str:
    return name[: name.rfind("/") + 1]


class MemoryStore:
    """Objects in memory. All handles of a process that were opened under one name share them; they live as long as it.

    A forked child sees a copy, another process nothing.
    """

    probe_is_cheap = True

    def __init__(self, name: str, clock: Clock) -> None:
        self.uri = f"memory://{name}"
        self._clock = clock
        with _shelves_lock:
            self._shelf = _shelves.setdefault(name, _Shelf())

    def __repr__(self) -> str:
        return f"MemoryStore({self.uri!r})"

    def get(self, name: str) -> bytes | None:
        """Return the object's bytes, or None."""
        folder = _folder_of(checked_object_name(name))
        check_time("read", name)
        with self._shelf.lock:
            stored = self._shelf.folders.get(folder, {}).get(name)
        PROCESS.get.note(len(stored.data) if stored else 0)
        return stored.data if stored else None

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        """Return `get` of each name."""
        return [self.get(name) for name in names]

    def get_range(self, name: str, start: int, end: int) -> bytes | None:
        """Return bytes `start` to `end`, or None."""
        data = self.get(name)
        return None if data is None else data[start:end]

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        """Create the object if the name is free; always answers at once, never UNKNOWN."""
        folder = _folder_of(checked_object_name(name))
        stored = _Stored(bytes(checked_data(name, data)), self._clock.wall_ms())
        check_time("create", name)
        with self._shelf.lock:
            mine = self._shelf.folders.setdefault(folder, {}).setdefault(name, stored)
        PROCESS.put.note(len(data))
        return PutOutcome.CREATED if mine is stored else PutOutcome.EXISTS

    def put(self, name: str, data: bytes) -> None:
        """Write the object, over an older one."""
        folder = _folder_of(checked_object_name(name))
        stored = _Stored(bytes(checked_data(name, data)), self._clock.wall_ms())
        check_time("write", name)
        with self._shelf.lock:
            self._shelf.folders.setdefault(folder, {})[name] = stored
        PROCESS.put.note(len(data))

    def list_names(self, folder: str, after: str = "") -> list[str]:
        """List the names of the objects directly in `folder` that sort after `after`."""
        checked_prefix(folder)
        check_time("list", folder)
        PROCESS.list.note()
        with self._shelf.lock:
            return [name for name in self._shelf.folders.get(folder, ()) if name > after]

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """Return all objects whose name starts with `prefix`, by name."""
        checked_prefix(prefix)
        check_time("list", prefix)
        PROCESS.list.note()
        with self._shelf.lock:
            found = [
                ObjectInfo(name, len(stored.data), stored.modified_ms)
                for folder, objects in self._shelf.folders.items()
                if folder.startswith(prefix) or prefix.startswith(folder)
                for name, stored in objects.items()
                if name.startswith(prefix) and name > after
            ]
        return sorted(found)

    def delete(self, names: Iterable[str]) -> None:
        """Delete the objects."""
        checked = [checked_object_name(name) for name in names]
        check_time("delete", checked[0] if checked else "")
        PROCESS.delete.note(count=len(checked))
        with self._shelf.lock:
            for name in checked:
                self._shelf.folders.get(_folder_of(name), {}).pop(name, None)

    def make_durable(self, name: str) -> None:
        """Do nothing: memory does not outlive the process."""

    def contention_lock(self, while_waiting: Callable[[], None] | None = None) -> AbstractContextManager[None]:
        """Do nothing: a put is faster than a lock."""
        return nullcontext()

    def close(self) -> None:
        """Do nothing: nothing is held, and the objects stay."""
