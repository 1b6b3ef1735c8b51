"""Handles that are dropped without close(), as most programs for confluent-kafka do, leave nothing behind."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import re
import subprocess
import sys
import threading
import time
import traceback
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sparktxn._engine.format.checkpoint import part_of
from sparktxn._engine.format.commands import CreateTopic
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process import handles as dropped
from sparktxn._foundation.process.clock import SystemClock
from sparktxn._kafka.message import Message
from sparktxn.admin import AdminClient
from sparktxn.consumer import Consumer
from sparktxn.errors import KafkaError, StoreUnavailable
from sparktxn.producer import Producer
from sparktxn.store import Store, registry
from tests.collector import ends_cycles
from tests.lending import lend_log, take_log_back
from tests.world import open_log

_held_before = 0
_patience_s = 60.0
_FEW = 8
_MANY = 30
_LOOKS_MAX = 7


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> Iterator[None]:
    """Leaves what other tests have made out of the collections of these, which are many."""
    global _held_before
    deadline = time.monotonic() + 60
    while dropped._caretaker.held and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.005)
    # What is still held is kept alive by something else, such as the traceback of a test that has failed.
    _held_before = dropped._caretaker.held
    gc.collect()
    gc.freeze()
    yield
    # What has gone meanwhile is collected. The rest stays out of the collections of the modules that follow.
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A store with topic `t`, which no handle is open on."""
    with Store.open(str(tmp_path), create=True) as store:
        store.create_topic("t", 1)
    settled()
    return str(tmp_path)


def settled() -> None:
    """Waits until what was dropped has been given back."""
    global _patience_s
    gc.collect()
    deadline = time.monotonic() + _patience_s
    while dropped._caretaker.held > _held_before and time.monotonic() < deadline:
        time.sleep(0.005)
        gc.collect()
    if dropped._caretaker.held > _held_before:
        _patience_s = 2.0  # what is stuck stays stuck: the other tests need not wait as long to say so
        raise AssertionError(what_is_stuck())
    while not _held_before and dropped._caretaker.thread is not None and time.monotonic() < deadline:
        time.sleep(0.005)


def what_is_stuck() -> str:
    """What every thread does and what is held, for the message of a test that waited in vain."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    caretaker = dropped._caretaker
    lines = [
        f"held {caretaker.held}, before {_held_before}, {caretaker.queue.qsize()} queued; thread {caretaker.thread!r}",
        f"logs {[(key[0], len(users)) for key, (_, users) in registry._logs.items()]}",
        f"collections end cycles: {ends_cycles()}; {gc.get_freeze_count()} frozen",
    ]
    kinds = ("Producer", "Consumer", "Membership", "Linger", "AdminClient")
    held = [one for one in gc.get_objects() if type(one).__name__ in kinds]
    lines += [f"{one!r:.100} is referred to by {[type(by).__name__ for by in gc.get_referrers(one)]}" for one in held]
    for ident, frame in sys._current_frames().items():
        lines.extend([f"{names.get(ident, ident)}:", *traceback.format_stack(frame)[-8:]])
    return "\n".join(lines)


def plain(uri: str) -> None:
    """As in confluent-kafka's own examples: produce, flush, and no close()."""
    told: list[object] = []
    producer = Producer({"bootstrap.servers": uri})
    producer.produce("t", b"x" * 1000, callback=lambda error, message: told.append((producer, error)))
    producer.flush()


def plain_unserved(uri: str) -> None:
    """Its callbacks refer to it, and it is dropped before they were called."""

    class Service:
        def __init__(self) -> None:
            self.producer = Producer({"bootstrap.servers": uri, "on_delivery": self.told, "error_cb": self.failed})
            self.producer.produce("t", b"x")

        def told(self, error: KafkaError | None, message: Message) -> None: ...

        def failed(self, error: KafkaError) -> None: ...

    Service()


def transactional(uri: str) -> None:
    producer = Producer({"bootstrap.servers": uri, "transactional.id": "orders"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("t", b"x" * 1000, callback=lambda *_: producer.poll(0))
    producer.commit_transaction()


def left_open(uri: str) -> None:
    """With a transaction that is open, and a record in the queue whose callback refers to it."""
    producer = Producer({"bootstrap.servers": uri, "transactional.id": "orders"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("t", b"x" * 1000, callback=lambda *_: producer.poll(0))


def unused(uri: str) -> None:
    Producer({"bootstrap.servers": uri, "transactional.id": "orders"})


def use(consumer: Consumer) -> None:
    """A callback that holds its own client."""
    consumer.assignment()


def consumer(uri: str) -> None:
    settings = {"bootstrap.servers": uri, "group.id": "g", "auto.offset.reset": "latest", "fetch.wait.max.ms": 5}
    reader = Consumer(settings)
    reader.subscribe(["t"], on_assign=lambda *_: use(reader))
    reader.poll(0.01)


def admin(uri: str) -> None:
    AdminClient({"bootstrap.servers": uri}).list_topics()


def store(uri: str) -> None:
    Store.open(uri).topics()


def threads() -> int:
    """All but a shared log's own pool, whose size is bounded by store.upload.threads."""
    return sum(re.fullmatch(r"sparktxn-\d+", thread.name) is None for thread in threading.enumerate())


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


@pytest.mark.parametrize("handle", [plain, plain_unserved, transactional, left_open, unused, consumer, admin, store])
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "beside another"])
def test_dropped_handles_leave_no_thread_descriptor_log_or_memory(
    uri: str, handle: Callable[[str], None], shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("sparktxn"), "disabled", True)  # pytest keeps what is logged in memory
    # A shared log holds the entries since its last checkpoint, and segments that are not sealed: some kilobytes.
    bound_bytes = 8_000 if shared else 2_000
    with Store.open(uri) if shared else contextlib.nullcontext():
        held = dropped._caretaker.held
        users = {key: len(users) for key, (_, users) in registry._logs.items()}
        tracemalloc.start()
        try:
            before = what_is_left(_FEW, handle, uri, held)
            looks = [before, *(what_is_left(_MANY, handle, uri, held, before) for _ in range(2))]
            # What grows with the handles grows each time. What a process does once it does in one of them, or in two
            # where a busy machine lets its threads wait.
            while (grown_bytes := least_growth(looks)) >= bound_bytes and len(looks) < _LOOKS_MAX:
                looks.append(what_is_left(_MANY, handle, uri, held, before))
        finally:
            tracemalloc.stop()
        print(f"\n{handle.__name__:15} {grown_bytes:8.0f} bytes a handle")
        assert not grows(before), looks[1]
        assert {key: len(users) for key, (_, users) in registry._logs.items()} == users
        assert grown_bytes < bound_bytes


def least_growth(looks: list[Left]) -> float:
    """The bytes by which the process has grown with each of so many handles, in the look that shows the least."""
    return min(later.memory_bytes - one.memory_bytes for one, later in pairwise(looks)) / _MANY


class Left(NamedTuple):
    """What the process holds after handles were dropped."""

    threads: int
    descriptors: int
    memory_bytes: int


def grows(before: Left) -> bool:
    """Whether threads or descriptors grew with the handles. A shared log opens its lock file when it first waits."""
    return max(threads() - before.threads, descriptors() - before.descriptors) >= _MANY / 10


def what_is_left(count: int, handle: Callable[[str], None], uri: str, held: int, expected: Left | None = None) -> Left:
    """Drop `count` handles, and wait until what they held was given back and nothing grew from `expected`.

    A worker ends after what it is at, a file that it has open included, and nothing waits for it.
    """
    for _ in range(count):
        handle(uri)
    gc.collect()
    deadline = time.monotonic() + _patience_s
    while time.monotonic() < deadline:
        if dropped._caretaker.held <= held and (expected is None or not grows(expected)):
            break
        time.sleep(0.005)
        gc.collect()
    assert dropped._caretaker.held == held, what_is_stuck()
    gc.collect()
    part_of.cache_clear()  # it is bounded, and this test does not fill it
    return Left(threads(), descriptors(), tracemalloc.get_traced_memory()[0])


def test_a_finalizer_waits_for_nothing_that_the_collecting_thread_holds(uri: str) -> None:
    """The collector may run inside any locked region of the same thread."""
    producer = Producer({"bootstrap.servers": uri})
    producer.produce("t", b"x")
    holdings = producer._holdings
    outbox = producer._outbox
    assert holdings is not None
    assert outbox is not None
    of_producer = [holdings._buffers._lock, producer._connecting, outbox._lock]
    locks = [registry._lock, dropped._caretaker.lock, *of_producer]
    del holdings, outbox

    def drop_while_locked() -> None:
        nonlocal producer
        for lock in locks:
            lock.acquire()
        try:
            del producer
            gc.collect()
        finally:
            for lock in locks:
                lock.release()

    # In a thread of its own: a finalizer that waits would keep this test from ending.
    thread = threading.Thread(target=drop_while_locked, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    settled()


def test_records_of_a_dropped_producer_are_stored(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its sender goes on until nothing waits, without lingering for more."""

    def drop() -> None:
        producer = Producer({"bootstrap.servers": uri, "linger.ms": 600_000})
        for number in range(10):
            producer.produce("t", str(number))

    with caplog.at_level(logging.WARNING, "sparktxn"):
        drop()
        settled()
    assert caplog.messages == []
    assert count_of(uri) == 10


def test_records_that_a_dropped_producer_cannot_store_are_counted_in_a_warning(
    uri: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drop() -> None:
        settings = {"delivery.timeout.ms": 300, "client.id": "mine", "store.append.inline.bytes": 0}
        producer = Producer({"bootstrap.servers": uri, **settings})
        for number in range(10):
            producer.produce("t", str(number))

    def unavailable(*_: object) -> None:
        raise StoreUnavailable("the store does not answer")

    with caplog.at_level(logging.WARNING, "sparktxn"), monkeypatch.context() as patched:
        patched.setattr("sparktxn._rows.stage.pendingsegment.PendingSegment.finish", unavailable)
        drop()
        settled()
    assert [message for message in caplog.messages if "10 records" in message and "mine" in message]
    assert count_of(uri) == 0


def test_records_of_a_dropped_transaction_are_counted_in_a_warning(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    def drop() -> None:
        producer = Producer({"bootstrap.servers": uri, "transactional.id": "orders"})
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(10):
            producer.produce("t", str(number))

    with caplog.at_level(logging.WARNING, "sparktxn"):
        drop()
        settled()
    assert [message for message in caplog.messages if "10 records" in message]
    assert count_of(uri) == 0


def test_a_producer_of_a_lent_log_ends_its_thread_and_leaves_the_log_open() -> None:
    address = "memory://lent-and-dropped"
    log = open_log(MemoryStore("lent-and-dropped", SystemClock()))
    log.submit([CreateTopic("t", "t", 1)])
    lend_log(address, log)
    before = threads()
    try:
        for _ in range(5):
            producer = Producer({"bootstrap.servers": address})
            producer.produce("t", b"x")
            producer.flush()
            del producer
        settled()
        assert threads() <= before
        assert count_of(address) == 5
    finally:
        take_log_back(address)


def test_a_closed_handle_gives_its_log_back_once(uri: str) -> None:
    """Dropping it afterwards gives nothing back that another handle holds."""
    other = Store.open(uri)
    handles: list[Any] = [
        Producer({"bootstrap.servers": uri}),
        Consumer({"bootstrap.servers": uri, "group.id": "g"}),
        AdminClient({"bootstrap.servers": uri}),
        Store.open(uri),
    ]
    handles[0].produce("t", b"x")
    handles[2].list_topics()
    references = [weakref.ref(handle) for handle in handles]
    for handle in handles:
        handle.close()
        handle.close()
    del handle
    handles.clear()
    gc.collect()
    assert [reference() for reference in references] == [None] * 4
    other.create_topic("still-open", 1)
    other.close()
    settled()


EXIT = """
import sys
from sparktxn import Producer
from sparktxn.admin import AdminClient
mode, uri = sys.argv[1:]
settings = {"bootstrap.servers": uri, "linger.ms": 600_000, "client.id": "mine"}
if mode == "transaction":
    settings |= {"transactional.id": "orders"}
producer = Producer(settings)
if mode == "transaction":
    producer.init_transactions()
    producer.begin_transaction()
for number in range(7):
    producer.produce("t", str(number))
if mode == "flushed":
    producer.flush()
if mode == "closed":
    producer.close()
if mode == "purged":
    producer.purge()
"""


@pytest.mark.parametrize("mode", ["queued", "transaction", "flushed", "closed", "purged"])
def test_the_end_of_the_interpreter_counts_the_records_that_it_loses(uri: str, mode: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", EXIT, mode, uri], capture_output=True, text=True, timeout=60, check=True
    )
    lost = mode in ("queued", "transaction")
    assert ("7 records of producer mine wait to be stored, and they are lost" in ended.stderr) == lost, ended.stderr
    assert lost or ended.stderr == ""
    assert count_of(uri) == (7 if mode in ("flushed", "closed") else 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_handles_that_are_dropped_in_a_forked_child_change_nothing_of_the_parent(uri: str) -> None:
    producer = Producer({"bootstrap.servers": uri})
    producer.produce("t", b"x")
    producer.flush()
    opened = Store.open(uri)
    child = os.fork()
    if child == 0:
        try:
            del producer, opened
            gc.collect()
            with Store.open(uri) as own:
                own.create_topic("child", 1)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.produce("t", b"y")
    assert producer.flush() == 0
    assert opened.topics()[0].name == "child"
    producer.close()
    opened.close()


def count_of(uri: str) -> int:
    with Store.open(uri) as reading:
        view = reading.view(["t"])
        return view.partitions["t", 0].log_end_offset


def _drop_member(uri: str) -> None:
    """Drop a consumer that is a member, and that its own callback holds."""
    joined: list[Consumer] = []
    seldom = {"session.timeout.ms": 1_800_000, "heartbeat.interval.ms": 600_000}
    member = Consumer({"bootstrap.servers": uri, "group.id": "g", **seldom})
    member.subscribe(["t"], on_assign=lambda *_: joined.append(member))
    give_up_at_s = time.monotonic() + 60
    while not joined and time.monotonic() < give_up_at_s:
        member.poll(0.05)
    assert joined
    assert _of_members()


def test_members_that_are_collected_together_leave_no_thread(uri: str) -> None:
    """The collection of a cycle clears weak references before it calls any finalizer."""
    with Store.open(uri):
        _drop_member(uri)
        give_up_at_s = time.monotonic() + 60
        while _of_members() and time.monotonic() < give_up_at_s:
            # Again and again: a worker that polls the log holds the callback, which holds the consumer.
            gc.collect()
            time.sleep(0.05)
        # Otherwise it would wait for the next sign of life, after minutes.
        assert not _of_members()


def _of_members() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("sparktxn-members")]


def test_a_member_of_a_lent_log_is_left_to_its_session() -> None:
    """Its clock may stand still, and its store may stop the thread that asks it: no other thread uses that log."""
    address = "memory://lent-to-a-member"
    log = open_log(MemoryStore("lent-to-a-member", SystemClock()))
    log.submit([CreateTopic("t", "t", 1)])
    lend_log(address, log)
    try:
        with Store.open(address, create=True), hold_of_another():
            member = Consumer({"bootstrap.servers": address, "group.id": "g"})
            member.subscribe(["t"])
            give_up_at_s = time.monotonic() + 60
            while not member.assignment() and time.monotonic() < give_up_at_s:
                member.poll(0.05)
            assert len(log.group_members("g")) == 1
            reference, before = weakref.ref(member._membership), log.entry
            del member
            gc.collect()
            wait_for_the_thread()
            assert reference() is None
            assert log.entry == before
    finally:
        take_log_back(address)


@contextlib.contextmanager
def hold_of_another() -> Iterator[None]:
    """Something that keeps the thread alive."""
    held = dropped.hold()
    try:
        yield
    finally:
        held.release()


def wait_for_the_thread() -> None:
    """Wait until the thread has done what is queued by now."""
    done = threading.Event()
    dropped.give_back_later(done.set)
    assert done.wait(60)


def test_the_thread_goes_on_after_work_that_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    def end() -> None:
        raise SystemExit

    with hold_of_another(), caplog.at_level(logging.ERROR, "sparktxn"):
        dropped.give_back_later(end)
        wait_for_the_thread()
    assert [message for message in caplog.messages if "could not be given back" in message]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_member_that_is_dropped_in_a_forked_child_stays_in_its_group(uri: str) -> None:
    with Store.open(uri) as store, Consumer({"bootstrap.servers": uri, "group.id": "g"}) as member:
        member.subscribe(["t"])
        give_up_at_s = time.monotonic() + 60
        while not member.assignment() and time.monotonic() < give_up_at_s:
            member.poll(0.05)
        child = os.fork()
        if child == 0:
            try:
                with Store.open(uri):
                    member.__del__()
                    wait_for_the_thread()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        store.log.refresh()
        assert len(store.log.group_members("g")) == 1
