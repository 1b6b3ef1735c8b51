"""A client as a program: it prints what it does, a line each, until it gets SIGTERM.

    python -m tests.liveness.program producer LIBRARY SERVERS NAME TRANSACTIONAL_ID
    python -m tests.liveness.program member LIBRARY SERVERS GROUP

A producer sends numbered batches, `BATCH` values over all partitions each, and prints `committed`, `aborted` or
`unknown` with each number. A member prints `read`, a partition and the values.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final

from tests.liveness.clients import MEMBERS, PARTITIONS, PRODUCERS, Producer

BATCH: Final = 2 * PARTITIONS
_PAUSE_S: Final = 0.15


def value_of(name: str, number: int, place: int) -> str:
    """Return a value: no two are alike, and those of one producer are in order in each partition."""
    return f"{name}/{number:07d}/{place:02d}"


def _say(words: str) -> None:
    print(" ".join(words.splitlines()), flush=True)


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__} {error}"[:300].replace("\n", " ")


class _Producing:
    """A producer that is made anew once it has failed for good, as its program would."""

    def __init__(self, make: Callable[[], Producer], name: str, ending: threading.Event, *, aborts: bool) -> None:
        self._make = make
        self._name = name
        self._ending = ending
        self._aborts = aborts
        self._producer: Producer | None = None

    def run(self) -> None:
        for number in count(1):
            if self._ending.is_set():
                break
            self._send(number)
            self._ending.wait(_PAUSE_S)
        self._drop()

    def _send(self, number: int) -> None:
        try:
            if self._producer is None:
                self._producer = self._make()
                _say("started")
            self._producer.begin()
            for place in range(BATCH):
                self._producer.send(place % PARTITIONS, value_of(self._name, number, place))
            self._producer.commit()
            _say(f"committed {number}")
        except Exception as error:
            _say(f"error {number} {_one_line(error)}")
            _say(f"{'aborted' if self._aborted() else 'unknown'} {number}")

    def _aborted(self) -> bool:
        """Return whether the transaction was aborted; else the producer is given up."""
        if self._producer is not None and self._aborts:
            try:
                self._producer.abort()
                return True
            except Exception as error:
                _say(f"error abort {_one_line(error)}")
        self._drop()
        return False

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(Exception):
                producer.close()


def _produce(library: str, servers: str, name: str, transactional_id: str, ending: threading.Event) -> None:
    make = PRODUCERS[library]
    _Producing(lambda: make(servers, transactional_id, name), name, ending, aborts=bool(transactional_id)).run()


def _consume(library: str, servers: str, group: str, ending: threading.Event) -> None:
    member = MEMBERS[library](servers, group, _say)
    while not ending.is_set():
        for read in member.poll():
            _say(f"read {read.partition} {' '.join(read.values)}")
    member.close()
    _say("closed")


def _main(kind: str, library: str, servers: str, *words: str) -> None:
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if kind == "producer":
        name, transactional_id = words
        _produce(library, servers, name, transactional_id, ending)
    else:
        (group,) = words
        _consume(library, servers, group, ending)


if __name__ == "__main__":
    _main(*sys.argv[1:])
