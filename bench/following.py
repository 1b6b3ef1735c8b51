"""Following other processes' commits: CPU time for each entry, by what the follower reads."""

from __future__ import annotations

import time

from bench.figures import Figure, alternate
from bench.records import temporary_folder
from sparktxn import Producer
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.objectstore import ObjectStore
from sparktxn.admin import AdminClient, NewTopic
from sparktxn.store import Store

__all__ = ["measure"]

_TRANSACTIONS = 2_000
_ROUNDS = 7
_DEFERRING_MAX_US = 25
_READING_MAX_RATIO = 1.05


class _AppliesAll(Tail):
    """A replica that applies each entry when it is followed."""

    defers = False


def measure() -> list[Figure]:
    """The figures of following transactions of one record in one topic."""
    with temporary_folder() as folder:
        topic_id = _write(folder)
        store = Store.open(folder, options={"store.fsync": "false"})
        try:
            objects = store.log.objects
            unread, unread_ratio = _against_applying(objects, None)
            read, read_ratio = _against_applying(objects, topic_id)
        finally:
            store.close()
    return [
        Figure("CPU of an entry that touches nothing that is read", unread, "µs", _DEFERRING_MAX_US, at_most=True),
        Figure("the same, to applying each entry", unread_ratio, "times"),
        Figure("CPU of an entry whose partition is read after it", read, "µs"),
        Figure("the same, to applying each entry", read_ratio, "times", _READING_MAX_RATIO, at_most=True),
    ]


def _against_applying(objects: ObjectStore, read_topic_id: int | None) -> tuple[float, float]:
    """Return the least CPU time of all rounds, and the median ratio to a replica that applies each entry.

    Other work on the machine only adds to a CPU time, by emptying caches, so the least one says most.
    """
    ours: list[float] = []

    def deferring() -> float:
        ours.append(_follow_us(Tail(objects, None), read_topic_id))
        return ours[-1]

    _, _, ratio = alternate(deferring, lambda: _follow_us(_AppliesAll(objects, None), read_topic_id), _ROUNDS)
    return min(ours), ratio


def _write(folder: str) -> int:
    """Write transactions of one record, with no checkpoint; return the topic's id."""
    conf = {
        "bootstrap.servers": folder,
        "store.fsync": False,
        "checkpoint.entries": 100_000,
    }
    topic = NewTopic("read", 1, config={"segment.format": "arrow"})
    AdminClient(conf).create_topics([topic])["read"].result()
    producer = Producer(conf | {"transactional.id": "writer"})
    producer.init_transactions()
    for _ in range(_TRANSACTIONS):
        producer.begin_transaction()
        producer.produce("read", value=b"x")
        producer.commit_transaction()
    producer.close()
    return 1


def _follow_us(tail: Tail, read_topic_id: int | None) -> float:
    """CPU microseconds of this thread for each entry; with `read_topic_id`, its partition is read after each one."""
    started = time.thread_time()
    while True:
        before = tail.entry
        tail.advance(at_most=None if read_topic_id is None else before + 1)
        if read_topic_id is None or tail.entry == before:
            break
        tail.parts.get(("partition", read_topic_id, 0))
        tail.parts.get(("segments", read_topic_id, 0))
    return (time.thread_time() - started) / tail.entry * 1e6
