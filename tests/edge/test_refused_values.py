"""Values that no public method takes: refused at once, and the store, its clients and the next call go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pytest

from sparktxn import (
    ConfigurationError,
    Consumer,
    ConsumerGroupMetadata,
    Message,
    Producer,
    SinkCommit,
    Store,
    TopicPartition,
)
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore import open_store
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.background import InlineBackground
from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn.admin import AdminClient, ConsumerGroupTopicPartitions, NewTopic

NO_WHOLE_NUMBERS = (5.0, 5.5, float("inf"), float("nan"), True, Decimal(5), "5", b"5", 2**63, -(2**63) - 1, 10**5000)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    address = str(tmp_path / "store")
    with AdminClient({"bootstrap.servers": address}) as admin:
        admin.create_topics([NewTopic("t", 2)])["t"].result()
    return address


@pytest.fixture
def store(uri: str) -> Iterator[Store]:
    with Store.open(uri) as opened:
        yield opened


def consumer_of(uri: str, **settings: Any) -> Consumer:
    consumer = Consumer({"bootstrap.servers": uri, "group.id": "g", "auto.offset.reset": "earliest"}, **settings)
    consumer.assign([TopicPartition("t", 0)])
    return consumer


def check_store(uri: str) -> None:
    """A process that opens the store anew can read it all, and another client commits."""
    settings = StoreSettings()
    objects = open_store(uri, settings=settings, storage={}, clock=SystemClock())
    log = Log.open(
        objects, settings=settings, clock=SystemClock(), ids=RandomIds(), background=InlineBackground(), create=False
    )
    with log.within(10):
        log.refresh()
    before = log.entry
    log.close()
    with consumer_of(uri) as consumer:
        consumer.commit(offsets=[TopicPartition("t", 1, before)], asynchronous=False)
        assert consumer.committed([TopicPartition("t", 1)])[0].offset == before


def wrong_partitions(value: Any) -> Iterator[Callable[[], TopicPartition]]:
    """A TopicPartition with the value in each field, at its construction and later."""
    for name in ("partition", "offset", "leader_epoch"):
        yield lambda name=name: TopicPartition(**{"topic": "t", "partition": 0, "offset": 5, name: value})  # type: ignore[misc]

        def changed(name: str = name) -> TopicPartition:
            partition = TopicPartition("t", 0, 5)
            setattr(partition, name, value)
            return partition

        yield changed


@pytest.mark.parametrize("value", NO_WHOLE_NUMBERS, ids=lambda value: type(value).__name__)
def test_no_call_takes_what_is_no_whole_number_as_offset_partition_or_epoch(uri: str, value: Any) -> None:
    admin = AdminClient({"bootstrap.servers": uri})
    manual = consumer_of(uri, **{"enable.auto.offset.store": False})
    producer = Producer({"bootstrap.servers": uri, "transactional.id": "x"})
    producer.init_transactions()
    producer.begin_transaction()
    group = ConsumerGroupMetadata("g")
    calls: list[Callable[[TopicPartition], object]] = [
        lambda given: manual.commit(offsets=[given], asynchronous=False),
        lambda given: manual.commit(offsets=[given]),
        lambda given: manual.store_offsets(offsets=[given]),
        lambda given: manual.seek(given),
        lambda given: producer.send_offsets_to_transaction([given], group),
        lambda given: admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("g", [given])])["g"].result(),
    ]
    for make in wrong_partitions(value):
        for call in calls:
            with pytest.raises((TypeError, ValueError), match=r"^(partition|offset|leader_epoch) is "):
                call(make())
    producer.abort_transaction()
    producer.close()
    manual.close()
    admin.close()
    check_store(uri)


def test_numpys_integers_are_whole_numbers(uri: str) -> None:
    with consumer_of(uri) as consumer:
        integers: Any = (numpy.int32(1), numpy.int64(5), "", numpy.uint8(3))
        given = TopicPartition("t", *integers)
        consumer.commit(offsets=[given], asynchronous=False)
        (found,) = consumer.committed([TopicPartition("t", 1)])
        assert (found.offset, found.leader_epoch) == (5, 3)
    check_store(uri)


def test_a_message_that_a_test_has_made_is_checked_when_it_is_committed(uri: str) -> None:
    with consumer_of(uri) as consumer:
        for wrong in (Message("t", 0, 5.0), Message("t", True, 5), Message(b"t", 0, 5)):  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"^(offset|partition|topic) is "):
                consumer.commit(message=wrong, asynchronous=False)
        with pytest.raises(ConfigurationError, match=r"^offset is 9223372036854775808"):
            consumer.commit(message=Message("t", 0, 2**63 - 1))
        with pytest.raises(TypeError, match=r"^message is 'm'.*: expected a Message"):
            consumer.commit(message="m")  # type: ignore[arg-type]
    check_store(uri)


def test_metadata_that_is_no_text_stops_no_later_commit(uri: str) -> None:
    with consumer_of(uri) as consumer:
        for asynchronous in (True, False):
            with pytest.raises(ConfigurationError, match=r"^metadata has half of a surrogate pair"):
                consumer.commit(offsets=[TopicPartition("t", 0, 5, "\ud800")], asynchronous=asynchronous)
    check_store(uri)


@pytest.mark.parametrize("value", [2**63, 2**54, -1, 5.0, True, "5"], ids=repr)
def test_a_record_is_refused_by_produce_for_its_timestamp(uri: str, value: Any) -> None:
    with Producer({"bootstrap.servers": uri, "transactional.id": "x"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises((TypeError, ValueError), match=r"^timestamp is "):
            producer.produce("t", b"v", timestamp=value)
        producer.abort_transaction()
    check_store(uri)


@pytest.mark.parametrize("value", [5, b"x", "\ud800", "", "x" * 40_000], ids=lambda value: repr(value)[:9])
def test_a_transactional_id_is_text(store: Store, uri: str, value: Any) -> None:
    staged = store.stage_plan(["t"]).open(seed=0)
    with pytest.raises((TypeError, ValueError), match=r"^transactional_id "):
        store.commit(staged.finish(), transactional_id=value, sink=SinkCommit("w", "r", 0))
    check_store(uri)


@pytest.mark.parametrize("value", NO_WHOLE_NUMBERS, ids=lambda value: type(value).__name__)
def test_a_batch_has_a_whole_number(uri: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^batch_id is "):
        SinkCommit("w", "r", value)
    check_store(uri)


def test_a_topic_has_a_whole_number_of_partitions(store: Store, uri: str) -> None:
    for value in NO_WHOLE_NUMBERS:
        if isinstance(value, int) and not isinstance(value, bool):
            continue
        with pytest.raises(TypeError, match=r"^partition_count is "):
            store.create_topic("w", value)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^num_partitions is "):
            NewTopic("w", value)  # type: ignore[arg-type]
    assert [topic.name for topic in store.topics()] == ["t"]
    check_store(uri)


def test_group_metadata_is_checked_when_it_is_made(uri: str) -> None:
    for wrong in ({"group_id": 5}, {"group_id": "\ud800"}, {"generation_id": 5.0}, {"generation_id": 2**63}):
        with pytest.raises((TypeError, ValueError), match=r"^(group_id|generation_id) "):
            ConsumerGroupMetadata(**{"group_id": "g", **wrong})  # type: ignore[arg-type]
    check_store(uri)
