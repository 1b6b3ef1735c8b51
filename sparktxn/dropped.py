"""Handles that are dropped without `close()`: a thread of this module gives back what they held.

A finalizer runs wherever the garbage collector happens to run: on any thread, inside any function, also while that
thread holds a lock. So it takes no lock and waits for nothing; it only queues the work. The thread that does the work
lives as long as anything is held that a handle must give back.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, ParamSpec

from sparktxn.background import start_thread

__all__ = ["give_back_later", "hold", "release", "weakly"]

_LOGGER: Final = logging.getLogger("sparktxn")

Parameters = ParamSpec("Parameters")

_Work = Callable[[], None]

_lock = threading.Lock()
# Its `put` may interrupt itself, which makes it safe in a finalizer.
_queue: SimpleQueue[_Work | None] = SimpleQueue()
_held = 0
_thread: threading.Thread | None = None


def _start_anew_in_child() -> None:
    """Forget the parent's thread, and what the parent's handles hold: a forked child gives none of it back."""
    global _lock, _queue, _held, _thread
    _lock, _queue, _held, _thread = threading.Lock(), SimpleQueue(), 0, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew_in_child)


def hold() -> None:
    """Count one thing that must be given back; from here on the work of `give_back_later` is done.

    Raises:
        KafkaException: no thread can be started; nothing is counted.
    """
    global _held, _thread
    with _lock:
        if _thread is None:
            _thread = start_thread("sparktxn-dropped", _serve, _queue)
        _held += 1


def release() -> None:
    """Count one thing as given back; after the last one the thread ends."""
    global _held
    with _lock:
        _held -= 1
        if _held == 0:
            _queue.put(None)


def give_back_later(work: _Work) -> None:
    """Have another thread call `work`; nothing if nothing is held. Safe in a finalizer: no lock, and no wait."""
    if _held:
        _queue.put(work)


def weakly(method: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Return a callback that does not keep the object of `method` alive, and does nothing once that is gone."""
    reference = weakref.WeakMethod(method)

    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        bound = reference()
        if bound is not None:
            bound(*args, **kwargs)

    return call


def _serve(queue: SimpleQueue[_Work | None]) -> None:
    global _thread
    while True:
        work = queue.get()
        if work is None:
            with _lock:
                if _held == 0:
                    _thread = None
                    return
            continue
        try:
            work()
        except BaseException:
            _LOGGER.exception("a handle was dropped without close(), and what it held could not be given back")
        # Whatever the work refers to must not live until the next one comes.
        del work
