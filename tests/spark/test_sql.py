"""SQL: views of a whole store, tables of Spark's catalog, and what their options may hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

import pyspark_txnlog
from pyspark_txnlog.options.catalog import TABLE_OPTIONS_KEY, kept_options
from sparktxn import ConfigurationError, Producer, Store
from sparktxn.store import SYSTEM_TABLES
from tests.spark.readers import commit
from tests.spark.sessions import values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Numbers = Callable[..., "DataFrame"]


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    """A name for a table of the catalog."""
    spark.sql("drop table if exists made")
    yield "made"
    spark.sql("drop table if exists made")


def create(spark: SparkSession, store: Store, name: str, **options: str) -> None:
    given = {"path": store.uri, **options}
    listed = ", ".join(f"`{option}` '{value}'" for option, value in given.items())
    spark.sql(f"create table {name} using txnlog options ({listed})")


def test_views_show_one_entry_and_are_quoted(spark: SparkSession, store: Store) -> None:
    for topic in ("orders-v1.eu", "Plain"):
        store.create_topic(topic)
    commit(store, range(3), "orders-v1.eu")
    names = pyspark_txnlog.register_views(spark, store.uri, prefix="shop.")
    assert names == [f"`shop.{name}`" for name in ("Plain", "orders-v1.eu", *SYSTEM_TABLES)]
    assert values(spark.sql("select value from `shop.orders-v1.eu`")) == [0, 1, 2]
    commit(store, range(3, 5), "orders-v1.eu")
    assert values(spark.sql("select value from `shop.orders-v1.eu` where offset >= 0")) == [0, 1, 2]
    assert pyspark_txnlog.register_views(spark, store.uri, prefix="shop.") == names
    assert values(spark.sql("select value from `shop.orders-v1.eu` where offset >= 0")) == [0, 1, 2, 3, 4]
    rows = spark.sql("select topic, sum(record_count) records from `shop.segments` group by topic").collect()
    assert [tuple(row) for row in rows] == [("orders-v1.eu", 5)]
    newest = pyspark_txnlog.history(spark, store.uri, limit=2).collect()
    entry = store.view([]).entry
    assert [row.entry for row in newest] == [entry, entry - 1]
    assert newest[0].record_count == 2


def test_views_as_of_one_time_show_one_entry(spark: SparkSession, store: Store) -> None:
    store.create_topic("t")
    commit(store, range(2))
    entry = store.view([]).entry
    pyspark_txnlog.register_views(spark, store.uri, prefix="old_", asOfTimestamp="-0 seconds", includeHeaders=True)
    assert pyspark_txnlog.history(spark, store.uri, startingEntry=entry).count() == 1
    pyspark_txnlog.register_views(spark, store.uri, prefix="old_", asOfEntry=entry, includeHeaders=True)
    commit(store, range(2, 4))
    assert values(spark.sql("select value, headers from old_t")) == [0, 1]
    assert spark.sql("select max(entry) from old_entries").first() == (entry,)


def test_views_of_one_name_are_refused(spark: SparkSession, store: Store) -> None:
    store.create_topic("Groups")
    with pytest.raises(ConfigurationError, match=r"'groups' and 'Groups', which are one name to Spark"):
        pyspark_txnlog.register_views(spark, store.uri)
    assert "Groups" not in {table.name for table in spark.catalog.listTables()}
    assert "`_groups`" in pyspark_txnlog.register_views(spark, store.uri, system_prefix="_")


def test_a_table_keeps_what_each_use_of_it_needs(
    spark: SparkSession, store: Store, numbers: Numbers, table: str, tmp_path: Path
) -> None:
    store.create_topic("t")
    commit(store, range(2))
    create(spark, store, table, topic="t", maxOffsetsPerTrigger="1", transactionalId="job", startingOffsets="earliest")
    metadata = spark.table(table).schema.fields[0].metadata
    assert json.loads(metadata[TABLE_OPTIONS_KEY])["transactionalid"] == "job"
    spark.sql(f"insert into {table} select null, cast('2' as binary), 't', 0, 0L, timestamp'2024-01-01', 0")
    assert values(spark.table(table)) == [0, 1, 2]
    store.view(["t"])
    assert store.log.transaction("job") is not None
    stream = spark.readStream.table(table)
    query = (
        stream.selectExpr("cast(cast(value as string) + 10 as string) value")
        .writeStream.format("txnlog")
        .option("path", store.uri)
        .option("topic", "t")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(query.recentProgress) >= 2
    assert values(spark.sql(f"select * from {table}")) == [0, 1, 2, 10, 11, 12]


def test_statements_of_a_table(spark: SparkSession, store: Store, table: str) -> None:
    store.create_topic("t")
    commit(store, range(2))
    entry = store.view([]).entry
    create(spark, store, table, topic="t")
    spark.sql("select cast('2' as binary) value").writeTo(table).append()
    spark.sql(f"insert into {table} (value) select cast('3' as binary)")
    assert values(spark.table(table)) == [0, 1, 2, 3]
    assert values(spark.sql(f"select * from {table} with (asOfEntry={entry})")) == [0, 1]
    for statement, message in (
        (f"select * from {table} version as of 1", "Time travel on the relation"),
        (f"select * from txnlog.`{store.uri}`", "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"),
        (f"delete from {table} where partition = 0", "does not support deletes"),
    ):
        with pytest.raises(PySparkException, match=message):
            spark.sql(statement)


@pytest.fixture
def two_tables(spark: SparkSession, store: Store, table: str) -> Iterator[str]:
    """Make tables of the topics ``from``, which has a record, and ``to``; return the name of the latter."""
    for topic in ("from", "to"):
        store.create_topic(topic)
    commit(store, range(1), "from")
    create(spark, store, table, topic="from", startingOffsets="earliest")
    spark.sql("drop table if exists target")
    create(spark, store, "target", topic="to")
    yield "target"
    spark.sql("drop table if exists target")


def ends(store: Store) -> tuple[int, int]:
    partitions = store.view(["from", "to"]).partitions
    return partitions["from", 0].log_end_offset, partitions["to", 0].log_end_offset


UNKNOWN = r"Spark does not say which table they are written to.*INSERT INTO t WITH"


def test_rows_of_a_table_are_not_written_back_to_it(
    spark: SparkSession, store: Store, two_tables: str, table: str, tmp_path: Path
) -> None:
    before = ends(store)
    rows = spark.table(table)
    for write in (
        lambda: spark.sql(f"insert into {two_tables} select * from {table}"),
        lambda: rows.write.insertInto(two_tables),
        lambda: rows.write.format("txnlog").mode("append").saveAsTable(two_tables),
        lambda: rows.select("key", "value").write.format("txnlog").mode("append").save(),
    ):
        with pytest.raises(PySparkException, match=UNKNOWN):
            write()
    with pytest.raises(PySparkException, match="no topic to write to"):
        rows.select("key", "value").write.format("txnlog").mode("append").save(store.uri)
    stream = spark.readStream.table(table).select("key", "value").writeStream.trigger(availableNow=True)
    query = stream.option("checkpointLocation", str(tmp_path)).toTable(two_tables)
    with pytest.raises(PySparkException, match=r"'path' is missing.*toTable\(\) of a stream needs them again"):
        query.awaitTermination()
    assert ends(store) == before


def test_rows_of_a_table_go_where_the_options_or_a_projection_say(
    spark: SparkSession, store: Store, two_tables: str, table: str
) -> None:
    start = ends(store)[0]
    target = f"with (path '{store.uri}', topic 'to')"
    spark.sql(f"insert into {two_tables} {target} select * from {table}")
    spark.sql(f"insert into {two_tables} (key, value) select key, value from {table}")
    spark.table(table).select("value").writeTo(two_tables).append()
    spark.table(table).write.format("txnlog").mode("append").option("topic", "to").save(store.uri)
    assert values(spark.table(two_tables)) == [0] * 4
    assert ends(store)[0] == start
    schema = spark.table(table).schema
    other = spark.read.schema(schema).format("txnlog").option("subscribe", "to").load(store.uri)
    assert other.count() == 4


def test_rows_with_just_the_columns_of_a_typed_table_need_its_options(
    spark: SparkSession, store: Store, table: str
) -> None:
    rows = spark.sql("select array(1) many, 7 id")
    rows.write.format("txnlog").mode("append").options(topic="typed", createTopic="true").save(store.uri)
    create(spark, store, table, topic="typed")
    always = r"no options were given.*One form always works: INSERT INTO t WITH \(path '...', topic '...'\) SELECT"
    with pytest.raises(PySparkException, match=always):
        rows.writeTo(table).append()
    rows.createOrReplaceTempView("rows_of_typed")
    forms = ("select * from", "(many, id) select many, id from", "by name select id, many from")
    for form in forms:
        spark.sql(f"insert into {table} with (path '{store.uri}', topic 'typed') {form} rows_of_typed")
    with pytest.raises(PySparkException, match=always):
        spark.sql(f"insert into {table} {forms[0]} rows_of_typed")
    spark.sql(f"insert into {table} (id, many) select 8, array(2)")
    spark.sql(f"insert into {table} select array(3) a, 9 b")
    assert sorted(row.id for row in spark.table(table).collect()) == [7] * 4 + [8, 9]


WRONG_STORES = [
    (1.5, TypeError, "option 'path' is 1.5"),
    (True, TypeError, "option 'path' is True"),
    (np.int64(3), TypeError, "option 'path' is np.int64"),
    (b"x", TypeError, "option 'path' is bytes"),
    (Path("s"), TypeError, "option 'path' is PosixPath"),
    ("\udcff", ConfigurationError, "half of a surrogate pair"),
]


@pytest.mark.parametrize(("uri", "error", "reason"), WRONG_STORES)
def test_the_address_of_a_store_is_checked_before_spark_has_it(
    spark: SparkSession, uri: Any, error: type[Exception], reason: str
) -> None:
    for look in (pyspark_txnlog.history, pyspark_txnlog.register_views):
        with pytest.raises(error, match=reason):
            look(spark, uri)


@pytest.mark.parametrize("given", ["options (path '{uri}')", "location '{uri}'"])
def test_a_table_without_a_topic_says_what_is_missing(
    spark: SparkSession, store: Store, table: str, given: str
) -> None:
    with pytest.raises(PySparkException, match=r"exactly one of the options 'subscribe', .*: none is given"):
        spark.sql(f"create table {table} using txnlog {given.format(uri=store.uri)}")
    with pytest.raises(PySparkException, match="option 'path' is missing"):
        spark.sql(f"create table {table} using txnlog")


def test_a_table_of_a_system_table_can_be_read_only(spark: SparkSession, store: Store, table: str) -> None:
    store.create_topic("t")
    create(spark, store, table, table="entries")
    assert spark.table(table).count() == 1
    commit(store, range(1))
    assert spark.table(table).count() > 1
    with pytest.raises(PySparkException, match="option 'table' belongs to read, not to write"):
        spark.sql(f"insert into {table} (entry) values (1)")


def test_a_table_takes_no_credentials(spark: SparkSession, store: Store, table: str) -> None:
    store.create_topic("t")
    with pytest.raises(PySparkException, match=r"option 'storage\.secret' may be a credential") as caught:
        create(spark, store, table, topic="t", **{"storage.secret": "hidden"})
    assert "hidden" not in str(caught.value)
    assert not spark.catalog.tableExists(table)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("storage.secret", "hidden"),
        ("storage.AWS_Secret_Access_Key", "hidden"),
        ("storage.client_kwargs", '{"aws_session_token": "hidden"}'),
        ("storage.token", "hidden"),
        ("kafka.ssl.keystore.password", "hidden"),
        ("kafka.sasl.jaas.config", "hidden"),
        ("storage.endpoint_url", "http://me:hidden@host:9000"),
        ("storage.config_kwargs", '{"proxies": {"https": "http://me:hidden@proxy"}}'),
        ("storage.client_kwargs", '{"headers": {"Authorization": "hidden"}}'),
    ],
)
def test_what_may_be_a_credential_is_not_kept(name: str, value: str) -> None:
    given = {"option.path": "s3://b/s", "option.topic": "t", "path": "s3://b/s", "topic": "t"}
    assert kept_options(given) == {"path": "s3://b/s", "topic": "t"}
    harmless = {f"option.{key}": "http://x" for key in ("storage.profile", "storage.endpoint_url", "kafka.group.id")}
    assert kept_options({**given, **harmless, "option.kafka.sasl.mechanism": "PLAIN"}) is not None
    with pytest.raises(ConfigurationError, match=r"may be a credential.*AWS_ACCESS_KEY_ID.*storage\.profile") as caught:
        kept_options({**given, f"option.{name}": value})
    assert "hidden" not in str(caught.value)
    # A read with credentials creates no table.
    assert kept_options({"path": "s3://b/s", name: value}) is None


def test_views_of_declared_columns_have_the_places_of_their_records(spark: SparkSession, store: Store) -> None:
    """The query is that of docs/from-delta.md for the latest row of each key."""
    schema = pa.schema([("id", pa.int64()), ("amount", pa.float64())])
    store.create_topic("offers", 3, schema=schema, settings={"partition.key": "id"})
    store.create_topic("odd", schema=pa.schema([("a,b", pa.int64())]))
    with Producer({"bootstrap.servers": store.uri}) as producer:
        for amount in (1.0, 2.0):
            producer.produce_arrow("offers", pa.table({"id": [1, 2, 3], "amount": [amount] * 3}))
            assert producer.flush() == 0
    page = (Path(__file__).parents[2] / "docs/from-delta.md").read_text()
    latest = page.split('latest = """')[1].split('"""')[0]
    entry = store.view([]).entry
    store.add_columns("offers", pa.schema([("unit", pa.string())]))
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["id", "amount", "unit"]),
        ({"asOfEntry": entry}, ["id", "amount"]),
    ]
    for at, columns in cases:
        pyspark_txnlog.register_views(spark, store.uri, **at)
        assert spark.table("offers").columns == [*columns, "_partition", "_offset", "_timestamp"]
        assert [tuple(row) for row in spark.sql(latest).collect()] == [(1, 2.0), (2, 2.0), (3, 2.0)]
        shorter = spark.sql("select id, max_by(amount, _offset) from offers group by id order by id")
        assert [tuple(row) for row in shorter.collect()] == [(1, 2.0), (2, 2.0), (3, 2.0)]
    assert spark.table("odd").columns == ["a,b"]
    pyspark_txnlog.register_views(spark, store.uri, topics=["offers"], includeTxnMetadata=True)
    assert spark.table("offers").columns[-4:] == ["_producer_id", "_producer_epoch", "_transactional_id", "_entry"]
    pyspark_txnlog.register_views(spark, store.uri, topics=["offers"], columns="_offset,id")
    assert spark.table("offers").columns == ["_offset", "id"]
