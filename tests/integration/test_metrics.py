"""What a process counts of itself: commits and their times, requests, folds; for Prometheus and as spans."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from prometheus_client import CollectorRegistry, generate_latest

from sparktxn import ConfigurationError, metrics
from sparktxn._engine.objectstore import open_store
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.clock import SystemClock
from sparktxn.metrics.families import FAMILIES
from sparktxn.metrics.process import PROCESS, Calls, Counter, Requests
from sparktxn.store import Store
from sparktxn.testing.faultystore import Fault, FaultyStore, Operation
from tests.world import World, open_log

SECONDS = "txnlog_client_call_seconds"


@pytest.fixture
def world() -> Iterator[World]:
    made = World({"t": 1})
    yield made
    made.close()


class Since:
    """What has been counted since it was made."""

    def __init__(self) -> None:
        self._before = metrics.figures()

    def __call__(self, name: str, *labels: str) -> float:
        return metrics.figures()[name][labels] - self._before[name][labels]


def test_a_commit_is_counted_and_timed_with_its_requests(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "value")
    since = Since()
    producer.commit_transaction()
    assert since(f"{SECONDS}_count", "commit_transaction") == 1
    assert since(f"{SECONDS}_bucket", "commit_transaction", "+Inf") == 1
    assert since(f"{SECONDS}_sum", "commit_transaction") > 0
    assert since(f"{SECONDS}_count", "log_write") == 1
    assert since("txnlog_client_entries_won_total") == 1
    assert since("txnlog_client_requests_total", "put") == 1
    assert since("txnlog_client_request_bytes_total", "put") > 100
    assert since("txnlog_client_requests_total", "list") >= 1
    producer.begin_transaction()
    producer.produce("t", "v")
    producer.abort_transaction()
    assert since(f"{SECONDS}_count", "abort_transaction") == 1
    assert since("txnlog_client_call_failures_total", "abort_transaction") == 0


def test_a_call_that_fails_is_counted_as_failed(world: World) -> None:
    since = Since()
    with pytest.raises(Exception, match="init_transactions"):
        world.producer("unused").commit_transaction()
    assert since("txnlog_client_call_failures_total", "commit_transaction") == 1
    assert since(f"{SECONDS}_count", "commit_transaction") == 1


class AtNextPut:
    """A script that does something before the next put of an entry, which then goes as `fault` says."""

    def __init__(self, fault: Fault = Fault.NONE) -> None:
        self.does: Callable[[], object] | None = None
        self._fault = fault

    def __call__(self, operation: Operation) -> Fault:
        if self.does is None or operation.verb != "put_if_absent":
            return Fault.NONE
        does, self.does = self.does, None
        does()
        return self._fault


@contextmanager
def two_stores(script: AtNextPut) -> Iterator[tuple[Store, Store]]:
    """A store's handle, and one as another process has it, whose puts the script decides."""
    name = f"metrics-{uuid.uuid4().hex}"
    memory = MemoryStore(name, SystemClock())
    with Store(name, {}, open_log(memory)) as own, Store(name, {}, open_log(FaultyStore(memory, script))) as other:
        yield own, other


def test_slots_that_others_have_won_are_counted() -> None:
    script = AtNextPut()
    with two_stores(script) as (own, other):
        script.does = lambda: own.create_topic("a")
        since = Since()
        other.create_topic("b")
        assert since("txnlog_client_entries_won_total") == 2
        assert since("txnlog_client_entries_lost_total") == 1
        assert since("txnlog_client_write_retries_total") == 0


def test_a_write_that_begins_again_is_a_retry() -> None:
    script = AtNextPut(Fault.UNAVAILABLE)
    with two_stores(script) as (_, other):
        script.does = lambda: None
        since = Since()
        other.create_topic("a")
        assert since("txnlog_client_entries_won_total") == 1
        assert since("txnlog_client_write_retries_total") == 1


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_each_request_of_a_store_is_counted_with_its_bytes(kind: str, tmp_path: Path) -> None:
    address = f"memory://metrics-{uuid.uuid4().hex}" if kind == "memory" else str(tmp_path)
    objects = open_store(address, settings=StoreSettings(), storage={}, clock=SystemClock())
    since = Since()
    objects.put_if_absent("a/b", b"12345")
    objects.put("a/c", b"678")
    assert objects.get_many(["a/b", "a/none"]) == [b"12345", None]
    assert objects.get_range("a/b", 0, 2) == b"12"
    objects.list_names("a/")
    objects.list("a/")
    objects.delete(["a/b", "a/c"])
    counted = {kind: since("txnlog_client_requests_total", kind) for kind in ("get", "put", "list", "delete")}
    assert counted == {"get": 3, "put": 2, "list": 2, "delete": 2}
    assert since("txnlog_client_request_bytes_total", "put") == 8
    assert since("txnlog_client_request_bytes_total", "get") >= 7
    objects.close()


def test_threads_lose_no_count() -> None:
    counter, requests, calls = Counter(), Requests(), Calls("x")

    def count() -> None:
        for _ in range(5_000):
            counter.add()
            requests.note(2)
            calls.note(0.5, failed=True)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counter.value, requests.count, requests.size_bytes) == (20_000, 20_000, 40_000)
    buckets, seconds, failures = calls.cumulated()
    assert (buckets[-1], seconds, failures) == (20_000, 10_000.0, 20_000)


def test_a_time_falls_into_the_first_bucket_that_is_not_below_it() -> None:
    calls = Calls("x")
    for seconds in (0.0, 0.001, 0.0011, 31.0):
        calls.note(seconds, failed=False)
    buckets, *_ = calls.cumulated()
    assert buckets == [2, *[3] * 13, 4]


def test_a_forked_child_begins_at_zero_though_a_thread_holds_the_lock() -> None:
    PROCESS.get.note(7)
    with PROCESS.get._lock:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                was = PROCESS.get.count
                PROCESS.get.note(1)
                code = 0 if (was, PROCESS.get.count) == (0, 1) else 2
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert PROCESS.get.count > 0


def test_prometheus_gets_every_figure() -> None:
    registry = CollectorRegistry()
    metrics.register(registry)
    page = generate_latest(registry).decode()
    named = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
    assert named == FAMILIES.keys()
    assert 'txnlog_client_call_seconds_bucket{call="commit_transaction",le="0.001"}' in page
    assert 'txnlog_client_requests_total{request="put"}' in page
    with pytest.raises(ValueError, match="Duplicated"):
        metrics.register(registry)


@pytest.mark.parametrize(
    ("package", "module", "call", "extra"),
    [
        ("prometheus_client", "collector", metrics.register, "metrics"),
        ("opentelemetry", "tracing", metrics.trace, "tracing"),
    ],
)
def test_without_its_package_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, package: str, module: str, call: Any, extra: str
) -> None:
    monkeypatch.delitem(sys.modules, f"sparktxn.metrics.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"pip install '\.\[{extra}\]'"):
        call()


class Recording(trace.TracerProvider):
    """Notes how spans of the package begin and end."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def get_tracer(self, *names: Any, **more: Any) -> Any:
        assert names[0] == "sparktxn"
        return self

    @contextmanager
    def start_as_current_span(self, name: str) -> Iterator[None]:
        self.noted.append(name)
        try:
            yield
        except Exception as error:
            self.noted.append(type(error).__name__)
            raise
        finally:
            self.noted.append(f"end of {name}")


def test_timed_calls_are_spans_once_that_is_switched_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROCESS, "tracer", None)
    producer, provider = world.transactional(), Recording()
    metrics.trace(provider)
    producer.begin_transaction()
    producer.produce("t", "v")
    producer.commit_transaction()
    assert provider.noted == [
        "txnlog.commit_transaction",
        "txnlog.log_write",
        "end of txnlog.log_write",
        "end of txnlog.commit_transaction",
    ]
    provider.noted.clear()
    with pytest.raises(Exception, match="commit_transaction"):
        producer.commit_transaction()
    assert provider.noted == ["txnlog.commit_transaction", "KafkaException", "end of txnlog.commit_transaction"]
