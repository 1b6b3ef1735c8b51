"""Servers say that a store takes no writes: their pages of health, their figures, and a line of the log each minute."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparktxn._engine.objectstore.local import LocalStore
from sparktxn._engine.objectstore.writehealth import Writes
from sparktxn._foundation.process.clock import Deadline, SystemClock
from sparktxn._programs.gateway import health
from sparktxn.errors import StoreUnavailable
from sparktxn.metrics.process import PROCESS
from sparktxn.store import Store
from sparktxn.store.storemetrics import StoreMetrics
from sparktxn.store.writeproblem import write_problem
from sparktxn.testing.clocks import ManualClock


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store", create=True) as store:
        store.create_topic("t")
        yield store


class Disk:
    """What the disk says of itself, and how large a file it takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free_bytes, self.flags, self.files = 1 << 30, 0, 1000
        self.largest_bytes = 1 << 30
        write = os.write
        monkeypatch.setattr(os, "statvfs", lambda _: self._said())

        def limited(descriptor: int, data: bytes) -> int:
            if len(data) > self.largest_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(descriptor, data)

        monkeypatch.setattr(os, "write", limited)

    def _said(self) -> Any:
        return SimpleNamespace(
            f_flag=self.flags, f_files=1000, f_favail=self.files, f_bavail=self.free_bytes // 4096, f_frsize=4096
        )


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def gateway_says(store: Store, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """What a gateway's /healthz says; its own way to the newest entry is tried elsewhere."""
    monkeypatch.setattr(health, "_newest_entry", lambda *_: 1)
    broker: Any = SimpleNamespace(log=store.log, log_end=SimpleNamespace(has_ended=False))
    return health._problem(broker, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "value", "said"),
    [
        ("free_bytes", 40_960, "is full: 40960 bytes are free"),
        ("flags", os.ST_RDONLY, "is read-only"),
        ("files", 0, "no room for another file"),
    ],
)
def test_a_disk_is_known_to_take_no_writes_before_one_fails(
    store: Store, disk: Disk, monkeypatch: pytest.MonkeyPatch, what: str, value: int, said: str
) -> None:
    metrics = StoreMetrics(store)
    assert metrics.problem() is None
    assert gateway_says(store, monkeypatch) is None
    assert b"txnlog_store_writable 1.0" in metrics.page()[0]
    setattr(disk, what, value)
    for problem in (metrics.problem(), gateway_says(store, monkeypatch)):
        assert problem is not None
        assert problem.startswith("the store takes no writes: ")
        assert said in problem
    assert b"txnlog_store_writable 0.0" in metrics.page()[0]


def test_a_gateway_is_not_well_until_an_object_as_large_as_the_refused_one_is_written(
    store: Store, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = store.log.objects
    disk.largest_bytes = 50_000
    refused = PROCESS.writes_refused.value
    with pytest.raises(StoreUnavailable, match="No space left on device"):
        objects.put_if_absent("topics/x", bytes(100_000))
    assert PROCESS.writes_refused.value == refused + 1
    objects.put_if_absent("topics/small", b"x")
    assert "No space left on device" in str(gateway_says(store, monkeypatch))
    assert b"txnlog_store_writable 0.0" in StoreMetrics(store).page()[0]
    disk.largest_bytes = 1 << 30
    assert "No space left on device" in str(StoreMetrics(store).problem()), "the exporter writes nothing"
    before = [info.name for info in objects.list("")]
    assert gateway_says(store, monkeypatch) is None, "it has tried"
    assert [info.name for info in objects.list("")] == before
    assert StoreMetrics(store).problem() is None


def test_what_is_larger_than_a_try_does_not_keep_a_gateway_unwell(
    store: Store, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.largest_bytes = 1
    with pytest.raises(StoreUnavailable):
        store.log.objects.put_if_absent("topics/x", bytes(5_000_000))
    disk.largest_bytes = 1 << 30
    assert write_problem(store.log, tries=True) is None


def test_failing_writes_are_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    writes = Writes("/data/shop", clock)
    with caplog.at_level(logging.WARNING, "sparktxn"):
        for _ in range(181):
            writes.failed("AccessDenied", 10, is_refused=True)
            clock.sleep(1.0)
    fields: list[Any] = [record.args for record in caplog.records]
    assert [(one["failures"], one["error"]) for one in fields] == [(count, "AccessDenied") for count in (1, 60, 60, 60)]


def test_a_full_disk_can_be_opened_and_read_and_a_put_says_why_it_fails(tmp_path: Path, disk: Disk) -> None:
    path = str(tmp_path / "store")
    with Store.open(path, create=True) as store:
        store.create_topic("t")
    disk.largest_bytes = 0
    objects = LocalStore(path, fsync=False)
    assert objects.list("_log/")
    with pytest.raises(StoreUnavailable, match="No space left on device"):
        objects.put_if_absent("a/b", b"x")


def test_a_call_that_has_given_up_says_nothing_of_the_store(tmp_path: Path) -> None:
    """It sends nothing, as when the interpreter ends in the midst of a job."""
    store = LocalStore(str(tmp_path), fsync=True)
    writes: list[Callable[[], object]] = [
        lambda: store.put_if_absent("a", b"1"),
        lambda: store.put_each_if_absent([("a", b"1")]),
        lambda: store.put("a", b"1"),
    ]
    given_up = Deadline(SystemClock(), 60)
    given_up.end()
    for write in writes:
        with given_up.governs(), pytest.raises(StoreUnavailable, match="nothing was sent"):
            write()
    assert (store.writes.failure, store.writes.unwritten) == (None, None)
