"""The errors that users get when their transaction has timed out, or their transactional id has been forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparktxn._engine.format.commands import Append, CreateTopic, DeleteRecords, ExpireProducers, InitProducerId
from sparktxn._kafka.message import ConsumerGroupMetadata, Message, TopicPartition
from sparktxn.consumer import Consumer
from sparktxn.errors import CommandRefused, ErrorCode, KafkaError, KafkaException, ProducerFenced, TransactionAborted
from sparktxn.maintenance import sweep
from sparktxn.producer import Producer, TransactionPhase
from sparktxn.store import Store
from tests.producercommands import ProducerCommands
from tests.world import ClockedWorld, next_number

GROUP = ConsumerGroupMetadata("group")
DAY_S = 86_400


class World(ClockedWorld):
    """A store with a process for the producers, "mine", and another one that looks on, "theirs"."""

    def __init__(self) -> None:
        super().__init__()
        self.logs = {name: self.process() for name in ("mine", "theirs")}
        self.uris = {name: self.lend(name, log) for name, log in self.logs.items()}
        self.submit(CreateTopic("topic", "t", 2))
        self.handles: list[Producer | Consumer] = []

    def submit(self, *commands: object) -> None:
        log = self.logs["theirs"]
        log.submit(commands)  # type: ignore[arg-type]

    def producer(self, process: str = "mine") -> Producer:
        producer = Producer({"bootstrap.servers": self.uris[process], "transactional.id": "orders"})
        self.handles.append(producer)
        producer.init_transactions()
        return producer

    def consumer(self) -> Consumer:
        settings = {"group.id": f"reader-{next_number()}", "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": self.uris["theirs"], **settings})
        self.handles.append(consumer)
        consumer.subscribe(["t"])
        return consumer

    def values(self) -> list[bytes | None]:
        return [message.value() for message in self.consumer().consume(100, timeout=2)]

    def sweep(self) -> None:
        sweep(Store(self.uris["theirs"], {}, self.logs["theirs"]))

    def time_out(self) -> None:
        self.clock.sleep(61)
        self.sweep()

    def forget_id(self) -> None:
        self.time_out()
        self.clock.sleep(8 * DAY_S)
        self.sweep()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    for handle in world.handles:
        handle.close()
    world.close()


def published(world: World) -> Producer:
    producer = world.producer()
    producer.begin_transaction()
    producer.produce("t", b"published")
    assert producer.flush() == 0
    return producer


def exception_of(call: Callable[[], object]) -> KafkaException:
    with pytest.raises(KafkaException) as raised:
        call()
    return raised.value


def assert_timed_out(error: KafkaException) -> None:
    assert isinstance(error, ProducerFenced)
    assert error.error.code() == ErrorCode.LOCAL_FENCED
    assert error.error.name() == "_FENCED"
    assert error.error.fatal()
    assert not error.error.retriable()
    assert not error.error.txn_requires_abort()
    assert "transaction timed out after 61000 ms" in error.error.str()


@pytest.mark.kafka("K44", "K115")
@pytest.mark.parametrize("more", [False, True])
def test_a_commit_after_the_time_out_is_fatal_and_says_why(world: World, more: bool) -> None:
    producer = published(world)
    world.time_out()
    if more:
        producer.produce("t", b"more")
    assert_timed_out(exception_of(producer.commit_transaction))
    for call in (producer.abort_transaction, producer.begin_transaction, producer.commit_transaction):
        assert_timed_out(exception_of(call))
    assert_timed_out(exception_of(lambda: producer.produce("t", b"x")))
    assert_timed_out(exception_of(lambda: producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], GROUP)))
    assert producer.transaction_state is TransactionPhase.FATAL_ERROR
    assert world.values() == []


@pytest.mark.kafka("K44")
def test_an_abort_after_the_time_out_is_fatal_and_says_why(world: World) -> None:
    producer = published(world)
    world.time_out()
    assert_timed_out(exception_of(producer.abort_transaction))


@pytest.mark.kafka("K44", "K110")
def test_offsets_sent_after_the_time_out_are_not_committed_and_the_commit_says_why(world: World) -> None:
    producer = published(world)
    world.time_out()
    producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], GROUP)
    assert_timed_out(exception_of(producer.commit_transaction))
    log = world.logs["theirs"]
    log.refresh()
    assert log.committed_offset("group", 1, 0) is None


@pytest.mark.kafka("K44", "K116")
def test_a_flush_after_the_time_out_is_fatal_and_every_call_says_why(world: World) -> None:
    """As librdkafka has it: an epoch that is stale in a produce is a fence."""
    told: list[KafkaError | None] = []

    def report(error: KafkaError | None, message: Message) -> None:
        told.append(error)

    producer = published(world)
    world.time_out()
    producer.produce("t", b"more", on_delivery=report)
    producer.flush()
    assert [error.code() for error in told if error is not None] == [ErrorCode.LOCAL_FENCED]
    assert [error for error in told if error is not None and "timed out after 61000 ms" in error.str()]
    for call in (
        producer.commit_transaction,
        lambda: producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], GROUP),
        lambda: producer.produce("t", b"x"),
    ):
        assert_timed_out(exception_of(call))
    assert_timed_out(exception_of(producer.abort_transaction))
    assert world.values() == []


@pytest.mark.kafka("K44")
def test_records_that_were_not_published_do_not_time_out(world: World) -> None:
    producer = world.producer()
    producer.begin_transaction()
    producer.produce("t", b"kept")
    world.time_out()
    producer.commit_transaction()
    assert world.values() == [b"kept"]


@pytest.mark.kafka("K44")
def test_a_consumer_that_waits_at_a_dead_producers_transaction_ends_it_itself(world: World) -> None:
    published(world)
    other = Producer({"bootstrap.servers": world.uris["mine"], "transactional.id": "other"})
    world.handles.append(other)
    other.init_transactions()
    with other.transaction():
        other.produce("t", b"behind it", partition=0)
        other.produce("t", b"behind it", partition=1)
    consumer = world.consumer()
    started_s = world.clock.now_s
    messages = consumer.consume(2, timeout=200)
    assert [message.value() for message in messages] == [b"behind it", b"behind it"]
    assert 60 < world.clock.now_s - started_s < 60 + 2 * 10 + 1


@pytest.mark.kafka("K48", "K46")
def test_a_live_producer_of_a_forgotten_id_aborts_and_goes_on(world: World) -> None:
    producer = world.producer()
    with producer.transaction():
        producer.produce("t", b"before")
    before = (producer.producer_id, producer.producer_epoch)
    world.forget_id()
    producer.begin_transaction()
    producer.produce("t", b"lost")
    error = exception_of(producer.commit_transaction)
    assert isinstance(error, TransactionAborted)
    assert error.error.code() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert error.error.txn_requires_abort()
    assert not error.error.fatal()
    producer.abort_transaction()
    assert producer.transaction_state is TransactionPhase.READY
    assert producer.producer_id > before[0]
    assert producer.producer_epoch == 0
    for value in (b"after", b"and on"):
        with producer.transaction():
            producer.produce("t", value)
    assert sorted(value or b"" for value in world.values()) == [b"after", b"and on", b"before"]


@pytest.mark.kafka("K48")
def test_a_flush_of_a_forgotten_id_is_abortable_too(world: World) -> None:
    producer = world.producer()
    world.forget_id()
    producer.begin_transaction()
    producer.produce("t", b"lost")
    producer.flush()
    error = exception_of(producer.commit_transaction)
    assert error.error.code() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert error.error.txn_requires_abort()
    producer.abort_transaction()
    with producer.transaction():
        producer.produce("t", b"after")
    assert world.values() == [b"after"]


@pytest.mark.kafka("K49", "K62")
def test_a_producer_that_is_forgotten_in_its_partitions_goes_on_and_so_does_its_successor(world: World) -> None:
    producer = world.producer()
    with producer.transaction():
        producer.produce("t", b"1", partition=0)
    world.clock.sleep(2 * DAY_S)
    world.sweep()
    log = world.logs["theirs"]
    assert log.producers(1, 0) == []
    with producer.transaction():
        producer.produce("t", b"2", partition=0)
    world.clock.sleep(2 * DAY_S)
    world.sweep()
    newer = world.producer("theirs")
    assert (newer.producer_id, newer.producer_epoch) == (producer.producer_id, producer.producer_epoch + 1)
    with newer.transaction():
        newer.produce("t", b"3", partition=0)
    assert world.values() == [b"1", b"2", b"3"]


@pytest.mark.kafka("K57", "K87")
def test_five_batches_are_recognised_after_a_reload_through_a_checkpoint(world: World) -> None:
    """Kafka's snapshot keeps one batch of each producer: here all five survive."""
    log = world.logs["theirs"]
    producer = ProducerCommands.of(None, log.submit([InitProducerId("p")])[0])
    batches = [producer.append((1, 0), 3 * number, 3) for number in range(7)]
    offsets = [log.submit([batch])[0].base_offset for batch in batches]
    assert log.checkpoint() == log.entry
    reloaded = world.process()

    def resend(batch: Append) -> int:
        result = reloaded.submit([batch])[0]
        assert result.duplicate
        return result.base_offset

    assert [resend(batch) for batch in batches[2:]] == offsets[2:]
    with pytest.raises(CommandRefused) as refused:
        resend(batches[1])
    assert refused.value.error.code() == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert reloaded.entry == log.entry


@pytest.mark.kafka("K93")
def test_deleting_records_does_not_forget_their_producers(world: World) -> None:
    log = world.logs["theirs"]
    producer = ProducerCommands.of(None, log.submit([InitProducerId("p")])[0])
    log.submit([producer.append((1, 0), 0, 3)])
    log.submit([DeleteRecords("d", 1, 0, -1)])
    assert log.submit([producer.append((1, 0), 0, 3)])[0].duplicate
    log.checkpoint()
    with pytest.raises(CommandRefused) as refused:
        log.submit([producer.append((1, 0), 7)])
    assert refused.value.error.code() == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    known = log.producer(1, 0, producer.producer_id)
    assert known is not None
    seen = (producer.producer_id, known.producer_epoch, known.last_sequence, known.coordinator_epoch)
    assert not log.submit([ExpireProducers(1, 0, (seen,))])[0].duplicate


@pytest.mark.kafka("K44", "K136")
def test_on_real_threads_and_clocks_a_reader_ends_what_holds_it_up(tmp_path: Path) -> None:
    settings = {
        "bootstrap.servers": str(tmp_path),
        "store.fsync": False,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 50,
    }
    with Store.open(str(tmp_path), options={"store.fsync": False}, create=True) as store:
        store.create_topic("t", 1)
    dead = Producer(
        {**settings, "store.upload.threads": 2, "transactional.id": "dead", "transaction.timeout.ms": 1_000}
    )
    dead.init_transactions()
    dead.begin_transaction()
    dead.produce("t", b"lost")
    dead.flush()
    with Producer({**settings, "transactional.id": "live"}) as live:
        live.init_transactions()
        with live.transaction():
            live.produce("t", b"kept")
    with Consumer({**settings, "group.id": "reader", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["t"])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"kept"
    error = exception_of(dead.commit_transaction)
    assert "transaction timed out after" in error.error.str()
    dead.close()
