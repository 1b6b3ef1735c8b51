"""What an administrator's call has come to, as an answer says it: Kafka's code and a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from sparktxn._programs.gateway.wire.wirecodes import code_of, message_of
from sparktxn.admin import KafkaException
from sparktxn.errors import ErrorCode

_Key = TypeVar("_Key", bound=Hashable)


class Outcome(NamedTuple):
    """A code, which is 0 where all went well; the reason for any other; and what the call returned."""

    code: int
    message: str | None = None
    result: Any = None

    @property
    def said(self) -> dict[str, Any]:
        """The members of an answer that say it."""
        return {"error_code": self.code, "error_message": self.message}


DONE: Final = Outcome(0)


def refused(code: int, message: str) -> Outcome:
    """Return the outcome of what was not tried."""
    return Outcome(int(code), message)


def given_twice(
    what: str, keys: Iterable[_Key], name_of: Callable[[_Key], object] = lambda key: key
) -> dict[_Key, Outcome]:
    """Return the outcomes of what a request has more than once, by key: none of it is tried."""
    twice = [key for key, count in Counter(keys).items() if count > 1]
    return {key: refused(ErrorCode.INVALID_REQUEST, f"{what} {name_of(key)!r} is given twice") for key in twice}


def of_error(error: Exception) -> Outcome:
    """Return the outcome of a call that raised an error; one of Python's says that a client's value was wrong."""
    if isinstance(error, KafkaException):
        return Outcome(code_of(error), message_of(error))
    if isinstance(error, TypeError | ValueError):
        return Outcome(int(ErrorCode.INVALID_REQUEST), str(error))
    raise error


def outcome_of(call: Callable[[], Future[Any] | Mapping[Any, Future[Any]]]) -> Outcome:
    """Return the outcome of a call of `AdminClient` about one thing; it may also refuse a client's value at once."""
    try:
        found = call()
    except (TypeError, ValueError) as error:
        return of_error(error)
    (future,) = (found,) if isinstance(found, Future) else found.values()
    failed = future.exception()
    if failed is None:
        return Outcome(0, None, future.result())
    if not isinstance(failed, Exception):
        raise failed
    return of_error(failed)
