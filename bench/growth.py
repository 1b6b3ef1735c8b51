"""How costs grow: with commits, topics, rows and writers; processor time, memory, and the log's bytes of a commit.

Each cost is measured in a process of its own, with its peak of memory. The environment variable
`BENCH_GROWTH_COMMITS` names other numbers of commits than 10,000 and 100,000, such as
`10000,100000,600000`, and `BENCH_GROWTH_TOPICS` other numbers of topics than 100, 1,000 and 10,000. A store of 600,000
commits takes some ten minutes to write. `BENCH_GROWTH_ROWS`, such as `10000000,100000000`, adds Spark's write and
reads of so many narrow rows next to those of plain Parquet files, and `BENCH_GROWTH_WRITERS`, such as `1,4,8,16`,
so many writers without and with followers. The curves go to `bench/results/growth.png`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, median
from bench.records import temporary_folder
from bench.spark import run_driver
from bench.writers import FOLLOWERS, run
from sparktxn._engine.format import names
from sparktxn._engine.format.commands import CreateTopic
from sparktxn.producer import Producer
from sparktxn.store import Store

__all__ = ["draw", "measure"]

_COMMITS = os.environ.get("BENCH_GROWTH_COMMITS", "10000,100000")
_TOPICS = os.environ.get("BENCH_GROWTH_TOPICS", "100,1000,10000")
_ROWS = os.environ.get("BENCH_GROWTH_ROWS", "")
_WRITERS = os.environ.get("BENCH_GROWTH_WRITERS", "")
_OPTIONS = {"store.fsync": "false"}
_CHART = Path(__file__).parent / "results" / "growth.png"
_OPENS = 7
_CREATED_AT_ONCE = 1_000
_STEP = 50
_COMMITS_MIN = 1_000
"""Of a store with many topics; and on to the next checkpoint, whose head is a part of their cost."""
_COMMITS_MAX = 10_000
_MAINTAIN, _VERIFY, _PLAN = "first maintain", "verify", "plan of a copy"
_TARGETS = {
    # Seconds of a processor, from docs/scaling.md.
    (_MAINTAIN, 100_000): 12,
    (_MAINTAIN, 600_000): 75,
    (_VERIFY, 100_000): 30,
    (_PLAN, 100_000): 12,
}

_IN_A_PROCESS = """
import sys, time
from sparktxn._engine.log.follow.confirm import read_horizon
from sparktxn.maintenance import maintain, verify
from sparktxn.maintenance.copying.storecopy import plan_copy
from sparktxn.store import Store
began = time.process_time()
with Store.open(sys.argv[1]) as store:
    opened, log = time.process_time(), store.log
    if sys.argv[2] == "verify":
        assert not verify(store).problems
    elif sys.argv[2] == "plan of a copy":
        plan_copy(log.objects, read_horizon(log.objects), log.refresh())
    elif sys.argv[2].endswith("maintain"):
        maintain(store)
    ended = time.process_time()
# Not getrusage: its peak is inherited from the process that started this one.
peak = next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(opened - began, ended - opened, peak)
"""


class _Cost(NamedTuple):
    open_s: float
    work_s: float
    peak_mb: int


def _cost(folder: str, operation: str) -> _Cost:
    """What opening a store and an operation on it cost in a process of its own, imports excluded."""
    command = [sys.executable, "-c", _IN_A_PROCESS, folder, operation]
    open_s, work_s, peak_mb = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return _Cost(float(open_s), float(work_s), int(peak_mb))


def _fill(folder: str, commits: int) -> float:
    """Commit two records in two topics so many times; return how many were committed per second of a processor."""
    with Store.open(folder, options=_OPTIONS, create=True) as store:
        store.create_topic("a", 1)
        store.create_topic("b", 1)
        with Producer({"bootstrap.servers": folder, "transactional.id": "writer", **_OPTIONS}) as producer:
            producer.init_transactions()
            began = time.process_time()
            for number in range(commits):
                producer.begin_transaction()
                for topic in ("a", "b"):
                    producer.produce(topic, b"value-%d" % number, b"key-%d" % number)
                producer.commit_transaction()
            return commits / (time.process_time() - began)


def _by_commits(commits: int) -> Iterator[tuple[str, Figure]]:
    """Yield what operations on a store of so many commits cost, each with its name."""
    with temporary_folder() as folder:
        made = _fill(folder, commits)
        yield "", Figure(f"commits of two records, {commits:,} of them", made, "/s CPU")
        opened = [_cost(folder, "") for _ in range(_OPENS)]
        open_ms = median([cost.open_s for cost in opened]) * 1_000
        yield "open", Figure(f"open, {commits:,} commits", open_ms, "ms CPU", note=f"{opened[0].peak_mb} MB, {_load()}")
        for operation in (_VERIFY, _PLAN, _MAINTAIN, "next maintain"):
            cost = _cost(folder, operation)
            note = f"{cost.peak_mb} MB, {_load()}"
            target = _TARGETS.get((operation, commits))
            name = f"{operation}, {commits:,} commits"
            yield operation, Figure(name, cost.work_s, "s CPU", target, at_most=True, note=note)


def _by_topics(topics: int) -> Iterator[tuple[str, Figure]]:
    """Yield what a store of so many topics costs: the log's bytes of a commit of one record, and opening."""
    with temporary_folder() as folder, Store.open(folder, options=_OPTIONS, create=True) as store:
        for first in range(0, topics, _CREATED_AT_ONCE):
            some = range(first, min(topics, first + _CREATED_AT_ONCE))
            store.log.submit([CreateTopic(store.log.ids.token(), f"topic-{number}", 1) for number in some])
        with Producer({"bootstrap.servers": folder, "transactional.id": "writer", **_OPTIONS}) as producer:
            producer.init_transactions()
            for operation, spread in (("to one topic", 1), ("to 1,000 topics in turn", min(topics, 1_000))):
                # From one checkpoint to another: each has its share of entries.
                _commit_to_checkpoint(producer, folder, spread, 0)
                before = _log_bytes(folder)
                commits = _commit_to_checkpoint(producer, folder, spread, _COMMITS_MIN)
                size_bytes = (_log_bytes(folder) - before) / commits
                name = f"log of a commit {operation}, {topics:,} topics"
                yield operation, Figure(name, size_bytes, "bytes", 5_000, at_most=True, note=f"{commits:,} commits")
        opened = median([_cost(folder, "").open_s for _ in range(_OPENS)]) * 1_000
        yield "open", Figure(f"open, {topics:,} topics", opened, "ms CPU", note=_load())


def _commit_to_checkpoint(producer: Producer, folder: str, spread: int, at_least: int) -> int:
    """Commit records one by one until there is another checkpoint after `at_least` of them; return how many."""
    heads, commits = 0, 0
    while commits < _COMMITS_MAX:
        if commits <= at_least:
            heads = _heads(folder)
        for _ in range(_STEP):
            producer.begin_transaction()
            producer.produce(f"topic-{commits % spread}", b"value", partition=0)
            producer.commit_transaction()
            commits += 1
        if commits > at_least and _heads(folder) > heads:
            break
    return commits


def _by_rows(rows: int) -> Iterator[tuple[str, Figure]]:
    """Yield the least of two times that Spark takes to write so many narrow rows, and to read them before a rewrite."""
    with temporary_folder() as folder:
        found, _ = run_driver(folder, "narrow", rows=rows, rounds=2)
    for case, seconds in found.items():
        operation = case.removeprefix("narrow, ")
        yield operation, Figure(f"Spark, {rows:,} rows: {operation}", min(seconds["wall"]), "s", note=_load())


def _by_writers(writers: int) -> Iterator[tuple[str, Figure]]:
    """Yield the commits a second of so many writers, without followers and with them."""
    for operation, followers in (("writers", 0), (f"next to {FOLLOWERS} followers", FOLLOWERS)):
        rate = run(writers, followers).rate
        yield operation, Figure(f"{writers} writers, {followers} followers", rate, "/s", note=_load())


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def _heads(folder: str) -> int:
    return len([*Path(folder, names.CHECKPOINTS).glob("*.json")])


def _log_bytes(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder, names.LOG).rglob("*") if path.is_file())


def measure() -> Iterator[Figure]:
    """Yields the figures, and draws the curves, again after each number."""
    curves: defaultdict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for grows_with, numbers, costs in (
        ("topics", _TOPICS, _by_topics),
        ("commits", _COMMITS, _by_commits),
        ("rows", _ROWS, _by_rows),
        ("writers", _WRITERS, _by_writers),
    ):
        for number in map(int, numbers.split(",") if numbers else ()):
            for operation, figure in costs(number):
                curves[grows_with, operation][number] = figure.value
                yield figure
            draw(_CHART, curves)
    print(f"  curves in {_CHART}")


def draw(path: Path, curves: Mapping[tuple[str, str], Mapping[int, float]]) -> None:
    """Write the PNG; a curve is what something costs, by what it grows with and its name, "" for one left out."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    more = [each for each in ("rows", "writers") if any(grows_with == each for grows_with, _ in curves)]
    figure, every = plt.subplots(1, 3 + len(more), figsize=(14 + 5 * len(more), 4.5), constrained_layout=True)
    work, opening, log = every[:3]
    others = dict(zip(more, every[3:], strict=True))
    for (grows_with, operation), values in curves.items():
        axes = others.get(grows_with) or (opening if operation == "open" else log if grows_with == "topics" else work)
        if operation:
            label = f"by {grows_with}" if operation == "open" else operation
            axes.plot([*values], [*values.values()], marker="o", label=label)
    work.set(title="What reads the whole log", xlabel="commits", ylabel="seconds of a processor")
    opening.set(title="Opening a store", xlabel="commits, or topics", ylabel="milliseconds of a processor")
    log.set(title="Log that a commit of one record writes", xlabel="topics", ylabel="bytes")
    # There a line of one slope says that costs are linear.
    work.set_yscale("log")
    for name, axes in others.items():
        axes.set(title=f"By {name}", xlabel=name, ylabel="seconds" if name == "rows" else "commits a second")
    for axes in every:
        axes.set_xscale("log")
        axes.set_xticks(sorted({number for line in axes.lines for number in line.get_xdata()}), minor=False)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:,.6g}")
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend()
    for axes in (opening, log, *others.values()):
        axes.set_ylim(bottom=0)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
