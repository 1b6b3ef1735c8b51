"""What a store's answer to a put means: in doubt, that nothing is known."""

from __future__ import annotations

import pytest

from sparktxn._engine.objectstore.contract import PutAnswer, meaning_of

TABLE = """
403 AccessDenied                    REFUSED
403 AllAccessDisabled               REFUSED
403 InvalidAccessKeyId              REFUSED
403 SignatureDoesNotMatch           REFUSED
403 QuotaExceeded                   REFUSED
403 AuthorizationPermissionMismatch REFUSED
403 forbidden                       REFUSED
400 XMinioAdminBucketQuotaExceeded  REFUSED
507 XMinioStorageFull               REFUSED
404 NoSuchBucket                    REFUSED
404 ContainerNotFound               REFUSED
405 MethodNotAllowed                REFUSED
403 RequestTimeTooSkewed            REFUSED_FOR_NOW
403 AuthenticationFailed            REFUSED_FOR_NOW
403 rateLimitExceeded               REFUSED_FOR_NOW
400 ExpiredToken                    REFUSED_FOR_NOW
400 InvalidToken                    REFUSED_FOR_NOW
400 TokenRefreshRequired            REFUSED_FOR_NOW
401 authError                       REFUSED_FOR_NOW
412 PreconditionFailed              TAKEN
409 BlobAlreadyExists               TAKEN
409 ConditionalRequestConflict      UNANSWERED
409 OperationAborted                UNANSWERED
400 BadDigest                       UNANSWERED
400 RequestTimeout                  UNANSWERED
408 RequestTimeout                  UNANSWERED
429 TooManyRequests                 UNANSWERED
403 -                               UNANSWERED
404 -                               UNANSWERED
500 InternalError                   UNANSWERED
500 AccessDenied                    UNANSWERED
503 SlowDown                        UNANSWERED
200 InternalError                   UNANSWERED
0   AccessDenied                    UNANSWERED
0   -                               UNANSWERED
"""


@pytest.mark.parametrize(("status", "code", "meaning"), [line.split() for line in TABLE.split("\n") if line])
def test_what_an_answer_means(status: str, code: str, meaning: str) -> None:
    assert meaning_of(int(status), code.removeprefix("-")) is PutAnswer[meaning]
