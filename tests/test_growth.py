"""How costs grow with the work, by counted calls, requests and bytes: one table, which docs/scaling.md shows.

Each operation runs on stores of one, two and four times a size. Where the table says linear, a doubling costs at most
2.2 times as much, and where it says constant at most 1.1 times. Times follow from the code and the machine; these
figures follow from the code alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import pyarrow as pa
import pytest

from sparktxn.console.pages.overview import overview
from sparktxn.console.requestparameters import RequestParameters
from sparktxn.console.shownstore import Source
from sparktxn.exporter.storefigures import StoreFigures
from sparktxn.format.commands import CreateTopic, InitProducerId, OffsetCommit, OffsetToCommit
from sparktxn.maintenance import apply_retention, compact, maintain, publish_tables, rewrite, sweep, verify
from sparktxn.maintenance.copying.copyplan import plan_copy
from sparktxn.metrics.process import PROCESS
from sparktxn.transfer.exporting import export_topic
from tests.calls import cost_of
from tests.maintenance.vacuumworld import DAY_S, Process, World

DOUBLED: Final = {"linear": 2.2, "constant": 1.1}
SMALL: Final = 16
"""So many calls or requests, or as many hundred bytes, may be added: numbers get longer."""
COMMITS_PER_CHECKPOINT: Final = 16
MERGE_ALL: Final = {"rewrite.min.segments": 2}


class Figures(NamedTuple):
    """What an operation has cost."""

    calls: int
    requests: int
    size_bytes: int


def figures(work: Callable[[], object]) -> Figures:
    """Count what `work` costs in this thread."""
    kinds = (PROCESS.get, PROCESS.put, PROCESS.list, PROCESS.delete)
    before = [(kind.count, kind.size_bytes) for kind in kinds]
    calls = cost_of(work).calls
    after = [(kind.count, kind.size_bytes) for kind in kinds]
    differences = [(now[0] - then[0], now[1] - then[1]) for now, then in zip(after, before, strict=True)]
    return Figures(calls, sum(count for count, _ in differences), sum(size for _, size in differences))


@cache
def commits(number: int) -> World:
    """A store with so many commits of two segments, every second one inline, and checkpoints among them."""
    world = World(inline=True)
    world.grow(number // COMMITS_PER_CHECKPOINT, COMMITS_PER_CHECKPOINT)
    return world


@cache
def breadth(kind: str, number: int) -> World:
    """A store with so many topics, transactional ids, or groups, and a checkpoint."""
    world = World()
    group = [OffsetToCommit(1, 0, 0, "", -1)]
    for each in range(number):
        if kind == "topics":
            world.writer.submit(CreateTopic(f"create {each}", f"topic-{each}", 1))
        elif kind == "ids":
            world.writer.submit(InitProducerId(f"begin {each}", f"id-{each}"))
        else:
            world.writer.submit(OffsetCommit(f"offsets {each}", f"group-{each}", tuple(group)))
    world.writer.log.checkpoint()
    return world


@cache
def segments(number: int) -> World:
    """A store with a compacted topic that is a table, with so many committed files of three records of one key."""
    world = World()
    process = world.process(inline_bytes=0)
    settings = {"table.formats": "delta", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    process.store.create_topic("real", 1, settings=settings)
    for each in range(number):
        stager = process.store.stage_plan(["real"]).open(seed=each)
        stager.write(pa.table({"key": [b"k"] * 3, "value": [b"v"] * 3, "topic": ["real"] * 3}))
        process.store.commit(stager.finish(), transactional_id="id")
    process.log.checkpoint()
    return world


def opened(operation: Callable[[World, Process], object]) -> Callable[[World], Callable[[], object]]:
    """The operation in a process of its own that has read the state before."""

    def prepared(world: World) -> Callable[[], object]:
        copy = world.copy()
        process = copy.process()
        process.view()
        return lambda: operation(copy, process)

    return prepared


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
    Law("first read of a topic", "commits", "constant", unopened(lambda world: world.process().log.view(["topic"]))),
    Law("commit", "commits", "constant", opened(lambda world, process: world.commit(process=process))),
    Law("commit", "topics", "constant", opened(lambda world, process: world.commit(process=process))),
    Law("commit", "transactional ids", "constant", opened(lambda world, process: world.commit(process=process))),
    Law("read at the end of the log", "commits", "constant", opened(lambda _, process: process.log.view(["topic"]))),
    Law("checkpoint", "topics", "linear", opened(lambda _, process: process.log.checkpoint())),
    Law("sweep", "commits", "constant", opened(lambda _, process: sweep(process.store))),
    Law("retention", "commits", "constant", opened(lambda _, process: apply_retention(process.store))),
    Law("vacuum, horizon at rest", "commits", "linear", vacuum_at_rest),
    Law("vacuum", "commits", "linear", opened(lambda _, process: process.vacuum())),
    Law("vacuum", "topics", "linear", opened(lambda _, process: process.vacuum())),
    Law("verify", "commits", "linear", opened(lambda _, process: verify(process.store, read_records=False))),
    Law("plan of a copy", "commits", "linear", opened(lambda _, process: copy_plan(process))),
    Law("plan of a read, as Spark asks for it", "segments", "linear", opened(lambda _, process: scan_plan(process))),
    Law("rewrite", "segments", "linear", opened(lambda _, process: rewrite(process.store, MERGE_ALL))),
    Law("compaction", "segments", "linear", opened(lambda _, process: compact(process.store))),
    Law("publication of a table", "segments", "linear", opened(lambda _, process: publish_tables(process.store))),
    Law("export", "segments", "linear", opened(lambda _, process: exported(process))),
    Law("verify, with records", "segments", "linear", opened(lambda _, process: verify(process.store))),
    Law("maintain", "segments", "linear", opened(lambda _, process: maintain(process.store))),
    Law("scrape", "topics", "linear", opened(lambda _, process: StoreFigures(process.store).read())),
    Law("scrape", "groups", "linear", opened(lambda _, process: StoreFigures(process.store).read())),
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
    if grows_with in ("commits", "segments"):
        return commits(number) if grows_with == "commits" else segments(number)
    return breadth("ids" if grows_with == "transactional ids" else grows_with, number)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.operation} by {law.grows_with}")
def test_costs_grow_as_the_table_says(law: Law) -> None:
    sizes = (64, 128, 256)
    found = [figures(law.prepared(store_of(law.grows_with, size))) for size in sizes]
    most = DOUBLED[law.law]
    for less, more in pairwise(found):
        slack = Figures(SMALL, SMALL, 100 * SMALL)
        assert all(now <= most * then + free for now, then, free in zip(more, less, slack, strict=True)), found


def test_the_page_says_what_the_table_says() -> None:
    page = (Path(__file__).parent.parent / "docs" / "scaling.md").read_text()
    for law in LAWS:
        assert f"| {law.operation} | {law.grows_with} | {law.law} |" in page
