"""SQL: views of a whole store, tables of Spark's catalog, and what their options may hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

import pyspark_txnlog
from pyspark_txnlog.catalog import TABLE_OPTIONS_KEY, kept_options
from sparktxn import ConfigurationError, Store
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
    pyspark_txnlog.register_views(spark, store.uri, prefix="old_", asOfTimestamp="-0 seconds", includeHeaders="true")
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


def test_a_table_of_a_system_table_can_be_read_only(spark: SparkSession, store: Store, table: str) -> None:
    store.create_topic("t")
    create(spark, store, table, table="entries")
    assert spark.table(table).count() == 1
    commit(store, range(1))
    assert spark.table(table).count() > 1
    with pytest.raises(PySparkException, match="option 'table' belongs to read, not to write"):
        spark.sql(f"insert into {table} select * from {table}")


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
    ],
)
def test_what_may_be_a_credential_is_not_kept(name: str, value: str) -> None:
    given = {"option.path": "s3://b/s", "option.topic": "t", "path": "s3://b/s", "topic": "t"}
    assert kept_options(given) == {"path": "s3://b/s", "topic": "t"}
    harmless = {f"option.{key}": "x" for key in ("storage.profile", "storage.endpoint_url", "kafka.group.id")}
    assert kept_options({**given, **harmless}) is not None
    with pytest.raises(ConfigurationError, match=r"may be a credential.*AWS_ACCESS_KEY_ID.*storage\.profile") as caught:
        kept_options({**given, f"option.{name}": value})
    assert "hidden" not in str(caught.value)
    # A read with credentials creates no table.
    assert kept_options({"path": "s3://b/s", name: value}) is None
