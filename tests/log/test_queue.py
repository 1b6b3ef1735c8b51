"""The states of a list on its way to the log: the table, whole, against a literal matrix; and the queue."""

from __future__ import annotations

from collections import deque
from itertools import product

import pytest

from sparktxn._engine.format.commands import InitProducerId
from sparktxn._engine.log.write.queue import (
    VALID_PREVIOUS_STATES,
    WITHDRAWN,
    IntentId,
    ListState,
    Queue,
    QueuedList,
    checked_list,
)
from sparktxn._engine.state.delta import Refusal
from sparktxn.errors import CommandRefused, ErrorCode, KafkaException
from tests.each import each

# Rows: from; columns: to QUEUED IN_INTENT IN_BODY DONE.
MATRIX = """
QUEUED     . x x x
IN_INTENT  . . x x
IN_BODY    x x x x
DONE       . . . .
"""
ALLOWED = {
    (ListState[row.split()[0]], to): mark == "x"
    for row in MATRIX.split("\n")
    if row
    for to, mark in zip(ListState, row.split()[1:], strict=True)
}


def a_list(state: ListState = ListState.QUEUED) -> QueuedList:
    made = QueuedList(checked_list([InitProducerId("request", "job")]), 1)
    made.state = state
    return made


def test_the_matrix_and_the_table_are_whole() -> None:
    assert ALLOWED.keys() == set(product(ListState, ListState))
    assert VALID_PREVIOUS_STATES.keys() == set(ListState)


@each(ALLOWED)
def test_a_move(previous: ListState, state: ListState) -> None:
    list_ = a_list(previous)
    if ALLOWED[previous, state]:
        list_.move(state)
        assert list_.state is state
    else:
        with pytest.raises(AssertionError, match=f"cannot become {state.name} from {previous.name}"):
            list_.move(state)
        assert list_.state is previous


def test_a_list_may_take_effect_while_it_is_in_something_that_is_stored() -> None:
    assert [state.name for state in ListState if a_list(state).may_take_effect()] == ["IN_INTENT", "IN_BODY"]


def test_a_list_whose_slot_went_to_another_is_where_its_intent_leaves_it() -> None:
    list_ = a_list(ListState.IN_BODY)
    list_.leave_slot()
    assert list_.state is ListState.QUEUED
    list_.leave(IntentId("intent", 1))
    list_.move(ListState.IN_BODY)
    list_.leave_slot()
    assert list_.state is ListState.IN_INTENT


def test_a_list_whose_intent_has_expired_may_have_taken_effect_until_its_slot_is_resolved() -> None:
    list_ = a_list()
    list_.leave(IntentId("intent", 1))
    list_.expire()
    assert list_.intent is None
    assert list_.may_take_effect()
    list_.leave_slot()
    assert not list_.may_take_effect()


def test_the_first_outcome_stays() -> None:
    list_ = a_list()
    list_.end(Refusal(ErrorCode.UNKNOWN_PRODUCER_ID, "who is that"))
    list_.end(WITHDRAWN)
    assert isinstance(list_.error, CommandRefused)
    assert list_.is_done()


@each([ListState.IN_INTENT, ListState.IN_BODY, ListState.DONE])
def test_what_may_take_effect_or_is_done_is_not_withdrawn(state: ListState) -> None:
    queue, list_ = Queue(), a_list(state)
    queue.add(list_)
    assert not queue.withdraw(list_)
    assert list_.state is state


def test_what_is_queued_is_withdrawn_unless_it_was_just_taken() -> None:
    queue, first, second = Queue(), a_list(), a_list()
    queue.add(first)
    queue.add(second)
    assert queue.withdraw(second)
    assert isinstance(second.error, KafkaException)
    assert queue.take() == [first]
    assert not queue.withdraw(first)
    assert not first.is_done()


def test_what_is_left_in_an_intent_while_its_owner_withdraws_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    class Racing(deque[QueuedList]):
        """Between the owner's check of the state and this, the writer leaves the list, and gives it back."""

        def remove(self, value: QueuedList) -> None:
            value.leave(IntentId("intent", 1))
            super().remove(value)

    queue, list_ = Queue(), a_list()
    monkeypatch.setattr(queue, "_lists", Racing())
    queue.add(list_)
    assert not queue.withdraw(list_)
    assert queue.take() == [list_]
    assert not list_.is_done()


def test_what_its_owner_has_let_go_is_not_taken() -> None:
    queue, lists = Queue(), [a_list(state) for state in (ListState.QUEUED, ListState.IN_BODY, ListState.QUEUED)]
    for list_ in lists:
        queue.add(list_)
    lists[0].let_go = lists[1].let_go = True
    assert queue.take() == lists[2:]
    assert [list_.is_done() for list_ in lists] == [True, False, False], "the second may still be stored"


def test_lists_that_are_given_back_keep_their_order_and_stand_once_in_the_queue() -> None:
    queue, lists = Queue(), [a_list() for _ in range(4)]
    for list_ in lists:
        queue.add(list_)
    assert queue.take() == lists
    queue.add(lists[2])
    queue.give_back(lists)
    assert queue.take() == [lists[0], lists[1], lists[3], lists[2]]


def test_lists_whose_intents_are_settled_are_found_in_their_places() -> None:
    queue, lists = Queue(), [a_list() for _ in range(3)]
    for number, list_ in enumerate(lists):
        list_.leave(IntentId(f"intent-{number}", 1))
        queue.add(list_)
    assert queue.settled({"intent-1", "another"}) == [lists[1]]
    assert queue.take() == lists
