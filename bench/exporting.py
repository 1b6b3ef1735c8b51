"""A scrape of `txnlog exporter` in a store of 10,000 partitions: seconds of a processor, and megabytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from bench.figures import Figure, median
from bench.records import temporary_folder
from sparktxn import ConsumerGroupTopicPartitions, TopicPartition
from sparktxn._engine.format.commands import InitProducerId
from sparktxn.store import Store
from sparktxn.store.storemetrics import StoreMetrics

__all__ = ["measure"]

_TOPICS: Final = 10
_PARTITIONS: Final = 1_000
_IDS: Final = 10_000
_IDS_PER_ENTRY: Final = 500
_TRIES: Final = 7


def _fill(store: Store) -> None:
    """Make the partitions, a group that has committed an offset for each, and transactional ids."""
    for number in range(_TOPICS):
        store.create_topic(f"topic-{number}", _PARTITIONS)
        offsets = [TopicPartition(f"topic-{number}", partition, 0) for partition in range(_PARTITIONS)]
        store.commit_offsets(ConsumerGroupTopicPartitions("readers", offsets))
    for first in range(0, _IDS, _IDS_PER_ENTRY):
        ids = range(first, first + _IDS_PER_ENTRY)
        store.log.submit([InitProducerId(store.log.ids.token(), f"id-{number}") for number in ids])
    store.log.checkpoint()


def _scrape(metrics: StoreMetrics) -> tuple[float, int]:
    """(seconds of a processor, bytes) of one page."""
    started = time.process_time()
    page, _ = metrics.page()
    return time.process_time() - started, len(page)


def measure() -> Iterator[Figure]:
    """All figures of the exporter."""
    with temporary_folder() as folder:
        with Store.open(folder, options={"store.fsync": "false"}, create=True) as store:
            _fill(store)
        with Store.open(folder) as store:
            metrics = StoreMetrics(store, None)
            what = "10,000 partitions, each with a group, 10,000 transactional ids"
            first_s, size_bytes = _scrape(metrics)
            yield Figure(f"first scrape, {what}", first_s, "s", 2, True)
            scrapes = []
            for _ in range(_TRIES):
                store.log.submit([InitProducerId(store.log.ids.token(), "id-0")])
                scrapes.append(_scrape(metrics)[0])
            yield Figure(f"a later scrape, {what}", median(scrapes), "s", 2, True)
            yield Figure("page", size_bytes / 1e6, "MB")
