"""Threads of one process share entries: none waits for one entry more because another thread writes the next one."""

from __future__ import annotations

import threading
import time

from sparktxn.clock import Deadline, SystemClock
from sparktxn.format.commands import InitProducerId
from sparktxn.log.write.turns import Turns
from sparktxn.objectstore.contract import PutOutcome
from sparktxn.objectstore.memory import MemoryStore
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
