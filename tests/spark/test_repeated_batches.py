"""A micro-batch that is repeated has the same rows, whatever was removed or replaced after it was chosen."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_txnlog.native.native_stream import RangesSource
from pyspark_txnlog.reading.stream_reader import TxnLogStreamReader
from sparktxn import ConfigurationError, Producer, RetentionPassed, Store, TopicPartition
from sparktxn.admin import AdminClient
from sparktxn.maintenance import apply_compact, apply_retention, plan_compact, run_compact_task, vacuum
from tests.seeds import examples, seed_of
from tests.spark.readers import commit, stream_reader

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
AT_ONCE = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0}


class World:
    """A topic that is compacted and two that are not, with transactions of several producers that overlap."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self.store, self.chance = store, chance
        store.create_topic("c", 2, settings=COMPACTED)
        store.create_topic("p", 2, settings={"retention.bytes": "1"})
        store.create_topic("d", 1)
        self.producers = [Producer({"bootstrap.servers": store.uri, "transactional.id": f"t{n}"}) for n in range(2)]
        for producer in self.producers:
            producer.init_transactions()
            producer.begin_transaction()

    def write(self, count: int) -> None:
        """Write some records; some of the transactions end, committed or aborted, and the others stay open."""
        for _ in range(count):
            producer = self.chance.choice(self.producers)
            for _ in range(self.chance.randrange(1, 4)):
                key, value = b"%d" % self.chance.randrange(3), b"%d" % self.chance.randrange(10**6)
                producer.produce(self.chance.choice(["c", "c", "p"]), value, key)
            producer.flush()
            if self.chance.random() < 0.7:
                end = producer.abort_transaction if self.chance.random() < 0.2 else producer.commit_transaction
                end()
                producer.begin_transaction()
        commit(self.store, range(self.chance.randrange(1, 3)), topic="d")

    def compact(self) -> None:
        """Apply a compaction that was planned before the newest records."""
        tasks = plan_compact(self.store)
        done = [run_compact_task(task, self.store.options) for task in tasks]
        self.write(2)
        apply_compact(self.store, done)

    def delete_records(self) -> None:
        """Remove the records of two topics."""
        with AdminClient({"bootstrap.servers": self.store.uri}) as admin:
            partitions = [TopicPartition(topic, 0, -1) for topic in ("c", "p")]
            for future in admin.delete_records(partitions).values():
                future.result()

    def retain(self) -> None:
        """Remove what is above the topic's limit."""
        apply_retention(self.store)

    def delete_topic(self) -> None:
        """Delete a topic, and create one of the same name."""
        with AdminClient({"bootstrap.servers": self.store.uri}) as admin:
            admin.delete_topics(["d"])["d"].result()
        self.store.create_topic("d", 1)

    def vacuum(self) -> None:
        """Delete garbage, of which views that are kept read nothing."""
        self.store.log.checkpoint()
        vacuum(self.store)

    def close(self) -> None:
        for producer in self.producers:
            producer.abort_transaction()
            producer.close()


@pytest.fixture
def world(store: Store, request: pytest.FixtureRequest) -> Any:
    made = World(store, random.Random(seed_of(request.node.name)))
    yield made
    made.close()


def reader_of(store: Store, **options: str) -> TxnLogStreamReader:
    return stream_reader(store, subscribe="c,p,d", startingOffsets="earliest", failOnDataLoss="false", **options)


def rows_of(reader: TxnLogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    parts = reader.partitions(start, end)
    return sorted(value for part in parts for batch in reader.read(part) for value in batch.column("value").to_pylist())


def next_end(reader: TxnLogStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
    return found


LATER: dict[str, Callable[[World], None]] = {
    name.strip("_"): getattr(World, name) for name in ("compact", "delete_records", "retain", "delete_topic", "vacuum")
}


@pytest.mark.parametrize(("limit", "available_now"), [("1", False), ("3", True), (None, False)])
@pytest.mark.parametrize("order", ["commit", "offset"])
def test_a_repeated_micro_batch_has_the_same_rows(
    world: World, order: str, limit: str | None, available_now: bool
) -> None:
    options = {"order": order} | ({} if limit is None else {"maxOffsetsPerTrigger": limit})
    world.write(10)
    start = json.loads(json.dumps(reader_of(world.store, **options).initialOffset()))
    read = 0
    for _ in range(examples(2, 10)):
        world.write(4)
        reader = reader_of(world.store, **options)
        if available_now:
            reader.prepareForTriggerAvailableNow()
        for job in world.chance.sample([*LATER, None, None], 4):
            end = next_end(reader, start)
            first = rows_of(reader, start, end)
            read += len(first)
            if job is not None:
                LATER[job](world)
            world.write(1)
            assert rows_of(reader, start, end) == first, "a task that failed"
            assert rows_of(reader_of(world.store, **options), start, end) == first, f"after a restart and {job}"
            start = end
    assert read


@pytest.mark.parametrize("order", ["commit", "offset"])
def test_scan_stream_reads_the_view_that_its_source_names(world: World, order: str) -> None:
    """Its source only gives the ends of micro-batches: another reader, on the driver, reads them."""
    options = {
        "path": world.store.uri,
        "subscribe": "c,p,d",
        "startingoffsets": "earliest",
        "maxoffsetspertrigger": "2",
    }
    source: Any = RangesSource({**options, "order": order}).streamReader(RangesSource({}).schema())
    world.write(4)
    start = source.initialOffset()
    end = source.latestOffset(start, source.getDefaultReadLimit())
    (part,) = source.partitions(start, end)
    given = [json.loads(text) for text in (part.start, part.end)]
    driver = reader_of(world.store, order=order)
    first = rows_of(driver, *given)
    assert first
    world.compact()
    world.delete_records()
    assert rows_of(driver, *given) == rows_of(reader_of(world.store, order=order), *given) == first


def _committed(store: Store, *values: bytes) -> None:
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "w"}) as producer:
        producer.init_transactions()
        for value in values:
            producer.begin_transaction()
            producer.produce("t", value, b"k", partition=0)
            producer.commit_transaction()


@pytest.mark.parametrize("order", ["commit", "offset"])
def test_an_expired_view_is_replaced_by_the_newest_with_a_warning(
    store: Store, caplog: pytest.LogCaptureFixture, order: str
) -> None:
    """Nothing has removed a record: the rows are the same. What was removed is an error, or left out."""
    store.create_topic("t", 1)
    _committed(store, b"1", b"2", b"3")
    options = {"order": order, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    reader = stream_reader(store, **options)
    start = reader.initialOffset()
    end = next_end(reader, start)
    first = rows_of(reader, start, end)
    for _ in range(3):
        _committed(store, b"later")
        store.log.checkpoint()
        vacuum(store, AT_ONCE)
    assert rows_of(stream_reader(store, **options), start, end) == first
    assert f"the view at entry {end.get('view', end['entry'])} has expired" in caplog.text
    with AdminClient({"bootstrap.servers": store.uri}) as admin:
        admin.delete_records([TopicPartition("t", 0, 2)])[TopicPartition("t", 0)].result()
    with pytest.raises(RetentionPassed, match="failOnDataLoss"):
        rows_of(stream_reader(store, **options), start, end)
    assert rows_of(stream_reader(store, failOnDataLoss="false", **options), start, end) == first[1:]


def test_a_micro_batch_in_commit_order_names_its_view_and_one_of_an_earlier_version_is_read_at_its_last_entry(
    store: Store,
) -> None:
    store.create_topic("t", 1)
    _committed(store, b"1", b"2", b"3")
    reader = stream_reader(store, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    start = reader.initialOffset()
    end = next_end(reader, start)
    assert end["view"] == store.view().entry > end["entry"]
    del end["view"]
    assert rows_of(stream_reader(store), start, end) == [b"1"]
    # The next micro-batch is chosen as before.
    assert rows_of(reader, end, next_end(reader, end)) == [b"2"]


def test_a_progress_whose_view_is_not_in_the_log_is_of_another_store(store: Store) -> None:
    store.create_topic("t", 1)
    _committed(store, b"1")
    reader = stream_reader(store, startingOffsets="earliest")
    end = next_end(reader, reader.initialOffset())
    with pytest.raises(Exception, match="is it another store"):
        reader.latestOffset({**end, "view": 10_000}, ReadAllAvailable())
    with pytest.raises(ConfigurationError, match="belongs to another store"):
        reader.partitions({**end}, {**end, "storeId": "other"})
