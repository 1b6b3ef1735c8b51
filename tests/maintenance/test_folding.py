"""Folding: when a process folds, how much, what it leaves alone, and what becomes of its clients if it fails."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from sparktxn import Producer, Store, read_arrow
from sparktxn._engine.format import names
from sparktxn._engine.log.keep.sealedruns import ManifestCache
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._foundation.process.clock import Deadline, SystemClock, time_left_s
from sparktxn._rows.scan.plan import segments_between
from sparktxn.errors import StoreUnavailable
from sparktxn.maintenance.publishing import background as folding
from sparktxn.maintenance.publishing.background import Folder, Rests
from sparktxn.maintenance.rewriting.rewriteplan import plan_tasks
from sparktxn.testing.clocks import ManualClock
from sparktxn.testing.faultystore import Fault, FaultyStore, Operation, healthy
from tests.lending import close_lent, lend_log, take_log_back
from tests.world import World, next_number, open_log

EIGHT = RewriteSettings(target_bytes=1 << 20, min_segments=8)
PLENTY = 1 << 40


@pytest.fixture
def world() -> Iterator[World]:
    made = World({"t": 2, "other": 1})
    yield made
    made.close()


def files(world: World, topic: str = "t", partition: int = 0) -> list[str]:
    view = world.store.view([topic]).partitions[topic, partition]
    found = segments_between(world.store.log.objects, view, 0, view.log_end_offset)
    return list(dict.fromkeys(segment.name for segment in found))


def write(world: World, count: int, **kwargs: Any) -> None:
    """Segments of a record each."""
    for number in range(count):
        world.produce(f"value {number}", **kwargs)


def folder_of(world: World, bytes_per_minute: int = PLENTY, **kwargs: Any) -> Folder:
    return Folder(world.store.log, bytes_per_minute, EIGHT, pause_s=0, **kwargs)


def fold(folder: Folder) -> float:
    """One step after a checkpoint."""
    folder._is_due = True
    folder._next_s = 0
    return folder.step()


def test_a_fold_merges_what_has_gathered_and_no_record_changes(world: World) -> None:
    write(world, 7)
    write(world, 20, partition=1)
    before = world.rows("t"), world.rows("other")
    folder = folder_of(world)
    fold(folder)
    assert (len(files(world)), len(files(world, partition=1))) == (7, 1), "seven are too few"
    assert (world.rows("t"), world.rows("other")) == before


def test_what_readers_have_in_memory_is_left_by_a_fold(world: World, monkeypatch: Any) -> None:
    """A fold reads each manifest once; kept with those of readers, they grew by the age of the process."""
    write(world, 70)
    world.store.log.checkpoint()
    kept: list[str] = []
    monkeypatch.setattr(ManifestCache, "add", lambda _, key, segments: kept.append(key[1]))
    view = world.store.log.known_view()
    assert view.partitions["t", 0].sealed, "there is a manifest"
    fold(folder_of(world))
    assert kept == []
    assert len(files(world)) == 1
    assert kept, "a reader keeps it"


def test_a_file_that_is_still_small_is_folded_with_what_came_since(world: World) -> None:
    folder = folder_of(world)
    for _ in range(3):
        write(world, 8)
        fold(folder)
    assert len(files(world)) == 1
    assert world.texts() == [f"value {number}" for number in range(8)] * 3


def test_few_segments_after_a_fold_wait_for_more(world: World) -> None:
    """The segments of a rewritten range are still in the state: counted as new ones, they hid those to come."""
    folder = folder_of(world)
    for count, expected in ((8, 1), (4, 5), (4, 1)):
        write(world, count)
        fold(folder)
        assert len(files(world)) == expected


def test_what_is_large_enough_is_not_planned_again(world: World) -> None:
    settings = RewriteSettings(target_bytes=1_024, min_segments=8)
    folder = Folder(world.store.log, PLENTY, settings, pause_s=0)
    for _ in range(3):
        write(world, 8)
        fold(folder)
    assert len(files(world)) == 3


def test_segments_between_large_files_are_left_and_not_planned_again(world: World, monkeypatch: Any) -> None:
    small = RewriteSettings(target_bytes=4_096, min_segments=8)
    for number in range(3):
        write(world, 4)
        world.produce(Random(number).randbytes(8_000).hex())
    folder = Folder(world.store.log, PLENTY, small, pause_s=0)
    planned = []
    monkeypatch.setattr(folding, "plan_tasks", lambda *args, **kw: planned.append(args[3]) or plan_tasks(*args, **kw))
    before = files(world)
    fold(folder)
    fold(folder)
    assert files(world) == before
    assert [list(starts) for starts in planned] == [[("t", 0)], []]


def test_a_file_of_many_segments_is_not_copied_again_however_small(world: World) -> None:
    """Records that compress well, or are few, would be copied at each fold: the older the store, the more."""
    settings = RewriteSettings(target_bytes=1 << 20, min_segments=2)
    folder = Folder(world.store.log, PLENTY, settings, pause_s=0)
    for count, expected in ((31, 1), (2, 1), (2, 2), (2, 2)):
        write(world, count)
        fold(folder)
        assert len(files(world)) == expected


class Committing:
    """A log on a clock that the test moves, to which nothing is done but that it grows."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.entry = 1

    def worked(self, rests: Any, seconds: float, *, commits: bool) -> float:
        """Return how long a fold rests after so many seconds of work."""
        self.clock.now_s += seconds
        self.entry += commits
        before_s = self.clock.now_s
        rests.rest()
        return self.clock.now_s - before_s


def test_a_fold_takes_a_tenth_of_the_time_while_its_process_commits() -> None:
    log = Committing()
    rests = Rests(log)  # type: ignore[arg-type]
    for _ in range(3):
        assert log.worked(rests, 0.01, commits=True) == pytest.approx(0.09)
        assert log.worked(rests, 0.01, commits=False) == 0, "nothing is kept waiting"
    assert log.worked(rests, 3, commits=True) == 0.5, "a block is never so long: the machine has other work"


def test_a_long_fold_rests_as_much_as_a_short_one() -> None:
    """Otherwise the writer that gathers most would be kept waiting most."""
    log = Committing()
    rests = Rests(log)  # type: ignore[arg-type]
    rested_s = [log.worked(rests, 0.05, commits=True) for _ in range(1_000)]
    assert rested_s == pytest.approx([0.45] * 1_000)


@pytest.mark.parametrize(("block_s", "wait_s"), [(1, 7), (3, 1), (4, 0)])
def test_a_fold_begins_some_seconds_after_the_one_before_has_begun(
    world: World, monkeypatch: Any, block_s: float, wait_s: float
) -> None:
    """After a long fold a pause would make the next one longer still."""
    world.store.log.clock = clock = ManualClock()
    write(world, 8)
    folder = Folder(world.store.log, PLENTY, EIGHT, pause_s=10)

    def rest(_: Any) -> None:
        clock.sleep(block_s)
        folder.after_checkpoint()

    monkeypatch.setattr(Rests, "rest", rest)
    assert max(0, fold(folder)) == pytest.approx(wait_s), "after blocks of 1, 4 and 3 segments"
    assert len(files(world)) == 1


def test_a_fold_begins_no_task_after_a_minute(world: World, monkeypatch: Any) -> None:
    """It would fail for its length, and fold nothing for a minute."""
    world.store.log.clock = clock = ManualClock()
    write(world, 8)
    write(world, 8, partition=1)
    folder = folder_of(world)
    monkeypatch.setattr(Rests, "rest", lambda _: clock.sleep(25))
    assert fold(folder) <= 0, "the rest is due"
    assert (len(files(world)), len(files(world, partition=1))) == (1, 8)
    folder.step()
    assert len(files(world, partition=1)) == 1


def test_a_fold_rests_between_blocks_and_gives_up_when_the_handle_is_closed(world: World, monkeypatch: Any) -> None:
    write(world, 100)
    rested: list[int] = []
    monkeypatch.setattr(Rests, "rest", lambda self: rested.append(1))
    fold(folder_of(world))
    assert len(files(world)) == 1
    assert len(rested) == 5, "blocks of 1, 4, 16, 64 and 15 segments"
    monkeypatch.undo()
    ended = Deadline(SystemClock(), None)
    ended.end()
    with ended.governs(), pytest.raises(StoreUnavailable, match="closed"):
        Rests(world.store.log).rest()


def begun(world: World, name: str = "open", count: int = 1) -> Producer:
    """A transaction that stays open, with segments of a record each."""
    producer = world.transactional(name, transaction_publish="flush")
    producer.begin_transaction()
    more(producer, count)
    return producer


def more(producer: Producer, count: int) -> None:
    for number in range(count):
        producer.produce("t", f"in a transaction {number}", partition=0)
        producer.flush()


def starts_of_plans(monkeypatch: pytest.MonkeyPatch) -> list[dict[Any, int]]:
    """From which offsets each fold from now on plans which partitions."""
    planned: list[dict[Any, int]] = []
    monkeypatch.setattr(folding, "plan_tasks", lambda *args, **kw: planned.append(args[3]) or plan_tasks(*args, **kw))
    return planned


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_an_open_transaction_waits_alone(world: World, ends: str) -> None:
    """What is committed after its first record is folded, and its own records once it has ended."""
    write(world, 8)
    producer = begun(world)
    write(world, 8)
    folder = folder_of(world)
    fold(folder)
    assert len(files(world)) == 3
    getattr(producer, f"{ends}_transaction")()
    write(world, 8)
    fold(folder)
    assert len(files(world)) == 1
    kept = [f"value {number}" for number in range(8)]
    assert world.texts() == kept + ["in a transaction 0"] * (ends == "commit") + kept * 2


@pytest.mark.parametrize("seals_at", [None, 64, 65])
def test_segments_of_an_open_transaction_are_planned_twice(
    monkeypatch: pytest.MonkeyPatch, seals_at: int | None
) -> None:
    """Each fold planned all of them again, however long it stayed open, and nothing was to be folded.

    A checkpoint seals them from the 64th on. A run that is sealed across the end of the last plan is counted whole, so
    that it is planned once more. The test says when: a checkpoint that is due is written whenever its thread runs.
    """
    world = World({"t": 2, "other": 1}, checkpoint_entries=100_000)
    planned = starts_of_plans(monkeypatch)
    folder = folder_of(world)
    producer = begun(world)
    for count in range(2, 66):
        more(producer, 1)
        if count == seals_at:
            world.store.log.checkpoint()
        fold(folder)
        assert all(starts["t", 0] >= count - 16 for starts in planned[-1:] if starts)
    assert [len(starts) for starts in planned].count(1) == 8 + (seals_at == 65)
    assert len(files(world)) == 65
    write(world, 12)
    world.entry()
    fold(folder)
    assert len(files(world)) == 66, "what is committed behind them does not wait for as many again"
    producer.commit_transaction()
    fold(folder)
    assert len(files(world)) == 1
    world.close()


def test_a_piece_across_the_end_of_a_plan_that_found_nothing_is_folded(world: World) -> None:
    folder = folder_of(world)
    producer = begun(world, count=10)
    write(world, 5)
    fold(folder)
    write(world, 8)
    fold(folder)
    assert len(files(world)) == 11
    producer.abort_transaction()


def test_an_open_stretch_is_gone_back_to_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the transaction is open, folds begin at the last rewritten range: then once at its first record."""
    planned = starts_of_plans(monkeypatch)
    folder = Folder(world.store.log, PLENTY, RewriteSettings(target_bytes=1_024, min_segments=8), pause_s=0)
    producer = begun(world)
    for _ in range(6):
        write(world, 8)
        more(producer, 4)
        fold(folder)
    begins = [starts["t", 0] for starts in planned if starts]
    assert begins == sorted(begins), "a stretch was planned again"
    assert begins[-1] > 40
    producer.commit_transaction()
    other = begun(world, "another")
    del planned[:]
    for _ in range(3):
        write(world, 8)
        fold(folder)
    begins = [starts["t", 0] for starts in planned if starts]
    assert begins[0] == 0, "the segments of the first one"
    assert min(begins[1:]) > 40
    other.abort_transaction()


def test_what_a_fold_without_bytes_has_gone_past_is_remembered(world: World) -> None:
    """It was complete only once the transaction had ended, so that nothing said where it had begun."""
    world.store.log.clock = clock = ManualClock()
    folder = folder_of(world, 600)
    producer = begun(world)
    write(world, 8)
    write(world, 8, partition=1)
    fold(folder)
    assert (len(files(world)), len(files(world, partition=1))) == (2, 8), "there were bytes for one"
    producer.commit_transaction()
    for _ in range(3):
        clock.sleep(3_600)
        write(world, 4)
        fold(folder)
    assert len(files(world)) == 5, "one, and the last four"
    assert len(files(world, partition=1)) == 1


def test_bytes_per_minute_are_a_bound(world: World) -> None:
    """A task is begun while bytes are left. What it takes too much is waited for, and then the rest is folded."""
    clock = ManualClock()
    world.store.log.clock = clock
    folder = folder_of(world, 600)
    write(world, 8)
    write(world, 8, partition=1)
    assert 60 < fold(folder) < 3_600
    assert (len(files(world)), len(files(world, partition=1))) == (1, 8), "there were bytes for one"
    clock.sleep(30)
    assert folder.step() > 0, "woken too early"
    assert len(files(world, partition=1)) == 8
    clock.sleep(3_600)
    folder.step()
    assert len(files(world, partition=1)) == 1


def test_only_a_process_whose_checkpoint_was_taken_folds(world: World, monkeypatch: Any) -> None:
    started: list[Log] = []
    monkeypatch.setattr(folding, "start_folding", started.append)
    with (
        Store.open(world.uri, options={"checkpoint.entries": 4}) as writer,
        Store.open(world.uri, options={"checkpoint.entries": 5}) as reader,
    ):
        for _ in range(30):
            writer.log.checkpoint()
        assert not started, "a checkpoint that was asked for starts nothing"
        while not started:
            writer.create_topic(f"topic-{next_number()}")
            reader.view(None)
        assert set(started) == {writer.log}


def test_folding_is_off_where_the_setting_is_zero(monkeypatch: Any) -> None:
    started: list[Log] = []
    monkeypatch.setattr(folding, "start_folding", started.append)
    world = World({"t": 1}, checkpoint_entries=2, checkpoint_fold_bytes_per_minute=0)
    write(world, 10)
    assert world.store.log.on_checkpoint is None
    world.close()
    assert not started


def test_two_processes_that_fold_one_range_lose_it_once(world: World, caplog: Any) -> None:
    write(world, 8)
    with Store.open(world.uri, options={"checkpoint.entries": 1_000}) as other:
        view = other.log.known_view()
        second = Folder(other.log, PLENTY, EIGHT, pause_s=0)
        fold(folder_of(world))
        other.log.known_view = lambda topics=None: view  # type: ignore[method-assign]
        with caplog.at_level(logging.DEBUG, "sparktxn"):
            assert fold(second) <= 0, "to be planned again"
            assert second.step() == float("inf")
    assert [record.levelname for record in caplog.records if "fold" in record.message] == ["DEBUG"]
    assert world.texts() == [f"value {number}" for number in range(8)]


class Failing:
    """A store with a topic `t` whose objects fail by `fate`, a process's log, and a folder of it."""

    def __init__(self, **background: Any) -> None:
        self.clock = ManualClock()
        self.fate: Callable[[Operation], Fault] = healthy
        self.objects = MemoryStore(f"folding-{next_number()}", self.clock)
        self.log = open_log(FaultyStore(self.objects, lambda operation: self.fate(operation)), self.clock, **background)
        self.uri = f"{self.objects.uri}-folding"
        lend_log(self.uri, self.log)
        self.store = Store.open(self.uri)
        self.store.create_topic("t")
        self.folder = Folder(self.log, PLENTY, EIGHT, pause_s=0)

    def write(self, count: int) -> None:
        for number in range(count):
            with Producer({"bootstrap.servers": self.uri}) as producer:
                producer.produce("t", f"{number}")

    def fold(self) -> float:
        return fold(self.folder)

    def texts(self) -> list[str]:
        return [row["value"].decode() for row in read_arrow(self.store, "t").read_all().to_pylist()]

    def files(self) -> int:
        return sum(info.name.endswith(".parquet") for info in self.objects.list(names.TOPICS))


@pytest.fixture
def failing() -> Iterator[Failing]:
    made = Failing()
    yield made
    made.store.close()
    take_log_back(made.uri)


@pytest.mark.parametrize("part_of_name", [".parquet", "/manifest", "_log/"])
@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.REFUSED])
def test_a_fold_that_fails_warns_once_and_waits(failing: Failing, part_of_name: str, fault: Fault, caplog: Any) -> None:
    """A store that takes nothing, or does not answer. Each failure doubles the time that segments are left alone."""
    failing.write(8)
    failing.fate = lambda operation: (
        fault if operation.verb.startswith("put") and part_of_name in operation.name else Fault.NONE
    )
    for pause_s in (60, 120):
        failing.folder.after_checkpoint()
        assert failing.folder.step() == float("inf")
        assert failing.folder._next_s - failing.clock.monotonic_s() == pause_s
        failing.folder.after_checkpoint()
        assert 0 < failing.folder.step() <= pause_s, "a checkpoint before the time is up begins nothing"
        failing.clock.sleep(pause_s)
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    of_folds = [warning for warning in warnings if "not folded" in warning]
    assert len(of_folds) == 2
    assert failing.objects.uri in of_folds[0]
    # The store says of itself that it takes nothing, once a minute.
    assert len(warnings) <= 4
    failing.fate = healthy
    failing.folder.step()
    failing.folder.after_checkpoint()
    failing.folder.step()
    assert (failing.texts(), failing.folder._repeated._backoff_s) == ([f"{number}" for number in range(8)], 60)


def test_a_fold_that_gets_no_answer_keeps_neither_commits_nor_close_waiting(monkeypatch: Any, caplog: Any) -> None:
    """The put of its file is not answered. Transactions go on, and close() waits for no fold."""
    objects = MemoryStore(f"folding-{next_number()}", SystemClock())
    log = open_log(objects, background=ThreadBackground("folding", 2))
    uri = f"{objects.uri}-folding"
    lend_log(uri, log)
    begun, closed, ended = threading.Event(), threading.Event(), threading.Event()
    put_if_absent = objects.put_if_absent

    def put(name: str, data: bytes, **kwargs: Any) -> Any:
        if not name.endswith(".parquet"):
            return put_if_absent(name, data, **kwargs)
        begun.set()
        while time_left_s(None) != 0:
            time.sleep(0.01)
        if closed.wait(60):
            ended.set()
        raise StoreUnavailable("no answer")

    with Store.open(uri) as store, Producer({"bootstrap.servers": uri}) as producer:
        store.create_topic("t")
        for number in range(8):
            producer.produce("t", f"{number}")
            producer.flush()
        monkeypatch.setattr(objects, "put_if_absent", put)
        folder = Folder(log, PLENTY, EIGHT, pause_s=0)
        folder.after_checkpoint()
        assert begun.wait(60)
        producer.produce("t", "more")
        assert producer.flush(60) == 0
        folder.after_checkpoint()
    close_lent(log)
    closed.set()
    take_log_back(uri)
    assert ended.wait(60)
    for thread in threading.enumerate():
        if thread.name == "folding-again":
            thread.join(60)
    assert not caplog.records, "that the handle was closed is not a failure"


_ENDS = """
import sys, threading
from sparktxn import Producer, Store
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn.maintenance.publishing.background import Rests
from sparktxn.maintenance.publishing import background as folding

begun = threading.Event()

def step(self, step=folding.Folder.step):
    threading.Timer(0.3, begun.set).start()
    while True:
        self._is_due = True
        self._next_s = 0
        step(self)
        self._log.view(None)

folding.Folder.step = step
store = Store.open(sys.argv[1], create=True)
store.create_topic("t")
with Producer({"bootstrap.servers": sys.argv[1]}) as producer:
    for number in range(20):
        producer.produce("t", str(number))
        producer.flush()
folding.Folder(store.log, 1 << 40, RewriteSettings(min_segments=8), pause_s=0).after_checkpoint()
begun.wait()
"""


def test_the_end_of_a_process_does_not_wait_for_a_fold(tmp_path: Any) -> None:
    """The fold is in the midst of its work, which never ends, when the interpreter does."""
    done = subprocess.run([sys.executable, "-c", _ENDS, tmp_path], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_of_a_fork_neither_folds_nor_hangs(tmp_path: Any) -> None:
    with Store.open(tmp_path, create=True) as store:
        folding.start_folding(store.log)
        child = os.fork()
        if not child:
            os._exit(len([thread for thread in threading.enumerate() if "again" in thread.name]))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert any(thread.name.endswith("-again") for thread in threading.enumerate())
    deadline_s = time.monotonic() + 60
    while any(thread.name == "sparktxn-again" for thread in threading.enumerate()):
        assert time.monotonic() < deadline_s, "the thread outlives the handle"
        time.sleep(0.01)


def test_the_last_handle_that_is_dropped_ends_the_thread(tmp_path: Any) -> None:
    store = Store.open(tmp_path, create=True)
    folding.start_folding(store.log)
    del store
    deadline_s = time.monotonic() + 60
    while any(thread.name == "sparktxn-again" for thread in threading.enumerate()):
        assert time.monotonic() < deadline_s, "the thread keeps the handle open"
        time.sleep(0.01)


PLAIN_PRODUCER = """
import sys, time
from pathlib import Path
from sparktxn import Producer

producer = Producer({
    "bootstrap.servers": sys.argv[1], "transactional.id": "plain", "checkpoint.entries": 16, "store.fsync": False,
})
producer.init_transactions()
assert not any(name.startswith("sparktxn.maintenance") for name in sys.modules), "before the first checkpoint"
missing = {"topics/table-*/_delta_log/*.json", "topics/t-*/*/*.offsets.parquet"}
until = time.monotonic() + float(sys.argv[2])
while missing and time.monotonic() < until:
    producer.begin_transaction()
    for topic in ("table", "t"):
        producer.produce(topic, b"v")
    producer.commit_transaction()
    time.sleep(0.02)
    missing -= {pattern for pattern in missing if any(Path(sys.argv[1]).glob(pattern))}
print(sorted(missing))
"""


def test_a_package_that_is_imported_anew_starts_its_jobs_once() -> None:
    """As a notebook does that loads changed modules again: two sets of jobs would fold the same segments."""
    program = """
import importlib, sparktxn
from sparktxn._foundation.process import backgroundjobs
importlib.reload(sparktxn)
started = []
for name, start in backgroundjobs._registered.items():
    started.append(start is sparktxn._start_background_jobs)
print(started)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[True]", done.stderr


def test_a_plain_producer_folds_and_publishes_after_its_first_checkpoint(tmp_path: Any) -> None:
    with Store.open(str(tmp_path), create=True) as store:
        store.create_topic("table", settings={"table.formats": "delta"})
        store.create_topic("t", settings={"append.inline.bytes": 0})
    done = subprocess.run(
        [sys.executable, "-c", PLAIN_PRODUCER, str(tmp_path), "90"], capture_output=True, text=True, timeout=150
    )
    assert done.stdout.strip() == "[]", done.stderr
