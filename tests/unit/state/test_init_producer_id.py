"""init_producer_id: Kafka's epoch arithmetic (K01 to K15, K44)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import InitProducerId
from sparktxn._engine.state.transactions.partitions import last_stable_offset
from sparktxn._engine.state.transactions.producerfencing import PRODUCER_EPOCH_MAX
from sparktxn._foundation.values.structs import TransactionStatus
from sparktxn.errors import ErrorCode
from tests.purelog import PureLog

HERE = (1, 0)


def identity(producer) -> tuple[int, int]:
    return producer.producer_id, producer.producer_epoch


def with_epoch(log: PureLog, epoch: int, **changes: object) -> None:
    record = replace(log.transaction("id"), producer_epoch=epoch, **changes)
    log.records[record.key] = record


@pytest.mark.kafka("K01")
def test_k01_without_a_transactional_id_a_fresh_producer_id_and_no_state(log: PureLog) -> None:
    assert identity(log.initialise(None)) == (0, 0)
    assert identity(log.initialise(None)) == (1, 0)
    assert not [key for key in log.records if key[0] == "transaction"]


@pytest.mark.kafka("K02")
def test_k02_an_empty_transactional_id_is_refused(log: PureLog) -> None:
    assert log.refusal(InitProducerId("a", "")) == ErrorCode.INVALID_REQUEST


@pytest.mark.kafka("K03")
@pytest.mark.parametrize("expected", [{}, {"producer_id": 7, "producer_epoch": 3}])
def test_k03_an_unknown_id_gets_epoch_0_whatever_was_expected(log: PureLog, expected: dict[str, int]) -> None:
    assert identity(log.initialise("id", **expected)) == (0, 0)


@pytest.mark.kafka("K04")
@pytest.mark.parametrize(
    ("timeout_ms", "valid"), [(-1, False), (0, False), (1, True), (900_000, True), (900_001, False)]
)
def test_k04_the_timeout_is_checked(log: PureLog, timeout_ms: int, valid: bool) -> None:
    command = InitProducerId("a", "id", timeout_ms)
    if valid:
        log.submit(command)
    else:
        assert log.refusal(command) == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.kafka("K05")
@pytest.mark.parametrize("committed", [None, True, False])
def test_k05_between_transactions_the_epoch_grows_by_one(log: PureLog, committed: bool | None) -> None:
    producer = log.initialise("id")
    if committed is not None:
        log.submit(producer.append(HERE, 0, transaction=1), producer.end(1, committed=committed))
    assert identity(log.initialise("id")) == (0, 1)
    record = log.transaction("id")
    assert (record.status, record.partitions, record.start_timestamp_ms) == (TransactionStatus.EMPTY, (), -1)
    assert (record.transaction, record.committed) == (0 if committed is None else 1, committed is True)


@pytest.mark.kafka("K07")
def test_k07_an_ongoing_transaction_is_aborted_under_an_epoch_given_to_nobody(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.append(HERE, 0, transaction=1))
    assert last_stable_offset(log.partition()) == 0
    assert identity(log.initialise("id")) == (0, 2)
    assert last_stable_offset(log.partition()) == log.partition().log_end_offset == 2
    assert log.records[("producer", *HERE, 0)].producer_epoch == 1
    assert not log.transaction("id").committed


@pytest.mark.kafka("K10")
def test_k10_at_the_last_epoch_the_producer_id_rotates(log: PureLog) -> None:
    log.initialise("id")
    with_epoch(log, PRODUCER_EPOCH_MAX - 2)
    assert identity(log.initialise("id")) == (0, PRODUCER_EPOCH_MAX - 1)
    assert identity(log.initialise("id")) == (1, 0)
    assert log.transaction("id").previous_producer_id == 0


@pytest.mark.kafka("K11")
def test_k11_the_last_epoch_of_all_serves_to_fence(log: PureLog) -> None:
    producer = log.initialise("id")
    with_epoch(log, PRODUCER_EPOCH_MAX - 1)
    producer = replace(producer, producer_epoch=PRODUCER_EPOCH_MAX - 1)
    log.submit(producer.append(HERE, 0, transaction=1))
    assert identity(log.initialise("id")) == (1, 0)
    assert log.records[("producer", *HERE, 0)].producer_epoch == PRODUCER_EPOCH_MAX


@pytest.mark.kafka("K12")
def test_k12_a_lost_answer_is_given_again_without_a_bump(log: PureLog) -> None:
    log.initialise("id")
    with_epoch(log, 10)
    for _ in range(2):
        assert identity(log.initialise("id", producer_id=0, producer_epoch=10)) == (0, 11)


@pytest.mark.kafka("K12")
def test_the_same_request_is_answered_again_even_without_an_expected_epoch(log: PureLog) -> None:
    first = log.submit(InitProducerId("same", "id"))[0]
    again = log.submit(InitProducerId("same", "id"))[0]
    assert (again.producer_epoch, again.duplicate) == (first.producer_epoch, True)


@pytest.mark.kafka("K13")
def test_k13_an_old_producer_cannot_come_back_after_a_newer_one(log: PureLog) -> None:
    log.initialise("id")
    with_epoch(log, 10)
    log.initialise("id")
    assert log.refusal(InitProducerId("a", "id", 60_000, 0, 10)) == ErrorCode.PRODUCER_FENCED


@pytest.mark.kafka("K14")
def test_k14_another_producer_id_is_fenced(log: PureLog) -> None:
    log.initialise("id")
    assert log.refusal(InitProducerId("a", "id", 60_000, 5, 0)) == ErrorCode.PRODUCER_FENCED


@pytest.mark.kafka("K15")
def test_k15_a_lost_answer_of_a_rotation_is_given_again(log: PureLog) -> None:
    log.initialise("id")
    last = PRODUCER_EPOCH_MAX - 1
    with_epoch(log, last)
    for _ in range(2):
        assert identity(log.initialise("id", producer_id=0, producer_epoch=last)) == (1, 0)
    assert log.refusal(InitProducerId("a", "id", 60_000, 0, last - 1)) == ErrorCode.PRODUCER_FENCED


def test_after_two_rotations_the_first_producer_id_is_not_known(log: PureLog) -> None:
    first = log.initialise("id")
    for _ in range(2):
        with_epoch(log, PRODUCER_EPOCH_MAX - 1)
        log.initialise("id")
    assert log.refusal(first.end(0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.kafka("K44")
def test_k44_a_time_out_aborts_and_says_so_to_its_victim(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.append(HERE, 0, transaction=1))
    log.submit(producer.end(1, committed=False, timed_out_after_ms=60_000))
    assert log.transaction("id").status is TransactionStatus.COMPLETE_ABORT
    assert log.refusal(producer.append(HERE, 1, transaction=1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.refusal(producer.end(1)) == ErrorCode.PRODUCER_FENCED
    assert "timed out after 60000 ms" in log.transaction("id").fence_reason
    assert identity(log.initialise("id")) == (0, 2)
    assert log.transaction("id").fence_reason == ""


@pytest.mark.kafka("K11", "K44")
def test_a_time_out_at_the_last_epoch_spends_it_and_the_next_init_rotates(log: PureLog) -> None:
    first = log.initialise("id")
    with_epoch(log, PRODUCER_EPOCH_MAX - 1)
    victim = replace(first, producer_epoch=PRODUCER_EPOCH_MAX - 1)
    log.submit(victim.append(HERE, 0, transaction=1))
    log.submit(victim.end(1, committed=False, timed_out_after_ms=60_001))
    assert log.transaction("id").producer_epoch == PRODUCER_EPOCH_MAX
    assert log.refusal(victim.end(1)) == ErrorCode.PRODUCER_FENCED
    again = log.initialise("id")
    assert identity(again) == (first.producer_id + 1, 0)
    assert log.refusal(victim.end(1)) == ErrorCode.PRODUCER_FENCED
    assert log.refusal(victim.append(HERE, 1, transaction=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    log.submit(again.append(HERE, 0, transaction=2), again.end(2))
    assert last_stable_offset(log.partition()) == log.partition().log_end_offset
