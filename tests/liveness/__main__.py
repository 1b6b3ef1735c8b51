"""``python -m tests.liveness --blows 9 --every 120``: clients of two gateways that are killed, and how long they stood.

It prints figures, and what was wrong. `--only-aiokafka` needs neither Java nor confluent-kafka.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.liveness.judged import faults_of
from tests.liveness.plans import all_clients, only_aiokafka


def main() -> int:
    """Return 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.liveness", description=__doc__)
    parser.add_argument("--blows", type=int, default=9, help="kills and ends of a gateway")
    parser.add_argument("--every", type=float, default=120.0, help="seconds from one to the next")
    parser.add_argument("--limit", type=float, default=15.0, help="seconds that a client may stand still")
    parser.add_argument("--member", type=float, default=40.0, help="seconds that a member lives, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only-aiokafka", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the store and what was said stay")
    given = parser.parse_args()
    make = only_aiokafka if given.only_aiokafka else all_clients
    plan = make(given.blows, given.every, given.limit, member_s=given.member, seed=given.seed)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="sparktxn-liveness-"))
    folder.mkdir(parents=True, exist_ok=True)
    faults = faults_of(plan, folder)
    print(*(faults or ["nothing was wrong"])[:50], sep="\n")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
