"""The transition table, whole, against a literal matrix (kafka TransactionState, classic protocol)."""

from __future__ import annotations

import pytest

from sparktxn._engine.state.transactions.transactions import is_valid_transition, transition
from sparktxn._foundation.values.structs import TransactionState, TransactionStatus
from tests.each import each

# Rows: from; columns: to, by id: EMPTY ONGOING PREPARE_COMMIT PREPARE_ABORT COMPLETE_COMMIT COMPLETE_ABORT DEAD
# PREPARE_EPOCH_FENCE.
MATRIX = """
EMPTY                x x . . . . x .
ONGOING              . x x x . . . x
PREPARE_COMMIT       . . . . x . . .
PREPARE_ABORT        . . . . . x . .
COMPLETE_COMMIT      x x . . . . x .
COMPLETE_ABORT       x x . . . . x .
DEAD                 . . . . . . . .
PREPARE_EPOCH_FENCE  . . . x . . . .
"""
ALLOWED = {
    (TransactionStatus[row.split()[0]], TransactionStatus(to)): mark == "x"
    for row in MATRIX.split("\n")
    if row
    for to, mark in enumerate(row.split()[1:])
}


def test_the_matrix_is_whole() -> None:
    assert len(ALLOWED) == 64


@each(ALLOWED)
def test_transition(previous: TransactionStatus, status: TransactionStatus) -> None:
    record = TransactionState("id", 1, 0, -1, -1, 60_000, previous, 1, False)
    assert is_valid_transition(previous, status) is ALLOWED[previous, status]
    if ALLOWED[previous, status]:
        assert transition(record, status).status is status
    else:
        with pytest.raises(AssertionError, match=f"{previous.name} cannot become {status.name}"):
            transition(record, status)


def test_ids_are_kafkas() -> None:
    assert [status.name for status in TransactionStatus] == [row.split()[0] for row in MATRIX.split("\n") if row]
    assert [status.value for status in TransactionStatus] == list(range(8))
