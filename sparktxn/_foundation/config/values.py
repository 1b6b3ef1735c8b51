"""How values that users write, times among them, become values of the program: settings, and options.

A parser takes what its error begins with, such as ``setting 'acks'``, and a value or its text. Its docstring says what
it expects. Spaces around text do not count, and neither does the case of words. Times are in `times`.

Durations and sizes have one rule. A number without a unit has the unit that the setting's name says, as in Kafka:
``linger.ms``. Text may have a unit of its own, such as ``15m`` or ``64MiB``, and is converted exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, SupportsFloat
from zoneinfo import ZoneInfo

from msgspec import Struct

from sparktxn._foundation.values import arguments
from sparktxn.errors import ConfigurationError, did_you_mean

Parser = Callable[[str, Any], Any]

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_QUANTITY: Final = re.compile(r"([0-9]{1,19})\s*([A-Za-z]+)")


class Unit(Struct, frozen=True):
    """A unit that names of settings say. `lengths` are those of all words for units of its kind.

    A length is in milliseconds or in bytes. `examples` are for errors.
    """

    name: str
    length: int
    lengths: Mapping[str, int]
    examples: str

    def count(self, quantity: str) -> int | None:
        """Return how many of this unit a text such as ``15m`` means; None for other texts, and where that is not whole.

        >>> MINUTES.count("2h"), MINUTES.count("90 s"), MINUTES.count("2")
        (120, None, None)
        """
        found = _QUANTITY.fullmatch(str.strip(quantity))
        length = self.lengths.get(found[2].lower()) if found else None
        if found is None or length is None:
            return None
        count, rest = divmod(int(found[1]) * length, self.length)
        return None if rest else count


def _by_word(lengths: Mapping[str, int]) -> dict[str, int]:
    return {word: length for words, length in lengths.items() for word in words.split()}


_DURATIONS: Final = _by_word(
    {
        "ms millisecond milliseconds": 1,
        "s sec secs second seconds": 1_000,
        "m min mins minute minutes": 60_000,
        "h hour hours": 3_600_000,
        "d day days": 86_400_000,
        "week weeks": 604_800_000,
    }
)
# As Spark's byte strings: each unit has 1,024 of the one before it, whatever its spelling.
_SIZES: Final = _by_word({"b": 1} | {f"{unit} {unit}b {unit}ib": 1_024**power for power, unit in enumerate("kmgt", 1)})

MILLISECONDS: Final = Unit("milliseconds", 1, _DURATIONS, "500ms, 30s, 15m, 1h or 7d")
MINUTES: Final = Unit("minutes", 60_000, _DURATIONS, "15m, 1h or 7d")
BYTES: Final = Unit("bytes", 1, _SIZES, "512KiB, 64MiB or 1GiB")
KIBIBYTES: Final = Unit("KiB", 1_024, _SIZES, "512KiB, 64MiB or 1GiB")


def refusal(named: str, value: object, expected: str) -> ConfigurationError:
    """Return the error for a value that is not what is expected."""
    return ConfigurationError(f"{named} is {arguments.shown(value)}: expected {expected}")


def integer(minimum: int, maximum: int, unit: Unit | None = None) -> Parser:
    """Return a parser of whole numbers from `minimum` to `maximum`, also written as text; of a unit if one is given."""
    return _numbers("a whole number", _whole_number, minimum, maximum, unit)


def number(minimum: float, maximum: float, unit: Unit | None = None) -> Parser:
    """Return a parser of numbers from `minimum` to `maximum`, also written as text; of a unit if one is given."""
    return _numbers("a number", _number, minimum, maximum, unit)


def _numbers(
    kind: str, without_unit: Callable[[Any], float | None], minimum: float, maximum: float, unit: Unit | None
) -> Parser:
    bounds = f"from {minimum} to {maximum}"
    expected = f"{kind} {bounds}" if unit is None else f"{kind} of {unit.name} {bounds}"
    or_with_unit = "" if unit is None else f", or one with a unit, such as {unit.examples}"

    def parse(named: str, value: Any) -> float:
        parsed: float | None = unit.count(value) if unit is not None and isinstance(value, str) else None
        if parsed is None:
            parsed = without_unit(value)
        if parsed is None or not minimum <= parsed <= maximum:
            raise refusal(named, value, expected + or_with_unit)
        return parsed

    parse.__doc__ = expected
    return parse


def _whole_number(value: Any) -> int | None:
    if isinstance(value, str):
        digits = str.strip(value)
        return int(digits) if _WHOLE_NUMBER.fullmatch(digits) else None
    try:
        return arguments.integer("value", value)
    except (TypeError, ValueError):
        return None


def _number(value: Any) -> float | None:
    # Python reads more than this, such as 1_0, digits of other scripts, and the texts of bytes.
    is_number = _NUMBER.fullmatch(str.strip(value)) if isinstance(value, str) else isinstance(value, SupportsFloat)
    if not is_number or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


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


# Times as users write them: milliseconds since 1970, text, and ``15m`` or ``-10 minutes`` ago.
#
# One syntax for the options of Spark and for the command. Only a time without a zone differs: the command takes UTC.
# An option's text has its zone with it, because Spark does not pass the session's on.

_TIME: Final = re.compile(r"[0-9]{1,19}")
_AGO: Final = re.compile(r"\s*-\s*[0-9]+\s*[a-zA-Z]|\s*[0-9]+\s*[a-zA-Z]+\s*$")
_ZONE_NAME: Final = re.compile(r"(?P<time>.*[0-9])\s*\[?(?P<zone>[A-Za-z_]+(/[A-Za-z0-9_+-]+)*)\]?", re.DOTALL)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXPECTED: Final = (
    "milliseconds since 1970, a time such as 2024-05-01T12:00:00Z, or a time before now such as -10 minutes or 15m"
)


class TimeAgo(Struct, frozen=True):
    """A time before the moment at which a read is made."""

    ago_ms: int


Time = int | TimeAgo
"""Milliseconds since 1970, or a time before now."""


def is_relative(value: str) -> bool:
    """Return True if `value` is a time before now, such as ``-10 minutes`` or ``15m``."""
    return _AGO.match(value) is not None


def parse_time_ago(named: str, value: str) -> TimeAgo:
    """Return the time before now that a text says, such as ``-10 minutes`` or ``15m``.

    Raises:
        ConfigurationError: it is none.
    """
    ago_ms = MILLISECONDS.count(value.strip().removeprefix("-")) if is_relative(value) else None
    if ago_ms is None or ago_ms > arguments.INT64_MAX:
        raise refusal(named, value, "a time before now such as -10 minutes, 2h or 1d")
    return TimeAgo(ago_ms)


def parse_time(named: str, value: str, zone: tzinfo | None = None) -> Time:
    """Return the time that a text says; one without a zone is in `zone`.

    Raises:
        ConfigurationError: it is neither a whole number of milliseconds from 0, nor a time before now, nor a time from
            1970 on. A time needs a zone of its own where `zone` is None.
    """
    if is_relative(value):
        return parse_time_ago(named, value)
    if _TIME.fullmatch(value.strip()) and int(value) <= arguments.INT64_MAX:
        return int(value)
    found = _datetime_of(value.strip())
    if found is None:
        raise refusal(named, value, _EXPECTED)
    if found.tzinfo is None:
        found = found.replace(tzinfo=zone)
    if found.tzinfo is None:
        raise ConfigurationError(
            f"{named} is {arguments.shown(value)}, a time without a zone: add one, as in "
            f"{value.strip()}Z or {value.strip()} Europe/Berlin. The session's time zone is not known here"
        )
    milliseconds = (found - _EPOCH) // timedelta(milliseconds=1)
    if milliseconds < 0:
        raise ConfigurationError(f"{named} is {arguments.shown(value)}, before 1970: expected {_EXPECTED}")
    return milliseconds


def _datetime_of(text: str) -> datetime | None:
    """Return the time in ISO 8601, or in Spark's form of it with the name of a zone; None if it is neither."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        named = _ZONE_NAME.fullmatch(text)
    if named is None:
        return None
    try:
        time, zone = datetime.fromisoformat(named["time"]), ZoneInfo(named["zone"])
    except (ValueError, KeyError, OSError):  # which of these zoneinfo raises for an unknown zone depends on its name
        return None
    return time.replace(tzinfo=zone) if time.tzinfo is None else None


def absolute_ms(time: Time, now_ms: int) -> int:
    """Return `time` in milliseconds since 1970, at least 0."""
    return max(0, now_ms - time.ago_ms) if isinstance(time, TimeAgo) else time
