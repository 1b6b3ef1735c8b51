"""`txnlog doctor`: it finds nothing wrong with a good store, and finds each of the stores that lie."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sparktxn.cli.doctorstore import examine
from sparktxn.cli.verbs import doctor
from sparktxn.errors import StoreUnavailable
from sparktxn.objectstore import ObjectInfo, PutOutcome
from sparktxn.objectstore.memory import MemoryStore
from sparktxn.process.clock import RandomIds, SystemClock
from tests.cli.terminal import ok, txnlog

_numbers = count()


class Honest(MemoryStore):
    def __init__(self) -> None:
        super().__init__(f"doctor-{next(_numbers)}", SystemClock())


class HeaderDropped(Honest):
    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        self.put(name, data)
        return PutOutcome.CREATED


class ReplacesAndSaysExists(Honest):
    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        outcome = super().put_if_absent(name, data)
        self.put(name, data)
        return outcome


class KeepsAndSaysCreated(Honest):
    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        super().put_if_absent(name, data)
        return PutOutcome.CREATED


class LooksBeforeItPuts(Honest):
    """Two writers at once both find the name free."""

    def __init__(self) -> None:
        super().__init__()
        self.looking = threading.Semaphore(0)

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        if self.get(name) is not None:
            return PutOutcome.EXISTS
        self.looking.acquire(timeout=0.05)
        self.put(name, data)
        return PutOutcome.CREATED


class AnsweredBeforeItIsDurable(Honest):
    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        return PutOutcome.CREATED


class StaleRead(Honest):
    def get(self, name: str) -> bytes | None:
        return None


class TornRange(Honest):
    def get_range(self, name: str, start: int, end: int) -> bytes | None:
        return self.get(name)


class EverythingExists(Honest):
    def get(self, name: str) -> bytes | None:
        return super().get(name) or b"an error page"


class StaleList(Honest):
    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        return []


class StaleReplacement(Honest):
    def put(self, name: str, data: bytes) -> None:
        super().put_if_absent(name, data)


class WrongClock(Honest):
    behind_ms = 3_600_000

    def list(self, prefix: str, after: str = "") -> Any:
        return [one._replace(modified_ms=one.modified_ms - self.behind_ms) for one in super().list(prefix, after)]


class SlowClock(WrongClock):
    behind_ms = 30_000


class NoTimes(Honest):
    def list(self, prefix: str, after: str = "") -> Any:
        return [one._replace(modified_ms=0) for one in super().list(prefix, after)]


class ReadOnly(Honest):
    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        raise StoreUnavailable("403: AccessDenied", transient=False)


class NoListing(Honest):
    def list(self, prefix: str, after: str = "") -> Any:
        raise StoreUnavailable("403: AccessDenied", transient=False)


class NoDelete(Honest):
    def delete(self, names: Iterable[str]) -> None:
        raise StoreUnavailable("403: AccessDenied", transient=False)


class DeletesNothing(Honest):
    def delete(self, names: Iterable[str]) -> None:
        pass


class OwnPutIsRefused(Honest):
    """A client below has sent it twice: the library reads the name to learn whose it is."""

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        super().put_if_absent(name, data)
        return PutOutcome.EXISTS


def results(store: MemoryStore) -> dict[str, str]:
    return {check.check: check.result for check in examine(store, SystemClock(), RandomIds()) if check.result != "ok"}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Honest, {}),
        (OwnPutIsRefused, {}),
        (HeaderDropped, {"conditional put": "failed", "racing puts": "failed"}),
        (ReplacesAndSaysExists, {"conditional put": "failed", "racing puts": "failed"}),
        (KeepsAndSaysCreated, {"conditional put": "failed", "racing puts": "failed"}),
        (LooksBeforeItPuts, {"racing puts": "failed"}),
        (AnsweredBeforeItIsDurable, {"read": "failed", "list": "failed", "conditional put": "failed"}),
        (StaleRead, {"read": "failed", "conditional put": "failed"}),
        (TornRange, {"read": "failed"}),
        (EverythingExists, {"read": "failed", "delete": "warning"}),
        (StaleList, {"list": "failed", "clock": "warning"}),
        (StaleReplacement, {"replace": "warning"}),
        (WrongClock, {"clock": "failed"}),
        (SlowClock, {"clock": "warning"}),
        (NoTimes, {"clock": "warning"}),
        (ReadOnly, {"write": "failed"}),
        (NoListing, {"listed": "failed", "skew": "failed"}),
        (NoDelete, {"deleted": "failed"}),
        (DeletesNothing, {"delete": "warning"}),
    ],
)
def test_each_store_that_lies_is_found(kind: Callable[[], MemoryStore], expected: dict[str, str]) -> None:
    found = results(kind())
    assert {name: found.get(name) for name in expected} == expected
    if kind in (Honest, OwnPutIsRefused, WrongClock, TornRange, StaleReplacement):
        assert found == expected


def test_a_good_store_has_no_finding_and_keeps_nothing(folder: Path) -> None:
    ok("topics", "create", "orders")
    before = {path for path in (folder / "store").rglob("*") if path.is_file()}
    rows = ok("doctor", "--json").json
    assert {row["result"] for row in rows} == {"ok"}
    assert [row["check"] for row in rows][:2] == ["versions", "write"]
    (about,) = (row for row in rows if row["check"] == "store")
    assert about["found"].endswith("it has 1 topics")
    assert {path for path in (folder / "store").rglob("*") if path.is_file()} == before
    assert ok("doctor").lines[0].split() == ["check", "result", "found", "fix"]


def test_an_address_without_a_store_is_examined(folder: Path) -> None:
    rows = {row["check"]: row for row in ok("doctor", "--json").json}
    assert rows["store"]["result"] == "warning"
    assert "txnlog topics create" in rows["store"]["fix"]
    assert [path for path in (folder / "store").rglob("*") if path.is_file()] == []
    ok("topics", "create", "orders")


def test_a_failed_check_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    ok("topics", "create", "orders")
    lying = HeaderDropped()
    monkeypatch.setattr(doctor, "objects_of", lambda *_: lying)
    done = txnlog("doctor")
    assert done.code == 1
    assert "use a store that honours If-None-Match: *" in done.text
    assert done.err == "2 checks failed: this store or machine must not be used as it is\n"
