"""Threads of simulated processes: they exclude and wake each other by the simulation's clock, and die together."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from time import monotonic, sleep
from typing import Any

import pytest

from sparktxn._foundation.process import background, handles
from sparktxn.producer import linger
from sparktxn.store import registry
from sparktxn.testing.faultystore import Died
from tests.simulation.simulator import FaultRates, Process, Simulator


def threads_of(module: object) -> Any:
    """What the module knows as `threading`: the simulation puts its own there."""
    return vars(module)["threading"]


pytestmark = pytest.mark.simulation


def run(program: Callable[[Process], None], seed: int = 0) -> None:
    simulator = Simulator(seed, rates=FaultRates({}))
    simulator.add("process", program, threaded=True)
    simulator.run()


def test_a_lock_excludes_a_thread_that_sleeps_with_it() -> None:
    order: list[str] = []

    def program(process: Process) -> None:
        lock = threads_of(linger).Lock()

        def holds(name: str) -> None:
            with lock:
                order.append(f"{name} in")
                process.sleep(1)
                order.append(f"{name} out")

        process.join(*(process.spawn(partial(holds, name)) for name in "ab"))
        assert not lock.locked()

    for seed in range(5):
        run(program, seed)
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert set(pairs) == {("a in", "a out"), ("b in", "b out")}


def test_a_lock_is_not_waited_for_longer_than_asked() -> None:
    waited: list[float] = []

    def program(process: Process) -> None:
        lock = threads_of(linger).Lock()
        with lock:

            def waits() -> None:
                began_s = process.clock.monotonic_s()
                assert not lock.acquire(blocking=False)
                assert not lock.acquire(timeout=2)
                waited.append(process.clock.monotonic_s() - began_s)

            process.join(process.spawn(waits))

    run(program)
    assert waited == [pytest.approx(2)]


def test_a_condition_wakes_those_that_wait_and_times_out() -> None:
    woken: list[bool] = []

    def program(process: Process) -> None:
        changed = threads_of(linger).Condition()

        def waits(timeout_s: float) -> None:
            with changed:
                woken.append(changed.wait(timeout_s))

        waiting = [process.spawn(lambda: waits(0.5)), process.spawn(lambda: waits(60))]
        process.sleep(1)
        with changed:
            changed.notify_all()
        process.join(*waiting)
        assert process.clock.monotonic_s() < process.simulator.now_s + 10

    run(program)
    assert woken == [False, True]


def test_work_in_the_background_is_waited_for() -> None:
    def program(process: Process) -> None:
        def work() -> int:
            process.sleep(3)
            return 7

        future = process.background.submit(work)
        with pytest.raises(TimeoutError):
            future.result(1)
        assert future.result() == 7

    run(program)


def test_when_one_thread_dies_all_die_and_the_program_begins_again() -> None:
    lives: list[str] = []

    def program(process: Process) -> None:
        lives.append("begins")
        if lives.count("begins") == 2:
            return

        def dies() -> None:
            process.sleep(1)
            raise Died

        def waits() -> None:
            try:
                process.sleep(60)
                lives.append("has outlived its process")
            finally:
                lives.append("ends")

        process.spawn(dies)
        process.join(process.spawn(waits))
        lives.append("has outlived its thread")

    run(program)
    assert sorted(lives) == ["begins", "begins", "ends"]


def test_a_deadlock_fails() -> None:
    def program(process: Process) -> None:
        lock = threads_of(linger).Lock()
        lock.acquire()
        process.join(process.spawn(lock.acquire))

    with pytest.raises(AssertionError, match="deadlock"):
        run(program)


def test_what_a_thread_raises_fails_the_simulation() -> None:
    def program(process: Process) -> None:
        def fails() -> None:
            raise ZeroDivisionError

        process.join(process.spawn(fails))

    with pytest.raises(ZeroDivisionError):
        run(program)


def test_what_a_dropped_handle_held_is_given_back_by_a_thread_of_its_process() -> None:
    given_back: list[str] = []

    def program(process: Process) -> None:
        held = handles.hold()
        handles.give_back_later(lambda: given_back.append(process.name))
        assert not given_back
        process.sleep(1)
        held.release()

    run(program)
    assert given_back == ["process"]


def test_the_thread_that_serves_real_handles_may_end_while_a_simulation_runs() -> None:
    """The handles that come after it have a thread again."""
    may_end, done = Event(), Event()
    thread, held = served_by_a_thread()
    handles.give_back_later(partial(wait_for, may_end))
    held.release()

    def program(process: Process) -> None:
        may_end.set()
        thread.join(60)

    run(program)
    assert not thread.is_alive()
    held = handles.hold()
    handles.give_back_later(done.set)
    assert done.wait(60)
    held.release()


def test_real_handles_are_given_back_while_a_simulation_runs() -> None:
    done = Event()
    thread, held = served_by_a_thread()

    def program(process: Process) -> None:
        held_by_process = handles.hold()
        in_a_real_thread(lambda: handles.give_back_later(done.set))
        assert done.wait(60)
        in_a_real_thread(held.release)
        held_by_process.release()
        thread.join(60)

    run(program)
    assert not thread.is_alive()


def wait_for(event: Event) -> None:
    event.wait(60)


def served_by_a_thread() -> tuple[Thread, handles.Held]:
    """The thread of real handles, and the only thing that is held."""
    give_up_at_s = monotonic() + 60
    while (running := serving()) and monotonic() < give_up_at_s:
        gc.collect()
        sleep(0.005)
    assert not running, "something of another test is held"
    held = handles.hold()
    return serving()[0], held


def serving() -> list[Thread]:
    return [thread for thread in enumerate_threads() if thread.name == "sparktxn-dropped"]


def in_a_real_thread(work: Callable[[], None]) -> None:
    thread = Thread(target=work)
    thread.start()
    thread.join()


def test_outside_of_a_simulation_threads_are_real() -> None:
    import threading

    before = threads_of(registry)
    run(lambda process: None)
    assert threads_of(registry) is before is threading
    assert threads_of(linger) is threading
    assert isinstance(background.ThreadBackground("name", 1), background.ThreadBackground)
