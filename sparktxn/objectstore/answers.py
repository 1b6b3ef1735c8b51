"""What a store's answer to a put means: one table, for all clouds and for local disks.

The answer alone does not decide whether the object can be there. A client below may have sent the request before, and
got no answer to that: see `RemoteStore.put_if_absent`.
"""

from __future__ import annotations

import errno
from enum import Enum
from typing import Final

__all__ = ["NEEDS_A_HAND", "PutAnswer", "meaning_of"]


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
