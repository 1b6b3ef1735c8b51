"""The states of what a consumer reads: each move from each state, against literal matrices."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparktxn.consumer.polling import TRANSITIONS, Gathering, ReadingStates, Share, ViewEvent, ViewState

# Rows: from; columns: the event. A dot is a defect.
EVENTS = ["CHANGED", "PASSED", "ROWS", "BEGUN", "PINNED"]
MATRIX = """
STALE    STALE    EXPIRED  STALE  STALE    UNREAD
EXPIRED  EXPIRED  .        STALE  EXPIRED  RENEWED
RENEWED  EXPIRED  .        READ   RENEWED  RENEWED
UNREAD   STALE    EXPIRED  READ   UNREAD   UNREAD
READ     STALE    EXPIRED  READ   UNREAD   READ
"""
ROWS = {row.split()[0]: row.split()[1:] for row in MATRIX.split("\n") if row}
ALLOWED = {
    (ViewState[state], ViewEvent[event]): None if to == "." else ViewState[to]
    for state, row in ROWS.items()
    for event, to in zip(EVENTS, row, strict=True)
}


def test_the_matrix_is_whole() -> None:
    assert set(ALLOWED) == {(state, event) for state in ViewState for event in ViewEvent}
    assert {pair: to for pair, to in ALLOWED.items() if to is not None} == TRANSITIONS


def test_nothing_is_read_of_a_view_that_has_changed_or_has_expired_before_the_log_was_polled() -> None:
    for state in ViewState:
        assert state.needs_poll is (TRANSITIONS[state, ViewEvent.PINNED] is not state)


def test_a_vacuum_that_passes_a_view_twice_before_anything_was_read_is_an_error() -> None:
    """Also if what is read changes in between, or the log is polled again."""
    for between in ((), (ViewEvent.CHANGED,), (ViewEvent.PINNED, ViewEvent.BEGUN), (ViewEvent.PINNED,)):
        state = TRANSITIONS[ViewState.READ, ViewEvent.PASSED]
        for event in between:
            state = TRANSITIONS[state, event]
        assert (state, ViewEvent.PASSED) not in TRANSITIONS


def in_state(state: ViewState | Gathering | Share) -> ReadingStates:
    states = ReadingStates()
    name = {ViewState: "view", Gathering: "gathering", Share: "share"}[type(state)]
    setattr(states, name, state)
    return states


@pytest.mark.parametrize("state", ViewState)
def test_every_event_moves_the_view_as_the_table_says(state: ViewState) -> None:
    for event in ViewEvent:
        states = in_state(state)
        if (state, event) in TRANSITIONS:
            states.move_view(event)
            assert states.view is TRANSITIONS[state, event]
        else:
            with pytest.raises(KeyError):
                states.move_view(event)
    assert in_state(state).may_expire is ((state, ViewEvent.PASSED) in TRANSITIONS)


GATHERING: dict[Callable[[ReadingStates], None], dict[str, str | None]] = {
    ReadingStates.gather: {"NONE": "TAKEN", "TAKEN": "TAKEN", "INTERRUPTED": "INTERRUPTED"},
    ReadingStates.interrupt: {"NONE": None, "TAKEN": "INTERRUPTED", "INTERRUPTED": "INTERRUPTED"},
    ReadingStates.end_gathering: {"NONE": "NONE", "TAKEN": "NONE", "INTERRUPTED": "NONE"},
}


@pytest.mark.parametrize("move", GATHERING)
@pytest.mark.parametrize("state", Gathering)
def test_every_move_of_a_call_that_gathers(state: Gathering, move: Callable[[ReadingStates], None]) -> None:
    states, to = in_state(state), GATHERING[move][state.name]
    if to is None:
        with pytest.raises(AssertionError):
            move(states)
    else:
        move(states)
        assert states.gathering is Gathering[to]


@pytest.mark.parametrize("state", Share)
def test_what_the_groups_state_says_of_the_share_replaces_what_it_said(state: Share) -> None:
    states = in_state(state)
    states.take_over_share(is_whole=False)
    assert states.share is Share.OWED
    states.take_over_share(is_whole=True)
    assert states.share is Share.WHOLE
    states.leave_share()
    assert states.share is Share.BEHIND
