from __future__ import annotations

from itertools import product

import pytest

from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.producer.transactionstates import VALID_PREVIOUS_STATES, ProducerStates, TransactionPhase
from tests.each import each

S = TransactionPhase

# Rows: the state that is left. Columns, in the order of the enum: the state that is entered.
#            UNIN INIT READ IN_T PREG PRED COMM ABOR ABLE FATL
MATRIX = """
UNINITIALIZED          .  x  .  .  .  .  .  .  .  x
INITIALIZING           .  .  x  .  .  x  .  .  x  x
READY                  .  .  .  x  .  .  .  .  .  x
IN_TRANSACTION         .  .  .  .  x  .  x  x  x  x
PREPARING_TRANSACTION  .  .  .  .  .  x  .  .  x  x
PREPARED_TRANSACTION   .  .  .  .  .  .  x  x  .  x
COMMITTING_TRANSACTION .  .  x  .  .  .  .  .  x  x
ABORTING_TRANSACTION   .  .  x  .  .  .  .  .  .  x
ABORTABLE_ERROR        .  .  .  .  .  .  .  x  x  x
FATAL_ERROR            .  .  .  .  .  .  .  .  .  x
"""
ALLOWED = {
    (S(words[0]), entered)
    for words in (line.split() for line in MATRIX.strip().splitlines())
    for entered, mark in zip(S, words[1:], strict=True)
    if mark == "x"
}


def in_state(state: TransactionPhase, error: KafkaException | None = None) -> ProducerStates:
    states = ProducerStates()
    states.current = state
    states._error = error
    return states


def test_every_state_has_its_row() -> None:
    assert set(VALID_PREVIOUS_STATES) == set(S)


@pytest.mark.kafka("K113")
@each(list(product(S, S)))
def test_a_state_is_entered_only_from_its_previous_states(left: TransactionPhase, entered: TransactionPhase) -> None:
    states = in_state(left)
    if (left, entered) in ALLOWED:
        states.move(entered)
        assert states.current is entered
    else:
        with pytest.raises(AssertionError, match=f"{left} cannot become {entered}"):
            states.move(entered)
        assert states.current is left


@pytest.mark.kafka("K113")
@each([state for state in S if state not in (S.ABORTABLE_ERROR, S.FATAL_ERROR)])
def test_a_call_in_the_wrong_state_says_which_is_expected(state: TransactionPhase) -> None:
    wrong = next(other for other in S if other is not state)
    with pytest.raises(KafkaException) as raised:
        in_state(state).require("begin_transaction", wrong)
    assert raised.value.error == KafkaError._STATE
    assert all(word in raised.value.error.str() for word in ("begin_transaction()", wrong, state))


@pytest.mark.kafka("K114", "K115")
@pytest.mark.parametrize("state", [S.ABORTABLE_ERROR, S.FATAL_ERROR])
def test_an_error_state_raises_its_own_error(state: TransactionPhase) -> None:
    error = KafkaException(KafkaError(ErrorCode.LOCAL_FENCED, "fenced"))
    with pytest.raises(KafkaException) as raised:
        in_state(state, error).require("commit_transaction", S.IN_TRANSACTION)
    assert raised.value is error


def test_a_left_error_state_keeps_no_error() -> None:
    states = in_state(S.ABORTABLE_ERROR, KafkaException(KafkaError(1)))
    states.move(S.ABORTING_TRANSACTION)
    with pytest.raises(KafkaException) as raised:
        states.require("produce", S.IN_TRANSACTION)
    assert raised.value.error == KafkaError._STATE
