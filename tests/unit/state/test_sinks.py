"""Micro-batches (holes 27 to 29): a batch takes effect once, a superseded run or query takes none."""

from __future__ import annotations

from typing import Any

import pytest

from sparktxn._engine.state.delta import Refusal
from sparktxn._engine.state.transactions.sinks import check_batch, remembered_batch
from sparktxn._foundation.values.structs import SinkBatch
from sparktxn.errors import ErrorCode
from tests.producercommands import ProducerCommands
from tests.purelog import PureLog


@pytest.fixture
def producer(log: PureLog) -> ProducerCommands:
    return log.initialise("sink")


def commit(log: PureLog, producer, number: int, batch_id: int, **names: str) -> None:
    log.submit(producer.batch(number, batch_id, **names), producer.end(number))


def found(log: PureLog, producer, batch_id: int, **names: str):
    return check_batch(log.transaction("sink").sink, producer.batch(9, batch_id, **names))


def test_a_replayed_batch_is_recognised_and_a_new_one_is_new(log: PureLog, producer) -> None:
    commit(log, producer, 1, 0)
    replayed = found(log, producer, 0)
    assert (replayed.batch_id, replayed.entry) == (0, log.entry)
    assert found(log, producer, 1) is None
    assert log.refusal(producer.batch(2, 0)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_hole_27_a_superseded_run_cannot_come_back(log: PureLog, producer) -> None:
    commit(log, producer, 1, 0, run_id="a")
    commit(log, producer, 2, 1, run_id="b")
    refused = found(log, producer, 2, run_id="a")
    assert isinstance(refused, Refusal)
    assert "superseded by run 'b'" in refused.reason
    assert log.refusal(producer.batch(3, 2, run_id="a")) == ErrorCode.PRODUCER_FENCED


def test_hole_28_the_same_batch_with_other_rows_is_an_error(log: PureLog, producer) -> None:
    commit(log, producer, 1, 0, fingerprint="these rows")
    refused = found(log, producer, 0, fingerprint="other rows")
    assert isinstance(refused, Refusal)
    assert refused.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert "batch 0" in refused.reason


def test_hole_29_another_query_starts_anew_and_fences_the_old_one(log: PureLog, producer) -> None:
    commit(log, producer, 1, 5, writer_id="old")
    assert found(log, producer, 0, writer_id="new") is None
    commit(log, producer, 2, 0, writer_id="new")
    sink = log.transaction("sink").sink
    assert sink is not None
    assert [batch.batch_id for batch in sink.batches] == [0]
    refused = found(log, producer, 6, writer_id="old")
    assert isinstance(refused, Refusal)
    assert refused.code == ErrorCode.PRODUCER_FENCED
    assert "superseded by 'new'" in refused.reason


def test_a_fenced_producer_commits_no_batch(log: PureLog, producer) -> None:
    log.initialise("sink")
    assert log.refusal(producer.batch(1, 0)) == ErrorCode.PRODUCER_FENCED


def test_a_batch_below_all_that_are_remembered_is_an_error(log: PureLog, producer) -> None:
    for number in range(1, 26):
        commit(log, producer, number, number)
    refused = found(log, producer, 1)
    assert isinstance(refused, Refusal)
    assert refused.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert "below the last committed one, 25, and no longer remembered" in refused.reason
    assert "other rows" not in refused.reason
    assert found(log, producer, 25).batch_id == 25


@pytest.mark.parametrize(
    ("known", "given", "is_same"),
    [
        ("s", "s", True),
        ("s", "r", False),
        ("s:rows1:a", "s:rows1:a", True),
        ("s:rows1:a", "s:rows1:b", False),
        ("s:rows1:a", "r:rows1:a", False),
        ("s", "s:rows1:a", True),
        ("s", "r:rows1:a", False),
        ("s:rows2:x:y", "s:rows1:a", True),
        ("s:rows2:x", "r:rows1:a", False),
        ("s:rows2:x:y", "s", True),
    ],
)
def test_fingerprints_of_one_kind_are_compared_whole_and_others_by_their_sizes(
    log: PureLog, producer, known: str, given: str, is_same: bool
) -> None:
    commit(log, producer, 1, 0, fingerprint=known)
    assert isinstance(found(log, producer, 0, fingerprint=given), SinkBatch) is is_same


def test_the_refusal_of_other_rows_names_both_fingerprints(log: PureLog, producer) -> None:
    commit(log, producer, 1, 0, fingerprint="these")
    refused = found(log, producer, 0, fingerprint="those")
    assert isinstance(refused, Refusal)
    assert "(fingerprint these, now those)" in refused.reason
    sink = log.transaction("sink").sink
    assert sink is not None
    assert [remembered_batch(sink, number) for number in (0, 1)] == [sink.batches[0], None]


@pytest.mark.parametrize("how", ["abort", "fence", "time-out"])
def test_a_batch_whose_transaction_aborts_has_not_taken_effect(log: PureLog, producer, how: str) -> None:
    """Otherwise its replay would be a no-op, and its rows lost."""
    commit(log, producer, 1, 0, run_id="a")
    log.submit(producer.append((1, 0), 0, transaction=2), producer.batch(2, 1, run_id="b"))
    if how == "fence":
        log.initialise("sink")
    else:
        log.submit(producer.end(2, committed=False, timed_out_after_ms=0 if how == "abort" else 1))
    assert found(log, producer, 1, run_id="b") is None
    assert found(log, producer, 1, run_id="a") is None


def test_a_retried_list_is_recognised(log: PureLog, producer) -> None:
    commands = [producer.batch(1, 0), producer.append((1, 0), 0, transaction=1), producer.end(1)]
    log.submit(*commands)
    entry = log.entry
    assert all(result.duplicate for result in log.submit(*commands))
    assert log.entry == entry


@pytest.mark.parametrize("names", [{"batch_id": 1}, {"fingerprint": "other"}, {"run_id": "b"}, {"writer_id": "other"}])
@pytest.mark.parametrize("prepared", [False, True])
def test_another_batch_in_a_transaction_that_has_ended_is_no_repetition(
    log: PureLog, producer, names: dict[str, Any], prepared: bool
) -> None:
    last = producer.prepare(1) if prepared else producer.end(1)
    log.submit(producer.batch(1, 0), producer.append((1, 0), 0, transaction=1), last)
    other = producer.batch(1, **{"batch_id": 0, **names})
    assert log.refusal(other, last) == ErrorCode.INVALID_TXN_STATE
    assert all(result.duplicate for result in log.submit(producer.batch(1, 0), last))


def test_a_batch_of_the_transaction_before_is_no_repetition(log: PureLog, producer) -> None:
    commit(log, producer, 1, 0)
    log.submit(producer.append((1, 0), 0, transaction=2), producer.end(2))
    assert log.refusal(producer.batch(2, 0), producer.end(2)) == ErrorCode.INVALID_TXN_STATE
