"""Which members of a group have shown no sign of life for their session time-outs: pure, from listings and times.

A sign is a change of a member's object below `_groups/`, or a new entry with a command that names the member. The
observer's own monotonic clock finds silence here. It notes a sign when the listing that shows it has been answered, or
earlier: an entry, when this process had read it. An object is dated by the observer's own one, and the object store's
times of both. Such a moment counts only between the listing that shows the sign and the one before. So a member that
shows signs is not silent, however wrong the store's times are. The member is silent if a listing shows the same sign
that was begun a session time-out later. An observer that has not listed for half a session, because it was paused or
the store did not answer, starts again.

An observer that has just come, or seldom lists, goes by the object store's clock: `memberexpiry.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from sparktxn.store.memberexpiry import REBALANCE, SESSION, OverdueMember, Sign, Watched

__all__ = ["Lease", "Reference", "watcher_place"]

_WATCHERS: Final = 3
_COARSE_S: Final = 1.0
_FINE_S: Final = 0.05
"""By how much the time between two writes may exceed that of their times: in whole seconds, and in smaller parts."""
_STAGGER: Final = 0.03
"""The part of a session by which each further watcher waits longer, so that mostly one of them proposes."""


class Reference(NamedTuple):
    """The observer's own object in a listing: the store's time of it, and a moment by which it had been written."""

    modified_ms: int
    written_s: float


class _Note(NamedTuple):
    sign: tuple[Sign, int]
    noted_s: float


class Lease:
    """One observer of one group. For one thread at a time."""

    def __init__(self) -> None:
        self._notes: dict[str, _Note] = {}
        self._owing: dict[str, tuple[int, float]] = {}
        self._began_s = self._listed_s = float("-inf")

    def observe(
        self,
        members: Iterable[Watched],
        signs: Mapping[str, Sign],
        began_s: float,
        ended_s: float,
        rank: int = 0,
        reference: Reference | None = None,
        read_by_s: Callable[[int], float | None] = lambda entry: None,
    ) -> list[OverdueMember]:
        """Take over one listing, and return which members are silent, or owe partitions for too long.

        Args:
            members: those to watch, by the state as it was when the listing began or later.
            signs: the listing, by member id.
            began_s, ended_s: when it was begun and answered, by the observer's monotonic clock.
            rank: how many watchers should propose before this one; each waits 3 % of a session longer.
            reference: the observer's own object in the listing.
            read_by_s: a moment by which this process had read an entry, or None.
        """
        gap_s = began_s - self._listed_s
        before_s, self._began_s, self._listed_s = self._began_s, began_s, ended_s
        notes: dict[str, _Note] = {}
        owing: dict[str, tuple[int, float]] = {}
        found = []
        for member in members:
            session_s = member.session_timeout_ms / 1000
            sign = (signs.get(member.member_id, Sign()), member.last_entry)
            note = self._notes.get(member.member_id)
            if note is None or gap_s > session_s / 2:
                note = _Note(sign, ended_s)
            elif note.sign != sign:
                shown_s = _shown_s(note.sign, sign, ended_s, reference, read_by_s)
                note = _Note(sign, min(max(shown_s, before_s), ended_s))
            notes[member.member_id] = note
            if began_s >= note.noted_s + session_s * (1 + rank * _STAGGER):
                silent_ms = int((began_s - note.noted_s) * 1000)
                found.append(OverdueMember(member, SESSION, max(silent_ms, member.session_timeout_ms)))
            elif member.revoking_since and (owed_s := self._owed_s(member, began_s, ended_s, owing)) is not None:
                found.append(OverdueMember(member, REBALANCE, int(owed_s * 1000)))
        self._notes, self._owing = notes, owing
        return found

    def _owed_s(
        self, member: Watched, began_s: float, ended_s: float, owing: dict[str, tuple[int, float]]
    ) -> float | None:
        """Return for how long a member has owed what it owes, if that is longer than it may."""
        noted, since_s = self._owing.get(member.member_id, (0, ended_s))
        if noted != member.revoking_since:
            since_s = ended_s
        owing[member.member_id] = (member.revoking_since, since_s)
        owed_s = began_s - since_s
        return owed_s if owed_s * 1000 > member.rebalance_timeout_ms else None

    def next_s(self, members: Iterable[Watched], rank: int = 0) -> float:
        """Return when, by the observer's monotonic clock, a listing may show that one of the members is silent."""
        return min(
            (
                note.noted_s + member.session_timeout_ms / 1000 * (1 + rank * _STAGGER)
                for member in members
                if (note := self._notes.get(member.member_id)) is not None
            ),
            default=float("inf"),
        )


def _shown_s(
    before: tuple[Sign, int],
    after: tuple[Sign, int],
    ended_s: float,
    reference: Reference | None,
    read_by_s: Callable[[int], float | None],
) -> float:
    """Return by when what has changed of a member's signs had been written."""
    (object_before, entry_before), (object_, entry) = before, after
    shown_s = float("-inf")
    if entry != entry_before:
        read_s = read_by_s(entry)
        shown_s = ended_s if read_s is None else read_s
    if object_ != object_before:
        shown_s = max(shown_s, ended_s if reference is None else _written_s(object_.modified_ms, reference))
    return shown_s


def _written_s(modified_ms: int, reference: Reference) -> float:
    """Return by when an object had been written, by the observer's monotonic clock."""
    is_coarse = modified_ms % 1000 == reference.modified_ms % 1000 == 0
    grain_s = _COARSE_S if is_coarse else _FINE_S
    return reference.written_s + (modified_ms - reference.modified_ms) / 1000 + grain_s


def watcher_place(member_id: str, members: Collection[str], epoch: int) -> int | None:
    """Return a member's place among the three that list at each interval, or None for the others.

    The group's epoch changes which ones they are.
    """
    first = sorted(members, key=lambda member: (zlib.crc32(f"{member}{epoch}".encode()), member))[:_WATCHERS]
    return first.index(member_id) if member_id in first else None
