"""Rewrites change no record: random histories, rewritten at random, read at every view before and after.

Transactions are open, or prepared, while it is planned, while its tasks are done and when it takes effect.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn import ReadTask, Store, ViewExpired, read_task
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn._rows.scan.offsets import offset_for_time
from sparktxn._rows.scan.plan import Isolation, Order
from sparktxn._rows.scan.storedfiles import committed_files, have_cut_parts
from sparktxn._rows.scan.systemtables import TableSelection
from sparktxn._rows.stage import segmentwriter
from sparktxn.maintenance import (
    RewriteReport,
    RewrittenFiles,
    apply_rewrite,
    plan_rewrite,
    rewrite,
    run_rewrite_task,
    verify,
)
from sparktxn.maintenance.publishing.background import Folder
from sparktxn.store import read_table_task
from tests.mergedrows import check_merged_rows
from tests.property.test_commit_order import (
    ACTIONS,
    PARTITIONS,
    PRODUCERS,
    History,
    Step,
    in_offset_order,
    inline_bytes_,
    read,
)
from tests.seeds import examples

ALL = {"rewrite.min.segments": 2}
COLUMNS = [
    "topic",
    "partition",
    "offset",
    "key",
    "value",
    "timestamp",
    "timestampType",
    "producer_id",
    "producer_epoch",
    "transactional_id",
    "entry",
]
Rows = list[dict[str, Any]]

# Small targets leave several files to a range, and files that are too large to be rewritten again.
sizes = st.sampled_from([1_024, 4_096, 33_554_432])


def offset_rows(store: Store, view: ReadView, isolation: Isolation, columns: list[str] | None = None) -> Rows:
    tasks = store.plan(view, store.ranges(view, isolation=isolation), isolation=isolation, columns=columns)
    return [row for task in tasks for batch in read_task(task, store.options) for row in batch.to_pylist()]


def rows_of(store: Store, tasks: Iterable[ReadTask]) -> Rows:
    batches = (batch for task in tasks for batch in read_task(task, store.options))
    return [row for batch in batches for row in (batch.to_pylist() if batch.num_columns else [{}] * batch.num_rows)]


def commit_rows(store: Store, view: ReadView) -> Rows:
    tasks = store.plan_commits(view, 0, columns=COLUMNS)
    return [row for task in tasks for batch in read_task(task, store.options) for row in batch.to_pylist()]


def without(rows: Rows, left_out: set[bytes]) -> Rows:
    return [row for row in rows if row["value"] not in left_out]


class Rewriting(History):
    """A history that also rewrites, and checks that each rewrite changes nothing that a reader sees."""

    def __init__(self, inline_bytes: int) -> None:
        super().__init__(inline_bytes)
        self.aborted: set[bytes] = set()
        self.seen: dict[int, Rows] = {}
        self.reports: list[RewriteReport] = []
        self.folders: dict[int, Folder] = {}
        self.prepared: set[int] = set()
        self.done: list[RewrittenFiles] = []

    def step(self, action: str, number: int, partition: int) -> None:
        if action.startswith(("rewrite", "fold")):
            self._rewrite(action, (1_024, 4_096, 33_554_432)[number])
        elif action == "prepare":
            if number in self.open and number not in self.prepared:
                self.producers[number].prepare_transaction()
                self.prepared.add(number)
        elif action == "plan a rewrite":
            self.done = [run_rewrite_task(task, self.store.options) for task in plan_rewrite(self.store, ALL)]
        elif action != "produce" or number not in self.prepared:
            if action in ("commit", "abort"):
                self.prepared.discard(number)
            if action == "abort":
                self.aborted |= {row.value for row in self.open.get(number, ())}
            super().step(action, number, partition)
        view = self.store.view(["t"])
        self.seen[view.entry] = offset_rows(self.store, view, "read_committed", COLUMNS)

    def _rewrite(self, action: str, target_bytes: int) -> None:
        given = {**ALL, "rewrite.target.bytes": target_bytes}
        before = self.store.view(["t"])
        seen = {isolation: offset_rows(self.store, before, isolation) for isolation in LEVELS}
        committed, ranges = commit_rows(self.store, before), self.store.ranges(before)
        segments, by_time = self._segments(), self._by_time(before, committed)
        if action == "fold":
            self._fold(target_bytes)
        elif action == "rewrite as planned before":
            self.reports.append(apply_rewrite(self.store, self.done))
        elif action == "rewrite elsewhere":
            with self.elsewhere() as other:
                done = [run_rewrite_task(task, other.options) for task in reversed(plan_rewrite(other, given))]
                self.reports.append(apply_rewrite(other, done))
        else:
            self.reports.append(rewrite(self.store, given))
        after = self.store.view(["t"])
        assert offset_rows(self.store, after, "read_committed") == seen["read_committed"]
        now = offset_rows(self.store, after, "read_uncommitted")
        assert without(now, self.aborted) == without(seen["read_uncommitted"], self.aborted)
        assert all(row in seen["read_uncommitted"] for row in now)
        assert commit_rows(self.store, after) == committed
        assert self.store.ranges(after) == ranges
        assert self._segments() == segments
        assert self._by_time(after, committed) == by_time
        for view, isolation in itertools.product((before, after), LEVELS):
            ranges = self.store.ranges(view, isolation=isolation)
            cut = {key: (start + 1, max(start + 1, end - 1)) for key, (start, end) in ranges.items()}
            for some in (ranges, cut):
                self._check_parts(partial(self.store.plan, view, some, isolation=isolation))
        self._check_parts(partial(self.store.plan_commits, after, before.entry // 2))
        self._check_parts(partial(self.store.plan_commits, after, 0, to_entry=before.entry // 2))
        # The view from before still reads the files from before.
        assert offset_rows(self.store, before, "read_uncommitted") == seen["read_uncommitted"]

    def _check_parts(self, plan: Callable[..., list[ReadTask]]) -> None:
        """Plans that name merged files have the rows, and the files, of those that name each of their segments."""
        found, expected = plan(), plan(by_segment=True)
        check_merged_rows(self.store, found)
        assert rows_of(self.store, found) == rows_of(self.store, expected)
        if not have_cut_parts(found):
            assert [*committed_files(found)] == [*committed_files(expected)]
        for columns in ([], ["value"], ["partition", "topic"], ["offset"]):
            asked = rows_of(self.store, plan(columns=columns))
            assert asked == rows_of(self.store, plan(columns=columns, by_segment=True))

    def _fold(self, target_bytes: int) -> None:
        """Fold as a process does that has written a checkpoint, of several or of the same one."""
        if target_bytes not in self.folders:
            settings = RewriteSettings(target_bytes=target_bytes, min_segments=2)
            self.folders[target_bytes] = Folder(self.store.log, 1 << 40, settings, pause_s=0)
        self.folders[target_bytes].after_checkpoint()
        # A range that another process has taken, or a vacuum has passed, is planned again.
        assert any(self.folders[target_bytes].step() == float("inf") for _ in range(3))

    def _by_time(self, view: ReadView, committed: Rows) -> list[int | None]:
        """The first offsets of some times, in each order: below the last stable offset, and above it."""
        times_ms = sorted({round(row["timestamp"].timestamp() * 1_000) for row in committed})
        return [
            offset_for_time(self.store.log.objects, part, time_ms, order=order)
            for part in view.partitions.values()
            for time_ms in (times_ms[:1] + times_ms[-2:])
            for order in ORDERS
        ]

    def _segments(self) -> list[tuple[Any, ...]]:
        """What the system table says of the segments with committed records, but for their files."""
        tasks = self.store.plan_table("segments", TableSelection(topics=("t",)))
        batches = [batch for task in tasks for batch in read_table_task(task, self.store.options)]
        rows = [row for batch in batches for row in batch.to_pylist()]
        return [
            tuple(value for name, value in row.items() if name not in ("file", "size_bytes"))
            for row in rows
            if row["state"] != "aborted"
        ]


LEVELS: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")
ORDERS: tuple[Order, ...] = ("commit", "offset")

REWRITES = [
    *["rewrite"] * 2,
    *["fold"] * 2,
    "rewrite elsewhere",
    "plan a rewrite",
    "rewrite as planned before",
]

steps = st.lists(
    st.tuples(
        st.sampled_from([*ACTIONS, *REWRITES, "prepare"]),
        st.integers(0, PRODUCERS - 1),
        st.integers(0, PARTITIONS - 1),
    ),
    min_size=8,
    max_size=45,
)


@pytest.fixture(autouse=True, scope="module")
def small_row_groups() -> Iterator[None]:
    """A rewritten file has a row group for every few records, as otherwise for many megabytes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segmentwriter, "ROW_GROUP_ROWS", 2)
        yield


@settings(max_examples=examples(15, 300))
@given(st.data(), steps, inline_bytes_)
def test_every_view_reads_the_same_rows_before_and_after_a_rewrite(
    data: Any, taken: list[Step], inline_bytes: int
) -> None:
    history = Rewriting(inline_bytes)
    try:
        for step in taken:
            history.step(*step)
        newest = history.store.view(["t"])
        assert read(history.store, newest, 0, newest.entry) == in_offset_order(history.kept(0, newest.entry))
        assert verify(history.store).problems == ()
        with history.elsewhere() as other:
            view = other.view(["t"])
            seen = sorted(history.seen)
            # A checkpoint that was taken meanwhile may have added an entry: of sealed runs, and without records.
            assert offset_rows(other, view, "read_committed", COLUMNS) == history.seen[seen[-1]]
            assert commit_rows(other, view) == commit_rows(history.store, newest)
            # Drawn alike whatever the history: how many entries it has depends on time, too.
            for number in data.draw(st.lists(st.integers(0, 999), max_size=4)):
                entry = seen[number % len(seen)]
                with suppress(ViewExpired):
                    older = other.view(["t"], entry=entry)
                    assert offset_rows(other, older, "read_committed", COLUMNS) == history.seen[entry]
    finally:
        history.world.close()


steps_before = st.lists(
    st.tuples(
        st.sampled_from(["produce", "produce", "plain", "commit", "abort", "prepare"]),
        st.integers(1, PRODUCERS - 1),
        st.integers(0, PARTITIONS - 1),
    ),
    max_size=12,
)
steps_meanwhile = st.lists(
    st.tuples(
        st.sampled_from(["commit", "abort", "produce", "prepare", "checkpoint", "fold"]),
        st.integers(0, PRODUCERS - 1),
        st.integers(0, PARTITIONS - 1),
    ),
    max_size=6,
)


@settings(max_examples=examples(10, 200))
@given(steps_before, steps_meanwhile, inline_bytes_)
def test_transactions_that_end_while_a_rewrite_works_lose_and_gain_no_record(
    before: list[Step], meanwhile: list[Step], inline_bytes: int
) -> None:
    """One is open below all that is merged, and a rewrite is planned, done and put into effect around other steps."""
    history = Rewriting(inline_bytes)
    try:
        history.step("produce", 0, 0)
        for step in before:
            history.step(*step)
        for _ in range(3):
            history.step("plain", 0, 0)
        history.step("plan a rewrite", 0, 0)
        assert history.done, "an open transaction held back what was committed after it"
        for step in meanwhile:
            history.step(*step)
        history.step("rewrite as planned before", 2, 0)
        view = history.store.view(["t"])
        assert any(part.rewritten for part in view.partitions.values())
        assert read(history.store, view, 0, view.entry) == in_offset_order(history.kept(0, view.entry))
        for number in range(PRODUCERS):
            history.step("abort", number, 0)
        view = history.store.view(["t"])
        assert read(history.store, view, 0, view.entry) == in_offset_order(history.kept(0, view.entry))
        committed = {row["value"] for row in offset_rows(history.store, view, "read_committed")}
        assert committed == {row.value for row in history.rows}
        assert verify(history.store).problems == ()
    finally:
        history.world.close()
