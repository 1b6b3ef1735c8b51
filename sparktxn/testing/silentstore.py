"""An object store that can fall silent: requests then get no answer, as from a server that was stopped by SIGSTOP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from sparktxn._engine.objectstore.contract import ObjectInfo, ObjectStore, PutOutcome, check_time
from sparktxn._foundation.process.clock import time_left_s
from sparktxn.errors import StoreUnavailable

__all__ = ["SilentStore"]


def __dir__() -> list[str]:
    return sorted(__all__)


REQUEST_TIMEOUT_S: Final = 30.0


class SilentStore:
    """`inner`, which answers nothing inside `silence()`.

    A request waits until a deadline that governs its thread passes, or for 30 s, and has then failed. One that waits
    when the silence ends is carried out. `requests` counts those that have begun.
    """

    probe_is_cheap = False

    def __init__(self, inner: ObjectStore) -> None:
        self.uri = inner.uri
        self.requests = 0
        self._inner = inner
        self._heard = threading.Event()
        self._heard.set()

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Answer nothing inside the body."""
        self._heard.clear()
        try:
            yield
        finally:
            self._heard.set()

    def get(self, name: str) -> bytes | None:
        """Return the object's bytes, or None."""
        self._await("read", name)
        return self._inner.get(name)

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        """Return `get` of each name."""
        self._await("read", names[0] if names else "")
        return self._inner.get_many(names)

    def get_range(self, name: str, start: int, end: int) -> bytes | None:
        """Return bytes `start` to `end` of the object, or None."""
        self._await("read", name)
        return self._inner.get_range(name, start, end)

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        """Create the object if the name is free; UNKNOWN if no answer came."""
        check_time("create", name)
        try:
            self._await("create", name, timeout_s)
        except StoreUnavailable:
            return PutOutcome.UNKNOWN
        return self._inner.put_if_absent(name, data, timeout_s=timeout_s)

    def put(self, name: str, data: bytes) -> None:
        """Write the object, over an older one."""
        self._await("write", name)
        self._inner.put(name, data)

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """Return all objects whose name starts with `prefix`, by name."""
        self._await("list", prefix)
        return self._inner.list(prefix, after)

    def list_names(self, folder: str, after: str = "") -> Sequence[str]:
        """List the names of the objects directly in `folder` that sort after `after`."""
        self._await("list", folder)
        return self._inner.list_names(folder, after)

    def delete(self, names: Iterable[str]) -> None:
        """Delete the objects."""
        self._await("delete", "")
        self._inner.delete(names)

    def make_durable(self, name: str) -> None:
        """Do nothing: what was answered is durable."""

    def contention_lock(self, while_waiting: Callable[[], None] | None = None) -> AbstractContextManager[None]:
        """Do nothing: writers may be on other machines."""
        return nullcontext()

    def close(self) -> None:
        """Do nothing: `inner` belongs to the caller."""

    def _await(self, verb: str, name: str, timeout_s: float | None = None) -> None:
        check_time(verb, name)
        self.requests += 1
        limit_s = REQUEST_TIMEOUT_S if timeout_s is None else min(timeout_s, REQUEST_TIMEOUT_S)
        if not self._heard.wait(time_left_s(limit_s)):
            raise StoreUnavailable(f"cannot {verb} {name!r}: no answer")
