"""A process that commits one record after the other, and opens and drops clients; it prints what it used by fifths."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from figures import Figures  # type: ignore[import-not-found,unused-ignore]

from sparktxn.admin import AdminClient
from sparktxn.consumer import Consumer
from sparktxn.producer import Producer
from sparktxn.store import Store

_OPTIONS = {"store.fsync": False}


def _plain(uri: str) -> None:
    producer = Producer({"bootstrap.servers": uri, "linger.ms": 0, **_OPTIONS})
    producer.produce("dropped", b"x")
    producer.flush()


def _transactional(uri: str) -> None:
    producer = Producer({"bootstrap.servers": uri, "transactional.id": "dropped", **_OPTIONS})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("dropped", b"x", callback=lambda *_: producer.poll(0))
    producer.commit_transaction()


def _use(consumer: Consumer) -> None:
    """A callback that holds its own client."""
    consumer.assignment()


def _consumer(uri: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": uri,
            "group.id": "dropped",
            "fetch.wait.max.ms": 2,
            "auto.offset.reset": "latest",
            **_OPTIONS,
        }
    )
    consumer.subscribe(["dropped"], on_assign=lambda *_: _use(consumer))
    consumer.poll(0.005)


def _admin(uri: str) -> None:
    AdminClient({"bootstrap.servers": uri, **_OPTIONS}).list_topics()


def _store(uri: str) -> None:
    # Other settings than all other clients: its log is its own, and must end with it.
    Store.open(uri, options={**_OPTIONS, "checkpoint.entries": 65}).topics()


_KINDS: tuple[Callable[[str], None], ...] = (_plain, _transactional, _consumer, _admin, _store)


def main(uri: str, commits: int, clients: int) -> None:
    kinds = cycle(_KINDS)
    with Producer({"bootstrap.servers": uri, "transactional.id": "soak", **_OPTIONS}) as producer:
        producer.init_transactions()
        print(json.dumps(Figures.now(0)), flush=True)
        for number in range(1, commits + 1):
            producer.begin_transaction()
            producer.produce("soak", b"%d" % number)
            producer.commit_transaction()
            if number * clients // commits > (number - 1) * clients // commits:
                next(kinds)(uri)
            if number % (commits // 5) == 0:
                print(json.dumps(Figures.now(number)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
