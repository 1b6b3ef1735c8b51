"""Signs of life: one thread per log renews those of all members of this process, and watches their groups.

A member that has a command in the log within its interval needs no object. Where there are no threads, as in the
simulator, a consumer's polls do the same work.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from sparktxn.consumer.lease import Lease, Reference, watcher_place
from sparktxn.errors import KafkaException, StoreUnavailable
from sparktxn.format import names
from sparktxn.format.commands import LeaveGroup
from sparktxn.log.log import Log
from sparktxn.log.write.storeclock import store_now_ms
from sparktxn.process.events import log_event
from sparktxn.store.memberexpiry import (
    EntryTimes,
    OverdueMember,
    Sign,
    Watched,
    listed_signs,
    overdue_by_store_clock,
    propose_expiry,
    watched,
)

__all__ = ["Life", "Pulse", "pulse_of"]

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
