"""Batches that a thread makes ahead: the same ones in the same order, with the same error at the same place."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog.reading.batch_reader import made_ahead
from sparktxn import DamagedObject

MEGABYTE = 131_072  # numbers of 8 bytes
WAIT_S = 30.0


def batches(count: int, error: Exception | None = None, rows: int = MEGABYTE) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        yield pa.record_batch([pa.repeat(number, rows)], names=["number"])
    if error is not None:
        raise error


def numbers(found: Iterator[pa.RecordBatch]) -> Iterator[int]:
    return (batch.column(0)[0].as_py() for batch in found)


def readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("txnlog-read")]


def no_reader_stays() -> bool:
    ends_s = time.monotonic() + WAIT_S
    while readers() and time.monotonic() < ends_s:
        time.sleep(0.01)
    return not readers()


@pytest.mark.parametrize("count", range(14))
def test_batches_and_an_error_come_as_without_the_thread(count: int) -> None:
    assert list(numbers(made_ahead(batches(count)))) == list(range(count))
    found = numbers(made_ahead(batches(count, DamagedObject("a", "it is gone"))))
    assert [next(found) for _ in range(count)] == list(range(count))
    with pytest.raises(DamagedObject, match="it is gone"):
        next(found)
    assert no_reader_stays()


def test_the_next_block_is_made_while_one_is_taken() -> None:
    made = []

    def noted() -> Iterator[pa.RecordBatch]:
        for batch in batches(100):
            made.append(batch)
            yield batch

    found = made_ahead(noted())
    for taken in range(1, 6):
        next(found)
        ends_s = time.monotonic() + WAIT_S
        ahead = taken if taken <= 4 else 12  # two blocks of four are made once the first has been taken
        while len(made) < ahead and time.monotonic() < ends_s:
            time.sleep(0.01)
        assert len(made) == ahead
    # No more than a block is made ahead, however long its reader rests.
    time.sleep(0.1)
    assert len(made) == 12
    found.close()  # type: ignore[attr-defined]
    assert no_reader_stays()


def test_a_small_read_starts_no_thread() -> None:
    found = made_ahead(batches(1_000, rows=100))
    assert [readers() for _ in found] == [[]] * 1_000


def test_a_read_that_is_given_up_ends_its_thread() -> None:
    may_go_on = threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        yield from batches(5)
        assert may_go_on.wait(WAIT_S)
        yield from batches(5)

    found = made_ahead(slow())
    for _ in range(4):
        next(found)
    may_go_on_later = threading.Timer(0.1, may_go_on.set)
    may_go_on_later.start()
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert no_reader_stays()
    may_go_on_later.join()
