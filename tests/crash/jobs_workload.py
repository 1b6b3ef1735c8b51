"""What the jobs of maintenance do that test_jobs.py kills, with what they work on: prices by key, and old views.

A pricer writes a compacted topic. What a batch holds follows from its number, and how many are committed is an offset.
So the newest record of each key is known without a journal. A historian reads old views again: what they show must not
change until they expire.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from sparktxn import ConfigurationError, Consumer, KafkaException, Store, StoreUnavailable, TopicPartition, ViewExpired
from sparktxn.maintenance import compact, copy_store, maintain, rewrite, vacuum, verify
from sparktxn.store import read_task
from tests.crash.chaos_workload import (
    CALL_S,
    FENCED,
    INPUTS,
    OUTPUT,
    PROGRESS,
    ROLES,
    STARTS_AGAIN,
    Journal,
    Task,
    committed_position,
    progress_of,
    transactional_producer,
    until_known,
)

__all__ = ["JOBS", "PRICES", "newest_prices", "prices_of", "rows_between"]

PRICES = "prices"
PRICE_PARTITIONS = 2
PRICE_SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": "500"}
KEYS = 12
"""So many keys has each pricer; each of its batches changes some of them."""

JOBS = ("rewriter", "compactor", "maintainer", "keeper", "copier", "verifier", "historian")
JOB_S = 20.0
REMEMBERED = 6

# Old views live long enough to be read again, and end while other processes still read them.
KEEPS = {"vacuum.retention.ms": 2_000, "vacuum.segment.age.ms": 500, "vacuum.temporary.age.ms": 60_000}
SMALL = {"rewrite.min.segments": 2}

Range = tuple[str, int, int, int]


def prices_of(seed: int, name: str, batch: int) -> list[tuple[str, str | None]]:
    """The keys and values of a pricer's batch; a value that is None is a tombstone."""
    random = Random(f"{seed}/{name}/{batch}")
    keys = random.sample(range(KEYS), random.randint(1, 4))
    return [(f"{name}/{key}", None if random.random() < 0.2 else f"{batch}") for key in keys]


def newest_prices(seed: int, name: str, batches: int) -> dict[str, str | None]:
    """The newest value of each key once so many batches are committed."""
    return {key: value for batch in range(batches) for key, value in prices_of(seed, name, batch)}


def write_prices(task: Task, journal: Journal) -> int:
    """Commits batch after batch, exactly once through all incarnations, with some that are aborted first."""
    random = task.random()
    producer = transactional_producer(task, journal)
    group, progress = progress_of(task.name), TopicPartition(PROGRESS, 0)
    batch = committed_position(task, journal, group, progress)
    with Consumer({**task.settings, "group.id": group}) as consumer:
        metadata = consumer.consumer_group_metadata()
    while True:
        last = task.last()
        aborts = not last and random.random() < 0.15
        try:
            producer.begin_transaction()
            for key, value in prices_of(task.seed, task.name, batch):
                written = "aborted" if aborts else value
                producer.produce(PRICES, written, key, partition=int(key.rpartition("/")[2]) % PRICE_PARTITIONS)
            if random.random() < 0.3:
                producer.flush(CALL_S)
            if aborts:
                until_known(journal, producer.abort_transaction)
                continue
            producer.send_offsets_to_transaction([TopicPartition(PROGRESS, 0, batch + 1)], metadata)
            until_known(journal, producer.commit_transaction)
            batch += 1
            journal.note("priced", batches=batch)
        except KafkaException as error:
            told = error.args[0]
            journal.note("failed", code=told.name(), fatal=told.fatal(), reason=told.str())
            if told.fatal():
                return FENCED
            if not told.txn_requires_abort():
                return STARTS_AGAIN
            until_known(journal, producer.abort_transaction)
            continue
        if last:
            producer.close()
            return 0


def again(work: Callable[[Store, Task, Journal, Random], None], pause: int) -> Callable[[Task, Journal], int]:
    """A role that does a job again and again, with a pause of so many breaths."""

    def role(task: Task, journal: Journal) -> int:
        random = task.random()
        with Store.open(task.uri, options=task.options) as store:
            while not task.last():
                journal.note("job begins")
                try:
                    work(store, task, journal, random)
                except StoreUnavailable as error:
                    # A job that vacuums have overtaken three times, or that did not come to its end in time.
                    journal.note("job put off", reason=str(error))
                time.sleep(pause * task.breath_s * random.uniform(0.2, 1.8))
        return 0

    return role


def _rewrite(store: Store, task: Task, journal: Journal, random: Random) -> None:
    settings = {"rewrite.min.segments": 2, "rewrite.target.bytes": random.choice((2_000, 20_000, 1 << 20))}
    journal.note("job ends", report=str(rewrite(store, settings, timeout_s=JOB_S)))


def _compact(store: Store, task: Task, journal: Journal, random: Random) -> None:
    journal.note("job ends", report=str(compact(store, timeout_s=JOB_S)))


def _vacuum(store: Store, task: Task, journal: Journal, random: Random) -> None:
    journal.note("job ends", report=str(vacuum(store, KEEPS, timeout_s=JOB_S)))


def _maintain(store: Store, task: Task, journal: Journal, random: Random) -> None:
    report = maintain(store, {**KEEPS, **SMALL}, timeout_s=JOB_S)
    journal.note("job ends", failed=[str(failed) for failed in report.failed])


def _verify(store: Store, task: Task, journal: Journal, random: Random) -> None:
    report = verify(store, timeout_s=JOB_S)
    journal.note("verified", entry=report.entry, problems=[str(problem) for problem in report.problems])


def _copy(store: Store, task: Task, journal: Journal, random: Random) -> None:
    """Brings a copy forward, or begins a new one where the source has deleted what the copy lacks."""
    copies = Path(task.folder).parent / "copies"
    copies.mkdir(exist_ok=True)
    names = sorted(copies.iterdir(), key=lambda path: int(path.name))
    number = int(names[-1].name) if names else 0
    if random.random() < 0.1:
        number += 1
    for old in names[:-1]:
        shutil.rmtree(old, ignore_errors=True)
    target = copies / str(number)
    try:
        report = copy_store(store, str(target), threads=2, timeout_s=JOB_S)
    except ConfigurationError as refused:
        journal.note("copy refused", reason=str(refused))
        (copies / str(number + 1)).mkdir(exist_ok=True)
        return
    with Store.open(str(target), options=task.options) as copied:
        found = verify(copied, timeout_s=JOB_S)
    journal.note("copied", entry=report.entry, problems=[str(problem) for problem in found.problems])


def rows_between(store: Store, options: dict[str, Any], entry: int | None, ranges: list[Range]) -> list[Any]:
    """The committed records that a view has in some ranges of offsets."""
    view = store.view([*INPUTS, OUTPUT, PRICES], entry=entry)
    wanted = {(topic, partition): (start, end) for topic, partition, start, end in ranges}
    columns = ["topic", "partition", "offset", "key", "value"]
    rows = []
    for part in store.plan(view, wanted, columns=columns):
        for batch in read_task(part, options):
            rows += [tuple(row.values()) for row in batch.to_pylist()]
    return sorted(rows)


def _digest(rows: list[Any]) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def _remember(store: Store, task: Task, journal: Journal, random: Random) -> None:
    """Reads some records of a new view, and those of an older one again, that it or an earlier process has read."""
    kept = Path(task.folder, f"{task.name}.views")
    views = json.loads(kept.read_text()) if kept.exists() else []
    if views:
        entry, ranges, digest = random.choice(views)
        try:
            found = rows_between(store, task.options, entry, ranges)
            journal.note("read again", entry=entry, same=_digest(found) == digest, ranges=ranges)
        except ViewExpired:
            journal.note("view expired", entry=entry)
            views = [view for view in views if view[0] > entry]
    try:
        view = store.view([*INPUTS, OUTPUT, PRICES])
        ranges = []
        for (topic, partition), (start, end) in store.ranges(view).items():
            first = random.randint(start, end)
            ranges.append((topic, partition, first, min(end, first + 500)))
        views.append([view.entry, ranges, _digest(rows_between(store, task.options, view.entry, ranges))])
    except ViewExpired:
        journal.note("view expired at once")
    new = kept.with_suffix(".new")
    new.write_text(json.dumps(views[-REMEMBERED:]))
    new.replace(kept)


ROLES |= {
    "pricer": write_prices,
    "rewriter": again(_rewrite, 8),
    "compactor": again(_compact, 8),
    "maintainer": again(_maintain, 40),
    "keeper": again(_vacuum, 20),
    "copier": again(_copy, 60),
    "verifier": again(_verify, 60),
    "historian": again(_remember, 4),
}
