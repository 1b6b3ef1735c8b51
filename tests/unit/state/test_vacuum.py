"""The vacuum's command: what it may raise, and what that refuses afterwards."""

from __future__ import annotations

import pytest

from sparktxn._engine.format.commands import Command, InitProducerId, Vacuum
from sparktxn.errors import ErrorCode
from tests.purelog import PureLog

HERE = (1, 0)


def limits(log: PureLog) -> tuple[int, int]:
    store = log.records["store",]
    return store.horizon, store.segment_floor


def filled(entries: int = 5) -> PureLog:
    log = PureLog()
    log.create_topic()
    for number in range(entries):
        log.submit(InitProducerId(f"filler {number}"))
    return log


def test_both_only_grow() -> None:
    log = filled()
    log.submit(Vacuum(4, 3))
    assert limits(log) == (4, 3)
    for less in (Vacuum(3, 5), Vacuum(5, 2)):
        assert log.refusal(less) == ErrorCode.INVALID_REQUEST
    log.submit(Vacuum(4, 5))
    log.submit(Vacuum(6, 5))
    assert limits(log) == (6, 5)


def test_what_is_in_force_is_written_no_second_time() -> None:
    log = filled()
    log.submit(Vacuum(4, 3))
    entry = log.entry
    assert log.submit(Vacuum(4, 3))[0].duplicate
    assert log.entry == entry
    assert filled().submit(Vacuum(1, 0))[0].duplicate


@pytest.mark.parametrize("above", [Vacuum(8, 0), Vacuum(1, 8)])
def test_neither_passes_the_log(above: Vacuum) -> None:
    log = filled(5)
    assert log.entry == 6
    assert log.refusal(above) == ErrorCode.OFFSET_OUT_OF_RANGE
    log.submit(Vacuum(7, 7))
    assert limits(log) == (7, 7)


@pytest.mark.holes(9)
def test_hole_9_a_segment_born_below_the_floor_is_refused() -> None:
    """However slow its writer was: it gets an error, and no entry names what the vacuum may have deleted."""
    log = filled()
    producer = log.initialise(None)
    log.submit(producer.append(HERE, 0, born=2))
    log.submit(Vacuum(1, 3))
    assert log.refusal(producer.append(HERE, 1, born=2)) == ErrorCode.KAFKA_STORAGE_ERROR
    log.submit(producer.append(HERE, 1, born=3))


@pytest.mark.holes(9)
def test_hole_9_a_segment_cannot_be_born_in_the_future() -> None:
    log = filled()
    producer = log.initialise(None)
    assert log.refusal(producer.append(HERE, 0, born=log.entry + 1)) == ErrorCode.KAFKA_STORAGE_ERROR
    log.submit(producer.append(HERE, 0, born=log.entry))


def test_a_batch_that_was_stored_before_the_floor_was_raised_is_still_a_repetition() -> None:
    log = filled()
    producer = log.initialise("job")
    list_: list[Command] = [producer.append(HERE, 0, transaction=1), producer.end(1)]
    first = log.submit(*list_)
    log.submit(Vacuum(1, log.entry))
    again = log.submit(*list_)
    assert [result.duplicate for result in again] == [True, True]
    assert again[0].base_offset == first[0].base_offset


def test_a_vacuum_in_the_same_entry_counts_for_the_lists_after_it() -> None:
    log = filled()
    producer = log.initialise(None)
    assert log.refusal(Vacuum(1, log.entry), producer.append(HERE, 0, born=2)) == ErrorCode.KAFKA_STORAGE_ERROR
