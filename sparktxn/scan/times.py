"""Times and durations as options say them: milliseconds since 1970, text, ``-10 minutes``, and Spark's ``15m``.

A time in text has its zone with it. Spark does not pass the session's time zone on to the process that reads options.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from sparktxn import arguments
from sparktxn.errors import ConfigurationError

__all__ = ["Time", "TimeAgo", "absolute_ms", "is_relative", "parse_duration_ms", "parse_time", "parse_time_ago"]

_MS_BY_UNIT: Final = {
    "ms": 1,
    "s": 1_000,
    "sec": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_DURATION: Final = re.compile(r"([0-9]{1,19})\s*([a-z]*)")
_TIME: Final = re.compile(r"[0-9]{1,19}")
_ZONE_NAME: Final = re.compile(r"(?P<time>.*[0-9])\s*\[?(?P<zone>[A-Za-z_]+(/[A-Za-z0-9_+-]+)*)\]?", re.DOTALL)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXPECTED: Final = (
    "expected milliseconds since 1970, a time such as 2024-05-01T12:00:00Z, or a time before now such as -10 minutes"
)


class TimeAgo(Struct, frozen=True):
    """A time before the moment at which a read is made."""

    ago_ms: int


Time = int | TimeAgo
"""Milliseconds since 1970, or a time before now."""


def parse_duration_ms(name: str, value: str) -> int:
    """Return the milliseconds of a duration such as ``15m``; a number without a unit is in milliseconds.

    Raises:
        ConfigurationError: it is no duration, or longer than 2**63 - 1 milliseconds.
    """
    duration_ms = _duration_ms(value)
    if duration_ms is None:
        raise ConfigurationError(
            f"option {name!r} is {arguments.shown(value)}: expected a duration such as 30s, 15m, 1h or 2d"
        )
    return duration_ms


def _duration_ms(value: str) -> int | None:
    found = _DURATION.fullmatch(value.strip().lower())
    if found is None:
        return None
    number, unit = found.groups()
    unit_ms = 1 if not unit else _MS_BY_UNIT.get(unit) or _MS_BY_UNIT.get(unit.removesuffix("s"))
    if unit_ms is None or int(number) * unit_ms > arguments.INT64_MAX:
        return None
    return int(number) * unit_ms


def is_relative(value: str) -> bool:
    """Return whether `value` is a time before now, such as ``-10 minutes``."""
    return re.match(r"\s*-\s*[0-9]+\s*[a-zA-Z]", value) is not None


def parse_time_ago(name: str, value: str) -> TimeAgo:
    """Return the time before now of an option's text, such as ``-10 minutes``.

    Raises:
        ConfigurationError: it is none.
    """
    ago_ms = _duration_ms(value.strip()[1:]) if is_relative(value) else None
    if ago_ms is None:
        raise ConfigurationError(
            f"option {name!r} is {arguments.shown(value)}: expected a time before now such as -10 minutes, -2h or -1d"
        )
    return TimeAgo(ago_ms)


def parse_time(name: str, value: str) -> Time:
    """Return the time of an option's text.

    Raises:
        ConfigurationError: it is neither a whole number of milliseconds from 0, nor a time with its zone from 1970 on,
            nor a time before now.
    """
    if is_relative(value):
        return parse_time_ago(name, value)
    if _TIME.fullmatch(value.strip()) and int(value) <= arguments.INT64_MAX:
        return int(value)
    found = _datetime_of(value.strip())
    if found is None:
        raise ConfigurationError(f"option {name!r} is {arguments.shown(value)}: {_EXPECTED}")
    if found.tzinfo is None:
        raise ConfigurationError(
            f"option {name!r} is {arguments.shown(value)}, a time without a zone: add one, as in "
            f"{value.strip()}Z or {value.strip()} Europe/Berlin. The session's time zone is not known here"
        )
    milliseconds = (found - _EPOCH) // timedelta(milliseconds=1)
    if milliseconds < 0:
        raise ConfigurationError(f"option {name!r} is {arguments.shown(value)}, before 1970: {_EXPECTED}")
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
    except (ValueError, KeyError, OSError):  # what zoneinfo raises for a zone that is not known depends on its name
        return None
    return time.replace(tzinfo=zone) if time.tzinfo is None else None


def absolute_ms(time: Time, now_ms: int) -> int:
    """Return `time` in milliseconds since 1970, at least 0."""
    return max(0, now_ms - time.ago_ms) if isinstance(time, TimeAgo) else time
