"""How values that users write become values of the program: settings, options of Spark, and options of the command.

A parser takes what its error begins with, such as ``setting 'acks'``, and a value or its text. Its docstring says what
it expects. Spaces around text do not count, and neither does the case of words. Times are in `times`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, SupportsFloat

from sparktxn.errors import ConfigurationError, did_you_mean
from sparktxn.values import arguments

__all__ = ["Parser", "boolean", "choice", "function", "identifier", "integer", "number", "path", "refusal", "text"]

Parser = Callable[[str, Any], Any]

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def refusal(named: str, value: object, expected: str) -> ConfigurationError:
    """Return the error for a value that is not what is expected."""
    return ConfigurationError(f"{named} is {arguments.shown(value)}: expected {expected}")


def integer(minimum: int, maximum: int) -> Parser:
    """Return a parser of whole numbers from `minimum` to `maximum`, also written as text."""
    expected = f"a whole number from {minimum} to {maximum}"

    def parse(named: str, value: Any) -> int:
        parsed = _whole_number(named, value)
        if parsed is None or not minimum <= parsed <= maximum:
            raise refusal(named, value, expected)
        return parsed

    parse.__doc__ = expected
    return parse


def _whole_number(named: str, value: Any) -> int | None:
    if isinstance(value, str):
        digits = str.strip(value)
        return int(digits) if _WHOLE_NUMBER.fullmatch(digits) else None
    try:
        return arguments.integer(named, value)
    except (TypeError, ValueError):
        return None


def number(minimum: float, maximum: float) -> Parser:
    """Return a parser of numbers from `minimum` to `maximum`, also written as text."""
    expected = f"a number from {minimum:g} to {maximum:g}"

    def parse(named: str, value: Any) -> float:
        # Python reads more than this, such as 1_0, digits of other scripts, and the texts of bytes.
        is_number = _NUMBER.fullmatch(str.strip(value)) if isinstance(value, str) else isinstance(value, SupportsFloat)
        if not is_number or isinstance(value, bool):
            raise refusal(named, value, expected)
        try:
            parsed = float(value)
        except (TypeError, ValueError, OverflowError):
            raise refusal(named, value, expected) from None
        if not minimum <= parsed <= maximum:
            raise refusal(named, value, expected)
        return parsed

    parse.__doc__ = expected
    return parse


def boolean(named: str, value: Any) -> bool:
    """true or false"""
    if not isinstance(value, str):
        try:
            return arguments.boolean(named, value)
        except TypeError:
            raise refusal(named, value, "true or false") from None
    lowered = str.lower(value).strip()
    if lowered not in ("true", "false"):
        raise refusal(named, value, "true or false")
    return lowered == "true"


def choice(*allowed: str) -> Parser:
    """Return a parser of one of a few words, whatever their case."""
    expected = "one of " + ", ".join(allowed)

    def parse(named: str, value: Any) -> str:
        word = str.lower(value).strip() if isinstance(value, str) else ""
        if word not in allowed:
            raise refusal(named, value, f"{expected}{did_you_mean(word, allowed)}")
        return word

    parse.__doc__ = expected
    return parse


def text(named: str, value: Any) -> str:
    """text"""
    if not isinstance(value, str):
        raise refusal(named, value, "text")
    try:
        return arguments.text(named, value)
    except ConfigurationError:
        raise refusal(named, value, "text that UTF-8 can hold, without halves of surrogate pairs") from None


def path(named: str, value: Any) -> str:
    """text"""
    return arguments.path(named, text(named, value))


def identifier(named: str, value: Any) -> str:
    """a name of at most 32767 bytes, as Kafka's protocol can carry"""
    try:
        return arguments.identifier(named, value, may_be_empty=True)
    except (TypeError, ConfigurationError) as error:
        raise ConfigurationError(str(error)) from None


def function(named: str, value: Any) -> Any:
    """a function"""
    if value is not None and not callable(value):
        raise refusal(named, value, "a function")
    return value
