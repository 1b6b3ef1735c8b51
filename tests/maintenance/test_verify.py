"""Verifying: a store that sparktxn has written is whole, and damage to any object is found, and named."""

from __future__ import annotations

import pickle
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn import Producer
from sparktxn._engine.format import names
from sparktxn._foundation.values.structs import NO_SEQUENCE, OpenTransaction, PartitionState, SegmentRef
from sparktxn.errors import CommandRefused, StoreUnavailable
from sparktxn.maintenance import Problem, VerifyReport, rewrite, vacuum, verify
from sparktxn.maintenance.attempts import Overtaken
from sparktxn.maintenance.checking.segmentcheck import partition_problems
from sparktxn.store import Store
from tests.seeds import examples

GOLDEN = Path(__file__).parent.parent / "compatibility" / "golden" / "format-1"
# The package's name `verify` is the function.
verifying: Any = sys.modules["sparktxn.maintenance.checking.verify"]
OPTIONS = {
    "store.fsync": "false",
    "checkpoint.entries": "4",
    "checkpoint.seal.segments": "2",
    "store.append.inline.bytes": "0",
}
EVERYTHING = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 3_600_000}


def trade(uri: str, transactions: int) -> None:
    """Transactions over two partitions, of which every third is aborted after it was published."""
    settings = {"bootstrap.servers": uri, **OPTIONS, "transactional.id": "shop"}
    with Producer(settings) as producer:
        producer.init_transactions()
        for number in range(transactions):
            producer.begin_transaction()
            for partition in range(2):
                producer.produce("orders", b"x" * number, partition=partition)
            if number % 3 == 2:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "shop"), options=OPTIONS, create=True) as store:
        store.create_topic("orders", 2)
        trade(store.uri, 9)
        store.log.refresh()
        store.log.checkpoint()
        assert store.log.background.wait(60)  # type: ignore[attr-defined]  # a checkpoint that is being made
        yield store


def problems_of(store: Store, **settings: Any) -> list[Problem]:
    return list(verify(store, **settings).problems)


def test_a_store_that_was_written_by_every_command_is_whole(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "golden")
    with Store.open(str(tmp_path / "golden")) as store:
        report = verify(store)
    assert report.problems == ()
    assert report.unreferenced == 0
    assert report.segments > 10
    assert report.entries == report.entry


def test_a_report_says_what_was_read(shop: Store) -> None:
    report = verify(shop)
    assert report.problems == ()
    assert (report.segments, report.records) == (18, 18)
    assert report.size_bytes == sum(file.stat().st_size for file in segments_of(shop))
    assert report.entries == report.entry == shop.log.entry
    assert report.checkpoints >= 2
    quick = verify(shop, read_records=False)
    assert (quick.problems, quick.segments, quick.entries) == ((), 0, report.entries)


def segments_of(store: Store) -> list[Path]:
    return [file for file in Path(store.uri).rglob("*.parquet") if names.parse_segment_born(file.name) is not None]


def test_it_is_whole_after_vacuums_too(shop: Store) -> None:
    for _ in range(3):
        trade(shop.uri, 4)
        shop.log.refresh()
        shop.log.checkpoint()
        vacuum(shop, EVERYTHING)
    report = verify(shop)
    assert report.problems == ()
    assert report.horizon > 1
    assert report.entries == report.entry - report.horizon + 1


def test_only_the_named_topics_are_read(shop: Store) -> None:
    shop.create_topic("other", 1)
    with Producer({"bootstrap.servers": shop.uri, **OPTIONS}) as producer:
        producer.produce("other", b"x")
    assert verify(shop, ["other"]).segments == 1
    with pytest.raises(CommandRefused, match="'othr' does not exist"):
        verify(shop, ["othr"])


def test_objects_that_nothing_names_are_counted(shop: Store) -> None:
    (some, *_) = segments_of(shop)
    (some.parent / names.segment_file(0, "0" * 20, "parquet")).write_bytes(b"12345")
    report = verify(shop)
    assert (report.problems, report.unreferenced, report.unreferenced_bytes) == ((), 1, 5)


def test_tasks_may_run_elsewhere(shop: Store) -> None:
    shipped: list[bytes] = []

    def run(check: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        shipped.append(pickle.dumps((check, tasks)))
        check, tasks = pickle.loads(shipped[0])
        return [pickle.loads(pickle.dumps(check(task))) for task in tasks]

    assert verify(shop, run=run) == verify(shop)
    assert shipped


def test_tasks_are_handed_out_some_at_a_time(shop: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task is of one topic; what is handed out together bounds what is sent to others at once."""
    shop.create_topic("other", 1)
    with Producer({"bootstrap.servers": shop.uri, **OPTIONS}) as producer:
        producer.produce("other", b"x")
    monkeypatch.setattr("sparktxn.maintenance.taskrunning.TASKS_PER_RUN", 1)
    handed_out: list[int] = []

    def run(check: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        handed_out.append(len(tasks))
        return [check(task) for task in tasks]

    assert verify(shop, run=run) == verify(shop)
    assert handed_out == [1, 1]


# --- damage


def damages(data: bytes, draw: random.Random) -> Iterator[bytes | None]:
    """The object gone, cut off, longer, and with one byte changed at some places."""
    yield None
    yield data[: len(data) // 2]
    yield data + b" "
    for _ in range(2):
        place = draw.randrange(len(data))
        yield data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :]


def is_derived_or_unused(name: str) -> bool:
    """Hints, markers that were read before, locks: what no reader's answer rests on."""
    return name.startswith(("_log/_last_checkpoint.json", "_log/.lock", "_clock/")) or "/." in name


@pytest.mark.nightly
@pytest.mark.parametrize("rewritten", [False, True], ids=["as written", "rewritten"])
def test_damage_to_any_object_is_found_and_named(shop: Store, rewritten: bool) -> None:
    if rewritten:
        assert rewrite(shop, {"rewrite.min.segments": 2}).new_files
        shop.log.checkpoint()
    draw = random.Random(7)
    root = Path(shop.uri)
    missed = []
    files = {file.relative_to(root).as_posix(): file for file in sorted(root.rglob("*")) if file.is_file()}
    for name in files:
        if is_derived_or_unused(name):
            continue
        file = files[name]
        data = file.read_bytes()
        for damage in damages(data, draw):
            file.unlink() if damage is None else file.write_bytes(damage)
            found = [problem.object_name for problem in problems_of(shop)]
            # Above the horizon the log is whole without checkpoints, and nothing says that there was one.
            is_needed = damage is not None or names.parse_checkpoint_head(name) is None
            if is_needed and name not in found:
                missed.append((name, "gone" if damage is None else len(damage) - len(data), found))
            file.write_bytes(data)
    assert missed == []
    assert problems_of(shop) == []


def test_without_reading_records_missing_segments_are_found(shop: Store) -> None:
    (some, *_) = segments_of(shop)
    some.unlink()
    (problem,) = problems_of(shop, read_records=False)
    assert problem.object_name.endswith(some.name)
    assert (problem.is_missing, problem.fix) == (True, "restore the object from a copy of the store")


# --- alongside a vacuum


def test_a_vacuum_meanwhile_makes_it_begin_again(shop: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []
    original = verifying._Verification._tasks

    def tasks(self: Any, replay: Any) -> Any:
        attempts.append(self._horizon)
        if len(attempts) == 1:
            trade(shop.uri, 4)
            shop.log.refresh()
            for _ in range(2):
                shop.log.checkpoint()
                trade(shop.uri, 1)
                shop.log.refresh()
            assert vacuum(shop, EVERYTHING).entries
        return original(self, replay)

    monkeypatch.setattr(verifying._Verification, "_tasks", tasks)
    report = verify(shop)
    assert report.problems == ()
    assert len(attempts) == 2
    assert attempts[1] > attempts[0]


def test_vacuums_that_pass_it_each_time_end_it(shop: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(self: Any) -> None:
        raise Overtaken

    monkeypatch.setattr(verifying._Verification, "_check_not_overtaken", overtaken)
    with pytest.raises(StoreUnavailable, match="call again while none runs"):
        verify(shop)


# --- what contradicts itself


def segment(base_offset: int, count: int, sequence: int = NO_SEQUENCE, **fields: int) -> SegmentRef:
    return SegmentRef(
        name=names.segment_file(0, f"{base_offset:020d}", "parquet"),
        base_offset=base_offset,
        record_count=count,
        size_bytes=1,
        checksum="00000000",
        entry=fields.get("entry", 1),
        producer_id=1,
        producer_epoch=fields.get("epoch", 0),
        base_sequence=sequence,
        transaction=-1,
        timestamp_min_ms=0,
        timestamp_max_ms=0,
    )


@pytest.mark.parametrize(
    ("segments", "problem"),
    [
        ([segment(0, 5), segment(5, 5)], None),
        ([segment(0, 5), segment(7, 3)], None),  # control records, or records that were deleted
        ([segment(0, 5), segment(4, 5)], "before the end of the one before it, 5"),
        ([segment(0, 5), segment(5, 6)], "its segments end at 11"),
        ([segment(0, 5, entry=9)], "an entry after 8"),
        ([segment(0, 5, 0), segment(5, 5, 5)], None),
        ([segment(0, 5, 0), segment(5, 5, 4)], "its sequence 4 is not behind 4"),
        ([segment(0, 5, 0), segment(5, 5, 0)], "its sequence 0 is not behind 4"),
        ([segment(0, 5, 0), segment(5, 5, 0, epoch=1)], None),
        ([segment(0, 5, 2**31 - 3), segment(5, 5, 2)], None),  # sequences begin anew at 0
        ([segment(0, 5, 2**31 - 3), segment(5, 5, 1)], "its sequence 1 is not behind 1"),
    ],
)
def test_segments_that_contradict_each_other(segments: list[SegmentRef], problem: str | None) -> None:
    partition = PartitionState(topic_id=1, partition=0, log_end_offset=10)
    found = [told.problem for told in partition_problems("topics/t-1/p=0/", partition, segments, 8)]
    assert len(found) == (problem is not None), found
    assert problem is None or problem in found[0]


def test_an_open_transaction_begins_within_its_partition() -> None:
    partition = PartitionState(topic_id=1, partition=0, log_end_offset=10, open_transactions=(OpenTransaction(1, 10),))
    (found,) = partition_problems("folder/", partition, [], 8)
    assert "an open transaction begins at 10" in found.problem


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 25))
@settings(max_examples=examples(10, 100))
def test_whatever_was_written_is_whole(seed: int, steps: int) -> None:
    """Random transactions, checkpoints, deletions and vacuums; verified with every step's leftovers in place."""
    draw = random.Random(seed)
    uri = f"memory://verified-{seed}-{steps}-{time.monotonic_ns()}"
    options = {"checkpoint.entries": "5", "checkpoint.seal.segments": "2"}
    with Store.open(uri, options=options, create=True) as store:
        store.create_topic("orders", 2)
        for _ in range(steps):
            step = draw.random()
            if step < 0.6:
                settings = {"bootstrap.servers": uri, **options, "transactional.id": draw.choice("ab")}
                with Producer(settings) as producer:
                    producer.init_transactions()
                    producer.begin_transaction()
                    for _ in range(draw.randrange(4)):
                        producer.produce("orders", b"x", partition=draw.randrange(2))
                    if draw.random() < 0.5:
                        producer.flush()
                    producer.commit_transaction() if draw.random() < 0.7 else producer.abort_transaction()
            elif step < 0.8:
                store.log.refresh()
                store.log.checkpoint()
            elif step < 0.9:
                rewrite(store, {"rewrite.min.segments": 2})
            else:
                vacuum(store, EVERYTHING)
            report: VerifyReport = verify(store)
            assert report.problems == ()


def test_tasks_name_the_store_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative address means another folder where a task runs, or once the process has changed its own."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        with Store.open("relative", options=OPTIONS, create=True) as store:
            store.create_topic("orders", 2)
            trade("relative", 2)
            assert problems_of(store, run=lambda check, tasks: [check(task) for task in tasks]) == []
