"""Runs one query to its end through the blows that a seed chose, driver after driver, and checks the store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import pyspark

from tests.kills.blows import AT_RANDOM, Blow, Blows
from tests.kills.checker import Findings, check
from tests.kills.queries import Query, fill
from tests.spark.sessions import QUICK_JAVA

__all__ = ["CannotGoOn", "Report", "run"]

ROOT: Final = Path(__file__).parents[2]
_IDLE_DRIVERS_MAX: Final = 4
_STANDS_STILL_S: Final = 900.0
_POLL_S: Final = 0.05
_SECOND_DRIVER_BATCHES: Final = 2


class CannotGoOn(AssertionError):
    """A query does not end, though all blows have been dealt, or fails where it was not hit."""


class Report(NamedTuple):
    """What was done to a query, and what came of it."""

    query: Query
    seed: int
    dealt: Counter[str]
    drivers: int
    seconds: float
    findings: Findings

    def __str__(self) -> str:
        query, findings = self.query, self.findings
        shuffled, content = ("shuffle" if query.shuffle else "no shuffle"), ("random" if query.random else "fixed")
        blows = ", ".join(f"{count} {name}" for name, count in sorted(self.dealt.items()))
        return (
            f"seed {self.seed}: {query.source} to {query.sink}, {shuffled}, {content}, {query.master}: "
            f"{findings.batches} micro-batches, {findings.rows} rows, {findings.entries} entries, "
            f"{self.drivers} drivers, {sum(self.dealt.values())} blows in {self.seconds:.0f} s ({blows}); "
            f"{len(findings.problems)} problems {list(findings.problems[:5])}"
        )


def run(
    query: Query, blows: Sequence[Blow], seed: int, copy: Callable[[], Path] | None = None, broken: str = ""
) -> Report:
    """Run the query through the blows and check its store, which `copy` brings to the local disk if it is elsewhere.

    `broken` names a build of `tests.kills.broken`.

    Raises:
        CannotGoOn: the query failed again and again, or stands still.
        Damaged: the store is not what PROTOCOL.md says.
    """
    started_s = time.monotonic()
    fill(query)
    scene = _Scene(query, seed, broken)
    scene.blows.plan(blows)
    drivers = scene.run()
    store = Path(query.uri) if copy is None else copy()
    findings = check(store, query.batches, ends=scene.blows.ends())
    dealt = Counter(f"{blow.point} {blow.action}" for blow in blows[: scene.blows.dealt()])
    return Report(query, seed, dealt, drivers, time.monotonic() - started_s, findings)


class _Scene:
    def __init__(self, query: Query, seed: int, broken: str) -> None:
        self.folder = Path(query.folder)
        self.blows = Blows(self.folder)
        self._query = query
        self._random = Random(f"supervisor/{seed}")
        self._broken = broken
        self._processes: list[subprocess.Popen[bytes]] = []
        (self.folder / "query.json").write_text(query.dump())

    def run(self) -> int:
        """Run drivers until one has finished the query; return how many there were."""
        try:
            idle = 0
            while idle < _IDLE_DRIVERS_MAX:
                before = (self.blows.recorded(), self.blows.dealt())
                code = self._follow(self._start())
                if code == 0:
                    return len(self._processes)
                if code == 3:
                    raise CannotGoOn(f"the query fails again and again:\n{self._output()}")
                idle = idle + 1 if (self.blows.recorded(), self.blows.dealt()) == before else 0
            raise CannotGoOn(f"{idle} drivers in turn did nothing:\n{self._output()}")
        finally:
            for process in self._processes:
                _signal_session(process.pid, signal.SIGKILL)
                process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        paths = [str(ROOT / "tests" / "kills" / "inject"), str(ROOT), str(ROOT / "scala-free-python-datasource")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYSPARK_PYTHON": sys.executable,
            "KILLS_FOLDER": str(self.folder),
            "KILLS_BROKEN": self._broken,
            **QUICK_JAVA,
        }
        if self._query.master.startswith("local-cluster"):
            environment["SPARK_HOME"] = str(_spark_home(self.folder))
        with self._log(len(self._processes)).open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.kills.job", str(self.folder / "query.json")],
                cwd=ROOT,
                env=environment,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        (self.folder / "driver").write_text(str(process.pid))
        self._processes.append(process)
        return process

    def _follow(self, process: subprocess.Popen[bytes]) -> int:
        """Return how the driver ended; deal the blows at random, and those that need a second driver."""
        seen, moved_s = (-1, -1), time.monotonic()
        while (code := process.poll()) is None:
            time.sleep(_POLL_S)
            now = (self.blows.recorded(), self.blows.dealt())
            if now != seen:
                seen, moved_s = now, time.monotonic()
            if time.monotonic() - moved_s > _STANDS_STILL_S:
                raise CannotGoOn(f"the query stands still after {seen[0]} micro-batches:\n{self._output()}")
            self._hit_at_random(process)
            stopped = self._stopped()
            if stopped is not None:
                return self._second_driver(process, stopped)
        # What a killed driver leaves behind may live on for a while: that is part of the test.
        return code

    def _hit_at_random(self, process: subprocess.Popen[bytes]) -> None:
        found = self.blows.next_at(AT_RANDOM)
        if found is None:
            return
        number, blow = found
        time.sleep(self._random.random() * 0.5)
        if blow.action == "driver":
            self.blows.take(number)
            os.killpg(process.pid, signal.SIGKILL)
            return
        is_executor = blow.action == "executor"
        name = "java" if is_executor else "python"
        pids = [pid for pid in _session_of(process.pid) if pid != process.pid and name in _command(pid)]
        if is_executor:
            pids = [pid for pid in pids if "CoarseGrainedExecutorBackend" in _command(pid)]
        if pids:
            self.blows.take(number)
            _kill(self._random.choice(pids), signal.SIGKILL)

    def _stopped(self) -> int | None:
        number = self.blows.dealt() - 1
        if number < 0 or self.blows.planned[number].action != "stop" or self.blows.resumed(number).exists():
            return None
        return number

    def _second_driver(self, first: subprocess.Popen[bytes], number: int) -> int:
        """Stop the first driver with all its processes; let it go on once a second one has gone ahead."""
        _signal_session(first.pid, signal.SIGSTOP)
        goal = self.blows.recorded() + _SECOND_DRIVER_BATCHES
        second = self._start()
        deadline_s = time.monotonic() + _STANDS_STILL_S
        while second.poll() is None and self.blows.recorded() < min(goal, self._query.batches):
            time.sleep(_POLL_S)
            if time.monotonic() > deadline_s:
                raise CannotGoOn(f"a second driver stands still while the first is stopped:\n{self._output()}")
        self.blows.resumed(number).touch()
        _signal_session(first.pid, signal.SIGCONT)
        code = self._follow(second)
        if first.poll() is None:
            try:
                first.wait(30)
            except subprocess.TimeoutExpired:
                _signal_session(first.pid, signal.SIGKILL)
        return code

    def _log(self, number: int) -> Path:
        return self.folder / f"driver-{number}.log"

    def _output(self) -> str:
        return self._log(len(self._processes) - 1).read_text(errors="replace")[-6000:]


def _spark_home(folder: Path) -> Path:
    """Return a home for Spark in `folder`, for a cluster on one machine keeps its executors' folders there."""
    home = folder / "spark-home"
    if not home.exists():
        home.mkdir()
        for item in Path(pyspark.__path__[0]).iterdir():
            (home / item.name).symlink_to(item)
    return home


def _session_of(leader: int) -> list[int]:
    """Return the processes of a session: a driver, its JVMs and their Python workers."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                session = (folder / "stat").read_text().rpartition(")")[2].split()[3]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(session) == leader:
                found.append(int(folder.name))
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _signal_session(leader: int, number: int) -> None:
    for pid in _session_of(leader):
        _kill(pid, number)
