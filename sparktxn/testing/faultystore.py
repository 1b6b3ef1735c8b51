"""An object store that fails on request: every operation asks a script what becomes of it.

One `FaultyStore` is one process's way to the objects. Once it has died, every further operation dies too, so nothing
that a dead process still holds can reach the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from functools import partial
from typing import NamedTuple

from sparktxn._engine.objectstore.contract import ObjectInfo, ObjectStore, PutOutcome
from sparktxn._engine.objectstore.writehealth import Writes
from sparktxn._foundation.process.clock import SystemClock
from sparktxn._foundation.values.fieldtypes import Result
from sparktxn.errors import StoreUnavailable

__all__ = ["Died", "Fault", "FaultyStore", "Operation", "Script", "at_operation", "healthy"]


def __dir__() -> list[str]:
    return sorted(__all__)


class Died(BaseException):
    """The process is dead; not an Exception, so that no handler of the code under test survives it."""


class Fault(Enum):
    """What becomes of one operation. One that means nothing for a verb leaves the operation as it is."""

    NONE = "none"
    DIE_BEFORE = "die before"
    """The process dies; nothing was applied."""
    DIE_AFTER = "die after"
    """It is applied, and the process dies before it hears of it."""
    UNAVAILABLE = "unavailable"
    """503: it is not applied, and the store says so."""
    REFUSED = "refused"
    """An error before it is applied, that could as well have come after: a put is UNKNOWN, a read is unavailable."""
    RESPONSE_LOST = "response lost"
    """It is applied, and the answer is an error: a put is UNKNOWN."""
    CONFLICT = "conflict"
    """409: a put-if-absent is not applied, and UNKNOWN, for another one of that name was under way."""
    CONFLICT_APPLIED = "conflict applied"
    """409, reported for a retry by a layer below whose first try was applied."""
    TWICE = "twice"
    """A layer below retried on its own: a put-if-absent that was applied says EXISTS."""
    LATE = "late"
    """An error now; a write is applied when the script's `later` says so, perhaps long after the client gave up."""
    COPY_LATER = "copy later"
    """A write is applied and answered, and a duplicate of it arrives when the script's `later` says so."""
    SLOW = "slow"
    """It is applied, and the process pauses before it hears of it."""
    DENIED = "denied"
    """403: a write is not applied, and the store says that neither will be the next."""

    def means_something_for(self, verb: str) -> bool:
        """Return False if an operation of this kind goes well under this fault."""
        if self in (Fault.CONFLICT, Fault.CONFLICT_APPLIED):
            return verb == "put_if_absent"
        if self in (Fault.TWICE, Fault.LATE, Fault.COPY_LATER, Fault.DENIED):
            return verb in ("put_if_absent", "put", "delete")
        return self is not Fault.NONE


class Operation(NamedTuple):
    """One call of the store: the `number`-th of this handle, from 1."""

    number: int
    verb: str
    name: str


Script = Callable[[Operation], Fault]
Later = Callable[[Callable[[], object]], None]


def healthy(operation: Operation) -> Fault:
    """Return the script of a store without faults."""
    return Fault.NONE


def at_operation(number: int, fault: Fault) -> Script:
    """Return the script that fails one operation, by its number."""
    return lambda operation: fault if operation.number == number else Fault.NONE


def _drop(put: Callable[[], object]) -> None:
    """Drop a late put: it never arrives."""


class FaultyStore:
    """`inner`, with a script between it and the caller."""

    def __init__(
        self,
        inner: ObjectStore,
        script: Script = healthy,
        *,
        later: Later = _drop,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self.uri = inner.uri
        self.probe_is_cheap = inner.probe_is_cheap
        self.operations: list[Operation] = []
        self._inner = inner
        self._script = script
        self._later = later
        self._pause = pause
        self._dead = False
        self.writes = Writes(inner.uri, SystemClock())

    def get(self, name: str) -> bytes | None:
        """Return the object's bytes, or None."""
        return self._read("get", name, partial(self._inner.get, name))

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        """Return `get` of each name, each an operation of its own."""
        return [self.get(name) for name in names]

    def get_range(self, name: str, start: int, end: int) -> bytes | None:
        """Return bytes `start` to `end`, or None."""
        return self._read("get_range", name, lambda: self._inner.get_range(name, start, end))

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """Return all objects whose name starts with `prefix`."""
        return self._read("list", prefix, lambda: self._inner.list(prefix, after))

    def list_names(self, folder: str, after: str = "") -> Sequence[str]:
        """List the names of the objects directly in `folder` that sort after `after`."""
        return self._read("list_names", folder, lambda: self._inner.list_names(folder, after))

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        """Create the object if the name is free, unless the script says otherwise."""

        def put() -> PutOutcome:
            return self._inner.put_if_absent(name, data, timeout_s=timeout_s)

        fault = self._next("put_if_absent", name)
        said = f"put_if_absent of {name!r}: {fault.value}"
        if fault in (Fault.UNAVAILABLE, Fault.DENIED):
            self.writes.failed(said, len(data), is_refused=fault is Fault.DENIED)
            raise StoreUnavailable(said, transient=fault is not Fault.DENIED)
        if fault is Fault.LATE:
            self._later(put)
        if fault in (Fault.REFUSED, Fault.LATE, Fault.CONFLICT):
            self.writes.failed(said, len(data))
            return PutOutcome.UNKNOWN
        outcome = put()
        self._after(fault)
        if fault in (Fault.RESPONSE_LOST, Fault.CONFLICT_APPLIED):
            self.writes.failed(said, len(data))
            return PutOutcome.UNKNOWN
        self.writes.succeeded(len(data))
        if fault is Fault.COPY_LATER:
            self._later(put)
        return put() if fault is Fault.TWICE else outcome

    def put(self, name: str, data: bytes) -> None:
        """Write the object."""
        self._write("put", name, lambda: self._inner.put(name, data))

    def delete(self, names: Iterable[str]) -> None:
        """Delete the objects, each in an operation of its own."""
        for name in names:
            self._write("delete", name, lambda name=name: self._inner.delete([name]))  # type: ignore[misc]

    def make_durable(self, name: str) -> None:
        """Make the object's name durable."""
        self._write("make_durable", name, lambda: self._inner.make_durable(name))

    def contention_lock(self, while_waiting: Callable[[], None] | None = None) -> AbstractContextManager[None]:
        """Do nothing: an advisory lock would only hide schedules."""
        return nullcontext()

    def close(self) -> None:
        """Do nothing: `inner` belongs to the caller that made it."""

    def _next(self, verb: str, name: str) -> Fault:
        """Return the fate of the next operation; die here if it is to die before."""
        if self._dead:
            raise Died
        operation = Operation(len(self.operations) + 1, verb, name)
        self.operations.append(operation)
        fault = self._script(operation)
        if fault is Fault.NONE:
            return fault
        self._die_if(fault is Fault.DIE_BEFORE)
        return fault if fault.means_something_for(verb) else Fault.NONE

    def _after(self, fault: Fault) -> None:
        """Let the process meet its fault between the operation and its answer."""
        self._die_if(fault is Fault.DIE_AFTER)
        if fault is Fault.SLOW:
            self._pause()

    def _die_if(self, dead: bool) -> None:
        if dead:
            self._dead = True
            raise Died

    def _read(self, verb: str, name: str, read: Callable[[], Result]) -> Result:
        fault = self._next(verb, name)
        if fault is Fault.NONE:
            return read()
        if fault in (Fault.UNAVAILABLE, Fault.REFUSED, Fault.RESPONSE_LOST):
            raise StoreUnavailable(f"{verb} of {name!r}: {fault.value}")
        result = read()
        self._after(fault)
        return result

    def _write(self, verb: str, name: str, write: Callable[[], None]) -> None:
        fault = self._next(verb, name)
        if fault in (Fault.LATE, Fault.COPY_LATER):
            self._later(write)
        if fault not in (Fault.UNAVAILABLE, Fault.REFUSED, Fault.LATE, Fault.DENIED):
            write()
        if fault is Fault.TWICE:
            write()
        self._after(fault)
        if fault in (Fault.UNAVAILABLE, Fault.REFUSED, Fault.RESPONSE_LOST, Fault.LATE, Fault.DENIED):
            raise StoreUnavailable(f"{verb} of {name!r}: {fault.value}", transient=fault is not Fault.DENIED)
