"""Kill the example of an order and its payment at every operation of its store, and every statement of its database.

``python -m tests.crash.order_points FOLDER PROGRAM EVERY FIRST`` runs a program of the example once, to count its
steps. Then it runs it again and again, each time in a process that dies at another step: at FIRST, and at each EVERY-th
after it. Another process of the producer group, which sends nothing, settles what is open. The database and the topic
must then hold the same orders, and still after further orders. It prints how many processes have died.

It has no threads and opens no store itself: each process is a fork that has everything imported.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from examples import order_and_payment as example
from sparktxn._engine.objectstore.local import LocalStore
from sparktxn.store import Store, read_task

__all__ = ["PROGRAMS", "orders", "payments"]

PROGRAMS: Final = {"send": "", "check": "order committed", "check of what never ran": "half message stored"}
"""What the process does that is killed, by the step of the example at which one before it has died."""

_VERBS: Final = (
    "get",
    "get_many",
    "get_range",
    "put_if_absent",
    "put_each_if_absent",
    "put",
    "list",
    "list_names",
    "delete",
    "make_durable",
)
_CHECKER: Final = "sparktxn-checks"
_SHORT_MS: Final = {"transaction.timeout.ms": 60, "transaction.check.interval.ms": 60, "transaction.check.poll.ms": 20}


class Steps:
    """The steps of this process: the one with the number `dies_at` is its last one.

    Where nothing is to be checked, the thread that checks asks again and again: its steps count if `checks`, else only
    those of other threads.
    """

    def __init__(self, dies_at: int, *, checks: bool) -> None:
        self.taken = 0
        self._dies_at = dies_at
        self._checks = checks

    def take(self) -> None:
        if (threading.current_thread().name == _CHECKER) is self._checks:
            self.taken += 1
            if self.taken == self._dies_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def wrap_all(self) -> None:
        """Make each store operation two steps, one before and one after it, and each statement one."""
        for verb in _VERBS:
            setattr(LocalStore, verb, self._wrapped(getattr(LocalStore, verb)))
        connect = example.connect

        def traced(database_file: str) -> sqlite3.Connection:
            database = connect(database_file)
            database.set_trace_callback(lambda statement: self.take())
            return database

        example.connect = traced

    def _wrapped(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **named: Any) -> Any:
            self.take()
            result = operation(*arguments, **named)
            self.take()
            return result

        return stepped


def orders(folder: Path) -> list[tuple[int, str]]:
    """Return the rows of the database."""
    with sqlite3.connect(folder / "shop.db") as database:
        return database.execute("SELECT number, item FROM orders ORDER BY number").fetchall()


def payments(folder: Path) -> list[tuple[int, str]]:
    """Return what a reader sees of the topic; a payment that is there twice is in it twice."""
    with Store.open(str(folder / "store")) as store:
        view = store.view(["payments"])
        tasks = store.plan(view, store.ranges(view))
        rows = [row for task in tasks for batch in read_task(task, store.options) for row in batch.to_pylist()]
    return sorted((int(row["key"]), row["value"].decode().removeprefix("payment for ")) for row in rows)


def in_a_process(work: Callable[[], object]) -> int:
    """Run `work` in a fork, and return its exit code, or minus the signal that has ended it."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def place(folder: Path, up_to: int, reached: Callable[[str], None] = lambda step: None) -> None:
    """Run the example until the database has so many orders."""
    example.run(str(folder / "store"), str(folder / "shop.db"), up_to, reached)


def prepare(folder: Path, last_step: str) -> None:
    """Place one order; then another process dies at the step."""

    def die(step: str) -> None:
        if step == last_step:
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_process(lambda: place(folder, 1)) == 0
    if last_step:
        assert in_a_process(lambda: place(folder, 2, die)) == -signal.SIGKILL


def take_over(folder: Path) -> None:
    """Settle what is open, and place further orders; fail if an order is without its payment, or the reverse."""
    place(folder, 0)
    assert payments(folder) == orders(folder)
    place(folder, 3)
    assert payments(folder) == orders(folder) == [(number, f"item {number}") for number in range(3)]


def steps_of(folder: Path, up_to: int) -> int:
    """Return how many steps the program takes that is to be killed."""
    steps = Steps(0, checks=not up_to)
    noted = folder / "steps"

    def run() -> None:
        steps.wrap_all()
        place(folder, up_to)
        noted.write_text(str(steps.taken))

    assert in_a_process(run) == 0
    return int(noted.read_text())


def killed_at(step: int, folder: Path, up_to: int) -> bool:
    """Run the program in a process that dies at the step, unless it ends before; return whether it has died."""

    def run() -> None:
        Steps(step, checks=not up_to).wrap_all()
        place(folder, up_to)

    code = in_a_process(run)
    assert code in (0, -signal.SIGKILL), f"the program ended with {code}"
    return code != 0


def main(folder: Path, program: str, every: int, first: int) -> dict[str, int]:
    """Kill the program at its steps, and return how many it has, and how many processes have died and have ended."""
    example.SETTINGS.update(_SHORT_MS)
    up_to = 2 if program == "send" else 0
    prepared = folder / "prepared"
    prepared.mkdir()
    prepare(prepared, PROGRAMS[program])
    copies = (Path(shutil.copytree(prepared, folder / f"copy-{number}")) for number in count())
    total = steps_of(next(copies), up_to)
    killed = 0
    steps = range(first, total + 1, every)
    for step, copy in zip(steps, copies, strict=False):
        killed += killed_at(step, copy, up_to)
        assert in_a_process(partial(take_over, copy)) == 0, f"after step {step} of {program!r}"
        shutil.rmtree(copy)
    return {"steps": total, "killed": killed, "ended": len(steps) - killed}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
