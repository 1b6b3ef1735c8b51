"""The known holes of an earlier draft, by number: the shortest trace of each, driven against the real code.

test_without_rules.py takes the rules away that close them.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation import rewritetraces
from tests.simulation.scripted import ScriptedWorld

pytestmark = pytest.mark.simulation

RULES: Final = {
    (1, 2, 4, 5, 6, 8): (
        "*confirm*: no caller gets an answer before the horizon, read afterwards, is not above what was read or won"
    ),
    (3,): (
        "a list below the horizon is looked up in the state, and is unknown if the state no longer remembers "
        "(`OutcomeLost`)"
    ),
    (7,): "the horizon is the *greatest name*, and markers are never overwritten",
    (9, 10): "*segment floor*: a segment's name says when it was born, and an entry says which are too old",
    (11,): "*unique names* of sealed runs and checkpoints",
    (12, 13): "*verified checkpoint*: the vacuum relies on what it has read and compared with a replay",
    (14,): "validation needs nothing that is sealed; a rewrite is judged by the ranges that entries have rewritten",
    (15, 16, 17, 34): (
        "*intent base* and window: settled once, refusals recorded, cancels under the same window, listed "
        "with every put"
    ),
    (18, 19): "*never move on*: the same bytes under the same number until its owner is known",
    (18, 31): "*token read-back*: only the body says which writer has won; one that cannot be read stops the writer",
    (20,): "*transaction number* and *epoch*: a late command ends its own transaction, and none after a fence",
    (21, 22, 23): (
        "reads in commit order are clamped to the start, take a first transaction whole, and wait for none that is open"
    ),
    (24,): "what a compaction covers counts as one transaction: no micro-batch in commit order ends inside it",
    (25, 26): "a view carries its time; time-outs are measured by one clock, never between entries",
    (27, 28, 29): "superseded runs, fingerprints and past queries are remembered",
    (30, 36): "a remembered batch carries its transaction; an append and a rewrite carry the topic's id",
    (32,): "a missing segment below the horizon is an expired view, else damage",
    (33,): "a win that was read back, and a marker, are durable before anything follows from them",
    (35,): "any winner that finds a checkpoint overdue makes it",
    (37,): "a rewrite is refused if its range was rewritten or is gone, not if the log start has moved into it",
}


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


def test_every_hole_has_a_rule_that_closes_it() -> None:
    assert {hole for holes in RULES for hole in holes} == {*rewritetraces.TRACES}
