"""Signs of life: one thread per log renews those of all members of this process, each by its lease, and watches groups.

A member that has a command in the log within its interval needs no object. Where there are no threads, as in the
simulator, a consumer's polls do the same work.
"""

from __future__ import annotations

import os
import threading
import weakref
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import LeaveGroup
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.write.storeclock import store_now_ms
from sparktxn._foundation.process.events import log_event
from sparktxn.errors import KafkaException, StoreUnavailable
from sparktxn.store.memberexpiry import (
    REBALANCE,
    SESSION,
    EntryTimes,
    OverdueMember,
    Sign,
    Watched,
    listed_signs,
    overdue_by_store_clock,
    propose_expiry,
    watched,
)

# Which members of a group have shown no sign of life for their session time-outs: pure, from listings and times.
#
# A sign is a change of a member's object below `_groups/`, or a new entry with a command that names the member. The
# observer's own monotonic clock finds silence here. It notes a sign when the listing that shows it has been answered,
# or earlier: an entry, when this process had read it. An object is dated by the observer's own one, and the object
# store's times of both. Such a moment counts only between the listing that shows the sign and the one before. So a
# member that shows signs is not silent, however wrong the store's times are. The member is silent if a listing shows
# the same sign that was begun a session time-out later. An observer that has not listed for half a session, because
# it was paused or the store did not answer, starts again.
#
# An observer that has just come, or seldom lists, goes by the object store's clock: `memberexpiry.py`.

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


_SESSION_PARTS: Final = 3
_RETRY_PART: Final = 5
_HEARD_PART: Final = 2
_REPLACED_EVERY_S: Final = 1.0
"""Some stores take one write a second over one object."""
_SELDOM: Final = 10
"""A process without a watcher lists once in so many intervals."""
_REQUEST_S_MAX: Final = 10.0
_SIGN_SIZES: Final = 16


class Life:
    """One membership, from its join until it ends: what the user's thread, its workers and the pulse share.

    `good_s` is when its last good sign was begun, `polled_s` when its user polled last. `gone` once the state has been
    seen without it, `too_idle` once it has left because its user did not poll. `wakes` is set with these two: the next
    poll must see to them before it hands out a record.

    A member without a `max_poll_interval_ms` `is_remote`: it is elsewhere, and `polled_s` says when it was heard last.
    Its silence is not this process's: no sign is shown for it then, and it expires as members of other processes do.
    """

    __slots__ = (
        "__weakref__",
        "gone",
        "good_s",
        "group_id",
        "interval_s",
        "is_remote",
        "is_static",
        "joined",
        "left",
        "member_id",
        "poll_interval_s",
        "polled_s",
        "renew_at_s",
        "request_id",
        "session_s",
        "shown",
        "shown_s",
        "too_idle",
        "topics",
        "wakes",
    )

    def __init__(
        self,
        log: Log,
        group_id: str,
        member_id: str,
        *,
        is_static: bool,
        session_timeout_ms: int,
        heartbeat_interval_ms: int,
        max_poll_interval_ms: int | None = None,
    ) -> None:
        self.is_remote = max_poll_interval_ms is None
        self.group_id = group_id
        self.member_id = member_id
        self.request_id = log.ids.token()
        self.is_static = is_static
        self.session_s = session_timeout_ms / 1000
        self.interval_s = min(heartbeat_interval_ms / 1000, self.session_s / _SESSION_PARTS)
        self.poll_interval_s = (max_poll_interval_ms or 0) / 1000
        self.good_s = self.polled_s = log.clock.monotonic_s()
        self.renew_at_s = self.good_s + self.interval_s
        self.topics: tuple[str, ...] = ()
        self.joined = self.left = self.gone = self.too_idle = self.wakes = False
        self.shown = 0
        self.shown_s = float("-inf")

    def is_over(self, now_s: float) -> bool:
        """Return True if the member must read no more: the others may take its partitions."""
        return self.gone or self.too_idle or (self.joined and now_s > self.good_s + self.session_s)

    @property
    def due_s(self) -> float:
        """When its next sign is due.

        That of a member which is elsewhere says that it was heard since the last one, and is dated later than that. So
        it comes sooner: the member would else seem to live on for as long.
        """
        return self.renew_at_s - self.interval_s + self.spacing_s

    @property
    def spacing_s(self) -> float:
        """How far its signs are apart."""
        if not self.is_remote:
            return self.interval_s
        return max(self.interval_s / _HEARD_PART, min(self.interval_s, _REPLACED_EVERY_S))

    @property
    def shown_bytes(self) -> int:
        """The size of the newest sign."""
        return 1 + self.shown % _SIGN_SIZES

    def note_good(self, began_s: float) -> None:
        """Note that a sign which was begun at `began_s`, by the monotonic clock, is in the store.

        One that comes too late changes nothing: the others may have taken the partitions.
        """
        if self.joined and began_s > self.good_s + self.session_s:
            self.gone = self.wakes = True
            return
        self.good_s = max(self.good_s, began_s)
        self.renew_at_s = self.good_s + self.interval_s


class _Group:
    """What this process notes of one group that it has members in."""

    def __init__(self, now_s: float) -> None:
        self.lease = Lease()
        self.has_signs = False
        self.rounds = 0
        self.watched_s = now_s
        self.steady_since_s = now_s
        self.due_s = now_s


class Pulse:
    """Shows that the members of this process live, and proposes the expiry of those of others that are silent."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._objects = log.objects
        self._now_s = log.clock.monotonic_s
        self._background = log.background.sibling("sparktxn-members", 1)
        self._lock = threading.Lock()
        self._beating = threading.Lock()
        self._lives: weakref.WeakSet[Life] = weakref.WeakSet()
        self._groups: dict[str, _Group] = {}
        self._wake: Callable[[], None] | None = None
        self._is_running = False
        self.due_at_s = float("inf")
        """When a poll should call `beat`; never, where a thread does."""

    def add(self, life: Life) -> None:
        """Keep alive a member that has joined."""
        with self._lock:
            self._lives.add(life)
            if not self._is_running:
                # Where the machine gives no thread the polls beat, until a member joins that finds one.
                with suppress(KafkaException):
                    self._wake = self._background.repeat(_weak_beat(weakref.ref(self)))
                    self._is_running = True
            elif self._wake is not None:
                self._wake()
            if self._wake is None:
                self.due_at_s = self._now_s()

    def remove(self, life: Life) -> None:
        """Leave a member to itself; with the last one the thread ends."""
        with self._lock:
            self._lives.discard(life)
            # Counted one by one: a collection of this pulse with its lives has left references to none in the set.
            if self._wake is not None and not list(self._lives):
                self._wake()

    def beat(self) -> float | None:
        """Do what is due, and return in how many seconds more is; None once there are no members."""
        if not self._beating.acquire(blocking=False):
            return _REQUEST_S_MAX
        try:
            with self._lock:
                lives = [life for life in self._lives if not life.left]
                if not lives:
                    self._is_running, self._wake, self.due_at_s = False, None, float("inf")
                    return None
            pause_s = self._tend(sorted(lives, key=lambda life: life.member_id))
            if self._wake is None:
                self.due_at_s = self._now_s() + pause_s
            return pause_s
        finally:
            self._beating.release()

    def close(self) -> None:
        """End the thread."""
        self._background.close(0)

    def _tend(self, lives: Sequence[Life]) -> float:
        for life in lives:
            self._renew(life)
        by_group: dict[str, list[Life]] = {}
        for life in lives:
            if not life.too_idle and not life.gone:
                by_group.setdefault(life.group_id, []).append(life)
        for group_id in [group_id for group_id in self._groups if group_id not in by_group]:
            del self._groups[group_id]
        for group_id, members in by_group.items():
            group = self._groups.setdefault(group_id, _Group(self._now_s()))
            if self._now_s() < group.due_s:
                continue
            interval_s = min(life.interval_s for life in members)
            group.due_s = self._now_s() + interval_s
            try:
                with self._log.within(min(interval_s, _REQUEST_S_MAX)):
                    self._watch(group_id, group, members)
            except KafkaException as error:
                log_event("members_not_watched", group_id=group_id, error=error)
        now_s = self._now_s()
        dues = [
            life.due_s if life.is_remote else min(life.due_s, life.polled_s + life.poll_interval_s)
            for life in lives
            if not life.too_idle and not life.gone
        ]
        dues += [group.due_s for group in self._groups.values()]
        return max(0.001, min(dues, default=now_s + _REQUEST_S_MAX) - now_s)

    # The process's own members

    def _renew(self, life: Life) -> None:
        """Show that a member lives, if it is time; one whose user does not poll leaves."""
        now_s = self._now_s()
        if life.too_idle or life.gone:
            return
        if life.is_remote and life.polled_s <= life.good_s:
            soonest_s = now_s + life.interval_s / _RETRY_PART
            life.renew_at_s += max(0.0, soonest_s - life.due_s)
        elif not life.is_remote and now_s > life.polled_s + life.poll_interval_s:
            self._leave(life)
        elif now_s >= life.due_s:
            self._show_in_time(life)

    def heard(self, life: Life) -> None:
        """Note that a member which is elsewhere was heard, and show that it lives if that is due.

        Its requests do so side by side: the thread of this pulse does it only for a member that was heard last before.
        """
        now_s = life.polled_s = self._now_s()
        early_s = max(0.0, min(life.spacing_s / _RETRY_PART, life.spacing_s - _REPLACED_EVERY_S))
        if not life.gone and now_s >= life.due_s - early_s:
            life.renew_at_s = now_s + life.interval_s
            self._show_in_time(life)

    def _show_in_time(self, life: Life) -> None:
        try:
            with self._log.within(min(life.interval_s, _REQUEST_S_MAX)):
                self._show(life)
        except StoreUnavailable as error:
            soonest_s = min(life.interval_s, _REPLACED_EVERY_S)
            life.renew_at_s = self._now_s() + max(soonest_s, life.interval_s / _RETRY_PART)
            log_event("heartbeat_failed", member_id=life.member_id, group_id=life.group_id, error=error)

    def _show(self, life: Life) -> None:
        """Write the member's object: its size changes, where the store's times are coarse.

        Raises:
            StoreUnavailable: the store did not take it.
        """
        began_s = self._now_s()
        life.shown += 1
        life.shown_s = float("-inf")
        self._objects.put(names.member_sign(life.group_id, life.member_id), b"+" * life.shown_bytes)
        life.shown_s = self._now_s()
        life.note_good(began_s)

    def _leave(self, life: Life) -> None:
        life.too_idle = life.wakes = True
        log_event("member_left", member_id=life.member_id, group_id=life.group_id, poll_interval_s=life.poll_interval_s)
        leave = LeaveGroup(self._log.ids.token(), life.group_id, life.member_id, life.is_static)
        try:
            with self._log.within(_REQUEST_S_MAX):
                self._log.submit([leave])
        except KafkaException as error:
            log_event("member_not_left", member_id=life.member_id, group_id=life.group_id, error=error)

    # The others

    def _watch(self, group_id: str, group: _Group, lives: Sequence[Life]) -> None:
        """Find members of other processes that are silent, and propose that they expire.

        Raises:
            KafkaException: the store did not answer; nothing is known.
        """
        interval_s = min(life.interval_s for life in lives)
        self._log.refresh(max_age_s=interval_s / 2)
        with self._log.last_known() as known_state:
            state = known_state.group(group_id)
            members = known_state.group_members(group_id)
        known = {member.member_id for member in members}
        for life in lives:
            if life.member_id not in known and not life.left:
                life.gone = life.wakes = True
        own = {life.member_id for life in lives}
        vouched = {life.member_id for life in lives if not life.is_remote}
        others = [watched(member) for member in members if member.member_id not in vouched]
        now_s = self._now_s()
        if now_s - group.watched_s > min(life.session_s for life in lives) / 2:
            group.steady_since_s = now_s
        group.watched_s = now_s
        group.rounds += 1
        if state is None or not others:
            group.lease, group.rounds = Lease(), 0
            return
        # A member with a shorter session than its observer's is listed as often as it needs.
        interval_s = min(interval_s, *(other.session_timeout_ms / 1000 / _SESSION_PARTS for other in others))
        places = [place for member in own if (place := watcher_place(member, known, state.epoch)) is not None]
        overdue = self._by_own_clock(group_id, group, lives, others, min(places), interval_s) if places else []
        is_steady = now_s - group.steady_since_s > max(member.session_timeout_ms for member in others) / 1000
        if group.rounds == 1 or (not places and is_steady and group.rounds % _SELDOM == 0):
            found = {member.member.member_id for member in overdue}
            overdue += [
                late for late in self._by_store_clock(group_id, lives[0], others) if late.member.member_id not in found
            ]
        propose_expiry(self._log, group_id, overdue)

    def _by_own_clock(
        self,
        group_id: str,
        group: _Group,
        lives: Sequence[Life],
        others: Sequence[Watched],
        place: int,
        interval_s: float,
    ) -> list[OverdueMember]:
        own = max(lives, key=lambda life: life.shown_s)
        if group.has_signs and not own.is_remote and own.shown_s < self._now_s() - own.session_s / 2:
            # The others' objects are dated by this one. It has none where its commits are signs enough.
            self._show(own)
        began_s = self._now_s()
        signs = listed_signs(self._objects, group_id, [own.member_id, *(other.member_id for other in others)])
        ended_s = self._now_s()
        sign = signs.get(own.member_id, Sign())
        # What is shown for a member that is elsewhere may be replaced by another process that has heard it since.
        is_own = not own.is_remote or own.shown_s > began_s - 2 * interval_s
        is_own = is_own and own.shown_s > float("-inf") and sign.size_bytes == own.shown_bytes
        reference = Reference(sign.modified_ms, own.shown_s) if is_own else None
        overdue = group.lease.observe(others, signs, began_s, ended_s, place, reference, self._log.read_by_s)
        group.has_signs = bool(signs.keys() - {own.member_id})
        group.due_s = min(ended_s + interval_s, max(group.lease.next_s(others, place), ended_s + interval_s / 10))
        return overdue

    def _by_store_clock(self, group_id: str, life: Life, others: Sequence[Watched]) -> list[OverdueMember]:
        if life.is_remote:
            now_ms = store_now_ms(self._objects, self._log.clock, self._log.ids)
            signs = listed_signs(self._objects, group_id, [other.member_id for other in others])
        else:
            self._show(life)
            signs = listed_signs(self._objects, group_id, [life.member_id, *(other.member_id for other in others)])
            now_ms = signs.get(life.member_id, Sign()).modified_ms
        return overdue_by_store_clock(others, signs, EntryTimes(self._objects).written_ms, now_ms)


def _named(life: Life) -> tuple[str, str]:
    return life.member_id, life.group_id


def _weak_beat(reference: weakref.ref[Pulse]) -> Callable[[], float | None]:
    """Return `beat` of a pulse that it does not keep alive."""

    def beat() -> float | None:
        pulse = reference()
        return None if pulse is None else pulse.beat()

    return beat


_lock = threading.Lock()
# A pulse keeps its log, so that no other log has the id meanwhile.
_pulses: weakref.WeakValueDictionary[tuple[int, int], Pulse] = weakref.WeakValueDictionary()


def pulse_of(log: Log) -> Pulse:
    """Return this process's pulse on a log."""
    key = (id(log), os.getpid())
    with _lock:
        pulse = _pulses.get(key)
        if pulse is None:
            pulse = _pulses[key] = Pulse(log)
        return pulse


def _start_anew_in_child() -> None:
    """Make the lock anew: a thread that does not exist in the forked child may have held it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew_in_child)
