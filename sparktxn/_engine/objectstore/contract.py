"""The one contract of object stores, and what their answers mean.

A store keeps immutable bytes under names (`format/names.py`). Creating a name has three outcomes, and none of them may
be taken for another. Clients below us retry on their own, so EXISTS may be our own object, and an error after sending
proves nothing. A writer that needs to know reads the object back and compares its token (PROTOCOL.md, "Won, lost,
unknown").
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Final, NamedTuple, Protocol, runtime_checkable

from sparktxn._foundation.process.clock import governing_deadline, time_left_s
from sparktxn.errors import StoreUnavailable

OBJECT_SIZE_MAX: Final = 48 * 1024 * 1024
"""Above this, clients split a put into parts, where some of them drop the condition."""

# No part is "." or "..", and no file begins with a dot: stores may use such files for their own ends.
_FOLDERS: Final = r"(?:(?!\.{1,2}/)[A-Za-z0-9._=-]+/)*"
_OBJECT_NAME = re.compile(_FOLDERS + r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*")
_PREFIX = re.compile(_FOLDERS + r"(?!\.{1,2}\Z)[A-Za-z0-9._=-]*")


class PutOutcome(Enum):
    """What is known after a put-if-absent."""

    CREATED = "created"
    """The object did not exist, and now holds our bytes."""
    EXISTS = "exists"
    """The name is taken, perhaps by our own earlier attempt."""
    UNKNOWN = "unknown"
    """Nothing is known: read the name."""


class ObjectInfo(NamedTuple):
    """One object of a listing; `modified_ms` is by the store's clock."""

    name: str
    size_bytes: int
    modified_ms: int


class ObjectReader(Protocol):
    """Objects under one root, to be read whole. Both methods may raise StoreUnavailable."""

    uri: str
    """The root's address, with no secrets in it."""

    def get(self, name: str) -> bytes | None:
        """Return the object's bytes, or None if it does not exist; never part of them."""

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        """Return `get` of each name, in parallel where that helps."""


class ObjectStore(ObjectReader, Protocol):
    """Objects under one root. Every method may raise StoreUnavailable; names are relative to the root.

    No request begins once a deadline that governs the thread has passed (`check_time`), and a store that waits for
    answers waits no longer than that deadline.

    Safe for use by several threads. Not usable in a forked child, never pickled: open it again from its URI.
    """

    probe_is_cheap: bool
    """True if a `get` of an absent name costs far less than a failed put: a writer then looks before it puts."""

    def get_range(self, name: str, start: int, end: int) -> bytes | None:
        """Return bytes `start` (inclusive) to `end` (exclusive, clipped) of the object; None if it does not exist."""

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        """Create the object if the name is free. Never empty, at most 48 MiB, and never visible in part.

        After CREATED the object survives a power cut if the store was opened with fsync. A failure that may have come
        after the object landed is UNKNOWN; StoreUnavailable says that nothing can have landed. Answers within about
        `timeout_s`.
        """

    def put(self, name: str, data: bytes) -> None:
        """Write the object, over an older one: only for hints and signs of life, which decide nothing."""

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """Return all objects whose name starts with `prefix`, by name; folders below it included. Never from a cache.

        Only names that sort after `after`, where it is given, which is not the name of a folder. They cost no more
        requests than their number asks for, if the store can list so.
        """

    def list_names(self, folder: str, after: str = "") -> Sequence[str]:
        """List the names directly in `folder` (which ends with ``/``), in any order: the cheapest listing.

        Only names that sort after `after`, a name in `folder`. Where they are few, the listing costs one request,
        however many names are before.
        """

    def delete(self, names: Iterable[str]) -> None:
        """Delete the objects; absent ones are not an error."""

    def make_durable(self, name: str) -> None:
        """Make the object's name survive a power cut, where `put_if_absent` by another process may not have yet."""

    def contention_lock(self, while_waiting: Callable[[], None] | None = None) -> AbstractContextManager[None]:
        """Return an advisory lock that may order local writers; correctness never depends on it.

        `while_waiting` is called now and then while another process holds it; what it raises ends the wait.
        """

    def close(self) -> None:
        """Free connections; calling twice is harmless."""


@runtime_checkable
class BatchStore(Protocol):
    """What a store has in addition that creates several objects for less than one after the other."""

    def put_each_if_absent(self, objects: Sequence[tuple[str, bytes]]) -> list[PutOutcome]:
        """Return `put_if_absent` of each (name, bytes), in order; after an error any of them may have been created."""


@runtime_checkable
class FolderStore(Protocol):
    """What a store of files has in addition to objects, and maintenance tidies up."""

    def remove_folders(self, folders: Iterable[str]) -> None:
        """Remove those of the folders that exist and are empty; a writer that needs one makes it again."""

    def temporary_files(self) -> Mapping[str, int]:
        """Return files that puts have not finished, and when each was last written, by the store's clock."""

    def remove_temporary(self, files: Iterable[str]) -> None:
        """Remove such files; a put that is still at work on one fails without having created anything."""


def checked_object_name(name: str) -> str:
    """Return `name`, if it stays inside the root.

    Raises:
        ValueError: it is absolute, climbs, ends with a slash, has odd characters, or its file begins with a dot.
    """
    if not _OBJECT_NAME.fullmatch(name):
        raise ValueError(f"object name {name!r} is not a name inside the store")
    return name


def checked_prefix(prefix: str) -> str:
    """Return `prefix`, if all names that begin with it stay inside the root.

    Raises:
        ValueError: they would not.
    """
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"object prefix {prefix!r} is not inside the store")
    return prefix


def checked_data(name: str, data: bytes) -> bytes:
    """Return `data`, if it can be put in one piece.

    Raises:
        ValueError: it is empty (some clients then drop the condition) or above OBJECT_SIZE_MAX.
    """
    if not 0 < len(data) <= OBJECT_SIZE_MAX:
        raise ValueError(f"object {name!r} would have {len(data)} bytes: expected 1 to {OBJECT_SIZE_MAX}")
    return data


class NotSent(StoreUnavailable):
    """A request that was not begun, since the time of its call is up: this says nothing of the store."""


def check_time(verb: str, what: str) -> None:
    """Let a request begin only if the call that makes it has time left.

    Raises:
        NotSent: a deadline that governs this thread has passed.
    """
    if time_left_s() == 0.0:
        deadline = governing_deadline()
        seconds = deadline.seconds if deadline is not None else None
        raise NotSent(f"cannot {verb} {what!r}: {no_time(seconds)}; nothing was sent")


def no_time(seconds: float | None) -> str:
    """Say that the time of a call is up."""
    return "its caller has given up" if seconds is None else f"the call's time-out of {seconds:g} s has passed"


# What a store's answer to a put means: one table, for all clouds and for local disks.
#
# The answer alone does not decide whether the object can be there. A client below may have sent the request before,
# and got no answer to that: see `RemoteStore.put_if_absent`.


class PutAnswer(Enum):
    """The kinds of answers to a put that has failed."""

    TAKEN = "the name is taken"
    REFUSED = "this request has written nothing, and neither will the next: a right, space or the bucket is missing"
    REFUSED_FOR_NOW = "this request has written nothing, and a later one may: credentials or a clock are renewed"
    UNANSWERED = "nothing is known: it may have been written"


_TAKEN: Final = frozenset({"PreconditionFailed", "BlobAlreadyExists"})

_FOR_NOW: Final = frozenset(
    # S3: the clock, and credentials that a role or a file renews.
    {"RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"}
    | {"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired", "TokenExpired"}
    # Azure: a signature that has expired, or a clock that is off.
    | {"AuthenticationFailed", "InvalidAuthenticationInfo", "ExpiredAuthenticationToken"}
    # Google: credentials; and 403 for requests that are too frequent.
    | {"expired", "rateLimitExceeded", "userRateLimitExceeded"}
)
_REFUSED: Final = frozenset(
    {"AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccountProblem"}
    | {"NoSuchBucket", "ContainerNotFound", "InvalidBucketName", "MethodNotAllowed", "InvalidObjectState"}
    | {"QuotaExceeded", "quotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull"}
)
_REFUSED_STATUS: Final = frozenset({403, 404, 405, 507})

NEEDS_A_HAND: Final = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    }
)
"""Errors of a local disk that stay until an administrator makes room, or gives a permission."""


def meaning_of(status: int, code: str) -> PutAnswer:
    """Return what an answer of HTTP to a put means; in doubt that nothing is known.

    >>> meaning_of(403, "AccessDenied").name, meaning_of(403, "ExpiredToken").name, meaning_of(500, "").name
    ('REFUSED', 'REFUSED_FOR_NOW', 'UNANSWERED')

    Args:
        status: the status of HTTP; 0 if there is no answer.
        code: the store's own code, or empty.
    """
    if status == 412 or code in _TAKEN:
        return PutAnswer.TAKEN
    # An answer without a code may be that of a proxy, which knows nothing of the store.
    if not code or (not 400 <= status < 500 and status != 507):
        return PutAnswer.UNANSWERED
    if code in _FOR_NOW or status == 401:
        return PutAnswer.REFUSED_FOR_NOW
    if code in _REFUSED or status in _REFUSED_STATUS:
        return PutAnswer.REFUSED
    return PutAnswer.UNANSWERED
