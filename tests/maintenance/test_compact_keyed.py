"""Compaction of keyed topics: latest rows stay, with all of their columns, and deletes for as long as tombstones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pytest
from msgspec.structs import replace

from sparktxn import Consumer, KafkaError, KafkaException, Producer, TopicPartition, read_arrow
from sparktxn._engine.log.log import Log
from sparktxn._programs.gateway.partitionreads import Reads
from sparktxn._rows.stage import segmentwriter
from sparktxn.maintenance import apply_compact, compact, maintain, plan_compact, rewrite, run_compact_task, verify
from sparktxn.store import Store
from sparktxn.store.reading import lacks_deletes
from tests.world import ClockedWorld

DAY_S: Final = 86_400
NESTED: Final = pa.list_(pa.struct([("price", pa.decimal128(9, 2)), ("at", pa.timestamp("us", tz="UTC"))]))
SCHEMA: Final = pa.schema(
    [
        ("lines", NESTED),
        pa.field("region", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        ("counts", pa.map_(pa.string(), pa.int32())),
        pa.field("name", pa.string(), nullable=False),
    ]
)
EAGER: Final = {"primary.key": "id,region", "min.cleanable.dirty.ratio": "0"}
STORED: Final = ["_partition", "_offset", "_deleted", "_timestamp", "_producer_id", "_producer_epoch", "_entry"]


class Orders:
    """A keyed topic on a clock that the test moves."""

    def __init__(self, settings: Mapping[str, str] = EAGER, partitions: int = 1) -> None:
        self.world = ClockedWorld()
        self.log: Log = self.world.process()
        self.uri = self.world.lend("process", self.log)
        self.store = Store(self.world.objects.uri, {}, self.log)
        self.store.create_topic("orders", partitions, settings=settings, schema=SCHEMA)
        self.producer = Producer({"bootstrap.servers": self.uri})

    def put(self, *ids: int, name: str = "n", delete: bool = False, **more: Any) -> None:
        """One segment in each partition that the keys choose."""
        count = len(ids)
        keys = {"id": pa.array(ids, pa.int64()), "region": [("EU", "")[number % 2] for number in ids]}
        lines = [[{"price": 2, "at": 5}, None] if number % 3 else None for number in ids]
        others = {
            "name": [name] * count,
            "lines": pa.array(lines, NESTED),
            "counts": pa.array([[("a", None)]] * count, pa.map_(pa.string(), pa.int32())),
        }
        rows = pa.table(keys if delete else keys | others | {key: [value] * count for key, value in more.items()})
        self.producer.produce_arrow("orders", rows, delete=delete)
        assert self.producer.flush() == 0

    def rows(self, entry: int | None = None, **asked: Any) -> list[dict[str, Any]]:
        """The latest rows with all that is known of them, in the order of offsets."""
        names = [name for name in STORED if asked or name != "_deleted"]
        names += [field.name for field in SCHEMA]
        found = read_arrow(self.store, "orders", columns=names, as_of=entry, **asked).read_all().to_pylist()
        return sorted(found, key=lambda row: (row["_partition"], row["_offset"]))

    def left(self) -> list[tuple[int, bool]]:
        """The keys of all rows, and which of these are deletes."""
        return [(row["id"], row["_deleted"]) for row in self.rows(rows="all")]

    def close(self) -> None:
        self.producer.close()
        self.world.close()


@pytest.fixture
def orders() -> Iterator[Orders]:
    found = Orders()
    yield found
    found.close()


def test_latest_rows_stay_as_they_are_with_all_of_their_columns(orders: Orders) -> None:
    for number in range(3):
        orders.put(*range(6), name=str(number))
    orders.put(1, 2, delete=True)
    orders.store.add_columns("orders", pa.schema([("note", pa.string())]))
    orders.put(0, 7, name="new", note="x")
    before, entry = orders.rows(), orders.log.entry
    all_rows = orders.rows(rows="all")
    report = compact(orders.store)
    assert (report.partitions, report.left_records, report.removed_records) == (1, 7, 15)
    assert orders.rows() == orders.rows(entry) == before
    assert orders.rows(entry, rows="all") == all_rows
    assert [row for row in all_rows if row in orders.rows(rows="all")] == orders.rows(rows="all")
    notes = read_arrow(orders.store, "orders", columns=["id", "note"]).read_all().to_pylist()
    assert {row["id"]: row["note"] for row in notes} == {0: "x", 7: "x", 3: None, 4: None, 5: None}
    assert rewrite(orders.store, {"rewrite.min.segments": 2}).ranges == 0
    assert verify(orders.store).problems == ()
    assert compact(orders.store).partitions == 0, "nothing is new"


def test_a_delete_goes_a_week_after_its_first_compaction() -> None:
    """Not a week after it was written: a consumer may have read the row until it was compacted."""
    orders = Orders()
    orders.put(1)
    orders.put(1, delete=True)
    orders.world.clock.now_s += 20 * DAY_S
    for number, passed_s, expected in (
        (2, 0, [(1, True), (2, False)]),
        (3, 7 * DAY_S - 10, [(1, True), (2, False), (3, False)]),
        (4, 20, [(2, False), (3, False), (4, False)]),
    ):
        orders.world.clock.now_s += passed_s
        orders.put(number)
        assert compact(orders.store).partitions == 1
        assert orders.left() == expected
    orders.close()


def test_of_deletes_alone_the_last_one_stays() -> None:
    orders = Orders(EAGER | {"delete.retention.ms": "0"})
    orders.put(1, 2, delete=True)
    compact(orders.store)
    orders.put(2, delete=True)
    compact(orders.store)
    assert orders.left() == [(2, True)]
    orders.put(2, delete=True)
    compact(orders.store)
    assert orders.left() == [(2, True)]
    assert orders.rows() == []
    orders.put(2)
    compact(orders.store)
    assert orders.left() == [(2, False)]
    orders.close()


def test_it_is_compacted_a_week_after_a_row_came_whatever_its_share() -> None:
    """By the settings that a keyed topic has if its creator gives none."""
    orders = Orders({"primary.key": "id,region"})
    orders.put(*range(500))
    assert maintain(orders.store).compact.partitions == 1  # type: ignore[union-attr]
    orders.put(1, delete=True)
    for passed_s, partitions in ((0, 0), (7 * DAY_S - 10, 0), (20, 1)):
        orders.world.clock.now_s += passed_s
        report = maintain(orders.store)
        assert report.compact is not None
        assert (report.failed, report.compact.partitions) == ((), partitions)
    assert (1, False) not in orders.left()
    orders.close()


def test_readers_of_transactions_take_together_what_was_compacted(orders: Orders) -> None:
    """Rows of a keyed topic do not say that they are of a transaction: the committed entry is always the greatest."""
    with Producer({"bootstrap.servers": orders.uri, "transactional.id": "shop"}) as shop:
        shop.init_transactions()
        for _ in range(2):
            with shop.transaction():
                rows = pa.table({"id": [1, 2], "region": ["", "EU"], "name": ["a", "b"], "lines": [None] * 2})
                counts = pa.array([None, None], SCHEMA.field("counts").type)
                shop.produce_arrow("orders", rows.append_column("counts", counts))
    entry = orders.log.entry
    compact(orders.store)
    compacted = orders.store.view(["orders"]).partitions["orders", 0].compacted
    assert compacted is not None
    assert (compacted.end_offset, compacted.committed_entry) == (4, entry)


def test_another_process_does_the_tasks_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmentwriter, "ROW_GROUP_ROWS", 7)
    orders = Orders(EAGER, partitions=3)
    for number in range(20):
        orders.put(*range(number, number + 40), name=str(number))
        orders.put(number, delete=True)
    before = orders.rows()
    tasks = [replace(task, buffer_bytes=100) for task in plan_compact(orders.store, {"compact.topics": "orders"})]
    assert [task.key for task in tasks] == [("id", "region")] * 3
    report = apply_compact(orders.store, [run_compact_task(task, orders.store.options) for task in tasks])
    assert (report.partitions, report.left_records) == (3, 59)
    assert orders.rows() == before
    assert len({key for key, _ in orders.left()}) == len(orders.left()) == 59
    orders.close()


# --- readers that have missed deletes ---------------------------------------------------------------------------------


def _with_deletes_gone() -> tuple[Orders, TopicPartition]:
    """A consumer has read the first rows; then deletes follow, and go."""
    orders = Orders(EAGER | {"delete.retention.ms": "0"})
    orders.put(1, 2, 3)
    behind = TopicPartition("orders", 0, 3)
    orders.put(1, delete=True)
    orders.put(4)
    return orders, behind


def _consumer(orders: Orders, group: str, reset: str = "earliest") -> Consumer:
    own = {"group.id": group, "auto.offset.reset": reset, "enable.auto.commit": False, "fetch.wait.max.ms": 5}
    return Consumer({"bootstrap.servers": orders.uri, **own})


def _polled(consumer: Consumer, count: int = 4) -> tuple[list[int], list[KafkaError]]:
    """What some polls return: offsets, and errors."""
    offsets: list[int] = []
    errors: list[KafkaError] = []
    for _ in range(count):
        try:
            table = consumer.consume_arrow(timeout=0.1)
        except KafkaException as error:
            errors.append(error.error)
            continue
        offsets += [] if table is None else table["_offset"].to_pylist()
    return offsets, errors


def _compact_twice(orders: Orders) -> None:
    """The first pass keeps deletes, the second one removes them."""
    compact(orders.store)
    orders.put(5)
    compact(orders.store)


@pytest.mark.parametrize("reset", ["earliest", "error"])
def test_a_consumer_that_has_missed_deletes_is_told(reset: str, caplog: pytest.LogCaptureFixture) -> None:
    orders, behind = _with_deletes_gone()
    with _consumer(orders, "behind") as before:
        before.assign([TopicPartition("orders", 0, 0)])
        before.commit(offsets=[behind], asynchronous=False)
    _compact_twice(orders)
    view = orders.store.view(["orders"]).partitions["orders", 0]
    assert [lacks_deletes(view, offset) for offset in range(8)] == [offset in range(1, 5) for offset in range(8)]
    assert not lacks_deletes(view, 3, orders.log.entry)
    with _consumer(orders, "behind", reset) as consumer:
        consumer.subscribe(["orders"])
        offsets, errors = _polled(consumer)
        told = [record for record in caplog.records if "has removed deletes" in record.getMessage()]
        if reset == "error":
            assert ([error.name() for error in errors], told) == (["_AUTO_OFFSET_RESET"], [])
            assert "removed deletes from partition 0 of topic 'orders'" in errors[0].str()
            consumer.seek(TopicPartition("orders", 0, 3))
            offsets, errors = _polled(consumer)
        else:
            assert (len(told), told[0].levelname) == (1, "WARNING")
        assert (offsets, errors) == ([4, 5], []), "it goes on"
        consumer.commit(asynchronous=False)
    caplog.clear()
    with _consumer(orders, "behind", reset) as again:
        again.subscribe(["orders"])
        assert _polled(again) == ([], [])
    assert "has removed deletes" not in caplog.text
    orders.close()


def test_who_lacks_no_delete_is_told_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A consumer that begins after the compaction and stops in the middle, and one that has read all before."""
    orders, behind = _with_deletes_gone()
    with _consumer(orders, "ahead") as ahead:
        ahead.subscribe(["orders"])
        assert _polled(ahead)[0] == [0, 1, 2, 3, 4]
        _compact_twice(orders)
        assert _polled(ahead) == ([5], [])
    with _consumer(orders, "fresh", "error") as fresh:
        fresh.assign([TopicPartition("orders", 0, 0)])
        assert _polled(fresh) == ([1, 2, 4, 5], [])
        fresh.commit(offsets=[behind], asynchronous=False)
    with _consumer(orders, "fresh", "error") as fresh:
        fresh.subscribe(["orders"])
        assert _polled(fresh) == ([4, 5], [])
    assert "has removed deletes" not in caplog.text
    orders.close()


def test_a_gateway_says_once_that_a_client_has_missed_deletes(caplog: pytest.LogCaptureFixture) -> None:
    orders, behind = _with_deletes_gone()
    reads = Reads(orders.store)

    def fetched(offset: int, bytes_max: int = 1 << 20) -> int:
        """Fetch, and return how often it was said."""
        caplog.clear()
        view = orders.store.view(["orders"])
        assert reads.fetch(view, "orders", 0, offset, "read_committed", bytes_max).log_end_offset > offset
        return caplog.text.count("has removed deletes")

    assert fetched(0, 1) == fetched(1, 1) == 0
    _compact_twice(orders)
    assert (fetched(2), fetched(2)) == (1, 0), "it has read the row before the compaction"
    assert (fetched(behind.offset), fetched(behind.offset)) == (1, 0)
    assert fetched(0, 1) == 0, "it begins"
    assert fetched(2, 1) == fetched(3, 1) == 0, "it goes on"
    orders.close()
