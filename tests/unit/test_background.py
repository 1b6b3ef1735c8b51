"""Work in threads: how it is repeated."""

from __future__ import annotations

import threading

from sparktxn.background import ThreadBackground


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
