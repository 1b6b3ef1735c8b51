"""Transactional commits per second through `produce()`, against a bare loop of encoding and puts, and delta-rs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from bench.figures import Figure, alternate, rate
from bench.records import RECORDS, batch, temporary_folder, topic_store, values
from sparktxn import Producer
from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Append, EndTxn, InitProducerId
from sparktxn._engine.format.entry import LogEntry, encode_entry
from sparktxn._engine.format.segment import checksum, encode_inline, encode_segment
from sparktxn._engine.objectstore import ObjectStore, open_store
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn.store import Store

__all__ = ["measure"]

_COMMITS = 300
_ROUNDS = 5
_DELTA_COMMITS = 60
_AGED_ENTRIES = 20_000
_AGED_VERSIONS = 5_000
_MEMORY_DISK = "/dev/shm"
_UNFOLDED = {"checkpoint.fold.bytes.per.minute": "0"}


def producing(folder: str, partitions: int, fsync: str, **settings: str) -> Callable[[], None]:
    """A function that commits one transaction of 100 records through `produce()`."""
    settings |= {"store.fsync": fsync}
    producer = Producer({"bootstrap.servers": folder, "transactional.id": "bench", **settings})
    producer.init_transactions()
    records = [(number % partitions, b"key-%d" % number, value) for number, value in enumerate(values(RECORDS))]

    def commit() -> None:
        producer.begin_transaction()
        produce = producer.produce
        for partition, key, value in records:
            produce("t", value, key, partition)
        producer.commit_transaction()

    return commit


def bare_loop(folder: str, partitions: int, *, fsync: bool) -> Callable[[], None]:
    """The encoding and puts of a file for each partition and an entry, and nothing else: files are put side by side."""
    settings = StoreSettings(fsync=fsync)
    objects = open_store(folder, settings=settings, storage={}, clock=SystemClock())
    table = batch(RECORDS // partitions)
    pool = ThreadPoolExecutor(4)
    ids = RandomIds()
    number = 0

    def upload(partition: int) -> Append:
        data = encode_segment(table, segment_format="parquet", compression="zstd")
        name = names.segment_file(0, ids.token(), "parquet")
        objects.put_if_absent(names.segment("t", 1, partition, name), data)
        return Append(1, partition, name, table.num_rows, len(data), checksum(data), 0, 0, 0, 1, 2, "bench", number)

    def commit() -> None:
        nonlocal number
        number += 1
        appends = list(pool.map(upload, range(partitions))) if partitions > 1 else [upload(0)]
        put_entry(objects, number, ids.token(), appends)

    return commit


def put_entry(objects: ObjectStore, number: int, token: str, appends: Sequence[Append]) -> None:
    """Put the entry that commits `appends`, as both loops do."""
    entry = LogEntry(
        format=1,
        entry=number,
        token=token,
        previous="00000000",
        timestamp_ms=1,
        commands=(*appends, EndTxn("bench", 0, 0, number, True)),
    )
    objects.put_if_absent(names.entry(number), encode_entry(entry)[0])


def bare_inline_loop(folder: str) -> Callable[[], None]:
    """What no commit of records in Python can do without: an Arrow stream in a JSON entry, put by one link."""
    objects = open_store(folder, settings=StoreSettings(fsync=False), storage={}, clock=SystemClock())
    keys, payload = [b"key-%d" % number for number in range(RECORDS)], values(RECORDS)
    ids = RandomIds()
    number = 0

    def commit() -> None:
        nonlocal number
        number += 1
        times = pa.array([time.time_ns() // 1_000_000] * RECORDS, pa.timestamp("ms", "UTC"))
        columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(payload, pa.binary()), "timestamp": times}
        data = encode_inline(pa.table(columns), compression="zstd")
        name = names.inline_segment(ids.token())
        append = Append(1, 0, name, RECORDS, len(data), checksum(data), 0, 0, 0, 1, 2, "bench", number, data=data)
        put_entry(objects, number, ids.token(), [append])

    return commit


def delta_writing(folder: str) -> Callable[[], None]:
    """A function that appends 100 records with delta-rs, handle kept."""
    from deltalake import DeltaTable, write_deltalake

    data = pa.table({"key": batch(RECORDS)["key"], "value": batch(RECORDS)["value"]})
    write_deltalake(folder, data)
    table = DeltaTable(folder)
    return lambda: write_deltalake(table, data, mode="append")


def age(store: Store, entries: int) -> None:
    """Lets a store's log grow to about `entries` entries, with a small segment named in each."""
    log = store.log
    producer = log.submit([InitProducerId(log.ids.token(), "ager")])[0]
    topic = log.topic("t")
    assert topic is not None
    for number in range(1, entries - log.entry):
        append = Append(
            topic.topic_id,
            0,
            names.segment_file(log.entry, log.ids.token(), "parquet"),
            1,
            100,
            "00000000",
            producer.producer_id,
            producer.producer_epoch,
            number - 1,
            1,
            2,
            "ager",
            number,
        )
        end = EndTxn("ager", producer.producer_id, producer.producer_epoch, number, True)
        log.submit([append, end])


def measure() -> Iterator[Figure]:
    """All commit figures."""
    with ExitStack() as stack:

        def folder() -> str:
            return stack.enter_context(temporary_folder())

        for partitions in (1, 6):
            yield from _against_bare_loop(folder, partitions)
        if Path(_MEMORY_DISK).is_dir():
            yield from _on_memory_disk(lambda: stack.enter_context(temporary_folder(_MEMORY_DISK)))
        yield from _against_delta(folder)


def _against_bare_loop(folder: Callable[[], str], partitions: int) -> list[Figure]:
    ours_folder = folder()
    topic_store(ours_folder, partitions)
    ours = producing(ours_folder, partitions, "true")
    bare = bare_loop(folder(), partitions, fsync=True)
    rate(ours, 50), rate(bare, 50)
    mine, theirs, ratio = alternate(lambda: rate(ours, _COMMITS), lambda: rate(bare, _COMMITS), _ROUNDS)
    what = "1 partition" if partitions == 1 else f"{partitions} partitions"
    return [
        Figure(f"commits, fsync, {what}", mine, "/s", note=f"bare loop {theirs:,.0f}/s"),
        Figure(f"commits, fsync, {what}, against a bare loop", ratio, "x", 1.4 if partitions == 1 else 2.0),
    ]


def _on_memory_disk(folder: Callable[[], str]) -> list[Figure]:
    """Where a put costs next to nothing: what the work of a commit costs apart from it."""
    ours_folder = folder()
    topic_store(ours_folder, 1, **{"store.fsync": "false"})
    ours, bare = producing(ours_folder, 1, "false"), bare_inline_loop(folder())
    rate(ours, 50), rate(bare, 50)
    mine, theirs, ratio = alternate(lambda: rate(ours, _COMMITS), lambda: rate(bare, _COMMITS), _ROUNDS)
    return [
        Figure("commits, no fsync, memory disk", mine, "/s", note=f"bare loop {theirs:,.0f}/s"),
        Figure("commits, no fsync, memory disk, against a bare loop", ratio, "x", 0.65),
    ]


def _against_delta(folder: Callable[[], str]) -> list[Figure]:
    fresh_folder = folder()
    topic_store(fresh_folder, 1, **{"store.fsync": "false"})
    fresh = producing(fresh_folder, 1, "false")
    delta = delta_writing(folder())
    rate(fresh, 50), rate(delta, 5)
    mine, theirs, ratio = alternate(lambda: rate(fresh, _COMMITS), lambda: rate(delta, _DELTA_COMMITS), _ROUNDS)
    figures = [
        Figure("commits, no fsync", mine, "/s", note=f"delta-rs {theirs:,.0f}/s"),
        Figure("commits, no fsync, against delta-rs", ratio, "x", 4.0),
    ]
    aged_folder = folder()
    aged_store = topic_store(aged_folder, 1, **{"store.fsync": "false"}, **_UNFOLDED)
    age(aged_store, _AGED_ENTRIES)
    # The segments that make it old are named only.
    aged = producing(aged_folder, 1, "false", **_UNFOLDED)
    fresh_folder = folder()
    topic_store(fresh_folder, 1, **{"store.fsync": "false"})
    fresh = producing(fresh_folder, 1, "false", **_UNFOLDED)
    rate(aged, 50), rate(fresh, 50)
    old, _, ratio = alternate(lambda: rate(aged, _COMMITS), lambda: rate(fresh, _COMMITS), _ROUNDS)
    figures += [
        Figure(f"commits after {_AGED_ENTRIES:,} entries, no fsync", old, "/s"),
        Figure(f"commits after {_AGED_ENTRIES:,} entries, against a fresh store", ratio, "x", 0.9),
    ]
    rate(delta, _AGED_VERSIONS)
    mine, theirs, ratio = alternate(lambda: rate(aged, _COMMITS), lambda: rate(delta, 20), 3)
    figures.append(
        Figure(
            f"commits after {_AGED_ENTRIES:,} entries, against delta-rs after {_AGED_VERSIONS:,} versions",
            ratio,
            "x",
            15.0,
            note=f"delta-rs {theirs:,.0f}/s",
        )
    )
    return figures
