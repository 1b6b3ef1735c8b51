"""`stats_cb`: librdkafka's JSON, called inside poll() every `statistics.interval.ms`, and nowhere else."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparktxn import ConfigurationError, Consumer, Producer, TopicPartition
from sparktxn._engine.format.commands import CreateTopic
from sparktxn.admin import AdminClient
from sparktxn.producer import client as producer_client
from tests.world import ClockedWorld, World

EVERY_MS = 10


class Said:
    """What a callback was called with."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> None:
        self.texts.append(text)

    @property
    def last(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.texts[-1])
        return found


@pytest.fixture
def world() -> Iterator[World]:
    made = World({"t": 2})
    yield made
    made.close()


def settings(said: Callable[[str], object], interval_ms: int = EVERY_MS) -> dict[str, Any]:
    return {"stats_cb": said, "statistics.interval.ms": interval_ms}


def polled(client: Producer | Consumer, said: Said) -> dict[str, Any]:
    """What is said next."""
    before = len(said.texts)
    while len(said.texts) == before:
        client.poll(0.05)
    return said.last


def test_a_producer_says_what_waits_and_what_is_stored(world: World) -> None:
    said = Said()
    with Producer({"bootstrap.servers": world.uri, "linger.ms": 60_000, "client.id": "shop", **settings(said)}) as one:
        found = polled(one, said)
        assert found["name"].startswith("shop#producer-")
        assert (found["client_id"], found["type"]) == ("shop", "producer")
        assert (found["msg_cnt"], found["msg_max"], found["txmsgs"]) == (0, 100_000, 0)
        one.produce("t", b"v" * 100, partition=1)
        found = polled(one, said)
        assert (found["msg_cnt"], found["msg_size"]) == (1, 100)
        one.flush()
        found = polled(one, said)
        assert (found["msg_cnt"], found["txmsgs"]) == (0, 1)
        assert found["topics"]["t"]["partitions"]["1"]["txmsgs"] == 1
        assert found["eos"]["idemp_state"] == "Assigned"
        assert "txn_state" not in found["eos"]
        (store,) = found["brokers"].values()
        assert store["state"] == "UP"
        assert store["tx"] > 0
        assert found["age"] > 0
        assert found["time"] > 1_700_000_000


def test_a_transactional_producer_says_its_state(world: World) -> None:
    said = Said()
    producer = world.producer("orders", **settings(said))
    assert polled(producer, said)["eos"]["txn_state"] == "Init"
    producer.init_transactions()
    found = polled(producer, said)["eos"]
    assert (found["txn_state"], found["txn_may_enq"]) == ("Ready", False)
    assert (found["producer_id"], found["producer_epoch"]) >= (0, 0)
    producer.begin_transaction()
    found = polled(producer, said)["eos"]
    assert (found["txn_state"], found["txn_may_enq"]) == ("InTransaction", True)


def test_a_consumer_says_where_it_is_and_its_lag(world: World) -> None:
    world.produce("a", "b", "c")
    said = Said()
    consumer = world.consumer(**settings(said), enable_auto_commit=False)
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(30)
    assert message is not None
    consumer.commit(message=message, asynchronous=False)
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", b"open", partition=0)
    producer.flush()
    while True:
        polled(consumer, said)
        partition = said.last["topics"]["t"]["partitions"]["0"]
        if (partition["app_offset"], partition["hi_offset"]) == (3, 4):
            break
    other = world.consumer(**settings(said), enable_auto_commit=False)
    other.assign([TopicPartition("t", 0)])
    while polled(other, said)["topics"]["t"]["partitions"]["0"]["hi_offset"] < 0:
        pass
    assert said.last["topics"]["t"]["partitions"]["0"]["committed_offset"] == 1
    assert (partition["lo_offset"], partition["ls_offset"], partition["hi_offset"]) == (0, 3, 4)
    assert (partition["committed_offset"], partition["stored_offset"]) == (1, 3)
    assert (partition["consumer_lag"], partition["consumer_lag_stored"]) == (2, 0)
    assert partition["rxmsgs"] == 3
    assert said.last["cgrp"]["assignment_size"] == 1
    assert said.last["type"] == "consumer"


def test_a_member_says_that_it_is_one(world: World) -> None:
    said = Said()
    consumer = world.consumer("t", **settings(said))
    while polled(consumer, said)["cgrp"]["join_state"] != "steady":
        pass
    while polled(consumer, said)["cgrp"]["assignment_size"] != 2:
        pass


def test_a_poll_that_waits_ends_to_call_back_and_counts_it(world: World) -> None:
    said = Said()
    producer = world.producer(**settings(said))
    assert producer.poll() == 1
    assert len(said.texts) == 1
    assert producer.flush(10) == 0


def test_it_is_called_once_for_each_interval_and_only_when_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ClockedWorld()
    said = Said()
    # A producer counts its intervals from before it has opened the store.
    monkeypatch.setattr(producer_client, "SystemClock", lambda: world.clock)
    try:
        log = world.process()
        log.submit([CreateTopic(log.ids.token(), "t", 1, {}, None)])
        producer = Producer({"bootstrap.servers": world.lend("p", log), **settings(said, 60_000)})
        producer.produce("t", b"v")
        producer.poll(0)
        assert said.texts == []
        world.clock.sleep(180_000)
        assert said.texts == []
        producer.poll(0)
        producer.poll(0)
        assert len(said.texts) == 1
        world.clock.sleep(60_000)
        producer.flush(0)
        producer.close()
        assert len(said.texts) == 1
    finally:
        world.close()


@pytest.mark.parametrize(("interval_ms", "has_callback"), [(0, True), (EVERY_MS, False)])
def test_without_an_interval_or_a_callback_nothing_is_called(
    world: World, interval_ms: int, has_callback: bool
) -> None:
    said = Said()
    given: Any = {"statistics.interval.ms": interval_ms, **({"stats_cb": said} if has_callback else {})}
    producer, consumer = world.producer(**given), world.consumer("t", **given)
    for _ in range(5):
        producer.poll(0.01)
        consumer.poll(0.01)
    assert said.texts == []


def test_what_the_callback_raises_comes_out_of_poll(world: World) -> None:
    def fails(_: str) -> None:
        raise LookupError("from stats_cb")

    given = settings(fails)
    with pytest.raises(LookupError, match="from stats_cb"):
        world.producer(**given).poll()
    with pytest.raises(LookupError, match="from stats_cb"):
        world.consumer("t", **given).poll(10)


def test_the_callback_may_call_its_client(world: World) -> None:
    called = []

    def calls(_: str) -> None:
        called.append(consumer.position([TopicPartition("t", 0)]))

    consumer = world.consumer("t", **settings(calls))
    while not called:
        consumer.poll(0.05)


def test_a_dropped_client_is_not_kept_by_its_callback(world: World) -> None:
    producer = Producer({"bootstrap.servers": world.uri, **settings(Said())})
    producer.produce("t", b"v")
    producer.flush()
    dropped = weakref.ref(producer)
    gc.disable()
    try:
        del producer
        assert dropped() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("value", [-1, 86_400_001, "often"])
def test_a_wrong_interval_is_refused(world: World, value: Any) -> None:
    for client in (Producer, Consumer):
        with pytest.raises(ConfigurationError, match=r"statistics\.interval\.ms"):
            client({"bootstrap.servers": world.uri, "group.id": "g", "statistics.interval.ms": value})


def test_an_administrator_accepts_them_and_calls_nothing(world: World) -> None:
    AdminClient({"bootstrap.servers": world.uri, **settings(Said())}).close()
