"""What a failed command prints: one line with the fix, and an exit code."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from typing import Any, Final

import typer

from sparktxn._foundation.config import values
from sparktxn._foundation.config.values import Unit
from sparktxn._foundation.values.quantities import duration_text, size_text, time_text
from sparktxn.errors import ConfigurationError, ErrorCode, KafkaException, StoreNotFound

# Values as text: times, progress, and names that a terminal must not take for commands.


def printable(text: str) -> str:
    r"""Return `text` with control characters and halves of surrogate pairs as escapes.

    >>> printable("a\x1b[31mb\n")
    'a\\x1b[31mb\\n'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def progress_text(done_bytes: int, total_bytes: int, passed_s: float) -> str:
    """Return how much of a job is done, its rate, and, from its second second on, the time that is left.

    >>> progress_text(1_048_576, 4_194_304, 2.0)
    '1.0 MiB of 4.0 MiB, 512.0 KiB/s, 6 s left'
    """
    # What came while the job ran may make it larger than it was planned.
    text = f"{size_text(done_bytes)} of {size_text(max(done_bytes, total_bytes))}"
    if passed_s < 1 or not done_bytes:
        return text
    rate = done_bytes / passed_s
    left_ms = round(max(0, total_bytes - done_bytes) / rate) * 1_000
    return f"{text}, {size_text(rate)}/s, {duration_text(left_ms) if left_ms else '0 s'} left"


def value_text(name: str, value: Any) -> str:
    """Return a value as people read it; the name of its member says what it is."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if name.endswith("timestamp_ms"):
            return time_text(value)
        return duration_text(value) if name.endswith("_ms") and value >= 0 else str(value)
    if isinstance(value, dict):
        return ", ".join(f"{printable(str(key))}={value_text(str(key), item)}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(value_text("", item) for item in value) or "-"
    return printable(str(value)) or "''"


FAILED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130

_HINTS: Final[dict[int, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "txnlog topics list shows the topics",
    ErrorCode.LOCAL_UNKNOWN_TOPIC: "txnlog topics list shows the topics",
    ErrorCode.TOPIC_ALREADY_EXISTS: "--if-not-exists accepts a topic that exists",
    ErrorCode.GROUP_ID_NOT_FOUND: "txnlog groups list shows the groups",
    ErrorCode.NON_EMPTY_GROUP: "stop its consumers first; txnlog groups describe shows them",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "txnlog transactions list shows the transactional ids",
}
"""The command that helps, by the code of an error."""


class WrongUsage(Exception):
    """The command line is wrong; the text says what was expected."""


def quantity(option: str, text: str, unit: Unit, minimum: int = 0, maximum: int = 2**53) -> int:
    """Return how many of `unit` an option is given. Its name says no unit, so the text must, as in ``15m``.

    Raises:
        WrongUsage: the text has another form, or is not from `minimum` to `maximum`.
    """
    count = unit.count(text)
    if count is None:
        raise WrongUsage(f"{option} is {text!r}: expected a whole number with its unit, such as {unit.examples}")
    if not minimum <= count <= maximum:
        raise WrongUsage(f"{option} is {text!r}: expected {minimum} to {maximum} {unit.name}")
    return count


def time_ms(option: str, text: str, now_ms: int) -> int:
    """Return the time that was given with an option, in milliseconds since 1970; one without a zone is UTC.

    Raises:
        WrongUsage: it has another form.
    """
    try:
        return values.absolute_ms(values.parse_time(option, text, UTC), now_ms)
    except ConfigurationError as error:
        raise WrongUsage(str(error)) from None


def report(error: BaseException, *, debug: bool) -> int:
    """Print an error as one line on standard error, with its trace if `debug`; return the exit code."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    text, code = _line(error)
    sys.stderr.write(f"txnlog: {printable(' '.join(text.split()))}\n")
    return code


@contextmanager
def warnings_in_lines(*, debug: bool) -> Iterator[None]:
    """Print what the package logs as one line each while the body runs, with traces if `debug`.

    A process that has handlers of its own for the package's messages keeps them.
    """
    package = logging.getLogger("sparktxn")
    if package.hasHandlers():
        yield
        return
    handler = _Lines(debug=debug)
    package.addHandler(handler)
    try:
        yield
    finally:
        package.removeHandler(handler)


class _Lines(logging.Handler):
    """Prints messages on the standard error of the moment."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__(logging.WARNING)
        self._debug = debug

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message, and after it the last line of its error."""
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            text = f"{text}: {error}"
            if self._debug:
                traceback.print_exception(error, file=sys.stderr)
        sys.stderr.write(f"txnlog: {record.levelname.lower()}: {printable(' '.join(text.split()))}\n")


def _line(error: BaseException) -> tuple[str, int]:
    if isinstance(error, WrongUsage):
        return str(error), WRONG_USAGE
    if isinstance(error, typer.TyperException):
        return f"{error.format_message().rstrip('.')}: see {_path(error)} --help", WRONG_USAGE
    if isinstance(error, StoreNotFound):
        where, separator, _ = str(error).partition(": create one")
        if not separator:
            return where, FAILED
        return f"{where}: check --store, or create it with its first topic: txnlog topics create NAME", FAILED
    if isinstance(error, KafkaException):
        hint = _HINTS.get(error.error.code())
        # A call of the library's, where the command has one that does it.
        text = error.error.str().partition("; AdminClient.")[0]
        return f"{text}: {hint}" if hint else text, WRONG_USAGE if isinstance(error, ConfigurationError) else FAILED
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", FAILED
    return f"{type(error).__name__}: {error}: run it again with --debug to see where", FAILED


def _path(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return "txnlog" if context is None else str(context.command_path)
