"""Merged files in Spark: its own reader reads them by their offsets, also where only some rows are visible."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog import scan
from sparktxn import Producer, Store, TopicPartition
from sparktxn._foundation.process.clock import SystemClock
from sparktxn.admin import AdminClient
from sparktxn.maintenance import compact, rewrite
from tests.spark.readers import commit
from tests.spark.test_scan import check_same, expected, plan_of, python_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
LOG_COLUMNS = ("producer_id", "producer_epoch", "transactional_id", "entry", "timestamp")


def merged(store: Store, topic: str = "t", transactions: int = 12) -> None:
    store.create_topic(topic, 2)
    for number in range(0, 2 * transactions, 2):
        commit(store, range(number, number + 2))
    assert rewrite(store).ranges == 2


def write(store: Store, key: int, value: int) -> None:
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "shop"}) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("t", str(value), str(key))
            producer.produce("t", str(value), "last")


def delete_before(store: Store, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": store.uri})
    for future in admin.delete_records([TopicPartition("t", 0, offset)]).values():
        future.result()


def test_a_merged_file_is_read_whole_without_a_condition(spark: SparkSession, store: Store) -> None:
    merged(store)
    found = scan(spark, store.uri, "t")
    check_same(found, expected(store, "t"))
    assert not python_rows(found)
    assert "row_index" not in plan_of(found)
    assert "_metadata" not in plan_of(found)
    assert "PushedFilters: []" in plan_of(found)


def test_whole_and_cut_files_are_one_scan_unless_much_is_read_in_vain(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged(store)
    delete_before(store, 5)
    together = scan(spark, store.uri, "t")
    monkeypatch.setattr("pyspark_txnlog.native.native_scan._UNREAD_BYTES_MAX", -1)
    apart = scan(spark, store.uri, "t")
    assert [plan_of(found).count("FileScan parquet") for found in (together, apart)] == [1, 2]
    # One condition on one file's rows: each more makes a count of all rows slower.
    assert re.search(r"Filter \(NOT \(kafka_partition#\d+ = 0\) OR \(offset#\d+L >= 5\)\)", plan_of(together))
    for found in (together, apart):
        assert "_metadata" not in plan_of(found)
        check_same(found, expected(store, "t"))


def test_a_log_start_and_bounds_become_conditions_that_reach_row_groups(spark: SparkSession, store: Store) -> None:
    merged(store)
    delete_before(store, 5)
    commit(store, range(90, 92))
    ends = '{"t": {"0": 14, "1": 11}}'
    for options in ({}, {"endingOffsets": ends}, {"startingEntry": "8", "endingEntry": "12"}):
        found = scan(spark, store.uri, "t", options)
        check_same(found, expected(store, "t", **options))
    found = scan(spark, store.uri, "t", endingOffsets=ends)
    assert not python_rows(found)
    assert "GreaterThanOrEqual(offset," in plan_of(found)


@pytest.mark.parametrize("settings", [{}, {"message.timestamp.type": "LogAppendTime"}])
def test_what_only_the_log_says_of_a_record_needs_no_python(
    spark: SparkSession, store: Store, settings: dict[str, str]
) -> None:
    store.create_topic("t", 2, settings=settings)
    for number in range(12):
        write(store, number, number)
        commit(store, range(2 * number, 2 * number + 2))
    rewrite(store)
    for options in (
        {"includeTxnMetadata": "true"},
        {"includeTxnMetadata": "true", "startingEntry": "12", "endingEntry": "20"},
        {"includeTxnMetadata": "true", "order": "offset", "endingOffsets": '{"t": {"0": 14, "1": 11}}'},
    ):
        found = scan(spark, store.uri, "t", options)
        check_same(found, expected(store, "t", **options))
        assert not python_rows(found)
        assert "LocalTableScan" not in plan_of(found)
    assert "binarySearch" not in plan_of(scan(spark, store.uri, "t", includeTxnMetadata=True).drop(*LOG_COLUMNS))


def test_a_file_of_which_a_later_rewrite_has_taken_a_part(spark: SparkSession, store: Store) -> None:
    """Rows that two files have come from one of them: each condition is of its file alone."""
    lag_ms = 86_400_000
    store.create_topic("t", 1, settings={**COMPACTED, "min.compaction.lag.ms": f"{lag_ms}"})
    old_ms = SystemClock().wall_ms() - 2 * lag_ms
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "shop"}) as producer:
        producer.init_transactions()
        for number in range(12):
            with producer.transaction():
                for key in ("a", "b"):
                    producer.produce("t", str(number), key, timestamp=old_ms + 2 * lag_ms * (number // 6))
    rewrite(store)
    before = scan(spark, store.uri, "t")
    rows = expected(store, "t")
    compact(store)
    found = scan(spark, store.uri, "t")
    check_same(before, rows)
    check_same(found, expected(store, "t"))
    assert len(rows) > found.count()
    assert "file_modification_time" in plan_of(found)


def test_a_compacted_file_is_read_by_its_offsets(spark: SparkSession, store: Store) -> None:
    store.create_topic("t", 1, settings={**COMPACTED, "min.compaction.lag.ms": "0"})
    for number in range(12):
        write(store, number % 5, number)
    compact(store)
    write(store, 1, 100)
    found = scan(spark, store.uri, "t")
    check_same(found, expected(store, "t"))
    bounded = {"startingOffsets": '{"t": {"0": 7}}', "endingOffsets": '{"t": {"0": 20}}'}
    check_same(scan(spark, store.uri, "t", bounded), expected(store, "t", **bounded))
