"""Conditional commits, as event sourcing uses them: what was decided by old records does not take effect."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from sparktxn import ConfigurationError, ExpectationFailed, TransactionAborted
from sparktxn._kafka.message import TopicPartition
from sparktxn.consumer import Consumer
from sparktxn.errors import ErrorCode, KafkaException, OutcomeUnknown
from sparktxn.producer import Producer, TransactionPhase
from sparktxn.store import SinkCommit
from tests.world import World, error_of, flags, messages

TOPIC = "orders"
OTHER = "stock"


@pytest.fixture
def world() -> Iterator[World]:
    world = World({TOPIC: 2, OTHER: 1})
    yield world
    world.close()


def end_of(world: World, topic: str = TOPIC, partition: int = 0) -> int:
    return world.ends(topic)[partition][1]


def transaction(producer: Producer, value: str, end: int, *, flushes: bool = False) -> None:
    producer.begin_transaction()
    producer.produce(TOPIC, value, partition=0)
    if flushes:
        producer.flush()
    producer.expect(TOPIC, 0, end)
    producer.produce(TOPIC, f"{value}, too", partition=0)
    producer.commit_transaction()


@pytest.mark.parametrize("flushes", [False, True])
def test_a_transaction_commits_where_no_other_record_was_appended(world: World, flushes: bool) -> None:
    producer = world.transactional()
    transaction(producer, "first", 0, flushes=flushes)
    transaction(producer, "second", end_of(world), flushes=flushes)
    assert world.texts(TOPIC) == ["first", "first, too", "second", "second, too"]


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("by_transaction", [False, True])
def test_nothing_of_it_takes_effect_where_one_was(world: World, flushes: bool, by_transaction: bool) -> None:
    producer = world.transactional()
    if by_transaction:
        transaction(world.transactional("other"), "other", 0)
    else:
        world.produce("other", "other, too", topic=TOPIC)
    reports: list[Any] = []
    producer.begin_transaction()
    producer.produce(TOPIC, "late", partition=0, callback=lambda error, _: reports.append(error))
    if flushes:
        producer.flush()
    producer.expect(TOPIC, 0, 1)
    error = error_of(producer.commit_transaction, ExpectationFailed)
    assert (error.code(), error.name(), flags(error)) == (1001, "UNEXPECTED_END_OFFSET", (False, True, False))
    assert "ends at offset" in error.str()
    assert producer.transaction_state is TransactionPhase.ABORTABLE_ERROR
    producer.abort_transaction()
    assert len(reports) == 1
    assert world.texts(TOPIC) == ["other", "other, too"]
    transaction(producer, "again", end_of(world))
    assert world.texts(TOPIC)[2:] == ["again", "again, too"]


def test_it_is_checked_by_the_entry_that_commits_not_by_the_call(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.expect(OTHER, 0, 0)
    producer.produce(TOPIC, "decided by an empty stock", partition=0)
    world.produce("delivery", topic=OTHER)
    error_of(producer.commit_transaction, ExpectationFailed)
    producer.abort_transaction()
    assert world.texts(TOPIC) == []


def test_any_number_of_partitions_is_checked_also_without_a_record(world: World) -> None:
    producer = world.transactional()
    for expected_end, passes in ((0, True), (1, False)):
        producer.begin_transaction()
        for topic, partition in ((TOPIC, 0), (TOPIC, 1), (OTHER, 0)):
            producer.expect(topic, partition, expected_end if topic == OTHER else 0)
        if passes:
            producer.commit_transaction()
        else:
            error_of(producer.commit_transaction, ExpectationFailed)
            producer.abort_transaction()


def test_an_open_transaction_of_another_producer_counts(world: World) -> None:
    other = world.transactional("other")
    other.begin_transaction()
    other.produce(TOPIC, "open", partition=0)
    other.flush()
    producer = world.transactional()
    with pytest.raises(ExpectationFailed):
        transaction(producer, "late", 0)
    producer.abort_transaction()
    other.abort_transaction()
    transaction(producer, "read past the aborted record", end_of(world))


def test_the_position_of_a_consumer_is_what_to_expect_also_behind_aborted_records(world: World) -> None:
    producer = world.transactional()
    transaction(producer, "first", 0)
    producer.begin_transaction()
    producer.produce(TOPIC, "aborted", partition=0)
    producer.flush()
    producer.abort_transaction()
    consumer = world.consumer()
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    assert len(messages(consumer)) == 2
    (position,) = consumer.position([TopicPartition(TOPIC, 0)])
    assert position.offset == end_of(world) == 5
    transaction(producer, "second", position.offset)


@pytest.mark.parametrize("moved", [False, True])
def test_a_preparation_is_checked_and_holds(world: World, moved: bool) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce(TOPIC, "prepared", partition=0)
    producer.expect(TOPIC, 0, 0)
    if moved:
        world.produce("other", topic=TOPIC)
        error_of(producer.prepare_transaction, ExpectationFailed)
        producer.abort_transaction()
        assert world.texts(TOPIC) == ["other"]
    else:
        prepared = producer.prepare_transaction()
        world.produce("other", topic=TOPIC)
        producer.complete_transaction(prepared)
        assert world.texts(TOPIC) == ["prepared", "other"]


def test_a_commit_whose_answer_was_lost_is_not_refused_by_what_came_after_it(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce(TOPIC, "stored", partition=0)
    producer.expect(TOPIC, 0, 0)
    with world.losing_answers():
        assert error_of(producer.commit_transaction).retriable()
        world.produce("other", topic=TOPIC)
        producer.commit_transaction()
    assert world.texts(TOPIC) == ["stored", "other"]


def test_an_expectation_ends_with_its_transaction(world: World) -> None:
    producer = world.transactional()
    transaction(producer, "first", 0)
    producer.begin_transaction()
    producer.expect(TOPIC, 0, 2)
    producer.abort_transaction()
    world.produce("other", topic=TOPIC)
    producer.begin_transaction()
    producer.produce(TOPIC, "second", partition=0)
    producer.commit_transaction()
    assert world.texts(TOPIC)[2:] == ["other", "second"]


def test_a_wrong_call_is_refused_before_anything_is_written(world: World) -> None:
    producer = world.transactional()
    assert error_of(lambda: producer.expect(TOPIC, 0, 0)).code() == ErrorCode.LOCAL_STATE
    plain = world.producer()
    assert error_of(lambda: plain.expect(TOPIC, 0, 0)).code() == ErrorCode.LOCAL_NOT_CONFIGURED
    producer.begin_transaction()
    producer.expect(TOPIC, 0, 5)
    producer.expect(TOPIC, 0, 5)
    with pytest.raises(ConfigurationError, match=r"log_end_offset is 6 .* expects 5"):
        producer.expect(TOPIC, 0, 6)
    with pytest.raises(ConfigurationError, match="log_end_offset is -1"):
        producer.expect(TOPIC, 1, -1)
    assert error_of(lambda: producer.expect("__consumer_offsets", 0, 0)).code() == ErrorCode.INVALID_TOPIC
    error = error_of(lambda: producer.expect(TOPIC, 2, 0), TransactionAborted)
    assert error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    producer.abort_transaction()


def commit(world: World, expect: Any, **how: Any) -> None:
    stager = world.store.stage_plan([TOPIC]).open(seed=1, default_topic=TOPIC)
    stager.write(pa.record_batch({"value": pa.array([b"row"]), "partition": pa.array([0], pa.int32())}))
    world.store.commit(stager.finish(), expect=expect, **how)


@pytest.mark.parametrize(
    "how", [{}, {"transactional_id": "job"}, {"transactional_id": "job", "sink": SinkCommit("query", "run", 0)}]
)
def test_a_commit_of_staged_segments_takes_expectations_too(world: World, how: dict[str, Any]) -> None:
    world.produce("other", topic=OTHER)
    with pytest.raises(ExpectationFailed, match="ends at offset 1"):
        commit(world, {(TOPIC, 0): 0, (OTHER, 0): 0}, **how)
    assert world.texts(TOPIC) == []
    commit(world, {(TOPIC, 0): 0, (OTHER, 0): 1}, **how)
    assert world.texts(TOPIC) == ["row"]


@pytest.mark.parametrize("how", [{}, {"transactional_id": "job"}])
def test_expectations_are_checked_without_segments_too(world: World, how: dict[str, Any]) -> None:
    world.store.commit([], expect={(OTHER, 0): 0}, **how)
    world.produce("other", topic=OTHER)
    with pytest.raises(ExpectationFailed):
        world.store.commit([], expect={(OTHER, 0): 0}, **how)


def test_a_refusal_without_a_sink_asks_nothing_more_of_the_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(transactional_id: str) -> None:
        raise OutcomeUnknown(f"{transactional_id} was asked for until the deadline")

    commit(world, {(TOPIC, 0): 0}, transactional_id="job")
    with monkeypatch.context() as patched:
        patched.setattr(world.store.log, "transaction", busy)
        with pytest.raises(ExpectationFailed):
            commit(world, {(TOPIC, 0): 0}, transactional_id="job")
    assert world.texts(TOPIC) == ["row"]


@pytest.mark.parametrize(
    ("expect", "kind"),
    [
        ([(TOPIC, 0, 1)], TypeError),
        ({TOPIC: 1}, TypeError),
        ({(TOPIC, 0, 0): 1}, TypeError),
        ({(TOPIC, 0): "1"}, TypeError),
        ({(TOPIC, -1): 1}, ConfigurationError),
        ({(TOPIC, 0): -1}, ConfigurationError),
        ({(TOPIC, 2): 0}, KafkaException),
        ({("nowhere", 0): 0}, KafkaException),
        ({("__consumer_offsets", 0): 0}, KafkaException),
    ],
)
def test_wrong_expectations_of_a_commit_are_refused(world: World, expect: Any, kind: type[Exception]) -> None:
    entry = world.entry
    with pytest.raises(kind):
        world.store.commit([], expect=expect)
    assert world.entry == entry


def counting(world: World, name: str, count: int, attempts: list[int]) -> Callable[[], None]:
    """Appends `count` events, each of which says how many it has read before it."""

    def run() -> None:
        producer = world.transactional(name)
        consumer = Consumer({"bootstrap.servers": world.uri, "group.id": name, "fetch.wait.max.ms": 1})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        seen, done = 0, 0
        while done < count:
            seen += len(messages(consumer, 0.002))
            (position,) = consumer.position([TopicPartition(TOPIC, 0)])
            producer.begin_transaction()
            producer.produce(TOPIC, str(seen), partition=0)
            producer.expect(TOPIC, 0, max(0, position.offset))
            try:
                producer.commit_transaction()
                done += 1
            except ExpectationFailed:
                producer.abort_transaction()
            attempts.append(1)
        consumer.close()

    return run


def test_concurrent_deciders_never_decide_by_old_events(world: World) -> None:
    """Each event's number is its place: two that were decided by the same events would have the same number."""
    attempts: list[int] = []
    threads = [threading.Thread(target=counting(world, f"decider-{n}", 15, attempts)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert world.texts(TOPIC) == [str(number) for number in range(60)]
    assert len(attempts) >= 60
