"""Exactly once through the worst moment: the entry is put, Spark's own record is not, and driver and JVM are killed.

What the store holds is counted by a reader that has only `json` and `pyarrow`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from examples.flights.independent_reader import committed, entries, rows_of
from sparktxn import Store

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.crash]


def run_driver(folder: Path, kill_at_commit: int) -> subprocess.CompletedProcess[str]:
    """Runs the job in a session of its own, which is what the kill is for."""
    paths = f"{ROOT}{os.pathsep}{ROOT / 'scala-free-python-datasource'}"
    arguments = [str(folder / "store"), str(folder / "checkpoint"), str(kill_at_commit), str(folder / "note")]
    return subprocess.run(
        [sys.executable, "-m", "tests.spark.crash_job", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable},
        start_new_session=True,
        stdout=(folder / "stdout").open("w"),
        stderr=(folder / "stderr").open("w"),
        text=True,
        timeout=150,
        check=False,
    )


def numbers(store: Path, topic: str) -> list[int]:
    segments = [segment for segment in committed(store) if segment.topic == topic]
    return sorted(int(value) for segment in segments for value in rows_of(segment).column("value").to_pylist())


def committed_batches(store: Path) -> list[int]:
    commands = [command for entry in entries(store) for command in entry.commands]
    return [command["batch_id"] for command in commands if command["type"] == "sink_batch_commit"]


def test_a_driver_killed_between_the_entry_and_sparks_record_writes_each_row_once(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store"), create=True) as store:
        for topic in ("in", "even", "odd"):
            store.create_topic(topic, 2)
        for first in range(0, 200, 50):
            stager = store.stage_plan(["in"]).open(seed=0, default_topic="in")
            stager.write(pa.table({"value": [str(number) for number in range(first, first + 50)]}))
            store.commit(stager.finish(), transactional_id="input")

    assert run_driver(tmp_path, kill_at_commit=2).returncode == -signal.SIGKILL
    killed_in = int((tmp_path / "note").read_text())
    assert killed_in == 1
    assert committed_batches(tmp_path / "store") == [0, 1], "the entry is put"
    assert not (tmp_path / "checkpoint" / "commits" / "1").exists(), "and Spark does not know"

    assert run_driver(tmp_path, kill_at_commit=0).returncode == 0, (tmp_path / "stderr").read_text()[-4000:]
    assert "input rows 150" in (tmp_path / "stdout").read_text(), "Spark ran the second micro-batch again"
    assert committed_batches(tmp_path / "store") == [0, 1, 2, 3], "and the log took it once"
    assert numbers(tmp_path / "store", "even") == list(range(0, 200, 2))
    assert numbers(tmp_path / "store", "odd") == list(range(1, 200, 2))
