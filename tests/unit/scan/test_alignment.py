"""The traces of aligned cuts: a start inside, a limit below one transaction, a chain without end, control records."""

from __future__ import annotations

import pytest

from sparktxn.errors import ConfigurationError
from sparktxn.log.look.views import PartitionView, ReadView
from sparktxn.scan.alignment import Cut, aligned_cut
from sparktxn.structs import NO_TRANSACTION, SegmentRef, TopicState
from tests.unit.scan.log_builder import PartitionLog, memory_store, read_view

OBJECTS = memory_store()
TOPIC = TopicState("t", 1, 8, {}, None, 1)


def segment(base: int, rows: int, entry: int, producer: int = 1, transaction: int = NO_TRANSACTION) -> SegmentRef:
    return SegmentRef("s", base, rows, 1, "", entry, producer, 0, 0, transaction, 0, 0)


def partition(number: int, *segments: SegmentRef, stable: int, end: int, log_start: int = 0) -> PartitionView:
    return PartitionView(TOPIC, number, 99, log_start, stable, end, (), segments, ())


def view_of(*partitions: PartitionView) -> ReadView:
    return ReadView(99, 0, {"t": TOPIC}, {("t", one.partition): one for one in partitions})


def cut(view: ReadView, *starts: int, **options: object) -> Cut:
    named = {("t", number): start for number, start in enumerate(starts)}
    return aligned_cut(OBJECTS, view, named, **options)  # type: ignore[arg-type]


def offsets(found: Cut) -> list[int]:
    return list(found.offsets.values())


def test_a_transaction_above_the_last_stable_offset_in_one_partition_is_left_out_of_the_other() -> None:
    # Producer 2's fused transaction lies behind producer 1's open one in partition 0.
    view = view_of(
        partition(0, segment(0, 1, 1, 1, 1), segment(1, 1, 2, 2, 1), stable=0, end=3),
        partition(1, segment(0, 1, 2, 2, 1), stable=2, end=2),
    )
    assert cut(view) == Cut({("t", 0): 0, ("t", 1): 0}, True, 0)


def test_the_cut_is_never_below_a_users_start() -> None:
    view = view_of(
        partition(0, segment(0, 1, 1, 1, 1), segment(1, 1, 2, 2, 1), stable=0, end=3),
        partition(1, segment(0, 2, 2, 2, 1), segment(3, 1, 3), stable=4, end=4),
    )
    assert offsets(cut(view, 0, 1)) == [0, 1]
    assert offsets(cut(view, 0, 2)) == [0, 4]


@pytest.mark.parametrize(
    ("rows_max", "expected", "rows"), [(1, [4, 0], 3), (2, [4, 0], 3), (3, [4, 0], 3), (4, [4, 2], 4), (6, [4, 5], 6)]
)
def test_a_first_transaction_larger_than_the_limit_is_taken_whole(
    rows_max: int, expected: list[int], rows: int
) -> None:
    view = view_of(
        partition(0, segment(0, 3, 1, 1, 1), stable=4, end=4),
        partition(1, segment(0, 1, 2, 2, 1), segment(2, 2, 3, 2, 2), stable=5, end=5),
    )
    found = cut(view, rows_max=rows_max)
    assert (offsets(found), found.rows) == (expected, rows)


def chain(stable: tuple[int, int, int] = (2, 4, 4), *, mirrored: bool = False) -> ReadView:
    """A in partitions 0 and 1, B in 1 and 2, C in 2, each lying before the next; all three have ended."""
    number = [2, 1, 0] if mirrored else [0, 1, 2]
    partitions = [
        partition(number[0], segment(0, 1, 4, 1, 1), stable=stable[0], end=2),
        partition(number[1], segment(0, 1, 2, 2, 1), segment(1, 1, 3, 1, 1), stable=stable[1], end=4),
        partition(number[2], segment(0, 1, 1, 3, 1), segment(1, 1, 5, 2, 1), stable=stable[2], end=4),
    ]
    return view_of(*(reversed(partitions) if mirrored else partitions))


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize(
    ("stable", "expected"),
    [
        ((0, 4, 4), [0, 1, 4]),  # A is held back in partition 0; B lies before it in partition 1 and can be taken
        ((2, 4, 1), [0, 0, 1]),  # B is held back in partition 2, so A behind it in partition 1, so all of partition 0
    ],
)
def test_what_is_taken_out_takes_out_what_lies_across_it(
    stable: tuple[int, int, int], expected: list[int], mirrored: bool
) -> None:
    found = offsets(cut(chain(stable, mirrored=mirrored)))
    assert found == (expected[::-1] if mirrored else expected)


def test_what_is_taken_in_takes_in_what_lies_before_it() -> None:
    # From the end of C on, B is the oldest: it is alone. A, taken first where B is not yet in reach, drags B in.
    assert offsets(cut(chain(), 0, 0, 1, rows_max=1)) == [0, 1, 4]
    view = view_of(
        partition(0, segment(0, 1, 1, 1, 1), stable=2, end=2),
        partition(1, segment(0, 1, 2, 2, 1), segment(1, 1, 3, 1, 1), stable=4, end=4),
        partition(2, segment(0, 1, 3, 3, 1), segment(1, 1, 4, 2, 1), stable=4, end=4),
    )
    assert cut(view, rows_max=1) == Cut({("t", 0): 2, ("t", 1): 4, ("t", 2): 4}, False, 5)


def test_a_chain_of_overlapping_transactions_stalls_and_says_so() -> None:
    # Producer 1 has committed in both partitions; producer 2's open transaction lies before it in partition 1.
    view = view_of(
        partition(0, segment(0, 1, 1, 1, 1), segment(1, 1, 4, 2, 1), stable=1, end=4),
        partition(1, segment(0, 1, 2, 2, 1), segment(1, 1, 3, 1, 1), stable=0, end=4),
    )
    for rows_max in (None, 1, 100):
        assert cut(view, rows_max=rows_max) == Cut({("t", 0): 0, ("t", 1): 0}, True, 0)
    assert offsets(cut(view, alignment="lso")) == [1, 0]


def test_nothing_new_is_no_stall() -> None:
    view = view_of(partition(0, segment(0, 2, 1), stable=2, end=2))
    assert cut(view, 2) == Cut({("t", 0): 2}, False, 0)


def test_trailing_control_records_and_gaps_are_passed() -> None:
    view = view_of(
        partition(0, segment(0, 2, 1, 1, 1), stable=3, end=3),
        partition(1, segment(0, 2, 2, 1, 2), segment(5, 1, 3, 1, 3), stable=7, end=7),
    )
    assert offsets(cut(view, rows_max=4)) == [3, 5]
    assert offsets(cut(view, 2, 6)) == [3, 7]


def test_the_producers_of_one_transaction_number_are_not_one_transaction() -> None:
    view = view_of(
        partition(0, segment(0, 1, 1, 1, 1), stable=2, end=2),
        partition(1, segment(0, 1, 2, 2, 1), stable=2, end=2),
    )
    assert offsets(cut(view, rows_max=1)) == [2, 0]


def test_partitions_without_a_start_begin_at_the_log_start() -> None:
    view = view_of(partition(0, segment(0, 10, 1), stable=10, end=10, log_start=4))
    assert cut(view) == Cut({("t", 0): 10}, False, 6)
    assert cut(view, 2).rows == 6


@pytest.mark.parametrize(
    ("rows_max", "expected"), [(None, [100, 10, 0]), (11, [10, 1, 0]), (5, [4, 1, 0]), (1000, [100, 10, 0])]
)
def test_lso_alignment_shares_the_limit_out_as_kafkas_connector_does(rows_max: int | None, expected: list[int]) -> None:
    view = view_of(
        partition(0, segment(0, 100, 1), stable=100, end=100),
        partition(1, segment(0, 10, 2), stable=10, end=12),
        partition(2, stable=0, end=0),
    )
    found = cut(view, rows_max=rows_max, alignment="lso")
    assert offsets(found) == expected
    assert found.rows == sum(expected)


def test_sealed_runs_are_cut_as_single_segments_are() -> None:
    cuts = []
    for sealed in (False, True):
        log = PartitionLog(memory_store())
        for number in range(5):
            log.append(10, transaction=number)
            log.control()
            if sealed and number % 2:
                log.seal()
        found = aligned_cut(log.objects, read_view(log.view()), {("orders", 0): 15}, rows_max=17)
        cuts.append((found.rows, found.offsets))
    assert cuts[0] == cuts[1] == (6 + 10, {("orders", 0): 33})


@pytest.mark.parametrize("options", [{"rows_max": 0}, {"alignment": "entry"}])
def test_wrong_options_are_errors(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        cut(view_of(partition(0, stable=0, end=0)), **options)


@pytest.mark.parametrize("rows_max", [None, 10, 100_000])
def test_a_backlog_of_20_000_segments_is_cut_whole(rows_max: int | None) -> None:
    partitions = []
    for number in range(4):
        segments = [segment(101 * index, 100, index + 1, 7, index) for index in range(5_000)]
        partitions.append(partition(number, *segments, stable=505_000, end=505_000))
    found = cut(view_of(*partitions), rows_max=rows_max)
    assert found.rows == {None: 2_000_000, 10: 400, 100_000: 100_000}[rows_max]
