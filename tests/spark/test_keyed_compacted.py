"""Streams over compacted topics with a key: cut by offset within their limits, each row once, wherever they stop."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from pyspark_txnlog.options.options import READ_STREAM, ReadOptions
from pyspark_txnlog.reading.stream_reader import TxnLogStreamReader
from pyspark_txnlog.reading.streams import stream_reader_of
from sparktxn import Producer, RetentionPassed, Store, read_arrow
from sparktxn.maintenance import compact
from tests.seeds import examples, seed_of

pytestmark = pytest.mark.spark

Row = dict[str, Any]
CALM: Final = {"store.fsync": False, "checkpoint.fold.bytes.per.minute": 0}
SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
COLUMNS: Final = StructType(
    [
        StructField("id", LongType()), StructField("name", StringType()), StructField("_deleted", BooleanType()),
        StructField("_topic", StringType()), StructField("_partition", IntegerType()),
        StructField("_offset", LongType()),
    ]
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store"), create=True, options=CALM) as opened:
        yield opened


def create(store: Store, topic: str, **settings: str) -> None:
    settings = {"primary.key": "id", "min.cleanable.dirty.ratio": "0", "append.inline.bytes": "0"} | settings
    store.create_topic(topic, 2, settings=settings, schema=SCHEMA)


def change(store: Store, topics: list[str], rows: dict[int, str | None]) -> None:
    """Commit upserts, and deletes of ids with None, in one transaction of all topics."""
    table = pa.table(
        {
            "id": pa.array(rows, pa.int64()),
            "name": pa.array(rows.values(), pa.string()),
            "_deleted": [name is None for name in rows.values()],
        }
    )
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "shop"} | CALM) as producer:
        producer.init_transactions(30)
        with producer.transaction():
            for topic in topics:
                producer.produce_arrow(topic, table)


class Stream:
    """Micro-batches of a query; a new reader takes over where the last one was killed."""

    def __init__(self, store: Store, **options: str) -> None:
        self.store = store
        self.options = {"path": store.uri, "rows": "all", "startingOffsets": "earliest", **options}
        self.reader = self.made()
        self.offset: Any = self.reader.initialOffset()

    def made(self, **options: str) -> TxnLogStreamReader:
        self.options |= options
        return stream_reader_of(ReadOptions.parse(self.options, READ_STREAM), COLUMNS)

    def rows(self, start: Any, end: Any) -> list[Row]:
        parts = self.reader.partitions(start, end)
        found = [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]
        assert len({(row["_topic"], row["_partition"], row["_offset"]) for row in found}) == len(found)
        return found

    def run(self, limit: Any = None) -> list[Row] | None:
        """The rows of the next micro-batch; None if there is none."""
        start = self.offset
        end = json.loads(json.dumps(self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())))
        if end == start:
            return None
        found = self.rows(start, end)
        self.offset = end
        return found


def all_rows(store: Store, topic: str) -> list[Row]:
    found = read_arrow(store, topic, rows="all", columns=COLUMNS.names).read_all().to_pylist()
    return sorted(found, key=lambda row: (row["_partition"], row["_offset"]))


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["_topic"], row["_partition"], row["_offset"]))


@pytest.mark.parametrize("order", ["commit", "offset"])
@pytest.mark.parametrize("limit", [1, 7, 1_000])
def test_a_micro_batch_stays_within_its_limit(store: Store, order: str, limit: int) -> None:
    """Killed after each micro-batch, and once more while it runs: that one is repeated with the same rows."""
    create(store, "keyed")
    for number in range(5):
        change(store, ["keyed"], dict.fromkeys(range(number, 30), f"n{number}"))
    change(store, ["keyed"], {4: None})
    compact(store)
    change(store, ["keyed"], {5: "after", 6: None})
    stream = Stream(store, topic="keyed", order=order, maxOffsetsPerTrigger=str(limit))
    seen: list[Row] = []
    sizes: list[int] = []
    while True:
        start = stream.offset
        found = stream.run()
        if found is None:
            break
        stream.reader = stream.made()
        assert in_order(stream.rows(start, stream.offset)) == in_order(found)
        seen += found
        sizes.append(len(found))
    assert in_order(seen) == all_rows(store, "keyed")
    # The transaction after the compaction is whole, in commit order.
    assert all(size <= max(limit, 2) for size in sizes)
    if order == "commit":
        assert len(sizes) <= 2 + 2 * len(seen) // limit, sizes


def test_a_limit_of_bytes_and_none(store: Store) -> None:
    create(store, "keyed")
    for number in range(3):
        change(store, ["keyed"], dict.fromkeys(range(200), f"n{number}" * 50))
    compact(store)
    stream = Stream(store, topic="keyed", maxBytesPerTrigger="1000")
    batches = [stream.run(), stream.run(), stream.run()]
    assert all(batch and len(batch) < 150 for batch in batches)
    whole = Stream(store, topic="keyed")
    assert len(whole.run() or ()) == 200


def test_a_topic_that_is_new_to_a_query_catches_up_by_offset(store: Store) -> None:
    create(store, "keyed")
    create(store, "other")
    change(store, ["keyed"], dict.fromkeys(range(5), "a"))
    stream = Stream(store, topic="keyed", maxOffsetsPerTrigger="4")
    seen = stream.run() or []
    for number in range(3):
        change(store, ["keyed", "other"], dict.fromkeys(range(20), f"n{number}"))
    compact(store)
    change(store, ["keyed", "other"], {3: None})
    del stream.options["topic"]
    stream.reader = stream.made(subscribe="keyed,other")
    while (found := stream.run()) is not None:
        seen += found
        assert len(found) <= 4, found
        stream.reader = stream.made()
    wanted = all_rows(store, "keyed") + all_rows(store, "other")
    assert [row for row in in_order(seen) if row in wanted] == wanted
    assert len([row for row in seen if row not in wanted]) == 5, "those that the compaction has removed since"


@pytest.mark.parametrize("order", ["commit", "offset"])
def test_a_stream_that_has_missed_deletes_is_told_by_name(
    store: Store, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Deletes are gone with the second compaction; a query that has begun after them, or has read them, lacks none."""
    create(store, "keyed", **{"delete.retention.ms": "0"})
    change(store, ["keyed"], dict.fromkeys(range(9), "a"))
    behind = Stream(store, topic="keyed", order=order)
    tolerant = Stream(store, topic="keyed", order=order, failOnDataLoss="false")
    ahead = Stream(store, topic="keyed", order=order)
    assert len(behind.run() or ()) == len(tolerant.run() or ()) == 9
    change(store, ["keyed"], {1: None, 2: None, 3: "b", 4: "b", 5: "b"})
    compact(store)
    assert len(ahead.run() or ()) == 9
    change(store, ["keyed"], dict.fromkeys(range(3, 9), "c"))
    time.sleep(0.01)
    compact(store)
    with pytest.raises(RetentionPassed, match=r"removed deletes from partition \d of topic 'keyed'.*failOnDataLoss"):
        behind.run()
    found = tolerant.run() or []
    assert {row["name"] for row in found} == {"c"}
    assert "removed deletes" in caplog.text
    for stream in (ahead, Stream(store, topic="keyed", order=order)):
        assert {row["name"] for row in stream.run() or ()} >= {"c"}
        change(store, ["keyed"], {7: "d"})
    assert len(tolerant.run() or ()) == 2


@pytest.mark.parametrize("number", range(examples(6, 200)))
def test_rows_that_are_applied_are_the_latest_rows(tmp_path: Path, number: int) -> None:
    """Random changes, compactions, limits and restarts: no row comes twice, and a dict of them ends as the table."""
    random = Random(seed_of(f"streams of compacted keyed topics {number}", number))
    with Store.open(str(tmp_path / "store"), create=True, options=CALM) as store:
        topics = ["keyed", "other"]
        for topic in topics:
            create(store, topic, **{"append.inline.bytes": random.choice(["0", "16384"])})
        order = random.choice(["commit", "commit", "offset"])
        limits = {"maxOffsetsPerTrigger": str(random.choice([1, 2, 5, 50]))}
        if random.random() < 0.3:
            limits["maxBytesPerTrigger"] = str(random.choice([300, 3_000]))
        stream = Stream(store, subscribe="keyed,other", order=order, **limits)
        seen: list[Row] = []
        for step in range(30):
            kind = random.choice(["change", "change", "compact", "read", "read", "all", "restart"])
            if kind == "change":
                keys = random.sample(range(12), random.randint(1, 8))
                some = random.choice([topics, topics[:1], topics[1:]])
                change(store, some, {key: random.choice([f"n{step}", f"n{step}", None]) for key in keys})
            elif kind == "compact":
                compact(store)
            elif kind == "restart":
                stream.reader = stream.made()
            else:
                seen += stream.run(ReadAllAvailable() if kind == "all" and random.random() < 0.2 else None) or []
        while (found := stream.run()) is not None:
            seen += found
        places = [(row["_topic"], row["_partition"], row["_offset"]) for row in seen]
        assert len(set(places)) == len(places)
        latest: dict[tuple[str, int], str] = {}
        for row in in_order(seen):
            latest.pop((row["_topic"], row["id"]), None)
            if not row["_deleted"]:
                latest[row["_topic"], row["id"]] = row["name"]
        for topic in topics:
            assert [row for row in all_rows(store, topic) if row not in seen] == []
            table = read_arrow(store, topic, columns=["id", "name"]).read_all().to_pylist()
            assert {row["id"]: row["name"] for row in table} == {
                key: name for (of, key), name in latest.items() if of == topic
            }
