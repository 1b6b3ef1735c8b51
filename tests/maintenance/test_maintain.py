"""All jobs in one call: what is left of a store in which nothing happens any more."""

from __future__ import annotations

from pathlib import Path

from sparktxn import Producer, Store
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


def test_replaced_records_are_gone_though_nobody_writes(tmp_path: Path) -> None:
    with written(tmp_path, TRANSACTIONS) as store:
        for _ in range(2):
            assert maintain(store, AT_ONCE).failed == ()
        assert entries(tmp_path) <= 4
        view = store.view(["t"])
        (task,) = store.plan(view, store.ranges(view))
        assert len({segment.name for segment in task.segments}) == 1
        assert sum(segment.record_count for segment in task.segments) == TRANSACTIONS


def test_a_checkpoint_just_before_the_rewrite_keeps_nothing_for_long(tmp_path: Path) -> None:
    """It names what the rewrite has replaced, and only two entries are above it: the rewrite's and the vacuum's."""
    with written(tmp_path, TRANSACTIONS) as store:
        store.log.refresh(store.log.deadline(None))
        assert store.log.checkpoint() == store.log.entry
        for _ in range(2):
            assert maintain(store, AT_ONCE).failed == ()
        assert entries(tmp_path) <= 4


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
