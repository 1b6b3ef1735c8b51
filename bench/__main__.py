"""`python -m bench [NAME …]`: runs the named benchmarks, or all; exits with 1 if a target is missed."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path

from bench.figures import Figure, print_figure, save

_NAMES = (
    "commits",
    "opening",
    "following",
    "writers",
    "reading",
    "memory",
    "groups",
    "halfmessages",
    "verifying",
    "rewriting",
    "compacting",
    "keyed",
    "vacuuming",
    "growth",
    "jobs",
    "console",
    "watching",
    "exporting",
    "folding",
    "gateway",
    "tables",
    "spark",
    "microbatches",
    "ageing",
    "digests",
    "spark_merged",
)


def main(names: list[str]) -> int:
    """Runs the benchmarks and prints their figures."""
    unknown = sorted(set(names) - set(_NAMES))
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}: expected one of {', '.join(_NAMES)}", file=sys.stderr)
        return 2
    found: list[Figure] = []
    reached = True
    for name in names or _NAMES:
        started = time.perf_counter()
        print(name)
        # Long ones give their figures one by one: what was measured is not lost where they are ended.
        for figure in import_module(f"bench.{name}").measure():
            print_figure(figure)
            reached &= figure.reached is not False
            found.append(figure)
        print(f"{name} took {time.perf_counter() - started:.0f} s", flush=True)
    print(f"figures saved in {save(found, Path(__file__).parent / 'results')}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
