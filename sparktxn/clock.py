"""Time and randomness: the only source of both.

Everything that needs either takes a `Clock` or an `Ids`, so that the simulator can hold both in its hand.
"""

from __future__ import annotations

import os
import time
from typing import Final, Protocol

__all__ = ["Clock", "Deadline", "Ids", "RandomIds", "SystemClock"]


class Clock(Protocol):
    """Wall and monotonic time."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""

    def monotonic_s(self) -> float:
        """Seconds that only grow; the zero is arbitrary."""

    def sleep(self, seconds: float) -> None:
        """Returns after about `seconds`."""


class SystemClock:
    """The machine's clock."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleeps."""
        time.sleep(seconds)


_TOKEN_LENGTH: Final = 20
# Five bits of a byte are a digit, so that one call of the system and one translation make a token.
_DIGIT_OF_BYTE: Final = b"0123456789abcdefghijklmnopqrstuv" * 8


class Ids(Protocol):
    """Unguessable names that never repeat."""

    def token(self) -> str:
        """20 of the digits 0-9 and a-v: 100 random bits."""


class RandomIds:
    """Tokens from the operating system's random source."""

    def token(self) -> str:
        """20 of the digits 0-9 and a-v: 100 random bits."""
        return os.urandom(_TOKEN_LENGTH).translate(_DIGIT_OF_BYTE).decode()


class Deadline:
    """A point in monotonic time by which a call must answer; `seconds` None or below 0 is never."""

    __slots__ = ("_at_s", "_clock")

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self._clock = clock
        self._at_s = None if seconds is None or seconds < 0 else clock.monotonic_s() + seconds

    def remaining_s(self) -> float | None:
        """Seconds left, at least 0; None if there is no limit."""
        return None if self._at_s is None else max(0.0, self._at_s - self._clock.monotonic_s())

    def passed(self) -> bool:
        """True once no time is left."""
        return self._at_s is not None and self._clock.monotonic_s() >= self._at_s
