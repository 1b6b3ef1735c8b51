"""``python -m tests.simulation.simulate``: runs histories, and says what was run, what failed, and how to replay it."""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import count, cycle

from msgspec import Struct, field

from tests.simulation.scenarios import SCENARIOS, simulate

__all__ = ["Report", "main", "run_seeds"]

_SEEDS_PER_TASK = 10


class Report(Struct):
    """What was run. `failures` are (scenario, seed, error)."""

    histories: int = 0
    operations: int = 0
    entries: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, int, str]] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Adds another's numbers."""
        self.histories += other.histories
        self.operations += other.operations
        self.entries += other.entries
        self.faults.update(other.faults)
        self.failures += other.failures


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 if a history failed."""
    options = _options(arguments)
    _be_quiet()
    scenarios = list(SCENARIOS) if options.scenario == "all" else [options.scenario]
    if options.seed is not None:
        for scenario in scenarios:
            told = simulate(options.seed, scenario)
            print(f"seed {options.seed} of {scenario}: {told.operations} operations, trace {told.trace}")
        return 0
    started_s = time.monotonic()
    report = Report()
    for part in _parts(options, scenarios, started_s):
        report.add(part)
        _tell_progress(report, time.monotonic() - started_s)
    _tell(report, time.monotonic() - started_s)
    return 1 if report.failures else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed only, in this process, with its traceback")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds of each scenario (default 200)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--scenario", choices=[*SCENARIOS, "all"], default="all")
    parser.add_argument("--seconds", "--duration", type=float, help="run on until this time has passed")
    parser.add_argument("--processes", type=int, default=2, help="worker processes (default 2)")
    return parser.parse_args(arguments)


def _be_quiet() -> None:
    # Faults are what is wanted here: the engine's warnings of them would drown the result.
    logging.getLogger("sparktxn").setLevel(logging.CRITICAL + 1)


def run_seeds(scenario: str, seeds: Sequence[int]) -> Report:
    """Runs the histories of some seeds in this process."""
    _be_quiet()
    report = Report()
    with _few_collections() as collect:
        for index, seed in enumerate(seeds, 1):
            _add_history(report, scenario, seed)
            if index % _SEEDS_PER_TASK == 0:
                collect()
    return report


def _add_history(report: Report, scenario: str, seed: int) -> None:
    report.histories += 1
    try:
        told = simulate(seed, scenario, traced=False)
    except Exception as error:
        summary = traceback.format_exception_only(error)[-1].strip()
        report.failures.append((scenario, seed, summary))
        return
    report.operations += told.operations
    report.entries += told.entries
    report.faults.update(told.faults)


@contextmanager
def _few_collections() -> Iterator[Callable[[], object]]:
    """Keep the garbage collector from looking at what was there before, and at each history by itself.

    A collection for each history takes a tenth of its time. Yields what collects the garbage of histories.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield gc.collect
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def _tasks(options: argparse.Namespace, scenarios: list[str], started_s: float) -> Iterator[tuple[str, list[int]]]:
    """(scenario, seeds), the scenarios in turn."""
    firsts = {scenario: count(options.start, _SEEDS_PER_TASK) for scenario in scenarios}
    for scenario in cycle(scenarios):
        first = next(firsts[scenario])
        if options.seconds is not None:
            if time.monotonic() - started_s > options.seconds:
                return
            yield scenario, list(range(first, first + _SEEDS_PER_TASK))
            continue
        last = options.start + options.seeds
        if first < last:
            yield scenario, list(range(first, min(first + _SEEDS_PER_TASK, last)))
        elif scenario == scenarios[-1]:
            return


def _parts(options: argparse.Namespace, scenarios: list[str], started_s: float) -> Iterator[Report]:
    tasks = _tasks(options, scenarios, started_s)
    if options.processes <= 1:
        for scenario, seeds in tasks:
            yield run_seeds(scenario, seeds)
        return
    # Spawned, for a forked child would share the parent's random state, caches and locks.
    with ProcessPoolExecutor(options.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: set[Future[Report]] = set()
        for scenario, seeds in tasks:
            running.add(pool.submit(run_seeds, scenario, seeds))
            if len(running) > 2 * options.processes:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        for future in running:
            yield future.result()


def _tell_progress(report: Report, seconds: float) -> None:
    if sys.stdout.isatty():
        rate = report.histories / max(seconds, 0.001)
        failed = len(report.failures)
        print(f"\r{report.histories} histories, {rate:.0f}/s, {failed} failed ", end="", flush=True)


def _tell(report: Report, seconds: float) -> None:
    if sys.stdout.isatty():
        print()
    print(
        f"{report.histories} histories in {seconds:.1f} s ({report.histories / max(seconds, 0.001):.0f}/s), "
        f"{report.operations} client operations ({report.operations / max(seconds, 0.001):.0f}/s), "
        f"{report.entries} log entries"
    )
    faults = ", ".join(f"{number} {kind}" for kind, number in sorted(report.faults.items()) if number)
    print(f"faults injected: {faults or 'none'}")
    for scenario, seed, error in sorted(report.failures):
        print(f"seed {seed} of {scenario} fails: {error}")
        print(f"    replay: python -m tests.simulation.simulate --scenario {scenario} --seed {seed}")
    print(f"{len(report.failures)} failed")


if __name__ == "__main__":
    sys.exit(main())
