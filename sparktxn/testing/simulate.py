"""``python -m sparktxn.testing.simulate``: runs seeds, and prints those that fail."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from itertools import count

from sparktxn.testing.scenarios import SCENARIOS, simulate

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m sparktxn.testing.simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run (default 100)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="one seed only, with its traceback")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), default="commit")
    parser.add_argument("--duration", type=float, metavar="SECONDS", help="run on until this time has passed")
    options = parser.parse_args(arguments)
    # Faults are what is wanted here: the engine's warnings of them would drown the result.
    logging.getLogger("sparktxn").setLevel(logging.CRITICAL + 1)
    if options.seed is not None:
        print(f"seed {options.seed} of {options.scenario}: trace {simulate(options.seed, options.scenario)}")
        return 0
    started_s = time.monotonic()
    failed = []
    histories = 0
    for seed in _seeds(options.start, options.seeds, options.duration, started_s):
        histories += 1
        try:
            simulate(seed, options.scenario)
        except Exception as error:  # noqa: BLE001 - whatever a history raises is its failure
            failed.append(seed)
            summary = traceback.format_exception_only(error)[-1].strip()
            print(f"seed {seed} of {options.scenario} fails: {summary}", flush=True)
    seconds = time.monotonic() - started_s
    print(f"{histories} histories of {options.scenario} in {seconds:.1f} s, {len(failed)} failed")
    if failed:
        print(f"replay one: python -m sparktxn.testing.simulate --scenario {options.scenario} --seed {failed[0]}")
    return 1 if failed else 0


def _seeds(start: int, seeds: int, duration_s: float | None, started_s: float) -> Iterator[int]:
    for seed in count(start) if duration_s is not None else range(start, start + seeds):
        if duration_s is not None and time.monotonic() - started_s > duration_s:
            return
        yield seed


if __name__ == "__main__":
    sys.exit(main())
