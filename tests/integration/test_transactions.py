"""Kafka's TransactionsTest: producers, consumers and a store, end to end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from sparktxn._engine.format.commands import EndTxn, ExpireProducers, ExpireTransactionalId
from sparktxn._kafka.message import OFFSET_END, ConsumerGroupMetadata, IsolationLevel, TopicPartition
from sparktxn.admin import AdminClient, OffsetSpec
from sparktxn.errors import ErrorCode, KafkaError, ProducerFenced, TransactionAborted
from sparktxn.producer import Producer, TransactionPhase
from tests.world import World, error_of, flags, messages, position

TOPICS = ("topic1", "topic2")
FOREVER = 30.0


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    for topic in TOPICS:
        world.store.create_topic(topic, 4)
    yield world
    world.close()


def values(world: World, *topics: str, **settings: str) -> list[bytes]:
    consumer = world.consumer(*topics, **settings)
    return sorted(message.value() or b"" for message in messages(consumer))


@pytest.mark.kafka("K133")
@pytest.mark.parametrize("flushed", [False, True])
def test_basic_transactions(world: World, flushed: bool) -> None:
    producer = world.transactional()
    for commits, sent in ((False, (("topic2", "2"), ("topic1", "4"))), (True, (("topic1", "1"), ("topic2", "3")))):
        producer.begin_transaction()
        for topic, value in sent:
            producer.produce(topic, value, key=value)
        if flushed:
            producer.flush()
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    assert values(world, *TOPICS) == [b"1", b"3"]
    uncommitted = values(world, *TOPICS, isolation_level="read_uncommitted", group_id="all")
    assert uncommitted == ([b"1", b"2", b"3", b"4"] if flushed else [b"1", b"3"]), (
        "what was not flushed was not written"
    )


@pytest.mark.kafka("K72", "K73", "K83")
def test_undecided_data_is_not_seen(world: World) -> None:
    first, second = world.transactional(), world.transactional("other")
    first.begin_transaction()
    second.begin_transaction()
    for producer, value, time in ((second, "1", 1_000), (first, "a", 2_000), (first, "b", 3_000), (second, "2", 4_000)):
        for topic in TOPICS:
            producer.produce(topic, value, partition=0, timestamp=time)
        producer.flush()
    places = [TopicPartition(topic, 0) for topic in TOPICS]
    committed, every = world.consumer(), world.consumer(isolation_level="read_uncommitted", group_id="all")
    for consumer in (committed, every):
        consumer.assign([TopicPartition(topic, 0, 0) for topic in TOPICS])
    assert messages(committed) == []
    assert len(messages(every)) == 8
    second.commit_transaction()
    assert sorted((m.topic(), m.offset(), m.value()) for m in messages(committed)) == [
        ("topic1", 0, b"1"),
        ("topic2", 0, b"1"),
    ]
    assert [position(committed, topic) for topic in TOPICS] == [1, 1]
    for place in places:
        assert committed.get_watermark_offsets(place) == (0, 1)
        assert every.get_watermark_offsets(place) == (0, 5)
        committed.seek(TopicPartition(place.topic, 0, OFFSET_END))
    assert messages(committed) == []
    assert [position(committed, topic) for topic in TOPICS] == [1, 1]
    asked = [TopicPartition(topic, 0, 4_000) for topic in TOPICS]
    assert [found.offset for found in committed.offsets_for_times(asked, 5)] == [OFFSET_END] * 2
    assert [found.offset for found in every.offsets_for_times(asked, 5)] == [3, 3]
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        for level, end in ((IsolationLevel.READ_COMMITTED, 1), (IsolationLevel.READ_UNCOMMITTED, 5)):
            latest = admin.list_offsets({place: OffsetSpec.latest() for place in places}, isolation_level=level)
            assert [future.result().offset for future in latest.values()] == [end, end]
    first.abort_transaction()
    assert sorted((m.topic(), m.offset(), m.value()) for m in messages(committed)) == [
        ("topic1", 3, b"2"),
        ("topic2", 3, b"2"),
    ]
    assert [position(committed, topic) for topic in TOPICS] == [6, 6]


@pytest.mark.kafka("K84")
@pytest.mark.parametrize("commits_first", [False, True])
def test_a_fetch_that_waited_for_the_ends_leaves_out_what_was_aborted(world: World, commits_first: bool) -> None:
    first, second = world.transactional(), world.transactional("other")
    first.begin_transaction()
    second.begin_transaction()
    for producer, some in ((second, ["1"]), (first, ["a", "b"]), (second, ["2"])):
        for value in some:
            producer.produce("t", value)
        producer.flush()
    consumer = world.consumer("t", fetch_min_bytes="100000", fetch_wait_max_ms=100)
    assert consumer.poll(0.01) is None
    found: list[tuple[int | None, bytes | None]] = []
    waiting = threading.Thread(
        target=lambda: found.extend((m.offset(), m.value()) for m in consumer.consume(2, FOREVER))
    )
    waiting.start()
    ends: list[Callable[[], None]] = [first.abort_transaction, second.commit_transaction]
    for end in reversed(ends) if commits_first else ends:
        end()
    waiting.join()
    assert found == [(0, b"1"), (3, b"2")]
    assert messages(consumer) == []
    assert position(consumer) == 6


@pytest.mark.kafka("K104", "K108", "K112")
def test_a_loop_that_aborts_every_other_time_copies_each_record_once(world: World) -> None:
    """Kafka's testSendOffsetsWithGroupMetadata."""
    with Producer({"bootstrap.servers": world.uri}) as seed:
        for number in range(500):
            seed.produce("topic1", str(number), partition=number % 4)
    producer = world.transactional()
    consumer = world.consumer("topic1", group_id="copy", enable_auto_commit=False)
    done, rounds = 0, 0
    while done < 500:
        batch = consumer.consume(min(40, 500 - done), FOREVER)
        rounds += 1
        producer.begin_transaction()
        for message in batch:
            producer.produce("topic2", message.value(), key=message.value())
        if rounds % 3:
            producer.flush()
        assigned = consumer.assignment()
        producer.send_offsets_to_transaction(consumer.position(assigned), consumer.consumer_group_metadata())
        if rounds % 2:
            producer.commit_transaction()
            done += len(batch)
        else:
            producer.abort_transaction()
            for place in consumer.committed(assigned, FOREVER):
                consumer.seek(place if place.offset >= 0 else TopicPartition(place.topic, place.partition, 0))
    copied = [int(value) for value in world.values("topic2")]
    assert sorted(copied) == list(range(500))
    assert rounds > 20


@pytest.mark.kafka("K112")
def test_metadata_of_offsets_comes_back_right_after_the_commit(world: World) -> None:
    """Kafka's test initialises a second producer first, for the markers; here the commit's return is enough."""
    producer = world.transactional()
    with producer.transaction():
        offset = TopicPartition("topic1", 0, 110, "some metadata", 15)
        producer.send_offsets_to_transaction([offset], ConsumerGroupMetadata("group"))
    (found,) = world.consumer(group_id="group").committed([TopicPartition("topic1", 0)], 5)
    assert (found.offset, found.metadata, found.leader_epoch) == (110, "some metadata", 15)


@pytest.mark.kafka("K106", "K120")
@pytest.mark.parametrize(
    ("group", "code"),
    [
        (ConsumerGroupMetadata("group", generation_id=3), ErrorCode.ILLEGAL_GENERATION),
        (ConsumerGroupMetadata("group", member_id="gone"), ErrorCode.UNKNOWN_MEMBER_ID),
        (ConsumerGroupMetadata("group", 3, "gone"), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_offsets_of_a_stale_member_abort_the_transaction_and_the_producer_lives(
    world: World, group: ConsumerGroupMetadata, code: ErrorCode
) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "lost")
    producer.send_offsets_to_transaction([TopicPartition("topic1", 0, 5)], group)
    error = error_of(producer.commit_transaction, TransactionAborted)
    assert (error.code(), flags(error)) == (code, (False, True, False))
    producer.abort_transaction()
    with producer.transaction():
        producer.produce("t", "kept")
        producer.send_offsets_to_transaction([TopicPartition("topic1", 0, 5)], ConsumerGroupMetadata("group"))
    assert world.values("t") == [b"kept"]
    assert world.committed("group", "topic1") == 5


@pytest.mark.kafka("K111")
def test_long_metadata_fails_the_transaction_and_none_of_its_offsets_count(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    offsets = [TopicPartition("topic1", 0, 1), TopicPartition("topic1", 1, 1, "x" * 5_000)]
    producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("group"))
    assert error_of(producer.commit_transaction, TransactionAborted) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    producer.abort_transaction()
    assert world.committed("group", "topic1") is None


# --- fencing ---------------------------------------------------------------------------------------------------------


def send_to_both(producer: Producer, *some: str) -> None:
    for topic, value in zip(TOPICS, some, strict=True):
        producer.produce(topic, value, key=value)


def commit_newer(world: World, newer: Producer) -> None:
    newer.commit_transaction()
    assert values(world, *TOPICS) == [b"new1", b"new2"]


@pytest.fixture
def older(world: World) -> Producer:
    """It has written to both topics when a newer one takes its transactional id."""
    producer = world.transactional()
    producer.begin_transaction()
    send_to_both(producer, "old1", "old2")
    producer.flush()
    return producer


@pytest.fixture
def newer(world: World, older: Producer) -> Producer:
    producer = world.transactional()
    producer.begin_transaction()
    send_to_both(producer, "new1", "new2")
    producer.flush()
    return producer


@pytest.mark.kafka("K134")
def test_fencing_on_commit(world: World, older: Producer, newer: Producer) -> None:
    error = error_of(older.commit_transaction, ProducerFenced)
    assert (error, error.fatal()) == (KafkaError._FENCED, True)
    assert "newer producer" in error.str()
    commit_newer(world, newer)


@pytest.mark.kafka("K110", "K134")
def test_fencing_on_send_offsets(world: World, older: Producer, newer: Producer) -> None:
    """Offsets travel with the next flush or the commit: here it is the commit that gets the error."""
    older.send_offsets_to_transaction([TopicPartition("topic1", 0, 110)], ConsumerGroupMetadata("group"))
    assert error_of(older.commit_transaction, ProducerFenced) == KafkaError._FENCED
    commit_newer(world, newer)
    assert world.committed("group", "topic1") is None


@pytest.mark.kafka("K59", "K116", "K134")
def test_fencing_on_send(world: World, older: Producer, newer: Producer) -> None:
    told: list[KafkaError | None] = []
    older.produce("topic1", "late", callback=lambda error, message: told.append(error))
    older.flush()
    assert told == [KafkaError._FENCED]
    for call in (older.commit_transaction, older.abort_transaction):
        error = error_of(call, ProducerFenced)
        assert (error, flags(error)) == (KafkaError._FENCED, (True, False, False))
    assert older.transaction_state is TransactionPhase.FATAL_ERROR
    commit_newer(world, newer)


@pytest.mark.kafka("K20", "K134")
def test_fencing_on_add_partitions(world: World) -> None:
    """Between its transactions it has nothing open; its next one cannot add anything."""
    older = world.transactional()
    older.begin_transaction()
    send_to_both(older, "old1", "old2")
    older.abort_transaction()
    newer = world.transactional()
    newer.begin_transaction()
    send_to_both(newer, "new1", "new2")
    newer.flush()
    older.begin_transaction()
    older.produce("topic1", "late")
    assert error_of(older.commit_transaction, ProducerFenced) == KafkaError._FENCED
    commit_newer(world, newer)


@pytest.mark.kafka("K44", "K134")
@pytest.mark.parametrize("call", ["commit", "flush", "abort"])
def test_fencing_on_a_time_out(world: World, older: Producer, call: str) -> None:
    """A sweep ends the transaction; its producer gets the reason at its next call, whichever that is."""
    names = ("orders", older.producer_id, older.producer_epoch, 1)
    world.submit(EndTxn(*names, committed=False, timed_out_after_ms=60_000))
    if call == "flush":
        older.produce("topic1", "late")
        older.flush()
    error = error_of(older.commit_transaction if call == "commit" else older.abort_transaction, ProducerFenced)
    assert (error, error.fatal()) == (KafkaError._FENCED, True)
    assert "transaction timed out after 60000 ms" in error.str()
    assert values(world, *TOPICS) == []
    assert all(stable == end for topic in TOPICS for stable, end in world.ends(topic).values())
    with world.transactional().transaction() as next_one:
        next_one.produce("topic1", "next")
    assert values(world, *TOPICS, group_id="again") == [b"next"]


# --- expiry ----------------------------------------------------------------------------------------------------------


def expire(world: World) -> None:
    world.store.log.refresh()
    known = world.store.log.transaction("orders")
    assert known is not None
    names = (known.transactional_id, known.producer_id, known.producer_epoch, known.transaction)
    world.submit(ExpireTransactionalId(*names))


@pytest.mark.kafka("K48", "K116", "K136")
@pytest.mark.parametrize("call", ["commit", "flush"])
@pytest.mark.parametrize("transactions", [0, 3])
def test_a_producer_whose_transactional_id_has_expired_aborts_and_goes_on(
    world: World, call: str, transactions: int
) -> None:
    producer = world.transactional()
    for number in range(transactions):
        with producer.transaction():
            producer.produce("t", str(number))
    before = producer.producer_id
    expire(world)
    producer.begin_transaction()
    producer.produce("t", "lost")
    if call == "flush":
        producer.flush()
    error = error_of(producer.commit_transaction, TransactionAborted)
    assert (error, flags(error)) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, (False, True, False))
    producer.abort_transaction()
    assert (producer.producer_id > before, producer.producer_epoch) == (True, 0)
    for value in ("next", "and next"):
        with producer.transaction():
            producer.produce("t", value)
    expected = [str(number) for number in range(transactions)] + ["next", "and next"]
    assert world.values("t") == [value.encode() for value in expected]


@pytest.mark.kafka("K49", "K62")
@pytest.mark.parametrize("restarted", [False, True])
def test_a_producer_that_has_expired_in_its_partition_goes_on(world: World, restarted: bool) -> None:
    producer = world.transactional()
    with producer.transaction():
        producer.produce("t", "a")
    identity = (producer.producer_id, producer.producer_epoch)
    world.store.log.refresh()
    known = world.store.log.producer(world.topic_id("t"), 0, producer.producer_id)
    assert known is not None
    seen = (known.producer_id, known.producer_epoch, known.last_sequence, known.coordinator_epoch)
    world.submit(ExpireProducers(known.topic_id, 0, (seen,)))
    if restarted:
        producer = world.transactional()
        assert (producer.producer_id, producer.producer_epoch) == (identity[0], identity[1] + 1)
    with producer.transaction():
        producer.produce("t", "b")
    assert world.values("t") == [b"a", b"b"]


# --- many ------------------------------------------------------------------------------------------------------------


@pytest.mark.kafka("K135")
def test_markers_in_many_partitions(world: World) -> None:
    world.store.create_topic("wide", 20)
    producer = world.transactional()
    for count, commits in ((10_000, False), (1_000, True)):
        producer.begin_transaction()
        for number in range(count):
            producer.produce("wide", str(number), partition=number % 20)
        producer.flush()
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    assert sorted(int(value) for value in world.values("wide")) == list(range(1_000))
    assert len(world.values("wide", "read_uncommitted")) == 11_000
    assert set(world.ends("wide").values()) == {(552, 552)}, "500 and 50 records, and two control records"


@pytest.mark.kafka("K101")
def test_a_key_that_looks_like_a_control_record_is_a_key(world: World) -> None:
    producer = world.transactional()
    keys = [b"\0\0\0\0", b"\0\0\0\1"]
    with producer.transaction():
        for key in keys:
            producer.produce("t", b"\0\0\0\0\0\0", key)
    found = messages(world.consumer("t"))
    assert [(m.key(), m.value()) for m in found] == [(key, b"\0\0\0\0\0\0") for key in keys]
