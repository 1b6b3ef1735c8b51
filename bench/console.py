"""Pages of the console on a large store: what each one costs after the first, with a commit before each.

The commit is one of a transaction with an offset of a group, as exactly-once consumers make them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from bench.figures import Figure, median
from bench.synthesis import fill_with_segments
from sparktxn import ConsumerGroupMetadata, ConsumerGroupTopicPartitions, TopicPartition
from sparktxn._programs.console.pages.groups import group, groups
from sparktxn._programs.console.pages.log import log
from sparktxn._programs.console.pages.objects import files, topic_files
from sparktxn._programs.console.pages.overview import overview
from sparktxn._programs.console.pages.topics import topic, topics
from sparktxn._programs.console.pages.transactions import transactional_ids, transactions
from sparktxn._programs.console.pagesource import Source
from sparktxn._programs.console.requestparameters import RequestParameters
from sparktxn._programs.console.templating import render
from sparktxn.producer import Producer
from sparktxn.store import Store

__all__ = ["measure"]

_PARTITIONS = 10_000
_SEGMENTS = 100
_RECORDS = 1_000
_IDS = 1_000_000
_ROUNDS = 5
_TARGET_MS = 300
_READ_S = 2.0
_ENTRIES = 8_000
_PAGES = {
    "overview": (overview, {}, {}),
    "overview, all that remains": (overview, {"span": "all"}, {}),
    "topics": (topics, {}, {}),
    "topic": (topic, {"start": "5000"}, {"name": "t"}),
    "files of a topic": (topic_files, {"partition": "77", "from": "50000"}, {"name": "t"}),
    "transactions": (transactions, {}, {}),
    "transactional ids": (transactional_ids, {}, {}),
    "transactional ids with a prefix": (transactional_ids, {"prefix": "job-005"}, {}),
    "groups": (groups, {}, {}),
    "a group": (group, {"id": "readers", "span": "all"}, {}),
    "log": (log, {}, {}),
    "files": (files, {}, {}),
}
_numbers = count()


def measure() -> Iterator[Figure]:
    """Yields the figures: milliseconds of a processor, so that the machine's load does not count."""
    yield read_entries()
    uri = f"memory://console-{next(_numbers)}"
    with Store.open(uri, create=True) as first:
        first.create_topic("t", _PARTITIONS)
        fill_with_segments(first, "t", _SEGMENTS, records=_RECORDS, transactional_ids=_IDS)
        # The memory of a store is there for as long as something refers to it.
        kept = first.log.objects
    settings = {"bootstrap.servers": uri, "transactional.id": "writer"}
    with Store.open(uri) as store, Producer(settings) as producer:
        assert store.log.objects.uri == kept.uri
        store.commit_offsets(
            ConsumerGroupTopicPartitions("readers", [TopicPartition("t", number, 1) for number in range(_PARTITIONS)])
        )
        before_bytes = resident_bytes()
        source = Source(store)
        producer.init_transactions()
        for name, (page, asked, path) in _PAGES.items():
            taken = []
            for number in range(_ROUNDS + 1):
                producer.begin_transaction()
                producer.produce("t", b"x", partition=number)
                producer.send_offsets_to_transaction(
                    [TopicPartition("t", number, _RECORDS)], ConsumerGroupMetadata("readers")
                )
                producer.commit_transaction()
                began = time.process_time()
                html = render(
                    page(source, RequestParameters(asked), **path), "/", uri, source.now_ms(), may_change=False
                )
                taken.append((time.process_time() - began) * 1_000)
            note = f"first {taken[0]:,.0f} ms, {len(html) / 1024:,.0f} KiB"
            yield Figure(f"console, {name}", median(taken[1:]), "ms CPU", _TARGET_MS, at_most=True, note=note)
        began, loads = time.process_time(), 0
        while not source.past.up_to(source.log.refresh()).is_complete or loads == 0:
            source.past.read_on(_READ_S)
            loads += 1
        note = f"of {_PARTITIONS:,} manifests with {_PARTITIONS * _SEGMENTS:,} segments, after {loads} pages"
        yield Figure("console, the past before the entries", time.process_time() - began, "s CPU", note=note)
        html = render(overview(source, RequestParameters({"span": "all"})), "/", uri, source.now_ms(), may_change=False)
        taken = []
        for _ in range(_ROUNDS):
            began = time.process_time()
            html = render(
                overview(source, RequestParameters({"span": "all"})), "/", uri, source.now_ms(), may_change=False
            )
            taken.append((time.process_time() - began) * 1_000)
        yield Figure("console, overview with all of it", median(taken), "ms CPU", _TARGET_MS, at_most=True)
        yield Figure("console, memory of all pages", (resident_bytes() - before_bytes) / 2**20, "MiB")


def read_entries() -> Figure:
    """How fast entries that are older than those in memory are counted, each of one small transaction."""
    uri = f"memory://console-{next(_numbers)}"
    settings = {"bootstrap.servers": uri, "transactional.id": "writer"}
    with Store.open(uri, create=True) as store, Producer(settings) as producer:
        store.create_topic("t", 3)
        producer.init_transactions()
        for number in range(_ENTRIES):
            producer.begin_transaction()
            producer.produce("t", b"x" * 50, partition=number % 3)
            producer.commit_transaction()
        past = Source(store).past
        left, began = past.up_to(store.log.refresh()).entries_left, time.process_time()
        while not past.up_to(store.log.refresh()).is_complete:
            past.read_on(_READ_S)
        return Figure("console, older entries", left / (time.process_time() - began), "/s CPU")


def resident_bytes() -> int:
    """The memory of this process that is in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
