"""What an error means to a producer's caller, per operation (kafka TransactionManager, librdkafka rdkafka_txnmgr).

A caller tests three flags in this order: ``fatal()`` close, ``txn_requires_abort()`` abort and begin again,
``retriable()`` call the same method again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from sparktxn.errors import (
    CommandRefused,
    ErrorCode,
    ExpectationFailed,
    KafkaError,
    KafkaException,
    ProducerFenced,
    TransactionAborted,
)


class TransactionOperation(Enum):
    """What the refused commands were for."""

    INIT = "init_transactions"
    PUBLISH = "flush"
    PREPARE = "prepare_transaction"
    END = "commit_transaction"
    ABORT = "abort_transaction"


class Failure(Enum):
    """What is left to do."""

    RETRY = "retry"
    ABORT = "abort"
    FATAL = "fatal"
    FENCED = "fenced"


_E: Final = ErrorCode

_EVERYWHERE: Final[dict[int, Failure]] = {
    _E.COORDINATOR_NOT_AVAILABLE: Failure.RETRY,
    _E.NOT_COORDINATOR: Failure.RETRY,
    _E.COORDINATOR_LOAD_IN_PROGRESS: Failure.RETRY,
    _E.CONCURRENT_TRANSACTIONS: Failure.RETRY,
    _E.REQUEST_TIMED_OUT: Failure.RETRY,
    _E.PRODUCER_FENCED: Failure.FENCED,
    _E.INVALID_PRODUCER_EPOCH: Failure.FENCED,
    _E.TRANSACTION_COORDINATOR_FENCED: Failure.FENCED,
    _E.INVALID_TXN_STATE: Failure.FATAL,
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Failure.FATAL,
    _E.CLUSTER_AUTHORIZATION_FAILED: Failure.FATAL,
    _E.INVALID_TRANSACTION_TIMEOUT: Failure.FATAL,
    _E.UNSUPPORTED_VERSION: Failure.FATAL,
    _E.INVALID_REQUEST: Failure.FATAL,
    _E.TRANSACTION_ABORTABLE: Failure.ABORT,
}

FAILURES: Final[Mapping[TransactionOperation, Mapping[int, Failure]]] = MappingProxyType(
    {
        TransactionOperation.INIT: MappingProxyType({**_EVERYWHERE}),
        # A stale epoch is a fence in every operation, as in librdkafka. Kafka's Java client since 2.7 asks for an abort
        # first, whose own init then reveals the fence.
        TransactionOperation.PUBLISH: MappingProxyType({**_EVERYWHERE, _E.INVALID_TXN_STATE: Failure.ABORT}),
        TransactionOperation.PREPARE: MappingProxyType({**_EVERYWHERE}),
        TransactionOperation.END: MappingProxyType({**_EVERYWHERE}),
        TransactionOperation.ABORT: MappingProxyType({**_EVERYWHERE}),
    }
)
"""Per operation, what a code means. One that is not listed is fatal to an init, and else abortable."""

BUMPING_CODES: Final = frozenset(
    {
        _E.INVALID_PRODUCER_EPOCH,
        _E.INVALID_PRODUCER_ID_MAPPING,
        _E.UNKNOWN_PRODUCER_ID,
        _E.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""After these the abort also initialises again, for a fresh epoch whose sequences begin at 0 (KIP-360)."""


def failure_of(refused: CommandRefused, operation: TransactionOperation) -> tuple[Failure, KafkaException]:
    """Return what a refusal means in an operation, and its exception, with librdkafka's code and flags."""
    code, reason = refused.error.code(), refused.error.str()
    default = Failure.FATAL if operation is TransactionOperation.INIT else Failure.ABORT
    failure = FAILURES[operation].get(code, default)
    if failure is Failure.FENCED:
        return failure, ProducerFenced(KafkaError(_E.LOCAL_FENCED, reason, fatal=True))
    if failure is Failure.FATAL:
        return failure, KafkaException(KafkaError(code, reason, fatal=True))
    if failure is Failure.RETRY:
        return failure, KafkaException(KafkaError(code, reason, retriable=True))
    abortable = ExpectationFailed if code == _E.UNEXPECTED_END_OFFSET else TransactionAborted
    return failure, abortable(KafkaError(code, reason, txn_requires_abort=True))
