"""One entry, one content: every reader of a view returns what is committed at its entry, or what offset order leaves.

Histories have transactions that overlap, stay open, are aborted or prepared, records outside transactions and half
messages. Readers of Spark are called as Spark calls them, with no session.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

import pyspark_txnlog
from sparktxn import (
    OFFSET_BEGINNING,
    IsolationLevel,
    Producer,
    ReadTask,
    Store,
    TopicPartition,
    read_arrow,
    read_task,
    to_duckdb,
    to_pandas,
    to_polars,
)
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._programs.cli.printedrecords import parse_start, read_topics
from sparktxn.admin import AdminClient, OffsetSpec
from sparktxn.halfmessage import rocketmq5
from sparktxn.maintenance import rewrite
from sparktxn.transfer import export_topic
from tests.halfworld import configuration5
from tests.property.test_commit_order import ACTIONS, PARTITIONS, PRODUCERS, History, Row, Step, inline_bytes_
from tests.seeds import examples
from tests.spark.readers import batch_reader, stream_reader

Rows = list[tuple[int, int, bytes]]
COLUMNS = ["partition", "offset", "value"]
TIMES = range(1_000, 1_020)


class Moment(NamedTuple):
    """What was committed, and where the logs began, at an entry."""

    rows: tuple[Row, ...]
    log_starts: tuple[int, ...]


class Contents(History):
    """A history with prepared transactions, half messages and rewrites. `moments` has its entries."""

    def __init__(self, inline_bytes: int) -> None:
        super().__init__(inline_bytes)
        never = {"transaction.check.poll.ms": 3_600_000}
        configuration = configuration5(self.world.uri, **{**self.world.options, **never})
        self.shop = rocketmq5.Producer(configuration, ("t",), _Unasked())
        self.shop.startup()
        self.halves: list[tuple[rocketmq5.Transaction, bytes]] = []
        self.prepared: set[int] = set()
        self.times: dict[tuple[int, int], int] = {}
        self.moments: dict[int, Moment] = {}

    def step(self, action: str, number: int, partition: int) -> None:
        if action == "half message":
            self._send_half()
        elif action == "settle" and self.halves:
            self._settle(committed=number > 0)
        elif action == "rewrite":
            rewrite(self.store, {"rewrite.min.segments": 2})
        elif action == "prepare" and number in self.open and number not in self.prepared:
            self.producers[number].prepare_transaction()
            self.prepared.add(number)
        elif action not in ("prepare", "produce", "settle") or (action == "produce" and number not in self.prepared):
            if action in ("commit", "abort"):
                self.prepared.discard(number)
            super().step(action, number, partition)
        self.moments[self.entry] = Moment(tuple(self.rows), tuple(self.log_starts))

    def _produce(self, producer: Producer, partition: int) -> Row:
        self.written += 1
        value = b"%d" % self.written + b" " * (self.written % 3 * 40)
        timestamp_ms = TIMES[self.written * 5 % len(TIMES)]
        producer.produce("t", value, partition=partition, timestamp=timestamp_ms)
        producer.flush()
        end = self.store.view(["t"]).partitions["t", partition].log_end_offset
        self.times[partition, end - 1] = timestamp_ms
        return Row(0, partition, end - 1, value)

    def _send_half(self) -> None:
        self.written += 1
        message = rocketmq5.Message()
        message.topic, message.body = "t", b"half %d" % self.written
        transaction = self.shop.begin_transaction()
        self.shop.send(message, transaction)
        self.halves.append((transaction, message.body))

    def _settle(self, *, committed: bool) -> None:
        transaction, value = self.halves.pop(0)
        if not committed:
            transaction.rollback()
            return
        before = self.store.view(["t"])
        transaction.commit()
        after = self.store.view(["t"])
        for (_, partition), found in after.partitions.items():
            start = before.partitions["t", partition].log_end_offset
            for offset in range(start, found.log_end_offset):
                self.rows.append(Row(after.entry, partition, offset, value))
                (row,) = _rows_of(read_arrow(self.store, "t", where=[("offset", "=", offset), ("value", "=", value)]))
                assert row == (partition, offset, value)
                self.times[partition, offset] = _timestamp(self.store, partition, offset)

    def close(self) -> None:
        self.shop.shutdown()
        self.world.close()

    def content(self, view: ReadView, order: str) -> Rows:
        """What a reader of the view must return, partition by partition in offset order."""
        moment = self.moments[view.entry]
        ends = {
            partition: found.log_end_offset if order == "commit" else found.last_stable_offset
            for (_, partition), found in view.partitions.items()
        }
        return sorted(
            (row.partition, row.offset, row.value)
            for row in moment.rows
            if moment.log_starts[row.partition] <= row.offset < ends[row.partition]
        )


class _Unasked(rocketmq5.TransactionChecker):
    def check(self, message: rocketmq5.Message) -> rocketmq5.TransactionResolution:
        raise AssertionError("no half message is checked in these histories")


def _timestamp(store: Store, partition: int, offset: int) -> int:
    where = [("partition", "=", partition), ("offset", "=", offset)]
    (row,) = read_arrow(store, "t", columns=["timestamp"], where=where).read_all().to_pylist()
    return int(row["timestamp"].timestamp() * 1_000)


def _rows_of(batches: Iterable[pa.RecordBatch]) -> Rows:
    return [
        (row["partition"], row["offset"], row["value"])
        for batch in batches
        for row in batch.select(COLUMNS).to_pylist()
    ]


def _of_pandas(store: Store, **how: Any) -> Rows:
    return [tuple(row) for row in to_pandas(store, "t", columns=COLUMNS, **how).itertuples(index=False, name=None)]


def _of_spark(store: Store, as_of: int, **options: str) -> Rows:
    reader = batch_reader(store, asOfEntry=str(as_of), **options)
    return sorted(row for part in reader.partitions() for row in _rows_of(reader.read(part)))


def _exported(store: Store, as_of: int, order: Any, **selection: Any) -> Rows:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "exported")
        report = export_topic(store, "t", folder, entry=as_of, order=order, columns=COLUMNS, **selection)
        rows = [
            (partition, row["offset"], row["value"])
            for partition in range(PARTITIONS)
            for path in sorted((folder / f"partition={partition}").glob("*.parquet"))
            for row in pa.parquet.ParquetFile(path).read().to_pylist()
        ]
    assert report.records == len(rows)
    return rows


def _readers(store: Store, as_of: int, order: Any) -> Iterator[tuple[str, Callable[[], Rows]]]:
    """Each reader of a view, by its name; `order` is None for its default."""
    how: dict[str, Any] = {"as_of": as_of} | ({} if order is None else {"order": order})
    option = {} if order is None else {"order": order}
    yield "read_arrow", lambda: _rows_of(read_arrow(store, "t", **how))
    yield "to_pandas", lambda: _of_pandas(store, **how)
    yield "to_polars", lambda: to_polars(store, "t", columns=COLUMNS, **how).rows()
    yield "to_duckdb", lambda: to_duckdb(store, "t", columns=COLUMNS, **how).fetchall()
    yield "format", lambda: _of_spark(store, as_of, **option)
    yield "export", lambda: _exported(store, as_of, order)
    yield "plan_view", lambda: _planned(store, store.view(["t"], entry=as_of), order)


def _planned(store: Store, view: ReadView, order: Any, **how: Any) -> Rows:
    return _read(store, store.plan_view(view, order=order, **how))


def _read(store: Store, tasks: Iterable[ReadTask]) -> Rows:
    return [row for task in tasks for row in _rows_of(read_task(task, store.options))]


def check_readers(history: Contents, entry: int) -> None:
    """Compare all readers of the view at an entry, in each order."""
    store, uri = history.store, history.world.uri
    view = store.view(["t"], entry=entry)
    for order in (None, "commit", "offset"):
        expected = history.content(view, order or "commit")
        for name, read in _readers(store, entry, order):
            assert read() == expected, f"{name} in order {order}"
        files = store.files(view, order=order)
        assert sum(file.record_count for file in files) == len(expected), f"files in order {order}"
        given: dict[str, Any] = {"asOfEntry": entry} | ({} if order is None else {"order": order})
        assert pyspark_txnlog.count(uri, "t", **given) == len(expected)
        greatest = {partition: offset for partition, offset, _ in expected}
        assert pyspark_txnlog.max_offset(uri, "t", **given) == greatest
    ranged, committed = store.plan(view, store.ranges(view)), store.plan_commits(view, 0)
    assert _read(store, ranged) == history.content(view, "offset")
    assert sorted(_read(store, committed)) == history.content(view, "commit")
    uncommitted = _rows_of(read_arrow(store, "t", as_of=entry, isolation="read_uncommitted"))
    assert uncommitted == _of_spark(store, entry, isolationLevel="read_uncommitted")
    assert {*history.content(view, "commit")} <= {*uncommitted}


def check_bounds(history: Contents, entry: int, low: int, high: int, timestamp_ms: int) -> None:
    """Compare readers that begin and end at offsets, and at times."""
    store = history.store
    view = store.view(["t"], entry=entry)
    starts = {number: found.log_start_offset for (_, number), found in view.partitions.items()}
    for order in ("commit", "offset"):
        content = history.content(view, order)
        expected = [row for row in content if low <= row[1] < high]
        bounds = dict.fromkeys(view.partitions, (low, high))
        assert _planned(store, view, order, bounds=bounds) == expected
        assert _exported(store, entry, order, offsets=dict.fromkeys(starts, (low, high))) == expected
        for number, found in view.partitions.items():
            times = {offset: history.times[part, offset] for part, offset, _ in content if part == number[1]}
            first = min((offset for offset, time in times.items() if time >= timestamp_ms), default=None)
            assert store.offset_for_time(found, timestamp_ms, order=order) == first
        by_time = _first_offsets(history, content, timestamp_ms)
        late = [row for row in content if row[0] in by_time and row[1] >= by_time[row[0]]]
        early = [row for row in content if row[1] < by_time.get(row[0], row[1] + 1)]
        option = {"order": order, "startingOffsetsByTimestampStrategy": "latest"}
        assert _of_spark(store, entry, startingTimestamp=str(timestamp_ms), **option) == late
        assert _of_spark(store, entry, endingTimestamp=str(timestamp_ms), order=order) == early
        offsets = json.dumps({"t": {str(number): max(start, low) for number, start in starts.items()}})
        if all(max(start, low) <= view.partitions["t", number].last_stable_offset for number, start in starts.items()):
            assert _of_spark(store, entry, startingOffsets=offsets, order=order) == [
                row for row in content if low <= row[1]
            ]


def _first_offsets(history: Contents, content: Rows, timestamp_ms: int) -> dict[int, int]:
    """By partition, the least offset whose record is not older than a time, as a user reads it off the content."""
    late = [row for row in content if history.times[row[:2]] >= timestamp_ms]
    return {partition: offset for partition, offset, _ in reversed(late)}


steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *[action for action in ACTIONS if action != "vacuum"],
                *["produce"] * 3,
                *["half message", "settle", "prepare", "rewrite", "plain"],
            ]
        ),
        st.integers(0, PRODUCERS - 1),
        st.integers(0, PARTITIONS - 1),
    ),
    min_size=5,
    max_size=30,
)
A, B, C = range(PRODUCERS)
BEHIND_AN_OPEN_ONE: list[Step] = [
    ("produce", A, 0),
    *[("produce", B, 0), ("produce", B, 1), ("plain", B, 0)],
    *[("half message", A, 0), ("half message", A, 0), ("settle", B, 0)],
    *[("prepare", A, 0), ("commit", B, 0), ("produce", C, 0), ("abort", C, 0), ("checkpoint", A, 0)],
]
"""Records of all kinds that are committed behind a transaction that stays prepared."""


@settings(max_examples=examples(6, 150))
@given(steps, st.lists(st.integers(0, 999), min_size=1, max_size=3), st.data(), inline_bytes_)
@example(BEHIND_AN_OPEN_ONE, [999], None, 0)
def test_every_reader_returns_what_is_committed_at_the_entry(
    taken: list[Step], numbers: list[int], data: Any, inline_bytes: int
) -> None:
    history = Contents(inline_bytes)
    try:
        for step in taken:
            history.step(*step)
        entries = sorted(history.moments)
        for number in numbers:
            entry = entries[min(number * len(entries) // 999, len(entries) - 1)]
            check_readers(history, entry)
            low, high = (0, 3) if data is None else sorted(data.draw(st.integers(0, 12)) for _ in range(2))
            check_bounds(history, entry, low, high, TIMES[3] if data is None else data.draw(st.sampled_from(TIMES)))
        check_newest(history)
    finally:
        history.close()


def check_newest(history: Contents) -> None:
    """`txnlog consume` without a group, to the end of the newest view, from all kinds of starts."""
    view = history.store.view(["t"])
    for order in ("commit", "offset"):
        content = history.content(view, order)
        assert _consumed(history.store, "beginning", order) == content
        assert _consumed(history.store, "end", order) == []
        last = [[row for row in content if row[0] == partition][-2:] for partition in range(PARTITIONS)]
        assert _consumed(history.store, "-2", order) == [row for rows in last for row in rows]
        assert _consumed(history.store, "2", order) == [row for row in content if row[1] >= 2]
        assert _streamed(history.store, order) == sorted(value for _, _, value in content)
    assert _polled(history, view) == history.content(view, "offset")


def _streamed(store: Store, order: str) -> list[bytes]:
    """The first micro-batch of a stream."""
    reader = stream_reader(store, startingOffsets="earliest", order=order)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    return sorted(value for part in parts for batch in reader.read(part) for value in batch.column("value").to_pylist())


def _polled(history: Contents, view: ReadView) -> Rows:
    """What a consumer gets, and `list_offsets` says is there to get."""
    consumer = history.world.consumer(group_id="content")
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in view.partitions])
    ends = AdminClient({"bootstrap.servers": history.world.uri}).list_offsets(
        {TopicPartition(*key): OffsetSpec.latest() for key in view.partitions},
        isolation_level=IsolationLevel.READ_COMMITTED,
    )
    for partition, future in ends.items():
        assert future.result().offset == view.partitions[partition.topic, partition.partition].last_stable_offset
    count = len(history.content(view, "offset"))
    messages = [*(consumer.consume(count, 60) if count else []), *consumer.consume(1, 0)]
    return sorted((message.partition() or 0, message.offset() or 0, message.value() or b"") for message in messages)


def _consumed(store: Store, start: str, order: Any) -> Rows:
    records = read_topics(
        store, ["t"], [], parse_start(start), "read_committed", follow=False, timeout_s=60.0, order=order
    )
    return [(record.partition, record.offset, record.value or b"") for record in records if record is not None]


@pytest.mark.parametrize("order", ["commit", "offset"])
def test_read_uncommitted_has_no_place_in_commit_order(order: Any) -> None:
    history = Contents(0)
    try:
        history.step("produce", A, 0)
        readers: list[Callable[[], Any]] = [
            lambda: read_arrow(history.store, "t", order=order, isolation="read_uncommitted").read_all(),
            lambda: _of_spark(history.store, history.entry, order=order, isolationLevel="read_uncommitted"),
            lambda: history.store.plan_view(history.store.view(["t"]), order=order, isolation="read_uncommitted"),
        ]
        for read in readers:
            if order == "offset":
                assert len(read()) == 1
            else:
                with pytest.raises(Exception, match="read_uncommitted"):
                    read()
    finally:
        history.close()
