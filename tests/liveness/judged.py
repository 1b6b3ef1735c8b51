"""A run with what it has shown: figures to print, and faults."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sparktxn.store import Store
from tests.crash.gateway_workload import committed_values
from tests.liveness.clients import PARTITIONS, TOPIC
from tests.liveness.judging import lost_to_the_group, outcomes, stood_still, wrong_in_the_store
from tests.liveness.run import Plan, Run

__all__ = ["faults_of"]

_DRAIN_S: Final = 60.0


def faults_of(plan: Plan, folder: Path) -> list[str]:
    """Run a plan on a new store, print its figures, and return what was wrong."""
    uri = str(folder / "store")
    with Store.open(uri, create=True) as store:
        store.create_topic(TOPIC, PARTITIONS)
    run = Run(plan, uri, folder)
    try:
        run.go()
        stored = committed_values(uri, {}, TOPIC, PARTITIONS)
        end_s = time.monotonic() + _DRAIN_S
        while lost_to_the_group(run.said, stored) and time.monotonic() < end_s:
            time.sleep(0.5)
    finally:
        run.close()
    faults = wrong_in_the_store(plan, run.said, stored) + lost_to_the_group(run.said, stored)
    still = stood_still(run.expected, run.said, run.settled_s, run.drained_s)
    _print(run, sum(map(len, stored)))
    told = outcomes(run.said)
    ended = {kind.name: len(told[kind.name].aborted) + len(told[kind.name].unknown) for kind in plan.producers}
    faults += [
        f"{name} has ended {count} batches, with {plan.blows} restarts"
        for name, count in ended.items()
        if plan.ends_max is not None and count > plan.ends_max * plan.blows
    ]
    faults += [
        f"{name} stood still for {seconds:.1f} s from {since_s:.1f} s on"
        for name, (seconds, since_s) in still.items()
        if seconds > plan.limit_s
    ]
    return faults


def _print(run: Run, stored_count: int) -> None:
    said, last_s = list(run.said), run.drained_s
    print(f"{stored_count} committed values in {last_s:.0f} s; {run.made} members")
    for name, told in sorted(outcomes(said).items()):
        print(f"{name}: {len(told.committed)} committed, {len(told.aborted)} aborted, {len(told.unknown)} unknown")
    kinds = Counter(
        f"{each.client.split('-')[0]} {each.words.split(' ')[2]}" for each in said if each.words.startswith("error ")
    )
    print("errors:", ", ".join(f"{name} {count}" for name, count in sorted(kinds.items())) or "none")
    for blow, until in zip(run.blows, [*(later.at_s for later in run.blows[1:]), last_s], strict=True):
        gaps = stood_still(run.expected, said, blow.at_s, until)
        after = stood_still(run.expected, said, blow.again_s, until)
        word = "SIGKILL" if blow.is_kill else "SIGTERM"
        print(f"{blow.at_s:7.1f} s: {word} of gateway {blow.gateway}; longest without a commit or a read:", end=" ")
        print(_longest(gaps, "partition", negate=True), _longest(gaps, "partition"), end="; after its start: ")
        print(_longest(after, "partition", negate=True), _longest(after, "partition"))
    for number in range(2):
        sizes = [(at_s, size) for at_s, each, size in run.memory if each == number]
        shown = sizes[:: max(1, len(sizes) // 24)]
        print(f"gateway {number}, MiB:", " ".join(f"{at_s:.0f}s:{size}" for at_s, size in shown))


def _longest(gaps: Mapping[str, tuple[float, float]], prefix: str, *, negate: bool = False) -> str:
    chosen = {name: gap for name, gap in gaps.items() if name.startswith(prefix) is not negate}
    name = max(chosen, key=lambda each: chosen[each][0])
    return f"{name} {chosen[name][0]:.1f} s"
