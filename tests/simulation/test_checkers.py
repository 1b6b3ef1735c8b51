"""Each checker accepts a sound history and rejects one that breaks its guarantee."""

from __future__ import annotations

from copy import deepcopy

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import Append
from tests.simulation import checkers
from tests.simulation.checkers import ABORTED, COMMITTED, Truth, replay
from tests.simulation.history import History, Outcome
from tests.simulation.scenarios import record
from tests.simulation.sharedobjects import SharedObjects
from tests.simulation.simulator import FaultRates

pytestmark = pytest.mark.simulation


@pytest.fixture(scope="module")
def recorded() -> tuple[SharedObjects, History, list[Truth]]:
    simulator, history = record(4, rates=FaultRates({}))
    return simulator.shared, history, replay(simulator.shared)


@pytest.fixture
def history(recorded) -> History:
    return deepcopy(recorded[1])


@pytest.fixture
def truths(recorded) -> list[Truth]:
    return deepcopy(recorded[2])


def committed_attempt(history: History, parts: int = 1):
    return next(a for a in history.attempts if a.outcome is Outcome.COMMITTED and len(a.segments) >= parts)


def test_the_history_is_sound(recorded) -> None:
    checkers.check_history(recorded[0], recorded[1])
    assert {attempt.outcome for attempt in recorded[1].attempts} >= {Outcome.COMMITTED, Outcome.ABORTED}
    assert len(recorded[1].views) > 3


def test_a_lost_write_is_rejected(history: History, truths: list[Truth]) -> None:
    for _, _, segment in committed_attempt(history).segments:
        del truths[-1].fates[segment]
    with pytest.raises(AssertionError, match="is not in the log"):
        checkers.check_lost_writes(history, truths)


def test_a_batch_that_took_effect_twice_is_rejected(history: History, truths: list[Truth]) -> None:
    history.attempts.append(committed_attempt(history))
    with pytest.raises(AssertionError, match="more than once"):
        checkers.check_exactly_once(history, truths)


def test_a_segment_at_two_places_is_rejected(history: History, truths: list[Truth]) -> None:
    key, seen = next((key, seen) for key, seen in truths[-1].partitions.items() if seen.segments)
    truths[-1].partitions[key] = replace(seen, segments=(*seen.segments, seen.segments[0]))
    with pytest.raises(AssertionError, match="more than once"):
        checkers.check_exactly_once(history, truths)


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.WITHDRAWN])
def test_a_refusal_that_was_written_is_rejected(history: History, truths: list[Truth], outcome: Outcome) -> None:
    attempt = next(a for a in history.attempts if a.outcome is Outcome.COMMITTED and a.fused)
    attempt.outcome = outcome
    with pytest.raises(AssertionError, match="said not to be written"):
        checkers.check_honesty(history, truths)


def test_an_aborted_read_is_rejected(history: History, truths: list[Truth]) -> None:
    committed_attempt(history).outcome = Outcome.ABORTED
    with pytest.raises(AssertionError, match="was aborted"):
        checkers.check_aborted_reads(history, truths)


@pytest.mark.parametrize("fate", [None, ABORTED])
def test_a_torn_transaction_is_rejected(history: History, truths: list[Truth], fate: str | None) -> None:
    segment = committed_attempt(history, parts=2).segments[0][2]
    truth = next(truth for truth in truths if truth.fates.get(segment) == COMMITTED)
    if fate is None:
        del truth.fates[segment]
    else:
        truth.fates[segment] = fate
    with pytest.raises(AssertionError, match="is torn"):
        checkers.check_atomicity(history, truths)


@pytest.mark.parametrize(
    ("field", "message"),
    [("segments", "moved"), ("log_end_offset", "end fell"), ("last_stable_offset", "stable offset fell")],
)
def test_offsets_that_change_are_rejected(truths: list[Truth], field: str, message: str) -> None:
    key, seen = next((key, seen) for key, seen in truths[-1].partitions.items() if len(seen.segments) > 1)
    changed = seen.segments[::-1] if field == "segments" else 0
    truths[-1].partitions[key] = replace(seen, **{field: changed})
    with pytest.raises(AssertionError, match=message):
        checkers.check_order(truths)


def test_a_decision_that_changes_is_rejected(truths: list[Truth]) -> None:
    segment = next(segment for segment, fate in truths[-2].fates.items() if fate == COMMITTED)
    truths[-1].fates[segment] = ABORTED
    with pytest.raises(AssertionError, match="no longer committed"):
        checkers.check_order(truths)


@pytest.mark.parametrize("shift", [1, -1])
def test_a_sequence_gap_and_a_repetition_are_rejected(truths: list[Truth], shift: int) -> None:
    truth, append = next(
        (truth, command)
        for truth in truths
        for command in truth.commands
        if isinstance(command, Append) and command.base_sequence > 0
    )
    changed = replace(append, base_sequence=append.base_sequence + shift)
    truth.commands = tuple(changed if command is append else command for command in truth.commands)
    with pytest.raises(AssertionError, match=f"not {append.base_sequence}"):
        checkers.check_sequences(truths)


def test_offsets_without_their_output_are_rejected(history: History, truths: list[Truth]) -> None:
    key = next(key for key in truths[-1].offsets if key[0].startswith("job"))
    truths[-1].offsets[key] = replace(truths[-1].offsets[key], offset=99)
    with pytest.raises(AssertionError, match="offsets at entry"):
        checkers.check_group_offsets(history, truths)


def test_a_view_that_never_was_is_rejected(history: History, truths: list[Truth]) -> None:
    who, entry, seen = next(view for view in history.views if view[2] != truths[view[1] - 1].partitions)
    history.views[-1] = (who, entry - 1, seen)
    with pytest.raises(AssertionError, match="saw something else"):
        checkers.check_views(history, truths)
    history.views[-1] = (who, len(truths), seen)
    with pytest.raises(AssertionError, match="never was"):
        checkers.check_views(history, truths)


def test_a_checkpoint_of_another_state_is_rejected(recorded, truths: list[Truth]) -> None:
    for truth in truths:
        truth.digest = "another"
    with pytest.raises(AssertionError, match="holds another state"):
        checkers.check_checkpoints(recorded[0], truths)


def test_a_process_that_ends_in_another_state_is_rejected(history: History, truths: list[Truth]) -> None:
    who, entry, _ = history.ends[0]
    history.ends[0] = (who, entry, "another")
    with pytest.raises(AssertionError, match=f"{who} holds another state"):
        checkers.check_same_end(history, truths)
