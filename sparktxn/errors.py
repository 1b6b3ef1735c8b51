"""Errors: Kafka's codes and flags, and the store's own errors.

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

from sparktxn.values import errorcodes

__all__ = [
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
]


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
_CODES: Final = _OWN_NAMES | errorcodes.CODES
_NAMES: Final = {code: name for name, code in _OWN_NAMES.items()} | errorcodes.NAMES


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
        return errorcodes.text_of(self._code) or self.name()

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
