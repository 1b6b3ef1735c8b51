"""A process that has imported everything and forks workers on demand: a worker is running after some milliseconds.

It has no threads and opens no store. `WorkerForker` is its owner's end: it starts workers, reports which
have ended, and ends all of them with itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pandas  # noqa: F401 - pyarrow imports it for the first Python value that it converts

import tests.crash.group_workload
import tests.crash.jobs_workload  # noqa: F401 - roles more
from tests.crash.chaos_workload import Task, run

ROOT = Path(__file__).parents[2]


class WorkerForker:
    """The owner's end."""

    def __init__(self, *, remote: bool) -> None:
        self._command = [sys.executable, "-m", "tests.crash.worker_forker", *(["remote"] if remote else [])]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        process = self._process
        if process is not None and process.stdin is not None and process.stdout is not None:
            process.stdin.close()
            process.wait(60)
            process.stdout.close()

    def start(self, task: Task) -> int:
        """The process id of a new worker."""
        return int(self._ask({"start": task._asdict()})["pid"])

    def ended(self) -> dict[int, int]:
        """The workers that have ended since the last call: {process id: exit code, or minus the signal}."""
        return {int(pid): code for pid, code in self._ask({"ended": True})["ended"].items()}

    def _ask(self, question: dict[str, object]) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(question).encode() + b"\n")
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(process.stdout.readline())
        return answer


def _start(task: Task) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        output = os.open(
            Path(task.folder, f"{task.name}.{task.incarnation}.output"), os.O_WRONLY | os.O_CREAT | os.O_APPEND
        )
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, output), (2, output)):
            os.dup2(source, target)
        code = run(task)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(code)


def _ended(living: set[int]) -> dict[int, int]:
    codes = {}
    for pid in sorted(living):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            codes[pid] = os.waitstatus_to_exitcode(status)
    living -= set(codes)
    return codes


def main() -> None:
    if "remote" in sys.argv:
        import s3fs  # noqa: F401 - imported once here, not by every worker
    living: set[int] = set()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        question = json.loads(line)
        if "start" in question:
            pid = _start(Task(**question["start"]))
            living.add(pid)
            answer: dict[str, object] = {"pid": pid}
        else:
            answer = {"ended": _ended(living)}
        print(json.dumps(answer), file=answers, flush=True)
    for pid in living:
        os.kill(pid, signal.SIGKILL)
    for pid in living:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
