"""Conditional commits: a transaction takes effect only if partitions end where it expects (PROTOCOL.md, "Commands")."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparktxn._foundation.values.structs import TransactionStatus
from sparktxn.errors import CommandRefused, ErrorCode
from tests.producercommands import ProducerCommands
from tests.purelog import PureLog

HERE = (1, 0)
THERE = (1, 1)


def appended(log: PureLog, producer: ProducerCommands, transaction: int, *, sequence: int = 0, count: int = 1) -> Any:
    return producer.append(HERE, sequence, count, transaction=transaction, born=log.entry)


def test_a_commit_passes_where_nothing_was_appended(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.expect(1, HERE, 0), appended(log, producer, 1, count=3), producer.end(1))
    # The end of a transaction is a record too.
    log.submit(producer.expect(2, HERE, 4), appended(log, producer, 2, sequence=3), producer.end(2))
    assert log.partition().log_end_offset == 6


@pytest.mark.parametrize("end", [0, 3, 5])
def test_a_list_is_refused_whole_where_a_partition_ends_elsewhere(log: PureLog, end: int) -> None:
    producer, other = log.initialise("id"), log.initialise("other")
    log.submit(appended(log, other, 1, count=3), other.end(1))
    entry, log_end_offset = log.entry, log.partition().log_end_offset
    commit = (producer.expect(1, HERE, end), appended(log, producer, 1), producer.end(1))
    assert log.refusal(*commit) == ErrorCode.UNEXPECTED_END_OFFSET
    assert log.entry == entry
    assert log.partition().log_end_offset == log_end_offset == 4
    assert log.transaction("id").status is TransactionStatus.EMPTY


def test_records_of_open_and_aborted_transactions_count(log: PureLog) -> None:
    producer, other = log.initialise("id"), log.initialise("other")
    log.submit(appended(log, other, 1))
    assert log.refusal(producer.expect(1, HERE, 0), producer.end(1)) == ErrorCode.UNEXPECTED_END_OFFSET
    log.submit(other.end(1, committed=False))
    assert log.refusal(producer.expect(1, HERE, 0), producer.end(1)) == ErrorCode.UNEXPECTED_END_OFFSET
    log.submit(producer.expect(1, HERE, 2), producer.end(1))


def test_a_partition_that_is_only_expected_begins_the_transaction_and_does_not_join_it(log: PureLog) -> None:
    producer = log.initialise("id")
    log.submit(producer.expect(1, THERE, 0))
    transaction = log.transaction("id")
    assert (transaction.status, transaction.partitions) == (TransactionStatus.ONGOING, ())
    log.submit(appended(log, producer, 1), producer.expect(1, THERE, 0), producer.end(1))
    assert log.partition(1, 1).log_end_offset == 0


def test_it_counts_what_stands_before_it_in_its_list(log: PureLog) -> None:
    producer = log.initialise("id")
    commit = (appended(log, producer, 1), producer.expect(1, HERE, 0), producer.end(1))
    assert log.refusal(*commit) == ErrorCode.UNEXPECTED_END_OFFSET


@pytest.mark.parametrize("prepared", [False, True])
def test_a_repeated_list_passes_although_the_end_has_moved(log: PureLog, prepared: bool) -> None:
    producer, other = log.initialise("id"), log.initialise("other")
    end = producer.prepare(1) if prepared else producer.end(1)
    commit = (producer.expect(1, HERE, 0), appended(log, producer, 1), end)
    first = log.submit(*commit)
    log.submit(appended(log, other, 1), other.end(1))
    entry = log.entry
    again = log.submit(*commit)
    assert log.entry == entry
    assert [result.duplicate for result in again] == [True] * 3
    assert again[1].base_offset == first[1].base_offset


@pytest.mark.parametrize("where", [(1, 2), (7, 0)])
def test_a_partition_must_exist(log: PureLog, where: tuple[int, int]) -> None:
    producer = log.initialise("id")
    match = f"partition {where[1]} of topic id {where[0]} does not exist"
    with pytest.raises(CommandRefused, match=match) as refused:
        log.submit(producer.expect(1, where, 0))
    assert refused.value.error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "unknown"}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_epoch": 5}, ErrorCode.PRODUCER_FENCED),
        ({"transaction": 7}, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_it_must_belong_to_its_transaction(log: PureLog, changed: dict[str, Any], code: ErrorCode) -> None:
    producer = log.initialise("id")
    assert log.refusal(replace(producer.expect(1, HERE, 0), **changed)) == code
