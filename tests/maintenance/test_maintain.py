"""All jobs in one call: what is left of a store in which nothing happens any more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sparktxn import Producer, Store
from sparktxn.format import names
from sparktxn.maintenance import maintain

AT_ONCE = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0}
TRANSACTIONS = 70


def written(folder: Path, transactions: int) -> Store:
    """A store whose newest records no checkpoint knows in the files that maintenance puts them into."""
    options = {"store.fsync": "false", "checkpoint.fold.bytes.per.minute": "0"}
    store = Store.open(folder, options=options, create=True)
    store.create_topic("t", 1)
    with Producer({"bootstrap.servers": str(folder), "transactional.id": "writer", **options}) as producer:
        producer.init_transactions()
        for number in range(transactions):
            with producer.transaction():
                producer.produce("t", b"%d" % number)
    return store


def entries(folder: Path) -> int:
    return len(list(folder.glob("_log/0*.json")))


def carriers(store: Store) -> set[int]:
    """The entries that carry records which the newest view names, aborted ones too."""
    partitions = store.view([topic.name for topic in store.topics()]).partitions.values()
    return {each.entry for partition in partitions for each in partition.segments if names.is_inline(each.name)}


def test_replaced_records_are_gone_though_nobody_writes(tmp_path: Path) -> None:
    with written(tmp_path, TRANSACTIONS) as store:
        # The first refresh begins a checkpoint in the background. Unless it ends before the first vacuum, that one has
        # a single checkpoint, and moves no horizon.
        for _ in range(3):
            assert maintain(store, AT_ONCE).failed == ()
        assert entries(tmp_path) <= 4
        view = store.view(["t"])
        (task,) = store.plan(view, store.ranges(view))
        assert len({segment.name for segment in task.segments}) == 1
        assert sum(segment.row_count for segment in task.segments) == TRANSACTIONS


def test_a_checkpoint_just_before_the_rewrite_keeps_nothing_for_long(tmp_path: Path) -> None:
    """It names what the rewrite has replaced, and only two entries are above it: the rewrite's and the vacuum's."""
    with written(tmp_path, TRANSACTIONS) as store:
        store.log.refresh()
        assert store.log.checkpoint() == store.log.entry
        for _ in range(2):
            assert maintain(store, AT_ONCE).failed == ()
        assert entries(tmp_path) <= 4


@pytest.mark.parametrize("seed", range(12))
def test_wherever_checkpoints_are_a_store_without_writers_becomes_small(seed: int, tmp_path: Path) -> None:
    """Transactions that commit or abort, topics of all policies, and a checkpoint before any of them.

    A vacuum goes as far as the older of two checkpoints, so there is one before the last entry.
    """
    random_ = random.Random(seed)
    with written(tmp_path, 1) as store:
        store.create_topic("compacted", 1, settings={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        store.create_topic("short", 1, settings={"retention.bytes": "1"})
        options = {"store.fsync": "false", "checkpoint.fold.bytes.per.minute": "0"}
        for number in range(random_.randint(1, 25)):
            if random_.random() < 0.3:
                store.log.refresh()
                store.log.checkpoint()
            name = f"writer-{random_.randrange(3)}"
            with Producer({"bootstrap.servers": str(tmp_path), "transactional.id": name, **options}) as producer:
                producer.init_transactions()
                producer.begin_transaction()
                producer.produce(random_.choice(["t", "compacted", "short"]), b"%d" % number, b"%d" % (number % 4))
                producer.flush()
                end = random_.choice([producer.commit_transaction, producer.abort_transaction])
                end()
        store.log.refresh()
        store.log.checkpoint()
        store.create_topic("last", 1)
        for _ in range(4):
            assert maintain(store, AT_ONCE).failed == ()
        entry = store.log.entry
        assert entries(tmp_path) - len(carriers(store)) <= 4, f"seed {seed}"
        assert maintain(store, AT_ONCE).failed == ()
        assert store.log.entry == entry, f"seed {seed}"


def test_a_store_in_which_nothing_happens_is_left_alone(tmp_path: Path) -> None:
    with written(tmp_path, TRANSACTIONS) as store:
        for _ in range(3):
            maintain(store, AT_ONCE)
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
        entry = store.log.entry
        for _ in range(3):
            assert maintain(store, AT_ONCE).failed == ()
        assert store.log.entry == entry
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    with written(tmp_path, 3) as store:
        before = sorted(tmp_path.rglob("*"))
        maintain(store, AT_ONCE, dry_run=True)
        assert sorted(tmp_path.rglob("*")) == before
