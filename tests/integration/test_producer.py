"""The producer on a real log in memory: what it stores, what it reports, and what it refuses."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from sparktxn._foundation.process.clock import time_left_s
from sparktxn._kafka.message import OFFSET_INVALID, OFFSET_STORED, ConsumerGroupMetadata, Message, TopicPartition
from sparktxn.errors import (
    CommandRefused,
    ConfigurationError,
    ErrorCode,
    KafkaError,
    KafkaException,
    OutcomeUnknown,
    ProducerFenced,
    StoreNotFound,
    StoreUnavailable,
    TransactionAborted,
)
from sparktxn.producer import Producer, TransactionPhase
from tests.world import World, error_of

Report = tuple[KafkaError | None, Message]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.store.create_topic(
        "typed", 2, schema=pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])
    )
    yield world
    world.close()


# --- transactions --------------------------------------------------------------------------------------------------


@pytest.mark.kafka("K32", "K117")
def test_a_commit_over_topics_and_partitions_is_one_entry(world: World) -> None:
    producer = world.transactional()
    before = world.entry()
    producer.begin_transaction()
    for number in range(60):
        producer.produce("six", f"v{number}", key=f"k{number}")
    producer.produce("t", "one", headers={"h": "x"}, timestamp=1_234)
    assert world.values("six") == []
    producer.commit_transaction()
    assert world.entry() == before + 1
    assert sorted(world.values("six")) == sorted(f"v{number}".encode() for number in range(60))
    (row,) = world.rows("t")
    assert (row["value"], row["timestamp"].timestamp()) == (b"one", 1.234)
    assert row["headers"] == [{"key": "h", "value": b"x"}]
    assert len(producer) == 0


@pytest.mark.kafka("K119")
def test_an_aborted_transaction_that_published_nothing_writes_nothing(world: World) -> None:
    producer = world.transactional()
    before = world.entry()
    producer.begin_transaction()
    producer.produce("t", "gone")
    producer.abort_transaction()
    assert world.entry() == before
    with producer.transaction():
        producer.produce("t", "kept")
    assert world.values("t", "read_uncommitted") == [b"kept"]


@pytest.mark.kafka("K119")
def test_an_empty_commit_writes_nothing(world: World) -> None:
    producer = world.transactional()
    before = world.entry()
    for _ in range(3):
        with producer.transaction():
            pass
    assert world.entry() == before


@pytest.mark.kafka("K72")
def test_flush_publishes_inside_a_transaction_and_abort_makes_it_an_aborted_range(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "early")
    assert producer.flush() == 0
    assert world.ends("t")[0] == (0, 1)
    assert world.values("t", "read_uncommitted") == [b"early"]
    producer.produce("t", "late")
    producer.abort_transaction()
    assert world.values("t", "read_uncommitted") == [b"early"]
    assert world.values("t") == []
    assert world.ends("t")[0] == (2, 2)
    with producer.transaction():
        producer.produce("t", "next")
    assert world.values("t") == [b"next"]


def test_flush_then_commit_keeps_the_order(world: World) -> None:
    producer = world.transactional()
    with producer.transaction():
        for number in range(30):
            producer.produce("t", str(number))
            if number % 10 == 9:
                assert producer.flush() == 0
    assert world.values("t") == [str(number).encode() for number in range(30)]


def test_with_publish_at_commit_flush_uploads_and_reports_come_with_the_commit(world: World) -> None:
    producer = world.transactional(transaction_publish="commit")
    told: list[Report] = []
    producer.begin_transaction()
    producer.produce("t", "x", callback=lambda error, message: told.append((error, message)))
    assert len(producer) == 1
    assert producer.flush() == 0
    assert world.ends("t")[0] == (0, 0)
    assert told == []
    producer.commit_transaction()
    assert [(error, message.offset()) for error, message in told] == [(None, 0)]


@pytest.mark.kafka("K104")
def test_offsets_take_effect_with_the_commit_alone(world: World) -> None:
    producer = world.transactional()
    log = world.store.log
    topic_id = log.topic("six").topic_id  # type: ignore[union-attr]
    group = ConsumerGroupMetadata("readers")
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition("six", 1, 5)], group)
    producer.abort_transaction()
    assert log.committed_offset("readers", topic_id, 1) is None
    with producer.transaction():
        producer.send_offsets_to_transaction([TopicPartition("six", 1, 5, "note")], group)
        producer.send_offsets_to_transaction([TopicPartition("six", 1, 7), TopicPartition("six", 2, 1)], group)
    found = [log.committed_offset("readers", topic_id, partition) for partition in (1, 2)]
    assert [offset.offset for offset in found if offset is not None] == [7, 1]


def test_logical_offsets_are_left_out_and_alone_are_nothing(world: World) -> None:
    producer = world.transactional()
    before = world.entry()
    with producer.transaction():
        positions = [TopicPartition("t", 0, OFFSET_INVALID), TopicPartition("t", 0, OFFSET_STORED)]
        for _ in range(2):
            producer.send_offsets_to_transaction(positions, ConsumerGroupMetadata("readers"))
    assert world.entry() == before


@pytest.mark.kafka("K114")
def test_offsets_of_an_unknown_topic_must_abort(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    error = error_of(
        lambda: producer.send_offsets_to_transaction([TopicPartition("nope", 0, 1)], ConsumerGroupMetadata("g")),
        TransactionAborted,
    )
    assert error.txn_requires_abort()
    assert error_of(producer.commit_transaction) == error
    producer.abort_transaction()
    assert producer.transaction_state is TransactionPhase.READY


def test_the_positions_of_a_consumer_are_committed_with_the_block(world: World) -> None:
    class Consumer:
        def assignment(self) -> list[TopicPartition]:
            return [TopicPartition("t", 0)]

        def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
            return [TopicPartition(partition.topic, partition.partition, 3) for partition in partitions]

        def consumer_group_metadata(self) -> ConsumerGroupMetadata:
            return ConsumerGroupMetadata("pipeline")

    producer = world.transactional()
    with producer.transaction(offsets_from=Consumer()):
        producer.produce("t", "x")
    log = world.store.log
    offset = log.committed_offset("pipeline", log.topic("t").topic_id, 0)  # type: ignore[union-attr]
    assert offset is not None
    assert offset.offset == 3


# --- fencing, states, resuming -------------------------------------------------------------------------------------


@pytest.mark.kafka("K115", "K134")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_fenced_producer_commits_nothing_and_can_only_be_closed(world: World, flushed: bool) -> None:
    old = world.transactional()
    old.begin_transaction()
    old.produce("t", "old")
    if flushed:
        old.flush()
    new = world.transactional()
    assert (new.producer_id, new.producer_epoch > old.producer_epoch) == (old.producer_id, True)
    error = error_of(old.commit_transaction, ProducerFenced)
    assert error == KafkaError._FENCED
    assert error.fatal()
    for call in (old.begin_transaction, old.abort_transaction, lambda: old.produce("t", "x")):
        assert error_of(call) == KafkaError._FENCED
    with new.transaction():
        new.produce("t", "new")
    assert world.values("t") == [b"new"]


@pytest.mark.kafka("K116", "K120", "K134")
def test_a_fenced_flush_is_abortable_and_the_abort_reveals_it(world: World) -> None:
    old = world.transactional()
    world.transactional()
    old.begin_transaction()
    old.produce("t", "old")
    old.flush()
    assert old.transaction_state in (TransactionPhase.ABORTABLE_ERROR, TransactionPhase.FATAL_ERROR)
    with pytest.raises(KafkaException):
        old.abort_transaction()
    assert old.transaction_state is TransactionPhase.FATAL_ERROR


def test_error_cb_is_told_of_a_fatal_error(world: World) -> None:
    told: list[KafkaError] = []
    old = Producer({"bootstrap.servers": world.uri, "transactional.id": "orders", "error_cb": told.append})
    old.init_transactions()
    world.transactional()
    with pytest.raises(ProducerFenced), old.transaction():
        old.produce("t", "x")
    old.poll(0)
    assert told == [KafkaError._FENCED]
    old.close()


@pytest.mark.kafka("K07")
def test_init_aborts_what_a_dead_producer_left_open(world: World) -> None:
    dead = world.transactional()
    dead.begin_transaction()
    dead.produce("t", "half")
    dead.flush()
    assert world.ends("t")[0] == (0, 1)
    world.transactional()
    assert world.ends("t")[0] == (2, 2)
    assert world.values("t") == []


@pytest.mark.kafka("K113")
def test_calls_out_of_order_are_a_state_error(world: World) -> None:
    producer = world.producer(transactional_id="x")
    for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
        assert error_of(call) == KafkaError._STATE
    assert error_of(lambda: producer.produce("t", "x")) == KafkaError._STATE
    producer.init_transactions()
    assert error_of(producer.init_transactions) == KafkaError._STATE
    assert error_of(lambda: producer.produce("t", "x")) == KafkaError._STATE
    assert error_of(producer.commit_transaction) == KafkaError._STATE
    producer.begin_transaction()
    assert error_of(producer.begin_transaction) == KafkaError._STATE


def test_without_a_transactional_id_transactions_are_not_configured(world: World) -> None:
    assert error_of(world.producer().init_transactions) == KafkaError._NOT_CONFIGURED


def test_a_store_that_does_not_exist_is_named() -> None:
    producer = Producer({"bootstrap.servers": "memory://nowhere-at-all", "transactional.id": "x"})
    with pytest.raises(StoreNotFound, match="nowhere-at-all"):
        producer.init_transactions()
    producer.close()


@pytest.mark.kafka("K04", "K120")
def test_a_transaction_timeout_above_the_stores_is_fatal(world: World) -> None:
    producer = world.producer(transactional_id="x", transaction_timeout_ms=900_001)
    error = error_of(producer.init_transactions)
    assert error == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert error.fatal()


@pytest.mark.kafka("K33", "K118")
def test_a_commit_whose_answer_was_lost_is_resumed_by_the_same_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "once")
    with world.losing_answers() as sent:
        error = error_of(producer.commit_transaction)
        assert error == KafkaError._TIMED_OUT
        assert error.retriable()
        assert error_of(producer.abort_transaction) == KafkaError._CONFLICT
        assert error_of(producer.begin_transaction) == KafkaError._CONFLICT
        producer.commit_transaction()
    assert len(sent) == 1
    assert world.values("t") == [b"once"]
    with producer.transaction():
        producer.produce("t", "twice")
    assert world.values("t") == [b"once", b"twice"]


@pytest.mark.kafka("K33", "K118")
def test_an_abort_whose_answer_was_lost_is_resumed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "x")
    producer.flush()
    with world.losing_answers() as sent:
        assert error_of(producer.abort_transaction).retriable()
        assert error_of(producer.commit_transaction) == KafkaError._CONFLICT
        producer.abort_transaction()
    assert len(sent) == 1
    assert world.values("t") == []
    assert world.ends("t")[0] == (2, 2)


@pytest.mark.kafka("K57")
@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_a_flush_whose_answer_was_lost_is_not_sent_again(
    world: World, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "x")
    with world.losing_answers():
        producer.flush()
        getattr(producer, end)()
    assert world.values("t", "read_uncommitted") == [b"x"]
    assert world.values("t") == ([b"x"] if end == "commit_transaction" else [])


@pytest.mark.kafka("K12", "K118")
def test_init_whose_answer_was_lost_bumps_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = world.producer(transactional_id="x")
    log = world.store.log
    submit = log.submit
    failed: list[Any] = []

    def losing(commands: Any) -> Any:
        results = submit(commands)
        if not failed:
            failed.append(commands)
            raise OutcomeUnknown("lost")
        return results

    monkeypatch.setattr(log, "submit", losing)
    assert error_of(producer.init_transactions).retriable()
    producer.init_transactions()
    assert producer.producer_epoch == 0


@pytest.mark.kafka("K117")
def test_an_upload_that_failed_is_tried_again_by_the_same_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from sparktxn._rows.stage import pendingsegment

    upload = vars(pendingsegment)["upload_segment"]
    failed: list[int] = []

    def failing(*arguments: Any, **settings: Any) -> Any:
        if not failed:
            failed.append(1)
            raise StoreUnavailable("no answer")
        return upload(*arguments, **settings)

    monkeypatch.setattr(pendingsegment, "upload_segment", failing)
    producer = world.transactional(store_append_inline_bytes=0)
    producer.begin_transaction()
    producer.produce("t", "x")
    assert error_of(producer.commit_transaction).retriable()
    producer.commit_transaction()
    assert world.values("t") == [b"x"]


@pytest.mark.kafka("K114", "K116", "K136")
@pytest.mark.parametrize("code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_after_an_abortable_refusal_the_next_transaction_works(
    world: World, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    class Refusing:
        def wait(self) -> Any:
            raise CommandRefused(code, "no")

    told: list[Report] = []
    producer = world.transactional()
    epoch = producer.producer_epoch
    producer.begin_transaction()
    producer.produce("t", "lost", callback=lambda error, message: told.append((error, message)))
    with monkeypatch.context() as patch:
        patch.setattr(world.store.log, "send", lambda *given: Refusing())
        error = error_of(producer.commit_transaction, TransactionAborted)
    assert error.txn_requires_abort()
    assert [report[0] for report in told] == [code]
    assert error_of(lambda: producer.produce("t", "x")) == code
    assert error_of(producer.commit_transaction) == code
    producer.abort_transaction()
    assert (producer.producer_epoch > epoch) == (code is ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    with producer.transaction():
        producer.produce("t", "kept")
    assert world.values("t") == [b"kept"]


def test_two_threads_in_one_call_are_told_apart(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "x")
    waiting, go = threading.Event(), threading.Event()
    send = world.store.log.send

    def holding(*given: Any) -> Any:
        waiting.set()
        go.wait(60)
        return send(*given)

    monkeypatch.setattr(world.store.log, "send", holding)
    thread = threading.Thread(target=producer.commit_transaction)
    thread.start()
    assert waiting.wait(60)
    assert error_of(producer.commit_transaction) == KafkaError._PREV_IN_PROGRESS
    assert error_of(producer.abort_transaction) == KafkaError._CONFLICT
    go.set()
    thread.join()
    assert world.values("t") == [b"x"]


# --- reports and waiting -------------------------------------------------------------------------------------------


def test_reports_carry_what_was_produced_and_come_only_when_asked(world: World) -> None:
    told: list[tuple[int, Report]] = []
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce(
        "t",
        "v",
        "k",
        timestamp=77,
        headers=[("h", "1")],
        on_delivery=lambda e, m: told.append((threading.get_ident(), (e, m))),
    )
    assert told == []
    producer.commit_transaction()
    ((thread, (error, message)),) = told
    assert thread == threading.get_ident()
    assert error is None
    assert (message.topic(), message.partition(), message.offset()) == ("t", 0, 0)
    assert (message.key(), message.value(), message.headers()) == (b"k", b"v", [("h", b"1")])
    assert message.timestamp() == (1, 77)
    assert (message.latency() or 0) >= 0


def test_the_configured_callback_serves_records_without_their_own(world: World) -> None:
    own: list[Report] = []
    default: list[Report] = []
    producer = Producer({"bootstrap.servers": world.uri, "on_delivery": lambda e, m: default.append((e, m))})
    producer.produce("t", "a")
    producer.produce("t", "b", callback=lambda e, m: own.append((e, m)))
    assert producer.flush() == 0
    producer.close()
    assert [message.value() for _, message in default] == [b"a"]
    assert [message.value() for _, message in own] == [b"b"]


def test_an_abort_purges_with_reports(world: World) -> None:
    told: list[Report] = []
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "x", callback=lambda error, message: told.append((error, message)))
    producer.abort_transaction()
    assert [(error, message.value()) for error, message in told] == [(KafkaError._PURGE_QUEUE, b"x")]
    assert len(producer) == 0


@pytest.mark.parametrize("publish", ["flush", "commit"])
@pytest.mark.parametrize("with_callback", [False, True])
def test_a_loop_that_polls_until_nothing_waits_ends(world: World, publish: str, with_callback: bool) -> None:
    told: list[Report] = []
    producer = world.transactional(transaction_publish=publish)
    producer.begin_transaction()
    for number in range(10):
        callback = (lambda error, message: told.append((error, message))) if with_callback else None
        producer.produce("six", str(number), key=str(number), callback=callback)
    rounds = 0
    while len(producer):
        producer.poll(0.1)
        rounds += 1
        assert rounds < 20
    assert len(told) == (10 if with_callback and publish == "flush" else 0)
    producer.commit_transaction()
    assert len(told) == (10 if with_callback else 0)


def test_poll_without_time_does_not_publish(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "x")
    assert producer.poll(0) == 0
    assert world.ends("t")[0] == (0, 0)


def test_outside_transactions_the_sender_stores_and_reports(world: World) -> None:
    told: list[Report] = []
    producer = world.producer(linger_ms=1)
    for number in range(2_000):
        producer.produce("six", str(number), key=str(number), callback=lambda e, m: told.append((e, m)))
    while len(producer):
        producer.poll(0.1)
    assert len(told) == 2_000
    assert {error for error, _ in told} == {None}
    places = {(message.partition(), message.offset()): message.value() for _, message in told}
    assert places == {(row["partition"], row["offset"]): row["value"] for row in world.rows("six")}


@pytest.mark.kafka("K57")
def test_the_sender_stores_each_record_once_though_an_answer_was_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = world.producer(linger_ms=1)
    with world.losing_answers():
        producer.produce("t", "x")
        assert producer.flush(30) == 0
    assert world.values("t") == [b"x"]


def test_a_deleted_topic_fails_its_own_records_only(world: World) -> None:
    from sparktxn._engine.format.commands import DeleteTopic

    world.store.create_topic("doomed")
    told: dict[bytes | None, KafkaError | None] = {}
    producer = world.producer(linger_ms=60_000)
    producer.produce("doomed", "a", callback=lambda e, m: told.update({m.value(): e}))
    producer.produce("t", "b", callback=lambda e, m: told.update({m.value(): e}))
    log = world.store.log
    doomed = log.topic("doomed")
    assert doomed is not None
    log.submit([DeleteTopic("r", "doomed", doomed.topic_id)])
    assert producer.flush(30) == 0
    assert told[b"b"] is None
    assert told[b"a"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(lambda: producer.produce("doomed", "c")) == KafkaError._UNKNOWN_TOPIC


def test_purge_drops_what_waits_and_reports_it(world: World) -> None:
    told: list[Report] = []
    producer = world.producer(linger_ms=60_000)
    producer.produce("t", "x", callback=lambda e, m: told.append((e, m)))
    producer.purge()
    producer.poll(0)
    assert [error for error, _ in told] == [KafkaError._PURGE_QUEUE]
    assert producer.flush() == 0
    assert world.values("t") == []


# --- records -------------------------------------------------------------------------------------------------------


def test_an_unknown_topic_is_refused_at_once_and_named(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    error = error_of(lambda: producer.produce("sixx", "x"))
    assert error == KafkaError._UNKNOWN_TOPIC
    assert all(word in error.str() for word in ("'sixx'", "'six'", "AdminClient.create_topics"))
    producer.produce("six", "y")
    producer.commit_transaction()
    assert world.values("six") == [b"y"]


@pytest.mark.parametrize("partition", [6, 1_000])
def test_a_partition_out_of_range_is_refused(world: World, partition: int) -> None:
    error = error_of(lambda: world.producer().produce("six", "x", partition=partition))
    assert error == KafkaError._UNKNOWN_PARTITION
    assert "0 to 5" in error.str()


def test_partitions_added_since_are_found(world: World) -> None:
    from sparktxn._engine.format.commands import CreatePartitions

    producer = world.producer()
    producer.produce("t", "a")
    log = world.store.log
    topic = log.topic("t")
    assert topic is not None
    log.submit([CreatePartitions("r", "t", topic.topic_id, 3)])
    producer.produce("t", "b", partition=2)
    assert producer.flush() == 0
    assert sorted((row["partition"], row["value"]) for row in world.rows("t")) == [(0, b"a"), (2, b"b")]


def test_a_record_that_is_too_large_names_the_limits(world: World) -> None:
    error = error_of(lambda: world.producer(message_max_bytes=1_000).produce("t", b"x" * 1_001))
    assert error == ErrorCode.MESSAGE_TOO_LARGE
    assert "message.max.bytes" in error.str()


@pytest.mark.parametrize(("topic", "value", "key"), [(5, "v", None), ("t", 5, None), ("t", "v", 1.5)])
def test_wrong_types_are_refused(world: World, topic: Any, value: Any, key: Any) -> None:
    with pytest.raises(TypeError, match="expected"):
        world.producer().produce(topic, value, key)


def test_keys_choose_partitions_as_librdkafka_does(world: World) -> None:
    import zlib

    producer = world.producer()
    keys = [f"key-{number}".encode() for number in range(50)]
    for key in keys:
        producer.produce("six", key, key)
    assert producer.flush() == 0
    assert all(row["partition"] == zlib.crc32(row["key"]) % 6 for row in world.rows("six"))


def test_a_full_queue_is_a_buffer_error_until_poll_publishes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from sparktxn._rows.stage import buffers

    monkeypatch.setattr(buffers, "_ROOM_WAIT_S", 0.0)
    producer = world.transactional(queue_buffering_max_messages=10)
    producer.begin_transaction()
    told: list[Report] = []

    def fill() -> None:
        for number in range(30):
            producer.produce("t", str(number), callback=lambda e, m: told.append((e, m)))

    with pytest.raises(BufferError, match=r"queue\.buffering\.max\.messages"):
        fill()
    assert 8 <= len(producer) <= 10
    while len(producer):
        producer.poll(0)
    producer.produce("t", "again")
    producer.commit_transaction()
    assert world.values("t")[-1] == b"again"
    assert len(world.values("t")) == len(told) + 1


def test_full_segments_leave_while_producing_and_are_named_in_order(world: World) -> None:
    world.store.create_topic("small", 1, settings={"segment.rows": "100"})
    producer = world.transactional()
    producer.begin_transaction()
    for number in range(1_050):
        producer.produce("small", str(number))
    assert world.ends("small")[0] == (0, 0)
    producer.commit_transaction()
    assert world.values("small") == [str(number).encode() for number in range(1_050)]
    (partition,) = world.store.view(["small"]).partitions.values()
    assert [segment.record_count for segment in partition.segments] == [100] * 10 + [50]
    sequences = [segment.base_sequence for segment in partition.segments]
    assert sequences == list(range(0, 1_050, 100))


def test_records_of_several_threads_are_all_there(world: World) -> None:
    producer = world.producer(linger_ms=1)

    def produce(worker: int) -> None:
        for number in range(3_000):
            producer.produce("six", f"{worker}-{number}", key=str(number))

    threads = [threading.Thread(target=produce, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert producer.flush(60) == 0
    values = world.values("six")
    assert len(values) == 12_000
    assert len(set(values)) == 12_000


def test_produce_batch_counts_and_marks_what_was_refused(world: World) -> None:
    producer = world.producer()
    messages: list[dict[str, Any]] = [{"value": "a"}, {"value": "b", "partition": 9}, {"value": "c", "key": "k"}]
    assert producer.produce_batch("six", messages) == 2
    assert "_error" not in messages[0]
    assert messages[1]["_error"] == KafkaError._UNKNOWN_PARTITION
    assert producer.flush() == 0
    assert sorted(world.values("six")) == [b"a", b"c"]


# --- columns -------------------------------------------------------------------------------------------------------


def test_columns_of_kafkas_record_go_where_their_keys_say(world: World) -> None:
    import zlib

    producer = world.transactional()
    table = pa.table({"key": [f"k{number}" for number in range(100)], "value": [f"v{number}" for number in range(100)]})
    with producer.transaction():
        producer.produce_arrow("six", table)
        producer.produce_arrow("six", table.to_batches()[0].slice(0, 1))
    rows = world.rows("six")
    assert len(rows) == 101
    assert all(row["partition"] == zlib.crc32(row["key"]) % 6 for row in rows)


def test_rows_and_columns_keep_their_order(world: World) -> None:
    producer = world.transactional()
    with producer.transaction():
        producer.produce("t", "1")
        producer.produce_arrow("t", pa.table({"value": ["2", "3"]}))
        producer.produce("t", "4")
        producer.produce_arrow("t", pa.table({"value": ["5"]}))
    assert world.values("t") == [b"1", b"2", b"3", b"4", b"5"]


def test_the_partition_column_is_obeyed_and_checked(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce_arrow("six", pa.table({"value": ["a", "b", "c"], "partition": [5, 0, 5]}))
    error = error_of(lambda: producer.produce_arrow("six", pa.table({"value": ["a"], "partition": [6]})))
    assert error == KafkaError._UNKNOWN_PARTITION
    producer.commit_transaction()
    assert [(row["partition"], row["value"]) for row in world.rows("six")] == [(0, b"b"), (5, b"a"), (5, b"c")]


def test_a_typed_topic_takes_columns_and_no_records(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    with pytest.raises(ConfigurationError, match="produce_arrow"):
        producer.produce("typed", "x")
    producer.produce_arrow("typed", pa.table({"n": [1, 2], "s": ["a", None]}), partition=1)
    producer.produce_arrow("typed", pa.table({"n": pa.array([3], pa.int32())}), partition=1)
    producer.commit_transaction()
    assert [(row["n"], row["s"]) for row in world.rows("typed")] == [(1, "a"), (2, None), (3, None)]


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"n": [1], "x": [1]}, "'x'"),
        ({"s": ["a"]}, "'n'"),
        ({"n": ["a"]}, "'n'"),
        ({"n": [None]}, "'n'"),
    ],
)
def test_wrong_columns_are_named(world: World, columns: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        world.producer().produce_arrow("typed", pa.table(columns))


# --- the handle ----------------------------------------------------------------------------------------------------


def test_a_closed_producer_refuses_and_closing_twice_is_harmless(world: World) -> None:
    producer = world.producer()
    producer.produce("t", "x")
    producer.close()
    producer.close()
    assert world.values("t") == [b"x"]
    for call in (lambda: producer.produce("t", "y"), lambda: producer.poll(0), producer.flush, producer.list_topics):
        with pytest.raises(RuntimeError, match="closed"):
            call()


@pytest.mark.parametrize("timeout", [-1, 7, float("inf")])
@pytest.mark.parametrize(("is_transactional", "own_s"), [(False, 300), (True, 30)])
def test_one_deadline_bounds_a_close(
    world: World, monkeypatch: pytest.MonkeyPatch, is_transactional: bool, own_s: float, timeout: float
) -> None:
    producer = world.transactional() if is_transactional else world.producer()
    governing: list[float | None] = []
    monkeypatch.setattr(producer, "_finish", lambda: governing.append(time_left_s()))
    producer.close(timeout)
    (left_s,) = governing
    expected = own_s if timeout < 0 else None if timeout == float("inf") else timeout
    assert left_s == (None if expected is None else pytest.approx(expected, abs=5))


def test_leaving_the_block_of_a_producer_aborts_an_open_transaction(world: World) -> None:
    with world.transactional() as producer:
        producer.begin_transaction()
        producer.produce("t", "x")
        producer.flush()
        assert producer
    assert world.ends("t")[0] == (2, 2)
    assert world.values("t") == []


def test_closing_a_fenced_producer_is_quiet(world: World, caplog: pytest.LogCaptureFixture) -> None:
    old = world.transactional()
    old.begin_transaction()
    old.produce("t", "x")
    old.flush()
    world.transactional()
    old.close()
    assert "left its transaction to the next init" in caplog.text


def test_a_failed_block_aborts_and_the_next_one_works(world: World) -> None:
    producer = world.transactional()

    def fail() -> None:
        with producer.transaction():
            producer.produce("t", "x")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert producer.transaction_state is TransactionPhase.READY
    with producer.transaction():
        producer.produce("t", "y")
    assert world.values("t") == [b"y"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_producer_made_before_a_fork_refuses_in_the_child(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "x")
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        refused = 0
        for call in (lambda: producer.produce("t", "y"), lambda: producer.poll(0), producer.commit_transaction):
            try:
                call()
            except RuntimeError as error:
                refused += "fork" in str(error)
        os._exit(0 if refused == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    producer.commit_transaction()
    assert world.values("t") == [b"x"]


def test_list_topics_tells_partitions_and_errors(world: World) -> None:
    producer = world.producer()
    found = producer.list_topics().topics
    assert set(found) == {"t", "six", "typed"}
    assert list(found["six"].partitions) == [0, 1, 2, 3, 4, 5]
    assert producer.list_topics("nope").topics["nope"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_settings_may_be_keywords(world: World) -> None:
    with Producer(bootstrap_servers=world.uri, transactional_id="kw", on_delivery=None) as producer:
        producer.init_transactions()
        assert producer.transaction_state is TransactionPhase.READY
