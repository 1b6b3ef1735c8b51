"""A program whose children end while their threads are in some state: `… -m tests.integration.exits FOLDER 40 1 0.75`.

It imports everything once. Each child is a fork of it, and brings its threads into a state. It ends as a program does:
it returns from the main module, so that the interpreter is finalised. A line for each child says how that went.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparktxn import Consumer, Producer, Store
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore import open_store
from sparktxn._engine.objectstore.local import LocalStore
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process import background
from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn.halfmessage import rocketmq5
from sparktxn.maintenance.publishing.background import Repeated
from sparktxn.testing.silentstore import SilentStore
from tests.halfworld import configuration5
from tests.lending import lend_log

folding: Any = importlib.import_module("sparktxn.maintenance.publishing.background")
rewrite: Any = importlib.import_module("sparktxn.maintenance.rewriting.rewrite")
importlib.import_module("s3fs")  # before the forks, as it is slow

AT_ONCE: Final = 4
RECORDS: Final = 24
VALUE: Final = bytes(range(250)) * 8
CLIENT: Final = {"store.fsync": "false", "store.append.inline.bytes": 0, "checkpoint.fold.bytes.per.minute": 0}
ROWS: Final = pa.table({"n": np.random.default_rng(1).random(100_000)})


class Case(NamedTuple):
    """What a child is for; `after_s` is how long its threads are left alone before it ends."""

    state: str
    ending: str
    uri: str
    after_s: float


kept: list[Any] = []
"""What a child's program still holds when it ends, as the variables of a main module."""


def encode() -> float:
    """Spend a while in pyarrow's C++."""
    pq.write_table(ROWS, pa.BufferOutputStream(), compression="zstd")
    return 0.0


def encode_always() -> None:
    """As work that never reads a deadline."""
    while True:
        encode()


def produced(uri: str, count: int = RECORDS) -> Producer:
    """Return a producer that has stored so many records, each in a segment of its own."""
    with Store.open(uri, options=CLIENT, create=True) as store:
        store.create_topic("t")
    producer = Producer({"bootstrap.servers": uri, **CLIENT})
    for _ in range(count):
        producer.produce("t", VALUE)
        producer.flush()
    return producer


def fold(case: Case) -> None:
    """Folds are under way, one after the other."""
    producer = produced(case.uri)
    store = Store.open(case.uri, options=CLIENT)
    begun = threading.Event()

    def step() -> float:
        view = store.log.known_view()
        for task in folding.plan_tasks(store.log.objects, view, RewriteSettings(min_segments=8)):
            begun.set()
            rewrite.copy_records(store.log.objects, store.log.ids, store.log.clock, task)
        return 0.0

    assert Repeated(store.log, step).begin()
    kept.extend((producer, store))
    assert begun.wait(60)


def compute(case: Case) -> None:
    """A repeated piece of work, and some that were submitted, are in pyarrow's C++."""
    workers = ThreadBackground("exits", 2)
    workers.repeat(encode)
    kept.extend((workers, [workers.submit(encode_always) for _ in range(2)]))


def sleep(case: Case) -> None:
    """Workers are idle, and repeated work waits until it is woken."""
    workers = ThreadBackground("exits", 2)
    workers.repeat(lambda: float("inf"))
    workers.submit(encode).result()
    kept.extend((workers, produced(case.uri, 1)))


def wait_for_a_silent_store(case: Case) -> None:
    """A producer's sender and uploads, a member's heartbeat and a repeated flush wait for answers."""
    produced(case.uri, 1).close()
    objects = SilentStore(LocalStore(case.uri, fsync=False))
    log = Log.open(
        objects,
        settings=StoreSettings(),
        clock=SystemClock(),
        ids=RandomIds(),
        background=ThreadBackground("silent", 2),
        create=False,
        check_clock=False,
    )
    lend_log("memory://silent", log)
    producer = Producer({"bootstrap.servers": "memory://silent", "linger.ms": 0})
    producer.produce("t", b"known")
    producer.flush()
    member = Consumer({"bootstrap.servers": "memory://silent", "group.id": "g", "heartbeat.interval.ms": 10})
    member.subscribe(["t"])
    while not member.assignment():
        member.poll(0.01)
    objects._heard.clear()
    before = objects.requests
    for _ in range(3):
        producer.produce("t", b"x" * 1000)
    log.background.repeat(lambda: objects.put("name", b"x"))
    member.poll(0)
    kept.extend((log, producer, member))
    while objects.requests < before + 2:
        time.sleep(0.001)


def wait_for_a_server(case: Case) -> None:
    """Requests wait in fsspec's thread for a server that accepts and never answers."""
    server = socket.create_server(("127.0.0.1", 0))
    endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
    storage = {"endpoint_url": endpoint, "key": "key", "secret": "secret"}
    objects = open_store("s3://bucket/a", settings=StoreSettings(), storage=storage, clock=SystemClock())
    workers = ThreadBackground("exits", 2)
    workers.repeat(lambda: objects.put("name", b"x"))
    kept.extend((objects, workers, [workers.submit(lambda: objects.get("name")) for _ in range(3)]))
    kept.append([server.accept() for _ in range(3)])


def ask(case: Case) -> None:
    """A checker is asked for the outcome of a half message, and thinks."""
    with Store.open(case.uri, options=CLIENT, create=True) as store:
        store.create_topic("t")
    asked = threading.Event()

    class Checker(rocketmq5.TransactionChecker):
        def check(self, message: Any) -> Any:
            asked.set()
            encode_always()

    settings = {"transaction.timeout.ms": 1, "transaction.check.poll.ms": 1, "transaction.check.interval.ms": 1}
    shop = rocketmq5.Producer(
        configuration5(case.uri, **{**CLIENT, **settings}),
        ("t",),
        checker=Checker(),
    )
    shop.startup()
    message = rocketmq5.Message()
    message.topic, message.body = "t", b"x"
    shop.send(message, shop.begin_transaction())
    kept.append(shop)
    assert asked.wait(60)


def drop(case: Case) -> None:
    """Producers with records that wait were dropped: a thread stores these, and gives back what they held."""
    produced(case.uri, 1).close()
    for _ in range(3):
        producer = Producer({"bootstrap.servers": case.uri, "linger.ms": 60_000, **CLIENT})
        producer.produce("t", VALUE)
        del producer


def fork(case: Case) -> None:
    """A child of a process that folds ends before it, and has none of its threads."""
    fold(case)
    child = os.fork()
    if not child:
        sys.exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == 0, code


STATES: Final[dict[str, Callable[[Case], None]]] = {
    state.__name__: state
    for state in (fold, compute, sleep, wait_for_a_silent_store, wait_for_a_server, ask, drop, fork)
}
ENDINGS: Final = {"return": 0, "sys.exit": 3, "exception": 1, "interrupt": -signal.SIGINT, "terminate": -signal.SIGTERM}
"""How a child ends, and its exit code."""


def end(case: Case) -> None:
    """End as the case says; it returns for a program that reaches its last line."""
    if case.ending == "sys.exit":
        sys.exit(3)
    elif case.ending == "exception":
        raise RuntimeError("as expected")
    elif case.ending == "interrupt":
        raise KeyboardInterrupt
    elif case.ending == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)


def cases(folder: str, count: int, seed: int) -> list[Case]:
    """Return each state in turn, and one time after the other with each ending."""
    random = Random(seed)
    states, endings = list(STATES), list(ENDINGS)
    return [
        Case(
            states[number % len(states)],
            endings[(number + number // len(states)) % len(endings)],
            f"{folder}/{number}",
            random.random() * 0.1,
        )
        for number in range(count)
    ]


def run(case: Case, ended: int) -> None:
    """Do what a child does; its output goes to a file of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    output = os.open(f"{case.uri}.txt", os.O_CREAT | os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    STATES[case.state](case)
    time.sleep(case.after_s)
    os.write(ended, b"%r" % time.monotonic())
    os.close(ended)
    end(case)


def main() -> None:
    """Run the children, some at a time; a child returns from here too."""
    folder, count, seed, background.EXIT_S = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    gc.freeze()  # else each child spends most of its time on the collection at its end
    running: dict[int, tuple[Case, int]] = {}
    waiting = cases(folder, count, seed)
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            case = waiting.pop(0)
            read, write = os.pipe()
            child = os.fork()
            if not child:
                os.close(read)
                return run(case, write)
            os.close(write)
            running[child] = case, read
        child, status = os.wait()
        now_s = time.monotonic()
        case, read = running.pop(child)
        began_s = float(os.read(read, 100) or "nan")
        os.close(read)
        code = os.waitstatus_to_exitcode(status)
        output = Path(f"{case.uri}.txt").read_text()
        print(json.dumps([case.state, case.ending, code, now_s - began_s, output, case.uri]), flush=True)
    return None


if __name__ == "__main__":
    main()
