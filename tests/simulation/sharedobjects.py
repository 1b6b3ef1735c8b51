"""The objects of a simulation: what all of its processes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count

from sparktxn._engine.format.names import parse_entry
from sparktxn._engine.objectstore.contract import ObjectInfo, PutOutcome

__all__ = ["SharedObjects"]

_numbers = count()


class SharedObjects:
    """Objects in memory. `history` keeps the first bytes ever created under a name.

    The first is the true one: a slot can only be created again after its deletion, when no process may believe it.
    Each has an address of its own, since the engine remembers manifests by address and name. `now_ms` is the store's
    clock, which dates objects. `changes` counts what was written and deleted. `watchers` are given the name of what is
    written.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.probe_is_cheap = True
        self.uri = f"memory://simulation-{next(_numbers)}"
        self.objects: dict[str, bytes] = {}
        self.history: dict[str, bytes] = {}
        self.changes = 0
        self.watchers: list[Callable[[str], object]] = []
        self._modified_ms: dict[str, int] = {}
        self._folders: dict[str, dict[str, None]] = {}
        self._now_ms = now_ms

    def cloned(self) -> SharedObjects:
        """Return others that begin with the same objects."""
        found = SharedObjects(self._now_ms)
        for name, data in self.objects.items():
            found.put_if_absent(name, data)
        return found

    def get(self, name: str) -> bytes | None:
        """The object's bytes, or None."""
        return self.objects.get(name)

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        """`get` of each name."""
        return [self.objects.get(name) for name in names]

    def get_range(self, name: str, start: int, end: int) -> bytes | None:
        """Bytes `start` to `end`, or None."""
        data = self.objects.get(name)
        return None if data is None else data[start:end]

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        """Creates the object if the name is free."""
        if name in self.objects:
            return PutOutcome.EXISTS
        self.history.setdefault(name, data)
        self.put(name, data)
        return PutOutcome.CREATED

    def put(self, name: str, data: bytes) -> None:
        """Writes the object."""
        self.changes += 1
        self.objects[name] = data
        self._modified_ms[name] = self._now_ms()
        self._folders.setdefault(name[: name.rfind("/") + 1], {})[name] = None
        for watcher in self.watchers:
            watcher(name)

    def modified_ms(self, name: str) -> int:
        """Return when an object was written, by the store's clock."""
        return self._modified_ms[name]

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """All objects whose name starts with `prefix`, by name."""
        return sorted(
            ObjectInfo(name, len(data), self._modified_ms[name])
            for name, data in self.objects.items()
            if name.startswith(prefix) and name > after
        )

    def list_names(self, folder: str, after: str = "") -> Sequence[str]:
        """Names of the objects directly in `folder` that sort after `after`."""
        return [name for name in self._folders.get(folder, ()) if name > after]

    def delete(self, names: Iterable[str]) -> None:
        """Deletes the objects."""
        self.changes += 1
        for name in names:
            self.objects.pop(name, None)
            self._folders.get(name[: name.rfind("/") + 1], {}).pop(name, None)

    def make_durable(self, name: str) -> None:
        """Nothing: this memory never loses power."""

    def contention_lock(self, while_waiting: Callable[[], None] | None = None) -> AbstractContextManager[None]:
        """Nothing: one process runs at a time."""
        return nullcontext()

    def close(self) -> None:
        """Nothing is held."""

    def true_entries(self) -> int:
        """How many entries the log has had."""
        return sum(1 for name in self.history if parse_entry(name) is not None)
