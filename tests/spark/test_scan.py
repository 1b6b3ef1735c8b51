"""`scan()`: the rows of ``format("txnlog")`` in any store, read by Spark's own Parquet reader."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog import scan
from sparktxn import ConfigurationError, Producer, Store, TopicPartition, read_arrow
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.spark.readers import batch_reader, commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TOPICS = ("a", "b.c")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    options = {"store.fsync": False, "checkpoint.entries": 20, "checkpoint.seal.segments": 2}
    with Store.open(str(tmp_path / "a store"), create=True, options=options) as opened:
        yield opened


class History:
    """A random history of a store: overlapping, aborted and open transactions, both formats, several topics."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._random = random.Random(seed)
        self._admin = AdminClient({"bootstrap.servers": store.uri})
        self._number = 0
        self._producers: list[Producer] = []
        self._open: set[int] = set()
        for topic in TOPICS:
            store.create_topic(topic, 2)
        store.create_topic("empty", 2)

    def run(self, steps: int) -> None:
        for name in range(3):
            producer = Producer({"bootstrap.servers": self._store.uri, "transactional.id": f"p{name}"})
            producer.init_transactions()
            self._producers.append(producer)
        for _ in range(steps):
            self._step()

    def close(self) -> None:
        for producer in self._producers:
            producer.close()

    def _step(self) -> None:
        index = self._random.randrange(len(self._producers))
        producer = self._producers[index]
        if index not in self._open:
            producer.begin_transaction()
            self._open.add(index)
        for _ in range(self._random.randrange(1, 4)):
            self._number += 1
            topic = self._random.choice(TOPICS)
            headers = [("h", str(self._number).encode())] if self._random.random() < 0.2 else None
            key = None if self._random.random() < 0.3 else f"k{self._number}"
            producer.produce(topic, f"{self._number}", key=key, headers=headers, timestamp=1_000 + self._number)
        producer.flush()
        chance = self._random.random()
        if chance < 0.6:
            producer.commit_transaction() if chance < 0.4 else producer.abort_transaction()
            self._open.discard(index)
        if self._random.random() < 0.1:
            self._change_format()

    def _change_format(self) -> None:
        entry = ConfigEntry(
            "segment.format",
            self._random.choice(["arrow", "parquet"]),
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.TOPIC, self._random.choice(TOPICS), incremental_configs=[entry])
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result()


@pytest.fixture(params=[1, 2])
def history(store: Store, request: pytest.FixtureRequest) -> Iterator[History]:
    made = History(store, request.param)
    made.run(30)
    yield made
    made.close()


def expected(store: Store, topics: str, **options: str) -> pa.Table:
    """What the Python source reads, in this process."""
    reader = batch_reader(store, subscribe=topics, **options)
    return pa.Table.from_batches([batch for part in reader.partitions() for batch in reader.read(part)], reader.target)


def rows_of(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.to_pylist())


def check_same(frame: DataFrame, wanted: pa.Table) -> None:
    found = frame.toArrow()
    assert found.schema.types == wanted.schema.types
    assert rows_of(found) == rows_of(wanted)


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan())


def python_rows(frame: DataFrame) -> bool:
    """True if some rows come through Python."""
    return "MapInArrow" in plan_of(frame)


ALL = ",".join((*TOPICS, "empty"))


def test_rows_are_those_of_the_python_source(spark: SparkSession, store: Store, history: History) -> None:
    view = store.view(["a"])
    low = view.partitions["a", 0].log_start_offset + 3
    ends = {"a": {"0": 7, "1": 6}, "b.c": {"0": -1, "1": -1}, "empty": {"0": -1, "1": -1}}
    starts = {"a": {"0": low, "1": -2}, "b.c": {"0": 2, "1": -2}, "empty": {"0": -2, "1": -2}}
    cases: list[dict[str, str]] = [
        {"includeHeaders": "true", "includeTxnMetadata": "true"},
        {"isolationLevel": "read_uncommitted"},
        {"order": "offset"},
        {"columns": "offset,value,topic"},
        {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)},
        {"startingTimestamp": "1010", "endingTimestamp": "1030", "startingOffsetsByTimestampStrategy": "latest"},
        {"asOfEntry": f"{view.entry // 2}"},
        {"startingEntry": f"{view.entry // 3}", "endingEntry": f"{view.entry // 2}"},
    ]
    for options in cases:
        check_same(scan(spark, store.uri, ALL, options), expected(store, ALL, **options))


def test_records_below_the_log_start_are_not_read(spark: SparkSession, store: Store) -> None:
    store.create_topic("t")
    commit(store, range(10))
    commit(store, range(10, 20))
    for future in AdminClient({"bootstrap.servers": store.uri}).delete_records([TopicPartition("t", 0, 4)]).values():
        future.result()
    found = scan(spark, store.uri, "t")
    assert sorted(int(bytes(row.value)) for row in found.collect()) == list(range(4, 20))
    # Of the second segment all rows are read, by Spark; of the first some, by the driver: they are few.
    assert "FileScan parquet" in plan_of(found)
    assert re.search(r"LocalTableScan \[driver_has_read_1_cut_\d+_rows#", plan_of(found)), plan_of(found)
    assert not python_rows(found)


@pytest.mark.parametrize("columns", ["key", "value", "timestamp", "partition", "topic", "offset"])
def test_only_columns_that_are_asked_for_are_read_from_files(spark: SparkSession, store: Store, columns: str) -> None:
    store.create_topic("t", 2)
    commit(store, range(10))
    plan = plan_of(scan(spark, store.uri, "t").select(columns))
    schema = plan[plan.index("ReadSchema") :]
    for stored in ("key", "value", "timestamp", "headers"):
        assert (f"{stored}:" in schema) is (stored == columns)
    assert "Join" not in plan
    assert "MapInArrow" not in plan


def test_rows_are_numbered_only_for_queries_that_use_the_offset(spark: SparkSession, store: Store) -> None:
    store.create_topic("t", 2)
    commit(store, range(10))
    found = scan(spark, store.uri, "t")
    for unnumbered in (found.groupBy().count(), found.selectExpr("sum(length(value))"), found.where("partition = 1")):
        assert "row_index" not in plan_of(unnumbered.drop("offset")), plan_of(unnumbered)
    assert "row_index" in plan_of(found.select("offset"))


def test_offsets_are_the_same_in_joins_of_a_frame_with_itself(spark: SparkSession, store: Store) -> None:
    store.create_topic("t", 2)
    commit(store, range(10))
    commit(store, range(10, 30))
    one = scan(spark, store.uri, "t")
    both = one.alias("one").join(one.alias("two"), ["partition", "offset"]).where("one.value = two.value")
    assert both.count() == one.count() == 30
    assert one.where("offset >= 3").union(one.where("offset < 3")).distinct().count() == 30


@pytest.mark.parametrize("setting", ["spark.sql.parquet.enableVectorizedReader", "spark.sql.codegen.wholeStage"])
def test_offsets_do_not_depend_on_how_spark_runs_a_query(spark: SparkSession, store: Store, setting: str) -> None:
    store.create_topic("t", 2)
    commit(store, range(10))
    spark.conf.set(setting, "false")
    try:
        found = scan(spark, store.uri, "t", includeTxnMetadata=True)
        check_same(found, expected(store, "t", includeTxnMetadata="true"))
        assert found.where("offset < 3").count() == 6
    finally:
        spark.conf.unset(setting)


def test_a_filter_on_the_partition_leaves_out_files(spark: SparkSession, store: Store) -> None:
    store.create_topic("t", 2)
    commit(store, range(10), partition=0)
    commit(store, range(10, 20), partition=1)
    found = scan(spark, store.uri, "t").where("partition = 1")
    assert sorted(row.offset for row in found.collect()) == list(range(10))
    assert "PartitionFilters: [isnotnull(kafka_partition" in plan_of(found)


def test_columns_that_a_segments_rows_share_are_looked_up_only_where_they_are_asked_for(
    spark: SparkSession, store: Store
) -> None:
    store.create_topic("t", 2, settings={"message.timestamp.type": "LogAppendTime"})
    commit(store, range(10))
    commit(store, range(10, 20))
    found = scan(spark, store.uri, "t", includeTxnMetadata=True)
    check_same(found, expected(store, "t", includeTxnMetadata="true"))
    assert "binarySearch" in plan_of(found)
    assert "binarySearch" not in plan_of(found.select("key", "value", "partition", "offset"))
    assert "binarySearch" not in plan_of(found.groupBy().count())
    assert found.where("entry = 0").count() == 0
    assert found.selectExpr("min(entry) + 1 = max(entry)").collect() == [(True,)]


@pytest.mark.parametrize("history", [1], indirect=True)
def test_many_rows_that_spark_cannot_read_come_through_its_python_workers(
    spark: SparkSession, store: Store, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"includeHeaders": "true", "includeTxnMetadata": "true"}
    few = scan(spark, store.uri, ALL, options)
    assert not python_rows(few)
    monkeypatch.setattr("pyspark_txnlog.native.native_scan._COLLECTED_ROWS_MAX", 0)
    many = scan(spark, store.uri, ALL, options)
    assert re.search(r"MapInArrow python_reads_(\d+_arrow_)?\d+_inline_\d+_rows", plan_of(many)), plan_of(many)
    check_same(many, few.toArrow())


def test_explain_says_how_many_files_and_rows_spark_reads(spark: SparkSession, store: Store) -> None:
    store.create_topic("t", 2, settings={"append.inline.bytes": "0"})
    commit(store, range(10))
    commit(store, range(10, 20))
    assert "txnlog-scan-4-files-20-rows-" in plan_of(scan(spark, store.uri, "t"))


def test_a_typed_topic_has_its_columns(spark: SparkSession, store: Store) -> None:
    columns = pa.schema(
        [
            ("n", pa.int8()),
            ("a.b", pa.string()),
            ("price", pa.decimal128(9, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("tags", pa.list_(pa.string())),
            ("place", pa.struct([("x", pa.float64()), ("names", pa.list_(pa.string()))])),
        ]
    )
    store.create_topic("typed", 2, schema=columns)
    frame = spark.sql(
        """select cast(id as tinyint) n, concat('n', id) `a.b`, cast(id / 7 as decimal(9, 2)) price,
                  date'1500-02-28' + cast(id as int) day, timestamp'1500-01-01 00:00:00.000001' at,
                  array('t', null) tags, named_struct('x', id / 3, 'names', array('y')) place
           from range(20)"""
    )
    frame.write.format("txnlog").mode("append").option("topic", "typed").save(store.uri)
    check_same(scan(spark, store.uri, "typed"), expected(store, "typed"))
    options = {"columns": "a.b,_offset,_partition,_topic,_timestamp,_entry"}
    check_same(scan(spark, store.uri, "typed", options), expected(store, "typed", **options))


@pytest.mark.parametrize("x", [math.nan, pytest.param(-0.0, marks=pytest.mark.nightly)])
def test_files_whose_statistics_and_dictionaries_lead_spark_astray(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch, x: float
) -> None:
    """As an earlier version wrote them: statistics leave NaN out, and a dictionary has two zeros."""
    paths = ["x", "single", "place.x"]
    monkeypatch.setattr("sparktxn._engine.format.segment.columns_with_statistics", lambda table: paths)
    monkeypatch.setattr("sparktxn._engine.format.segment._repeating_columns", lambda table: paths)
    place = pa.struct([("x", pa.float64())])
    columns = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("single", pa.float32()), ("place", place)])
    store.create_topic("typed", 1, schema=columns, settings={"append.inline.bytes": "0"})
    values = [x, x, None] if x == 0 else [3.0, x, None, 3.0]
    rows = {"x": values, "single": values, "place": [{"x": value} for value in values]}
    with Producer({"bootstrap.servers": store.uri}) as producer:
        producer.produce_arrow("typed", pa.table({"id": range(len(values)), **rows}).cast(columns))
    [file] = store.files("typed")
    chunk = pq.ParquetFile(file.path).metadata.row_group(0).column(1)
    assert chunk.statistics is not None
    assert chunk.has_dictionary_page
    through_python = spark.read.format("txnlog").option("subscribe", "typed").load(store.uri)
    read = scan(spark, store.uri, "typed")
    nan = "double('NaN')"
    conditions = [f"x {shown}" for shown in ("> 5", "!= 3", f"= {nan}", f"in (7, {nan})", "= 0", "in (0, 7)", ">= 0")]
    conditions += [f"{column} {shown}" for column in ("single", "place.x") for shown in ("> 5", "= 0")]
    # Conditions of columns and not of a query: Spark judges them by the rows, not by statistics.
    judged = through_python.selectExpr("id", *(f"({text}) as c{number}" for number, text in enumerate(conditions)))
    found = judged.collect()
    for number, condition in enumerate(conditions):
        wanted = [row.id for row in found if row[f"c{number}"]]
        assert [row.id for row in read.where(condition).select("id").collect()] == wanted, condition


def test_the_rows_stay_as_they_were_when_the_frame_was_made(spark: SparkSession, store: Store) -> None:
    store.create_topic("t")
    commit(store, range(10))
    before = scan(spark, store.uri, "t")
    commit(store, range(10, 20))
    assert before.count() == 10
    assert scan(spark, store.uri, "t").count() == 20


def test_internal_topics_and_patterns(spark: SparkSession, store: Store, history: History) -> None:
    internal = "__transaction_state"
    check_same(scan(spark, store.uri, internal), expected(store, internal))
    check_same(scan(spark, store.uri, subscribePattern="a|b.*"), expected(store, "a,b.c"))
    check_same(scan(spark, store.uri, ["a"]), expected(store, "a"))


def test_a_missing_file_is_an_error_whatever_the_session_says(spark: SparkSession, store: Store) -> None:
    store.create_topic("t")
    commit(store, range(10))
    found = scan(spark, store.uri, "t")
    for segment in Path(store.uri).rglob("*.parquet"):
        if "topics" in segment.parts:
            segment.unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(Exception, match="does not exist"):
            found.select("value").collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_wrong_arguments_are_refused(spark: SparkSession, store: Store) -> None:
    store.create_topic("t")
    with pytest.raises(ConfigurationError, match="did you mean 'startingOffsets'"):
        scan(spark, store.uri, "t", startingofsets="earliest")
    with pytest.raises(ConfigurationError, match="exactly one of the options"):
        scan(spark, store.uri)
    with pytest.raises(TypeError, match="spark is"):
        scan("spark", store.uri, "t")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="option 'columns'"):
        scan(spark, store.uri, "t", columns=["a"])


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("spark.sql.streaming.fileStreamSink.ignoreMetadata", "true", "ignoreMetadata is true"),
        ("spark.sql.sources.useV1SourceList", "csv", "useV1SourceList is 'csv'"),
        (
            "spark.sql.optimizer.excludedRules",
            "org.apache.spark.sql.execution.datasources.SchemaPruning",
            "excludedRules, which is 'org.*SchemaPruning'",
        ),
    ],
)
def test_settings_under_which_spark_cannot_read_a_list_of_files_are_refused(
    spark: SparkSession, store: Store, name: str, value: str, said: str
) -> None:
    store.create_topic("t")
    commit(store, range(3))
    spark.conf.set(name, value)
    try:
        with pytest.raises(ConfigurationError, match=said):
            scan(spark, store.uri, "t")
    finally:
        spark.conf.unset(name)


def test_a_store_that_spark_cannot_open_names_the_python_source(spark: SparkSession) -> None:
    with Store.open("memory://scan", create=True) as memory:
        memory.create_topic("t")
        commit(memory, range(3))
        with pytest.raises(ConfigurationError, match=r'scan\(\).*memory://.*use format\("txnlog"\)'):
            scan(spark, "memory://scan", "t")


def test_scan_has_the_rows_of_a_table_behind_an_open_transaction(spark: SparkSession, store: Store) -> None:
    """One entry, one content, as in `tests/property/test_contents.py`, with Spark itself."""
    store.create_topic("a", 1)
    orders: tuple[tuple[Literal["commit", "offset"], list[bytes]], ...] = (("commit", [b"1", b"2"]), ("offset", []))
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "slow"}) as slow:
        slow.init_transactions()
        slow.begin_transaction()
        slow.produce("a", b"open")
        slow.flush()
        commit(store, range(1, 3), topic="a")
        entry = store.view(["a"]).entry
        for order, expected in orders:
            given = {"asOfEntry": str(entry), "order": order}
            frames = [
                scan(spark, store.uri, "a", given),
                spark.read.format("txnlog").options(subscribe="a", **given).load(store.uri),
            ]
            found = [[bytes(row.value) for row in frame.orderBy("offset").collect()] for frame in frames]
            table = read_arrow(store, "a", columns=["value"], as_of=entry, order=order).read_all()
            assert [*found, table.column(0).to_pylist()] == [expected] * 3
