from __future__ import annotations

import pytest

from sparktxn.errors import CommandRefused, ErrorCode, ProducerFenced, TransactionAborted
from sparktxn.producer.transactionerrors import Failure, TransactionOperation, failure_of
from tests.each import each

E = ErrorCode
INIT, PUBLISH, END, ABORT = (
    TransactionOperation.INIT,
    TransactionOperation.PUBLISH,
    TransactionOperation.END,
    TransactionOperation.ABORT,
)

CASES = [
    (E.CONCURRENT_TRANSACTIONS, INIT, Failure.RETRY),
    (E.CONCURRENT_TRANSACTIONS, END, Failure.RETRY),
    (E.PRODUCER_FENCED, INIT, Failure.FENCED),
    (E.PRODUCER_FENCED, PUBLISH, Failure.FENCED),
    (E.PRODUCER_FENCED, END, Failure.FENCED),
    (E.PRODUCER_FENCED, ABORT, Failure.FENCED),
    (E.INVALID_PRODUCER_EPOCH, PUBLISH, Failure.FENCED),
    (E.INVALID_PRODUCER_EPOCH, END, Failure.FENCED),
    (E.INVALID_PRODUCER_EPOCH, TransactionOperation.PREPARE, Failure.FENCED),
    (E.INVALID_TXN_STATE, TransactionOperation.PREPARE, Failure.FATAL),
    (E.ILLEGAL_GENERATION, TransactionOperation.PREPARE, Failure.ABORT),
    (E.INVALID_PRODUCER_EPOCH, ABORT, Failure.FENCED),
    (E.INVALID_TXN_STATE, PUBLISH, Failure.ABORT),
    (E.INVALID_TXN_STATE, END, Failure.FATAL),
    (E.INVALID_PRODUCER_ID_MAPPING, END, Failure.ABORT),
    (E.UNKNOWN_PRODUCER_ID, PUBLISH, Failure.ABORT),
    (E.OUT_OF_ORDER_SEQUENCE_NUMBER, PUBLISH, Failure.ABORT),
    (E.TRANSACTION_ABORTABLE, END, Failure.ABORT),
    (E.ILLEGAL_GENERATION, END, Failure.ABORT),
    (E.UNKNOWN_MEMBER_ID, END, Failure.ABORT),
    (E.FENCED_INSTANCE_ID, END, Failure.ABORT),
    (E.KAFKA_STORAGE_ERROR, END, Failure.ABORT),
    (E.INVALID_TRANSACTION_TIMEOUT, INIT, Failure.FATAL),
    (E.UNSUPPORTED_VERSION, END, Failure.FATAL),
    (E.UNKNOWN, INIT, Failure.FATAL),
]


@pytest.mark.kafka("K120")
@each(CASES)
def test_a_code_means_what_the_table_says(code: ErrorCode, operation: TransactionOperation, expected: Failure) -> None:
    assert failure_of(CommandRefused(code, "why"), operation)[0] is expected


@pytest.mark.kafka("K120")
@each(CASES)
def test_exactly_one_flag_tells_what_to_do(code: ErrorCode, operation: TransactionOperation, expected: Failure) -> None:
    error = failure_of(CommandRefused(code, "why"), operation)[1].error
    flags = {
        Failure.RETRY: (False, False, True),
        Failure.ABORT: (False, True, False),
        Failure.FATAL: (True, False, False),
        Failure.FENCED: (True, False, False),
    }
    assert (error.fatal(), error.txn_requires_abort(), error.retriable()) == flags[expected]
    assert error.str() == "why"


@pytest.mark.kafka("K120")
@each(TransactionOperation)
def test_both_fencing_codes_are_told_as_fenced(operation: TransactionOperation) -> None:
    for code in (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH):
        error = failure_of(CommandRefused(code, "a newer producer"), operation)[1]
        assert isinstance(error, ProducerFenced)
        assert error.error == E.LOCAL_FENCED


@pytest.mark.kafka("K120")
def test_an_abortable_error_has_its_own_class_and_keeps_its_code() -> None:
    error = failure_of(CommandRefused(E.KAFKA_STORAGE_ERROR, "segment expired"), END)[1]
    assert isinstance(error, TransactionAborted)
    assert error.error == E.KAFKA_STORAGE_ERROR
