"""Processes and vacuums that are overtaken: the scenario meets what it is for, and finds builds without the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import CheckpointHead, decode_head
from sparktxn._engine.log.keep.checkpointer import Checkpointer
from sparktxn.maintenance.vacuuming.vacuum import _Round
from tests.maintenance import test_vacuum_rules as rules
from tests.seeds import examples
from tests.simulation.overtakenprograms import small_objects
from tests.simulation.scenarios import record_overtaken
from tests.simulation.simulate import run_seeds

pytestmark = pytest.mark.simulation

Patch = pytest.MonkeyPatch


def test_processes_adopt_and_vacuums_are_overtaken(monkeypatch: Patch) -> None:
    met: Counter[str] = Counter()
    adopt, check = Checkpointer._adopt, _Round._check_not_overtaken

    def adopting(self: Checkpointer, head: CheckpointHead | None) -> bool:
        stood_on = self._follower.tail.parts.head
        adopted = adopt(self, head)
        met["adopted by a process older than all checkpoints"] += adopted and stood_on is None
        met["adopted"] += adopted
        return adopted

    def checking(self: _Round) -> None:
        try:
            check(self)
        except BaseException:
            met["overtaken"] += 1
            raise

    monkeypatch.setattr(Checkpointer, "_adopt", adopting)
    monkeypatch.setattr(_Round, "_check_not_overtaken", checking)
    for seed in range(90_100, 90_110):
        with small_objects():
            simulator, _ = record_overtaken(seed)
        for name, data in simulator.shared.history.items():
            head = names.parse_checkpoint_head(name)
            if head is not None:
                met["stands on an older one"] += decode_head(data, name, head[0]).base < head[0]
            met["run deleted"] += "/_sealed/" in name and name not in simulator.shared.objects
        if all(met[what] for what in EXPECTED):
            return
    raise AssertionError(f"not all of {EXPECTED}: {met}")


EXPECTED = (
    "adopted by a process older than all checkpoints",
    "adopted",
    "overtaken",
    "stands on an older one",
    "run deleted",
)


@pytest.mark.parametrize(
    ("without", "pinned"),
    [
        (rules.without_the_base_of_what_was_adopted, (2, 5, 13)),
        (rules.skipping_heads_that_cannot_be_read, (7, 15, 16)),
        (rules.without_reading_the_horizon_again, (7, 15, 16)),
        (rules.without_the_floor, (22, 31, 34)),
    ],
)
def test_a_build_without_the_rule_fails_several_of_the_first_histories(
    monkeypatch: Patch, without: Callable[[Patch], None], pinned: tuple[int, ...]
) -> None:
    without(monkeypatch)
    # The pinned seeds find it; others do if histories have changed.
    failures = islice(_failures(dict.fromkeys((*pinned, *range(100)))), SEVERAL)
    assert len(list(failures)) == SEVERAL


SEVERAL = examples(1, 3)


def _failures(seeds: Iterable[int]) -> Iterator[str]:
    for seed in seeds:
        yield from (f"seed {seed}: {error}" for _, _, error in run_seeds("overtaken", [seed]).failures)
