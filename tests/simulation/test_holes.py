"""The known holes of an earlier draft, by number: the shortest trace of each, driven against the real code.

docs/verification.md says which rule closes which hole; test_without_rules.py takes the rules away.
"""

from __future__ import annotations

import pytest

from tests.simulation import rewritetraces
from tests.simulation.scripted import ScriptedWorld

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize(
    "hole",
    [pytest.param(number, marks=pytest.mark.holes(number)) for number in sorted(rewritetraces.TRACES)],
)
def test_the_trace_of_hole(stage: ScriptedWorld, hole: int) -> None:
    for trace in rewritetraces.TRACES[hole]:
        fresh = ScriptedWorld()
        try:
            trace(fresh)
        finally:
            fresh.close()


def test_every_hole_is_here() -> None:
    assert sorted(rewritetraces.TRACES) == list(range(1, 38))
