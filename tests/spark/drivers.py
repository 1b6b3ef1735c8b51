"""Drivers to be killed, and what a store holds after them by a reader that has only `json` and `pyarrow`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from examples.flights.independent_reader import committed, entries, rows_of
from sparktxn import Store

ROOT = Path(__file__).parents[2]


def fill(uri: str, options: Mapping[str, str] | None = None) -> int:
    """Makes the store that the driver copies in: 200 numbers in four transactions; its newest entry."""
    with Store.open(uri, options=options, create=True) as store:
        for topic in ("in", "even", "odd"):
            store.create_topic(topic, 2)
        for first in range(0, 200, 50):
            stager = store.stage_plan(["in"]).open(seed=0, default_topic="in")
            stager.write(pa.table({"value": [str(number) for number in range(first, first + 50)]}))
            store.commit(stager.finish(), transactional_id="input")
        return store.view().entry


class Driver:
    """Runs of `crash_job` with one checkpoint in `folder`, each in a process session of its own, for the kill."""

    def __init__(self, folder: Path, uri: str, options: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.uri = uri
        self.options = dict(options or {})

    def start(self, kill_at_commit: int = 0) -> subprocess.Popen[bytes]:
        """A run; with `kill_at_commit` it kills itself in that commit, after the entry is put."""
        paths = f"{ROOT}{os.pathsep}{ROOT / 'scala-free-python-datasource'}"
        checkpoint, note = str(self.folder / "checkpoint"), str(self.folder / "note")
        arguments = [self.uri, json.dumps(self.options), checkpoint, str(kill_at_commit), note]
        with (self.folder / "stdout").open("wb") as stdout, (self.folder / "stderr").open("wb") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.crash_job", *arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
                stdout=stdout,
                stderr=stderr,
            )

    def run(self, kill_at_commit: int = 0) -> int:
        """A run to its end; how it ended."""
        process = self.start(kill_at_commit)
        try:
            return process.wait(150)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def knows(self, batch_id: int) -> bool:
        """Whether Spark's own record of the micro-batch is written."""
        return (self.folder / "checkpoint" / "commits" / str(batch_id)).exists()

    def stdout(self) -> str:
        """What the last run printed."""
        return (self.folder / "stdout").read_text()

    def stderr(self) -> str:
        """The end of what the last run complained of."""
        return (self.folder / "stderr").read_text()[-4000:]


def numbers(store: Path, topic: str) -> list[int]:
    """The committed numbers of a topic, sorted."""
    segments = [segment for segment in committed(store) if segment.topic == topic]
    return sorted(int(value) for segment in segments for value in rows_of(segment).column("value").to_pylist())


def committed_batches(store: Path) -> dict[int, int]:
    """Entry to micro-batch, of all that were committed."""
    return {
        entry.number: command["batch_id"]
        for entry in entries(store)
        for command in entry.commands
        if command["type"] == "sink_batch_commit"
    }
