"""Copies read as their source: random histories, copied and brought forward at random, at every view of the horizon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn import ConfigurationError, Producer, Store, TopicPartition
from sparktxn._engine.format.commands import EndTxn
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._kafka.groups import ConsumerGroupTopicPartitions
from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.maintenance import CopyReport, copy_store, verify
from tests.property.test_commit_order import ACTIONS, PARTITIONS, PRODUCERS, Step, inline_bytes_
from tests.property.test_rewrites import COLUMNS, Rewriting, commit_rows, offset_rows
from tests.seeds import examples
from tests.simulation.truth import digest_of
from tests.world import next_number


class Copying(Rewriting):
    """A history that also copies, and checks that each copy reads as the source does."""

    def __init__(self, inline_bytes: int) -> None:
        super().__init__(inline_bytes)
        self.target = self._new_target()
        self.copied: int | None = None
        self.refused = 0

    def _new_target(self) -> str:
        return f"memory://copied-{next_number()}"

    def step(self, action: str, number: int, partition: int) -> None:
        if action == "copy":
            self.copy(threads=1 + number)
        elif action == "offset":
            offsets = ConsumerGroupTopicPartitions("readers", [TopicPartition("t", partition, number)])
            self.store.commit_offsets(offsets)
        else:
            super().step(action, number, partition)

    def copy(self, threads: int) -> CopyReport:
        foreseen = self._foreseen()
        if foreseen is None:
            self.refused += 1
            self.target, self.copied = self._new_target(), None
            foreseen = self._foreseen()
            assert foreseen is not None
        report = copy_store(self.store, self.target, threads=threads)
        assert (report.objects, report.size_bytes) == (foreseen.objects, foreseen.size_bytes)
        assert (report.is_complete, report.entry) == (True, self.entry)
        self.copied = report.entry
        with self.opened() as copy:
            self._check(copy, report)
        again = copy_store(self.store, self.target)
        assert (again.objects, again.size_bytes, again.entry) == (0, 0, report.entry)
        return report

    def _foreseen(self) -> CopyReport | None:
        """What a copy would do; None if it is refused, as the source has forgotten entries that the copy lacks."""
        try:
            return copy_store(self.store, self.target, dry_run=True)
        except ConfigurationError as refused:
            if self.copied is None or "has deleted the entries before" not in str(refused):
                raise
            return None

    def _check(self, copy: Store, report: CopyReport) -> None:
        assert copy.store_id == report.store_id != self.store.store_id
        newest = copy.view(["t"])
        assert newest.entry == report.entry
        assert _ends(newest) == _ends(self.store.view(["t"]))
        assert digest_of(copy.log) == digest_of(self.store.log)
        assert _offsets(copy) == _offsets(self.store)
        assert offset_rows(copy, newest, "read_uncommitted") == offset_rows(self.store, newest, "read_uncommitted")
        assert commit_rows(copy, newest) == commit_rows(self.store, newest)
        assert verify(copy).problems == ()
        for entry, rows in self.seen.items():
            if report.horizon <= entry <= report.entry:
                assert offset_rows(copy, copy.view(["t"], entry=entry), "read_committed", COLUMNS) == rows

    @contextmanager
    def opened(self) -> Iterator[Store]:
        with Store.open(self.target, options=self.world.options) as copy:
            yield copy


def _ends(view: ReadView) -> dict[tuple[str, int], tuple[int, int, int]]:
    return {
        key: (end.log_start_offset, end.last_stable_offset, end.log_end_offset) for key, end in view.partitions.items()
    }


def _offsets(store: Store) -> list[tuple[int, int]]:
    found = store.committed_offsets("readers").topic_partitions
    return [(at.partition, at.offset) for at in found or ()]


steps = st.lists(
    st.tuples(
        st.sampled_from([*ACTIONS, "rewrite", "rewrite elsewhere", "vacuum", "offset", *["copy"] * 3]),
        st.integers(0, PRODUCERS - 1),
        st.integers(0, PARTITIONS - 1),
    ),
    min_size=8,
    max_size=45,
)


@settings(max_examples=examples(10, 100))
@given(steps, inline_bytes_)
def test_a_copy_reads_as_its_source_and_goes_on_by_itself(taken: list[Step], inline_bytes: int) -> None:
    history = Copying(inline_bytes)
    try:
        for step in taken:
            history.step(*step)
        history.copy(threads=2)
        before = offset_rows(history.store, history.store.view(["t"]), "read_uncommitted")
        for number in range(PRODUCERS):
            _go_on(history, number)
        assert offset_rows(history.store, history.store.view(["t"]), "read_uncommitted") == before
        # The copy has entries of its own: it is a store for itself now.
        with pytest.raises(ConfigurationError, match="was written to"):
            copy_store(history.store, history.target)
    finally:
        history.world.close()


def _go_on(history: Copying, number: int) -> None:
    """A producer takes over a transactional id in the copy, and fences its older self there."""
    settings_: dict[str, Any] = {"bootstrap.servers": history.target, **history.world.options}
    with history.opened() as copy:
        known = copy.log.transaction(f"id-{number}")
        assert known is not None
        with Producer({**settings_, "transactional.id": f"id-{number}"}) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.produce("t", b"in the copy %d" % number, partition=0)
        copy.log.refresh()
        mine = copy.log.transaction(f"id-{number}")
        assert mine is not None
        assert (mine.producer_id, mine.producer_epoch) > (known.producer_id, known.producer_epoch)
        found = offset_rows(copy, copy.view(["t"]), "read_uncommitted")
        assert [row["value"] for row in found].count(b"in the copy %d" % number) == 1
        end = EndTxn(known.transactional_id, known.producer_id, known.producer_epoch, known.transaction, committed=True)
        with pytest.raises(CommandRefused) as refused:
            copy.log.submit([end])
        assert refused.value.error.code() == ErrorCode.PRODUCER_FENCED
