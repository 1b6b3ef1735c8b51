"""RocketMQ 5's send_async(): receipts and errors in futures, and what becomes of messages under way at shutdown()."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from sparktxn import Store, read_arrow
from sparktxn._engine.log.write.queue import Queue, QueuedList
from sparktxn._engine.objectstore.contract import PutOutcome
from sparktxn._engine.objectstore.local import LocalStore
from sparktxn.halfmessage.rocketmq5 import (
    IllegalStateException,
    Message,
    NotFoundException,
    PayloadEmptyException,
    Producer,
    UnsupportedException,
)
from tests.halfworld import configuration5

MANY = 200
AT_ONCE = 16
"""How many messages of `send_async` are stored side by side."""


@pytest.fixture
def uri(tmp_path: Path) -> str:
    with Store.open(str(tmp_path), create=True) as store:
        store.create_topic("orders", 3)
    return str(tmp_path)


@pytest.fixture
def producer(uri: str) -> Iterator[Producer]:
    with Producer(configuration5(uri)) as made:
        yield made


def message(body: bytes, topic: str = "orders") -> Message:
    made = Message()
    made.topic, made.body = topic, body
    return made


def stored(uri: str) -> list[bytes]:
    return sorted(read_arrow(uri, ["orders"]).read_all()["value"].to_pylist())


def test_each_message_is_stored_once_and_many_share_entries(
    uri: str, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, put = Queue.add, LocalStore.put_if_absent
    added, all_wait = itertools.count(1), threading.Event()

    def counted_add(queue: Queue, waiting: QueuedList) -> None:
        add(queue, waiting)
        if next(added) == AT_ONCE:
            all_wait.set()

    def late_put(store: LocalStore, name: str, data: bytes, **named: Any) -> PutOutcome:
        assert all_wait.wait(60), "the first entry is put while the messages of all other threads wait for the next"
        return put(store, name, data, **named)

    monkeypatch.setattr(Queue, "add", counted_add)
    monkeypatch.setattr(LocalStore, "put_if_absent", late_put)
    with Store.open(uri) as store:
        before = store.view(["orders"]).entry
        futures = [producer.send_async(message(b"%03d" % number)) for number in range(MANY)]
        receipts = [future.result(60) for future in futures]
        assert store.view(["orders"]).entry - before <= MANY - (AT_ONCE - 2), "all but the first share an entry"
    assert len({receipt.message_id for receipt in receipts}) == MANY
    assert {receipt.message_queue.topic for receipt in receipts} == {"orders"}
    assert stored(uri) == [b"%03d" % number for number in range(MANY)]


def test_what_the_message_holds_is_taken_at_once(uri: str, producer: Producer) -> None:
    sent = message(b"first")
    first = producer.send_async(sent)
    sent.body = b"second"
    second = producer.send_async(sent)
    assert first.result(10).message_id != second.result(10).message_id
    assert stored(uri) == [b"first", b"second"]


def test_what_is_wrong_with_a_message_is_raised_and_with_the_store_is_in_the_future(producer: Producer) -> None:
    with pytest.raises(PayloadEmptyException):
        producer.send_async(message(b""))
    with pytest.raises(TypeError):
        producer.send_async(b"x")  # type: ignore[arg-type]
    with pytest.raises(NotFoundException, match="'order' does not exist"):
        producer.send_async(message(b"x", "order")).result(10)


def test_shutdown_waits_for_what_is_under_way_and_cancels_the_rest(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer(configuration5(uri))
    producer.startup()
    began, go_on = threading.Event(), threading.Event()
    engine = producer._started()
    stage = engine.stage

    def slow(*arguments: Any, **named: Any) -> Any:
        began.set()
        assert go_on.wait(60)
        return stage(*arguments, **named)

    monkeypatch.setattr(engine, "stage", slow)
    futures = [producer.send_async(message(b"%03d" % number)) for number in range(MANY)]
    assert began.wait(60)
    threading.Timer(0.3, go_on.set).start()
    producer.shutdown(0.1)
    done, _ = wait(futures, 30)
    assert len(done) == MANY
    cancelled = sum(future.cancelled() for future in futures)
    assert cancelled > MANY / 2, "most had not begun"
    succeeded = [b"%03d" % n for n, future in enumerate(futures) if not future.cancelled() and not future.exception()]
    assert set(succeeded) <= set(stored(uri))
    assert len(stored(uri)) <= MANY - cancelled, "what was cancelled is never stored"
    with pytest.raises(IllegalStateException):
        producer.send_async(message(b"late"))


def test_shutdown_waits_for_messages(uri: str) -> None:
    producer = Producer(configuration5(uri))
    producer.startup()
    futures = [producer.send_async(message(b"%03d" % number)) for number in range(MANY)]
    producer.shutdown()
    assert all(future.result(0) for future in futures)
    assert len(stored(uri)) == MANY


def test_a_producer_that_is_dropped_still_sends(uri: str) -> None:
    producer = Producer(configuration5(uri))
    producer.startup()
    futures = [producer.send_async(message(b"%03d" % number)) for number in range(20)]
    del producer
    assert all(future.result(60) for future in futures)
    assert len(stored(uri)) == 20


def test_a_message_that_meets_shutdown_is_refused_and_never_stored(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread shuts the producer down between the check of its state and the send."""
    producer = Producer(configuration5(uri))
    producer.startup()
    record = producer._record

    def meet_shutdown(*arguments: Any, **named: Any) -> Any:
        made = record(*arguments, **named)
        producer.shutdown()
        return made

    monkeypatch.setattr(producer, "_record", meet_shutdown)
    with pytest.raises(IllegalStateException, match="startup"):
        producer.send_async(message(b"x"))
    assert stored(uri) == []


def test_no_message_can_be_recalled(producer: Producer) -> None:
    with pytest.raises(UnsupportedException, match="roll it back"):
        producer.recall_message("orders", "handle")
    with pytest.raises(UnsupportedException, match="roll it back"):
        producer.recall_message_async("orders", "handle").result(0)
    with pytest.raises(TypeError):
        producer.recall_message("orders", 5)  # type: ignore[arg-type]
