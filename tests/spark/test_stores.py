"""What a process of Spark keeps open from one step to the next."""

from __future__ import annotations

import gc
import os
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog.connecting import storehandles
from pyspark_txnlog.connecting.storehandles import open_store
from sparktxn import Store
from sparktxn._engine.log.log import Log
from tests.handles import close_handles_of_spark
from tests.spark.readers import batch_reader, commit, numbers_of


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    close_handles_of_spark()
    yield
    close_handles_of_spark()


def made(folder: Path, count: int) -> list[str]:
    """The addresses of `count` stores, each with a topic of two records."""
    addresses = [str(folder / str(place)) for place in range(count)]
    for address in addresses:
        with Store.open(address, create=True) as store:
            store.create_topic("t")
            commit(store, range(2))
    return addresses


def open_logs(logs: list[weakref.ref[Log]]) -> int:
    """How many of `logs` are open once dropped handles were given back: the process keeps no others."""
    give_up_at_s = time.monotonic() + 60
    while (
        found := sum(log() is not None for log in logs)
    ) > storehandles._STORES_MAX and time.monotonic() < give_up_at_s:
        gc.collect()
        time.sleep(0.01)
    return found


def test_a_store_is_opened_once_for_all_steps(tmp_path: Path) -> None:
    [address] = made(tmp_path, 1)
    assert open_store(address, {}) is open_store(address, {})
    assert open_store(address, {}) is not open_store(address, {"store.fsync": "false"})


def test_a_process_that_meets_many_stores_keeps_the_latest_open(tmp_path: Path) -> None:
    addresses = made(tmp_path, storehandles._STORES_MAX + 4)
    first = open_store(addresses[0], {})
    logs = []
    for address in addresses:
        logs.append(weakref.ref(open_store(address, {}).log))
        assert open_store(addresses[0], {}) is first, "it was asked for just before"
    assert open_logs(logs) == storehandles._STORES_MAX


def test_a_reader_goes_on_whose_store_is_no_longer_kept(tmp_path: Path) -> None:
    addresses = made(tmp_path, storehandles._STORES_MAX + 1)
    with Store.open(addresses[0]) as store:
        reader = batch_reader(store)
    for address in addresses[1:]:
        open_store(address, {})
    gc.collect()
    assert numbers_of(reader) == [0, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_opens_stores_anew(tmp_path: Path) -> None:
    [address] = made(tmp_path, 1)
    parents = open_store(address, {})
    entry = parents.view().entry
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if open_store(address, {}).view().entry == entry else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert open_store(address, {}) is parents
