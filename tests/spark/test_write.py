"""`write()` puts rows where the sink does, once; `scan_stream()` gives a stream's rows by Spark's own reader."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import pyspark_txnlog
from pyspark_txnlog import foreach_batch, scan_stream, write
from pyspark_txnlog.writing import foreach
from sparktxn import BatchRefused, ConfigurationError, Store
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.spark.readers import batch_reader, commit
from tests.spark.sessions import values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Numbers = Callable[..., "DataFrame"]


def stored(store: Store, topic: str = "t") -> dict[int, int]:
    """The partition of each number in a topic; each is there once."""
    reader = batch_reader(store, subscribe=topic, columns="value,partition")
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    found = {int(row["value"]): row["partition"] for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("key", ["cast(id as string)", "cast(cast(id as string) as binary)"])
def test_rows_go_to_the_partitions_of_their_keys_in_one_entry(numbers: Numbers, store: Store, key: str) -> None:
    store.create_topic("t", 5)
    before = store.view(["t"]).entry
    write(numbers(0, 200, key=key), store.uri, "t")
    assert stored(store) == {number: zlib.crc32(str(number).encode()) % 5 for number in range(200)}
    # One for the producer that the handle's writes share, one for the rows.
    assert store.view(["t"]).entry <= before + 2


def test_given_partitions_come_first_and_rows_without_a_key_are_spread(numbers: Numbers, store: Store) -> None:
    store.create_topic("t", 3)
    write(numbers(0, 50, key="cast(id as string)", partition="if(id < 25, 1, null)"), store.uri, "t")
    expected = {number: 1 if number < 25 else zlib.crc32(str(number).encode()) % 3 for number in range(50)}
    assert stored(store) == expected
    store.create_topic("u", 3)
    write(numbers(0, 60, key="if(id < 30, null, '')"), store.uri, "u")
    assert set(stored(store, "u").values()) == {0, 1, 2}


def test_a_version_is_written_once(numbers: Numbers, store: Store) -> None:
    store.create_topic("t")
    for _ in range(2):
        write(numbers(0, 10), store.uri, "t", txnAppId="job", txnVersion=7)
    write(numbers(10, 20), store.uri, "t", {"txnAppId": "job", "txnVersion": 8})
    with pytest.raises(BatchRefused, match="with other rows"):
        write(numbers(20, 30), store.uri, "t", txnAppId="job", txnVersion=8, onReplayMismatch="fail")
    assert sorted(stored(store)) == list(range(20))


def test_a_version_that_one_way_wrote_is_known_to_the_other(numbers: Numbers, store: Store) -> None:
    """Rows of the same sizes are other rows: both ways have digests of one kind."""
    store.create_topic("t", 3)

    def written(frame: DataFrame, version: int) -> None:
        options = {"topic": "t", "txnAppId": "job", "txnVersion": str(version), "onReplayMismatch": "fail"}
        frame.write.format("txnlog").mode("append").options(**options).save(store.uri)

    def called(frame: DataFrame, version: int) -> None:
        write(frame, store.uri, "t", txnAppId="job", txnVersion=version, onReplayMismatch="fail")

    for version, (first, other) in enumerate([(written, called), (called, written)]):
        start = 10 + 10 * version
        first(numbers(start, start + 10, key="cast(id as string)"), version)
        other(numbers(start, start + 10, key="cast(id as string)"), version)
        with pytest.raises(Exception, match="with other rows"):
            other(numbers(start + 20, start + 30, key="cast(id as string)"), version)
    assert sorted(stored(store)) == list(range(10, 30))


def test_text_that_is_not_utf8_is_refused_by_each_way(spark: SparkSession, store: Store) -> None:
    """Spark's casts from bytes to text do not check it, and readers of the segment do."""
    store.create_topic("typed", 1, schema=pa.schema([("name", pa.string())]))
    rows = spark.sql("select cast(unhex('78ff') as string) name")
    with pytest.raises(Exception, match="column 'name' has a value that its type does not allow"):
        write(rows, store.uri, "typed")
    with pytest.raises(Exception, match="column 'name' has a value that its type does not allow"):
        rows.write.format("txnlog").mode("append").option("topic", "typed").save(store.uri)
    assert not store.view(["typed"]).partitions["typed", 0].log_end_offset


def test_names_of_columns_may_have_dots_and_backticks(spark: SparkSession, store: Store) -> None:
    rows = spark.sql("select id `a.b`, id * 2 `a b``c`, struct(id x) UPPER from range(3)")
    write(rows, store.uri, "t", createTopic=True)
    pyspark_txnlog.foreach_batch(store.uri, topic="t", query_id="q")(rows, 0)
    reader = batch_reader(store)
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    expected = [{"a.b": number, "a b`c": number * 2, "UPPER": {"x": number}} for number in range(3)]
    assert sorted(found, key=str) == sorted([*expected, *expected], key=str)


def test_topics_by_column_typed_topics_and_new_topics(spark: SparkSession, numbers: Numbers, store: Store) -> None:
    store.create_topic("even", 2)
    store.create_topic("odd", 2)
    write(numbers(0, 20, key="cast(id as string)", topic="if(id % 2 = 0, 'even', 'odd')"), store.uri)
    assert sorted(stored(store, "even")) == list(range(0, 20, 2))
    store.create_topic("typed", 2, schema=pa.schema([("n", pa.int64())]), settings={"partition.key": "n"})
    write(spark.range(10).selectExpr("id n"), store.uri, "typed")
    reader = batch_reader(store, subscribe="typed")
    assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 10
    write(numbers(0, 5), store.uri, "new", createTopic=True, createTopicPartitions=2)
    assert sorted(stored(store, "new")) == list(range(5))


def test_a_write_that_is_refused_or_fails_shows_nothing(numbers: Numbers, spark: SparkSession, store: Store) -> None:
    store.create_topic("t", 2)
    before = store.view(["t"]).entry
    with pytest.raises(ConfigurationError, match="did you mean 't'"):
        write(numbers(0, 5), store.uri, "tt")
    with pytest.raises(ConfigurationError, match="column 'other' is not part"):
        write(numbers(0, 5, other="id"), store.uri, "t")
    with pytest.raises(TypeError, match="df is"):
        write("rows", store.uri, "t")  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"column 'partition' has \d"):
        write(numbers(0, 5, partition="cast(id * 9 as int)"), store.uri, "t")
    assert store.view(["t"]).entry == before
    assert stored(store) == {}


@pytest.mark.parametrize("order", ["commit", pytest.param("offset", marks=pytest.mark.nightly)])
def test_a_stream_is_scanned_and_in_commit_order_each_transaction_is_whole(
    spark: SparkSession, store: Store, tmp_path: Path, order: str
) -> None:
    store.create_topic("t", 2)
    for start in range(0, 30, 10):
        commit(store, range(start, start + 10))
    batches: dict[int, list[int]] = {}
    native: list[bool] = []

    def note(rows: DataFrame, batch_id: int) -> None:
        native.append("FileScan parquet" in str(rows._jdf.queryExecution().executedPlan()))
        batches[batch_id] = values(rows)

    def run(**options: int) -> None:
        query = scan_stream(spark, store.uri, "t", note, {"startingOffsets": "earliest", "order": order, **options})
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query.start().awaitTermination()

    run(maxOffsetsPerTrigger=10)
    if order == "commit":
        assert list(batches.values()) == [list(range(10)), list(range(10, 20)), list(range(20, 30))]
    else:
        assert len(batches) > 1
        assert sorted(number for batch in batches.values() for number in batch) == list(range(30))
    before = len(batches)
    commit(store, range(30, 40))
    run()
    assert batches[before] == list(range(30, 40))
    # A micro-batch that ends within a file reads it through Python.
    assert all(native if order == "commit" else [native[0], native[-1]])


def test_a_micro_batch_whose_function_failed_is_repeated(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    store.create_topic("t")
    commit(store, range(10))
    seen: list[tuple[int, list[int]]] = []

    def fail_once(rows: DataFrame, batch_id: int) -> None:
        seen.append((batch_id, values(rows)))
        if len(seen) == 1:
            raise RuntimeError("once")

    for run in range(2):
        query = scan_stream(spark, store.uri, ["t"], fail_once, startingOffsets="earliest")
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        started = query.start()
        if run == 0:
            with pytest.raises(Exception, match="once"):
                started.awaitTermination()
            commit(store, range(10, 20))
        else:
            started.awaitTermination()
    assert seen == [(0, list(range(10))), (0, list(range(10))), (1, list(range(10, 20)))]


@pytest.mark.parametrize("way", ["driver", "tasks", "write"])
def test_rows_are_refused_by_what_the_log_says_now(
    spark: SparkSession, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Tasks know the topics as the driver did, which had read the log a moment before another process changed it."""
    store.create_topic("t", settings={"max.message.bytes": "100"})
    rows = spark.range(2).selectExpr("repeat('x', 500) AS value")
    monkeypatch.setattr(foreach, "DRIVER_BYTES_MAX", 1 if way == "tasks" else foreach.DRIVER_BYTES_MAX)
    batch = foreach_batch(store.uri, topic="t", query_id=way)

    def put() -> None:
        write(rows, store.uri, "t") if way == "write" else batch(rows, 0)

    with pytest.raises(Exception, match="allows 100"):
        put()
    elsewhere = tmp_path / "same"
    elsewhere.symlink_to(store.uri, target_is_directory=True)
    with AdminClient({"bootstrap.servers": str(elsewhere)}) as admin:
        entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("topic", "t", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result()
    put()
    assert spark.read.format("txnlog").option("subscribe", "t").load(store.uri).count() == 2
