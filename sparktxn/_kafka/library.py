"""What confluent-kafka has at its top level apart from clients, messages and errors."""

from __future__ import annotations

import base64
from typing import Final

from sparktxn._foundation.values import arguments

_VERSION: Final = "2.16.0"
_VERSION_NUMBER: Final = 0x021000FF

_LOW_BITS: Final = 2**64 - 1


def version() -> str:
    """Return the version of confluent-kafka whose methods the clients have; the library's own is ``__version__``."""
    return _VERSION


def libversion() -> tuple[str, int]:
    """Return the version of librdkafka whose settings and codes the clients have, as text and as a number."""
    return (_VERSION, _VERSION_NUMBER)


class IllegalStateException(RuntimeError):
    """A call at a wrong time; confluent-kafka's share consumer raises it, no client here does."""


class ConcurrentModificationException(RuntimeError):
    """A consumer that two threads use; confluent-kafka raises it, no client here does."""


class ThrottleEvent:
    """What ``throttle_cb`` is called with; no client here is throttled.

    Raises:
        TypeError: an argument has a wrong type.
    """

    def __init__(self, broker_name: str, broker_id: int, throttle_time: float) -> None:
        self.broker_name = arguments.text("broker_name", broker_name)
        self.broker_id = arguments.integer("broker_id", broker_id)
        if isinstance(throttle_time, bool) or not isinstance(throttle_time, int | float):
            raise TypeError(f"throttle_time is {arguments.described(throttle_time)}: expected seconds")
        self.throttle_time = throttle_time

    def __str__(self) -> str:
        return f"{self.broker_name}/{self.broker_id} throttled for {int(self.throttle_time * 1000)} ms"

    def __repr__(self) -> str:
        return f"ThrottleEvent({self})"


class Uuid:
    """An id of 128 bits, as two signed numbers of 64. Its text is base 64 without padding.

    Raises:
        TypeError: a number is not a whole one.
        ConfigurationError: it has more than 64 bits.
    """

    __slots__ = ("_least_significant_bits", "_most_significant_bits")

    def __init__(self, most_significant_bits: int, least_significant_bits: int) -> None:
        self._most_significant_bits = arguments.integer("most_significant_bits", most_significant_bits)
        self._least_significant_bits = arguments.integer("least_significant_bits", least_significant_bits)

    def get_most_significant_bits(self) -> int:
        """Return the first half."""
        return self._most_significant_bits

    def get_least_significant_bits(self) -> int:
        """Return the second half."""
        return self._least_significant_bits

    def __int__(self) -> int:
        return (self._most_significant_bits & _LOW_BITS) << 64 | self._least_significant_bits & _LOW_BITS

    def __eq__(self, other: object) -> bool:
        return int(self) == int(other) if isinstance(other, Uuid) else NotImplemented

    def __hash__(self) -> int:
        return hash(int(self))

    def __str__(self) -> str:
        return base64.b64encode(int(self).to_bytes(16, "big")).decode().rstrip("=")

    __repr__ = __str__
