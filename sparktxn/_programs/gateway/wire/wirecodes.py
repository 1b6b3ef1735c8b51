"""The code on the wire of each error of the store: Kafka's own where there is one, else one that clients act upon."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kio.schema.errors import ErrorCode as WireCode

from sparktxn.errors import ErrorCode, KafkaException, StoreError

_WIRE_CODES: Final = frozenset(code.value for code in WireCode)

_IN_PLACE: Final[Mapping[int, int]] = MappingProxyType(
    {
        ErrorCode.LOCAL_UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LOCAL_UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LOCAL_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.LOCAL_MSG_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.LOCAL_FENCED: ErrorCode.PRODUCER_FENCED,
        ErrorCode.LOCAL_INVALID_ARG: ErrorCode.INVALID_REQUEST,
        ErrorCode.LOCAL_STATE: ErrorCode.INVALID_TXN_STATE,
    }
)

_ADD_OFFSETS, _ADD_PARTITIONS, _END, _INIT, _OFFSETS, _PRODUCE = 25, 24, 26, 22, 28, 0
_NEWER: Final[Mapping[int, tuple[int, Mapping[int, int]]]] = MappingProxyType(
    {
        ErrorCode.PRODUCER_FENCED: (
            ErrorCode.INVALID_PRODUCER_EPOCH,
            {_INIT: 4, _ADD_PARTITIONS: 2, _ADD_OFFSETS: 2, _END: 2},
        ),
        ErrorCode.TRANSACTION_ABORTABLE: (
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            {_PRODUCE: 11, _INIT: 5, _ADD_PARTITIONS: 5, _ADD_OFFSETS: 4, _END: 4, _OFFSETS: 4},
        ),
    }
)
"""Codes that clients do not know in all versions of a producer's requests.

For each: the code in its place, and from which version on a request has the code itself.
`INVALID_PRODUCER_ID_MAPPING` asks a client to abort, whichever of these requests it has sent but for one.
"""
_ABORTS_OFFSETS: Final = ErrorCode.ILLEGAL_GENERATION
"""It asks a client to abort by TxnOffsetCommit, where librdkafka takes the other code for a fatal error."""


def known_code(code: int, key: int, version: int) -> int:
    """Return the code that clients know in the answer to a producer's request of this version."""
    in_place, known_from = _NEWER.get(code, (code, {}))
    if version >= known_from.get(key, version + 1):
        return int(code)
    return int(_ABORTS_OFFSETS if code == ErrorCode.TRANSACTION_ABORTABLE and key == _OFFSETS else in_place)


def code_of(error: KafkaException) -> int:
    """Return the code that says a refusal or a failure to a client.

    A store that does not answer, or an outcome that is not known, is a request that timed out: clients try it again.
    """
    code = error.args[0].code()
    if error.args[0].retriable() and code not in _WIRE_CODES:
        return int(ErrorCode.REQUEST_TIMED_OUT)
    code = _IN_PLACE.get(code, code)
    return int(code) if code in _WIRE_CODES else int(ErrorCode.UNKNOWN)


def coordinator_code_of(error: KafkaException) -> int:
    """Return the code of a coordinator's answer: after what may pass, clients look for their coordinator again."""
    if isinstance(error, StoreError) and error.args[0].retriable():
        return int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return code_of(error)


def message_of(error: KafkaException) -> str:
    """Return the error in words."""
    return str(error.args[0].str())
