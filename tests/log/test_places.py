"""A partition's places as an older checkpoint has sealed them, with what newer entries have added."""

from __future__ import annotations

from sparktxn._engine.log.follow.stateparts import in_places_of
from sparktxn._foundation.values.structs import (
    NO_TRANSACTION,
    AbortedTransaction,
    CommittedTransaction,
    ManifestRef,
    PartitionSegments,
    SegmentRef,
)

FIRST = CommittedTransaction(1, 0, 1, 2)
SECOND = CommittedTransaction(1, 2, 3, 4)
THIRD = CommittedTransaction(1, 4, 5, 6)
ABORTED = [AbortedTransaction(2, offset, offset + 1, offset + 2) for offset in (10, 20, 30)]


def run(base_offset: int, end_offset: int) -> ManifestRef:
    return ManifestRef(f"{base_offset}", base_offset, end_offset, 1, 0, 1, 1, 0, 0, 1, "00000000")


def segment(base_offset: int, entry: int) -> SegmentRef:
    return SegmentRef("s", base_offset, 1, 1, "00000000", entry, 1, 0, 0, NO_TRANSACTION, 0, 0)


def test_ended_transactions_that_only_the_own_runs_hold_come_from_the_checkpoint() -> None:
    """This process has sealed up to offset 6, the checkpoint up to 2: what lies between is single again."""
    sealed = PartitionSegments(1, 0, (run(0, 2),), (segment(2, 3), segment(4, 5)), (), (SECOND, THIRD))
    current = PartitionSegments(1, 0, (run(0, 6),), (segment(6, 7),), (), ())
    found = in_places_of(sealed, current, entry=6, log_start_offset=0)
    assert found == PartitionSegments(
        1, 0, (run(0, 2),), (segment(2, 3), segment(4, 5), segment(6, 7)), (), (SECOND, THIRD)
    )


def test_ended_transactions_that_the_checkpoint_has_sealed_are_dropped_and_newer_ones_kept() -> None:
    sealed = PartitionSegments(1, 0, (run(0, 4),), (), (), ())
    current = PartitionSegments(1, 0, (), (segment(0, 1), segment(2, 3), segment(4, 5)), (), (FIRST, SECOND, THIRD))
    found = in_places_of(sealed, current, entry=4, log_start_offset=0)
    assert found == PartitionSegments(1, 0, (run(0, 4),), (segment(4, 5),), (), (THIRD,))


def test_a_transaction_that_both_know_stands_once_and_aborted_ones_follow_the_same_rule() -> None:
    sealed = PartitionSegments(1, 0, (), (segment(0, 1),), tuple(ABORTED[:2]), (FIRST, SECOND))
    current = PartitionSegments(1, 0, (), (segment(0, 1),), tuple(ABORTED[1:]), (SECOND, THIRD))
    found = in_places_of(sealed, current, entry=9, log_start_offset=3)
    assert found.committed == (SECOND, THIRD)
    assert found.aborted == tuple(ABORTED)
