"""The known holes of an earlier draft, by number: the shortest trace of each, driven against the real code.

docs/verification.md says which rule closes which hole; test_without_rules.py takes the rules away.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparktxn.config.topic import check_topic_settings
from sparktxn.errors import ConfigurationError
from sparktxn.format import commands as command_module
from tests.simulation import rewritetraces
from tests.simulation.scripted import ScriptedWorld

pytestmark = pytest.mark.simulation

NOT_BUILT = {24: "a cut inside a key-compacted run: there is no key compaction"}


@pytest.fixture
def stage() -> Iterator[ScriptedWorld]:
    made = ScriptedWorld()
    yield made
    made.close()


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


@pytest.mark.parametrize("hole", [pytest.param(number, marks=pytest.mark.holes(number)) for number in NOT_BUILT])
def test_what_is_not_built_has_no_command(hole: int) -> None:
    """A rewrite keeps each record but aborted ones: the day that records are compacted by key, its scenario must be."""
    assert not any("ompact" in name for name in command_module.__all__), NOT_BUILT[hole]
    with pytest.raises(ConfigurationError, match="compaction by key"):
        check_topic_settings({"cleanup.policy": "compact"})


def test_every_hole_is_here() -> None:
    assert sorted({*rewritetraces.TRACES, *NOT_BUILT}) == list(range(1, 38))
