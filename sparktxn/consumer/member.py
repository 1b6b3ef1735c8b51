"""One consumer's membership of its group: its states, and what it asks of the log.

The user's thread moves the state and decides; `attend` and `see` run on a worker, which touches nothing but a `Life`.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from sparktxn._engine.format.commands import JoinGroup, LeaveGroup, ReleasePartitions, UpdateMember
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.write.queue import Ticket
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.process.clock import Deadline
from sparktxn._foundation.process.handles import give_back_later, hold
from sparktxn._foundation.values.structs import MemberState
from sparktxn._kafka.settings.consumer import ConsumerSettings
from sparktxn.consumer.heartbeats import Life, Pulse, pulse_of
from sparktxn.errors import CommandRefused, ErrorCode, KafkaError, KafkaException
from sparktxn.store.memberexpiry import submit_join


class Status(Enum):
    """Where a consumer is in its group."""

    OUT = "out"
    """It has not subscribed: it may read what it was given by assign()."""
    JOINING = "joining"
    """It has subscribed, and has not seen itself in the group yet."""
    MEMBER = "member"
    """It reads what the group's state gives it."""
    LOST = "lost"
    """It is a member no longer, or must not read on, and its user was not called yet."""
    FAILED = "failed"
    """The group refuses it until it subscribes again."""


class MemberEvent(Enum):
    """What changes it."""

    SUBSCRIBED = "subscribed"
    UNSUBSCRIBED = "unsubscribed"
    SEEN = "seen"
    """The state names the member."""
    GONE = "gone"
    """The state names it no longer, or its own lease is over."""
    REPORTED = "reported"
    """The user's callback has run."""
    REFUSED = "refused"
    """The group does not take it."""


_S, _E = Status, MemberEvent

TRANSITIONS: Final[Mapping[tuple[Status, MemberEvent], Status]] = MappingProxyType(
    {
        (_S.OUT, _E.SUBSCRIBED): _S.JOINING,
        (_S.OUT, _E.UNSUBSCRIBED): _S.OUT,
        (_S.JOINING, _E.SUBSCRIBED): _S.JOINING,
        (_S.JOINING, _E.UNSUBSCRIBED): _S.OUT,
        (_S.JOINING, _E.SEEN): _S.MEMBER,
        (_S.JOINING, _E.GONE): _S.JOINING,
        (_S.JOINING, _E.REFUSED): _S.FAILED,
        (_S.MEMBER, _E.SUBSCRIBED): _S.MEMBER,
        (_S.MEMBER, _E.UNSUBSCRIBED): _S.OUT,
        (_S.MEMBER, _E.SEEN): _S.MEMBER,
        (_S.MEMBER, _E.GONE): _S.LOST,
        (_S.LOST, _E.SUBSCRIBED): _S.LOST,
        (_S.LOST, _E.UNSUBSCRIBED): _S.OUT,
        (_S.LOST, _E.REPORTED): _S.JOINING,
        (_S.LOST, _E.REFUSED): _S.FAILED,
        (_S.FAILED, _E.SUBSCRIBED): _S.JOINING,
        (_S.FAILED, _E.UNSUBSCRIBED): _S.OUT,
    }
)
"""Every other pair is a defect."""

_PASSING_REFUSALS: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
"""Refusals of an update: what the state says next shows what has become of the member."""
_ABANDON_S: Final = 1.0


class Speaker(NamedTuple):
    """As which member an offset commit speaks, as of the moment in which it was asked for; none outside a group."""

    life: Life | None = None
    generation_id: int = -1
    instance_id: str = ""

    @property
    def member_id(self) -> str:
        """The member's id, or nothing."""
        return "" if self.life is None else self.life.member_id


class Seen(NamedTuple):
    """What a poll of the log has seen of a membership.

    `member` is None if the state does not name it; `refusal` then says why it cannot come back.
    """

    life: Life
    member: MemberState | None
    refusal: KafkaError | None = None


class Membership:
    """The membership of one consumer. `life` is the present one, `generation_id` the epoch that its user knows."""

    def __init__(self, log: Log, settings: ConsumerSettings) -> None:
        self._log = log
        self._settings = settings
        self._pulse: Pulse | None = None
        self.status = Status.OUT
        self.generation_id = 0
        self.life = self._new_life()
        self._held = hold()

    def let_go(self) -> None:
        """Count this membership as given back. Calling twice is harmless."""
        self._held.release()

    def leave_behind(self, workers: Sequence[Background]) -> None:
        """Have another thread end the workers and leave the group. Safe in a finalizer: no lock, and no wait."""
        self.life.left = True
        _dropped.append((self, workers))
        give_back_later(_leave_dropped)

    # On the user's thread

    def move(self, event: MemberEvent) -> None:
        """Go on to the state that the table says.

        Raises:
            AssertionError: the event cannot happen in this state.
        """
        following = TRANSITIONS.get((self.status, event))
        if following is None:
            raise AssertionError(f"membership: {event.value} while {self.status.value}")
        self.status = following

    def begin_anew(self) -> None:
        """Begin another life, under another member id: nothing of the earlier one can be taken for it."""
        self._end()
        polled_s = self.life.polled_s
        self.life = self._new_life()
        self.life.polled_s = polled_s
        self.generation_id = 0

    def _new_life(self) -> Life:
        settings = self._settings
        return Life(
            self._log,
            settings.group_id,
            self._log.ids.token(),
            is_static=settings.group_instance_id is not None,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            max_poll_interval_ms=settings.max_poll_interval_ms,
        )

    def _end(self) -> None:
        self.life.left = True
        if self._pulse is not None:
            self._pulse.remove(self.life)

    def leaving(self) -> LeaveGroup | None:
        """End this life, and return the command that says so; None if it has never asked to join.

        A static member keeps its place, for its next life to take.
        """
        self._end()
        if not self.life.topics and not self.life.joined:
            return None
        return self._leave(self.life)

    @property
    def log(self) -> Log:
        """The log that the group is in."""
        return self._log

    def releasing(self, member: MemberState) -> ReleasePartitions:
        """Return what gives all that `member` owes to the members that wait for it."""
        return ReleasePartitions(
            request_id=self._log.ids.token(),
            group_id=self.life.group_id,
            member_id=self.life.member_id,
            member_epoch=member.member_epoch,
            changed_entry=member.changed_entry,
            partitions=tuple((held.topic_id, held.partition) for held in member.revoking),
        )

    def speaker(self) -> Speaker:
        """Return as whom this consumer commits offsets now."""
        if self.status is Status.OUT:
            return Speaker()
        return Speaker(self.life, self.generation_id, self._settings.group_instance_id or "")

    def member_id(self) -> str | None:
        """Return the member id; None if it is not known yet, as a classic member's before it has joined."""
        if self._settings.is_classic and self.status is not Status.MEMBER:
            return None
        return self.life.member_id

    @property
    def due_at_s(self) -> float:
        """When the user's thread has to see to the membership again."""
        own_s = self.life.good_s + self.life.session_s if self.life.joined else float("inf")
        return own_s if self._pulse is None else min(own_s, self._pulse.due_at_s)

    def beat_if_due(self, now_s: float) -> None:
        """Do the pulse's work, where there are no threads for it."""
        if self._pulse is not None and now_s >= self._pulse.due_at_s:
            self._log.background.submit(self._pulse.beat)

    # On a worker

    def attend(self, life: Life, topics: tuple[str, ...]) -> KafkaError | None:
        """Join the group, or change its topics. Return why the group does not take this member, if it does not.

        Raises:
            OutcomeUnknown, StoreUnavailable, DamagedObject: call again; a join that has landed is not done twice.
        """
        began_s = self._log.clock.monotonic_s()
        if life.left:
            return None
        try:
            if not life.joined:
                life.topics = topics
                submit_join(self._log, self._join(life, topics))
                life.joined = True
                if life.left:
                    # Its user has left meanwhile, and that may have come first.
                    self._log.submit([self._leave(life)])
                    return None
            elif topics != life.topics:
                self._log.submit([self._update(life, topics)])
                life.topics = topics
            else:
                return None
        except CommandRefused as refused:
            is_passing = life.joined and refused.error.code() in _PASSING_REFUSALS
            return None if is_passing else refused.error
        life.note_good(began_s)
        if self._pulse is None:
            self._pulse = pulse_of(self._log)
        self._pulse.add(life)
        return None

    def see(self, life: Life) -> Seen:
        """Return what the state says of a life, as last known.

        Raises:
            StoreUnavailable, OutcomeUnknown: the state could not be read.
        """
        instance_id = self._settings.group_instance_id
        with self._log.last_known() as state:
            member = state.member(life.group_id, life.member_id)
            if member is not None or not life.joined or instance_id is None:
                return Seen(life, member)
            others = state.group_members(life.group_id)
        if all(other.instance_id != instance_id for other in others):
            return Seen(life, None)
        reason = (
            f"another consumer of group {life.group_id!r} has taken group.instance.id {instance_id!r}: "
            "give each process its own, and make a new consumer"
        )
        return Seen(life, None, KafkaError(ErrorCode.FENCED_INSTANCE_ID, reason))

    def _join(self, life: Life, topics: tuple[str, ...]) -> JoinGroup:
        settings = self._settings
        return JoinGroup(
            request_id=life.request_id,
            group_id=life.group_id,
            member_id=life.member_id,
            topics=topics,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            assignors=settings.assignors,
            classic=settings.is_classic,
            instance_id=settings.group_instance_id or "",
            client_id=settings.client_id,
            host=_HOST,
        )

    def _leave(self, life: Life) -> LeaveGroup:
        return LeaveGroup(
            request_id=self._log.ids.token(),
            group_id=life.group_id,
            member_id=life.member_id,
            keeps_place=life.is_static,
        )

    def _update(self, life: Life, topics: tuple[str, ...]) -> UpdateMember:
        known = self._log.member(life.group_id, life.member_id)
        return UpdateMember(
            request_id=self._log.ids.token(),
            group_id=life.group_id,
            member_id=life.member_id,
            member_epoch=self.generation_id if known is None else known.member_epoch,
            topics=topics,
        )


_HOST: Final = socket.gethostname()

_dropped: Final[deque[tuple[Membership, Sequence[Background]]]] = deque()
"""What consumers have left behind that were dropped without close(). A finalizer may append at any moment."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_dropped.clear)


def _leave_dropped() -> None:
    """Leave for all consumers that were dropped by now: they share entries, and wait a second in all."""
    dropped = []
    while _dropped:
        membership, workers = _dropped.popleft()
        dropped.append(membership)
        # Before the leave: what they do may be a join.
        for worker in workers:
            worker.close(_ABANDON_S)
    try:
        tickets = [_ticket_to_leave(membership) for membership in dropped]
        for ticket, limit in filter(None, tickets):
            with suppress(KafkaException), limit.governs():
                ticket.wait_once()
    finally:
        for membership in dropped:
            membership.let_go()


def _ticket_to_leave(membership: Membership) -> tuple[Ticket, Deadline] | None:
    leave = membership.leaving() if membership.status is not Status.OUT else None
    if leave is None:
        return None
    return membership.log.send([leave]), Deadline(membership.log.clock, _ABANDON_S)
