"""`__transaction_state` and `__consumer_offsets`: the log's own history, as clients read it."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from sparktxn import RetentionPassed, ViewExpired, read_task
from sparktxn._engine.format import names
from sparktxn._engine.format.commands import DeleteGroup, EndTxn, InitProducerId, OffsetCommit, OffsetToCommit
from sparktxn._kafka.message import OFFSET_END, Message, TopicPartition
from sparktxn.admin import AdminClient, ConsumerGroupTopicPartitions, NewPartitions, NewTopic, OffsetSpec
from sparktxn.consumer import Consumer
from sparktxn.errors import ErrorCode, KafkaException
from sparktxn.maintenance import sweep, vacuum
from sparktxn.store import INTERNAL_TOPICS, ranges_within
from tests import world as worlds
from tests.world import messages

TRANSACTIONS = "__transaction_state"
OFFSETS = "__consumer_offsets"


class World(worlds.World):
    """A store with topics in and out, and clients that watch its internal topics."""

    def __init__(self) -> None:
        super().__init__({"in": 2, "out": 2}, checkpoint_entries=16)

    def watcher(self, **settings: Any) -> Consumer:
        return self.consumer(**{"group_id": "watch", "enable_auto_commit": False, **settings})

    def group(self, group_id: str) -> Any:
        return self.watcher(group_id=group_id).consumer_group_metadata()

    def history(self, topic: str, start: int | None = None, **plan: Any) -> list[dict[str, Any]]:
        view = self.store.view([topic])
        low, high = self.store.ranges(view)[topic, 0]
        tasks = self.store.plan(view, {(topic, 0): (low if start is None else start, high)}, **plan)
        found = [row for task in pickle.loads(pickle.dumps(tasks)) for b in read_task(task) for row in b.to_pylist()]
        assert [row["_offset"] for row in found] == sorted({row["_offset"] for row in found})
        return found


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def states(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["state"], row["producer_epoch"], row["transaction"]) for row in rows]


@pytest.mark.kafka("K32", "K50")
def test_a_transaction_shows_every_state_that_kafka_would_have_recorded(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("out", b"1", partition=1)
    producer.flush()
    producer.produce("out", b"2", partition=0)
    producer.send_offsets_to_transaction([TopicPartition("in", 0, 7)], world.group("g"))
    producer.commit_transaction()
    rows = world.history(TRANSACTIONS)
    assert states(rows) == [
        ("Empty", 0, 0),
        ("Ongoing", 0, 1),
        ("Ongoing", 0, 1),
        ("PrepareCommit", 0, 1),
        ("CompleteCommit", 0, 1),
    ]
    assert rows[1]["partitions"] == [{"topic": "out", "partition": 1}]
    assert sorted(where["partition"] for where in rows[2]["partitions"]) == [0, 1]
    assert rows[3]["groups"] == ["g"]
    assert rows[4]["partitions"] == []
    assert rows[1]["start_timestamp"] == rows[4]["start_timestamp"]
    assert len({row["entry"] for row in rows[2:]}) == 1


@pytest.mark.kafka("K07")
def test_fencing_shows_the_aborted_transaction_under_the_next_epoch_and_why(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("out", b"1")
    producer.flush()
    world.transactional()
    rows = world.history(TRANSACTIONS)[2:]
    assert states(rows) == [("PrepareAbort", 1, 1), ("CompleteAbort", 1, 1), ("Empty", 2, 1)]
    assert "newer producer" in rows[0]["fence_reason"]
    assert rows[2]["fence_reason"] is None


@pytest.mark.kafka("K44")
def test_a_timed_out_transaction_says_so(world: World) -> None:
    (result,) = world.submit(InitProducerId("r", "slow"))
    producer = world.transactional("slow")
    producer.begin_transaction()
    producer.produce("out", b"1")
    producer.flush()
    end = EndTxn("slow", result.producer_id, 1, 1, committed=False, timed_out_after_ms=60_000)
    world.submit(end)
    last = world.history(TRANSACTIONS)[-1]
    assert (last["state"], last["producer_epoch"]) == ("CompleteAbort", 2)
    assert "timed out after 60000 ms" in last["fence_reason"]


def test_offsets_show_when_they_take_effect_and_whose_they_were(world: World) -> None:
    reader = world.watcher(group_id="g")
    reader.commit(offsets=[TopicPartition("in", 1, 3, "by hand")], asynchronous=False)
    producer = world.transactional()
    for number, commit in ((5, False), (6, True)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition("in", 0, number, "m")], world.group("g"))
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    rows = world.history(OFFSETS)
    shown = [
        (r["group_id"], r["topic"], r["partition"], r["offset"], r["metadata"], r["transactional_id"]) for r in rows
    ]
    assert shown == [("g", "in", 1, 3, "by hand", None), ("g", "in", 0, 6, "m", "orders")]
    assert rows[1]["producer_id"] == 0


def test_what_is_removed_is_a_tombstone(world: World) -> None:
    world.submit(OffsetCommit("a", "g", (OffsetToCommit(1, 0, 3), OffsetToCommit(1, 1, 4))))
    entry = world.entry()
    world.submit(DeleteGroup("b", "g", offsets=((1, 0, entry), (1, 1, entry))))
    consumer = world.watcher()
    consumer.assign([TopicPartition(OFFSETS, 0)])
    found = [(json.loads(message.key() or b""), message.value()) for message in messages(consumer, 0.1)]
    assert [(key["group_id"], key["partition"]) for key, _ in found] == [("g", 0), ("g", 1)] * 2
    assert [value is None for _, value in found] == [False, False, True, True]


def test_messages_are_json(world: World) -> None:
    world.transactional()
    consumer = world.watcher()
    consumer.subscribe([TRANSACTIONS])
    (message,) = messages(consumer, 0.1)
    assert json.loads(message.key() or b"") == {"transactional_id": "orders"}
    value = json.loads(message.value() or b"")
    assert (value["state"], value["producer_id"], value["partitions"]) == ("Empty", 0, [])
    assert value["last_update_timestamp_ms"] == message.timestamp()[1]
    assert message.offset() == value["entry"] << 20


def test_a_consumer_follows_seeks_and_goes_on_where_its_group_was(world: World) -> None:
    producer = world.transactional()
    consumer = world.watcher()
    consumer.subscribe([TRANSACTIONS])
    first = messages(consumer, 0.1)
    for _ in range(3):
        producer.begin_transaction()
        producer.produce("out", b"x")
        producer.commit_transaction()
        first += messages(consumer, 0.1)
    assert [json.loads(m.value() or b"")["state"] for m in first] == [
        "Empty",
        *["Ongoing", "PrepareCommit", "CompleteCommit"] * 3,
    ]
    consumer.seek(TopicPartition(TRANSACTIONS, 0, first[5].offset() or 0))
    again = messages(consumer, 0.1)
    assert [m.offset() for m in again] == [m.offset() for m in first[5:]]
    consumer.commit(message=first[6], asynchronous=False)
    consumer.close()
    other = world.watcher()
    other.subscribe([TRANSACTIONS])
    assert [m.offset() for m in messages(other, 0.1)] == [m.offset() for m in first[7:]]


def test_following_the_offsets_does_not_follow_its_own_commits(world: World) -> None:
    world.submit(OffsetCommit("a", "g", (OffsetToCommit(1, 0, 3),)))
    consumer = world.watcher(enable_auto_commit=True, auto_commit_interval_ms=1)
    consumer.subscribe([OFFSETS, TRANSACTIONS])
    # The offset, and its own membership.
    assert len(messages(consumer, 0.1)) == 2
    entry = world.entry()
    assert messages(consumer, 0.1) == messages(consumer, 0.1) == []
    assert world.entry() == entry
    consumer.close()
    assert [row["topic"] for row in world.history(OFFSETS) if row["topic"]] == ["in"]
    listed = AdminClient({"bootstrap.servers": world.uri}).list_consumer_groups().result().valid
    assert "watch" in [group.group_id for group in listed]


def test_offsets_for_internal_topics_do_not_expire_as_those_of_deleted_topics_do(world: World) -> None:
    world.store.create_topic("gone")
    consumer = world.watcher()
    places = [TopicPartition(TRANSACTIONS, 0, 1 << 20), TopicPartition("gone", 0, 1)]
    consumer.commit(offsets=places, asynchronous=False)
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        admin.delete_topics(["gone"])["gone"].result()
        topics = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("watch")])["watch"].result()
    assert [place.topic for place in topics.topic_partitions or ()] == [TRANSACTIONS]
    assert sweep(world.store).expired_offsets == 1
    (place,) = consumer.committed([TopicPartition(TRANSACTIONS, 0)], 5)
    assert place.offset == 1 << 20


def test_watermarks_times_and_columns(world: World) -> None:
    producer = world.transactional()
    consumer = world.watcher()
    partition = TopicPartition(TRANSACTIONS, 0)
    low, high = consumer.get_watermark_offsets(partition)
    assert (low, high) == (1 << 20, (world.entry() + 1) << 20)
    (row,) = world.history(TRANSACTIONS)
    at = int(row["_timestamp"].timestamp() * 1000)
    found = consumer.offsets_for_times(
        [TopicPartition(TRANSACTIONS, 0, at), TopicPartition(TRANSACTIONS, 0, at + 10**6)]
    )
    assert [f.offset for f in found] == [row["_offset"], OFFSET_END]
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        newest = admin.list_offsets({partition: OffsetSpec.max_timestamp()})[partition].result()
        assert (newest.offset, newest.timestamp) == (row["_offset"], at)
    producer.begin_transaction()
    producer.produce("out", b"x")
    producer.commit_transaction()
    assert world.history(TRANSACTIONS, columns=("state", "_offset"))[-1].keys() == {"state", "_offset"}
    consumer.assign([partition])
    table = consumer.consume_arrow(timeout=30)
    assert table is not None
    assert table.column("state").to_pylist() == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]


def test_patterns_leave_internal_topics_out_unless_asked(world: World) -> None:
    world.transactional()
    consumer = world.watcher()
    consumer.subscribe(["^.*"])
    messages(consumer, 0.1)
    assert {partition.topic for partition in consumer.assignment()} == {"in", "out"}
    asking = world.watcher(exclude_internal_topics=False)
    asking.subscribe(["^__.*"])
    consumer.close()
    assert [message.topic() for message in messages(asking, 0.1)].count(TRANSACTIONS) == 1
    assert {partition.topic for partition in asking.assignment()} == {TRANSACTIONS, OFFSETS}


@pytest.mark.parametrize("topic", [TRANSACTIONS, OFFSETS])
def test_they_cannot_be_written_to_created_changed_or_deleted(world: World, topic: str) -> None:
    producer = world.transactional()
    producer.begin_transaction()

    def refused(call: Any, why: str = "internal") -> None:
        with pytest.raises(KafkaException, match=why) as raised:
            call()
        assert raised.value.error.code() in (ErrorCode.INVALID_TOPIC, ErrorCode.TOPIC_ALREADY_EXISTS)

    refused(lambda: producer.produce(topic, b"x"))
    refused(lambda: world.store.create_topic(topic))
    refused(lambda: world.store.stage_plan([topic]))
    refused(lambda: producer.expect(topic, 0, 0))
    refused(lambda: world.store.commit([], expect={(topic, 0): 0}))
    refused(lambda: world.store.create_topic(topic.replace("_", ".")), "collides with the existing topic")
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        refused(lambda: admin.create_topics([NewTopic(topic, 1)])[topic].result())
        refused(lambda: admin.delete_topics([topic])[topic].result())
        refused(lambda: admin.create_partitions([NewPartitions(topic, 3)])[topic].result())
        partition = TopicPartition(topic, 0, 1 << 20)
        refused(lambda: admin.delete_records([partition])[partition].result())
        assert topic not in admin.list_topics().topics
        assert admin.list_topics(topic).topics[topic].error is None
        assert admin.describe_topics([topic])[topic].result().is_internal


def test_a_name_alone_makes_no_topic_internal(world: World) -> None:
    world.store.create_topic("__audit")
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        described = admin.describe_topics(["__audit", *INTERNAL_TOPICS])
        assert {name: future.result().is_internal for name, future in described.items()} == {
            "__audit": False,
            **dict.fromkeys(INTERNAL_TOPICS, True),
        }


def busy(world: World, transactions: int) -> None:
    producer = world.transactional("busy")
    for number in range(transactions):
        producer.begin_transaction()
        producer.produce("out", b"x")
        producer.send_offsets_to_transaction([TopicPartition("in", number % 2, number)], world.group("g"))
        producer.commit_transaction()


def test_tasks_tile_the_history_and_start_from_checkpoints(world: World) -> None:
    busy(world, 100)
    whole = world.history(TRANSACTIONS)
    assert len(whole) == 1 + 3 * 100
    assert world.history(TRANSACTIONS, rows_per_task=7) == whole
    view = world.store.view([TRANSACTIONS])
    end = view.partitions[TRANSACTIONS, 0].log_end_offset
    tasks = world.store.plan(view, {(TRANSACTIONS, 0): (whole[-1]["_offset"], end)})
    read: list[str] = []
    objects = world.store.log.objects
    original = objects.get_many
    objects_class = type(objects)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects_class, "get_many", lambda self, wanted: read.extend(wanted) or original(wanted))
        (task,) = tasks
        assert [row for batch in read_task(task) for row in batch.to_pylist()] == whole[-1:]
    entries = [name for name in read if names.parse_entry(name) is not None]
    assert len(entries) <= 3 * 16


def test_a_limit_takes_whole_entries(world: World) -> None:
    busy(world, 20)
    view = world.store.view([TRANSACTIONS])
    start, end = (5 << 20) + 1, view.partitions[TRANSACTIONS, 0].log_end_offset
    ranges = {(TRANSACTIONS, 0): (start, end)}
    assert ranges_within(view, ranges, 4) == {(TRANSACTIONS, 0): (start, 9 << 20)}
    assert ranges_within(view, ranges, 10_000) == ranges


def test_history_begins_after_the_oldest_checkpoint_that_the_horizon_has_left(world: World) -> None:
    busy(world, 40)
    whole = world.history(OFFSETS)
    log = world.store.log
    entry = log.checkpoint()
    assert entry is not None
    busy(world, 5)
    old_view = world.store.view([OFFSETS])
    old = world.store.plan(old_view, world.store.ranges(old_view))
    log.objects.put_if_absent(names.horizon(entry), b"1")
    log.objects.delete([names.entry(number) for number in range(1, entry)])
    heads = [name for name in log.objects.list_names(names.CHECKPOINTS) if names.parse_checkpoint_head(name)]
    log.objects.delete([name for name in heads if (names.parse_checkpoint_head(name) or (0,))[0] < entry])
    consumer = world.watcher()
    low, high = consumer.get_watermark_offsets(TopicPartition(OFFSETS, 0))
    assert (low, high) == ((entry + 1) << 20, (world.entry() + 1) << 20)
    rows = world.history(OFFSETS)
    assert len(rows) == 5
    assert rows[0]["topic"] == "in"
    with pytest.raises(RetentionPassed):
        world.history(OFFSETS, start=whole[3]["_offset"])
    with pytest.raises(ViewExpired):
        list(read_task(old[0]))
    consumer.assign([TopicPartition(OFFSETS, 0)])
    assert len(messages(consumer, 0.1)) == 5


def test_what_a_vacuum_leaves_is_the_end_of_what_was_there(world: World) -> None:
    consumer = world.watcher()
    consumer.subscribe([TRANSACTIONS])
    told: list[Message] = []
    everything = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}
    for _ in range(3):
        busy(world, 40)
        whole = world.history(TRANSACTIONS)
        horizon = vacuum(world.store, everything).horizon
        rows = world.history(TRANSACTIONS)
        assert rows == whole[-len(rows) :]
        assert rows[0]["entry"] <= max(horizon + 1, whole[0]["entry"])
        told += messages(consumer, 0.1)
    offsets = [message.offset() or 0 for message in told]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == rows[-1]["_offset"]
    assert horizon > 60
    # Each round is read after the vacuum has passed most of it: what it has left is returned, and the reader continues.
    assert set(offsets) >= {row["_offset"] for row in rows}


def test_memory_is_bounded_by_a_batch(world: World) -> None:
    producer = world.transactional("many")
    group = world.group("g")
    for number in range(1_500):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition("in", 0, number)], group)
        producer.commit_transaction()
    view = world.store.view([TRANSACTIONS])
    tracemalloc.start()
    peaks = []
    for end in (500, 1_500):
        (task,) = world.store.plan(view, {(TRANSACTIONS, 0): (1 << 20, end << 20)})
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        rows = sum(batch.num_rows for batch in read_task(task, batch_rows=100))
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    assert rows > 4_000
    assert peaks[1] < 2 * peaks[0] + 200_000
