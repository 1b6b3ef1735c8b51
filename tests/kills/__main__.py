"""``python -m tests.kills --seed 1 --batches 200 --store local``: a query under kills, and what came of it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.kills.blows import Blow
from tests.kills.broken import BUILDS
from tests.kills.plan import CLOUDS, MASTERS, STORES, choose_blows, choose_query
from tests.kills.queries import SINKS, SOURCES
from tests.kills.stores import under_kills


def main() -> int:
    """Return 0 if the store holds what it must."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="chooses the query and the blows")
    parser.add_argument("--batches", type=int, default=200, help="micro-batches, 10 rows each")
    parser.add_argument("--store", choices=(*STORES, *CLOUDS), default="local")
    parser.add_argument("--folder", type=Path, help="where the store, the checkpoint and the drivers' output stay")
    parser.add_argument("--broken", choices=sorted(BUILDS), default="", help="a build that must fail")
    parser.add_argument("--blow", action="append", help="point:action:after, instead of the seed's blows")
    parser.add_argument("--source", choices=SOURCES)
    parser.add_argument("--sink", choices=SINKS)
    parser.add_argument("--master", choices=MASTERS)
    given = parser.parse_args()
    chosen = {name: getattr(given, name) for name in ("source", "sink", "master") if getattr(given, name)}
    with tempfile.TemporaryDirectory(prefix="kills-") as temporary:
        folder = given.folder or Path(temporary)
        with under_kills(given.store, folder) as scene:
            query = choose_query(given.seed, given.batches, given.store, scene.uri, scene.options, folder / "run")
            query = query._replace(**chosen)
            blows = [_blow(text) for text in given.blow] if given.blow else choose_blows(query, given.seed)
            report = scene.run(query, blows, given.seed, given.broken)
    print(report)
    for problem in report.findings.problems:
        print(" ", problem)
    return 1 if report.findings.problems else 0


def _blow(text: str) -> Blow:
    point, action, after = text.split(":")
    return Blow(point, action, int(after))


if __name__ == "__main__":
    sys.exit(main())
