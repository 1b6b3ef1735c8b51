"""Prepared transactions through the producer: who may end them, what survives a producer, and what is told again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from sparktxn import PreparedTransaction
from sparktxn.clock import Deadline
from sparktxn.errors import ErrorCode, KafkaError, KafkaException, OutcomeUnknown, ProducerFenced
from sparktxn.message import ConsumerGroupMetadata, Message, TopicPartition
from sparktxn.producer import Producer, TransactionState
from sparktxn.store import Store, read_task

S = TransactionState


class World:
    """One store in memory with topic t, its producers of id "shop", and what a reader sees."""

    def __init__(self) -> None:
        self.uri = f"memory://prepared-{uuid.uuid4().hex}"
        self.store = Store.open(self.uri, create=True)
        self.store.create_topic("t", 2)
        self.producers: list[Producer] = []

    def producer(self, *, keep_prepared: bool = True, **settings: Any) -> Producer:
        producer = self.uninitialised(**settings)
        producer.init_transactions(keep_prepared=keep_prepared)
        return producer

    def uninitialised(self, **settings: Any) -> Producer:
        producer = Producer({"bootstrap.servers": self.uri, "transactional.id": "shop", **settings})
        self.producers.append(producer)
        return producer

    def prepared(self, *values: str, **settings: Any) -> tuple[Producer, PreparedTransaction]:
        producer = self.producer(**settings)
        return producer, self.prepare(producer, *values)

    @staticmethod
    def prepare(producer: Producer, *values: str) -> PreparedTransaction:
        producer.begin_transaction()
        for value in values:
            producer.produce("t", value, partition=0)
        return producer.prepare_transaction()

    def values(self) -> list[str]:
        view = self.store.view(["t"])
        tasks = self.store.plan(view, self.store.ranges(view))
        batches = [batch for task in tasks for batch in read_task(task, self.store.options)]
        return [row["value"].decode() for batch in batches for row in batch.to_pylist()]

    def entry(self) -> int:
        return self.store.log.refresh(self.store.log.deadline(10))

    def committed(self, group: str) -> int | None:
        self.entry()
        topic = self.store.log.topic("t")
        found = self.store.log.committed_offset(group, topic.topic_id, 0)
        return found.offset if found is not None else None


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    for producer in world.producers:
        producer.close()
    world.store.close()


def error_of(call: Any, *arguments: Any, kind: type[KafkaException] = KafkaException) -> KafkaError:
    with pytest.raises(kind) as raised:
        call(*arguments)
    return raised.value.error


def lose_answers(monkeypatch: pytest.MonkeyPatch, producer: Producer, count: int = 1) -> None:
    """The next `count` lists are written, and their sender is not told."""
    log = producer._log
    send = log.send
    left = [count]

    class Ticket:
        def __init__(self, ticket: Any) -> None:
            self.ticket = ticket

        def wait(self, deadline: Deadline) -> Any:
            results = self.ticket.wait(deadline)
            if left[0]:
                left[0] -= 1
                raise OutcomeUnknown("the answer was lost")
            return results

        def withdraw(self) -> bool:
            return bool(self.ticket.withdraw())

        wait_once = wait
        let_go = withdraw

    monkeypatch.setattr(log, "send", lambda commands: Ticket(send(commands)))


@pytest.mark.kafka("K129", "K130")
@pytest.mark.parametrize("committed", [True, False])
def test_a_prepared_transaction_is_one_entry_and_its_end_another(world: World, committed: bool) -> None:
    told: list[tuple[KafkaError | None, Message]] = []
    producer = world.producer()
    before = world.entry()
    producer.begin_transaction()
    producer.produce("t", "a", partition=0, on_delivery=lambda *report: told.append(report))
    producer.send_offsets_to_transaction([TopicPartition("t", 0, 5)], ConsumerGroupMetadata("g"))
    prepared = producer.prepare_transaction()
    assert world.entry() == before + 1
    assert (prepared, str(prepared)) == (PreparedTransaction(0, 0), "0:0")
    assert [(error, message.offset()) for error, message in told] == [(None, 0)]
    assert (producer.transaction_state, world.values(), world.committed("g")) == (S.PREPARED_TRANSACTION, [], None)
    (producer.commit_transaction if committed else producer.abort_transaction)()
    assert world.entry() == before + 2
    assert world.values() == (["a"] if committed else [])
    assert world.committed("g") == (5 if committed else None)
    assert (producer.transaction_state, producer.producer_epoch) == (S.READY, 1)


@pytest.mark.kafka("K130")
@pytest.mark.parametrize(("same", "expected"), [(True, ["a"]), (False, [])])
def test_completing_commits_what_it_names_and_aborts_anything_else(
    world: World, same: bool, expected: list[str]
) -> None:
    producer, prepared = world.prepared("a")
    producer.complete_transaction(prepared if same else PreparedTransaction(prepared.producer_id, 77))
    assert world.values() == expected


@pytest.mark.kafka("K129")
def test_a_prepared_transaction_takes_nothing_more_and_waits_for_its_end(world: World) -> None:
    producer, _ = world.prepared("a")
    for call in (
        lambda: producer.produce("t", "b"),
        producer.begin_transaction,
        producer.prepare_transaction,
        producer.init_transactions,
        lambda: producer.send_offsets_to_transaction([TopicPartition("t", 0, 5)], ConsumerGroupMetadata("g")),
    ):
        assert error_of(call) == KafkaError._STATE
    producer.flush()
    producer.commit_transaction()
    assert world.values() == ["a"]


@pytest.mark.kafka("K129")
def test_preparing_needs_an_open_transaction(world: World) -> None:
    producer = world.uninitialised()
    assert error_of(producer.prepare_transaction) == KafkaError._STATE
    producer.init_transactions()
    assert error_of(producer.prepare_transaction) == KafkaError._STATE
    with Producer({"bootstrap.servers": world.uri}) as idempotent:
        assert error_of(idempotent.prepare_transaction) == KafkaError._NOT_CONFIGURED
    with pytest.raises(TypeError, match=r"PreparedTransaction\.parse"):
        producer.complete_transaction("0:0")


@pytest.mark.kafka("K131", "K132")
@pytest.mark.parametrize("committed", [True, False])
def test_it_outlives_its_producer_and_the_next_one_ends_it(world: World, committed: bool) -> None:
    old, prepared = world.prepared("a")
    new = world.producer()
    assert (new.transaction_state, new.producer_epoch) == (S.PREPARED_TRANSACTION, 1)
    assert error_of(old.commit_transaction, kind=ProducerFenced) == KafkaError._FENCED
    new.complete_transaction(prepared if committed else PreparedTransaction(9, 9))
    assert world.values() == (["a"] if committed else [])
    with new.transaction():
        new.produce("t", "next", partition=0)
    assert world.values() == [*(["a"] if committed else []), "next"]


def test_closing_leaves_it_open(world: World) -> None:
    producer, prepared = world.prepared("a")
    producer.close()
    world.producer().complete_transaction(prepared)
    assert world.values() == ["a"]


@pytest.mark.kafka("K131")
def test_an_init_that_does_not_keep_it_aborts_it_and_completing_says_so(world: World) -> None:
    _, prepared = world.prepared("a")
    producer = world.producer(keep_prepared=False)
    assert producer.transaction_state is S.READY
    error = error_of(producer.complete_transaction, prepared)
    assert (error.code(), error.retriable()) == (ErrorCode.INVALID_TXN_STATE, False)
    assert "has been aborted" in error.str()
    assert str(prepared) in error.str()
    assert world.values() == []
    with producer.transaction():
        producer.produce("t", "next")
    assert world.values() == ["next"]


def test_completing_may_be_repeated_after_every_start(world: World) -> None:
    producer, first = world.prepared("a")
    producer.complete_transaction(first)
    producer.complete_transaction(first)
    again = world.producer()
    assert again.transaction_state is S.READY
    again.complete_transaction(first)
    second = world.prepare(again, "b")
    assert second != first
    world.producer().complete_transaction(first)  # the database has rolled the second one back
    last = world.producer()
    last.complete_transaction(first)
    assert world.values() == ["a"]


def test_two_transactions_of_one_producer_are_never_taken_for_each_other(world: World) -> None:
    producer, first = world.prepared("a")
    producer.complete_transaction(first)
    second = world.prepare(producer, "b")
    assert second != first
    producer.complete_transaction(first)
    assert world.values() == ["a"]


def test_an_empty_transaction_is_prepared_and_completed(world: World) -> None:
    _, prepared = world.prepared()
    new = world.producer()
    assert new.transaction_state is S.PREPARED_TRANSACTION
    new.complete_transaction(prepared)
    world.producer().complete_transaction(prepared)
    assert world.values() == []


def test_what_was_published_before_is_prepared_with_the_rest(world: World) -> None:
    producer = world.producer()
    producer.begin_transaction()
    producer.produce("t", "a", partition=0)
    producer.flush()
    prepared = world_prepare(producer, "b")
    world.producer().complete_transaction(prepared)
    assert world.values() == ["a", "b"]


def world_prepare(producer: Producer, value: str) -> PreparedTransaction:
    producer.produce("t", value, partition=0)
    return producer.prepare_transaction()


@pytest.mark.kafka("K118")
def test_lost_answers_are_resolved_by_the_same_call(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = world.producer()
    producer.begin_transaction()
    producer.produce("t", "a", partition=0)
    lose_answers(monkeypatch, producer)
    before = world.entry()
    assert error_of(producer.prepare_transaction).retriable()
    assert producer.transaction_state is S.PREPARING_TRANSACTION
    assert error_of(lambda: producer.produce("t", "b")) == KafkaError._STATE
    assert error_of(producer.abort_transaction) == KafkaError._CONFLICT
    prepared = producer.prepare_transaction()
    assert world.entry() == before + 1
    lose_answers(monkeypatch, producer)
    assert error_of(producer.complete_transaction, prepared).retriable()
    assert error_of(producer.complete_transaction, PreparedTransaction(9, 9)) == KafkaError._CONFLICT
    assert error_of(producer.commit_transaction) == KafkaError._CONFLICT
    producer.complete_transaction(prepared)
    assert world.values() == ["a"]


def test_a_completion_whose_answer_was_lost_is_completed_by_the_same_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, prepared = world.prepared("a")
    lose_answers(monkeypatch, producer)
    assert error_of(producer.complete_transaction, prepared).retriable()
    producer.complete_transaction(prepared)
    assert (world.values(), producer.producer_epoch) == (["a"], 1)
    with producer.transaction():
        producer.produce("t", "b", partition=0)
    assert world.values() == ["a", "b"]


def test_an_init_whose_answer_was_lost_bumps_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _, prepared = world.prepared("a")
    producer = world.uninitialised()
    log, _ = producer._connect()
    submit = log.submit
    lost = [True]

    def submitting(commands: Any, deadline: Deadline) -> Any:
        results = submit(commands, deadline)
        if lost.pop():
            lost.append(False)
            raise OutcomeUnknown("the answer was lost")
        lost.append(False)
        return results

    monkeypatch.setattr(log, "submit", submitting)
    with pytest.raises(OutcomeUnknown):
        producer.init_transactions(keep_prepared=True)
    producer.init_transactions(keep_prepared=True)
    assert (producer.transaction_state, producer.producer_epoch) == (S.PREPARED_TRANSACTION, 1)
    producer.complete_transaction(prepared)
    assert world.values() == ["a"]


def test_an_older_instance_can_neither_prepare_nor_complete(world: World) -> None:
    old = world.producer()
    old.begin_transaction()
    old.produce("t", "old", partition=0)
    new, prepared = world.prepared("new")
    assert error_of(old.prepare_transaction, kind=ProducerFenced).fatal()
    new.complete_transaction(prepared)
    assert world.values() == ["new"]


def test_a_failed_preparation_can_only_be_aborted(world: World) -> None:
    producer = world.producer()
    producer.begin_transaction()
    producer.produce("t", "a", partition=0)
    producer.send_offsets_to_transaction(
        [TopicPartition("t", 0, 5)], ConsumerGroupMetadata("g", generation_id=3, member_id="gone")
    )
    assert error_of(producer.prepare_transaction).txn_requires_abort()
    assert producer.transaction_state is S.ABORTABLE_ERROR
    producer.abort_transaction()
    prepared = world.prepare(producer, "b")
    producer.complete_transaction(prepared)
    assert world.values() == ["b"]


def test_an_exception_after_preparing_does_not_abort_it(world: World) -> None:
    producer = world.producer()
    with suppress(ZeroDivisionError), producer.transaction():
        producer.produce("t", "a", partition=0)
        prepared = producer.prepare_transaction()
        raise ZeroDivisionError
    assert producer.transaction_state is S.PREPARED_TRANSACTION
    producer.complete_transaction(prepared)
    assert world.values() == ["a"]
