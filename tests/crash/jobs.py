"""``python -m tests.crash.jobs --seconds 3600``: writers, readers and all jobs, as processes that are killed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparktxn import Consumer, Store, TopicPartition
from sparktxn.maintenance import compact, copy_store, rewrite, sweep, vacuum, verify
from tests.crash.chaos import ChaosRun, Plan, Report
from tests.crash.chaos_workload import INPUTS, OUTPUT, PROGRESS, progress_of
from tests.crash.jobs_checker import JobsEvidence, check_jobs
from tests.crash.jobs_workload import JOBS, PRICE_PARTITIONS, PRICE_SETTINGS, PRICES, rows_between
from tests.crash.journal_checker import check_journals, notes_of

__all__ = ["Outcome", "under_kills"]

OPTIONS: Final = {"checkpoint.entries": 16, "checkpoint.seal.segments": 4}
PRICERS: Final = 2
EVERYTHING: Final = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}


class Outcome(NamedTuple):
    """What was done, and what is broken."""

    report: Report
    problems: list[str]


def under_kills(folder: Path, seed: int, kills: int, gap_s: float) -> Outcome:
    """Run all workers under so many kills, one in each `gap_s`, and compare what the store holds with what they noted.

    In the end all jobs run once more, in peace: the records must stay as they are, also in a copy.
    """
    uri = str(folder / "store")
    others = {"pricer": PRICERS, **dict.fromkeys(JOBS, 1)}
    topics = {PRICES: (PRICE_PARTITIONS, PRICE_SETTINGS)}
    plan = Plan(kills, 0, 2, 2 * gap_s, others=others, topics=topics, kills_of_writers=3)
    chaos = ChaosRun(folder / "journals", uri, OPTIONS, seed, plan)
    report = chaos.run(OPTIONS)
    problems = check_journals(chaos.evidence())
    notes = notes_of(folder / "journals")
    batches = {f"pricer-{number}": _committed(uri, f"pricer-{number}") for number in range(PRICERS)}
    with Store.open(uri, options=OPTIONS) as store:
        problems += check_jobs(JobsEvidence(notes, _prices(store), batches, seed))
        before = _records(store)
        sweep(store)
        rewrite(store, {"rewrite.min.segments": 2})
        compact(store)
        vacuum(store, EVERYTHING)
        problems += check_jobs(JobsEvidence(notes, _prices(store), batches, seed))
        copy = copy_store(store, str(folder / "copy"))
        with Store.open(copy.target, options=OPTIONS) as copied:
            for name, one in (("store", store), ("copy", copied)):
                found = verify(one)
                problems += [f"damage: in the {name} in the end: {problem}" for problem in found.problems]
                if _records(one) != before:
                    problems.append(f"lost write: the {name} holds other records after all jobs than before")
    return Outcome(report, list(dict.fromkeys(problems)))


def _records(store: Store) -> list[Any]:
    """All records of the topics that are not compacted."""
    return [row for row in _rows(store) if row[0] != PRICES]


def _rows(store: Store) -> list[Any]:
    view = store.view([*INPUTS, OUTPUT, PRICES])
    ranges = [(*key, *range_) for key, range_ in store.ranges(view).items()]
    return rows_between(store, OPTIONS, view.entry, ranges)


def _prices(store: Store) -> dict[int, list[tuple[str, str | None]]]:
    found: dict[int, list[tuple[str, str | None]]] = {}
    for topic, partition, _, key, value in _rows(store):
        if topic == PRICES:
            found.setdefault(partition, []).append((key.decode(), None if value is None else value.decode()))
    return found


def _committed(uri: str, name: str) -> int:
    with Consumer({"bootstrap.servers": uri, **OPTIONS, "group.id": progress_of(name)}) as consumer:
        return max(0, int(consumer.committed([TopicPartition(PROGRESS, 0)], 10)[0].offset))


def main() -> int:
    """Return 0 if nothing is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.jobs", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for about how long processes are killed")
    parser.add_argument("--gap", type=float, default=0.6, help="how many seconds there are from one kill to the next")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the store and the journals stay")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jobs-") as temporary:
        outcome = under_kills(given.folder or Path(temporary), given.seed, round(given.seconds / given.gap), given.gap)
    print(outcome.report)
    for problem in outcome.problems[:20]:
        print(" ", problem)
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
