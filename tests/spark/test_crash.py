"""Exactly once through the worst moment: the entry is put, Spark's own record is not, and driver and JVM are killed.

What the store holds is counted by a reader that has only `json` and `pyarrow`.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark.drivers import Driver, committed_batches, fill, numbers

pytestmark = [pytest.mark.spark, pytest.mark.crash]


@pytest.mark.kafka("K138")
def test_a_driver_killed_between_the_entry_and_sparks_record_writes_each_row_once(tmp_path: Path) -> None:
    store = tmp_path / "store"
    fill(str(store))
    driver = Driver(tmp_path, str(store))

    assert driver.run(kill_at_commit=2) == -signal.SIGKILL
    assert (tmp_path / "note").read_text() == "1"
    assert list(committed_batches(store).values()) == [0, 1], "the entry is put"
    assert not driver.knows(1), "and Spark does not know"

    assert driver.run() == 0, driver.stderr()
    assert "input rows 150" in driver.stdout(), "Spark ran the second micro-batch again"
    assert list(committed_batches(store).values()) == [0, 1, 2, 3], "and the log took it once"
    assert numbers(store, "even") == list(range(0, 200, 2))
    assert numbers(store, "odd") == list(range(1, 200, 2))
