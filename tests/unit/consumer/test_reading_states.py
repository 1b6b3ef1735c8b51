"""The states of the view that a consumer has pinned, whole, against a literal matrix."""

from __future__ import annotations

from sparktxn.consumer.readingstates import TRANSITIONS, ViewEvent, ViewState

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
