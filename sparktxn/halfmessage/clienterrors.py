"""RocketMQ 5's exceptions, and which of them an error of the store becomes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Final

from sparktxn.errors import (
    ConfigurationError,
    ErrorCode,
    KafkaError,
    KafkaException,
    OutcomeUnknown,
    StoreNotFound,
    StoreUnavailable,
)

__all__ = [
    "BadRequestException",
    "ClientException",
    "ForbiddenException",
    "IllegalArgumentException",
    "IllegalStateException",
    "InternalErrorException",
    "NotFoundException",
    "PayloadEmptyException",
    "PayloadTooLargeException",
    "ProxyTimeoutException",
    "UnsupportedException",
    "as_client_errors",
]


class ClientException(KafkaException):
    """RocketMQ 5's base of all errors: a message, and RocketMQ's code."""

    _default_code: ClassVar[int] = 50_001
    _kafka_code: ClassVar[int] = ErrorCode.LOCAL_FAIL

    def __init_subclass__(cls, *, code: int | None = None, kafka: int | None = None) -> None:
        """Give a kind of error RocketMQ's code for it, and Kafka's; else it has its base's."""
        super().__init_subclass__()
        cls._default_code = cls._default_code if code is None else code
        cls._kafka_code = cls._kafka_code if kafka is None else kafka

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(KafkaError(self._kafka_code, message))
        self.code = self._default_code if code is None else code

    @property
    def message(self) -> str:
        """What was wrong."""
        return self.error.str()

    def __str__(self) -> str:
        return f"{self.code}, {self.error.str()}"

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.error.str(), self.code))


class BadRequestException(ClientException, code=40_000, kafka=ErrorCode.INVALID_REQUEST):
    """The store refuses the request: of a settlement, the half message was settled otherwise."""


class ForbiddenException(ClientException, code=40_300, kafka=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """The topic, or the client's settings, take no half messages."""


class NotFoundException(ClientException, code=40_400, kafka=ErrorCode.LOCAL_UNKNOWN_TOPIC):
    """The topic, or the half message, does not exist."""


class PayloadTooLargeException(ClientException, code=41_300, kafka=ErrorCode.MESSAGE_TOO_LARGE):
    """The body is too large."""


class PayloadEmptyException(ClientException, code=40_012, kafka=ErrorCode.LOCAL_INVALID_ARG):
    """The message has no body."""


class InternalErrorException(ClientException, code=50_001, kafka=ErrorCode.LOCAL_FAIL):
    """The store cannot be read or written."""


class ProxyTimeoutException(ClientException, code=50_400, kafka=ErrorCode.LOCAL_TIMED_OUT):
    """The store did not answer in time: the request may have taken effect; make it again."""


class UnsupportedException(ClientException, code=50_501, kafka=ErrorCode.UNSUPPORTED_VERSION):
    """This version cannot do what was asked for."""


class IllegalArgumentException(ClientException, ValueError, code=40_010, kafka=ErrorCode.LOCAL_INVALID_ARG):
    """An argument, or the order of calls, is wrong; nothing was written."""


class IllegalStateException(ClientException, code=40_011, kafka=ErrorCode.LOCAL_STATE):
    """The client is not started, or is shut down."""


_BY_CODE: Final[dict[int, type[ClientException]]] = {
    ErrorCode.MESSAGE_TOO_LARGE: PayloadTooLargeException,
    ErrorCode.LOCAL_UNKNOWN_TOPIC: NotFoundException,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: NotFoundException,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: NotFoundException,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ForbiddenException,
    ErrorCode.INVALID_TOPIC: IllegalArgumentException,
    ErrorCode.INVALID_REQUEST: BadRequestException,
    ErrorCode.INVALID_TXN_STATE: BadRequestException,
}


@contextmanager
def as_client_errors() -> Iterator[None]:
    """Turn the store's errors into RocketMQ's; the store's own error is the cause.

    Raises:
        ClientException: the body has raised an error of the store.
    """
    try:
        yield
    except ClientException:
        raise
    except (OutcomeUnknown, StoreUnavailable) as error:
        raise ProxyTimeoutException(error.error.str()) from error
    except StoreNotFound as error:
        raise NotFoundException(error.error.str()) from error
    except ConfigurationError as error:
        raise IllegalArgumentException(error.error.str()) from error
    except KafkaException as error:
        kind = _BY_CODE.get(error.error.code(), InternalErrorException)
        raise kind(error.error.str()) from error
