"""Streams: micro-batches of whole transactions in, one transaction per micro-batch out."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from examples.flights.independent_reader import committed, rows_of
from pyspark_txnlog.options.options import WRITE_STREAM, WriteOptions
from pyspark_txnlog.writing.stream_writer import StagedMicroBatch, TxnLogStreamWriter
from sparktxn import BatchRefused, CommandRefused, ConfigurationError, Producer, SinkCommit, Store, ViewExpired
from sparktxn._engine.log.views import entrysummary
from sparktxn._rows.stage.batchcommits import BatchCommits
from tests.spark.readers import VALUE, commit, numbers_between, stream_reader
from tests.spark.sessions import values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSETS = StructType([StructField("offset", LongType())])


def stream(spark: SparkSession, store: Store, topics: str, **options: Any) -> DataFrame:
    options = {"startingOffsets": "earliest", **options}
    return spark.readStream.format("txnlog").option("subscribe", topics).options(**options).load(store.uri)


def copy(frame: DataFrame, store: Store, checkpoint: Path, topic: str, **options: Any) -> list[int]:
    """Runs the stream into `topic` until nothing is left; the rows of each micro-batch."""
    query = (
        frame.writeStream.format("txnlog")
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start(store.uri)
    )
    query.awaitTermination(90)
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


@pytest.mark.spark
def test_a_stream_copies_a_topic_and_goes_on_where_it_stopped(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    store.create_topic("t", 3)
    store.create_topic("out", 2)
    commit(store, range(100))
    frame = stream(spark, store, "t").select("key", "value")
    assert copy(frame, store, tmp_path / "checkpoint", "out") == [100]
    assert copy(frame, store, tmp_path / "checkpoint", "out") == []
    commit(store, range(100, 150))
    assert copy(frame, store, tmp_path / "checkpoint", "out") == [50]
    assert values(spark.read.format("txnlog").option("topic", "out").load(store.uri)) == list(range(150))


@pytest.mark.spark
def test_a_limited_stream_takes_whole_transactions_and_ends(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    store.create_topic("t", 2)
    store.create_topic("out")
    for first in range(0, 60, 20):
        commit(store, range(first, first + 20))
    commit(store, range(60, 160))
    frame = stream(spark, store, "t", maxOffsetsPerTrigger=45).select("value")
    assert copy(frame, store, tmp_path / "checkpoint", "out") == [40, 20, 100]
    micro_batches = {segment.entry for segment in committed(Path(store.uri)) if segment.topic == "out"}
    assert len(micro_batches) == 3


@pytest.mark.spark
def test_for_each_batch_writes_each_version_once(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    store.create_topic("t")
    store.create_topic("out")
    commit(store, range(10))

    def write_twice(frame: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            writer = frame.select("value").write.format("txnlog").mode("append").option("topic", "out")
            writer.option("txnAppId", "app").option("txnVersion", batch_id).save(store.uri)

    query = stream(spark, store, "t").writeStream.foreachBatch(write_twice)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination(60)
    assert values(spark.read.format("txnlog").option("topic", "out").load(store.uri)) == list(range(10))


@pytest.mark.spark
def test_a_deleted_checkpoint_under_a_fixed_transactional_id_repeats_the_rows_and_loses_none(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    store.create_topic("t")
    store.create_topic("out")
    commit(store, range(10))
    frame = stream(spark, store, "t").select("value")
    for checkpoint in ("first", "second"):
        assert copy(frame, store, tmp_path / checkpoint, "out", transactionalId="fixed") == [10]
    assert values(spark.read.format("txnlog").option("topic", "out").load(store.uri)) == sorted(
        [*range(10), *range(10)]
    )


@pytest.mark.spark
def test_a_topic_that_is_missing_in_a_micro_batch_fails_the_query_and_writes_nothing(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    store.create_topic("t")
    commit(store, range(10))
    entry = store.view().entry
    frame = stream(spark, store, "t").selectExpr("value", "'nope' topic")
    query = frame.writeStream.format("txnlog").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="topic 'nope' is unknown"):
        query.trigger(availableNow=True).start(store.uri).awaitTermination(60)
    assert store.view().entry == entry


@pytest.mark.spark
def test_complete_mode_appends_the_whole_result_and_update_mode_is_refused_by_spark(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    store.create_topic("t")
    store.create_topic("out")
    counts = (
        stream(spark, store, "t").selectExpr("cast(cast(value as string) as int) % 2 parity").groupBy("parity").count()
    )
    writer = counts.selectExpr("cast(parity as string) key", "cast(count as string) value").writeStream
    writer = writer.format("txnlog").option("topic", "out").option("checkpointLocation", str(tmp_path / "checkpoint"))
    for first in (0, 4):
        commit(store, range(first, first + 4))
        writer.outputMode("complete").trigger(availableNow=True).start(store.uri).awaitTermination(90)
    rows = spark.read.format("txnlog").option("topic", "out").load(store.uri).collect()
    assert sorted((bytes(row.key), bytes(row.value)) for row in rows) == [
        (b"0", b"2"),
        (b"0", b"4"),
        (b"1", b"2"),
        (b"1", b"4"),
    ]
    micro_batches = [segment.entry for segment in committed(Path(store.uri)) if segment.topic == "out"]
    assert len(set(micro_batches)) == 2
    commit(store, range(8, 10))
    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        writer.outputMode("update").start(store.uri).awaitTermination(90)


@pytest.mark.spark
def test_a_query_that_computes_other_rows_goes_on_after_a_crash_between_the_entry_and_sparks_record(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    store.create_topic("out")
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    spark.range(50).write.parquet(str(source))
    frame = spark.readStream.schema("id long").parquet(str(source)).selectExpr("cast(rand() as string) value")
    copy(frame, store, checkpoint, "out")
    entry = store.view().entry
    for record in checkpoint.glob("commits/*0*"):  # with its checksum: as a kill between the two would leave it
        record.unlink()
    copy(frame, store, checkpoint, "out")
    assert store.view().entry == entry
    spark.range(50, 60).write.mode("append").parquet(str(source))
    copy(frame, store, checkpoint, "out")
    assert spark.read.format("txnlog").option("topic", "out").load(store.uri).count() == 60


# What follows needs no session: the reader and the writer as Spark calls them.


@pytest.fixture
def topic(store: Store) -> Store:
    store.create_topic("t", 2)
    return store


def test_offsets_are_json_with_their_entry_and_stay_the_same_while_nothing_comes(topic: Store) -> None:
    reader = stream_reader(topic, startingOffsets="earliest")
    start = reader.initialOffset()
    assert start["topics"] == {"t": {"0": 0, "1": 0}}
    assert json.dumps(reader.latestOffset(start, ReadAllAvailable())) == json.dumps(start)
    commit(topic, range(5), partition=1)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end["topics"]["t"] == {"0": 0, "1": 6}
    assert end["entry"] == topic.view().entry
    topic.create_topic("other")
    assert json.dumps(reader.latestOffset(end, ReadAllAvailable())) == json.dumps(end)


def test_a_new_reader_replays_a_micro_batch_with_the_same_rows(topic: Store) -> None:
    commit(topic, range(5))
    first = stream_reader(topic, startingOffsets="earliest")
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    commit(topic, range(5, 9))
    assert numbers_between(stream_reader(topic), start, end) == numbers_between(first, start, end) == list(range(5))
    assert numbers_between(first, end, first.latestOffset(end, ReadAllAvailable())) == list(range(5, 9))


def test_a_stream_starts_at_the_latest_record_unless_it_is_told_otherwise(topic: Store) -> None:
    commit(topic, range(5), partition=0)
    assert stream_reader(topic).initialOffset()["topics"]["t"] == {"0": 6, "1": 0}
    given = json.dumps({"t": {"0": 2, "1": -1}})
    assert stream_reader(topic, startingOffsets=given).initialOffset()["topics"]["t"] == {"0": 2, "1": 0}


def test_available_now_does_not_go_past_what_was_there_when_it_began(topic: Store) -> None:
    commit(topic, range(5))
    reader = stream_reader(topic, startingOffsets="earliest")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    commit(topic, range(5, 9))
    end = reader.latestOffset(start, ReadMaxRows(100))
    assert numbers_between(reader, start, end) == list(range(5))
    assert reader.latestOffset(end, ReadMaxRows(100)) == end


def test_a_limit_never_cuts_a_transaction(topic: Store) -> None:
    for first in range(0, 40, 8):
        commit(topic, range(first, first + 8))
    reader = stream_reader(topic, startingOffsets="earliest")
    offset, found = reader.initialOffset(), []
    for _ in range(5):
        end = reader.latestOffset(offset, ReadMaxRows(3))
        found.append(numbers_between(reader, offset, end))
        offset = end
    assert found == [list(range(first, first + 8)) for first in range(0, 40, 8)]


def test_a_checkpoint_of_a_topic_that_was_created_again_is_refused(topic: Store) -> None:
    reader = stream_reader(topic)
    start = {**reader.initialOffset(), "topicIds": {"t": 77}}
    with pytest.raises(ConfigurationError, match="deleted and created again"):
        reader.latestOffset(start, ReadAllAvailable())


@pytest.mark.parametrize("order", ["commit", "offset"])
@pytest.mark.parametrize(
    ("first", "second", "reads"),
    [
        ({"assign": '{"ab":[0]}'}, {"assign": '{"ab":[1]}'}, r"\['ab-0'\]"),
        ({"subscribe": "ab"}, {"assign": '{"ac":[0]}'}, r"\['ab'\]"),
        ({"subscribe": "ab,ac"}, {"subscribePattern": "z.*"}, r"\['ab', 'ac'\]"),
        ({"subscribe": "__transaction_state"}, {"subscribePattern": ".*"}, r"\['__transaction_state'\]"),
        ({"assign": '{"ab":[0]}'}, {"assign": '{"ab":[0,1]}'}, None),
        ({"assign": '{"ab":[0]}'}, {"subscribePattern": "a."}, None),
        ({"subscribePattern": "a."}, {"subscribePattern": "ab"}, None),
    ],
)
def test_a_query_reads_a_partition_of_its_checkpoint(
    store: Store, order: str, first: dict[str, str], second: dict[str, str], reads: str | None
) -> None:
    for number, name in enumerate(("ab", "ac", "zz")):
        store.create_topic(name, 2)
        commit(store, range(number, number + 1), name, 0)
    given = {"order": order, "startingOffsets": "earliest"}
    offset = stream_reader(store, **given, **first).initialOffset()
    reader = stream_reader(store, **given, **second)
    if reads is None:
        assert numbers_between(reader, offset, reader.latestOffset(offset, ReadAllAvailable()))[0] == 0
        return
    with pytest.raises(ConfigurationError, match=f"a query that reads {reads}, and this one reads none of them"):
        reader.latestOffset(offset, ReadAllAvailable())
    stream_reader(store, **given, **second, failOnDataLoss="false").latestOffset(offset, ReadAllAvailable())


def test_a_checkpoint_of_another_store_is_refused(topic: Store) -> None:
    reader = stream_reader(topic)
    start = {**reader.initialOffset(), "entry": 10_000}
    with pytest.raises(CommandRefused, match="another store"):
        reader.latestOffset(start, ReadAllAvailable())


class MicroBatches:
    """The sink as Spark calls it: new writers for every step, the identity in the messages."""

    def __init__(self, store: Store, **options: str) -> None:
        given = {"path": store.uri, "topic": "t", **options}
        self.store = store
        self.make: Callable[[], TxnLogStreamWriter] = lambda: TxnLogStreamWriter(
            WriteOptions.parse(given, WRITE_STREAM), VALUE
        )

    def stage(self, run_id: str, batch_id: int, numbers: Sequence[int], query_id: str = "query") -> StagedMicroBatch:
        stager = self.store.stage_plan(["t"]).open(seed=0, default_topic="t")
        stager.write(pa.table({"value": [str(number) for number in numbers]}))
        return StagedMicroBatch(tuple(stager.finish()), query_id, run_id, batch_id)

    def run(self, run_id: str, batch_id: int, numbers: Sequence[int]) -> None:
        self.make().commit([self.stage(run_id, batch_id, numbers)], batch_id)


def test_a_replayed_micro_batch_is_a_no_op(topic: Store) -> None:
    sink = MicroBatches(topic)
    sink.run("run-1", 0, range(10))
    entry = topic.view().entry
    sink.run("run-2", 0, range(10))
    assert topic.view().entry == entry
    sink.run("run-2", 1, range(10, 20))
    assert sum(segment.record_count for segment in committed(Path(topic.uri))) == 20


def test_a_superseded_run_is_refused(topic: Store) -> None:
    sink = MicroBatches(topic)
    sink.run("run-1", 0, range(10))
    sink.run("run-2", 1, range(10, 20))
    with pytest.raises(BatchRefused, match="run"):
        sink.run("run-1", 2, range(20, 30))
    assert sum(segment.record_count for segment in committed(Path(topic.uri))) == 20


def test_a_replay_with_other_rows_is_skipped_with_one_warning(topic: Store, caplog: pytest.LogCaptureFixture) -> None:
    sink = MicroBatches(topic)
    sink.run("run-1", 0, range(10))
    entry = topic.view().entry
    with pytest.warns(
        UserWarning, match=r"micro-batch 0 of query 'query' is skipped: .* \(fingerprint \S+, now \S+\)"
    ) as seen:
        sink.run("run-2", 0, [*range(9), 0])
    assert len(seen) == 1
    assert [record.name for record in caplog.records if record.levelname == "WARNING"] == ["sparktxn.spark"]
    assert "no other is missing" in caplog.text
    assert topic.view().entry == entry
    sink.run("run-2", 1, range(10, 20))
    assert sum(segment.record_count for segment in committed(Path(topic.uri))) == 20


def test_a_skipped_micro_batch_below_the_last_one_warns_of_missing_rows(topic: Store) -> None:
    sink = MicroBatches(topic, onreplaymismatch="skip")
    for batch_id in range(22):
        sink.run("run-1", batch_id, range(batch_id, batch_id + 1))
    for batch_id, committed_rows in ((20, "fingerprint \\w"), (0, "that the log no longer remembers")):
        with pytest.warns(UserWarning, match=rf"{committed_rows}.*restored from a copy.*are missing from the log"):
            sink.run("run-2", batch_id, range(500))


@pytest.mark.parametrize(("batch_id", "rows"), [(21, 0), (21, 2), (21, 4), (10, 4), (0, 3), (0, 4)])
def test_a_replay_with_another_number_of_rows_is_refused(topic: Store, batch_id: int, rows: int) -> None:
    """More or fewer, of the last batch or of one before it, and where the log knows the number no longer."""
    sink = MicroBatches(topic)
    for number in range(22):
        sink.run("run-1", number, range(number, number + 3))
    entry = topic.view().entry
    of_entry = "It has committed 3 rows in entry" if batch_id else f"It has {rows} rows now, and how many"
    with pytest.raises(BatchRefused, match=rf"{of_entry}.*nothing was written.* restored .*a new checkpoint folder"):
        sink.run("run-2", batch_id, range(100, 100 + rows))
    assert topic.view().entry == entry
    skips = MicroBatches(topic, onreplaymismatch="skip")
    with pytest.warns(UserWarning, match="are missing from the log"):
        skips.run("run-2", batch_id, range(100, 100 + rows))
    assert topic.view().entry == entry
    sink.run("run-2", 22, range(5))
    assert sum(segment.record_count for segment in committed(Path(topic.uri))) == 22 * 3 + 5


def test_a_replay_whose_entry_a_vacuum_has_passed_is_refused(topic: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = MicroBatches(topic)
    sink.run("run-1", 0, range(10))
    monkeypatch.setattr(entrysummary, "read_entries", raise_view_expired)
    sink.run("run-2", 0, range(10))
    with pytest.warns(UserWarning, match="no other is missing"):
        sink.run("run-2", 0, [*range(9), 0])
    with pytest.raises(BatchRefused, match="It has 10 rows now, and how many are committed is no longer known"):
        sink.run("run-2", 0, range(10, 20))


def raise_view_expired(*_: object) -> NoReturn:
    raise ViewExpired("a vacuum has passed it")


def test_a_replay_with_other_rows_is_refused_if_that_is_asked_for(topic: Store) -> None:
    sink = MicroBatches(topic, onreplaymismatch="fail")
    sink.run("run-1", 0, range(10))
    with pytest.raises(BatchRefused, match="with other rows"):
        sink.run("run-2", 0, range(11))
    with pytest.raises(BatchRefused, match="with other rows"):
        sink.run("run-2", 0, [*range(9), 0])
    sink.run("run-2", 0, range(10))


def test_a_restored_checkpoint_is_noticed_although_rows_are_as_many_and_as_large(topic: Store) -> None:
    sink = MicroBatches(topic)
    for batch_id in range(3):
        sink.run("run-1", batch_id, range(100 * batch_id + 100, 100 * batch_id + 200))
    with pytest.warns(UserWarning, match=r"micro-batch 1 .*restored from a copy.*are missing from the log"):
        sink.run("run-2", 1, range(400, 500))
    sink.run("run-2", 2, range(300, 400))


def test_an_abort_deletes_nothing(topic: Store) -> None:
    sink = MicroBatches(topic)
    message = sink.stage("run-1", 0, range(10))
    writer = sink.make()
    writer.commit([message], 0)
    writer.abort([message, None], 0)
    assert all(segment.path.exists() for segment in committed(Path(topic.uri)))


def test_a_sink_that_another_process_has_fenced_goes_on(topic: Store) -> None:
    sink = MicroBatches(topic)
    sink.run("run-1", 0, range(10))
    with Store.open(topic.uri) as other:
        stager = other.stage_plan(["t"]).open(seed=0, default_topic="t")
        stager.write(pa.table({"value": ["x"]}))
        other.commit(stager.finish(), transactional_id="spark-query")
    sink.run("run-1", 1, range(10, 20))
    assert sum(segment.record_count for segment in committed(Path(topic.uri))) == 21


class TwoRuns:
    """Two live runs of one query: the first commits in this process, the second through a handle of its own."""

    def __init__(self, store: Store) -> None:
        self.first = MicroBatches(store)
        self.store = store

    def second(self, batch_id: int, numbers: range) -> None:
        staged = self.first.stage("run-2", batch_id, numbers).segments
        with Store.open(self.store.uri) as other:
            other.commit(staged, transactional_id="spark-query", sink=SinkCommit("query", "run-2", batch_id))

    def committed_numbers(self) -> list[int]:
        segments = committed(Path(self.store.uri))
        return sorted(int(value) for segment in segments for value in rows_of(segment).column("value").to_pylist())


def test_a_fenced_run_that_is_superseded_is_refused_although_it_tries_again(topic: Store) -> None:
    runs = TwoRuns(topic)
    runs.first.run("run-1", 0, range(10))
    runs.second(1, range(10, 20))
    entry = topic.view().entry
    for batch_id, numbers in ((1, range(10, 15)), (1, range(10, 20)), (2, range(20, 30))):
        with pytest.raises(BatchRefused, match="'run-1' of query 'query' was superseded by run 'run-2'"):
            runs.first.run("run-1", batch_id, numbers)
    assert topic.view().entry == entry, "it does not even fence"
    runs.second(2, range(20, 30))
    assert runs.committed_numbers() == list(range(30))


@pytest.mark.parametrize("numbers", [range(10, 20), range(10, 15)])
def test_a_run_that_is_superseded_in_the_middle_of_its_commit_is_refused(
    topic: Store, monkeypatch: pytest.MonkeyPatch, numbers: range
) -> None:
    runs = TwoRuns(topic)
    runs.first.run("run-1", 0, range(10))
    submit = BatchCommits._submit

    def overtaken(self: BatchCommits, *arguments: Any) -> None:
        monkeypatch.undo()
        runs.second(1, range(10, 20))
        submit(self, *arguments)

    monkeypatch.setattr(BatchCommits, "_submit", overtaken)
    with pytest.raises(BatchRefused, match="'run-1' of query 'query' was superseded"):
        runs.first.run("run-1", 1, numbers)
    assert runs.committed_numbers() == list(range(20))


def test_a_fenced_handle_is_replaced_once(topic: Store) -> None:
    runs = TwoRuns(topic)
    runs.first.run("run-2", 0, range(10))
    runs.second(1, range(10, 20))
    runs.first.run("run-2", 2, range(20, 30))
    entry = topic.view().entry
    runs.first.run("run-2", 3, range(30, 40))
    assert topic.view().entry == entry + 1, "no second initialisation"


def test_a_replay_in_another_order_of_rows_is_the_same_batch(topic: Store) -> None:
    sink = MicroBatches(topic)
    sink.run("run-1", 0, range(5, 15))
    entry = topic.view().entry
    sink.run("run-2", 0, range(14, 4, -1))
    assert topic.view().entry == entry


def test_a_relative_path_means_the_same_folder_in_tasks_that_run_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store.open("relative", create=True) as store:
        store.create_topic("t", 2)
        sink = MicroBatches(store)
        plan = sink.make()._plan
        assert plan is not None
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        stager = plan.open(seed=0, default_topic="t")
        stager.write(pa.table({"value": ["1", "2"]}))
        stager.finish()
    assert len(list((tmp_path / "relative").rglob("*.parquet"))) == 2
    assert not list((tmp_path / "elsewhere").iterdir())


def test_workers_do_not_collect_their_modules_after_each_step(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    """Spark has each worker collect all garbage after a task; the program's own process is left as it is."""
    own = gc.get_freeze_count()
    for name in ("in", "out"):
        store.create_topic(name, 1)
    with Producer({"bootstrap.servers": store.uri}) as producer:
        producer.produce("in", b"1")
    copy(stream(spark, store, "in"), store, tmp_path / "checkpoint", "out")

    def passed_over(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch([pa.array([gc.get_freeze_count()] * batch.num_rows)], names=["count"])

    found = spark.range(0, 8, 1, 8).mapInArrow(passed_over, "count long").collect()
    assert max(row["count"] for row in found) > 10_000
    assert gc.get_freeze_count() <= own


def test_sparks_progress_names_the_query_and_not_the_topics_of_the_sink(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    """Spark's table around a sink in Python has no text of its own: docs/spark.md says what names what instead."""
    store.create_topic("t", 1)
    commit(store, range(3))
    writer = stream(spark, store, "t").select("value").writeStream.format("txnlog").queryName("copies of t")
    writer = writer.option("topic", "t").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(store.uri)
    query.awaitTermination(90)
    progress = query.lastProgress
    assert progress is not None
    assert progress.name == "copies of t"
    assert ".PythonTable@" in progress.sink.description
