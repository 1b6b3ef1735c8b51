"""Time travel: the entry, the time or the transaction as of which a batch reads the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from sparktxn import ConfigurationError
from sparktxn.config.times import Time, absolute_ms
from sparktxn.process.clock import SystemClock

if TYPE_CHECKING:
    from sparktxn import Store

__all__ = ["AS_OF_OPTIONS", "AsOf", "AsOfPoint", "as_of_options"]

_OPTIONS: Final = ("asOfEntry", "asOfTimestamp", "asOfTransaction")
AS_OF_OPTIONS: Final = frozenset(name.lower() for name in _OPTIONS)
"""The options in lower case, as Spark passes them on."""


class AsOfPoint(Struct, frozen=True):
    """An entry, or a time in milliseconds since 1970; with neither, now."""

    entry: int | None = None
    timestamp_ms: int | None = None


class AsOf(Struct, frozen=True):
    """What a batch reads: the store as of an entry, a time or a transaction; at most one is not None."""

    entry: int | None = None
    time: Time | None = None
    transaction: str | None = None

    def resolved(self, store: Store) -> AsOfPoint:
        """Return the entry or time that is meant; a transaction means the entry that committed it.

        Raises:
            ConfigurationError: the log has no such committed transaction.
        """
        if self.transaction is not None:
            return AsOfPoint(entry=store.transaction_entry(self.transaction))
        if self.time is not None:
            return AsOfPoint(timestamp_ms=absolute_ms(self.time, SystemClock().wall_ms()))
        return AsOfPoint(entry=self.entry)


def as_of_options(values: Mapping[str, Any]) -> AsOf:
    """Return what the parsed options `values` say.

    Raises:
        ConfigurationError: more than one of them is given.
    """
    given = [name for name in _OPTIONS if name in values]
    if len(given) > 1:
        raise ConfigurationError(f"options {' and '.join(map(repr, given))} exclude each other: give one")
    return AsOf(*(values.get(name) for name in _OPTIONS))
