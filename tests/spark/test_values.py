"""Hostile values through Spark: its source and sink, `scan()` and `write()` keep them bit by bit, or refuse them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

import pyspark_txnlog
from sparktxn import ConfigurationError, KafkaException, Producer, Store, read_arrow
from tests.hostiletables import plain, random_table
from tests.seeds import examples, seed_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

REFUSALS = (PySparkException, ConfigurationError, KafkaException)


def rows_of(store: Store, topic: str, names: list[str]) -> list[str]:
    """Return a topic's rows in an order of their own: Spark keeps none."""
    table = read_arrow(store, topic, columns=names).read_all()
    return sorted(map(repr, zip(*(plain(column) for column in table.columns), strict=True)))


def put(store: Store, topic: str, table: pa.Table, *, inline: bool) -> None:
    """Write a table to a new topic, as records of an entry or as a file."""
    store.create_topic(topic, 1, schema=table.schema)
    options = {} if inline else {"store.append.inline.bytes": 0}
    with Producer({"bootstrap.servers": store.uri, **options}) as producer:
        producer.produce_arrow(topic, table)


def test_tables_come_back_or_are_refused(spark: SparkSession, store: Store) -> None:
    def read(topic: str) -> DataFrame:
        return spark.read.format("txnlog").option("topic", topic).load(store.uri)

    def save(frame: DataFrame, topic: str) -> None:
        frame.write.format("txnlog").mode("append").option("topic", topic).save(store.uri)

    ways: dict[str, Callable[[str, str, list[str]], None]] = {
        "format": lambda source, target, names: save(read(source).select(*map(quoted, names)), target),
        "scan, write": lambda source, target, names: pyspark_txnlog.write(
            pyspark_txnlog.scan(spark, store.uri, source).select(*map(quoted, names)), store.uri, target
        ),
    }
    random = Random(seed_of("values of Spark"))
    kept = dict.fromkeys(ways, 0)
    count = examples(1, 20)
    for number in range(count):
        table = random_table(random, random.randint(1, 7), random.choice([1, 5, 20]))
        source, names = f"s{number}", table.schema.names
        put(store, source, table, inline=bool(number % 2))
        wanted = rows_of(store, source, names)
        for index, (name, way) in enumerate(ways.items()):
            target = f"t{number}-{index}"
            store.create_topic(target, 1, schema=table.schema)
            try:
                way(source, target, names)
            except REFUSALS as error:
                print(name, table.schema, error)
                assert rows_of(store, target, names) == [], (name, table.schema)
                continue
            kept[name] += 1
            assert rows_of(store, target, names) == wanted, (name, number, table.schema)
    assert all(times > count // 2 for times in kept.values()), kept


def quoted(name: str) -> str:
    """Return a column's name as Spark reads it: with a point it would name a member."""
    return f"`{name}`"
