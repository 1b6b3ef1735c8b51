"""Threads of one process share entries: none waits for one entry more because another thread writes the next one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from sparktxn._engine.format.commands import InitProducerId
from sparktxn._engine.log.write.queue import Turns
from sparktxn._engine.objectstore.contract import PutOutcome
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.clock import Deadline, RandomIds, SystemClock
from sparktxn._foundation.values.structs import StoreState, TopicState
from sparktxn.store import Store
from tests.world import next_number, open_log

THREADS, LISTS = 8, 12
PUT_S = 0.01


class SlowStore(MemoryStore):
    """A put takes some time, as on a disk."""

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        time.sleep(PUT_S)
        return super().put_if_absent(name, data, timeout_s=timeout_s)


def test_eight_threads_share_entries() -> None:
    """Of eight, those that the last entry has answered and those that the next one will take turns: four and four."""
    log = open_log(SlowStore(f"turns-{next_number()}", SystemClock()))
    before = log.refresh()

    def work(thread: int) -> None:
        for number in range(LISTS):
            log.submit([InitProducerId(f"{thread}/{number}", f"job-{thread}")])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = log.refresh() - before
    log.close()
    assert entries < THREADS * LISTS / 2.5, "the lists of threads that write at a time are in too many entries"


def is_free(turns: Turns) -> bool:
    """Return whether a caller has the turn without a wait: it then never asks whether its list is done."""
    asked: list[None] = []
    with turns.turn(lambda: asked.append(None) is None):
        return not asked


def test_a_caller_whose_list_is_done_leaves_while_another_has_the_turn() -> None:
    turns = Turns()
    done, waits, left = threading.Event(), threading.Event(), threading.Event()

    def is_done() -> bool:
        waits.set()
        return done.is_set()

    def wait() -> None:
        with turns.turn(is_done):
            left.set()

    with turns.turn(lambda: False):
        thread = threading.Thread(target=wait)
        thread.start()
        assert waits.wait(60)
        assert not left.wait(0.05), "the list is not done"
        done.set()
    with turns.turn(lambda: False):
        assert left.wait(60)
        thread.join()


def test_a_caller_waits_for_a_second_or_its_deadline_at_most() -> None:
    """What is a lock is the replica's: a turn that was never given back holds no caller up."""
    turns = Turns()
    with turns.turn(lambda: False):
        for limit_s, least_s in ((0.05, 0.04), (None, 0.9)):
            began_s = time.monotonic()
            with Deadline(SystemClock(), limit_s).governs(), turns.turn(lambda: False):
                assert time.monotonic() - began_s >= least_s
    assert is_free(turns)


def test_an_interrupted_caller_gives_its_turn_back() -> None:
    turns = Turns()
    try:
        with turns.turn(lambda: False):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert is_free(turns)


def test_a_caller_that_gives_its_turn_back_wakes_those_that_are_done_and_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparktxn._engine.log.write.queue._WAIT_S", 60.0)
    turns, lock = Turns(), threading.Lock()
    asked, done, entered = set[int](), {2}, list[int]()
    changed, leave = threading.Semaphore(0), threading.Semaphore(0)

    def wait(number: int) -> None:
        def is_done() -> bool:
            first = number not in asked
            asked.add(number)
            changed.release()
            return not first and number in done

        with turns.turn(is_done):
            with lock:
                entered.append(number)
            changed.release()
            if number not in done:
                assert leave.acquire(timeout=60)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(4)]
    with turns.turn(lambda: False):
        for thread in threads:
            thread.start()
            assert changed.acquire(timeout=60)
        until(lambda: len(turns._waiting) == 4)
    threads[2].join(60)
    until(lambda: len(entered) == 2)
    assert sorted(entered) == [0, 2], "one that is not done has the turn, and the others sleep"
    assert len(turns._waiting) == 2
    for _ in range(3):
        leave.release()
    for thread in threads:
        thread.join(60)
    assert entered[2:] == [1, 3]
    assert is_free(turns)


def until(condition: Callable[[], bool]) -> None:
    gives_up_at_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < gives_up_at_s
        time.sleep(0.001)


def test_a_sender_asks_for_its_topic_while_another_thread_writes() -> None:
    """The writer keeps the replica's lock while its entry is put: the others prepare their lists meanwhile."""
    uri = f"memory://{RandomIds().token()}"
    with Store.open(uri, create=True) as store:
        store.create_topic("t")
        found: list[object] = []
        ask = threading.Thread(target=lambda: found.extend((store.log.topic("t"), store.log.store_state())))
        with store.log._follower.locked("test"):
            ask.start()
            ask.join(60)
            assert [type(one) for one in found] == [TopicState, StoreState]


def test_callers_whose_lists_are_done_are_woken_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found with 50 clients of a gateway: 40 that were woken at once took a fifth of its time from each other."""
    monkeypatch.setattr("sparktxn._engine.log.write.queue._WAIT_S", 60.0)
    turns, done = Turns(), threading.Event()
    waits, entered, leave = threading.Semaphore(0), threading.Semaphore(0), threading.Semaphore(0)

    def is_done() -> bool:
        found = done.is_set()
        waits.release()
        return found

    def wait() -> None:
        with turns.turn(is_done):
            entered.release()
            leave.acquire()

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    with turns.turn(lambda: False):
        for thread in threads:
            thread.start()
            assert waits.acquire(timeout=60)
        done.set()
    for _ in threads:
        assert entered.acquire(timeout=60)
        assert not entered.acquire(timeout=0.05), "two were woken at a time"
        leave.release()
    for thread in threads:
        thread.join()
    assert is_free(turns)
