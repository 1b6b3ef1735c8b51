"""Time travel: a batch as of an entry, a time or a transaction, each of which `entries` shows as it is to be given."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from sparktxn import CommandRefused, ConfigurationError, Producer, SinkCommit, Store, ViewExpired
from sparktxn._engine.format.commands import ExpireTransactionalId
from sparktxn._foundation.config.values import parse_time
from sparktxn.maintenance import vacuum
from sparktxn.store import read_table_task
from tests.spark.readers import batch_reader, numbers_of
from tests.spark.sessions import values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON_MS = 1_714_564_800_000
"""2024-05-01T12:00:00Z"""


@pytest.fixture(autouse=True)
def topic(store: Store) -> None:
    store.create_topic("t")


def commit_batch(store: Store, batch_id: int, writer_id: str = "query") -> int:
    """Commit the batch's number as a sink's micro-batch; return the entry."""
    stager = store.stage_plan(["t"]).open(seed=0, default_topic="t")
    stager.write(pa.table({"value": [str(batch_id)]}))
    sink = SinkCommit(writer_id=writer_id, run_id="run", batch_id=batch_id)
    return store.commit(stager.finish(), transactional_id=f"spark-{writer_id}", sink=sink).entry


def shown(store: Store) -> list[tuple[int, str, bool]]:
    """(entry, transaction, committed) of all transactions that the table `entries` shows."""
    return [
        (row["entry"], ended["transaction"], ended["committed"])
        for task in store.plan_table("entries")
        for batch in read_table_task(task, store.options)
        for row in batch.to_pylist()
        for ended in row["transactions"]
    ]


def test_every_shown_transaction_can_be_read_as_of(store: Store) -> None:
    # More than the state remembers of one query.
    entries = [commit_batch(store, number) for number in range(30)]
    assert [entry for entry, _, _ in shown(store)] == entries
    for number, (entry, name, committed) in enumerate(shown(store)):
        assert committed
        assert store.transaction_entry(name) == entry
        assert store.transaction_entry(f"query:{number}") == entry
        if number % 10 == 0:
            assert numbers_of(batch_reader(store, asOfTransaction=name)) == list(range(number + 1))
    assert numbers_of(batch_reader(store, asOfTransaction="query:7")) == list(range(8))
    assert numbers_of(batch_reader(store, asOfEntry=str(entries[3]))) == list(range(4))


def test_a_transactional_id_with_colons_is_found(store: Store) -> None:
    entry = commit_batch(store, 3, writer_id="a:1")
    ((_, name, _),) = shown(store)
    assert name.startswith("spark-a:1:")
    assert store.transaction_entry(name) == store.transaction_entry("a:1:3") == entry


def test_a_transactional_id_that_was_forgotten_gives_other_names(store: Store) -> None:
    first = commit_batch(store, 1)
    record = store.log.transaction("spark-query")
    assert record is not None
    store.log.submit(
        [ExpireTransactionalId("spark-query", record.producer_id, record.producer_epoch, record.transaction)],
    )
    second = commit_batch(store, 1)
    names = [name for _, name, _ in shown(store)]
    assert len(set(names)) == 2
    assert [store.transaction_entry(name) for name in names] == [first, second]


def test_open_aborted_and_unknown_transactions_are_refused(store: Store) -> None:
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "orders"}) as producer:
        producer.init_transactions()
        for end in ("abort", "open"):
            producer.begin_transaction()
            producer.produce("t", "1")
            producer.flush()
            if end == "abort":
                producer.abort_transaction()
        ((entry, name, committed),) = shown(store)
        assert not committed
        with pytest.raises(ConfigurationError, match=f"'{name}' was aborted, by entry {entry}"):
            batch_reader(store, asOfTransaction=name)
        (row,) = [
            row
            for task in store.plan_table("transactions")
            for batch in read_table_task(task, store.options)
            for row in batch.to_pylist()
        ]
        with pytest.raises(ConfigurationError, match=f"'{row['transaction']}' is open: only a committed one"):
            batch_reader(store, asOfTransaction=row["transaction"])
        producer.abort_transaction()
    newest = store.view([]).entry
    for unknown in ("orders:99:1", "orders:0:99", "query:1"):
        message = f"'{unknown}' is unknown: none of the entries 1 to {newest} has committed it"
        with pytest.raises(ConfigurationError, match=message):
            batch_reader(store, asOfTransaction=unknown)
    for wrong in ("orders", "orders:", "orders:x", ":1"):
        with pytest.raises(ConfigurationError, match="is not the name of one: expected transactionalId:producerId:num"):
            batch_reader(store, asOfTransaction=wrong)


def test_a_time_in_text_is_a_time(store: Store) -> None:
    for text in (
        "2024-05-01T12:00:00Z",
        "2024-05-01 14:00:00+02:00",
        " 2024-05-01T14:00 Europe/Berlin",
        "2024-05-01 14:00:00.000999[Europe/Berlin]",
        "2024-05-01T12:00:00 UTC",
        str(NOON_MS),
    ):
        assert parse_time("asOfTimestamp", text) == NOON_MS
    for text, message in (
        ("2024-05-01 12:00:00", "a time without a zone: add one, as in 2024-05-01 12:00:00Z"),
        ("2024-05-01", "a time without a zone"),
        ("2024-05-01 12:00:00 Europe/Berlyn", "expected milliseconds since 1970, a time such as"),
        ("2024-05-01 12:00:00Z Europe/Berlin", "expected milliseconds"),
        ("2024-13-01T12:00:00Z", "expected milliseconds"),
        ("1969-12-31T23:59:59Z", "before 1970"),
        ("yesterday", "expected milliseconds"),
    ):
        with pytest.raises(ConfigurationError, match=f"option 'asOfTimestamp' is .*{message}"):
            batch_reader(store, asOfTimestamp=text)


def test_a_time_means_the_last_entry_not_after_it(store: Store) -> None:
    times_ms = []
    for number in range(3):
        commit_batch(store, number)
        times_ms.append(store.view([]).timestamp_ms)
        while store.log.clock.wall_ms() <= times_ms[-1]:
            store.log.clock.sleep(0.001)
    for number, time_ms in enumerate(times_ms):
        as_text = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
        for given in (str(time_ms), as_text):
            assert numbers_of(batch_reader(store, asOfTimestamp=given)) == list(range(number + 1))
    assert numbers_of(batch_reader(store, asOfTimestamp="-0 seconds")) == [0, 1, 2]
    with pytest.raises(CommandRefused, match="topic 't' does not exist"):
        batch_reader(store, asOfTimestamp="-1 day")


def test_what_a_vacuum_has_passed_is_an_error(store: Store) -> None:
    entries = []
    for number in range(4):
        entries.append(commit_batch(store, number))
        store.log.checkpoint()
    name = shown(store)[0][1]
    vacuum(store, {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0})
    with pytest.raises(ViewExpired, match=f"entry {entries[0]} can no longer be viewed: vacuum has deleted"):
        batch_reader(store, asOfEntry=str(entries[0]))
    with pytest.raises(
        ConfigurationError, match=rf"'{name}' is unknown: none of the entries [2-9] to .*below [2-9], which a vacuum"
    ):
        batch_reader(store, asOfTransaction=name)
    with pytest.raises(ViewExpired, match="can no longer be viewed"):
        batch_reader(store, asOfTransaction="query:0")
    assert numbers_of(batch_reader(store, asOfTransaction="query:3")) == [0, 1, 2, 3]
    with pytest.raises(CommandRefused, match=f"there is no entry 99: the log's newest is {store.view([]).entry}"):
        batch_reader(store, asOfEntry="99")


@pytest.mark.parametrize("second", ["asOfTimestamp", "asOfTransaction"])
def test_only_one_of_them_may_be_given(store: Store, second: str) -> None:
    with pytest.raises(ConfigurationError, match=f"options 'asOfEntry' and '{second}' exclude each other: give one"):
        batch_reader(store, asOfEntry="1", **{second: "1"})


def test_spark_pins_the_entry_when_the_frame_is_made(spark: SparkSession, store: Store) -> None:
    commit_batch(store, 0)
    frame = spark.read.format("txnlog").options(topic="t", asOfTimestamp="-0 seconds").load(store.uri)
    commit_batch(store, 1)
    assert values(frame) == [0]
    frame = spark.read.format("txnlog").options(topic="t", asOfTransaction="query:0").load(store.uri)
    assert values(frame) == [0]
    with pytest.raises(PySparkException, match="'query:9' is unknown"):
        spark.read.format("txnlog").options(topic="t", asOfTransaction="query:9").load(store.uri)
