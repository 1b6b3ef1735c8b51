"""Prepared transactions through the producer: which one may end them, what survives it, and which answers repeat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from sparktxn import PreparedTransaction
from sparktxn._kafka.message import ConsumerGroupMetadata, Message, TopicPartition
from sparktxn.errors import ErrorCode, KafkaError, OutcomeUnknown, ProducerFenced
from sparktxn.producer import Producer, TransactionPhase
from tests import world as worlds
from tests.world import error_of

S = TransactionPhase


class World(worlds.World):
    """A store with topic t, and producers of id "shop" that prepare."""

    def __init__(self) -> None:
        super().__init__({"t": 2})

    def initialised(self, *, keep_prepared: bool = True, **settings: Any) -> Producer:
        producer = self.producer("shop", **settings)
        producer.init_transactions(keep_prepared=keep_prepared)
        return producer

    def prepared(self, *values: str, **settings: Any) -> tuple[Producer, PreparedTransaction]:
        producer = self.initialised(**settings)
        return producer, self.prepare(producer, *values)

    @staticmethod
    def prepare(producer: Producer, *values: str) -> PreparedTransaction:
        producer.begin_transaction()
        for value in values:
            producer.produce("t", value, partition=0)
        return producer.prepare_transaction()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


@pytest.mark.kafka("K129", "K130")
@pytest.mark.parametrize("committed", [True, False])
def test_a_prepared_transaction_is_one_entry_and_its_end_another(world: World, committed: bool) -> None:
    told: list[tuple[KafkaError | None, Message]] = []
    producer = world.initialised()
    before = world.entry()
    producer.begin_transaction()
    producer.produce("t", "a", partition=0, on_delivery=lambda *report: told.append(report))
    producer.send_offsets_to_transaction([TopicPartition("t", 0, 5)], ConsumerGroupMetadata("g"))
    prepared = producer.prepare_transaction()
    assert world.entry() == before + 1
    assert (prepared, str(prepared)) == (PreparedTransaction(0, 0), "0:0")
    assert [(error, message.offset()) for error, message in told] == [(None, 0)]
    assert (producer.transaction_state, world.texts(), world.committed("g")) == (S.PREPARED_TRANSACTION, [], None)
    (producer.commit_transaction if committed else producer.abort_transaction)()
    assert world.entry() == before + 2
    assert world.texts() == (["a"] if committed else [])
    assert world.committed("g") == (5 if committed else None)
    assert (producer.transaction_state, producer.producer_epoch) == (S.READY, 1)


@pytest.mark.kafka("K130")
@pytest.mark.parametrize(("same", "expected"), [(True, ["a"]), (False, [])])
def test_completing_commits_what_it_names_and_aborts_anything_else(
    world: World, same: bool, expected: list[str]
) -> None:
    producer, prepared = world.prepared("a")
    producer.complete_transaction(prepared if same else PreparedTransaction(prepared.producer_id, 77))
    assert world.texts() == expected


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
    assert world.texts() == ["a"]


@pytest.mark.kafka("K129")
def test_preparing_needs_an_open_transaction(world: World) -> None:
    producer = world.producer("shop")
    assert error_of(producer.prepare_transaction) == KafkaError._STATE
    producer.init_transactions()
    assert error_of(producer.prepare_transaction) == KafkaError._STATE
    with Producer({"bootstrap.servers": world.uri}) as idempotent:
        assert error_of(idempotent.prepare_transaction) == KafkaError._NOT_CONFIGURED
    with pytest.raises(TypeError, match=r"PreparedTransaction\.parse"):
        producer.complete_transaction("0:0")  # type: ignore[arg-type]


@pytest.mark.kafka("K131", "K132")
@pytest.mark.parametrize("committed", [True, False])
def test_it_outlives_its_producer_and_the_next_one_ends_it(world: World, committed: bool) -> None:
    old, prepared = world.prepared("a")
    new = world.initialised()
    assert (new.transaction_state, new.producer_epoch) == (S.PREPARED_TRANSACTION, 1)
    assert error_of(old.commit_transaction, kind=ProducerFenced) == KafkaError._FENCED
    new.complete_transaction(prepared if committed else PreparedTransaction(9, 9))
    assert world.texts() == (["a"] if committed else [])
    with new.transaction():
        new.produce("t", "next", partition=0)
    assert world.texts() == [*(["a"] if committed else []), "next"]


def test_closing_leaves_it_open(world: World) -> None:
    producer, prepared = world.prepared("a")
    producer.close()
    world.initialised().complete_transaction(prepared)
    assert world.texts() == ["a"]


@pytest.mark.kafka("K131")
def test_an_init_that_does_not_keep_it_aborts_it_and_completing_says_so(world: World) -> None:
    _, prepared = world.prepared("a")
    producer = world.initialised(keep_prepared=False)
    assert producer.transaction_state is S.READY
    error = error_of(lambda: producer.complete_transaction(prepared))
    assert (error.code(), error.retriable()) == (ErrorCode.INVALID_TXN_STATE, False)
    assert "has been aborted" in error.str()
    assert str(prepared) in error.str()
    assert world.texts() == []
    with producer.transaction():
        producer.produce("t", "next")
    assert world.texts() == ["next"]


def test_completing_may_be_repeated_after_every_start(world: World) -> None:
    producer, first = world.prepared("a")
    producer.complete_transaction(first)
    producer.complete_transaction(first)
    again = world.initialised()
    assert again.transaction_state is S.READY
    again.complete_transaction(first)
    second = world.prepare(again, "b")
    assert second != first
    world.initialised().complete_transaction(first)  # the database has rolled the second one back
    last = world.initialised()
    last.complete_transaction(first)
    assert world.texts() == ["a"]


def test_two_transactions_of_one_producer_are_never_taken_for_each_other(world: World) -> None:
    producer, first = world.prepared("a")
    producer.complete_transaction(first)
    second = world.prepare(producer, "b")
    assert second != first
    producer.complete_transaction(first)
    assert world.texts() == ["a"]


def test_an_empty_transaction_is_prepared_and_completed(world: World) -> None:
    _, prepared = world.prepared()
    new = world.initialised()
    assert new.transaction_state is S.PREPARED_TRANSACTION
    new.complete_transaction(prepared)
    world.initialised().complete_transaction(prepared)
    assert world.texts() == []


def test_what_was_published_before_is_prepared_with_the_rest(world: World) -> None:
    producer = world.initialised()
    producer.begin_transaction()
    producer.produce("t", "a", partition=0)
    producer.flush()
    prepared = world_prepare(producer, "b")
    world.initialised().complete_transaction(prepared)
    assert world.texts() == ["a", "b"]


def world_prepare(producer: Producer, value: str) -> PreparedTransaction:
    producer.produce("t", value, partition=0)
    return producer.prepare_transaction()


@pytest.mark.kafka("K118")
def test_lost_answers_are_resolved_by_the_same_call(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = world.initialised()
    producer.begin_transaction()
    producer.produce("t", "a", partition=0)
    before = world.entry()
    with world.losing_answers():
        assert error_of(producer.prepare_transaction).retriable()
        assert producer.transaction_state is S.PREPARING_TRANSACTION
        assert error_of(lambda: producer.produce("t", "b")) == KafkaError._STATE
        assert error_of(producer.abort_transaction) == KafkaError._CONFLICT
        prepared = producer.prepare_transaction()
    assert world.entry() == before + 1
    with world.losing_answers():
        assert error_of(lambda: producer.complete_transaction(prepared)).retriable()
        assert error_of(lambda: producer.complete_transaction(PreparedTransaction(9, 9))) == KafkaError._CONFLICT
        assert error_of(producer.commit_transaction) == KafkaError._CONFLICT
        producer.complete_transaction(prepared)
    assert world.texts() == ["a"]


def test_a_completion_whose_answer_was_lost_is_completed_by_the_same_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, prepared = world.prepared("a")
    with world.losing_answers():
        assert error_of(lambda: producer.complete_transaction(prepared)).retriable()
        producer.complete_transaction(prepared)
    assert (world.texts(), producer.producer_epoch) == (["a"], 1)
    with producer.transaction():
        producer.produce("t", "b", partition=0)
    assert world.texts() == ["a", "b"]


def test_an_init_whose_answer_was_lost_bumps_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _, prepared = world.prepared("a")
    producer = world.producer("shop")
    log, _ = producer._connect()
    submit = log.submit
    lost = [True]

    def submitting(commands: Any) -> Any:
        results = submit(commands)
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
    assert world.texts() == ["a"]


def test_an_older_instance_can_neither_prepare_nor_complete(world: World) -> None:
    old = world.initialised()
    old.begin_transaction()
    old.produce("t", "old", partition=0)
    new, prepared = world.prepared("new")
    assert error_of(old.prepare_transaction, kind=ProducerFenced).fatal()
    new.complete_transaction(prepared)
    assert world.texts() == ["new"]


def test_a_failed_preparation_can_only_be_aborted(world: World) -> None:
    producer = world.initialised()
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
    assert world.texts() == ["b"]


def test_an_exception_after_preparing_does_not_abort_it(world: World) -> None:
    producer = world.initialised()
    with suppress(ZeroDivisionError), producer.transaction():
        producer.produce("t", "a", partition=0)
        prepared = producer.prepare_transaction()
        raise ZeroDivisionError
    assert producer.transaction_state is S.PREPARED_TRANSACTION
    producer.complete_transaction(prepared)
    assert world.texts() == ["a"]
