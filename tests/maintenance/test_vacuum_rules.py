"""Each rule of the vacuum carries its weight: a build without it fails the scenario that the rule is for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence

import pytest

from sparktxn._engine.format.checkpoint import CheckpointHead
from sparktxn._engine.log.follow import confirm
from sparktxn._engine.log.follow.stateparts import StateParts
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.log.keep import checkpointer
from sparktxn._engine.log.keep.replay import Replay
from sparktxn._engine.objectstore import memory
from sparktxn._engine.state.transactions import partitions
from sparktxn._foundation.values.structs import StateRecord
from sparktxn.errors import DamagedObject, StoreError
from sparktxn.maintenance import reachable
from sparktxn.maintenance.vacuuming.vacuum import _Round
from tests.maintenance import test_overtaken as overtaken
from tests.maintenance import test_vacuum as scenarios
from tests.maintenance.vacuumworld import World

# The package exports a function of the same name.
vacuum_module = sys.modules["sparktxn.maintenance.vacuuming.vacuum"]


def without_verifying(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replay, "problem", lambda replay, head: None)


def without_the_floor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partitions, "check_born", lambda delta, segment, context: None)


def without_the_base(patch: pytest.MonkeyPatch) -> None:
    """A process that opens the store, or reads at an older entry, takes any head that is whole."""
    is_kept = confirm._is_kept
    any_head = lambda objects, premise, horizon: premise.checkpoint or is_kept(objects, premise, horizon)  # noqa: E731
    patch.setattr(confirm, "_is_kept", any_head)


def without_looking_after_publishing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checkpointer, "judge", lambda objects, premise: None)


def without_opening_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tail, "premise", property(lambda tail: tail.slots))


def marking_before_the_floor_is_won(patch: pytest.MonkeyPatch) -> None:
    marked = []
    win, mark = _Round._win, vacuum_module.mark

    def mark_then_win(round_: _Round, at: int, floor: int) -> None:
        replay = Replay(round_._objects, None)
        replay.advance()
        heads = vacuum_module.heads_in(round_._objects.list("_log/_checkpoints/"))
        marked.append(mark(round_._objects, vacuum_module.read_heads(round_._objects, heads), at, replay))
        win(round_, at, floor)

    patch.setattr(_Round, "_win", mark_then_win)
    patch.setattr(vacuum_module, "mark", lambda objects, heads, at, replay: marked[-1])


def going_on_after_an_unknown_outcome(patch: pytest.MonkeyPatch) -> None:
    """The marks then come from a state that does not hold the entry, which is noticed before anything is deleted."""
    win = _Round._win

    def win_or_not(round_: _Round, at: int, floor: int) -> None:
        with contextlib.suppress(StoreError):
            win(round_, at, floor)

    patch.setattr(_Round, "_win", win_or_not)
    # Its time is up by then, so that no request would begin.
    patch.setattr(memory, "check_time", lambda verb, what: None)


def without_the_base_of_what_was_adopted(patch: pytest.MonkeyPatch) -> None:
    """A process that has opened no checkpoint says that it stands on none, whatever it has adopted since."""
    base = vars(StateParts)["base"].fget

    def opened(parts: StateParts) -> int | None:
        adopted = parts in adopters
        return None if adopted else base(parts)

    adopters: list[StateParts] = []
    rebase = StateParts.rebase

    def adopt(parts: StateParts, head: CheckpointHead, records: Mapping[str, Sequence[StateRecord]]) -> None:
        if parts.head is None:
            adopters.append(parts)
        rebase(parts, head, records)

    patch.setattr(StateParts, "base", property(opened))
    patch.setattr(StateParts, "rebase", adopt)


def without_reading_the_horizon_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Round, "_check_not_overtaken", lambda round_: None)
    patch.setattr(vacuum_module, "attempt", lambda objects, premise, work: work())


def skipping_heads_that_cannot_be_read(patch: pytest.MonkeyPatch) -> None:
    """What another vacuum has deleted while this one marked is taken for what no process can read."""
    without_reading_the_horizon_again(patch)
    mark_head = reachable._Marking.mark

    def mark_or_skip(self: reachable._Marking, head: CheckpointHead, found: reachable.Marks) -> None:
        with contextlib.suppress(DamagedObject):
            mark_head(self, head, found)
        found.needed.clear()

    patch.setattr(reachable._Marking, "mark", mark_or_skip)


@pytest.mark.parametrize(
    ("leave_out", "scenario"),
    [
        pytest.param(
            without_verifying,
            lambda world, patch: scenarios.test_hole_12_a_checkpoint_that_is_not_whole_is_no_horizon(
                world, "part", patch
            ),
            marks=pytest.mark.holes(12),
        ),
        pytest.param(
            without_the_floor,
            lambda world, _: scenarios.test_hole_9_a_writer_slower_than_the_floor_is_told_and_can_upload_again(world),
            marks=pytest.mark.holes(9),
        ),
        pytest.param(
            marking_before_the_floor_is_won,
            lambda world, _: scenarios.test_hole_10_what_is_kept_is_marked_after_the_floor_was_won(world),
            marks=pytest.mark.holes(10),
        ),
        pytest.param(
            going_on_after_an_unknown_outcome,
            lambda world, _: scenarios.test_hole_10_an_unknown_outcome_deletes_nothing(world),
            marks=pytest.mark.holes(10),
        ),
        pytest.param(
            without_the_base,
            lambda world, _: scenarios.test_hole_13_a_checkpoint_published_behind_a_vacuum_is_used_by_nobody(world),
            marks=pytest.mark.holes(13),
        ),
        pytest.param(
            without_looking_after_publishing,
            lambda world, _: scenarios.test_hole_13_a_checkpoint_published_behind_a_vacuum_is_used_by_nobody(world),
            marks=pytest.mark.holes(13),
        ),
        pytest.param(
            without_opening_again,
            lambda world, _: scenarios.test_hole_13_a_checkpoint_published_behind_a_vacuum_is_used_by_nobody(world),
            marks=pytest.mark.holes(13),
        ),
        pytest.param(
            without_the_base_of_what_was_adopted,
            lambda world, _: overtaken.test_a_process_older_than_all_checkpoints_publishes_nothing_that_is_gone(world),
        ),
        pytest.param(
            without_reading_the_horizon_again,
            lambda world, _: overtaken.test_a_vacuum_that_pauses_anywhere_while_another_goes_further(
                overtaken.sealed_by_two_processes()
            ),
        ),
        pytest.param(
            skipping_heads_that_cannot_be_read,
            lambda world, _: overtaken.test_a_vacuum_that_pauses_anywhere_while_another_goes_further(
                overtaken.sealed_by_two_processes()
            ),
        ),
    ],
)
def test_without_the_rule_its_scenario_fails(
    leave_out: Callable[[pytest.MonkeyPatch], None],
    scenario: Callable[[World, pytest.LogCaptureFixture], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the rule the scenario holds, as a test of its own module."""
    leave_out(monkeypatch)
    with pytest.raises((AssertionError, StoreError, pytest.fail.Exception)):
        scenario(World(), caplog)
