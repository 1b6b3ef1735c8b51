"""How costs grow with the work, by counted calls, requests and bytes: one table, which docs/scaling.md shows.

Each operation runs on stores of one, two and four times a size. Where the table says linear, a doubling costs at most
2.2 times as much, and where it says constant at most 1.1 times. Times follow from the code and the machine; these
figures follow from the code alone. Names that a listing returns count, too. What a local disk reads to answer it is
held apart: it reads a folder whole.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pytest

from sparktxn import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from sparktxn._engine.format import checkpoint, names
from sparktxn._engine.format.commands import CreateTopic, InitProducerId, OffsetCommit, OffsetToCommit
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.background import InlineBackground
from sparktxn._foundation.process.clock import SystemClock
from sparktxn._programs.console.pages.overview import overview
from sparktxn._programs.console.pagesource import Source
from sparktxn._programs.console.requestparameters import RequestParameters
from sparktxn.admin import AdminClient, NewTopic
from sparktxn.maintenance import apply_retention, compact, copy_store, maintain, publish_tables, rewrite, sweep, verify
from sparktxn.maintenance.copying.storecopy import plan_copy
from sparktxn.metrics.process import PROCESS
from sparktxn.store import Store, registry
from sparktxn.store.storefigures import StoreFigures
from sparktxn.transfer.exporting import export_topic
from tests.calls import cost_of
from tests.maintenance.vacuumworld import DAY_S, Process, World

DOUBLED: Final = {"linear": 2.2, "constant": 1.1}
SMALL: Final = 16
"""So many calls or requests, or as many hundred bytes, may be added: numbers get longer."""
COMMITS_PER_CHECKPOINT: Final = 16
MERGE_ALL: Final = {"rewrite.min.segments": 2}
CLIENTS: Final[list[Consumer | Producer]] = []
"""Those of the running test, to be closed."""


class Figures(NamedTuple):
    """What an operation has cost."""

    calls: int
    requests: int
    size_bytes: int
    listed_names: int


@contextmanager
def counted_names() -> Iterator[list[int]]:
    """Count the names that listings of stores in memory return."""
    found = [0]

    def counting(listing: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        def listed(*arguments: Any) -> list[Any]:
            answer = listing(*arguments)
            found[0] += len(answer)
            return answer

        return listed

    with pytest.MonkeyPatch.context() as patch:
        for name in ("list", "list_names"):
            patch.setattr(MemoryStore, name, counting(getattr(MemoryStore, name)))
        yield found


def figures(work: Callable[[], object]) -> Figures:
    """Count what `work` costs in this thread."""
    kinds = (PROCESS.get, PROCESS.put, PROCESS.list, PROCESS.delete)
    before = [(kind.count, kind.size_bytes) for kind in kinds]
    with counted_names() as listed:
        calls = cost_of(work).calls
    after = [(kind.count, kind.size_bytes) for kind in kinds]
    differences = [(now[0] - then[0], now[1] - then[1]) for now, then in zip(after, before, strict=True)]
    requests, size_bytes = (sum(some) for some in zip(*differences, strict=True))
    return Figures(calls, requests, size_bytes, listed[0])


@cache
def commits(number: int) -> World:
    """A store with so many commits of two segments, every second one inline, and checkpoints among them."""
    world = World(inline=True)
    world.grow(number // COMMITS_PER_CHECKPOINT, COMMITS_PER_CHECKPOINT)
    return world


@cache
def breadth(kind: str, number: int) -> World:
    """A store with so many topics, partitions of one topic, transactional ids, or groups, and a checkpoint."""
    world = World()
    if kind == "partitions":
        world.writer.submit(CreateTopic("create wide", "wide", number))
    group = [OffsetToCommit(1, 0, 0, "", -1)]
    for each in range(number):
        if kind == "topics":
            world.writer.submit(CreateTopic(f"create {each}", f"topic-{each}", 1))
        elif kind in ("ids", "partitions"):
            world.writer.submit(InitProducerId(f"begin {each}", f"id-{each if kind == 'ids' else 0}"))
        else:
            world.writer.submit(OffsetCommit(f"offsets {each}", f"group-{each}", tuple(group)))
    world.writer.log.checkpoint()
    return world


@cache
def segments(number: int) -> World:
    """A store with a compacted topic that is a table, with so many committed files of three records of one key."""
    return real([pa.table({"key": [b"k"] * 3, "value": [b"v"] * 3, "topic": ["real"] * 3})] * number)


@cache
def rows(number: int) -> World:
    """A store with such a topic, of four files that hold so many times 200 records, of which each second is replaced.

    Their values are random: what is stored then grows as their number.
    """
    chosen = random.Random(number)
    count = 50 * number
    keys = [b"%d" % (each % (2 * count)) for each in range(4 * count)]
    return real(
        [
            pa.table({"key": some, "value": [chosen.randbytes(20) for _ in some], "topic": ["real"] * count})
            for some in (keys[first : first + count] for first in range(0, len(keys), count))
        ]
    )


def real(files: list[pa.Table]) -> World:
    """A store with a compacted topic `real` that is a table, with these files, each committed, and a checkpoint."""
    world = World()
    process = world.process(inline_bytes=0)
    settings = {"table.formats": "delta", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    process.store.create_topic("real", 1, settings=settings)
    for seed, file in enumerate(files):
        commit_file(process.store, file, seed)
    process.log.checkpoint()
    return world


def commit_file(store: Store, file: pa.Table, seed: int) -> None:
    stager = store.stage_plan(file["topic"].unique().to_pylist()).open(seed=seed)
    stager.write(file)
    store.commit(stager.finish(), transactional_id="id")


def opened(operation: Callable[[World, Process], object]) -> Callable[[World], Callable[[], object]]:
    """The operation in a process of its own that has read the state before."""

    def prepared(world: World) -> Callable[[], object]:
        copy = world.copy()
        process = copy.process()
        process.view()
        return lambda: operation(copy, process)

    return prepared


def committed_first(world: World) -> Callable[[], object]:
    """The first commit of a process, to one partition of a topic of many."""
    file = pa.table({"value": [b"v"], "topic": ["wide"], "partition": pa.array([7], pa.int32())})
    copy = world.copy()
    return lambda: commit_file(copy.process(inline_bytes=0).store, file, 0)


def copied(world: World) -> Callable[[], object]:
    copy = world.copy()
    store = copy.process().store
    return lambda: copy_store(store, f"{store.uri}-copy")


def unopened(operation: Callable[[World], object]) -> Callable[[World], Callable[[], object]]:
    return lambda world: lambda: operation(world)


def vacuum_at_rest(world: World) -> Callable[[], object]:
    """A vacuum whose horizon has not moved since the last one."""
    copy = world.copy()
    week = {"vacuum_retention_ms": 7 * DAY_S * 1_000, "vacuum_segment_age_ms": 0}
    copy.process().vacuum(**week)  # type: ignore[arg-type]
    process = copy.process()
    process.view()
    return lambda: process.vacuum(**week)  # type: ignore[arg-type]


def polled(world: World) -> Callable[[], object]:
    """A poll of a consumer at the end of the log, after a commit of one record to what it reads."""
    config = {"bootstrap.servers": world.copy().objects.uri}
    consumer = Consumer({**config, "group.id": "tail", "enable.auto.commit": False})
    producer = Producer({**config, "transactional.id": "tail"})
    CLIENTS.extend([consumer, producer])
    AdminClient(config).create_topics([NewTopic("tail", 1)])["tail"].result()
    consumer.assign([TopicPartition("tail", 0, OFFSET_BEGINNING)])
    producer.init_transactions()

    def commit() -> None:
        producer.begin_transaction()
        producer.produce("tail", b"value")
        producer.commit_transaction()

    def poll() -> None:
        assert consumer.poll(5) is not None

    commit()
    poll()
    commit()
    return poll


def spark_batch(world: World) -> Callable[[], object]:
    """What Spark asks of the data source to plan a batch."""
    pytest.importorskip("pyspark")
    from tests.spark.readers import batch_reader

    copy = world.copy()
    store = copy.process().store
    assert batch_reader(store, subscribe="real").partitions()
    return lambda: batch_reader(store, subscribe="real").partitions()


def spark_micro_batch(world: World) -> Callable[[], object]:
    """What Spark asks of the data source to plan a micro-batch of one new record."""
    pytest.importorskip("pyspark")
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from tests.spark.readers import stream_reader

    copy = world.copy()
    reader = stream_reader(copy.process().store, subscribe="real", startingOffsets="latest")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    commit_file(copy.process(inline_bytes=0).store, pa.table({"key": [b"k"], "value": [b"new"], "topic": ["real"]}), 0)

    def plan() -> None:
        end = reader.latestOffset(start, ReadAllAvailable())
        assert len(reader.partitions(start, end)) == 1

    return plan


class Law(NamedTuple):
    """One row: what an operation costs by what a store has."""

    operation: str
    grows_with: str
    law: str
    prepared: Callable[[World], Callable[[], object]]


LAWS: Final = (
    Law("open", "commits", "constant", unopened(lambda world: world.process())),
    Law("open", "transactional ids", "linear", unopened(lambda world: world.process())),
    Law("open", "topics", "linear", unopened(lambda world: world.process())),
    Law("open", "partitions", "linear", unopened(lambda world: world.process())),
    Law("first read of a topic", "partitions", "linear", unopened(lambda world: world.process().log.view(["wide"]))),
    Law("first read of a topic", "commits", "constant", unopened(lambda world: world.process().log.view(["topic"]))),
    Law("commit", "commits", "constant", opened(lambda world, process: world.commit(process=process))),
    Law("commit", "topics", "constant", opened(lambda world, process: world.commit(process=process))),
    Law("commit", "transactional ids", "constant", opened(lambda world, process: world.commit(process=process))),
    Law("first commit of a process", "partitions", "linear", committed_first),
    Law("read at the end of the log", "commits", "constant", opened(lambda _, process: process.log.view(["topic"]))),
    Law("checkpoint", "topics", "linear", opened(lambda _, process: process.log.checkpoint())),
    Law("poll at the end of the log", "commits", "constant", polled),
    Law("poll at the end of the log", "topics", "constant", polled),
    Law("sweep", "topics", "constant", opened(lambda _, process: sweep(process.store))),
    Law("sweep", "groups", "linear", opened(lambda _, process: sweep(process.store))),
    Law("sweep", "transactional ids", "linear", opened(lambda _, process: sweep(process.store))),
    Law("sweep", "commits", "constant", opened(lambda _, process: sweep(process.store))),
    Law("retention", "commits", "constant", opened(lambda _, process: apply_retention(process.store))),
    Law("vacuum, horizon at rest", "commits", "linear", vacuum_at_rest),
    Law("vacuum", "commits", "linear", opened(lambda _, process: process.vacuum())),
    Law("vacuum", "topics", "linear", opened(lambda _, process: process.vacuum())),
    Law("verify", "commits", "linear", opened(lambda _, process: verify(process.store, read_records=False))),
    Law("plan of a copy", "commits", "linear", opened(lambda _, process: copy_plan(process))),
    Law("copy", "segments", "linear", copied),
    Law("plan of a read", "segments", "linear", opened(lambda _, process: scan_plan(process))),
    Law("plan of a batch of Spark's", "segments", "linear", spark_batch),
    Law("plan of a micro-batch of Spark's", "segments", "constant", spark_micro_batch),
    Law("rewrite", "segments", "linear", opened(lambda _, process: rewrite(process.store, MERGE_ALL))),
    Law("compaction", "segments", "linear", opened(lambda _, process: compact(process.store))),
    Law("publication of a table", "segments", "linear", opened(lambda _, process: publish_tables(process.store))),
    Law("export", "segments", "linear", opened(lambda _, process: exported(process))),
    Law("verify, with records", "segments", "linear", opened(lambda _, process: verify(process.store))),
    Law("rewrite", "rows", "linear", opened(lambda _, process: rewrite(process.store, MERGE_ALL))),
    Law("compaction", "rows", "linear", opened(lambda _, process: compact(process.store))),
    Law("publication of a table", "rows", "linear", opened(lambda _, process: publish_tables(process.store))),
    Law("export", "rows", "linear", opened(lambda _, process: exported(process))),
    Law("verify, with records", "rows", "linear", opened(lambda _, process: verify(process.store))),
    Law("maintain", "segments", "linear", opened(lambda _, process: maintain(process.store))),
    Law("scrape", "topics", "linear", opened(lambda _, process: StoreFigures(process.store).read())),
    Law("scrape", "groups", "linear", opened(lambda _, process: StoreFigures(process.store).read())),
    Law("scrape", "partitions", "linear", opened(lambda _, process: StoreFigures(process.store).read())),
    Law("scrape", "transactional ids", "linear", opened(lambda _, process: StoreFigures(process.store).read())),
    Law("scrape", "commits", "constant", opened(lambda _, process: StoreFigures(process.store).read())),
    Law("front page of the console", "transactional ids", "linear", opened(lambda _, process: front_page(process))),
    Law("front page of the console", "commits", "linear", opened(lambda _, process: front_page(process))),
    Law("groups list", "commits", "constant", opened(lambda _, process: groups_of(process))),
    Law("front page of the console", "partitions", "linear", opened(lambda _, process: front_page(process))),
    Law("front page of the console", "topics", "linear", opened(lambda _, process: front_page(process))),
    Law("front page of the console", "groups", "linear", opened(lambda _, process: front_page(process))),
    Law("groups list", "groups", "linear", opened(lambda _, process: groups_of(process))),
)


def copy_plan(process: Process) -> object:
    return plan_copy(process.objects, 1, process.log.entry)


def scan_plan(process: Process) -> object:
    return process.store.plan_view(process.log.view(["real"]))


def exported(process: Process) -> object:
    with TemporaryDirectory() as folder:
        return export_topic(process.store, "real", Path(folder) / "export")


def front_page(process: Process) -> object:
    return overview(Source(process.store), RequestParameters({}))


def groups_of(process: Process) -> list[str]:
    with process.log.known() as known:
        return known.group_ids()


def store_of(grows_with: str, number: int) -> World:
    made = {"commits": commits, "segments": segments, "rows": rows}.get(grows_with)
    if made is not None:
        return made(number)
    return breadth("ids" if grows_with == "transactional ids" else grows_with, number)


@pytest.fixture
def time_by_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have clients work inline, and have each reading of the clock move it on: else the machine's speed decides."""
    looks = count()
    monkeypatch.setattr(registry, "ThreadBackground", lambda *_: InlineBackground())
    monkeypatch.setattr(SystemClock, "monotonic_s", staticmethod(lambda: next(looks) * 1e-5))
    yield
    while CLIENTS:
        CLIENTS.pop().close()


@pytest.mark.usefixtures("time_by_looks")
@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.operation} by {law.grows_with}")
def test_costs_grow_as_the_table_says(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (64, 128, 256)
    # All heads that grow with the sizes have one form, as heads of large stores have.
    monkeypatch.setattr(checkpoint, "PACKED_PARTS_MIN", sizes[0])
    found = [figures(law.prepared(store_of(law.grows_with, size))) for size in sizes]
    most = DOUBLED[law.law]
    for less, more in pairwise(found):
        slack = Figures(SMALL, SMALL, 100 * SMALL, SMALL)
        assert all(now <= most * then + free for now, then, free in zip(more, less, slack, strict=True)), found


def test_opening_on_a_local_disk_reads_the_names_of_the_log_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system cannot begin a listing at a name, so there opening is linear in the entries that a vacuum keeps."""
    read: dict[str, int] = {}
    listdir = os.listdir

    def counted(path: str = ".") -> list[str]:
        found = listdir(path)
        read[path.rpartition("/")[0].rpartition("/")[2]] = len(found)
        return found

    with Store.open(str(tmp_path), create=True) as store:
        for number in range(100):
            store.log.submit([InitProducerId(f"begin {number}", "id")])
        store.log.checkpoint()
        kept = len(listdir(tmp_path / names.LOG))
    monkeypatch.setattr(os, "listdir", counted)
    with Store.open(str(tmp_path)) as store:
        assert store.log.entry == 100
    assert read == {names.LOG.rstrip("/"): kept}


def test_a_plan_of_a_copy_decodes_no_manifest_of_checkpoints() -> None:
    """Their checksums say that they are what was sealed; to decode them took a third of a plan."""
    world = commits(64)
    process = world.copy().process()
    process.view()
    found = cost_of(lambda: copy_plan(process)).by_function
    assert found["sparktxn/_engine/log/keep/sealedruns.py:check_manifest"] > 0
    assert found["sparktxn/_engine/format/manifest.py:manifest_rows"] == 0


def test_the_page_says_what_the_table_says() -> None:
    page = (Path(__file__).parent.parent / "docs" / "scaling.md").read_text()
    for law in LAWS:
        assert f"| {law.operation} | {law.grows_with} | {law.law} |" in page
