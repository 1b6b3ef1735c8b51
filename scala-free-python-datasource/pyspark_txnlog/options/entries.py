"""Reads of what some entries of the log have committed: changes between two entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from sparktxn import ConfigurationError

if TYPE_CHECKING:
    from sparktxn import ReadView

__all__ = ["EntryRange", "entry_range"]

_ENDS: Final = (
    ("startingEntry", ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")),
    ("endingEntry", ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")),
)


class EntryRange(Struct, frozen=True, kw_only=True):
    """The entries whose transactions are read, both included; None means from the first, or to the view's entry."""

    first: int | None
    last: int | None

    @property
    def after(self) -> int:
        """The entry before the first."""
        return 0 if self.first is None else self.first - 1

    def check_first(self, view: ReadView) -> None:
        """Raise unless the log at `view` has the first entry, or ends right before it.

        A job that goes on where its last run ended may find nothing new: that is not an error.

        Raises:
            ConfigurationError: `startingEntry` is after the entry that follows the view's.
        """
        if self.after > view.entry:
            raise ConfigurationError(
                f"option 'startingEntry' is {self.first}: expected at most {view.entry + 1}, the next one of the log"
            )

    def last_in(self, view: ReadView) -> int:
        """Return the last entry of a read of `view`.

        Raises:
            ConfigurationError: `endingEntry` is after the view's entry, or `startingEntry` is after the next one.
        """
        self.check_first(view)
        if self.last is not None and self.last > view.entry:
            raise ConfigurationError(
                f"option 'endingEntry' is {self.last}: the read ends at entry {view.entry} of the log at most"
            )
        return view.entry if self.last is None else self.last


def entry_range(values: Mapping[str, Any]) -> EntryRange:
    """Return the entries that the parsed options `values` name.

    Raises:
        ConfigurationError: the first is after the last, or an offset or a time is given for the same end.
    """
    for name, others in _ENDS:
        for other in others:
            # A batch ends at the latest offsets by default.
            if name in values and values.get(other, "latest") != "latest":
                raise ConfigurationError(f"options {name!r} and {other!r} exclude each other: give one")
    first, last = values.get("startingEntry"), values.get("endingEntry")
    if first is not None and last is not None and first > last:
        raise ConfigurationError(f"option 'startingEntry' is {first}, after 'endingEntry', which is {last}")
    return EntryRange(first=first, last=last)
