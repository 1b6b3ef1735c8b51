"""Runs the tests of a night: `make nightly`, or `make nightly ARGS='--only edge'` for one of its groups.

A night has one seed, which it prints first and all groups draw from. What it finds is kept in `nightly-output/<seed>`.
A night that was stopped continues with `--resume`: groups that have ended green are not run again.
"""

from __future__ import annotations

import argparse
import random
import shlex
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.nightly.groups import GROUPS, ROOT, Group, missing
from tests.nightly.runner import GREEN, AlreadyRunning, locked, result_of, run_group
from tests.nightly.summary import summary
from tests.seeds import night_seed

OUTPUT: Final = ROOT / "nightly-output"
INTERRUPTED: Final = 130
say = partial(print, flush=True)


def main(arguments: Sequence[str], groups: Sequence[Group] = GROUPS, output: Path = OUTPUT) -> int:
    """Return 0 if all groups that were asked for are green."""
    given = _options(arguments, groups)
    if given.list:
        for group in groups:
            say(f"{group.name:<10}{group.limit_s:>7.0f} s at most  python {shlex.join(group.arguments)}")
        return 0
    chosen = [group for group in groups if not given.only or group.name in given.only]
    if lacks := missing(chosen):
        say("\n".join(["this machine lacks:", *lacks]))
        return 1
    seed = _seed(given, output)
    if seed is None:
        say(f"no night to resume in {output}")
        return 1
    night = output / str(seed)
    say(f"seed {seed}")
    try:
        with locked(night) as lock:
            for group in chosen:
                _run_unless_green(group, seed, night, lock, anew=bool(given.only))
    except AlreadyRunning as error:
        say(error)
        return 1
    except KeyboardInterrupt:
        _report(groups, seed, night)
        say(f"interrupted; to go on: make nightly ARGS='--seed {seed}'")
        return INTERRUPTED
    _report(groups, seed, night)
    results = [result_of(group, night) for group in chosen]
    return 0 if all(result is not None and result.verdict == GREEN for result in results) else 1


def take_signals() -> None:
    """Make an interrupt of both signals, also where they are ignored: in a job of a shell's background, say."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def _options(arguments: Sequence[str], groups: Sequence[Group]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the night to replay or to go on with; a new one if not given")
    parser.add_argument("--resume", action="store_true", help="go on with the night that was begun last")
    parser.add_argument("--only", action="append", choices=[group.name for group in groups], help="run anew, alone")
    parser.add_argument("--list", action="store_true", help="print the groups")
    return parser.parse_args(arguments)


def _seed(given: argparse.Namespace, output: Path) -> int | None:
    if given.resume:
        nights = [path for path in output.glob("*") if path.name.isdigit()]
        return int(max(nights, key=lambda path: path.stat().st_mtime).name) if nights else None
    fixed = given.seed if given.seed is not None else night_seed()
    return fixed if fixed is not None else random.SystemRandom().randrange(1, 1_000_000_000)


def _run_unless_green(group: Group, seed: int, night: Path, lock: int, anew: bool) -> None:
    before = result_of(group, night)
    if before is not None and before.verdict == GREEN and not anew:
        say(f"{group.name}: green before")
        return
    say(f"{group.name}: at most {group.limit_s:.0f} s ... ", end="")
    result = run_group(group, seed, night, lock)
    say(f"{result.verdict} after {result.seconds:.0f} s")


def _report(groups: Sequence[Group], seed: int, night: Path) -> None:
    text = summary(groups, seed, night)
    (night / "summary.txt").write_text(f"{text}\n")
    say(f"\n{text}")


if __name__ == "__main__":
    take_signals()
    sys.exit(main(sys.argv[1:]))
