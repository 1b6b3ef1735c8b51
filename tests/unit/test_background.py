"""Work in threads: how it is repeated, and what becomes of it when they end."""

from __future__ import annotations

import threading
from concurrent.futures import wait

import pytest

from sparktxn._foundation.process.background import ThreadBackground


def test_work_that_has_no_next_time_waits_until_it_is_woken() -> None:
    """Found with a consumer that had stayed away for longer than max.poll.interval.ms: nothing of it was due again."""
    background = ThreadBackground("test", 1)
    called = threading.Semaphore(0)

    def work() -> float:
        called.release()
        return float("inf")

    wake = background.repeat(work)
    assert called.acquire(timeout=10)
    wake()
    assert called.acquire(timeout=10), "the thread has died"
    background.close(1)


def test_who_waits_for_work_that_close_cancels_is_told() -> None:
    background = ThreadBackground("test", 1)
    began, go_on = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go_on.wait(10)

    futures = [background.submit(work) for _ in range(3)]
    assert began.wait(10)
    background.close(0)
    go_on.set()
    done, waiting = wait(futures, 10)
    assert len(done) == 3, waiting
    assert [future.cancelled() for future in futures] == [False, True, True]


def test_work_is_done_by_the_caller_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    background = ThreadBackground("test", 2)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert background.submit(threading.current_thread).result(0) is threading.current_thread()
        # Work may begin other work, and may close what it runs on: neither waits for itself.
        assert background.submit(lambda: background.submit(lambda: 1 / 0)).result(0).exception(0)
        assert background.submit(lambda: background.wait(10)).result(0)
    assert background.submit(threading.current_thread).result(10) is not threading.current_thread()
    background.submit(background.close).result(10)


def test_the_end_of_work_wakes_no_idle_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found with 50 clients of a gateway: each call's end had woken all of its threads, at half of its cost."""
    waits: list[str] = []
    wait_as_ever = threading.Condition.wait

    def counted(condition: threading.Condition, timeout: float | None = None) -> bool:
        waits.append(threading.current_thread().name)
        return wait_as_ever(condition, timeout)

    monkeypatch.setattr(threading.Condition, "wait", counted)
    background = ThreadBackground("test", 8)
    together = threading.Barrier(8)
    assert not wait([background.submit(together.wait) for _ in range(8)], 10).not_done
    works = 8
    for _ in range(50):
        background.submit(threading.get_ident).result(10)
        works += 1
    background.close(10)
    # A worker waits after its work, and once more if another one has taken what it was woken for.
    assert sum(name.startswith("test-") for name in waits) <= 2 * works
