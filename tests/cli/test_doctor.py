"""`txnlog doctor`: it finds nothing wrong with a good store, and finds each of the stores that lie."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparktxn import Consumer, Producer
from sparktxn._engine.objectstore import ObjectInfo, PutOutcome
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn._programs.cli.doctorstore import COMMITS, WAITING, examine
from sparktxn._programs.cli.verbs import doctor
from sparktxn.admin import AdminClient, NewTopic
from sparktxn.errors import StoreUnavailable
from sparktxn.testing.faultproxy import FaultProxy
from tests.cli.terminal import ok, txnlog
from tests.servers import S3Server

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


class ListsFromTheBeginning(Honest):
    def list_names(self, folder: str, after: str = "") -> list[str]:
        return [*super().list_names(folder)]


class ListsTooLate(Honest):
    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        return super().list(prefix, after)[1 if after else 0 :]


class RefusesConditions(Honest):
    """As a server that does not implement the header."""

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        return PutOutcome.UNKNOWN


class OneWriteASecond(Honest):
    """As Google Cloud Storage limits writes over one object."""

    def __init__(self) -> None:
        super().__init__()
        self.uri = "gs://bucket/shop"
        self.written_s: dict[str, float] = {}

    def put(self, name: str, data: bytes) -> None:
        if time.monotonic() - self.written_s.get(name, 0.0) < 1:
            raise StoreUnavailable("rateLimitExceeded (HTTP 429)")
        super().put(name, data)
        self.written_s[name] = time.monotonic()


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
        (OneWriteASecond, {}),
        (HeaderDropped, {"conditional put": "failed", "racing puts": "failed"}),
        (ReplacesAndSaysExists, {"conditional put": "failed", "racing puts": "failed"}),
        (KeepsAndSaysCreated, {"conditional put": "failed", "racing puts": "failed"}),
        (LooksBeforeItPuts, {"racing puts": "failed"}),
        (AnsweredBeforeItIsDurable, {"read": "failed", "list": "failed", "conditional put": "failed"}),
        (StaleRead, {"read": "failed", "conditional put": "failed"}),
        (TornRange, {"read": "failed"}),
        (EverythingExists, {"read": "failed", "delete": "warning"}),
        (StaleList, {"list": "failed", "clock": "warning"}),
        (ListsFromTheBeginning, {"list after a name": "failed"}),
        (ListsTooLate, {"list after a name": "failed"}),
        (RefusesConditions, {"write": "failed"}),
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
    if kind in (Honest, OwnPutIsRefused, OneWriteASecond, WrongClock, TornRange, StaleReplacement):
        assert found == expected


def test_a_good_store_has_no_finding_and_keeps_nothing(folder: Path) -> None:
    ok("topics", "create", "orders")
    before = {path for path in (folder / "store").rglob("*") if path.is_file()}
    rows = ok("doctor", "--json").json
    assert {row["result"] for row in rows} == {"ok"}
    assert [row["check"] for row in rows][:2] == ["versions", "write"]
    (about,) = (row for row in rows if row["check"] == "store")
    assert about["found"].endswith("it has 1 topic")
    assert {path for path in (folder / "store").rglob("*") if path.is_file()} == before
    assert ok("doctor").lines[0].split() == ["check", "result", "found", "fix"]


def test_latest_rows_without_a_base_are_a_warning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktxn._programs.cli.verbs.doctor._MANY_ROWS", 3)
    ok("topics", "create", "customers", "--column", "id int64 not null", "--set", "primary.key=id")
    with Producer({"bootstrap.servers": str(folder / "store")}) as producer:
        for ids, expected in (([1, 2], []), ([1], ["warning"])):
            producer.produce_arrow("customers", pa.table({"id": ids}))
            producer.flush()
            found = [row for row in ok("doctor", "--json").json if row["check"] == "latest rows"]
            assert [row["result"] for row in found] == expected
    assert "3 rows of topic 'customers' were never compacted" in found[0]["found"]
    ok("compact", "--apply")
    assert "latest rows" not in ok("doctor", "--json").text


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


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("s3://bucket/shop", "(0.04 USD), and each waiting consumer 37,000 lists and 36,000 gets (0.20 USD), at list"),
        ("gs://bucket/shop", "(0.20 USD), at list prices of Google Cloud Storage Standard"),
        ("abfs://container/shop", "(0.05 USD), and each waiting consumer 37,000 lists and 36,000 gets (0.22 USD), at"),
    ],
)
def test_requests_are_counted_and_priced(address: str, expected: str) -> None:
    store = Honest()
    store.uri = address
    (found,) = (check.found for check in examine(store, SystemClock(), RandomIds()) if check.check == "requests")
    assert expected in found


@pytest.mark.nightly
@pytest.mark.moto
def test_no_more_requests_are_made_than_it_says(moto_server: S3Server) -> None:
    moto_server.create_bucket("doctor")
    seconds = 10
    with FaultProxy(moto_server.endpoint_url) as proxy:
        settings = {"bootstrap.servers": "s3://doctor/shop", **moto_server.options_by(proxy.endpoint_url)}
        with AdminClient(settings) as admin:
            admin.create_topics([NewTopic("orders", 1)])["orders"].result()
        with Producer({**settings, "transactional.id": "shop"}) as producer:
            producer.init_transactions()
            time.sleep(1)
            proxy.clear()
            for _ in range(seconds):
                producer.begin_transaction()
                producer.produce("orders", b"x")
                producer.commit_transaction()
                time.sleep(1)
            check_requests(proxy.requests, COMMITS, seconds)
        with Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["orders"])
            assert len(consumer.consume(seconds, 30)) == seconds
            proxy.clear()
            assert consumer.poll(seconds) is None
            check_requests(proxy.requests, WAITING, seconds)


def check_requests(made: list[tuple[str, str]], said: dict[str, int], seconds: int) -> None:
    kinds = {"put": 0, "list": 0, "get": 0}
    for method, path in list(made):
        kinds["list" if "list-type" in path else method.lower()] += 1
    for verb, an_hour in said.items():
        # An offset commit, a heartbeat or a fold may come between.
        assert kinds[verb] <= an_hour * seconds / 3_600 * 1.1 + 5, kinds
