"""Wrong clocks: builds that believe them break a guarantee within the first histories."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparktxn._engine.log.log import Log
from sparktxn._engine.log.write.storeclock import ClockCheck
from sparktxn.maintenance.sweeping.sweep import Ages, IdleFrom
from tests.simulation.simulate import run_seeds

pytestmark = pytest.mark.simulation

Patch = pytest.MonkeyPatch


def writing_by_any_clock(patch: Patch) -> None:
    patch.setattr(ClockCheck, "check", lambda check: None)


def expiring_by_ones_own_clock(patch: Patch) -> None:
    """The age of an entry is a difference of two machines' clocks."""
    begin = Ages.__init__
    wall_ms: dict[int, int] = {}

    def begin_by_wall_clock(ages: Ages, log: Log, now_ms: int) -> None:
        begin(ages, log, now_ms)
        wall_ms[id(ages)] = log.clock.wall_ms()

    def idle_for(ages: Ages, duration_ms: int) -> IdleFrom:
        latest_ms = wall_ms[id(ages)] - duration_ms
        return IdleFrom(0, latest_ms, 1, latest_ms)

    patch.setattr(Ages, "__init__", begin_by_wall_clock)
    patch.setattr(Ages, "idle_for", idle_for)


@pytest.mark.parametrize(
    ("believe", "pinned", "broken"),
    [
        (writing_by_any_clock, (0, 1, 2), "the log's time is"),
        (expiring_by_ones_own_clock, (12, 16, 18), "expired after"),
    ],
)
def test_a_build_that_believes_a_wrong_clock_fails_histories(
    monkeypatch: Patch, believe: Callable[[Patch], None], pinned: tuple[int, ...], broken: str
) -> None:
    believe(monkeypatch)
    failures: list[str] = []
    for seed in dict.fromkeys((*pinned, *range(30))):
        failures += [error for _, _, error in run_seeds("clocks", [seed]).failures]
        if len(failures) > 2:
            break
    assert len(failures) > 2
    assert all(broken in error for error in failures)
