"""What a client refuses by an older view of the log, it decides again by what the log says now.

Each case is a way in, what it refuses, and a change by which another process makes it right a moment before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from sparktxn import (
    ConsumerGroupMetadata,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    Store,
    TopicPartition,
)
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views import refusals
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions
from sparktxn.aio import AIOProducer
from sparktxn.consumer import Consumer
from sparktxn.halfmessage import Message, TransactionMQProducer
from sparktxn.transfer import import_topic
from tests.halfworld import COMMIT, POLL_NEVER, Scripted
from tests.transfer.test_topicimport import FAKE, Fake, FakeConsumer

ID = pa.schema([("id", pa.int64())])
MORE = pa.field("more", pa.string())
LARGE = b"x" * 500
SETTINGS = {
    "t": {},
    "small": {"max.message.bytes": "100"},
    "keyed": {"cleanup.policy": "compact"},
    "plain": {"message.type": "normal"},
}


class Place:
    """A store, its address, and the address of the process that changes it."""

    def __init__(self, folder: Path) -> None:
        self.uri, self.elsewhere = str(folder / "store"), str(folder / "same")
        with Store.open(self.uri, create=True) as store:
            for name, settings in SETTINGS.items():
                store.create_topic(name, settings=settings)
            store.create_topic("typed", schema=ID)
            store.create_topic("typed_small", schema=pa.schema([("v", pa.binary())]), settings=SETTINGS["small"])
        # Another name of it is another log of this process, as of another one.
        (folder / "same").symlink_to(folder / "store", target_is_directory=True)
        self.store = Store.open(self.elsewhere)
        self.admin = AdminClient({"bootstrap.servers": self.elsewhere})
        self.closing: list[Callable[[], object]] = [self.store.close, self.admin.close]

    def close(self) -> None:
        while self.closing:
            self.closing.pop()()

    def set(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("topic", topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result()

    def widen(self, topic: str) -> None:
        self.admin.create_partitions([NewPartitions(topic, 4)])[topic].result()

    def again(self, topic: str, **given: Any) -> None:
        """Delete the topic, and make it again as `given`."""
        self.admin.delete_topics([topic])[topic].result()
        self.store.create_topic(topic, **given)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


class Change(NamedTuple):
    """What another process does, and what is refused before it."""

    name: str
    make: Callable[[Place], object]
    topic: str
    given: dict[str, Any]


RECORDS = [
    Change("topic", lambda place: place.store.create_topic("new"), "new", {}),
    Change("partition", lambda place: place.widen("t"), "t", {"partition": 3}),
    Change("size", lambda place: place.set("small", "max.message.bytes", "1000"), "small", {"value": LARGE}),
    Change("key", lambda place: place.set("keyed", "cleanup.policy", "delete"), "keyed", {}),
    Change("columns", lambda place: place.again("typed"), "typed", {}),
]
TABLES = [
    Change("topic", lambda place: place.store.create_topic("new"), "new", {"value": [b"v"]}),
    Change("partition", lambda place: place.widen("t"), "t", {"value": [b"v"], "partition": [3]}),
    Change("size", lambda place: place.set("small", "max.message.bytes", "1000"), "small", {"value": [LARGE]}),
    Change("key", lambda place: place.set("keyed", "cleanup.policy", "delete"), "keyed", {"value": [b"v"]}),
    Change("columns", lambda place: place.again("typed"), "typed", {"value": [b"v"]}),
    Change(
        "column",
        lambda place: place.store.add_columns("typed", pa.schema([MORE])),
        "typed",
        {"id": [1], "more": ["m"]},
    ),
    Change("type", lambda place: place.again("typed", schema=pa.schema([("id", pa.string())])), "typed", {"id": ["a"]}),
    Change("typed", lambda place: place.again("t", schema=ID), "t", {"id": [1]}),
    Change(
        "typed size", lambda place: place.set("typed_small", "max.message.bytes", "1000"), "typed_small", {"v": [LARGE]}
    ),
]


Write = Callable[[], object]


def linger(place: Place, change: Change) -> Write:
    producer = Producer({"bootstrap.servers": place.uri})
    place.closing.append(producer.close)
    return lambda: producer.produce(change.topic, **{"value": b"v", **change.given})


def transactional(place: Place) -> Producer:
    producer = Producer({"bootstrap.servers": place.uri, "transactional.id": "x"})
    place.closing.append(producer.close)
    producer.init_transactions()
    return producer


def in_transactions(place: Place, change: Change) -> Write:
    """Each call has a transaction of its own, as the next one of a program has."""
    producer = transactional(place)

    def write() -> None:
        with producer.transaction():
            producer.produce(change.topic, **{"value": b"v", **change.given})

    return write


def in_a_transaction(place: Place, change: Change) -> Write:
    producer = transactional(place)
    producer.begin_transaction()
    place.closing.append(producer.commit_transaction)
    return lambda: producer.produce(change.topic, **{"value": b"v", **change.given})


def many(place: Place, change: Change) -> Write:
    producer = Producer({"bootstrap.servers": place.uri})
    place.closing.append(producer.close)

    def write() -> None:
        messages: list[dict[str, Any]] = [{"value": b"v", **change.given} for _ in range(3)]
        if producer.produce_batch(change.topic, messages) < len(messages):
            raise KafkaException(messages[0]["_error"])

    return write


def awaited(place: Place, change: Change) -> Write:
    loop = asyncio.new_event_loop()

    async def made() -> AIOProducer:
        return AIOProducer({"bootstrap.servers": place.uri})

    producer = loop.run_until_complete(made())
    place.closing += [loop.close, lambda: loop.run_until_complete(producer.close())]
    return lambda: loop.run_until_complete(producer.produce(change.topic, **{"value": b"v", **change.given}))


def halves(place: Place, change: Change) -> Write:
    producer = TransactionMQProducer("shop", {"bootstrap.servers": place.uri, **POLL_NEVER})
    producer.set_transaction_listener(Scripted())
    producer.start()
    place.closing.append(producer.shutdown)
    body = change.given.get("value", b"v")
    return lambda: producer.send_message_in_transaction(Message(change.topic, body), COMMIT)


def tables(place: Place, change: Change) -> Write:
    producer = transactional(place)

    def write() -> None:
        with producer.transaction():
            producer.produce_arrow(change.topic, pa.table(change.given))

    return write


def streamed(place: Place, change: Change) -> Write:
    """A table that gives its rows once."""
    producer = transactional(place)
    producer.begin_transaction()
    place.closing.append(producer.commit_transaction)
    return lambda: producer.produce_arrow(change.topic, pa.table(change.given).to_reader())


WRITES = [
    *((way, change) for change in RECORDS for way in (linger, in_transactions, in_a_transaction, many, awaited)),
    *((halves, change) for change in RECORDS if change.name != "partition"),
    (halves, Change("halves", lambda place: place.set("plain", "message.type", "mixed"), "plain", {})),
    *((way, change) for change in TABLES for way in (tables, streamed)),
]


@pytest.mark.parametrize(
    ("way", "change"), [pytest.param(*case, id=f"{case[0].__name__}-{case[1].name}") for case in WRITES]
)
def test_a_write_is_refused_by_what_the_log_says_now(
    place: Place, way: Callable[[Place, Change], Write], change: Change
) -> None:
    write = way(place, change)
    with pytest.raises(KafkaException):
        write()
    change.make(place)
    write()


OFFSETS = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 3, 7)])


def sent_offsets(place: Place) -> Write:
    producer = transactional(place)

    def send() -> None:
        with producer.transaction():
            producer.send_offsets_to_transaction([TopicPartition("t", 3, 7)], ConsumerGroupMetadata("g"))

    return send


def expected(place: Place) -> Write:
    producer = transactional(place)

    def expect() -> None:
        with producer.transaction():
            producer.expect("t", 3, 0)

    return expect


def consumed(place: Place) -> Write:
    consumer = Consumer({"bootstrap.servers": place.uri, "group.id": "g"})
    place.closing.append(consumer.close)
    return lambda: consumer.commit(offsets=[TopicPartition("t", 3, 7)], asynchronous=False)


def kept(place: Place) -> Store:
    store = Store.open(place.uri)
    place.closing.append(store.close)
    return store


def stored_offsets(place: Place) -> Write:
    store = kept(place)
    return lambda: store.commit_offsets(OFFSETS)


def committed_offsets(place: Place) -> Write:
    store = kept(place)
    return lambda: store.commit([], transactional_id="s", offsets=OFFSETS)


def expected_ends(place: Place) -> Write:
    store = kept(place)
    return lambda: store.commit([], transactional_id="s", expect={("t", 3): 0})


def planned(place: Place) -> Write:
    store = kept(place)
    return lambda: store.stage_plan(["typed"], partition_key="more", max_age_ms=60_000)


def imported(place: Place) -> Write:
    store = kept(place)
    source = FakeConsumer([Fake(0, 0, LARGE)], {0: (0, 1)})
    return lambda: import_topic(store, "small", source, "source", **FAKE)


@pytest.mark.parametrize(
    ("way", "change"),
    [
        *((way, RECORDS[1]) for way in (sent_offsets, expected, consumed, stored_offsets)),
        *((way, RECORDS[1]) for way in (committed_offsets, expected_ends)),
        (planned, TABLES[5]),
        (imported, RECORDS[2]),
    ],
)
def test_a_call_is_refused_by_what_the_log_says_now(
    place: Place, way: Callable[[Place], Write], change: Change
) -> None:
    call = way(place)
    with pytest.raises(KafkaException):
        call()
    change.make(place)
    call()


def test_an_import_goes_on_with_the_columns_that_its_topic_has_gained(place: Place, tmp_path: Path) -> None:
    from pyarrow import parquet

    from sparktxn import read_arrow
    from sparktxn.transfer import import_files

    files = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    parquet.write_table(pa.table({"id": [1]}), files[0])
    parquet.write_table(pa.table({"id": [2], "more": ["m"]}), files[1])
    changed: list[str] = []

    def on_progress(path: str, _: int) -> None:
        if not changed:
            changed.append(path)
            place.store.add_columns("typed", pa.schema([MORE]))

    import_files(kept(place), "typed", files, on_progress=on_progress)
    found = read_arrow(place.uri, "typed", columns=["id", "more"]).read_all()
    assert found.to_pydict() == {"id": [1, 2], "more": [None, "m"]}


# --- what it costs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """For each read of the log before a refusal, how old the state might have been."""
    found: list[float] = []
    read_on = Log._read_on

    def counted(self: Log, *, max_age_s: float) -> None:
        found.append(max_age_s)
        read_on(self, max_age_s=max_age_s)

    monkeypatch.setattr(Log, "_read_on", counted)
    return found


def test_a_record_that_is_taken_reads_nothing(place: Place, reads: list[float]) -> None:
    with Producer({"bootstrap.servers": place.uri}) as producer:
        producer.produce("t", b"v", b"k", partition=0)
        producer.produce_batch("t", [{"value": b"v"}])
        producer.produce_arrow("typed", pa.table({"id": [1]}))
        assert producer.flush() == 0
    assert reads == []


def test_a_call_that_refuses_many_records_reads_once(place: Place, reads: list[float]) -> None:
    with Producer({"bootstrap.servers": place.uri}) as producer:
        messages = [{"value": LARGE} for _ in range(50)]
        assert producer.produce_batch("small", messages) == 0
        assert all("100" in str(message["_error"]) for message in messages)
        with pytest.raises(KafkaException):
            producer.produce_arrow("small", pa.table({"value": [LARGE] * 50}))
    assert len(reads) == 2


def test_a_program_that_gives_wrong_records_in_a_loop_reads_the_log_a_few_times(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first refusals each read it; then two a second do. A change is seen by a refusal half a second later."""
    with Producer({"bootstrap.servers": place.uri}) as producer:
        producer.produce("t", b"v")
        log = producer._log
        assert log is not None
        now_s = [1_000.0]
        monkeypatch.setattr(log._refusals, "_clock", type("Clock", (), {"monotonic_s": lambda _: now_s[0]})())
        log._refusals._counted_s = now_s[0]
        ages: list[float] = []
        monkeypatch.setattr(log._refusals, "_read", lambda *, max_age_s: ages.append(max_age_s))
        for _ in range(1_000):
            with pytest.raises(KafkaException):
                producer.produce("small", LARGE)
        assert ages == [0] * refusals._AT_ONCE + [0.5] * (1_000 - refusals._AT_ONCE)
        now_s[0] += 1
        del ages[:]
        for _ in range(5):
            with pytest.raises(KafkaException):
                producer.produce("small", LARGE)
        assert ages == [0, 0, 0.5, 0.5, 0.5]


# --- what is queued already -------------------------------------------------------------------------------------------


def test_records_stay_in_order_where_their_topic_changes_in_between(place: Place) -> None:
    """The records before wait in the topic's older buffer, and a segment of the newer one may be full first."""
    place.set("t", "segment.rows", "5")
    with Producer({"bootstrap.servers": place.uri, "linger.ms": 600_000}) as producer:
        for number in range(3):
            producer.produce("t", b"%d" % number, partition=0)
        place.widen("t")
        producer.produce("t", b"other", partition=3)
        for number in range(3, 40):
            producer.produce("t", b"%d" % number, partition=0)
        assert producer.flush() == 0
    with Consumer({"bootstrap.servers": place.uri, "group.id": "g"}) as consumer:
        consumer.assign([TopicPartition("t", 0, 0)])
        found = [message.value() for message in consumer.consume(40, 5)]
    assert found == [b"%d" % number for number in range(40)]
