"""What this gateway knows of the members of groups that it serves: when each was heard, and what it was answered.

Nothing here decides: which members there are, and what each holds, is in the log. A member that another gateway has
served is taken over by its id. What this one does not know of it costs it at most one more rebalance.
"""

from __future__ import annotations

import threading
from typing import Final

from sparktxn._engine.log.log import Log
from sparktxn._foundation.values.structs import HeldPartition, MemberState
from sparktxn.consumer.heartbeats import Life, pulse_of
from sparktxn.store.options import TopicIdPartition

_SILENT_SESSIONS: Final = 3
"""After so many sessions without a sign the member is served elsewhere, or nowhere."""
_SIGN_EVERY_MS: Final = 15_000
"""How often a member shows that it lives; at most a third of its session, as for consumers of this package."""
_SWEPT_EVERY_S: Final = 10.0
_PENDING_S: Final = 300.0
_PENDING_MAX: Final = 100_000


class Member:
    """A member that this gateway serves.

    `generation` is the newest one that it knows. `answered` is what it was given to read in it: None in between, while
    it reads what it has `owned` as it joined. `topics` and `pattern` are what a member of the newer protocol subscribes
    to. `settled_entry` is the newest `changed_entry` of its state of which it has learnt, or was asked about.
    """

    __slots__ = ("answered", "generation", "life", "owned", "pattern", "protocol", "settled_entry", "topics")

    def __init__(self, life: Life) -> None:
        self.life = life
        self.generation = -1
        self.protocol: str | None = None
        self.answered: frozenset[HeldPartition] | None = None
        self.owned: frozenset[TopicIdPartition] = frozenset()
        self.topics: tuple[str, ...] = ()
        self.pattern = ""
        self.settled_entry = 0

    def note_joined(self, generation: int, protocol: str, owned: frozenset[TopicIdPartition]) -> None:
        """Note the answer to a join: the member will ask what it is to read."""
        self.generation, self.protocol, self.answered, self.owned = generation, protocol, None, owned

    def note_answered(self, generation: int, partitions: frozenset[HeldPartition]) -> None:
        """Note what the member is given to read."""
        self.generation, self.answered = generation, partitions


class Members:
    """The members that this gateway serves, and ids that it has given out. Safe for several threads."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._now_s = log.clock.monotonic_s
        self._pulse = pulse_of(log)
        self._lock = threading.Lock()
        self._members: dict[tuple[str, str], Member] = {}
        self._pending: dict[tuple[str, str], float] = {}
        self._sweep_at_s = self._now_s() + _SWEPT_EVERY_S

    @property
    def count(self) -> int:
        """How many members are served here."""
        return len(self._members)

    # Ids that were given out, for a join with them to follow

    def new_id(self, client_id: str) -> str:
        """Return an id for a new member."""
        return f"{client_id}-{self._log.ids.token()}"

    def expect(self, group_id: str, member_id: str) -> None:
        """Note that a client was asked to join under an id."""
        now_s = self._now_s()
        with self._lock:
            for key in [key for key, given_s in self._pending.items() if given_s < now_s - _PENDING_S]:
                del self._pending[key]
            while len(self._pending) >= _PENDING_MAX:
                del self._pending[next(iter(self._pending))]
            self._pending[group_id, member_id] = now_s

    def is_expected(self, group_id: str, member_id: str) -> bool:
        """Return True if a client was asked to join under an id."""
        return (group_id, member_id) in self._pending

    # Members

    def heard(self, group_id: str, member_id: str) -> Member | None:
        """Note that a member has sent something; None if this gateway has not served it."""
        self._sweep()
        with self._lock:
            member = self._members.get((group_id, member_id))
            if member is None:
                return None
            if member.life.gone:
                del self._members[group_id, member_id]
                return None
        self._pulse.heard(member.life)
        return member

    def serve(self, state: MemberState) -> Member:
        """Keep alive a member of the log's from now on, as long as it is heard."""
        member = self.heard(state.group_id, state.member_id)
        if member is None or member.life.session_s != state.session_timeout_ms / 1000:
            life = Life(
                self._log,
                state.group_id,
                state.member_id,
                is_static=bool(state.instance_id),
                session_timeout_ms=state.session_timeout_ms,
                heartbeat_interval_ms=_SIGN_EVERY_MS,
            )
            life.topics, life.joined = state.topics, True
            member = Member(life)
            with self._lock:
                before = self._members.pop((state.group_id, state.member_id), None)
                self._members[state.group_id, state.member_id] = member
                self._pending.pop((state.group_id, state.member_id), None)
            if before is not None:
                self._drop(before)
            self._pulse.add(life)
        return member

    def forget(self, group_id: str, member_id: str) -> None:
        """Keep a member alive no more: it has left, or the log has it no longer."""
        with self._lock:
            member = self._members.pop((group_id, member_id), None)
        if member is not None:
            self._drop(member)

    def close(self) -> None:
        """Leave all members to other gateways."""
        with self._lock:
            members, self._members = list(self._members.values()), {}
        for member in members:
            self._drop(member)

    def _drop(self, member: Member) -> None:
        member.life.left = True
        self._pulse.remove(member.life)

    def _sweep(self) -> None:
        now_s = self._now_s()
        if now_s < self._sweep_at_s:
            return
        with self._lock:
            self._sweep_at_s = now_s + _SWEPT_EVERY_S
            silent = [
                key
                for key, member in self._members.items()
                if member.life.gone or member.life.polled_s + _SILENT_SESSIONS * member.life.session_s < now_s
            ]
        for key in silent:
            self.forget(*key)
