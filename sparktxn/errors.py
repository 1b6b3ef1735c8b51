"""Errors: Kafka's codes, their names and flags, and the store's own errors.

The tree groups classes by what a handler does::

    KafkaException            args[0] is a KafkaError: test fatal(), then txn_requires_abort(), then retriable()
    ├── ProducerFenced        fatal: another producer, or a time-out, ended this one; close it
    ├── TransactionAborted    abortable: call abort_transaction(), rewind the input, begin again
    │   └── ExpectationFailed     a partition does not end where the transaction expects: read on before beginning again
    ├── CommandRefused        the state machine refused a command: its code says why, nothing was written
    └── StoreError            the store itself; ``kind`` is stable and append-only
        ├── StoreUnavailable      retriable: the object store did not answer in time; nothing is known to be written
        │   └── ClockSkewError        this machine's clock is far from the store's; nothing was written
        ├── OutcomeUnknown        retriable: call the same method again; it resolves the same entry
        │   └── OutcomeLost           not retriable: the outcome can no longer be found
        ├── StoreNotFound         no store at this URI: create a topic first
        ├── DamagedObject         an object's bytes are not what was written: names the object
        ├── FormatVersionError    an object of a newer format: upgrade this library
        ├── ViewExpired           retention or vacuum has passed the read view: open a newer one
        ├── SegmentExpired        an upload is older than the segment floor: upload again
        ├── RetentionPassed       the offset asked for is below the log start
        └── BatchRefused          a micro-batch that another run, query or content has superseded
    ConfigurationError        (ValueError and KafkaException) a setting, option, name or schema is wrong
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import total_ordering
from operator import index
from typing import Any, Final

__all__ = [
    "CODES",
    "NAMES",
    "BatchRefused",
    "ClockSkewError",
    "CommandRefused",
    "ConfigurationError",
    "DamagedObject",
    "ErrorCode",
    "ExpectationFailed",
    "FormatVersionError",
    "KafkaError",
    "KafkaException",
    "OutcomeLost",
    "OutcomeUnknown",
    "ProducerFenced",
    "RetentionPassed",
    "SegmentExpired",
    "StoreError",
    "StoreNotFound",
    "StoreUnavailable",
    "TransactionAborted",
    "ViewExpired",
    "damage_named",
    "did_you_mean",
    "error_name",
    "extra_to_install",
    "nearest_name",
    "text_of",
]


# Kafka's error codes by librdkafka's names, with the text that librdkafka has for each.
#
# Programs compare the numbers, and tools that read logs look for the texts, so both are librdkafka's to the letter.

_PARTITION_EOF: Final = -191

# A line is a code, its name and its text without the prefix.
_TABLE: Final = """
    -199 _BAD_MSG Bad message format
    -198 _BAD_COMPRESSION Invalid compressed data
    -197 _DESTROY Broker handle destroyed for termination
    -196 _FAIL Communication failure with broker
    -195 _TRANSPORT Broker transport failure
    -194 _CRIT_SYS_RESOURCE Critical system resource failure
    -193 _RESOLVE Host resolution failure
    -192 _MSG_TIMED_OUT Message timed out
    -190 _UNKNOWN_PARTITION Unknown partition
    -189 _FS File or filesystem error
    -188 _UNKNOWN_TOPIC Unknown topic
    -187 _ALL_BROKERS_DOWN All broker connections are down
    -186 _INVALID_ARG Invalid argument or configuration
    -185 _TIMED_OUT Timed out
    -184 _QUEUE_FULL Queue full
    -183 _ISR_INSUFF ISR count insufficient
    -182 _NODE_UPDATE Broker node update
    -181 _SSL SSL error
    -180 _WAIT_COORD Waiting for coordinator
    -179 _UNKNOWN_GROUP Unknown group
    -178 _IN_PROGRESS Operation in progress
    -177 _PREV_IN_PROGRESS Previous operation in progress
    -176 _EXISTING_SUBSCRIPTION Existing subscription
    -175 _ASSIGN_PARTITIONS Assign partitions
    -174 _REVOKE_PARTITIONS Revoke partitions
    -173 _CONFLICT Conflicting use
    -172 _STATE Erroneous state
    -171 _UNKNOWN_PROTOCOL Unknown protocol
    -170 _NOT_IMPLEMENTED Not implemented
    -169 _AUTHENTICATION Authentication failure
    -168 _NO_OFFSET No offset stored
    -167 _OUTDATED Outdated
    -166 _TIMED_OUT_QUEUE Timed out in queue
    -165 _UNSUPPORTED_FEATURE Required feature not supported by broker
    -164 _WAIT_CACHE Awaiting cache update
    -163 _INTR Operation interrupted
    -162 _KEY_SERIALIZATION Key serialization error
    -161 _VALUE_SERIALIZATION Value serialization error
    -160 _KEY_DESERIALIZATION Key deserialization error
    -159 _VALUE_DESERIALIZATION Value deserialization error
    -158 _PARTIAL Partial response
    -157 _READ_ONLY Read-only object
    -156 _NOENT No such entry
    -155 _UNDERFLOW Read underflow
    -154 _INVALID_TYPE Invalid type
    -153 _RETRY Retry operation
    -152 _PURGE_QUEUE Purged in queue
    -151 _PURGE_INFLIGHT Purged in flight
    -150 _FATAL Fatal error
    -149 _INCONSISTENT Inconsistent state
    -148 _GAPLESS_GUARANTEE Gap-less ordering would not be guaranteed if proceeding
    -147 _MAX_POLL_EXCEEDED Maximum application poll interval (max.poll.interval.ms) exceeded
    -146 _UNKNOWN_BROKER Unknown broker
    -145 _NOT_CONFIGURED Functionality not configured
    -144 _FENCED This instance has been fenced by a newer instance
    -143 _APPLICATION Application generated error
    -142 _ASSIGNMENT_LOST Group partition assignment lost
    -141 _NOOP No operation performed
    -140 _AUTO_OFFSET_RESET No offset to automatically reset to
    -139 _LOG_TRUNCATION Partition log truncation detected
    -138 _INVALID_DIFFERENT_RECORD an invalid record in the same batch caused the failure of this message too
    -137 _DESTROY_BROKER Broker handle destroyed without termination
    1 OFFSET_OUT_OF_RANGE Offset out of range
    2 INVALID_MSG Invalid message
    3 UNKNOWN_TOPIC_OR_PART Unknown topic or partition
    4 INVALID_MSG_SIZE Invalid message size
    5 LEADER_NOT_AVAILABLE Leader not available
    6 NOT_LEADER_FOR_PARTITION Not leader for partition
    7 REQUEST_TIMED_OUT Request timed out
    8 BROKER_NOT_AVAILABLE Broker not available
    9 REPLICA_NOT_AVAILABLE Replica not available
    10 MSG_SIZE_TOO_LARGE Message size too large
    11 STALE_CTRL_EPOCH StaleControllerEpochCode
    12 OFFSET_METADATA_TOO_LARGE Offset metadata string too large
    13 NETWORK_EXCEPTION Broker disconnected before response received
    14 COORDINATOR_LOAD_IN_PROGRESS Coordinator load in progress
    15 COORDINATOR_NOT_AVAILABLE Coordinator not available
    16 NOT_COORDINATOR Not coordinator
    17 TOPIC_EXCEPTION Invalid topic
    18 RECORD_LIST_TOO_LARGE Message batch larger than configured server segment size
    19 NOT_ENOUGH_REPLICAS Not enough in-sync replicas
    20 NOT_ENOUGH_REPLICAS_AFTER_APPEND Message(s) written to insufficient number of in-sync replicas
    21 INVALID_REQUIRED_ACKS Invalid required acks value
    22 ILLEGAL_GENERATION Specified group generation id is not valid
    23 INCONSISTENT_GROUP_PROTOCOL Inconsistent group protocol
    24 INVALID_GROUP_ID Invalid group.id
    25 UNKNOWN_MEMBER_ID Unknown member
    26 INVALID_SESSION_TIMEOUT Invalid session timeout
    27 REBALANCE_IN_PROGRESS Group rebalance in progress
    28 INVALID_COMMIT_OFFSET_SIZE Commit offset data size is not valid
    29 TOPIC_AUTHORIZATION_FAILED Topic authorization failed
    30 GROUP_AUTHORIZATION_FAILED Group authorization failed
    31 CLUSTER_AUTHORIZATION_FAILED Cluster authorization failed
    32 INVALID_TIMESTAMP Invalid timestamp
    33 UNSUPPORTED_SASL_MECHANISM Unsupported SASL mechanism
    34 ILLEGAL_SASL_STATE Request not valid in current SASL state
    35 UNSUPPORTED_VERSION API version not supported
    36 TOPIC_ALREADY_EXISTS Topic already exists
    37 INVALID_PARTITIONS Invalid number of partitions
    38 INVALID_REPLICATION_FACTOR Invalid replication factor
    39 INVALID_REPLICA_ASSIGNMENT Invalid replica assignment
    40 INVALID_CONFIG Configuration is invalid
    41 NOT_CONTROLLER Not controller for cluster
    42 INVALID_REQUEST Invalid request
    43 UNSUPPORTED_FOR_MESSAGE_FORMAT Message format on broker does not support request
    44 POLICY_VIOLATION Policy violation
    45 OUT_OF_ORDER_SEQUENCE_NUMBER Broker received an out of order sequence number
    46 DUPLICATE_SEQUENCE_NUMBER Broker received a duplicate sequence number
    47 INVALID_PRODUCER_EPOCH Producer attempted an operation with an old epoch
    48 INVALID_TXN_STATE Producer attempted a transactional operation in an invalid state
    53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED Transactional Id authorization failed
    54 SECURITY_DISABLED Security features are disabled
    55 OPERATION_NOT_ATTEMPTED Operation not attempted
    56 KAFKA_STORAGE_ERROR Disk error when trying to access log file on disk
    57 LOG_DIR_NOT_FOUND The user-specified log directory is not found in the broker config
    58 SASL_AUTHENTICATION_FAILED SASL Authentication failed
    59 UNKNOWN_PRODUCER_ID Unknown Producer Id
    60 REASSIGNMENT_IN_PROGRESS Partition reassignment is in progress
    61 DELEGATION_TOKEN_AUTH_DISABLED Delegation Token feature is not enabled
    62 DELEGATION_TOKEN_NOT_FOUND Delegation Token is not found on server
    63 DELEGATION_TOKEN_OWNER_MISMATCH Specified Principal is not valid Owner/Renewer
    64 DELEGATION_TOKEN_REQUEST_NOT_ALLOWED Delegation Token requests are not allowed on this connection
    65 DELEGATION_TOKEN_AUTHORIZATION_FAILED Delegation Token authorization failed
    66 DELEGATION_TOKEN_EXPIRED Delegation Token is expired
    67 INVALID_PRINCIPAL_TYPE Supplied principalType is not supported
    68 NON_EMPTY_GROUP The group is not empty
    69 GROUP_ID_NOT_FOUND The group id does not exist
    70 FETCH_SESSION_ID_NOT_FOUND The fetch session ID was not found
    71 INVALID_FETCH_SESSION_EPOCH The fetch session epoch is invalid
    72 LISTENER_NOT_FOUND No matching listener
    73 TOPIC_DELETION_DISABLED Topic deletion is disabled
    74 FENCED_LEADER_EPOCH Leader epoch is older than broker epoch
    75 UNKNOWN_LEADER_EPOCH Leader epoch is newer than broker epoch
    76 UNSUPPORTED_COMPRESSION_TYPE Unsupported compression type
    77 STALE_BROKER_EPOCH Broker epoch has changed
    78 OFFSET_NOT_AVAILABLE Leader high watermark is not caught up
    79 MEMBER_ID_REQUIRED Group member needs a valid member ID
    80 PREFERRED_LEADER_NOT_AVAILABLE Preferred leader was not available
    81 GROUP_MAX_SIZE_REACHED Consumer group has reached maximum size
    82 FENCED_INSTANCE_ID Static consumer fenced by other consumer with same group.instance.id
    83 ELIGIBLE_LEADERS_NOT_AVAILABLE Eligible partition leaders are not available
    84 ELECTION_NOT_NEEDED Leader election not needed for topic partition
    85 NO_REASSIGNMENT_IN_PROGRESS No partition reassignment is in progress
    86 GROUP_SUBSCRIBED_TO_TOPIC Deleting offsets of a topic while the consumer group is subscribed to it
    87 INVALID_RECORD Broker failed to validate record
    88 UNSTABLE_OFFSET_COMMIT There are unstable offsets that need to be cleared
    89 THROTTLING_QUOTA_EXCEEDED Throttling quota has been exceeded
    90 PRODUCER_FENCED There is a newer producer with the same transactionalId which fences the current one
    91 RESOURCE_NOT_FOUND Request illegally referred to resource that does not exist
    92 DUPLICATE_RESOURCE Request illegally referred to the same resource twice
    93 UNACCEPTABLE_CREDENTIAL Requested credential would not meet criteria for acceptability
    95 INVALID_UPDATE_VERSION Invalid update version
    96 FEATURE_UPDATE_FAILED Unable to update finalized features due to server error
    97 PRINCIPAL_DESERIALIZATION_FAILURE Request principal deserialization failed during forwarding
    100 UNKNOWN_TOPIC_ID Unknown topic id
    103 INCONSISTENT_TOPIC_ID The log's topic ID did not match the topic ID in the request
    110 FENCED_MEMBER_EPOCH The member epoch is fenced by the group coordinator
    111 UNRELEASED_INSTANCE_ID The instance ID is still used by another member in the consumer group
    112 UNSUPPORTED_ASSIGNOR The assignor or its version range is not supported by the consumer group
    113 STALE_MEMBER_EPOCH The member epoch is stale
    114 MISMATCHED_ENDPOINT_TYPE The request was sent to an endpoint of the wrong type
    115 UNSUPPORTED_ENDPOINT_TYPE This endpoint type is not supported yet
    116 UNKNOWN_CONTROLLER_ID This controller ID is not known
    117 UNKNOWN_SUBSCRIPTION_ID Client sent a push telemetry request with an invalid or outdated subscription ID
    118 TELEMETRY_TOO_LARGE Client sent a push telemetry request larger than the maximum size the broker will accept
    119 INVALID_REGISTRATION The controller has considered the broker registration to be invalid
    120 TRANSACTION_ABORTABLE The server encountered an error with the transaction
    121 INVALID_RECORD_STATE The record state is invalid
    122 SHARE_SESSION_NOT_FOUND The share session was not found
    123 INVALID_SHARE_SESSION_EPOCH The share session epoch is invalid
    124 FENCED_STATE_EPOCH The share-group state epoch did not match
    125 INVALID_VOTER_KEY The voter key doesn't match the receiving replica's key
    126 DUPLICATE_VOTER The voter is already part of the set of voters
    127 VOTER_NOT_FOUND The voter is not part of the set of voters
    128 INVALID_REGULAR_EXPRESSION The regular expression is not valid
    129 REBOOTSTRAP_REQUIRED Client metadata is stale, client should rebootstrap to obtain new metadata
    130 STREAMS_INVALID_TOPOLOGY The supplied topology is invalid
    131 STREAMS_INVALID_TOPOLOGY_EPOCH The supplied topology epoch is invalid
    132 STREAMS_TOPOLOGY_FENCED The supplied topology epoch is outdated
    133 SHARE_SESSION_LIMIT_REACHED The limit of share sessions has been reached
"""

_LONG_TEXTS: Final = {
    (49, "INVALID_PRODUCER_ID_MAPPING"): (
        "Producer attempted to use a producer id which is not currently assigned to its transactional id"
    ),
    (50, "INVALID_TRANSACTION_TIMEOUT"): (
        "Transaction timeout is larger than the maximum value allowed by the broker's max.transaction.timeout.ms"
    ),
    (51, "CONCURRENT_TRANSACTIONS"): (
        "Producer attempted to update a transaction while another concurrent operation on the same "
        "transaction was ongoing"
    ),
    (52, "TRANSACTION_COORDINATOR_FENCED"): (
        "Indicates that the transaction coordinator sending a WriteTxnMarker is no longer the "
        "current coordinator for a given producer"
    ),
    (94, "INCONSISTENT_VOTER_SET"): (
        "Indicates that the either the sender or recipient of a voter-only request is not one of the expected voters"
    ),
}

_OLD_NAMES: Final = {
    "GROUP_LOAD_IN_PROGRESS": 14,
    "GROUP_COORDINATOR_NOT_AVAILABLE": 15,
    "NOT_COORDINATOR_FOR_GROUP": 16,
}


def _texts() -> dict[tuple[int, str], str]:
    rows = [line.split(maxsplit=2) for line in _TABLE.strip().splitlines()]
    named = {(int(code), name): text for code, name, text in rows} | _LONG_TEXTS
    prefixed = {
        (code, name): f"{'Local' if code < 0 else 'Broker'}: {text}" for (code, name), text in sorted(named.items())
    }
    return prefixed | {
        (_PARTITION_EOF, "_PARTITION_EOF"): "Broker: No more messages",
        (-1, "UNKNOWN"): "Unknown broker error",
        (0, "NO_ERROR"): "Success",
    }


_TEXTS: Final = {code: text for (code, _), text in _texts().items()}

NAMES: Final = dict(_texts().keys())
"""librdkafka's name of each code."""

CODES: Final = {name: code for code, name in NAMES.items()} | _OLD_NAMES
"""The code of each name of librdkafka's, and of names that it had before."""


def text_of(code: int) -> str | None:
    """Return librdkafka's text of a code, None for a code that it does not know.

    >>> text_of(3), text_of(-144)
    ('Broker: Unknown topic or partition', 'Local: This instance has been fenced by a newer instance')
    """
    return _TEXTS.get(code)


def __dir__() -> list[str]:
    return sorted(__all__)


class ErrorCode(IntEnum):
    """Kafka's error codes (0 and up) and librdkafka's local ones (below 0), as far as this store answers with them.

    The store's own begin at 1001.
    """

    LOCAL_BAD_MSG = -199
    LOCAL_FAIL = -196
    LOCAL_TRANSPORT = -195
    LOCAL_CRIT_SYS_RESOURCE = -194
    LOCAL_RESOLVE = -193
    LOCAL_MSG_TIMED_OUT = -192
    LOCAL_PARTITION_EOF = -191
    LOCAL_UNKNOWN_PARTITION = -190
    LOCAL_FS = -189
    LOCAL_UNKNOWN_TOPIC = -188
    LOCAL_ALL_BROKERS_DOWN = -187
    LOCAL_INVALID_ARG = -186
    LOCAL_TIMED_OUT = -185
    LOCAL_QUEUE_FULL = -184
    LOCAL_UNKNOWN_GROUP = -179
    LOCAL_PREV_IN_PROGRESS = -177
    LOCAL_CONFLICT = -173
    LOCAL_STATE = -172
    LOCAL_NOT_IMPLEMENTED = -170
    LOCAL_NO_OFFSET = -168
    LOCAL_PARTIAL = -158
    LOCAL_PURGE_QUEUE = -152
    LOCAL_PURGE_INFLIGHT = -151
    LOCAL_FATAL = -150
    LOCAL_INCONSISTENT = -149
    LOCAL_MAX_POLL_EXCEEDED = -147
    LOCAL_NOT_CONFIGURED = -145
    LOCAL_FENCED = -144
    LOCAL_APPLICATION = -143
    LOCAL_NOOP = -141
    LOCAL_AUTO_OFFSET_RESET = -140
    UNKNOWN = -1
    NO_ERROR = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    TRANSACTION_ABORTABLE = 120
    UNEXPECTED_END_OFFSET = 1001
    RANGE_REWRITTEN = 1002
    TABLE_CHANGED = 1003

    @property
    def kafka_name(self) -> str:
        """The name as librdkafka prints it: a leading underscore for its local codes."""
        return error_name(self)


_OWN_NAMES: Final = {code.name.replace("LOCAL_", "_", 1): code.value for code in ErrorCode}
_CODES: Final = _OWN_NAMES | CODES
_NAMES: Final = {code: name for name, code in _OWN_NAMES.items()} | NAMES


def error_name(code: int) -> str:
    """Return the name of a code as librdkafka prints it (rd_kafka_err2name).

    >>> error_name(-144), error_name(3), error_name(12345)
    ('_FENCED', 'UNKNOWN_TOPIC_OR_PART', 'ERR_12345?')
    """
    return _NAMES.get(code, f"ERR_{int(code)}?")


class _KafkaErrorCodes(type):
    """Lets ``KafkaError._FENCED`` and its like be read as class attributes, as in confluent-kafka.

    Kafka's own names are known too, next to librdkafka's: UNKNOWN_TOPIC_OR_PARTITION is UNKNOWN_TOPIC_OR_PART.
    """

    def __getattr__(cls, name: str) -> int:
        try:
            return _CODES[name]
        except KeyError:
            raise AttributeError(f"KafkaError has no error code {name!r}{did_you_mean(name, _CODES)}") from None

    def __dir__(cls) -> list[str]:
        """List the codes too, so that editors complete them."""
        return [*super().__dir__(), *_CODES]


_Text = str
"""`str`, where a method of that name hides it."""


_REASON_MAX: Final = 4_000
"""Characters: a reason may repeat what a caller has passed."""


@total_ordering
class KafkaError(Exception, metaclass=_KafkaErrorCodes):
    """One error with librdkafka's numeric code and its three flags.

    Compares equal to, and orders against, plain integers by its code (confluent_kafka.KafkaError). Methods raise it as
    the first argument of a KafkaException; a program may raise it by itself.
    """

    def __init__(
        self,
        error: int,
        reason: str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = index(error)  # a TypeError for text, as there
        self._reason = reason if reason is None or len(reason) <= _REASON_MAX else f"{reason[:_REASON_MAX]}…"
        self._fatal = fatal
        self._retriable = retriable
        self._txn_requires_abort = txn_requires_abort

    def code(self) -> int:
        """Return the numeric code."""
        return self._code

    def name(self) -> str:
        """Return the code's name, such as ``_FENCED`` or ``INVALID_TXN_STATE``."""
        return error_name(self._code)

    def str(self) -> str:
        """Return the reason in words; librdkafka's text of the code if no reason was given."""
        if self._reason is not None:
            return self._reason
        return text_of(self._code) or self.name()

    def fatal(self) -> bool:
        """Return True if the client can only be closed."""
        return self._fatal

    def retriable(self) -> bool:
        """Return True if the same call may be made again."""
        return self._retriable

    def txn_requires_abort(self) -> bool:
        """Return True if the transaction must be aborted and begun again."""
        return self._txn_requires_abort

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KafkaError):
            return self._code == other._code
        return self._code == other if isinstance(other, int) else NotImplemented

    def __lt__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code < code

    def __hash__(self) -> int:
        return hash(self._code)

    def __reduce__(self) -> tuple[Any, ...]:
        flags = (self._fatal, self._retriable, self._txn_requires_abort)
        return (type(self), (self._code, self._reason, *flags))

    def __str__(self) -> _Text:
        fatal = "FATAL," if self._fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self.str()}"}}'

    __repr__ = __str__


def _code_of(value: object) -> int | None:
    if isinstance(value, KafkaError):
        return value._code
    return value if isinstance(value, int) else None


class KafkaException(Exception):
    """Carries one KafkaError as ``args[0]``."""

    @property
    def error(self) -> KafkaError:
        """The KafkaError."""
        return self.args[0]  # type: ignore[no-any-return]


class ProducerFenced(KafkaException):
    """A newer producer of the transactional id, an administrator or a time-out ended this one (code 90 or _FENCED)."""


class TransactionAborted(KafkaException):
    """The open transaction cannot be committed: abort it and begin again."""


class ExpectationFailed(TransactionAborted):
    """A partition does not end where the transaction expects: nothing of it takes effect (`Producer.expect`).

    Abort it, read the records that were appended meanwhile, decide anew, and begin again.
    """


class CommandRefused(KafkaException):
    """A command that the state refuses; nothing was written. Clients add the flags of its code in their operation."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(KafkaError(code, reason))

    def __reduce__(self) -> tuple[object, ...]:
        return (CommandRefused, (self.error.code(), self.error.str()))


class StoreError(KafkaException):
    """A storage error; the message names the object and the fix."""

    kind: str = "store"
    code: ErrorCode = ErrorCode.LOCAL_FAIL
    retriable: bool = False
    fatal: bool = False

    def __init__(self, reason: str) -> None:
        super().__init__(KafkaError(self.code, reason, fatal=self.fatal, retriable=self.retriable))

    def __str__(self) -> str:
        return self.error.str()

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.error.str(),))


class StoreUnavailable(StoreError):
    """The object store did not answer in time; if not `transient`, it needs a hand first: space, a permission."""

    kind = "store_unavailable"
    code = ErrorCode.LOCAL_TRANSPORT
    retriable = True

    def __init__(self, reason: str, *, transient: bool = True) -> None:
        super().__init__(reason)
        self.transient = transient


class ClockSkewError(StoreUnavailable):
    """This machine's clock is far from the store's, so nothing was written: set it right, then call again."""

    kind = "clock_skew"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, transient=False)


class OutcomeUnknown(StoreError):
    """The deadline passed while an entry was neither won nor lost; the same call resolves it, nothing is deleted."""

    kind = "outcome_unknown"
    code = ErrorCode.LOCAL_TIMED_OUT
    retriable = True


class OutcomeLost(OutcomeUnknown):
    """The outcome of the request can no longer be found, also not by a repetition. Check the data, or start again.

    It takes a process that has slept through a vacuum with a request under way.
    """

    kind = "outcome_lost"
    code = ErrorCode.LOCAL_FAIL
    retriable = False


class StoreNotFound(StoreError):
    """There is no store at this URI."""

    kind = "store_not_found"
    code = ErrorCode.LOCAL_RESOLVE


class DamagedObject(StoreError):
    """An object is missing, truncated or altered, or a name in it leads outside the store's root."""

    kind = "damaged_object"
    code = ErrorCode.LOCAL_BAD_MSG

    def __init__(self, object_name: str, reason: str, store: str | None = None) -> None:
        self.object_name = object_name
        self.reason = reason
        self.store = store
        super().__init__(self._text())

    def _text(self) -> str:
        where = "" if self.store is None else f" in the store {self.store!r}"
        advice = f"txnlog verify {self.store or 'STORE'} names all that is damaged; restore it from a back-up"
        return f"object {self.object_name!r}{where} is damaged: {self.reason}: {advice}"

    def name_store(self, store: str) -> None:
        """Say in which store the object is: a decoder does not know it, and a reader does."""
        if self.store is None:
            self.store = store
            self.args = (KafkaError(self.code, self._text()),)

    def __reduce__(self) -> tuple[object, ...]:
        return (DamagedObject, (self.object_name, self.reason, self.store))


@contextmanager
def damage_named(store: str) -> Iterator[None]:
    """Name `store` in the DamagedObject that the block raises."""
    try:
        yield
    except DamagedObject as damaged:
        damaged.name_store(store)
        raise


class FormatVersionError(StoreError):
    """An object was written by a newer sparktxn, in a way that this version does not know: it is not damaged."""

    kind = "format_version"
    code = ErrorCode.UNSUPPORTED_VERSION

    def __init__(self, object_name: str, reason: str) -> None:
        self.object_name = object_name
        self.reason = reason
        super().__init__(f"object {object_name!r} {reason}: it was written by a newer sparktxn: upgrade")

    def __reduce__(self) -> tuple[object, ...]:
        return (FormatVersionError, (self.object_name, self.reason))


class ViewExpired(StoreError):
    """The read view is older than what retention and vacuum have kept."""

    kind = "view_expired"
    code = ErrorCode.OFFSET_OUT_OF_RANGE


class SegmentExpired(StoreError):
    """A staged segment was born below the segment floor: upload it again."""

    kind = "segment_expired"
    code = ErrorCode.KAFKA_STORAGE_ERROR
    retriable = True


class RetentionPassed(StoreError):
    """An offset that was asked for is below the partition's log start offset."""

    kind = "retention_passed"
    code = ErrorCode.OFFSET_OUT_OF_RANGE


class BatchRefused(StoreError):
    """A micro-batch of a superseded run or query, or with other content than the batch committed under its id."""

    kind = "batch_refused"
    code = ErrorCode.PRODUCER_FENCED
    fatal = True


class ConfigurationError(KafkaException, ValueError):
    """A setting, option, argument, name, URI or schema is wrong; nothing was written."""

    def __init__(self, reason: str, code: int = ErrorCode.LOCAL_INVALID_ARG) -> None:
        super().__init__(KafkaError(code, reason))

    def __str__(self) -> str:
        return self.error.str()

    def __reduce__(self) -> tuple[object, ...]:
        return (ConfigurationError, (self.error.str(), self.error.code()))


def extra_to_install(extra: str) -> str:
    """Return how the packages of an extra of this package are installed, as the end of an error.

    This is the one place that says it: the form holds for a checkout, and for a release.

    >>> extra_to_install("s3")
    "install sparktxn's extra 's3' (in a checkout: pip install '.[s3]')"
    """
    return f"install sparktxn's extra {extra!r} (in a checkout: pip install '.[{extra}]')"


_SUGGESTION_CUTOFF: Final = 0.6


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known name nearest to `word`, or ``""``.

    >>> did_you_mean("startingOffset", ["startingOffsets", "topic"])
    "; did you mean 'startingOffsets'?"
    """
    nearest = difflib.get_close_matches(word, sorted(known), n=1, cutoff=_SUGGESTION_CUTOFF)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def nearest_name(word: str, known: Iterable[str]) -> str:
    """Return what the refusal of an unknown setting ends with: the nearest known name, however far it is.

    >>> nearest_name("alignment", ["limit", "topic"])
    "; the nearest known name is 'limit'"
    """
    names = sorted(known)
    (nearest,) = difflib.get_close_matches(word, names, n=1, cutoff=0)
    return did_you_mean(word, names) or f"; the nearest known name is {nearest!r}"
