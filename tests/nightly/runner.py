"""Runs one group in processes of its own, which end with it, and keeps its output and its result."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.nightly.groups import ROOT, Group
from tests.seeds import SEED_VARIABLE

__all__ = [
    "GREEN",
    "HASH_VARIABLE",
    "OUT_OF_TIME",
    "RED",
    "AlreadyRunning",
    "Result",
    "end",
    "locked",
    "result_of",
    "run_group",
]

GREEN: Final = "green"
RED: Final = "red"
OUT_OF_TIME: Final = "out of time"
HASH_VARIABLE: Final = "PYTHONHASHSEED"
"""Tests draw from sets, too."""
GRACE_S: Final = 60.0
"""How long a group may take to clean up and write its results after it was interrupted."""
INTERRUPTS: Final = 3
"""Within that time: a test that catches everything may take one for a failure of its own."""


class AlreadyRunning(Exception):
    """Another process runs the same night."""


class Result(NamedTuple):
    """How a group has ended."""

    verdict: str
    seconds: float


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold the night's lock; end the group of a runner that was killed and could not end it. Yields the lock.

    A group inherits the lock, so it stays held until both the runner and its group have ended.

    Raises:
        AlreadyRunning: the runner that holds the lock is alive.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            runner, *group = [int(number) for number in os.pread(lock, 100, 0).split()]
            if _is_alive(runner):
                raise AlreadyRunning(f"process {runner} runs this night already") from None
            for leader in group:
                _kill(_family(leader))
            fcntl.flock(lock, fcntl.LOCK_EX)
        _note(lock)
        yield lock
    finally:
        os.close(lock)


def run_group(group: Group, seed: int, night: Path, lock: int, grace_s: float = GRACE_S) -> Result:
    """Run a group to its end, or to its limit of time. A KeyboardInterrupt ends it, too, and leaves no result."""
    folder = night / group.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, *(part.format(seed=seed, folder=folder) for part in group.arguments)]
    environment = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable} | os.environ
    environment |= {SEED_VARIABLE: str(seed), HASH_VARIABLE: str(seed % (1 << 32)), "PYTHONUNBUFFERED": "1"}
    started_s = time.monotonic()
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, env=environment,
            start_new_session=True, pass_fds=[lock],
        )  # fmt: skip
    _note(lock, process.pid)
    try:
        verdict = RED if process.wait(group.limit_s) else GREEN
    except subprocess.TimeoutExpired:
        verdict = OUT_OF_TIME
    finally:
        end(process, grace_s)
        _note(lock)
    result = Result(verdict, round(time.monotonic() - started_s, 1))
    # Renamed when it is whole: a runner that is killed here has not ended the group.
    (folder / "result.new").write_text(json.dumps(result._asdict()))
    (folder / "result.new").replace(folder / "result.json")
    return result


def result_of(group: Group, night: Path) -> Result | None:
    """Return how the group has ended in an earlier run of the same night; None if it has not."""
    path = night / group.name / "result.json"
    return Result(**json.loads(path.read_text())) if path.exists() else None


def end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Interrupt the group's first process so that it cleans up, then kill whatever is left of the group."""
    family = _family(process.pid)  # before it ends: then nothing says any more whose child a process was
    for _ in range(INTERRUPTS):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(grace_s / INTERRUPTS)
    _kill(family | _family(process.pid))
    process.wait()


def _family(leader: int) -> set[int]:
    """Return the processes that descend from one, and those in its process group."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,pgid="], capture_output=True, text=True, check=True)
    table = [tuple(int(number) for number in line.split()) for line in listing.stdout.splitlines()]
    # Drivers have sessions of their own, and are not part of the process group.
    family = {leader} & {pid for pid, _, _ in table}
    while more := {pid for pid, parent, group in table if parent in family or group == leader} - family:
        family |= more
    return family


def _kill(family: set[int]) -> None:
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _note(lock: int, *group: int) -> None:
    """Write into the lock who holds it: this runner, and the first process of its group."""
    text = " ".join(str(number) for number in (os.getpid(), *group))
    os.pwrite(lock, f"{text:<40}".encode(), 0)
