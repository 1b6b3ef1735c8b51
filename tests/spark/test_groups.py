"""Consumer groups of queries: where a read starts for a group, and what a query commits for one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from examples.flights.independent_reader import entries
from pyspark_txnlog import foreach_batch
from pyspark_txnlog.options.groups import offsets_of_batch, offsets_of_progress
from pyspark_txnlog.options.options import READ, READ_STREAM, WRITE_STREAM, ReadOptions, WriteOptions
from sparktxn import (
    ConfigurationError,
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    RetentionPassed,
    Store,
    TopicPartition,
)
from sparktxn.admin import AdminClient
from tests.spark.readers import Query, batch_reader, commit, numbers_of, stream_reader
from tests.spark.sessions import values
from tests.spark.test_stream import copy, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMITTED = {"startingOffsets": "committed", "kafka__group__id": "g"}


@pytest.fixture
def topic(store: Store) -> Store:
    store.create_topic("t", 2)
    return store


def committed(store: Store, group_id: str = "g") -> dict[tuple[str, int], int]:
    """What Kafka's own call for administrators says of a group."""
    with AdminClient({"bootstrap.servers": store.uri}) as admin:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])
        found = asked[group_id].result().topic_partitions or []
    return {(partition.topic, partition.partition): partition.offset for partition in found}


def set_offsets(store: Store, *offsets: int, group_id: str = "g") -> None:
    partitions = [TopicPartition("t", number, offset) for number, offset in enumerate(offsets)]
    store.commit_offsets(ConsumerGroupTopicPartitions(group_id, partitions))


def commit_progress(store: Store, offset: dict[str, Any]) -> None:
    store.commit_offsets(offsets_of_progress([offset], "g"))


@pytest.mark.parametrize("order", ["commit", "offset"])
def test_a_read_starts_at_the_offsets_of_its_group(topic: Store, order: str) -> None:
    commit(topic, range(10), partition=0)
    commit(topic, range(10, 20), partition=1)
    set_offsets(topic, 4, 7)
    unread = [*range(4, 10), *range(17, 20)]
    assert numbers_of(batch_reader(topic, order=order, **COMMITTED)) == unread
    query = Query(stream_reader(topic, order=order, **COMMITTED))
    assert query.run() == unread
    commit(topic, range(20, 25))
    assert query.run() == list(range(20, 25))


@pytest.mark.parametrize("order", ["commit", "offset"])
@pytest.mark.parametrize(("reset", "expected"), [("earliest", [*range(10, 20)]), ("latest", [])])
def test_a_partition_without_a_committed_offset_starts_as_auto_offset_reset_says(
    topic: Store, order: str, reset: str, expected: list[int]
) -> None:
    commit(topic, range(10), partition=0)
    commit(topic, range(10, 20), partition=1)
    set_offsets(topic, 4)
    options = {**COMMITTED, "order": order, "autoOffsetReset": reset}
    assert numbers_of(batch_reader(topic, **options)) == [*range(4, 10), *expected]
    query = Query(stream_reader(topic, **options))
    assert query.run() == [*range(4, 10), *expected]
    commit(topic, range(20, 25))
    assert query.run() == list(range(20, 25))


def test_without_an_offset_the_reset_none_is_an_error_and_the_default_loses_nothing(topic: Store) -> None:
    commit(topic, range(5), partition=1)
    set_offsets(topic, 0)
    with pytest.raises(ConfigurationError, match=r"group 'g' has committed no offset for t-1: set the option auto"):
        batch_reader(topic, autoOffsetReset="none", **COMMITTED)
    with pytest.raises(ConfigurationError, match=r"group 'g' has committed no offset for t-1: set the option auto"):
        stream_reader(topic, autoOffsetReset="none", **COMMITTED).initialOffset()
    assert Query(stream_reader(topic, **COMMITTED)).run() == list(range(5))


def test_a_topic_that_is_created_again_has_no_offset_of_the_group(topic: Store) -> None:
    commit(topic, range(10), partition=0)
    set_offsets(topic, 10, 0)
    with AdminClient({"bootstrap.servers": topic.uri}) as admin:
        admin.delete_topics(["t"])["t"].result()
    topic.create_topic("t", 2)
    commit(topic, range(3), partition=0)
    assert numbers_of(batch_reader(topic, **COMMITTED)) == [0, 1, 2]


@pytest.mark.parametrize("order", ["commit", "offset"])
def test_offsets_inside_aborted_ranges_and_below_removed_gaps_lose_nothing(topic: Store, order: str) -> None:
    with Producer({"bootstrap.servers": topic.uri, "transactional.id": "p"}) as producer:
        producer.init_transactions()
        for aborted, numbers in ((False, range(5)), (True, range(5, 10)), (False, range(10, 15))):
            producer.begin_transaction()
            for number in numbers:
                producer.produce("t", str(number), partition=0)
            producer.flush()
            if aborted:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    # 0 to 4, a marker, aborted 6 to 10, its marker 11, 12 to 16, a marker: every start between is a valid one.
    end = topic.view().partitions["t", 0].log_end_offset
    assert end == 18
    for start in range(end + 1):
        set_offsets(topic, start, 0)
        expected = [*range(start, 5), *(number - 2 for number in range(max(start, 12), 17))]
        assert numbers_of(batch_reader(topic, order=order, **COMMITTED)) == expected, start
        assert Query(stream_reader(topic, order=order, **COMMITTED)).run() == expected, start


@pytest.mark.parametrize("order", ["commit", "offset"])
def test_a_log_start_inside_a_segment_is_a_loss_only_below_the_groups_offset(topic: Store, order: str) -> None:
    commit(topic, range(10), partition=0)
    with AdminClient({"bootstrap.servers": topic.uri}) as admin:
        for future in admin.delete_records([TopicPartition("t", 0, 4)]).values():
            future.result()
    for start in (4, 6, 10):
        set_offsets(topic, start, 0)
        assert numbers_of(batch_reader(topic, order=order, **COMMITTED)) == list(range(start, 10))
        assert Query(stream_reader(topic, order=order, **COMMITTED)).run() == list(range(start, 10))
    set_offsets(topic, 3, 0)
    with pytest.raises(RetentionPassed, match=r"offset 3 .* was removed: the log starts at 4"):
        numbers_of(batch_reader(topic, order=order, **COMMITTED))
    kept = batch_reader(topic, order=order, failOnDataLoss="false", **COMMITTED)
    assert numbers_of(kept) == list(range(4, 10))


@pytest.fixture
def overlapping(topic: Store) -> Iterator[Producer]:
    """A transaction that began with the records 100 and 101, before others that are committed."""
    with Producer({"bootstrap.servers": topic.uri, "transactional.id": "slow"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in (100, 101):
            producer.produce("t", str(number), partition=0)
        producer.flush()
        commit(topic, range(5), partition=0)
        yield producer


def test_in_commit_order_the_offset_is_the_first_unread_and_the_entry_goes_with_it(
    topic: Store, overlapping: Producer
) -> None:
    first = Query(stream_reader(topic, startingOffsets="earliest"))
    assert first.run() == list(range(5))
    commit_progress(topic, first.offset)
    assert committed(topic) == {("t", 0): 0, ("t", 1): 0}, "the open transaction's records come later"
    with Consumer({"bootstrap.servers": topic.uri, "group.id": "g"}) as consumer:
        (found,) = consumer.committed([TopicPartition("t", 0)])
    assert found.metadata == f"txnlog:entry={first.offset['entry']}"
    overlapping.commit_transaction()
    assert Query(stream_reader(topic, **COMMITTED)).run() == [100, 101]
    assert numbers_of(batch_reader(topic, **COMMITTED)) == [100, 101]
    # What an ordinary consumer commits has no entry: the offset alone is a floor, and nothing is lost.
    set_offsets(topic, 0, 0)
    assert numbers_of(batch_reader(topic, **COMMITTED)) == [*range(5), 100, 101]


def test_a_data_frame_that_is_planned_again_starts_where_it_did(topic: Store) -> None:
    commit(topic, range(10), partition=0)
    set_offsets(topic, 4, 0)
    reader = batch_reader(topic, **COMMITTED)
    set_offsets(topic, 9, 0)
    assert numbers_of(reader) == list(range(4, 10))


def test_the_source_commits_its_offsets_when_spark_says_that_a_micro_batch_is_done(topic: Store) -> None:
    commit(topic, range(5), partition=0)
    options = {**COMMITTED, "commitOffsetsOnCheckpoint": "true"}
    query = Query(stream_reader(topic, **options))
    query.run()
    assert committed(topic) == {}
    query.reader.commit(query.offset)
    assert committed(topic) == {("t", 0): 6, ("t", 1): 0}
    entry = topic.view().entry
    silent = Query(stream_reader(topic, **COMMITTED))
    silent.run()
    silent.reader.commit(silent.offset)
    assert topic.view().entry == entry


def test_a_failure_to_commit_the_groups_offsets_does_not_stop_the_query(
    topic: Store, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(stream_reader(topic, commitOffsetsOnCheckpoint="true", **COMMITTED))
    query.reader.commit({**query.offset, "topics": {"gone": {"0": 5}}})
    assert "the offsets of group 'g' are not committed for this micro-batch: " in caplog.text


@pytest.mark.parametrize(
    ("given", "use", "match"),
    [
        ({"startingoffsets": "committed"}, READ, "'startingOffsets' is committed: expected the option kafka.group.id"),
        ({"endingoffsets": "committed"}, READ, "'endingOffsets' is .*expected earliest, latest or JSON"),
        (
            {"startingoffsets": "commited", "kafka.group.id": "g"},
            READ,
            "expected earliest, latest or JSON .*, or committed$",
        ),
        ({"commitoffsetsoncheckpoint": "true"}, READ_STREAM, "expected the option kafka.group.id, which names the gr"),
        ({"autooffsetreset": "never"}, READ, "'autoOffsetReset' is 'never': expected one of earliest, latest, none"),
        ({"startingoffsets": "committed", "kafka.group.id": "g", "startingentry": "5"}, READ, "exclude each other"),
    ],
)
def test_wrong_options_of_groups(given: dict[str, str], use: Any, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        ReadOptions.parse({"path": "/s", "subscribe": "t", **given}, use)


def test_a_sink_that_commits_for_a_group_needs_the_checkpoint_as_an_option() -> None:
    given = {"path": "/s", "commitgroup": "g"}
    with pytest.raises(ConfigurationError, match="'commitGroup' needs the option 'checkpointLocation' on the same"):
        WriteOptions.parse(given, WRITE_STREAM)
    assert WriteOptions.parse({**given, "checkpointlocation": "/c"}, WRITE_STREAM).checkpoint == "/c"


def checkpoint_of(folder: Path, *lines: str, version: str = "v1") -> str:
    (folder / "offsets").mkdir(parents=True)
    (folder / "offsets" / "3").write_text("\n".join([version, "{}", *lines]))
    return str(folder)


def test_only_the_sources_that_read_the_sinks_store_count_and_the_lesser_offset_of_two(
    topic: Store, tmp_path: Path
) -> None:
    commit(topic, range(10), partition=0)
    query = Query(stream_reader(topic, startingOffsets="earliest"))
    ahead = json.dumps(query.reader.latestOffset(query.offset, query.reader.getDefaultReadLimit()))
    other = json.dumps({**query.offset, "storeId": "another", "topics": {"t": {"0": 9}}})
    rate = '{"logOffset": 0}'
    folder = checkpoint_of(tmp_path / "one", rate, "-", other, ahead, "5")
    found = (offsets_of_batch(topic, folder, 3, "g", {}).topic_partitions or [])[0]
    assert (found.topic, found.partition, found.offset) == ("t", 0, 11)
    both = checkpoint_of(tmp_path / "two", ahead, json.dumps(query.offset))
    found = (offsets_of_batch(topic, f"file:{both}", 3, "g", {}).topic_partitions or [])[0]
    assert (found.offset, found.metadata) == (0, None)


@pytest.mark.parametrize(
    ("version", "batch_id", "match"),
    [
        ("v1", 3, "no source of the query reads the store"),
        ("v1", 4, "has no object of the name 'offsets/4' .*Set checkpointLocation, as an option of the sink"),
        ("v2", 3, "its version is 'v2', expected 'v1'"),
    ],
)
def test_a_checkpoint_that_says_nothing_of_the_store_is_an_error(
    topic: Store, tmp_path: Path, version: str, batch_id: int, match: str
) -> None:
    with pytest.raises(ConfigurationError, match=match):
        offsets_of_batch(topic, checkpoint_of(tmp_path / "c", '{"logOffset": 0}', version=version), batch_id, "g", {})


def test_a_checkpoint_of_another_store_is_refused(topic: Store, tmp_path: Path) -> None:
    offset = Query(stream_reader(topic)).offset
    with Store.open(str(tmp_path / "second"), create=True) as second:
        second.create_topic("t", 2)
        with pytest.raises(ConfigurationError, match="checkpoint belongs to another store"):
            Query(stream_reader(second), offset).run()
    commit(topic, range(2))
    without_id = {name: value for name, value in offset.items() if name != "storeId"}
    assert Query(stream_reader(topic), without_id).run() == [0, 1]


def offset_commits(store: Store) -> dict[int, list[str]]:
    """The entries with offsets of a group, and the types of their commands."""
    types = {entry.number: [command["type"] for command in entry.commands] for entry in entries(Path(store.uri))}
    return {number: found for number, found in types.items() if "txn_offset_commit" in found}


@pytest.mark.spark
def test_the_sink_commits_the_groups_offsets_in_the_micro_batchs_transaction(
    spark: SparkSession, topic: Store, tmp_path: Path
) -> None:
    topic.create_topic("out")
    for first in range(0, 60, 20):
        commit(topic, range(first, first + 20))
    frame = stream(spark, topic, "t", maxOffsetsPerTrigger=40).select("value")
    checkpoint = tmp_path / "checkpoint"
    assert copy(frame, topic, checkpoint, "out", commitGroup="g") == [40, 20]
    ends = {key: partition.log_end_offset for key, partition in topic.view(["t"]).partitions.items()}
    assert committed(topic) == ends, "no lag"
    found = offset_commits(topic)
    assert len(found) == 2
    assert all(types[0] == "sink_batch_commit" and types[-1] == "end_txn" for types in found.values())
    # Killed before Spark's own record: the micro-batch and its offsets stay as they are.
    for record in checkpoint.glob("commits/*1*"):
        record.unlink()
    entry = topic.view().entry
    copy(frame, topic, checkpoint, "out", commitGroup="g")
    assert topic.view().entry == entry
    # Another query goes on for the group, from its own new checkpoint.
    commit(topic, range(60, 65))
    later = stream(spark, topic, "t", startingOffsets="committed", **{"kafka.group.id": "g"}).select("value")
    assert copy(later, topic, tmp_path / "later", "out") == [5]
    assert values(spark.read.format("txnlog").option("topic", "out").load(topic.uri)) == list(range(65))


@pytest.mark.spark
def test_for_each_batch_commits_them_too_and_a_source_without_a_txnlog_sink(
    spark: SparkSession, topic: Store, tmp_path: Path
) -> None:
    topic.create_topic("out")
    commit(topic, range(20))
    checkpoint = str(tmp_path / "checkpoint")
    write = foreach_batch(topic.uri, topic="out", commitGroup="h", checkpointLocation=checkpoint)
    frame = stream(spark, topic, "t", commitOffsetsOnCheckpoint="true", **{"kafka.group.id": "g"}).select("value")

    def run() -> None:
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination(120)

    run()
    ends = {key: partition.log_end_offset for key, partition in topic.view(["t"]).partitions.items()}
    assert committed(topic, "h") == ends
    commit(topic, range(20, 22))
    run()
    assert committed(topic, "g") == ends, "as it was at the end of the micro-batch before"


def test_a_micro_batch_with_offsets_of_a_missing_topic_writes_nothing(topic: Store) -> None:
    entry = topic.view().entry

    def wrong(name: str) -> ConsumerGroupTopicPartitions:
        return ConsumerGroupTopicPartitions("g", [TopicPartition(name, 0, 5)])

    with pytest.raises(Exception, match="topic 'gone' does not exist or has no partition 0"):
        topic.commit([], transactional_id="id", offsets=wrong("gone"))
    with pytest.raises(ConfigurationError, match="offsets are given without transactional_id"):
        topic.commit([], offsets=wrong("t"))
    assert topic.view().entry == entry
    topic.commit([], transactional_id="id", offsets=wrong("t"))
    assert committed(topic) == {("t", 0): 5}
