"""Requests of one console take turns where they advance what they share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sparktxn.errors import OutcomeUnknown
from sparktxn.process.clock import acquired_in_time

__all__ = ["held"]


@contextmanager
def held(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock, for which the request waits until its deadline.

    Raises:
        OutcomeUnknown: another request has held it until then.
    """
    if not acquired_in_time(lock):
        raise OutcomeUnknown("another request was reading the log until the deadline: load the page again")
    try:
        yield
    finally:
        lock.release()
