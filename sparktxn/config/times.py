"""Times as users write them: milliseconds since 1970, text, and ``15m`` or ``-10 minutes`` ago.

One syntax for the options of Spark and for the command. Only a time without a zone differs: the command takes UTC. An
option's text has its zone with it, because Spark does not pass the session's on.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from sparktxn.config.values import MILLISECONDS, refusal
from sparktxn.errors import ConfigurationError
from sparktxn.values import arguments

__all__ = ["Time", "TimeAgo", "absolute_ms", "is_relative", "parse_time", "parse_time_ago"]

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
