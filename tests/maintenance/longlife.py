"""A store that has lived through every job, in an order that a seed chooses, and what may happen to its objects."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final
from unittest.mock import patch

from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.admin import NewTopic
from sparktxn.halfmessage.engine import HalfEngine
from sparktxn.halfmessage.records import MessageRecord
from sparktxn.maintenance import apply_retention, compact, rewrite, vacuum
from sparktxn.store import Store
from tests.compatibility.workload import Workload

SETTINGS: Final[dict[str, Any]] = {
    "checkpoint.entries": 16,
    "checkpoint.seal.segments": 4,
    "checkpoint.fold.bytes.per.minute": 0,
}
DECIDES_NOTHING: Final = ("_log/_last_checkpoint.json", "_log/_last_vacuum.json", "_log/_intents/", "_groups/")
"""Objects whose damage changes no answer: each process does without."""


class LongLife:
    """Writes a store by the jobs of all kinds, the vacuum among them."""

    def __init__(self, uri: str, seed: int) -> None:
        self.random = Random(seed)
        with patch("sparktxn._foundation.config.store.MERGE_RUNS", 2):
            self.workload = Workload(uri, SETTINGS)
        self.uri = uri
        self._numbers = iter(range(1_000))

    def live(self, jobs: int) -> None:
        """Do the workload, and so many more jobs; the second half of them comes after a vacuum."""
        with patch("sparktxn._foundation.config.store.MERGE_RUNS", 2):
            self._live(jobs)

    def _live(self, jobs: int) -> None:
        self.last = self.workload.write(1)
        self.plain = self.workload.producer()
        work = [self.records, self.transactions, self.rewrite, self.compact, self.retention, self.delete_records]
        work += [self.recreate_a_topic, self.half_messages, self.offsets]
        for number in range(jobs):
            if number == jobs // 2:
                self.vacuum()
            # Each of them once at least, in any order.
            job = work[number % len(work)]
            if number % len(work) == 0:
                self.random.shuffle(work)
            job()

    def close(self) -> None:
        self.workload.close()

    def with_store(self, job: Callable[[Store], object]) -> None:
        with Store.open(self.uri, options=SETTINGS) as store:
            job(store)

    def records(self) -> None:
        for topic in self.random.choices(("orders", "audit.log", "again", "prices", "carried"), k=6):
            self.workload.produce(self.plain, self.random.randrange(1, 5), topic)
            self.plain.flush(10)

    def transactions(self) -> None:
        one, other = (self.workload.producer(f"life-{next(self._numbers)}") for _ in range(2))
        self.workload.round(one, publish=True, commit=False)
        self.workload.interleave(one, other, self.plain)

    def rewrite(self) -> None:
        size = self.random.choice((2_048, 65_536))
        self.with_store(lambda store: rewrite(store, {"rewrite.target.bytes": size, "rewrite.min.segments": 2}))

    def compact(self) -> None:
        self.workload.produce(self.plain, 6, "prices")
        self.plain.flush(10)
        self.with_store(lambda store: compact(store, {"compact.topics": "prices"}))

    def retention(self) -> None:
        self.with_store(lambda store: apply_retention(store))

    def delete_records(self) -> None:
        offset = self.workload.log_end_offset("orders", 0)
        self.workload.delete_records(self.random.randrange(offset // 2, offset - 6))

    def recreate_a_topic(self) -> None:
        """One that has records, which views from before still read."""
        self.workload.settle(self.workload.admin.delete_topics(["carried"]))
        config = {"append.inline.bytes": self.random.choice(("0", "16384"))}
        self.workload.settle(self.workload.admin.create_topics([NewTopic("carried", 1, config=config)]))
        self.workload.produce(self.plain, 3, "carried")
        self.plain.flush(10)

    def half_messages(self) -> None:
        engine = HalfEngine(HalfMessageSettings.parse({"bootstrap.servers": self.uri, **SETTINGS}))
        for outcome in (True, False, None):
            name = f"life-{next(self._numbers)}"
            message = MessageRecord(self.random.choice(("again", "orders")), b"half" * 40, "id", 1)
            engine.prepare("shop", name, engine.stage([message]), 6_000)
            if outcome is not None:
                engine.end("shop", name, committed=outcome)
        engine.close()

    def offsets(self) -> None:
        self.workload.plain_offsets(next(self._numbers))

    def vacuum(self) -> None:
        self.with_store(lambda store: vacuum(store, {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 60_000}))


def flipped(data: bytes, random: Random) -> bytes:
    """Return the bytes with another bit somewhere."""
    position = random.randrange(len(data))
    return data[:position] + bytes((data[position] ^ 1 << random.randrange(8),)) + data[position + 1 :]


def truncated(data: bytes, random: Random) -> bytes:
    """Return the beginning of the bytes."""
    return data[: random.randrange(1, len(data))] if len(data) > 1 else b"?"


def deleted(data: bytes, random: Random) -> bytes | None:
    """Return nothing."""
    return None


DAMAGES: Final = (flipped, truncated, deleted)


def names_in(objects: ObjectStore) -> list[str]:
    """Return the names of all objects."""
    return sorted(info.name for info in objects.list(""))
