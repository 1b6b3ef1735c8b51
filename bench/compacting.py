"""Merging small files, against delta-rs's compact and Delta Lake's OPTIMIZE: alone, and while writers append.

Delta Lake runs in an environment of its own, as in `bench.peers`; where it cannot be had its figures are left out.
The environment variable ``BENCH_COMPACTING_SECONDS`` says how long the writers append, five seconds unless it is set.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bench.figures import Figure, median
from bench.peers import DELTA, PEERS_JARS, PEERS_ROOT, peers_python
from bench.records import batch, temporary_folder, topic_store
from sparktxn.maintenance import maintain, rewrite
from sparktxn.producer import Producer
from sparktxn.store import Store, read_task

__all__ = ["KINDS", "Contended", "Merged", "contended", "measure", "merged"]

_OPTIONS: Final = {"store.fsync": "false"}
_SIZES: Final = ((500, 100), (2_000, 500))
"""(files, records of each)."""

_ROUNDS: Final = 5
_WRITERS: Final = 3
_APPENDED_ROWS: Final = 500
_SECONDS: Final = float(os.environ.get("BENCH_COMPACTING_SECONDS", "5"))

_OURS: Final = "rewrite"
_DELTA_RS: Final = "delta-rs compact"
_OPTIMIZE: Final = "Delta OPTIMIZE"


class Merged(NamedTuple):
    """A merge of small files, and the scan after it: seconds of the clock and of processors."""

    wall_s: float
    cpu_s: float
    scan_s: float
    scan_cpu_s: float


class Contended(NamedTuple):
    """What writers and compactions have done side by side, and how often each has failed.

    A compaction of ours is lost if another one has merged its segments each time that it planned. The table has
    `wrong_rows` more or fewer records than were appended.
    """

    appends: int
    failed_appends: int
    compactions: int
    failed_compactions: int
    lost: int = 0
    wrong_rows: int = 0


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of the clock, and those of this process's processors."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def _tables(files: int, rows: int) -> list[pa.Table]:
    whole = batch(files * rows)
    return [whole.slice(number * rows, rows) for number in range(files)]


def fill_topic(folder: str, tables: list[pa.Table]) -> None:
    """Make a store whose topic has a transaction, of one file, for each table."""
    topic_store(folder, 1, **_OPTIONS).close()
    settings = {"bootstrap.servers": folder, "transactional.id": "writer", "store.append.inline.bytes": 0}
    with Producer({**settings, **_OPTIONS}) as producer:
        producer.init_transactions()
        for table in tables:
            with producer.transaction():
                producer.produce_arrow("t", table)


def fill_delta(folder: str, tables: list[pa.Table]) -> None:
    """Make a Delta table of one file for each table, written as ours are; one version adds all: that favours Delta."""
    from deltalake import Schema
    from deltalake.transaction import AddAction, create_table_with_add_actions

    Path(folder).mkdir()
    added = []
    for number, table in enumerate(tables):
        name = f"part-{number:05d}.parquet"
        path = Path(folder, name)
        pq.write_table(table, path, compression="zstd", compression_level=1)
        added.append(
            AddAction(name, path.stat().st_size, {}, 1_700_000_000_000, True, f'{{"numRecords":{len(table)}}}')
        )
    create_table_with_add_actions(folder, Schema.from_arrow(tables[0].schema), added)


def _scan_topic(store: Store) -> int:
    view = store.view(["t"])
    return sum(
        batch.num_rows for task in store.plan(view, store.ranges(view)) for batch in read_task(task, store.options)
    )


def _scan_delta(folder: str) -> int:
    from deltalake import DeltaTable

    return sum(batch.num_rows for batch in DeltaTable(folder).to_pyarrow_dataset().to_batches())


def _merged(merge: Callable[[], object], scan: Callable[[], int], rows: int) -> Merged:
    merging = _timed(merge)
    found: list[int] = []
    scanning = _timed(lambda: found.append(scan()))
    assert found == [rows], f"{found[0]} of {rows} records are left"
    return Merged(*merging, *scanning)


def _merge_topic(folder: str, rows: int) -> Merged:
    with Store.open(folder, options=_OPTIONS) as store:
        return _merged(lambda: rewrite(store), lambda: _scan_topic(store), rows)


def _merge_delta(folder: str, rows: int) -> Merged:
    return _merged(lambda: _compact_delta(folder), lambda: _scan_delta(folder), rows)


def _compact_delta(folder: str) -> None:
    from deltalake import DeltaTable, WriterProperties

    DeltaTable(folder).optimize.compact(writer_properties=WriterProperties(compression="ZSTD", compression_level=1))


def merged(files: int, rows: int, rounds: int, python: str | None = None) -> dict[str, list[Merged]]:
    """Return what each has measured in each round, on the same records and in turns; the first round is not counted.

    Args:
        files: how many small files are merged.
        rows: the records of each.
        rounds: how often it is measured.
        python: the Python that has Delta Lake's Spark; None to leave that out.
    """
    found: dict[str, list[Merged]] = {_OURS: [], _DELTA_RS: []}
    with temporary_folder() as folder:
        tables = _tables(files, rows)
        topic, delta, copy = f"{folder}/topic", f"{folder}/delta", f"{folder}/copy"
        fill_topic(topic, tables)
        fill_delta(delta, tables)
        for number in range(rounds + 1):
            for name, filled, merge in ((_OURS, topic, _merge_topic), (_DELTA_RS, delta, _merge_delta)):
                shutil.copytree(filled, copy)
                measured = merge(copy, files * rows)
                shutil.rmtree(copy)
                if number:
                    found[name].append(measured)
        if python is not None:
            rounds_of = _driven(python, "merge", delta, str(rounds), str(files * rows))
            found[_OPTIMIZE] = [Merged(*each) for each in rounds_of]
    return found


def _driven(python: str, *arguments: str) -> Any:
    """Return what Delta Lake's driver prints.

    Raises:
        OSError: it has failed; without its jars it does.
    """
    command = [python, "-m", "bench.compacting_driver", str(PEERS_JARS), DELTA, *arguments]
    driver = subprocess.run(command, cwd=PEERS_ROOT, capture_output=True, text=True)
    if driver.returncode:
        raise OSError(f"Delta Lake's driver has failed: {driver.stderr[-2_000:]}")
    return json.loads(driver.stdout.splitlines()[-1])


# while writers append


def _topic_writer(folder: str, number: int) -> Callable[[], object]:
    producer = Producer({"bootstrap.servers": folder, "transactional.id": f"writer-{number}", **_OPTIONS})
    producer.init_transactions()
    rows = batch(_APPENDED_ROWS)

    def append() -> None:
        with producer.transaction():
            producer.produce_arrow("t", rows)

    return append


def _delta_writer(folder: str, number: int) -> Callable[[], object]:
    from deltalake import write_deltalake

    rows = batch(_APPENDED_ROWS)
    return lambda: write_deltalake(folder, rows, mode="append")


class _LostError(Exception):
    """Another compaction came first, each time that this one has planned."""


def _topic_compactor(job: Callable[[Store], Any]) -> Callable[[str, int], Callable[[], object]]:
    def made(folder: str, number: int) -> Callable[[], object]:
        store = Store.open(folder, options=_OPTIONS)

        def compact() -> None:
            report = job(store)
            if report is not None and (report.lost or report.unresolved):
                raise _LostError

        return compact

    return made


def _maintain(store: Store) -> Any:
    report = maintain(store, {"rewrite.min.segments": 2})
    if report.failed:
        raise RuntimeError(str(report))
    return report.rewrite


def _delta_compactor(folder: str, number: int) -> Callable[[], object]:
    return lambda: _compact_delta(folder)


KINDS: Final[dict[str, tuple[Callable[[str, int], Any], Callable[[str, int], Any]]]] = {
    _OURS: (_topic_writer, _topic_compactor(rewrite)),
    "maintain": (_topic_writer, _topic_compactor(_maintain)),
    _DELTA_RS: (_delta_writer, _delta_compactor),
}
"""What makes a writer, and what makes a compaction, of each kind of table."""


def _repeat(
    kind: str,
    role: int,
    folder: str,
    number: int,
    seconds: float,
    barrier: Barrier,
    results: multiprocessing.Queue[Any],
) -> None:
    """Do one thing again and again in this process; `results` gets how often it was done, and what has failed."""
    try:
        act = KINDS[kind][role](folder, number)
        barrier.wait()
        done, lost, failures = 0, 0, []
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            try:
                act()
                done += 1
            except _LostError:
                lost += 1
            except Exception as error:  # whatever it is, the caller has to do it again
                failures.append(repr(error))
        results.put((role, done, lost, failures))
    except BaseException as error:
        barrier.abort()
        results.put((role, 0, 0, [repr(error)]))
        raise


def contended(kind: str, compactors: int, seconds: float) -> Contended:
    """Let three writers append while `compactors` processes compact in a loop, and count what has failed."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(_WRITERS + compactors), context.Queue()
    is_delta = KINDS[kind][0] is _delta_writer
    with temporary_folder() as parent:
        folder = f"{parent}/table"
        (fill_delta if is_delta else fill_topic)(folder, _tables(1, _APPENDED_ROWS))
        roles = [0] * _WRITERS + [1] * compactors
        processes = [
            context.Process(target=_repeat, args=(kind, role, folder, number, seconds, barrier, results))
            for number, role in enumerate(roles)
        ]
        for process in processes:
            process.start()
        found = [results.get() for _ in processes]
        for process in processes:
            process.join()
        counts = _counted(kind, found)
        if is_delta:
            rows = _scan_delta(folder)
        else:
            with Store.open(folder, options=_OPTIONS) as store:
                rows = _scan_topic(store)
    return counts._replace(wrong_rows=abs(rows - (counts.appends + 1) * _APPENDED_ROWS))


def _counted(kind: str, found: list[tuple[int, int, int, list[str]]]) -> Contended:
    done, failures, lost = [0, 0], [0, 0], 0
    for role, count, lost_here, failed in found:
        done[role] += count
        lost += lost_here
        failures[role] += len(failed)
        for text in dict.fromkeys(each[:160] for each in failed[:20]):
            print(f"{kind}, {('writer', 'compaction')[role]}: {text}", file=sys.stderr)
    return Contended(done[0], failures[0], done[1], failures[1], lost)


# figures


def _merge_figures(files: int, rows: int, found: dict[str, list[Merged]]) -> list[Figure]:
    figures = []
    name = f"{files:,} files of {rows} records"
    for peer in [kind for kind in found if kind != _OURS]:
        for what, wall, cpu in (("merge", 0, 1), ("scan after it", 2, 3)):
            ours, theirs = (
                [median([each[at] for each in found[kind]]) for at in (wall, cpu)] for kind in (_OURS, peer)
            )
            if not theirs[0]:
                continue
            pairs = list(zip(found[_OURS], found[peer], strict=True))
            ratio, cpu_ratio = (median([mine[at] / its[at] for mine, its in pairs]) for at in (wall, cpu))
            note = (
                f"{ours[0]:.3f} and {theirs[0]:.3f} s; CPU {ours[1]:.3f} and {theirs[1]:.3f} s, {cpu_ratio:.2f} times"
            )
            figures.append(Figure(f"{name}: {what}, rewrite / {peer}", ratio, "times", 1.0, True, note))
    return figures


def _contended_figure(kind: str, compactors: int, found: Contended) -> Figure:
    failed = found.failed_appends + found.failed_compactions + (found.wrong_rows > 0)
    note = (
        f"{found.failed_appends} of {found.appends + found.failed_appends} appends, "
        f"{found.failed_compactions} of {found.compactions + found.failed_compactions + found.lost} compactions; "
        f"{found.lost} lost; {found.wrong_rows} records too many or too few"
    )
    target = 0 if kind in (_OURS, "maintain") else None
    return Figure(f"{_WRITERS} writers, {compactors} of {kind}: failures", failed, "", target, True, note)


def _peers() -> str | None:
    try:
        return peers_python()
    except OSError as error:
        print(f"no figures against Delta Lake: {error}", file=sys.stderr)
        return None


def measure() -> list[Figure]:
    """Return the figures."""
    python = _peers()
    figures = []
    for files, rows in _SIZES:
        try:
            found = merged(files, rows, _ROUNDS, python)
        except OSError as error:
            print(f"no figures against Delta Lake: {error}", file=sys.stderr)
            python = None
            found = merged(files, rows, _ROUNDS)
        figures += _merge_figures(files, rows, found)
    for compactors in (1, _WRITERS):
        for kind in KINDS:
            figures.append(_contended_figure(kind, compactors, contended(kind, compactors, _SECONDS)))
        if python is not None:
            with temporary_folder() as parent:
                fill_delta(f"{parent}/table", _tables(1, _APPENDED_ROWS))
                counts = (f"{parent}/table", str(_WRITERS), str(compactors), str(_APPENDED_ROWS), str(_SECONDS))
                figures.append(
                    _contended_figure(_OPTIMIZE, compactors, Contended(*_driven(python, "contend", *counts)))
                )
    return figures
