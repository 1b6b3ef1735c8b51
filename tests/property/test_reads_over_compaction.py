"""Every reader over compactions, which are taken apart into their steps, with transactions that overlap them.

In offset order a committed read ends at the last stable offset, which never goes back. Its rows are those of a plain
model. In commit order each micro-batch has what some entries have committed and compactions have left, and none waits.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparktxn import TopicPartition, read_arrow, read_task
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._rows.scan.plan import Isolation
from sparktxn.halfmessage import rocketmq5
from sparktxn.maintenance import CompactedFiles, apply_compact, plan_compact, run_compact_task
from tests.halfworld import configuration5
from tests.property.test_commit_order import ACTIONS, PARTITIONS, PRODUCERS, Step, read
from tests.property.test_compaction import KEYS, Compacting, Place, Planned, Record, check_consumers, place_of
from tests.property.test_rewrites import offset_rows
from tests.seeds import examples

LEVELS: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")


class Files(NamedTuple):
    """What a step of a compaction has written, and no command names yet; `changes` were there when it was planned."""

    written: CompactedFiles
    planned: Planned
    view: ReadView
    changes: int


class Unasked(rocketmq5.TransactionChecker):
    """Settles nothing: the histories do."""

    def check(self, message: rocketmq5.Message) -> rocketmq5.TransactionResolution:
        raise AssertionError("no half message is checked in these histories")


class Reading(Compacting):
    """A history whose compactions may stop between two steps, read by every reader after each step.

    `rows_max` limits the micro-batches in commit order. `changes` counts what may take the place of a compaction, and
    `cuts` are the last ends of micro-batches, by the entry after which they begin.
    """

    def __init__(self, rows_max: int | None, *, keeps_tombstones: bool, inline_bytes: int) -> None:
        super().__init__(keeps_tombstones=keeps_tombstones, buffer_bytes=70, inline_bytes=inline_bytes)
        self.rows_max = rows_max
        self.after_entry = 0
        self.cuts: dict[int, int] = {}
        self.stable = [0] * PARTITIONS
        self.changes = 0
        self.prepared: set[int] = set()
        self.aborted: set[Place] = set()
        self.files: list[Files] = []
        self.uncommitted = self.world.consumer("t", group_id="all", isolation_level="read_uncommitted")
        self.consumed_uncommitted: set[Place] = set()
        never = {"transaction.check.poll.ms": 3_600_000}
        configuration = configuration5(self.world.uri, **{**self.world.options, **never})
        self.shop = rocketmq5.Producer(configuration, ("t",), Unasked())
        self.shop.startup()
        self.halves: list[rocketmq5.Transaction] = []

    def step(self, action: str, number: int, partition: int) -> None:
        if action == "step of a compaction":
            if self.files:
                self._apply()
            else:
                self._write_files()
        elif action == "half message":
            self._send_half(number)
        elif action == "settle":
            self._settle(committed=number > 0)
        elif action == "prepare" and number in self.open and number not in self.prepared:
            self.producers[number].prepare_transaction()
            self.prepared.add(number)
        elif action not in ("prepare", "produce") or number not in self.prepared:
            if action == "abort":
                self.aborted |= self._open_places(number)
            if action in ("commit", "abort"):
                self.prepared.discard(number)
            self.changes += action.startswith(("compact", "rewrite", "delete", "vacuum"))
            super().step(action, number, partition)
        self._check_readers()

    def _send_half(self, number: int) -> None:
        """Send a half transaction: one message, or one for each of two keys."""
        transaction = self.shop.begin_transaction()
        for _ in range(1 + number % 2):
            self.written += 1
            message = rocketmq5.Message()
            message.topic, message.body = "t", b"half %d" % self.written
            message.keys = f"k{self.written * 7 % KEYS}"  # type: ignore[assignment]
            self.shop.send(message, transaction)
        self.halves.append(transaction)

    def _settle(self, *, committed: bool) -> None:
        """Settle the oldest half transaction, and note its records: each is the only one of its segment."""
        if not self.halves:
            return
        transaction = self.halves.pop(0)
        if not committed:
            transaction.rollback()
            return
        transaction.commit()
        view = self.store.view(["t"])
        for task in self.store.plan_commits(view, view.entry - 1):
            for batch in read_task(task):
                for row in batch.to_pylist():
                    place = (row["partition"], row["offset"])
                    made = (row["key"], row["value"], round(row["timestamp"].timestamp() * 1_000))
                    self.made[place] = made
                    self.records[place] = Record(view.entry, *made, view.entry)
                    self.alone.add(place)

    def _open_places(self, number: int) -> set[Place]:
        """The places of what an open transaction has written: two records to a segment."""
        rows = self.open.get(number, ())
        return {(row.partition, row.offset - before) for row in rows for before in (0, 1)}

    def _write_files(self) -> None:
        """Plan a compaction, and write its files: no reader sees them."""
        view = self.store.view(["t"])
        tasks = {task.read.partition: task for task in plan_compact(self.store)}
        planned = {partition: self.planned(view, partition) for partition in range(PARTITIONS)}
        assert tasks.keys() == {partition for partition, found in planned.items() if found is not None}
        self.files = [
            Files(run_compact_task(task, self.store.options), found, view, self.changes)
            for partition, task in tasks.items()
            if (found := planned[partition]) is not None
        ]

    def _apply(self) -> None:
        """Put the files of one partition into effect: what came between may have taken its place."""
        files = self.files.pop()
        report = apply_compact(self.store, [files.written])
        assert report.unresolved == 0
        if report.partitions:
            self.take_effect(files.planned)
        else:
            assert report.lost
            assert files.changes < self.changes, report.lost

    def _check_readers(self) -> None:
        view = self.store.view(["t"])
        everything = {isolation: self._places_at(view, isolation) for isolation in LEVELS}
        open_places = {place for number in self.open for place in self._open_places(number)}
        for partition in range(PARTITIONS):
            part, start = view.partitions["t", partition], self.log_starts[partition]
            opened = [offset for number, offset in open_places if number == partition]
            assert part.last_stable_offset == max(start, min([part.log_end_offset, *opened]))
            assert self.store.ranges(view)["t", partition] == (start, part.last_stable_offset)
            assert part.last_stable_offset >= self.stable[partition], "the end of committed reads went back"
            self.stable[partition] = part.last_stable_offset
        assert everything["read_committed"] == [*self.visible(view)]
        expected = {*self.visible(view, stable=False)} | self._kept(open_places)
        found = {*everything["read_uncommitted"]}
        assert found - self.aborted == expected
        assert all(offset >= self.compacted_ends[partition] for partition, offset in found & self.aborted)
        for isolation in LEVELS:
            assert self._table(order="offset", isolation=isolation) == everything[isolation]
        assert self._table() == [*self.visible(view, stable=False)]
        for after_entry in (0, self.after_entry):
            self._micro_batch(view, after_entry)

    def _table(self, **how: Any) -> list[Place]:
        rows = read_arrow(self.store, "t", columns=["partition", "offset"], **how).read_all()
        return [(row["partition"], row["offset"]) for row in rows.to_pylist()]

    def _kept(self, places: set[Place]) -> set[Place]:
        return {place for place in places if place[1] >= self.log_starts[place[0]]}

    def _places_at(self, view: ReadView, isolation: Isolation) -> list[Place]:
        rows = offset_rows(self.store, view, isolation, ["partition", "offset", "key", "value"])
        assert all((row["key"], row["value"]) == self.made[row["partition"], row["offset"]][:2] for row in rows)
        return [(row["partition"], row["offset"]) for row in rows]

    def _micro_batch(self, view: ReadView, after_entry: int) -> int:
        """Read what follows an entry in commit order, and return where it ends: a compaction is one transaction."""
        cut = self.store.commit_cut(view, after_entry, rows_max=self.rows_max)
        left = self.visible(view, stable=False)
        waiting = [place for place, record in left.items() if record.entry > after_entry]
        given = {place: left[place] for place in waiting if left[place].entry <= cut.entry}
        assert read(self.store, view, after_entry, cut.entry) == [
            (*place, record.value) for place, record in given.items()
        ]
        assert cut.rows == len(given)
        self._check_whole(left, after_entry, cut.entry)
        assert cut.entry == view.entry or given, "a reader in commit order stands still"
        for partition in range(PARTITIONS):
            covered = self.whole_entries[partition]
            if self.log_starts[partition] < self.compacted_ends[partition]:
                assert cut.entry >= covered or after_entry >= covered, "a compaction is read in parts"
        assert cut.entry >= self.cuts.get(after_entry, 0), "a cut went back"
        self.cuts[after_entry] = cut.entry
        return cut.entry

    def _check_whole(self, left: dict[Place, Record], after_entry: int, to_entry: int) -> None:
        """A transaction of which a record is read is read whole: its other records, or what has replaced them."""
        records = self.all_records()
        read = {record.together for record in left.values() if after_entry < record.entry <= to_entry} - {None}
        for place in self.removed:
            record = records[place]
            if record.together in read and place[1] >= self.log_starts[place[0]]:
                replaced_by = [
                    one.entry
                    for other, one in left.items()
                    if other[0] == place[0] and other[1] > place[1] and one.key == record.key
                ]
                assert not replaced_by or replaced_by[0] <= to_entry, f"{place} is not read, nor what has replaced it"

    def poll(self) -> None:
        super().poll()
        self.after_entry = self._micro_batch(self.store.view(["t"]), self.after_entry)
        for message in self.uncommitted.consume(50, 0.05):
            assert message.error() is None
            place = place_of(message)
            assert (message.key(), message.value()) == self.made[place][:2]
            assert place not in self.consumed_uncommitted
            self.consumed_uncommitted.add(place)

    def check_the_end(self) -> None:
        """Consumers from the beginning, and the last micro-batches."""
        view = self.store.view(["t"])
        check_consumers(self, view)
        fresh = self.world.consumer(group_id="all anew", isolation_level="read_uncommitted")
        fresh.assign([TopicPartition("t", partition, self.log_starts[partition]) for partition in range(PARTITIONS)])
        expected = self._places_at(view, "read_uncommitted")
        found: list[Place] = []
        gives_up_s = time.monotonic() + 60
        while len(found) < len(expected):
            found += [place_of(message) for message in fresh.consume(100, 0.05)]
            assert time.monotonic() < gives_up_s
        assert sorted(found) == expected
        while self.after_entry < view.entry:
            self.after_entry = self._micro_batch(view, self.after_entry)


def _steps() -> st.SearchStrategy[list[Step]]:
    more = ["prepare", "poll", "compact", "rewrite", *["half message"] * 3, *["settle"] * 3, "plain"]
    more += ["step of a compaction"] * 6
    taken = [*ACTIONS, *["produce"] * 3, *["commit"] * 3, *more]
    return st.lists(
        st.tuples(
            st.sampled_from(taken),
            st.integers(0, PRODUCERS - 1),
            st.integers(0, PARTITIONS - 1),
        ),
        min_size=8,
        max_size=40,
    )


def _run(taken: list[Step], rows_max: int | None, *, keeps_tombstones: bool, inline_bytes: int) -> None:
    history = Reading(rows_max, keeps_tombstones=keeps_tombstones, inline_bytes=inline_bytes)
    try:
        for step in taken:
            history.step(*step)
        history.check_the_end()
    finally:
        history.shop.shutdown()
        history.world.close()


A, B, C = range(PRODUCERS)
OVERLAPPING: list[Step] = [
    *[("produce", A, 0)] * 3,
    ("produce", B, 0),
    ("commit", A, 0),
    ("produce", C, 0),
    ("produce", B, 0),
    ("commit", B, 0),
]
"""Three segments of A, one of B; A commits, C stays open, and B writes again and commits."""
BETWEEN: list[Step] = [
    *[("produce", number, partition) for number in (A, B) for partition in (0, 1)],
    ("prepare", B, 0),
    ("commit", A, 0),
    ("produce", A, 0),
    ("step of a compaction", A, 0),
    *[("commit", B, 0), ("produce", C, 1), ("commit", C, 0)],
    ("step of a compaction", A, 0),
    *[("abort", A, 0), ("produce", C, 0), ("commit", C, 0), ("poll", A, 0)],
    ("step of a compaction", A, 0),
]
"""Others commit and abort between a compaction's plan and its commands, and between those of its two partitions."""


REPLACED: list[Step] = [
    *[("produce", A, 0), ("produce", A, 1), ("prepare", A, 0), ("commit", A, 0)],
    *[("plain", A, 0), ("compact", C, 0), ("poll", A, 0)],
]
"""A record outside transactions replaces one of a transaction over two partitions."""
REPLACED_BY_HALF: list[Step] = [
    *[("half message", B, 0), ("half message", B, 0), ("settle", B, 0), ("plain", A, 0), ("plain", A, 1)],
    *[("settle", B, 0), ("compact", C, 0), ("half message", B, 0), ("settle", B, 0)],
    *[("step of a compaction", C, 0), ("plain", A, 0), ("step of a compaction", C, 0), ("poll", A, 0)],
]
"""Half transactions of two records replace each other's, and records outside transactions theirs."""


@settings(max_examples=examples(4, 100))
@given(_steps(), st.booleans(), st.sampled_from([0, 18, 49_152]))
@example([*OVERLAPPING, ("compact", C, 0)], True, 0)
@example([*OVERLAPPING, ("step of a compaction", C, 0), ("commit", C, 0), ("step of a compaction", C, 0)], True, 0)
@example(BETWEEN, False, 0)
def test_every_reader_over_the_steps_of_compactions(
    taken: list[Step], keeps_tombstones: bool, inline_bytes: int
) -> None:
    _run(taken, None, keeps_tombstones=keeps_tombstones, inline_bytes=inline_bytes)


@settings(max_examples=examples(4, 100))
@given(_steps(), st.sampled_from([1, 3, 8]), st.booleans(), st.sampled_from([0, 18, 49_152]))
@example([*OVERLAPPING, ("compact", C, 0), ("commit", C, 0)], 1, True, 0)
@example(BETWEEN, 1, True, 0)
@example(REPLACED, 1, True, 0)
@example(REPLACED_BY_HALF, 3, True, 0)
def test_every_reader_over_the_steps_of_compactions_with_limited_micro_batches(
    taken: list[Step], rows_max: int, keeps_tombstones: bool, inline_bytes: int
) -> None:
    _run(taken, rows_max, keeps_tombstones=keeps_tombstones, inline_bytes=inline_bytes)
