"""A machine that gives no thread: calls do their work themselves, or say so and accept nothing; then clients go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparktxn import Consumer, KafkaException, Producer, Store, TopicPartition
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process import handles
from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn.errors import ErrorCode
from sparktxn.halfmessage import LocalTransactionState, TransactionListener, TransactionMQProducer, rocketmq5
from sparktxn.maintenance.publishing.background import Folder
from sparktxn.store import registry
from tests.halfworld import configuration5
from tests.world import open_log, store_in_memory

NoThreads = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> NoThreads:
    """A context in which no thread of the product, or of one of its names, can be started: a container's limit."""

    @contextmanager
    def limited(ending: str = "") -> Iterator[None]:
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name.startswith("sparktxn") and thread.name.endswith(ending):
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            yield

    return limited


@pytest.fixture
def uri() -> Iterator[str]:
    with store_in_memory("t") as address:
        yield address


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(KafkaException) as error:
        call()
    assert error.value.error.code() == ErrorCode.LOCAL_CRIT_SYS_RESOURCE
    assert "ulimit -u" in error.value.error.str()


def values(uri: str) -> list[Any]:
    settings = {
        "bootstrap.servers": uri,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    }
    with Consumer(settings) as consumer:
        consumer.subscribe(["t"])
        found = []
        while (message := consumer.poll(10)) is not None and message.error() is None:
            found.append(message.value())
    return found


def test_transactions_and_polls_do_their_work_themselves(uri: str, no_threads: NoThreads) -> None:
    """Uploads, reads, offset commits and checkpoints: what workers did before they could not be started."""
    settings = {"bootstrap.servers": uri, "checkpoint.entries": 2, "store.append.inline.bytes": 0}
    group = {"group.id": "g", "auto.offset.reset": "earliest", "auto.commit.interval.ms": 1}
    told: list[object] = []
    with (
        Store.open(uri, options={"checkpoint.entries": 2, "store.append.inline.bytes": 0}),
        Producer({**settings, "transactional.id": "id"}) as producer,
        Consumer({**settings, **group, "on_commit": lambda error, _: told.append(error)}) as consumer,
    ):
        with no_threads():
            producer.init_transactions()
            for number in range(5):
                with producer.transaction():
                    producer.produce("t", b"%d" % number, partition=0)
            consumer.assign([TopicPartition("t", 0, 0)])
            found: list[Any] = []
            until(lambda: found.append(consumer.poll(0.1)) or len([one for one in found if one]) == 5)
            consumer.commit(asynchronous=True)
            until(lambda: consumer.poll(0.05) is None and bool(told))
        with producer.transaction():
            producer.produce("t", b"5", partition=0)
        until(lambda: found.append(consumer.poll(0.1)) or len([one for one in found if one]) == 6)
        assert consumer.committed([TopicPartition("t", 0)], 10)[0].offset == 10
    assert [one.value() for one in found if one] == [b"%d" % number for number in range(6)]
    assert set(told) == {None}


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_that_could_ask_no_checker_is_not_started(uri: str, no_threads: NoThreads, version: int) -> None:
    held = handles._caretaker.held
    producer: Any
    if version == 4:
        producer = TransactionMQProducer("shop", uri)
        producer.set_transaction_listener(Listener())
        start = producer.start
    else:
        producer = rocketmq5.Producer(configuration5(uri), ["t"], Checker())
        start = producer.startup
    with no_threads(), pytest.raises(KafkaException, match="ulimit -u"):
        start()
    assert handles._caretaker.held == held, "the store is given back"
    start()
    assert any(thread.name == "sparktxn-checks" for thread in threading.enumerate())
    producer.shutdown()


def test_messages_are_sent_by_the_caller(uri: str, no_threads: NoThreads) -> None:
    message = rocketmq5.Message()
    message.topic, message.body = "t", b"here"
    with rocketmq5.Producer(configuration5(uri)) as producer, no_threads():
        assert producer.send_async(message).done()
    assert values(uri) == [b"here"]


class Listener(TransactionListener):
    """Commits."""

    def execute_local_transaction(self, message: Any, arg: Any) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: Any) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


class Checker(rocketmq5.TransactionChecker):
    """Commits."""

    def check(self, message: Any) -> rocketmq5.TransactionResolution:
        return rocketmq5.TransactionResolution.COMMIT


@pytest.mark.parametrize("call", ["produce", "produce_arrow"])
def test_a_record_that_no_thread_would_send_is_not_accepted(uri: str, no_threads: NoThreads, call: str) -> None:
    def produce(value: bytes) -> None:
        if call == "produce":
            producer.produce("t", value)
        else:
            producer.produce_arrow("t", pa.table({"value": pa.array([value], pa.binary())}))

    with Producer({"bootstrap.servers": uri}) as producer:
        with no_threads():
            for _ in range(2):
                refused(lambda: produce(b"refused"))
            assert producer.flush(5) == 0
        produce(b"taken")
        assert producer.flush(10) == 0
    assert values(uri) == [b"taken"]


def test_a_batch_names_the_records_that_no_thread_would_send(uri: str, no_threads: NoThreads) -> None:
    messages = [{"value": b"refused"}]
    with Producer({"bootstrap.servers": uri}) as producer:
        with no_threads():
            assert producer.produce_batch("t", messages) == 0
        assert messages[0]["_error"].code() == ErrorCode.LOCAL_CRIT_SYS_RESOURCE  # type: ignore[attr-defined]
    assert values(uri) == []


def test_a_store_that_cannot_be_opened_for_want_of_threads_holds_nothing(
    no_threads: NoThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a process that holds nothing yet; what other tests hold is given back by a thread that they have.
    monkeypatch.setattr(handles, "_caretaker", handles.Caretaker())
    uri = f"memory://{RandomIds().token()}"
    Store.open(uri, create=True).close()
    until(lambda: handles._caretaker.thread is None)
    held = handles._caretaker.held
    with no_threads():
        refused(lambda: Store.open(uri))
    assert handles._caretaker.held == held
    assert not any(key[0] == uri for key in registry._logs)
    with Store.open(uri) as store:
        store.create_topic("t")
    assert handles._caretaker.held == held


def test_a_refused_sender_is_not_counted_as_held(uri: str, no_threads: NoThreads) -> None:
    held = handles._caretaker.held
    with Producer({"bootstrap.servers": uri}) as producer, no_threads():
        refused(lambda: producer.produce("t", b"x"))
    assert handles._caretaker.held == held


def test_a_member_without_a_thread_shows_its_life_by_its_polls(tmp_path: Path, no_threads: NoThreads) -> None:
    """Another process, which is another log here, expires a silent member after 5 s."""
    uri = str(tmp_path)
    with Store.open(uri, create=True) as store:
        store.create_topic("t", 2)
    settings = {"bootstrap.servers": uri, "group.id": "g", "session.timeout.ms": 5_000, "heartbeat.interval.ms": 300}
    polled = Consumer(settings)
    other = Consumer({**settings, "store.upload.threads": 3})
    lost: list[object] = []
    with no_threads("-again"):
        polled.subscribe(["t"], on_lost=lambda *_: lost.append(polled))
        until(lambda: polled.poll(0.05) is None and len(polled.assignment()) == 2)
    other.subscribe(["t"], on_lost=lambda *_: lost.append(other))
    until(lambda: (polled.poll(0.05), other.poll(0.05)) and len(polled.assignment()) == len(other.assignment()) == 1)
    member, ends_at_s = polled.memberid(), time.monotonic() + 12
    while time.monotonic() < ends_at_s:
        assert polled.poll(0.05) is None
        assert other.poll(0.05) is None
    assert (len(polled.assignment()), len(other.assignment()), lost) == (1, 1, [])
    assert polled.memberid() == member
    polled.close()
    other.close()


def until(condition: Callable[[], bool]) -> None:
    give_up_at_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up_at_s


def test_a_fold_that_no_thread_would_do_is_tried_after_a_later_checkpoint(no_threads: NoThreads) -> None:
    with closing(open_log(MemoryStore("folds-later", SystemClock()))) as log:
        log.background = ThreadBackground("sparktxn", 1)
        folder = Folder(log, 1_000_000)
        with no_threads("-again"):
            folder.after_checkpoint()
        assert folder._repeated._wake is None
        folder.after_checkpoint()
        assert folder._repeated._wake is not None
