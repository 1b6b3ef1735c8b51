"""Keyed topics written by Spark: upserts and deletes, and a key twice in a batch, by each way of writing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from pyspark_txnlog import foreach_batch, upsert, write, write_stream
from pyspark_txnlog.writing import foreach
from sparktxn import ConfigurationError, Store, read_arrow
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from sparktxn.maintenance import compact, vacuum, verify
from sparktxn.store import repeatedkeys
from tests.seeds import seed_of
from tests.spark.clusters import PATHS, finished
from tests.spark.sessions import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), ("size", pa.float64())])

TWICE = "more than once, and rows of a frame have no order: set the option lastBy"


@pytest.fixture
def keyed(store: Store) -> Store:
    """A store with the keyed topic ``keyed`` and the topic ``plain``, both with declared columns."""
    store.create_topic("keyed", 3, settings={"primary.key": "id"}, schema=SCHEMA)
    store.create_topic("plain", schema=SCHEMA)
    return store


def table(spark: SparkSession, *rows: tuple[Any, ...], columns: str = "id long, name string, size double") -> DataFrame:
    """Rows in two tasks."""
    return spark.createDataFrame([*rows], columns).repartition(2)


def df_write(frame: DataFrame, store: Store, topic: str = "keyed", **options: str) -> None:
    frame.write.format("txnlog").mode("append").options(topic=topic, **options).save(store.uri)


def called(frame: DataFrame, store: Store, topic: str = "keyed", **options: str) -> None:
    write(frame, store.uri, topic, options)


def upserted(frame: DataFrame, store: Store, topic: str = "keyed", **options: str) -> None:
    upsert(frame, store.uri, topic, options)


def batched(frame: DataFrame, store: Store, topic: str = "keyed", **options: str) -> None:
    """As a micro-batch; a stream says what a key twice means."""
    given: dict[str, Any] = {"lastBy": "unique", **options}
    foreach_batch(store.uri, topic=topic, query_id="q", **given)(frame, store.view().entry)


def batched_by_tasks(frame: DataFrame, store: Store, topic: str = "keyed", **options: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(foreach, "DRIVER_BYTES_MAX", 1)
        batched(frame, store, topic, **options)


WAYS: Mapping[str, Callable[..., None]] = {
    "df.write": df_write,
    "write": called,
    "upsert": upserted,
    "foreach_batch": batched,
    "by tasks": batched_by_tasks,
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[..., None]:
    """A way of writing a frame."""
    return WAYS[request.param]


def latest(store: Store) -> dict[Any, tuple[Any, ...]]:
    rows = read_arrow(store, "keyed").read_all().select(["id", "name", "size"]).to_pylist()
    return {row["id"]: (row["name"], row["size"]) for row in rows}


def stored(store: Store) -> int:
    return len(read_arrow(store, "keyed", rows="all").read_all())


def test_rows_are_upserts_and_with_deleted_deletes(spark: SparkSession, keyed: Store, way: Callable[..., None]) -> None:
    way(table(spark, (1, "a", 1.0), (2, "b", 2.0), (3, None, None), (4, "d", 4.0)), keyed)
    assert latest(keyed) == {1: ("a", 1.0), 2: ("b", 2.0), 3: (None, None), 4: ("d", 4.0)}
    before = keyed.view().entry
    columns = "id int, name string, size float, _deleted boolean"
    way(table(spark, (1, "x", 9.0, True), (2, "B", 5.0, None), (5, "e", 0.5, False), columns=columns), keyed)
    assert latest(keyed) == {2: ("B", 5.0), 3: (None, None), 4: ("d", 4.0), 5: ("e", 0.5)}
    assert keyed.view().entry <= before + 2, "one entry, and one for the producer"
    [deleted] = read_arrow(keyed, "keyed", rows="all", where=[("_deleted", "=", True)]).read_all().to_pylist()
    assert (deleted["id"], deleted["name"], deleted["size"]) == (1, None, None)


@pytest.mark.parametrize(
    ("expressions", "named"),
    [
        (["id"], "column 'name' of topic 'keyed' is missing: an upsert is a whole row"),
        (["id", "'x' name"], "column 'size' of topic 'keyed' is missing"),
        (["'x' name", "1D size"], "column 'id' of topic 'keyed' is missing"),
        (["if(id = 1, null, id) id", "'x' name", "1D size"], "column 'id' of topic 'keyed' may not be null"),
        (["cast(id as double) id", "'x' name", "1D size"], "column 'id' of topic 'keyed' has type double"),
        (["id", "'x' name", "'y' size"], "column 'size' of topic 'keyed' has type string"),
        (["id", "'x' name", "1D size", "'no' _deleted"], "column '_deleted'"),
        (["id", "'x' name", "1D size", "0 partition"], "column 'partition' is not declared"),
        (["id", "false _deleted"], "column 'name' of topic 'keyed' is missing"),
    ],
)
def test_rows_that_are_no_upserts_are_refused_before_anything_is_committed(
    spark: SparkSession, keyed: Store, expressions: list[str], named: str
) -> None:
    entry = keyed.view().entry
    for put in (df_write, upserted, batched):
        with pytest.raises(Exception, match=named):
            put(spark.range(1, 4).selectExpr(*expressions), keyed)
    assert keyed.view().entry == entry
    assert stored(keyed) == 0


def test_a_frame_of_deletes_alone_needs_the_key_alone(
    spark: SparkSession, keyed: Store, way: Callable[..., None]
) -> None:
    way(table(spark, (1, "a", 1.0), (2, "b", 2.0)), keyed)
    way(spark.range(1, 2).selectExpr("id", "true _deleted"), keyed)
    assert latest(keyed) == {2: ("b", 2.0)}


def test_a_setting_lets_upserts_lack_columns(spark: SparkSession, keyed: Store) -> None:
    with AdminClient({"bootstrap.servers": keyed.uri}) as admin:
        setting = ConfigEntry("upsert.missing", "null", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("topic", "keyed", incremental_configs=[setting])
        admin.incremental_alter_configs([resource])[resource].result()
    upsert(spark.range(1, 3).selectExpr("id", "'x' name"), keyed.uri, "keyed")
    assert latest(keyed) == {1: ("x", None), 2: ("x", None)}


def test_a_new_column_is_added_and_that_of_last_by_is_not(spark: SparkSession, keyed: Store) -> None:
    columns = "id long, name string, size double, city string, seq int"
    rows = table(spark, (1, "a", 1.0, "Oslo", 1), (1, "b", 2.0, "Turin", 2), columns=columns)
    upsert(rows, keyed.uri, "keyed", lastBy="seq", mergeSchema=True)
    assert read_arrow(keyed, "keyed").read_all().select(["name", "city"]).to_pylist() == [
        {"name": "b", "city": "Turin"}
    ]
    assert "seq" not in [name for name, _, _ in keyed.view(["keyed"]).topics["keyed"].schema or ()]


# A key twice in a batch.


@pytest.mark.parametrize(("partitions", "same"), [(1, True), (2, False)])
def test_a_key_twice_is_refused_and_named(
    spark: SparkSession, keyed: Store, way: Callable[..., None], partitions: int, same: bool
) -> None:
    """In one task as in two, and of equal rows too."""
    rows = spark.range(0, 40, numPartitions=partitions).selectExpr(
        "if(id = 35, 3, id) id", f"concat('n', {'3' if same else 'id'}) name", "1D size"
    )
    entry = keyed.view().entry
    with pytest.raises(Exception, match=f"key '3' of topic 'keyed' is in this batch {TWICE}"):
        way(rows, keyed)
    assert keyed.view().entry == entry
    way(rows.dropDuplicates(["id"]), keyed)
    assert len(latest(keyed)) == 39


def test_two_keys_with_one_hash_are_two_keys(
    spark: SparkSession, keyed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hash only says where to look."""
    monkeypatch.setattr(repeatedkeys, "repeated_words", lambda words: words)
    batched(table(spark, (1, "a", 1.0), (2, "b", 2.0)), keyed)
    assert set(latest(keyed)) == {1, 2}


@pytest.mark.parametrize("spread", ["one task", "two tasks"])
def test_above_the_limit_staged_keys_are_read_back(
    keyed: Store, spread: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's part of the sink, with messages of tasks that had too many keys for hashes."""
    from pyspark_txnlog.options.options import WRITE, WriteOptions
    from pyspark_txnlog.writing.batch_writer import StagedRows, TxnLogWriter

    monkeypatch.setattr(repeatedkeys, "_ROWS_AT_ONCE", 7)
    options = WriteOptions.parse({"path": keyed.uri, "topic": "keyed"}, WRITE)
    frame = spark.createDataFrame([], "id long, name string, size double")
    writer = TxnLogWriter(options, frame.schema, False)
    plan = keyed.stage_plan(["keyed"])

    def staged(*ids: int) -> StagedRows:
        stager = plan.open(seed=0, default_topic="keyed", inline=spread == "one task")
        stager.write(pa.table({"id": ids, "name": ["n"] * len(ids), "size": [1.0] * len(ids)}, SCHEMA))
        return StagedRows(tuple(stager.finish()), None)

    wrong = [staged(*range(50), 41)] if spread == "one task" else [staged(*range(50)), staged(*range(49, 60))]
    with pytest.raises(ConfigurationError, match="key '41'" if spread == "one task" else "key '49'"):
        writer.commit(wrong)
    assert stored(keyed) == 0
    writer.commit([staged(*range(50)), staged(*range(50, 60))])
    assert len(latest(keyed)) == 60


# lastBy.


def changes(spark: SparkSession, partitions: int = 2) -> DataFrame:
    """Of 10 keys 5 rows each, the last one by `seq` with the number 4; and the same rows again."""
    rows = spark.range(0, 50, numPartitions=partitions).selectExpr(
        "id % 10 id", "concat('n', id div 10) name", "cast(id as double) size", "id div 10 seq"
    )
    return rows.union(rows)


def test_last_by_says_which_row_is_the_last(spark: SparkSession, keyed: Store, way: Callable[..., None]) -> None:
    rows = changes(spark)
    way(rows.repartition("id") if way is df_write else rows, keyed, lastBy="seq")
    assert latest(keyed) == {number: ("n4", float(40 + number)) for number in range(10)}
    assert stored(keyed) == 10


def test_a_declared_column_and_several_may_say_it(spark: SparkSession, keyed: Store) -> None:
    rows = table(spark, (1, "a", 1.0), (1, "b", 1.0), (1, "z", 0.5), (2, "x", float("nan")), (2, "y", 9.0))
    upsert(rows, keyed.uri, "keyed", lastBy=["size", "name"])
    assert latest(keyed)[1] == ("b", 1.0)
    assert latest(keyed)[2][0] == "x", "NaN is above all numbers, as Spark orders them"


def test_a_delete_may_be_the_last_row(spark: SparkSession, keyed: Store, way: Callable[..., None]) -> None:
    columns = "id long, name string, size double, _deleted boolean, seq int"
    rows = table(
        spark,
        (1, "a", 1.0, False, 1),
        (1, "junk", 9.0, True, 2),
        (1, "other", 8.0, True, 2),
        (2, None, None, True, 1),
        (2, "b", 2.0, None, 2),
        columns=columns,
    )
    way(rows.repartition(1) if way is df_write else rows, keyed, lastBy="seq")
    assert latest(keyed) == {2: ("b", 2.0)}


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([(1, "a", 1.0, 1), (1, "b", 1.0, 1)], "two rows of key '1' for topic 'keyed' differ, and are equal in seq"),
        ([(1, "a", 1.0, 1), (1, "b", 1.0, 1), (1, "c", 1.0, 2)], "two rows of key '1'"),
        ([(1, "a", 1.0, 1), (2, "b", 1.0, None)], "column 'seq' of the option 'lastBy' is null in at least one row"),
    ],
)
def test_rows_of_which_none_is_the_last_are_refused(
    spark: SparkSession, keyed: Store, way: Callable[..., None], rows: list[tuple[Any, ...]], named: str
) -> None:
    frame = table(spark, *rows, columns="id long, name string, size double, seq int").repartition(1)
    entry = keyed.view().entry
    with pytest.raises(Exception, match=named):
        way(frame, keyed, lastBy="seq")
    assert keyed.view().entry == entry


def test_last_by_over_tasks_of_the_sink_names_what_to_write(spark: SparkSession, keyed: Store) -> None:
    entry = keyed.view().entry
    rows = changes(spark)
    with pytest.raises(Exception, match=r"in several tasks of this batch.*upsert\(\).*df.repartition\('id'\)"):
        df_write(rows, keyed, lastBy="seq")
    assert keyed.view().entry == entry


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"lastBy": "sequ"}, "names column 'sequ', and the rows have id, name, size, seq, parts; did you mean 'seq'"),
        ({"lastBy": "parts"}, "names column 'parts' of type array"),
        ({"lastBy": "id"}, "which all rows of a key have in common"),
        ({"lastBy": "seq,,"}, "names separated by commas"),
        ({"sequenceBy": "seq"}, "unknown option 'sequenceBy' for write of txnlog: set 'lastBy' to these columns"),
        ({"uniqueKeys": "true"}, "unknown option 'uniqueKeys' for write of txnlog: set 'lastBy' to 'unique'"),
        ({"partitionKey": "id"}, "which alone chooses the partition"),
    ],
)
def test_wrong_options_are_refused(spark: SparkSession, keyed: Store, options: dict[str, str], named: str) -> None:
    rows = spark.range(3).selectExpr("id", "'n' name", "1D size", "id seq", "array(id) parts")
    for put in (df_write, called, upserted):
        with pytest.raises(Exception, match=named):
            put(rows.select("id", "name", "size") if "partitionKey" in options else rows, keyed, **options)


def test_topics_without_a_key_take_no_such_writes(spark: SparkSession, keyed: Store) -> None:
    rows = table(spark, (1, "a", 1.0))
    for put, named in ((df_write, "option 'lastBy' is for topics with a key"), (upserted, "is for topics with a key")):
        with pytest.raises(Exception, match=f"{named}.*topic 'plain' has no key"):
            put(rows, keyed, "plain", lastBy="size")
    with pytest.raises(ConfigurationError, match="'new' does not exist: create it before"):
        upsert(rows, keyed.uri, "new", createTopic=True)
    assert {topic.name for topic in keyed.topics()} == {"keyed", "plain"}
    with pytest.raises(TypeError):
        upsert(rows, keyed.uri, "keyed", lastBy=3.5)
    with pytest.raises(ConfigurationError, match="no comma"):
        upsert(rows, keyed.uri, "keyed", lastBy=["a,b"])


def test_a_version_is_written_once_by_each_way(spark: SparkSession, keyed: Store) -> None:
    """The rows are those that are the last: both ways know them by the same digest."""
    options = {"txnAppId": "job", "txnVersion": "7", "lastBy": "seq", "onReplayMismatch": "fail"}
    df_write(changes(spark).repartition(1), keyed, **options)
    entry = keyed.view().entry
    upserted(changes(spark), keyed, **options)
    assert keyed.view().entry == entry
    assert stored(keyed) == 10


# Retried tasks.


@pytest.mark.nightly
def test_an_attempt_that_failed_is_not_a_key_twice(keyed: Store) -> None:
    """Of a task only the attempt that ended well counts, by the sink and by upsert(), with and without lastBy."""
    environment = {**os.environ, **QUICK_JAVA, "PYTHONPATH": PATHS, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "tests.spark.retried_job", keyed.uri]
    done = finished(command, environment | {"SPARK_LOCAL_IP": "127.0.0.1"}, 200)
    assert done.code == 0, done.stderr[-4000:]
    assert "first attempts: 4" in done.stdout
    assert latest(keyed) == {number: (f"n{number}", 4.0) for number in range(30)}
    assert stored(keyed) == 4 * 30


# Streams.


def test_a_stream_says_what_a_key_twice_means(spark: SparkSession, keyed: Store, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value id", "'n' name", "1D size")
    with pytest.raises(ConfigurationError, match="set the option lastBy"):
        write_stream(stream, keyed.uri, "keyed")
    with pytest.raises(ConfigurationError, match="set the option lastBy"):
        write_stream(stream, keyed.uri, "keyed", mergeSchema=True)
    with pytest.raises(ConfigurationError, match="set the option lastBy"):
        foreach_batch(keyed.uri, topic="keyed", query_id="q")(spark.range(1).selectExpr("id", "'n' name", "1D size"), 0)
    with pytest.raises(ConfigurationError, match="unknown option 'sequenceBy' for writeStream"):
        write_stream(stream, keyed.uri, "keyed", sequenceBy="id")
    sink = stream.writeStream.format("txnlog").option("path", keyed.uri).option("topic", "keyed")
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match="set the option lastBy"):
        query.awaitTermination(60)
    assert stored(keyed) == 0


def run(writer: Any, checkpoint: Path, mode: str = "append") -> None:
    query = writer.option("checkpointLocation", str(checkpoint)).outputMode(mode).trigger(availableNow=True).start()
    query.awaitTermination()


def source(spark: SparkSession, folder: Path, *rows: tuple[Any, ...]) -> DataFrame:
    frame = spark.createDataFrame([*rows], "id long, name string, size double, seq int")
    frame.coalesce(1).write.mode("append").parquet(str(folder))
    return spark.readStream.schema(frame.schema).parquet(str(folder))


@pytest.mark.parametrize("sink", [False, True])
def test_a_stream_upserts_and_a_repeated_micro_batch_is_known(
    spark: SparkSession, keyed: Store, tmp_path: Path, sink: bool
) -> None:
    def go(rows: DataFrame) -> None:
        if sink:
            sink_of = rows.writeStream.format("txnlog").options(topic="keyed", lastBy="seq", onReplayMismatch="fail")
            run(sink_of.option("path", keyed.uri), tmp_path / "checkpoint")
        else:
            writer = write_stream(rows, keyed.uri, "keyed", lastBy="seq", onReplayMismatch="fail")
            run(writer, tmp_path / "checkpoint")

    go(source(spark, tmp_path / "in", (1, "a", 1.0, 1), (1, "b", 2.0, 2), (2, "c", 3.0, 1)))
    assert latest(keyed) == {1: ("b", 2.0), 2: ("c", 3.0)}
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    go(source(spark, tmp_path / "in", (1, "z", 9.0, 0)))
    assert latest(keyed) == {1: ("z", 9.0), 2: ("c", 3.0)}, (
        "the later commit wins, whatever its rows say of their order"
    )
    assert stored(keyed) == 3


def test_update_mode_is_the_latest_value_of_each_group_and_complete_is_refused(
    spark: SparkSession, keyed: Store, tmp_path: Path
) -> None:
    def sums(*rows: tuple[Any, ...]) -> DataFrame:
        rows_in = source(spark, tmp_path / "in", *rows)
        return rows_in.groupBy("id").agg(F.max("name").alias("name"), F.sum("size").alias("size"))

    for place, rows in enumerate([[(1, "a", 1.0, 0), (2, "b", 2.0, 0)], [(1, "c", 4.0, 0)]]):
        run(write_stream(sums(*rows), keyed.uri, "keyed", lastBy="unique"), tmp_path / "checkpoint", "update")
        assert latest(keyed) == {1: ("a", 1.0), 2: ("b", 2.0)} | ({1: ("c", 5.0)} if place else {})
    assert stored(keyed) == 3
    entry = keyed.view().entry
    writer = write_stream(sums((3, "d", 1.0, 0)), keyed.uri, "keyed", lastBy="unique")
    with pytest.raises(Exception, match=r"output mode 'complete'.*outputMode\('update'\)"):
        run(writer, tmp_path / "complete", "complete")
    sink = sums((3, "d", 1.0, 0)).writeStream.format("txnlog").options(topic="keyed", lastBy="unique")
    with pytest.raises(Exception, match=r"output mode 'complete'.*outputMode\('update'\)"):
        run(sink.option("path", keyed.uri), tmp_path / "sink", "complete")
    assert keyed.view().entry == entry


def test_outputs_may_have_topics_with_and_without_a_key(spark: SparkSession, keyed: Store) -> None:
    rows = table(spark, (1, "a", 1.0), (1, "b", 2.0))
    both = foreach_batch(keyed.uri, lambda frame, _: {"keyed": frame, "plain": frame}, query_id="q", lastBy="size")
    both(rows, 0)
    assert latest(keyed) == {1: ("b", 2.0)}
    assert len(read_arrow(keyed, "plain").read_all()) == 2


# SQL.


@pytest.fixture
def tables(spark: SparkSession, keyed: Store) -> Iterator[None]:
    """The table ``latest`` of the latest rows, and ``changes`` of all rows."""
    for name, more in (("latest", ", lastBy 'size'"), ("changes", ", rows 'all'")):
        spark.sql(f"CREATE TABLE {name} USING txnlog OPTIONS (path '{keyed.uri}', topic 'keyed'{more})")
    yield
    for name in ("latest", "changes"):
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.usefixtures("tables")
def test_insert_upserts_and_into_a_table_of_all_rows_deletes(spark: SparkSession, keyed: Store) -> None:
    spark.sql("INSERT INTO latest VALUES (1, 'a', 1D), (2, 'b', 2D), (3, 'c', 3D)")
    spark.sql("INSERT INTO latest SELECT id, 'B', size * 2 FROM latest WHERE id = 2")
    assert latest(keyed) == {1: ("a", 1.0), 2: ("B", 4.0), 3: ("c", 3.0)}
    spark.sql("INSERT INTO changes (id, _deleted) SELECT id, true FROM latest WHERE size < 2")
    spark.sql("INSERT INTO changes VALUES (3, 'C', 3D, false), (4, 'd', 4D, null)")
    expected = {2: ("B", 4.0), 3: ("C", 3.0), 4: ("d", 4.0)}
    assert latest(keyed) == expected
    assert {row.id: (row.name, row.size) for row in spark.table("latest").collect()} == expected
    assert spark.table("changes").where("_deleted").count() == 1
    with pytest.raises(Exception, match=f"key '6' of topic 'keyed' is in this batch {TWICE}"):
        spark.sql("INSERT INTO changes VALUES (6, 'a', 1D, null), (6, null, null, true)")
    # Spark passes on none of the table's options where the rows have just its columns.
    into = f"INSERT INTO latest WITH (path '{keyed.uri}', topic 'keyed', lastBy 'size')"
    rows = "SELECT id % 2 + 7 id, 'x' name, cast(id as double) size FROM range(0, 20, 1, 2)"
    with pytest.raises(Exception, match=r"several tasks.*DISTRIBUTE BY id"):
        spark.sql(f"{into} {rows}")
    assert latest(keyed) == expected
    spark.sql(f"{into} SELECT * FROM ({rows}) DISTRIBUTE BY id")
    assert latest(keyed) == expected | {7: ("x", 18.0), 8: ("x", 19.0)}
    spark.sql("INSERT INTO latest SELECT /*+ COALESCE(1) */ 9L, 'y', cast(id as double) FROM range(5)")
    assert latest(keyed)[9] == ("y", 4.0), "a table keeps lastBy"


@pytest.mark.nightly
def test_an_aggregate_that_is_killed_again_and_again_is_the_latest_value_of_each_group(tmp_path: Path) -> None:
    """Compaction and vacuums run between its lives, alongside what a killed driver has left."""
    random = Random(seed_of("killed aggregate", 1))
    expected: Counter[int] = Counter()
    (tmp_path / "in").mkdir()
    for number in range(12):
        some = [(random.randrange(40), random.randrange(100)) for _ in range(200)]
        for key, value in some:
            expected[key] += value
        columns = {"id": [key for key, _ in some], "value": [value for _, value in some]}
        pa.parquet.write_table(pa.table(columns), tmp_path / "in" / f"{number:02}.parquet")
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("total", pa.int64())])
    store = Store.open(str(tmp_path / "store"), create=True)
    eager = {"primary.key": "id", "min.cleanable.dirty.ratio": "0"}
    store.create_topic("totals", 2, settings=eager, schema=columns)
    environment = {**os.environ, **QUICK_JAVA, "PYTHONPATH": PATHS, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "tests.spark.killed_keyed_job", store.uri, str(tmp_path)]
    for _ in range(4):
        job = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
        entry = store.view().entry + random.randint(1, 3)
        while store.view().entry < entry and job.poll() is None:
            time.sleep(0.05)
        time.sleep(random.uniform(0, 0.5))
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        compact(store)
        vacuum(store)
    done = finished(command, environment, 200)
    assert done.code == 0, done.stderr[-4000:]
    totals = read_arrow(store, "totals", columns=["id", "total"]).read_all().to_pylist()
    assert {row["id"]: row["total"] for row in totals} == expected
    assert len(totals) == len(expected)
    assert verify(store).problems == ()
    store.close()
