"""What a client has reported as failed does not happen by a later call of another client of its process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from sparktxn import Consumer, KafkaException, Producer, Store, TopicPartition
from sparktxn._engine.format import names
from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._foundation.process.clock import RandomIds
from sparktxn.consumer import offsets as consumer_offsets
from sparktxn.store.registry import objects_of
from sparktxn.testing.faultystore import Fault, FaultyStore, Operation
from tests.lending import close_lent, lend_log, take_log_back
from tests.world import open_log


class Processes:
    """Two processes of one store. The entries of the first can be put without an answer, and without landing."""

    def __init__(self) -> None:
        self.other = f"memory://{RandomIds().token()}"
        self.uri = f"{self.other}-first"
        with Store.open(self.other, create=True) as store:
            store.create_topic("t")
        self.fault = Fault.NONE
        self.log = open_log(
            FaultyStore(objects_of(self.other, {}), self._fate), background=ThreadBackground("test", 2), create=False
        )
        lend_log(self.uri, self.log)

    def _fate(self, operation: Operation) -> Fault:
        is_entry = operation.verb == "put_if_absent" and names.parse_entry(operation.name) is not None
        return self.fault if is_entry else Fault.NONE

    def write_from_the_first(self) -> None:
        """Another client of the first process, whose objects are well again, writes an entry."""
        self.fault = Fault.NONE
        with Store.open(self.uri) as store:
            store.create_topic("later")

    def committed(self) -> int:
        """The group's offset, as the other process sees it."""
        with Consumer({"bootstrap.servers": self.other, "group.id": "g"}) as consumer:
            return int(consumer.committed([TopicPartition("t", 0)])[0].offset)


@pytest.fixture
def processes() -> Iterator[Processes]:
    world = Processes()
    yield world
    take_log_back(world.uri)
    close_lent(world.log)


def test_an_asynchronous_commit_that_on_commit_was_told_has_failed(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(consumer_offsets, "_COMMIT_TIMEOUT_S", 0.2)
    consumer = Consumer(
        {"bootstrap.servers": processes.uri, "group.id": "g", "on_commit": lambda error, _: told.append(error)}
    )
    processes.fault = Fault.REFUSED
    consumer.commit(offsets=[TopicPartition("t", 0, 3)], asynchronous=True)
    consumer.close()
    assert told
    assert told[0] is not None
    with Consumer({"bootstrap.servers": processes.other, "group.id": "g"}) as newer:
        newer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
    processes.write_from_the_first()
    assert processes.committed() == 7


def test_an_init_that_timed_out_and_whose_producer_was_closed(processes: Processes) -> None:
    late = Producer({"bootstrap.servers": processes.uri, "transactional.id": "job"})
    processes.fault = Fault.REFUSED
    with pytest.raises(KafkaException):
        late.init_transactions(0.2)
    late.close()
    with Producer({"bootstrap.servers": processes.other, "transactional.id": "job"}) as owner:
        owner.init_transactions(5)
        processes.write_from_the_first()
        owner.begin_transaction()
        owner.produce("t", b"stored")
        owner.commit_transaction(5)


@pytest.mark.parametrize("closes", [True, False])
def test_a_commit_whose_outcome_is_unknown_and_whose_producer_was_closed_or_dropped(
    processes: Processes, closes: bool
) -> None:
    producer = Producer({"bootstrap.servers": processes.uri, "transactional.id": "job"})
    producer.init_transactions(5)
    producer.begin_transaction()
    producer.produce("t", b"unknown")
    processes.fault = Fault.REFUSED
    with pytest.raises(KafkaException) as error:
        producer.commit_transaction(0.2)
    assert error.value.error.retriable()
    if closes:
        producer.close(0.2)
    del producer, error
    gc.collect()
    processes.write_from_the_first()
    with Store.open(processes.other) as store:
        assert store.view(["t"]).partitions["t", 0].log_end_offset == 0


def test_a_commit_whose_outcome_is_unknown_is_its_producers_to_resolve(processes: Processes) -> None:
    producer = Producer({"bootstrap.servers": processes.uri, "transactional.id": "job"})
    producer.init_transactions(5)
    producer.begin_transaction()
    producer.produce("t", b"stored")
    processes.fault = Fault.REFUSED
    with pytest.raises(KafkaException):
        producer.commit_transaction(0.2)
    processes.write_from_the_first()
    producer.commit_transaction(5)
    producer.close()
    with Store.open(processes.other) as store:
        assert store.view(["t"]).partitions["t", 0].log_end_offset == 2
