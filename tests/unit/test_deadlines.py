"""A public call's deadline governs its thread: nothing below takes one, nested calls keep the earliest."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import pyspark_txnlog
import sparktxn
from sparktxn._foundation.process.background import InlineBackground, ThreadBackground, start_thread
from sparktxn._foundation.process.clock import (
    Clock,
    Deadline,
    callers_own_time,
    governing_deadline,
    in_callers_time,
    in_time,
    is_time_up,
    time_left_s,
)
from sparktxn.errors import ConfigurationError
from sparktxn.testing.clocks import ManualClock

ROOTS = [Path(str(package.__file__)).parent for package in (sparktxn, pyspark_txnlog)]
OWNER = Path(str(sparktxn.__file__)).parent / "_foundation" / "process" / "clock.py"
WAIT_S = 60


def takers(source: str) -> Iterator[str]:
    """Yield the functions that take a deadline, by the name of a parameter or by its type."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            arguments = node.args
            for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                kind = ast.unparse(one.annotation) if one.annotation is not None else ""
                if one.arg == "deadline" or "Deadline" in kind:
                    yield f"{getattr(node, 'name', 'lambda')}:{node.lineno}"


def test_no_signature_takes_a_deadline() -> None:
    assert list(takers("def a(log, deadline): ...")) == ["a:1"]
    assert list(takers("def b(*, until: Deadline | None): ...")) == ["b:1"]
    files = [file for root in ROOTS for file in root.rglob("*.py") if file != OWNER]
    assert len(files) > 200
    found = [f"{file}: {taker}" for file in files for taker in takers(file.read_text())]
    assert not found, (
        "ask for the time that is left (sparktxn/_foundation/process/clock.py) instead of taking a deadline"
    )


@pytest.mark.parametrize("limits_s", [(5, 60), (60, 5), (None, 5), (5, None)])
def test_of_nested_deadlines_the_earliest_counts(limits_s: tuple[float | None, float | None]) -> None:
    clock = ManualClock()
    outer, inner = (Deadline(clock, limit_s) for limit_s in limits_s)
    with outer.governs():
        with inner.governs():
            assert time_left_s() == 5
            assert time_left_s(2) == 2
            first = governing_deadline()
            assert first is not None
            assert first.seconds == 5
            clock.sleep(4)
            assert time_left_s() == 1
            assert not is_time_up()
            clock.sleep(1)
            assert is_time_up()
        assert time_left_s() == (None if limits_s[0] is None else limits_s[0] - 5)
    assert time_left_s() is None


class Handle(NamedTuple):
    clock: Clock

    @in_time("timeout", lambda handle: handle.clock, lambda _: 30.0)
    def outer(self, timeout: float | None = -1) -> float | None:
        return self.inner(10)

    @in_time("timeout", lambda handle: handle.clock)
    def inner(self, timeout: float | None = None) -> float | None:
        return time_left_s()


def test_a_public_call_inside_another_keeps_the_earlier_deadline() -> None:
    handle = Handle(ManualClock())
    assert [handle.outer(3), handle.outer(20)] == [3, 10]
    assert [handle.inner(), handle.inner(-1), handle.inner(7)] == [None, None, 7]


def test_a_call_without_a_time_out_has_its_own_time() -> None:
    assert [Own(ManualClock()).call(given) for given in (None, -1, 0, 4)] == [30, 30, 0, 4]
    assert [Own(ManualClock()).call(given) for given in (float("inf"), 1e300, 10**400)] == [None] * 3


@pytest.mark.parametrize("given", ["5", True, [1]])
def test_a_time_out_that_is_no_number_is_refused_before_the_call(given: object) -> None:
    calls: list[object] = []
    with pytest.raises(TypeError, match=r"timeout is .*: expected seconds as a number"):
        Noting(ManualClock(), calls).call(given)
    with pytest.raises(ConfigurationError, match="timeout is nan"):
        Noting(ManualClock(), calls).call(float("nan"))
    assert not calls
    Noting(ManualClock(), calls).call(10**400)
    assert calls == [None]


class Noting(NamedTuple):
    clock: Clock
    calls: list[object]

    @in_time("timeout", lambda handle: handle.clock)
    def call(self, timeout: object) -> None:
        self.calls.append(time_left_s())


class Own(NamedTuple):
    clock: Clock

    @in_time("timeout", lambda handle: handle.clock, lambda _: 30.0)
    def call(self, timeout: float | None) -> float | None:
        return time_left_s()


def in_a_thread(work: Callable[[], float | None]) -> float | None:
    found: list[float | None] = []
    thread = start_thread("deadlines", lambda: found.append(work()), finish=lambda: None, give_up=lambda: None)
    thread.join(WAIT_S)
    return found[0]


def by_a_worker(work: Callable[[], float | None]) -> float | None:
    background = ThreadBackground("deadlines", 1)
    try:
        return background.submit(work).result(WAIT_S)
    finally:
        background.close(WAIT_S)


def by_repetition(work: Callable[[], float | None]) -> float | None:
    background, found, done = ThreadBackground("deadlines", 1), [], threading.Event()

    def once() -> None:
        found.append(work())
        done.set()

    background.repeat(once)
    assert done.wait(WAIT_S)
    background.close(WAIT_S)
    return found[0]


def inline(work: Callable[[], float | None]) -> float | None:
    return InlineBackground().submit(work).result()


WORKERS = [in_a_thread, by_a_worker, by_repetition, inline]


@pytest.mark.parametrize("run", WORKERS)
def test_a_worker_does_not_inherit_the_deadline_of_who_gave_it_work(
    run: Callable[[Callable[[], float | None]], float | None],
) -> None:
    with Deadline(ManualClock(), 5).governs():
        assert run(time_left_s) is None
        assert time_left_s() == 5


@pytest.mark.parametrize("run", WORKERS)
def test_a_worker_that_serves_a_call_keeps_its_deadline(
    run: Callable[[Callable[[], float | None]], float | None],
) -> None:
    clock = ManualClock()
    with Deadline(clock, 5).governs():
        served = in_callers_time(time_left_s)
        assert run(served) == 5
    clock.sleep(2)
    assert run(served) == 3, "also after the call's thread has left the block"
    assert time_left_s() is None


def test_a_worker_that_serves_a_call_keeps_its_own_life_too() -> None:
    life = Deadline(ManualClock(), None)
    with Deadline(ManualClock(), 5).governs():
        served = in_callers_time(time_left_s)
    life.end()
    with life.governs():
        assert served() == 0


def test_a_callback_has_its_own_time() -> None:
    with Deadline(ManualClock(), 5).governs():
        with callers_own_time():
            assert time_left_s() is None
        assert time_left_s() == 5
