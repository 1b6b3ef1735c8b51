"""Commit order against a list of what was committed when: random histories of real producers, sealed and deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn import Producer, Store, TopicPartition, read_task
from sparktxn._engine.log.views.readview import ReadView
from sparktxn.admin import AdminClient
from sparktxn.maintenance import vacuum
from tests.seeds import examples
from tests.world import World

PARTITIONS = 2
PRODUCERS = 3

Step = tuple[str, int, int]

inline_bytes_ = st.sampled_from([0, 60, 49_152])
"""Up to which size records are inline: none, some or all."""


class Row(NamedTuple):
    """A record that was committed, and the entry that committed it."""

    entry: int
    partition: int
    offset: int
    value: bytes


class History:
    """Runs steps one after another, and notes what they commit."""

    def __init__(self, inline_bytes: int) -> None:
        # Runs of two segments, merged by twos: most transactions end after their first segments were sealed.
        settings_ = {"checkpoint_seal_segments": 2, "store_append_inline_bytes": inline_bytes}
        with patch("sparktxn._foundation.config.store.MERGE_RUNS", 2):
            self.world = World({"t": PARTITIONS}, **settings_)
        self.store = self.world.store
        self.admin = AdminClient({"bootstrap.servers": self.world.uri, **self.world.options})
        self.world.clients.append(self.admin)
        self.plain = self.world.producer()
        self.producers = [self.world.transactional(f"id-{number}") for number in range(PRODUCERS)]
        self.open: dict[int, list[Row]] = {}
        self.rows: list[Row] = []
        self.log_starts = [0] * PARTITIONS
        self.written = 0

    def step(self, action: str, number: int, partition: int) -> None:
        if action == "plain":
            self.rows.append(self._produce(self.plain, partition)._replace(entry=self.entry))
        elif action == "checkpoint":
            self.store.log.checkpoint()
        elif action == "vacuum":
            vacuum(self.store, {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0})
        elif action == "checkpoint elsewhere":
            with self.elsewhere() as other:
                other.log.checkpoint()
        elif action == "delete":
            end = self.store.view(["t"]).partitions["t", partition].log_end_offset
            before = min(end, self.log_starts[partition] + number + 1)
            for future in self.admin.delete_records([TopicPartition("t", partition, before)]).values():
                future.result()
            self.log_starts[partition] = before
        elif action == "produce":
            producer = self.producers[number]
            if number not in self.open:
                producer.begin_transaction()
            self.open.setdefault(number, []).append(self._produce(producer, partition))
        elif number in self.open:
            rows = self.open.pop(number)
            if action == "abort":
                self.producers[number].abort_transaction()
                return
            self.producers[number].commit_transaction()
            self.rows += [row._replace(entry=self.entry) for row in rows]

    def elsewhere(self) -> Store:
        """The store as another process has it, which seals other segments together: other options, another log."""
        return Store.open(self.world.uri, options=self.world.options | {"checkpoint.seal.segments": 3})

    @property
    def entry(self) -> int:
        return self.store.view(["t"]).entry

    def _produce(self, producer: Producer, partition: int) -> Row:
        self.written += 1
        # Some are larger than what is inline, where that is not all or none.
        value = b"%d" % self.written + b" " * (self.written % 3 * 40)
        producer.produce("t", value, partition=partition)
        producer.flush()
        end = self.store.view(["t"]).partitions["t", partition].log_end_offset
        return Row(0, partition, end - 1, value)

    def kept(self, after_entry: int, to_entry: int) -> list[Row]:
        return sorted(
            row
            for row in self.rows
            if after_entry < row.entry <= to_entry and row.offset >= self.log_starts[row.partition]
        )


def read(store: Store, view: ReadView, after_entry: int, to_entry: int) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value) of a read, as its tasks give them."""
    tasks = store.plan_commits(view, after_entry, to_entry=to_entry)
    batches = [batch for task in tasks for batch in read_task(task)]
    return [
        (row["partition"], row["offset"], row["value"])
        for batch in batches
        for row in batch.select(["partition", "offset", "value"]).to_pylist()
    ]


def in_offset_order(rows: Iterable[Row]) -> list[tuple[int, int, bytes]]:
    return sorted((row.partition, row.offset, row.value) for row in rows)


ACTIONS = [
    *["produce"] * 5,
    *["commit"] * 3,
    "abort",
    "plain",
    "checkpoint",
    "checkpoint elsewhere",
    "vacuum",
    "delete",
]

steps = st.lists(
    st.tuples(
        st.sampled_from(ACTIONS),
        st.integers(0, PRODUCERS - 1),
        st.integers(0, PARTITIONS - 1),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=examples(30, 300))
@given(st.data(), steps, inline_bytes_)
def test_a_read_between_two_entries_has_what_they_committed(data: Any, taken: list[Step], inline_bytes: int) -> None:
    history = History(inline_bytes)
    try:
        for step in taken:
            history.step(*step)
        newest = history.store.view(["t"])
        entries = st.integers(0, newest.entry)
        for _ in range(4):
            after_entry, to_entry = sorted((data.draw(entries), data.draw(entries)))
            assert read(history.store, newest, after_entry, to_entry) == in_offset_order(
                history.kept(after_entry, to_entry)
            )
        # A process that knows nothing but the newest checkpoint and the entries after it sees the same.
        with history.elsewhere() as other:
            assert read(other, other.view(["t"]), 0, newest.entry) == in_offset_order(history.kept(0, newest.entry))
    finally:
        history.world.close()


@settings(max_examples=examples(20, 200))
@given(steps, st.integers(1, 4), inline_bytes_)
def test_micro_batches_with_a_limit_hold_whole_entries_in_order(
    taken: list[Step], rows_max: int, inline_bytes: int
) -> None:
    history = History(inline_bytes)
    try:
        after_entry = 0
        unread = {("t", partition): 0 for partition in range(PARTITIONS)}
        read_so_far: list[Row] = []
        for step in [*taken, ("checkpoint", 0, 0)]:
            history.step(*step)
            view = history.store.view(["t"])
            cut = history.store.commit_cut(view, after_entry, rows_max=rows_max)
            expected = history.kept(after_entry, view.entry)
            assert cut[:2] == _expected_cut(expected, rows_max, view.entry)
            # Whatever is committed later lies from these offsets on.
            assert all(row.offset >= unread["t", row.partition] for row in history.kept(after_entry, view.entry))
            unread = cut.unread
            assert read(history.store, view, after_entry, cut.entry) == in_offset_order(
                history.kept(after_entry, cut.entry)
            )
            read_so_far += history.kept(after_entry, cut.entry)
            after_entry = cut.entry
        assert [row.entry for row in read_so_far] == sorted(row.entry for row in read_so_far)
    finally:
        history.world.close()


def _expected_cut(rows: list[Row], rows_max: int, newest: int) -> tuple[int, int]:
    """By the definition: entry by entry, while the rows stay within the limit, and at least one entry with rows."""
    taken = 0
    for entry in sorted({row.entry for row in rows}):
        count = sum(row.entry == entry for row in rows)
        if taken and taken + count > rows_max:
            return entry - 1, taken
        taken += count
    return newest, taken
