"""A query that is killed and started again with other topics and limits, against the rows that were committed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn import Store
from sparktxn.admin import AdminClient, NewPartitions
from tests.seeds import examples
from tests.spark.readers import Query, commit, numbers_between, stream_reader

TOPICS = ("t", "u", "v")
PARTITIONS_MAX = 3

LIMITS: tuple[dict[str, str], ...] = (
    {},
    {"maxOffsetsPerTrigger": "1"},
    {"maxOffsetsPerTrigger": "5"},
    {"maxBytesPerTrigger": "1"},
)

ACTIONS = [*["commit"] * 5, "topic", "partition", "subscribe", *["micro-batch"] * 3, *["kill"] * 2, "checkpoint"]

steps = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 99)), min_size=5, max_size=40)


class Restarts:
    """A query of topics that grow in number, and what it has read."""

    def __init__(self, store: Store, order: str) -> None:
        self.store = store
        self.order = order
        self.admin = AdminClient({"bootstrap.servers": store.uri})
        self.partitions = {"t": 1}
        self.subscribed = ["t"]
        self.committed: dict[str, list[int]] = {topic: [] for topic in TOPICS}
        self.numbers: Iterator[int] = iter(range(10_000))
        self.read: list[int] = []
        store.create_topic("t", 1)
        self.query = Query(stream_reader(store, **self.options(0)))

    def options(self, number: int) -> dict[str, str]:
        subscribed = ",".join(self.subscribed)
        limit = LIMITS[number % len(LIMITS)]
        return {"subscribe": subscribed, "startingOffsets": "earliest", "order": self.order, **limit}

    def step(self, action: str, number: int) -> None:
        topic = list(self.partitions)[number % len(self.partitions)]
        others = [name for name in self.partitions if name not in self.subscribed]
        if action == "commit":
            first = next(self.numbers)
            numbers = [first, *(next(self.numbers) for _ in range(number % 3))]
            partition = number % self.partitions[topic]
            commit(self.store, range(first, numbers[-1] + 1), topic, partition)
            self.committed[topic] += numbers
        elif action == "topic" and len(self.partitions) < len(TOPICS):
            name = TOPICS[len(self.partitions)]
            self.partitions[name] = 1 + number % 2
            self.store.create_topic(name, self.partitions[name])
        elif action == "partition" and self.partitions[topic] < PARTITIONS_MAX:
            self.partitions[topic] += 1
            self.admin.create_partitions([NewPartitions(topic, self.partitions[topic])])[topic].result()
        elif action == "subscribe" and others:
            self.subscribed.append(others[number % len(others)])
            self.query = Query(stream_reader(self.store, **self.options(number)), self.query.offset)
        elif action == "micro-batch":
            self.read += self.query.run()
        elif action == "kill":
            self.kill(others, number)
        elif action == "checkpoint":
            self.store.log.checkpoint()

    def kill(self, others: list[str], number: int) -> None:
        """Run a micro-batch twice, the second time by another driver, and perhaps with one topic more."""
        start = self.query.offset
        rows = self.query.run()
        if others and number % 2:
            self.subscribed.append(others[0])
        again = stream_reader(self.store, **self.options(number))
        assert numbers_between(again, start, self.query.offset) == rows
        self.read += rows
        self.query = Query(again, self.query.offset)

    def run_to_the_end(self) -> None:
        while not self.query.is_idle():
            self.read += self.query.run()

    def close(self) -> None:
        self.admin.close()


@pytest.mark.parametrize("order", ["commit", "offset"])
@settings(max_examples=examples(10, 100))
@given(steps)
def test_each_row_of_a_topic_that_was_subscribed_is_read_once(order: str, taken: list[tuple[str, int]]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(folder, create=True, options={"store.fsync": "false"}) as store,
    ):
        restarts = Restarts(store, order)
        try:
            for action, number in taken:
                restarts.step(action, number)
            restarts.run_to_the_end()
            expected = [number for topic in restarts.subscribed for number in restarts.committed[topic]]
            assert sorted(restarts.read) == sorted(expected)
        finally:
            restarts.close()
