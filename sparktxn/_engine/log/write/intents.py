"""Intents: lists that wait for the writer of the next entry (PROTOCOL.md, "Intents").

A process that does not get its turn leaves its lists in an object. A winner takes them up into its own entry, which
says of each that it is applied or refused. The entry alone decides: the object may be late, doubled or deleted. Its
owner may put its lists itself, under the same ids, at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Command
from sparktxn._engine.format.entry import Intent, decode_intent, encode_intent, list_id, may_travel
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.log.write.queue import IntentId, Outcome, QueuedList, WaitingList
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.intents import is_expired, settlement, why_not_settled
from sparktxn._engine.state.machine import Applied, apply_list
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.process.clock import Clock, Ids
from sparktxn._foundation.process.events import log_event
from sparktxn.errors import DamagedObject, FormatVersionError, OutcomeLost, OutcomeUnknown, StoreUnavailable

_COMMANDS_MAX: Final = 512
_BYTES_MAX: Final = 1 << 20
"""What is larger does not travel: an entry has room for its writer's own lists and for some of others."""
_TAKEN_UP_BYTES_MAX: Final = 4 * _BYTES_MAX
_LISTING_SHARE: Final = 100
"""A lone writer spends at most this part of its time on looking for intents."""
_CALM_S: Final = 1.0
"""How long writers take turns after one has met another: those that commit again at once would race each time."""


class _Found(NamedTuple):
    """An intent of another process, and the bytes of its object."""

    intent: Intent
    size_bytes: int


class Intents:
    """The intents of a log, as one process leaves and finds them. Its callers hold the follower's lock.

    `watched` is this process's lists by id; tails note how they are settled.
    """

    def __init__(
        self,
        objects: ObjectStore,
        background: Background,
        clock: Clock,
        ids: Ids,
        watched: dict[str, Sequence[Command]],
    ) -> None:
        self._objects = objects
        self._background = background
        self._clock = clock
        self._ids = ids
        self._watched = watched
        self._left: dict[str, list[QueuedList]] = {}
        self._listed: list[str] = []
        self._read: dict[str, _Found | None] = {}
        self._done: list[str] = []
        self._listed_s: float | None = None
        self._listing_s = 0.0
        self._contended_s: float | None = None

    @property
    def contended(self) -> bool:
        """Whether others have written, or wanted to, not long ago."""
        since_s = self._contended_s
        return since_s is not None and self._clock.monotonic_s() - since_s < _CALM_S

    @property
    def is_out(self) -> bool:
        """Whether an intent of this process waits: it leaves no other one before that is settled."""
        return bool(self._left)

    def note_contention(self) -> None:
        """Note that another process has won a slot, or has left an intent."""
        self._contended_s = self._clock.monotonic_s()

    # Leaving

    def leave(self, tickets: Sequence[QueuedList], base_entry: int) -> bool:
        """Leave those lists of `tickets` that may travel in one object; False if none may, or one is out already.

        From here on they may take effect by any writer's entry, also if the object cannot be written: an answer that
        was lost says nothing.
        """
        travelling = _first_bytes(
            [
                ticket
                for ticket in tickets
                if ticket.intent is None and ticket.condition is None and may_travel(ticket.commands)
            ]
        )
        if self.is_out or not travelling:
            return False
        token = self._ids.token()
        for index, ticket in enumerate(travelling):
            id_ = IntentId(list_id(token, index), base_entry)
            ticket.leave(id_)
            self._watched[id_.intent_id] = ticket.commands
        name = names.intent(base_entry, token)
        self._left[name] = travelling
        try:
            self._objects.put(name, encode_intent(token, base_entry, [ticket.commands for ticket in travelling]))
        except StoreUnavailable as error:
            log_event("intent_perhaps_not_left", intent=name, error=error)
        return True

    def answer(self, outcomes: Iterable[tuple[QueuedList, Outcome]], tail: Tail) -> None:
        """Give the owners of lists their outcomes; these wait in no intent any more."""
        for list_, outcome in outcomes:
            list_.end(outcome)
            if list_.intent is not None:
                self._forget(list_)
                tail.settled.pop(list_.intent.intent_id, None)

    def _forget(self, ticket: QueuedList) -> None:
        """Note that the outcome of a list is known; the object goes once that is so of all its lists."""
        assert ticket.intent is not None
        self._watched.pop(ticket.intent.intent_id, None)
        for name, tickets in self._left.items():
            if ticket in tickets:
                tickets.remove(ticket)
                if not tickets:
                    del self._left[name]
                    self._done.append(name)
                return

    def renew(self, ticket: QueuedList) -> None:
        """Take a list out of an intent that no writer can apply any more."""
        self._forget(ticket)
        ticket.expire()

    def known(self, ticket: QueuedList, tail: Tail, context: Context) -> Applied | Refusal | OutcomeUnknown | None:
        """Return how the log has settled this process's list in an intent; None if it has not, and still may."""
        assert ticket.intent is not None
        intent_id, base_entry = ticket.intent
        noted = tail.settled.get(intent_id)
        if noted is not None:
            return noted
        settled = settlement(tail.parts.get, intent_id, base_entry, tail.entry)
        if settled is not None and settled.refused_code:
            return Refusal(settled.refused_code, settled.reason)
        if settled is None and not is_expired(base_entry, context.entry):
            return None
        if settled is None and tail.opened_entry <= base_entry:
            # Every entry that could have settled it was read here: it has expired, and has never taken effect.
            self.renew(ticket)
            return None
        outcome = apply_list(Delta(tail.parts.get), ticket.commands, context)
        if not isinstance(outcome, Refusal) and not outcome.to_write:
            return outcome
        how = "was applied" if settled is not None else "has expired"
        return OutcomeLost(
            f"intent {intent_id!r} {how} while this process did not follow the log, and the state no longer shows "
            "what became of its request"
        )

    # Taking up

    def waiting(self, tail: Tail) -> list[WaitingList]:
        """Return others' lists that the entry after `tail` may settle, oldest first; none before a check is due."""
        if self._is_due():
            self._list()
        if not self._listed:
            return []
        self._fetch()
        entry = tail.entry + 1
        found: list[WaitingList] = []
        size_bytes = 0
        for name in self._listed:
            read = self._read.get(name)
            if read is None or (found and sum(len(list_.commands) for list_ in found) >= _COMMANDS_MAX):
                continue
            if size_bytes + read.size_bytes > _TAKEN_UP_BYTES_MAX:
                break
            intent = read.intent
            lists = [
                WaitingList(IntentId(list_id(intent.intent, index), intent.base_entry), commands)
                for index, commands in enumerate(intent.lists)
            ]
            open_ = [list_ for list_ in lists if why_not_settled(tail.parts.get, *list_.id, entry) is None]
            if not open_ and intent.base_entry < entry:
                self._done.append(name)
            found += open_
            size_bytes += read.size_bytes if open_ else 0
        return found

    def rank(self, tail: Tail) -> int:
        """Return how many intents of others that are not settled were left before this process's own."""
        self._list()
        own = min(self._left, default="")
        return sum(name < own and self._is_open(name, tail) for name in self._listed)

    def _is_open(self, name: str, tail: Tail) -> bool:
        """Return True if an intent may wait for its turn: its object may exist for a while after it was settled."""
        named = names.parse_intent(name)
        if named is None or self._read.get(name, name) is None:
            return False
        base_entry, token = named
        return settlement(tail.parts.get, list_id(token, 0), base_entry, tail.entry) is None

    def ignore(self, id_: IntentId) -> None:
        """Leave an intent to its owner: this process cannot apply it."""
        self._read[names.intent(id_.base_entry, id_.intent_id.partition("-")[0])] = None

    def settled_here(self, lists: Sequence[WaitingList]) -> None:
        """Note that a confirmed entry of this process has settled the lists: their objects may go."""
        self._done += [names.intent(list_.id.base_entry, list_.id.intent_id.partition("-")[0]) for list_ in lists]

    def clear(self) -> None:
        """Delete the objects whose lists are all settled. This decides nothing: whatever stays is deleted later."""
        done, self._done = sorted(set(self._done)), []
        if not done:
            return
        if self._objects.probe_is_cheap:
            self._delete(done)
            return
        try:
            self._background.submit(lambda: self._delete(done))
        except RuntimeError:
            # The handle is being closed: the next process that lists the intents finds that these are settled.
            return

    def _delete(self, done: Sequence[str]) -> None:
        try:
            self._objects.delete(done)
        except StoreUnavailable as error:
            log_event("intents_not_deleted", error=error)

    def _is_due(self) -> bool:
        """Return True before every entry while intents are found, else seldom: a lone writer pays next to nothing."""
        if self._listed_s is None:
            return True
        age_s = self._clock.monotonic_s() - self._listed_s
        return age_s >= (1 if self.contended else _LISTING_SHARE) * self._listing_s

    def _list(self) -> None:
        """List the intents of others, by name, so oldest base first."""
        started_s = self._clock.monotonic_s()
        try:
            self._listed = sorted(set(self._objects.list_names(names.INTENTS)) - self._left.keys())
        except StoreUnavailable as error:
            log_event("intents_not_listed", error=error)
        finally:
            self._listed_s = self._clock.monotonic_s()
            self._listing_s = self._listed_s - started_s
        self._read = {name: self._read[name] for name in self._listed if name in self._read}
        if any(self._read.get(name, name) is not None for name in self._listed):
            self.note_contention()

    def _fetch(self) -> None:
        """Read the listed intents that have not been read."""
        new = [name for name in self._listed if name not in self._read]
        try:
            fetched = self._objects.get_many(new) if new else []
        except StoreUnavailable as error:
            log_event("intents_not_read", error=error)
            return
        self._read |= {name: _decoded(name, data) for name, data in zip(new, fetched, strict=True)}


def _first_bytes(tickets: list[QueuedList]) -> list[QueuedList]:
    """Return the first of the lists, in their order, that together are not too large to travel."""
    sizes = accumulate(len(ticket.encoded) for ticket in tickets)
    return [ticket for ticket, size_bytes in zip(tickets, sizes, strict=True) if size_bytes <= _BYTES_MAX]


def _decoded(name: str, data: bytes | None) -> _Found | None:
    """Return the intent in `data`; None if it is gone, or of no use: its owner puts its lists itself."""
    named = names.parse_intent(name)
    if data is None or named is None or len(data) > 2 * _BYTES_MAX:
        return None
    try:
        return _Found(decode_intent(data, name, *named), len(data))
    except (DamagedObject, FormatVersionError) as error:
        log_event("intent_not_taken_up", error=error)
        return None
