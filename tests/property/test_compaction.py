"""Compaction by key against a plain model: random histories, compacted and rewritten at random, read in every way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktxn import Message, Producer, Store, TopicPartition, ViewExpired, read_task
from sparktxn._engine.format.commands import AlterTopic
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._rows.scan.plan import Order, ReadTask
from sparktxn._rows.stage import segmentwriter
from sparktxn.maintenance import (
    apply_compact,
    apply_rewrite,
    compact,
    plan_compact,
    plan_rewrite,
    rewrite,
    run_compact_task,
    run_rewrite_task,
    verify,
)
from sparktxn.maintenance.rewriting import compactfiles
from tests.mergedrows import check_merged_rows
from tests.property.test_commit_order import ACTIONS, PARTITIONS, PRODUCERS, History, Row, Step, read
from tests.property.test_rewrites import COLUMNS, commit_rows, offset_rows
from tests.seeds import examples

KEYS = 3
FOREVER_MS = 2**50
ORDERS: tuple[tuple[Order, bool], ...] = (("commit", False), ("offset", True))
"""Each order of a read, and whether it ends at the last stable offsets."""
Place = tuple[int, int]


class Record(NamedTuple):
    """A committed record of the model; `together` names those that one transaction committed, None outside one."""

    entry: int
    key: bytes
    value: bytes | None
    timestamp_ms: int
    together: int | None


class Planned(NamedTuple):
    """What a compaction of a partition does: the places that it empties, and the two ends that it is given."""

    partition: int
    gone: frozenset[Place]
    end: int
    whole_entry: int


def place_of(message: Message) -> Place:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


class Compacting(History):
    """A history that is also compacted, with the model of what is left.

    `records` are all committed records by place, `removed` the places that compactions have emptied.
    """

    def __init__(self, *, keeps_tombstones: bool, buffer_bytes: int, inline_bytes: int) -> None:
        super().__init__(inline_bytes)
        retention_ms = FOREVER_MS if keeps_tombstones else 0
        policy: dict[str, str | None] = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.0",
            "delete.retention.ms": str(retention_ms),
        }
        self.world.submit(AlterTopic("compacted", "t", self.world.topic_id("t"), policy))
        self.keeps_tombstones = keeps_tombstones
        self.buffer_bytes = buffer_bytes
        self.records: dict[Place, Record] = {}
        self.removed: set[Place] = set()
        self.compacted_ends = [0] * PARTITIONS
        self.whole_entries = [0] * PARTITIONS
        self.seen: dict[int, list[dict[str, Any]]] = {}
        self.made: dict[Place, tuple[bytes, bytes | None, int]] = {}
        self.consumer = self.world.consumer("t", group_id="long", enable_auto_commit=False)
        self.consumed: dict[Place, bytes | None] = {}
        self.alone: set[Place] = set()

    def step(self, action: str, number: int, partition: int) -> None:
        committed = len(self.rows)
        if action.startswith("compact"):
            self._compact(action, (1_024, 4_096, 33_554_432)[number])
        elif action.startswith("rewrite"):
            self._rewrite(action, (1_024, 4_096, 33_554_432)[number])
        elif action == "poll":
            self.poll()
        else:
            super().step(action, number, partition)
        for row in self.rows[committed:]:
            key, value, timestamp_ms = self.made[row.partition, row.offset]
            together = None if action == "plain" else row.entry
            self.records[row.partition, row.offset] = Record(row.entry, key, value, timestamp_ms, together)
        view = self.store.view(["t"])
        self.check(self.store, view)
        self.seen[view.entry] = offset_rows(self.store, view, "read_committed", COLUMNS)

    def _produce(self, producer: Producer, partition: int) -> Row:
        self.written += 1
        number = self.written
        key = b"k%d" % (number * 7 % KEYS)
        value = None if number % 4 == 0 else b"%d" % number
        timestamp_ms = 1_000 + number * 5 % 17
        # Two records to a segment, so that one may be left of it; the model's row is the second.
        for each in (b"other", key):
            producer.produce("t", value, each, partition=partition, timestamp=timestamp_ms)
        producer.flush()
        end = self.store.view(["t"]).partitions["t", partition].log_end_offset
        self.made[partition, end - 2] = (b"other", value, timestamp_ms)
        self.made[partition, end - 1] = (key, value, timestamp_ms)
        return Row(0, partition, end - 1, value or b"")

    def visible(self, view: ReadView, *, stable: bool = True) -> dict[Place, Record]:
        return {
            place: record
            for place, record in sorted(self.all_records().items())
            if place not in self.removed
            and place[1] >= self.log_starts[place[0]]
            and (not stable or place[1] < view.partitions["t", place[0]].last_stable_offset)
        }

    def all_records(self) -> dict[Place, Record]:
        """The model's records, with the first one of each segment of two."""
        found = dict(self.records)
        for (partition, offset), record in self.records.items():
            if (partition, offset) in self.alone:
                continue
            key, value, timestamp_ms = self.made[partition, offset - 1]
            found[partition, offset - 1] = record._replace(key=key, value=value, timestamp_ms=timestamp_ms)
        return found

    def _compact(self, action: str, target_bytes: int) -> None:
        given = {"compact.target.bytes": target_bytes}
        before = self.store.view(["t"])
        seen = offset_rows(self.store, before, "read_committed", COLUMNS)
        uncommitted = offset_rows(self.store, before, "read_uncommitted", COLUMNS)
        if action == "compact elsewhere":
            with self.elsewhere() as other:
                # So little memory that the keys are read several times.
                tasks = [replace(task, buffer_bytes=self.buffer_bytes) for task in plan_compact(other, given)]
                done = [run_compact_task(task, other.options) for task in reversed(tasks)]
                report = apply_compact(other, done)
        else:
            report = compact(self.store, given)
        assert report.lost == ()
        assert report.unresolved == 0
        planned = [self.planned(before, partition) for partition in range(PARTITIONS)]
        assert report.removed_records == sum(self.take_effect(each) for each in planned if each is not None)
        # The view from before still reads the files from before.
        assert offset_rows(self.store, before, "read_committed", COLUMNS) == seen
        assert offset_rows(self.store, before, "read_uncommitted", COLUMNS) == uncommitted

    def planned(self, view: ReadView, partition: int) -> Planned | None:
        """What a compaction of a partition that is planned at `view` leaves of it; None if there is nothing to do."""
        visible = {place: record for place, record in self.visible(view).items() if place[0] == partition}
        # A segment that begins below what is compacted, or below the log start, is not new.
        clean_end = max(self.compacted_ends[partition], self.log_starts[partition])
        seconds = self.records.keys() - self.alone
        if all(place[1] - (place in seconds) < clean_end for place in visible):
            return None
        newest = {record.key: place for place, record in visible.items()}
        left = {
            place
            for place, record in visible.items()
            if newest[record.key] == place
            and (self.keeps_tombstones or record.value is not None or place[1] >= self.compacted_ends[partition])
        }
        # Records outside transactions count too where there is, or was, a transaction: they may have replaced its own.
        has_transactions = self.whole_entries[partition] or any(one.together is not None for one in visible.values())
        together = [record.entry for record in visible.values() if has_transactions]
        # Something is always left: the newest record, if all others are gone.
        gone = visible.keys() - (left or {max(visible)})
        return Planned(partition, frozenset(gone), max(offset for _, offset in visible) + 1, max(together, default=0))

    def take_effect(self, planned: Planned) -> int:
        """Remove what a compaction has removed; return how many records."""
        self.removed |= planned.gone
        self.compacted_ends[planned.partition] = planned.end
        self.whole_entries[planned.partition] = max(self.whole_entries[planned.partition], planned.whole_entry)
        return len(planned.gone)

    def _rewrite(self, action: str, target_bytes: int) -> None:
        given = {"rewrite.min.segments": 2, "rewrite.target.bytes": target_bytes}
        if action == "rewrite elsewhere":
            with self.elsewhere() as other:
                apply_rewrite(other, [run_rewrite_task(task, other.options) for task in plan_rewrite(other, given)])
        else:
            rewrite(self.store, given)

    def poll(self) -> None:
        for message in self.consumer.consume(50, 0.05):
            assert message.error() is None
            place = place_of(message)
            record = self.all_records()[place]
            assert (message.key(), message.value()) == (record.key, record.value)
            assert place not in self.consumed
            self.consumed[place] = message.value()

    # what each reader must return

    def check(self, store: Store, view: ReadView) -> None:
        expected = self.visible(view)
        rows = offset_rows(store, view, "read_committed", COLUMNS)
        assert [
            (row["partition"], row["offset"], row["key"], row["value"], row["timestamp"].timestamp(), row["entry"])
            for row in rows
        ] == [
            (*place, record.key, record.value, record.timestamp_ms / 1_000, record.entry)
            for place, record in expected.items()
        ]
        everything = self.visible(view, stable=False)
        committed = commit_rows(store, view)
        assert sorted((row["partition"], row["offset"], row["value"]) for row in committed) == [
            (*place, record.value) for place, record in everything.items()
        ]
        uncommitted = offset_rows(store, view, "read_uncommitted")
        assert everything.keys() <= {(row["partition"], row["offset"]) for row in uncommitted}
        assert not self.removed & {(row["partition"], row["offset"]) for row in uncommitted}

    def check_ranges(self, data: Any, view: ReadView) -> None:
        """A part of each partition, with other columns and batches, and what the log alone says of it."""
        ends = st.integers(0, max(2, 3 * self.written))
        ranges = {}
        for partition in range(PARTITIONS):
            start, end = sorted((data.draw(ends), data.draw(ends)))
            ranges["t", partition] = (max(start, self.log_starts[partition]), end)
        places = [
            place for place in self.visible(view) if ranges["t", place[0]][0] <= place[1] < ranges["t", place[0]][1]
        ]
        per_task = data.draw(st.sampled_from([None, 1, 3]))
        columns: list[str] | None
        for columns in ([], ["offset"], ["value"], ["entry", "offset"], ["topic", "timestamp"]):
            found = self._rows(view, ranges, columns, per_task, data.draw(st.sampled_from([None, 1, 2])))
            assert len(found) == len(places), columns
            if "offset" in columns:
                assert [row["offset"] for row in found] == [offset for _, offset in places]
            if columns == ["value"]:
                assert [row["value"] for row in found] == [self.visible(view)[place].value for place in places]
        tasks = self.store.plan(view, ranges, rows_per_task=per_task)
        check_merged_rows(self.store, tasks)
        kept = [(task.partition, *bounds) for task in tasks for bounds in task.kept_offsets(read_task)]
        assert [(partition, offset) for partition, start, end in kept for offset in range(start, end)] == places

    def _rows(
        self, view: ReadView, ranges: Any, columns: list[str], per_task: int | None, batch_rows: int | None
    ) -> list[dict[str, Any]]:
        tasks: list[ReadTask] = self.store.plan(view, ranges, columns=columns, rows_per_task=per_task)
        batches = [batch for task in tasks for batch in read_task(task, batch_rows=batch_rows)]
        assert batch_rows is None or all(batch.num_rows <= batch_rows for batch in batches)
        return [row if columns else {} for batch in batches for row in self._listed(batch)]

    @staticmethod
    def _listed(batch: Any) -> list[dict[str, Any]]:
        return batch.to_pylist() if batch.num_columns else [{}] * batch.num_rows

    def check_times(self, view: ReadView) -> None:
        for partition in range(PARTITIONS):
            found = view.partitions["t", partition]
            for order, stable in ORDERS:
                visible = self.visible(view, stable=stable)
                times = {place[1]: one.timestamp_ms for place, one in visible.items() if place[0] == partition}
                for timestamp_ms in range(1_000, 1_018, 3):
                    expected = min(
                        (offset for offset, time_ms in times.items() if time_ms >= timestamp_ms), default=None
                    )
                    assert self.store.offset_for_time(found, timestamp_ms, order=order) == expected

    def check_cuts(self, data: Any, view: ReadView) -> None:
        """A limit takes what a compaction covers as one transaction."""
        rows_max = data.draw(st.sampled_from([None, 1, 4]))
        for after_entry in (0, data.draw(st.integers(0, 999)) % (view.entry + 1)):
            found = self.store.commit_cut(view, after_entry, rows_max=rows_max)
            for partition in range(PARTITIONS):
                if self.log_starts[partition] < self.compacted_ends[partition]:
                    assert found.entry >= self.whole_entries[partition] or after_entry >= self.whole_entries[partition]


steps = st.lists(
    st.tuples(
        st.sampled_from([*ACTIONS, *["compact"] * 3, "compact elsewhere", "rewrite", "rewrite elsewhere", "poll"]),
        st.integers(0, PRODUCERS - 1),
        st.integers(0, PARTITIONS - 1),
    ),
    min_size=8,
    max_size=45,
)


@pytest.fixture(autouse=True, scope="module")
def grouping_often() -> Iterator[None]:
    """Keys are grouped after a few, and rows make a row group, as otherwise after many megabytes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compactfiles, "_WAITING_BYTES", 60)
        patched.setattr(compactfiles, "_HASHED_ROWS", 2)
        patched.setattr(segmentwriter, "ROW_GROUP_ROWS", 3)
        yield


@settings(max_examples=examples(12, 200))
@given(st.data(), steps, st.booleans(), st.sampled_from([0, 18, 49_152]))
def test_every_reader_returns_the_newest_record_of_each_key(
    data: Any, taken: list[Step], keeps_tombstones: bool, inline_bytes: int
) -> None:
    buffer_bytes = data.draw(st.sampled_from([40, 70, 1_000]))
    history = Compacting(keeps_tombstones=keeps_tombstones, buffer_bytes=buffer_bytes, inline_bytes=inline_bytes)
    try:
        for step in taken:
            history.step(*step)
        newest = history.store.view(["t"])
        history.check_ranges(data, newest)
        history.check_times(newest)
        history.check_cuts(data, newest)
        assert verify(history.store).problems == ()
        with history.elsewhere() as other:
            history.check(other, other.view(["t"]))
            assert read(other, other.view(["t"]), 0, newest.entry) == read(history.store, newest, 0, newest.entry)
            # Drawn alike whatever the history: how many entries it has depends on time, too.
            seen = sorted(history.seen)
            for number in data.draw(st.lists(st.integers(0, 999), max_size=4)):
                entry = seen[number % len(seen)]
                with suppress(ViewExpired):
                    older = other.view(["t"], entry=entry)
                    assert offset_rows(other, older, "read_committed", COLUMNS) == history.seen[entry]
        check_consumers(history, newest)
    finally:
        history.world.close()


def check_consumers(history: Compacting, view: ReadView) -> None:
    """A consumer from the beginning gets what is left; one that has read all along knows each key's last value."""
    expected = history.visible(view)
    fresh = history.world.consumer(group_id="fresh")
    fresh.assign([TopicPartition("t", partition, history.log_starts[partition]) for partition in range(PARTITIONS)])
    found: dict[Place, bytes | None] = {}
    polls, gives_up_s = 0, time.monotonic() + 60
    while len(found) < len(expected) or polls < 3:
        for message in fresh.consume(100, 0.05):
            assert message.error() is None
            found[place_of(message)] = message.value()
        polls += 1
        assert time.monotonic() < gives_up_s
    assert found == {place: record.value for place, record in expected.items()}
    if not history.keeps_tombstones or any(history.log_starts):
        return
    for _ in range(10):
        history.poll()
    known: dict[tuple[int, bytes], bytes | None] = {}
    last: dict[tuple[int, bytes], bytes | None] = {}
    for (partition, offset), value in sorted(history.consumed.items()):
        known[partition, history.made[partition, offset][0]] = value
    for place, record in sorted(history.all_records().items()):
        if place[1] < view.partitions["t", place[0]].last_stable_offset:
            last[place[0], record.key] = record.value
    assert known == last
