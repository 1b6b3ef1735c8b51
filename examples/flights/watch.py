"""Shows how far the job is, by looking at the log from outside while drivers come and go."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from flights.processes import start_module
from sparktxn import ReadView, Store

__all__ = ["Driver", "Event", "Sample", "Watch"]

TOPICS = ("flights", "delays", "late")
LOOK_EVERY_S = 0.25


class Sample(NamedTuple):
    """Records per topic at one moment, as a read view shows them."""

    at_s: float
    entry: int
    rows: dict[str, int]


class Event(NamedTuple):
    """Something that happened to the driver."""

    at_s: float
    what: str


class Driver:
    """A process with the job's driver, its JVM and its workers. It prepares its queries, and starts them by `go`.

    One driver prepares at a time, so it takes little from the one that runs.
    """

    def __init__(self, folder: Path, kill_at_commit: int = 0) -> None:
        self._log = (folder / "driver.log").open("a")
        self._process = start_module("flights.job", [str(folder), str(kill_at_commit)], self._log)

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        self._log.close()

    def go(self) -> None:
        """Start the queries."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def running(self) -> bool:
        """Return False once the driver has ended, at the end of its work or by SIGKILL."""
        code = self._process.poll()
        if code not in (None, 0, -signal.SIGKILL):
            raise SystemExit(f"a driver failed with {code}: see {self._log.name}")
        return code is None

    def kill(self) -> None:
        """Send SIGKILL to the driver and its JVM; Python's workers follow them."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Watch:
    """Bars for the three topics, and what was seen, for the chart."""

    def __init__(self, store: Store, console: Console, total: int) -> None:
        self._store = store
        self._started = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description:<8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        )
        self._bars: dict[str, TaskID] = {
            topic: self._progress.add_task(topic, total=None if topic == "late" else total) for topic in TOPICS
        }
        self.samples: list[Sample] = []
        self.kills: list[Event] = []

    def __enter__(self) -> Watch:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def until(self, driver: Driver, what: str, enough: Callable[[int], bool]) -> None:
        """Watches until the driver has ended, or `enough` says so of the number of flights in ``delays``."""
        self._say(what)
        while True:
            running = driver.running()
            rows = self._look()
            if not running or enough(rows["delays"]):
                return
            time.sleep(LOOK_EVERY_S)

    def killed(self, what: str) -> None:
        """Notes a kill."""
        self._look()
        self.kills.append(Event(self._now(), what))
        self._say(f"[bold red]{what}[/]")

    def _say(self, what: str) -> None:
        self._progress.console.print(f"{self._now():6.1f} s  {what}")

    def _now(self) -> float:
        return time.monotonic() - self._started

    def _look(self) -> dict[str, int]:
        view = self._store.view(TOPICS)
        rows = {topic: _rows(view, topic) for topic in TOPICS}
        if not self.samples or self.samples[-1].entry != view.entry:
            self.samples.append(Sample(self._now(), view.entry, rows))
        for topic, count in rows.items():
            self._progress.update(self._bars[topic], completed=count)
        return rows


def _rows(view: ReadView, topic: str) -> int:
    """The topic's records: its offsets, without those that ends of transactions take."""
    partitions = [partition for (name, _), partition in view.partitions.items() if name == topic]
    sealed = sum(run.end_offset - run.base_offset for partition in partitions for run in partition.sealed)
    return sealed + sum(segment.record_count for partition in partitions for segment in partition.segments)
