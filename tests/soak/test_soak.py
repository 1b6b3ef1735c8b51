"""Nothing grows with age: a process commits, opens and drops clients, and another one reads; both stay as they are.

Each fifth of the run is measured. The first one fills caches and pools; the last is compared with the second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import pytest

from sparktxn.admin import AdminClient
from sparktxn.consumer import Consumer
from sparktxn.producer import Producer
from sparktxn.store import Store
from tests.soak.figures import Fifth, Figures, fifths, table

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="reads /proc")

_CPU_FACTOR = 1.5
_OBJECTS_FACTOR = 1.05
"""Each producer that wrote is remembered for a day: 240 of them, between the second fifth and the last."""
_MEMORY_FACTOR = 1.25
"""What allocators keep for later goes up and down by a tenth."""
_OPTIONS = {"store.fsync": False}


def _plain(uri: str) -> None:
    producer = Producer({"bootstrap.servers": uri, "linger.ms": 0, **_OPTIONS})
    producer.produce("dropped", b"x")
    producer.flush()


def _transactional(uri: str) -> None:
    producer = Producer({"bootstrap.servers": uri, "transactional.id": "dropped", **_OPTIONS})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("dropped", b"x", callback=lambda *_: producer.poll(0))
    producer.commit_transaction()


def _use(consumer: Consumer) -> None:
    """A callback that holds its own client."""
    consumer.assignment()


def _consumer(uri: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": uri,
            "group.id": "dropped",
            "fetch.wait.max.ms": 2,
            "auto.offset.reset": "latest",
            **_OPTIONS,
        }
    )
    consumer.subscribe(["dropped"], on_assign=lambda *_: _use(consumer))
    consumer.poll(0.005)


def _admin(uri: str) -> None:
    AdminClient({"bootstrap.servers": uri, **_OPTIONS}).list_topics()


def _store(uri: str) -> None:
    # Other settings than all other clients: its log is its own, and must end with it.
    Store.open(uri, options={**_OPTIONS, "checkpoint.entries": 65}).topics()


_KINDS: tuple[Callable[[str], None], ...] = (_plain, _transactional, _consumer, _admin, _store)


def _write(uri: str, commits: int, clients: int) -> Iterator[Figures]:
    """Commits one record after the other, drops clients in between, and measures each fifth."""
    kinds = cycle(_KINDS)
    with Producer({"bootstrap.servers": uri, "transactional.id": "soak", **_OPTIONS}) as producer:
        producer.init_transactions()
        yield Figures.now(0)
        for number in range(1, commits + 1):
            producer.begin_transaction()
            producer.produce("soak", b"%d" % number)
            producer.commit_transaction()
            if number * clients // commits > (number - 1) * clients // commits:
                next(kinds)(uri)
            if number % (commits // 5) == 0:
                yield Figures.now(number)


def _soak(uri: str, commits: int, clients: int) -> tuple[list[Fifth], list[Fifth]]:
    """The fifths of the writer and of the reader."""
    with Store.open(uri, options=_OPTIONS, create=True) as store:
        store.create_topic("soak", 1)
        store.create_topic("dropped", 1)
    script = Path(__file__).parent / "reader.py"
    with subprocess.Popen(
        [sys.executable, str(script), uri, str(commits)], stdout=subprocess.PIPE, text=True
    ) as reader:
        try:
            written = fifths(list(_write(uri, commits, clients)))
            told, _ = reader.communicate(timeout=600)
        finally:
            reader.kill()
    assert reader.returncode == 0
    read = fifths([Figures(*json.loads(line)) for line in told.splitlines()])
    return written, read


@pytest.mark.nightly
def test_nothing_grows_with_age(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written, read = _soak(str(tmp_path), 50_000, 2_000)
    with capsys.disabled():
        print(f"\n{table('writer', written)}\n{table('reader', read)}")
    for name, run in (("writer", written), ("reader", read)):
        assert len(run) == 5, name
        assert all(fifth.cpu_us_per_entry > 0 and fifth.resident_bytes > 10_000_000 for fifth in run), name
        early, late = run[1], run[4]
        assert late.threads <= early.threads, name
        assert late.descriptors <= early.descriptors, name
        assert late.objects <= early.objects * _OBJECTS_FACTOR, name
        assert late.resident_bytes <= early.resident_bytes * _MEMORY_FACTOR, name
        assert late.cpu_us_per_entry <= early.cpu_us_per_entry * _CPU_FACTOR, name
