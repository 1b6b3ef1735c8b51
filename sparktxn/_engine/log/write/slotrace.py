"""One slot of the log, until it is known which body it holds (PROTOCOL.md, "Won, lost, unknown").

A slot is never left before that. A body's bytes never change. If an owner lets go of a list, another body without it is
put for the same slot. The one that is read there decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Append, Command, EndTxn
from sparktxn._engine.format.entry import LogEntry, decode_entry
from sparktxn._engine.log.follow.follower import Follower
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.log.write.composing import Flight
from sparktxn._engine.log.write.intents import Intents
from sparktxn._engine.log.write.queue import WITHDRAWN, ListState, Outcome, Queue, QueuedList, WaitingList
from sparktxn._engine.objectstore.contract import ObjectStore, PutOutcome
from sparktxn._engine.objectstore.writehealth import failure_of, with_last_error
from sparktxn._engine.state.delta import Context, Delta, ReadState, Refusal
from sparktxn._engine.state.machine import Applied, apply_list
from sparktxn._engine.state.requests import REQUEST_WINDOW
from sparktxn._foundation.process.clock import Clock, is_time_up, time_left_s
from sparktxn._foundation.values.structs import NO_TRANSACTION
from sparktxn.errors import OutcomeLost, OutcomeUnknown, StoreError, StoreUnavailable
from sparktxn.metrics.process import PROCESS

BACKOFF_S: Final = 0.02
_BACKOFF_S_MAX: Final = 1.0

_LONE_AFTER: Final = 16
"""Entries won one after the other, with none of another process between, that make a writer a lone one."""

Found = Flight | tuple[LogEntry, int]
"""A body of this process, or the entry of another one and its size in bytes."""


class Conclusion(NamedTuple):
    """What a slot has decided: the outcomes of this process's lists, and the lists of others that its body settled.

    `is_lost` if it holds the entry of another process.
    """

    outcomes: Iterable[tuple[QueuedList, Outcome]]
    others: Sequence[WaitingList] = ()
    is_lost: bool = False


class Slot:
    """The slot that this process writes, if there is one that is not resolved. Its callers hold the follower's lock.

    `flight` is the newest body for it; None while every slot is resolved. With `probes`, the next slot is read before
    it is put, as it may be taken: a lone writer would find it free each time.
    """

    def __init__(
        self,
        objects: ObjectStore,
        follower: Follower,
        clock: Clock,
        queue: Queue,
        intents: Intents,
        *,
        request_timeout_s: float,
    ) -> None:
        self._objects = objects
        self._follower = follower
        self._clock = clock
        self._queue = queue
        self._intents = intents
        self._request_timeout_s = request_timeout_s
        self.flight: Flight | None = None
        self.probes = objects.probe_is_cheap
        self._last_won = 0
        self._won_in_a_row = 0
        self._replaced: list[Flight] = []

    @property
    def number(self) -> int:
        """The number of the entry that the slot is for."""
        assert self.flight is not None, "every slot is resolved"
        return self.flight.entry.entry

    def bodies(self) -> list[Flight]:
        """Return all bodies that may be stored in the slot, the newest first."""
        return [self.flight, *reversed(self._replaced)] if self.flight is not None else []

    def holds(self, list_: QueuedList) -> bool:
        """Return True if a body that may be stored was made with the list."""
        return any(list_ is one for body in self.bodies() for one in body.taken)

    def take_off(self, flight: Flight) -> None:
        """Make `flight` the slot's newest body, to be put next; the ones before it may still be found there."""
        if self.flight is not None:
            self._replaced.append(self.flight)
        self.flight = flight

    def is_passed(self) -> bool:
        """Return True if the log has gone on beyond the slot."""
        return self._follower.tail.entry + 1 != self.number

    def make_room(self) -> Found | None:
        """Give the newest body's lists back to the queue, for another body; if the slot is taken, return what it holds.

        Lists that their owners have given up are left out: they are not put again.
        """
        assert self.flight is not None
        found = self._read()
        if found is not None:
            return found
        if self.is_passed():
            # It was there, and a vacuum has deleted it: confirming says so.
            return self.resolve()
        wanted = (one for one in self.flight.taken if not one.is_done() and (not one.let_go or one.intent is not None))
        self._queue.give_back(wanted)
        return None

    def resolve(self) -> Found:
        """Put the newest body until it is known what the slot holds.

        Raises:
            OutcomeUnknown: that is not known by the deadline.
            StoreUnavailable: nothing was put, and no earlier put is without an answer.
        """
        assert self.flight is not None
        for list_, _ in self.flight.accepted:
            # An interruption may have come after some of the answers.
            if not list_.is_done():
                list_.move(ListState.IN_BODY)
        return self._put_until_resolved(self.flight)

    def _put_until_resolved(self, flight: Flight) -> Found:
        """Return the body of this process that the slot holds, or another's entry and its size."""
        name = names.entry(flight.entry.entry)
        backoff_s = BACKOFF_S
        while True:
            remaining_s = time_left_s()
            timeout_s = self._request_timeout_s if remaining_s is None else min(remaining_s, self._request_timeout_s)
            cause: StoreUnavailable | str | None = None
            try:
                if self._put(flight, name, timeout_s) is PutOutcome.CREATED:
                    return flight
                cause = failure.reason if (failure := failure_of(self._objects)) is not None else None
            except StoreUnavailable as error:
                if self.flight is None:
                    raise
                cause = error  # but an earlier put may have landed
            try:
                found = self._read()
                if found is not None:
                    return found
            except StoreUnavailable as error:
                cause = cause or error
            if is_time_up():
                raise self.unknown(cause)
            backoff_s = pause(self._clock, backoff_s)

    def _put(self, flight: Flight, name: str, timeout_s: float) -> PutOutcome:
        may_land, flight.may_land = flight.may_land, True
        try:
            return self._objects.put_if_absent(name, flight.data, timeout_s=timeout_s)
        except StoreUnavailable:
            # Nothing of this put can have landed; if there was none before it, the slot is as free as it was.
            if not may_land and not self._replaced:
                flight.may_land = False
                self.close()
            raise

    def _read(self) -> Found | None:
        """Return what the slot holds: a body of this process, or another's entry and its size; None if it is free."""
        name = names.entry(self.number)
        data = self._objects.get(name)
        if data is None:
            return None
        entry = decode_entry(data, name, self.number)
        own = next((body for body in self.bodies() if body.entry.token == entry.token), None)
        if own is None:
            return entry, len(data)
        self._objects.make_durable(name)
        return own

    def conclude(self, found: Found) -> Conclusion:
        """Confirm what the slot holds, and apply it; `close` follows once callers are answered.

        If a vacuum has passed the slot, the state is opened again, and shows what has become of the lists.
        """
        if not self._confirm():
            self._follower.reopen()
            return Conclusion(self._find_again().items())
        self._apply(found)
        if not isinstance(found, Flight):
            return Conclusion((), is_lost=True)
        return Conclusion((*found.accepted, *found.settled), found.others)

    def _confirm(self) -> bool:
        """Return True if what the slot holds is final; False if a vacuum has passed it.

        Raises:
            OutcomeUnknown: that could not be read by the deadline.
        """
        backoff_s = BACKOFF_S
        while True:
            try:
                return self._follower.is_confirmed(self.number)
            except StoreUnavailable as error:
                if is_time_up():
                    raise self.unknown(error) from None
            backoff_s = pause(self._clock, backoff_s)

    def _apply(self, found: Found) -> None:
        """Apply the entry that the slot holds, unless following the log has done so since the body was first sent.

        It also says whether the next slot is read before it is put.
        Nothing more is read: it would be younger than the confirm. Changes that were computed before the state took its
        names from another checkpoint would bring the old names back: they are computed again.
        """
        tail, number = self._follower.tail, self.number
        if tail.entry + 1 == number:
            if not isinstance(found, Flight):
                tail.apply(*found)
            elif tail.parts.basis is found.basis:
                tail.take(found.entry, found.changes, len(found.data))
            else:
                tail.apply(found.entry, len(found.data))
        tail.confirmed_entry = tail.entry
        won = isinstance(found, Flight)
        self._won_in_a_row = self._won_in_a_row + 1 if won and number == self._last_won + 1 else 0
        (PROCESS.entries_won if won else PROCESS.entries_lost).add()
        if won:
            self._last_won = number
        self.probes = not won or (self._objects.probe_is_cheap and self._won_in_a_row < _LONE_AFTER)

    def close(self) -> None:
        """Take the lists of the bodies that the slot does not hold back into the queue: they are in none any more."""
        left = {id(one): one for body in self.bodies() for one in body.taken if not one.is_done()}
        for one in left.values():
            one.leave_slot()
            if one.let_go and one.state is ListState.QUEUED:
                one.end(WITHDRAWN)
        if left:
            self._queue.give_back(one for one in left.values() if not one.is_done())
        self._replaced = []
        # Last: what an interruption has kept from being done is done when the slot is resolved again.
        self.flight = None

    def _find_again(self) -> Mapping[QueuedList, Outcome]:
        """Return what has become of the lists in the bodies of a slot that has fallen below the horizon.

        The confirmed state shows it. A list that is left out has taken no effect, and can be put again.
        """
        tail = self._follower.tail
        context = Context(tail.entry + 1, tail.timestamp_ms)
        sent = {list_: body for body in reversed(self.bodies()) for list_, _ in body.accepted if not list_.is_done()}
        # All are looked up before any owner gets an answer: reading the state may fail, and the slot is then resolved
        # again.
        found = {list_: _found(list_, body, tail, context, self._intents) for list_, body in sent.items()}
        return {list_: outcome for list_, outcome in found.items() if outcome is not None}

    def too_late(self, list_: QueuedList, failure: StoreUnavailable | None) -> StoreError:
        """Return the error at the deadline: a list that was in a sent body may still take effect, now or later."""
        if not list_.may_take_effect():
            failure = failure or StoreUnavailable("the deadline passed, and the request is in no entry: call again")
            reason = with_last_error(failure.error.str(), self._objects)
            return failure if reason == failure.error.str() else StoreUnavailable(reason)
        if self.flight is not None:
            return self.unknown(failure)
        return OutcomeUnknown("other writers won every entry up to the deadline: call the same method again")

    def unknown(self, cause: StoreError | str | None) -> OutcomeUnknown:
        """Return the error of a call whose deadline passes while the slot is not resolved; `cause` is its end."""
        why = f": {cause}" if cause is not None else ""
        return OutcomeUnknown(
            f"the outcome of log entry {self.number} is unknown at the deadline (possibly persisted): "
            f"call the same method again, which resolves it; nothing was deleted{why}"
        )


def pause(clock: Clock, seconds: float) -> float:
    """Sleep for so long, or until time is up; return how long the pause after it is."""
    left_s = time_left_s()
    clock.sleep(seconds if left_s is None else min(seconds, left_s))
    return min(2 * seconds, _BACKOFF_S_MAX)


def _found(ticket: QueuedList, flight: Flight, tail: Tail, context: Context, intents: Intents) -> Outcome | None:
    """Return what has become of a list in a sent body; None if it has taken no effect, and can be put again."""
    if ticket.intent is not None:
        return intents.known(ticket, tail, context)
    outcome = apply_list(Delta(tail.parts.get), ticket.commands, context)
    if not isinstance(outcome, Refusal) and not outcome.to_write:
        return outcome
    is_remembered = _is_remembered(tail.parts.get, ticket.commands, outcome)
    if tail.entry - ticket.base_entry < REQUEST_WINDOW and is_remembered:
        return None
    why = f": {outcome.reason}" if isinstance(outcome, Refusal) else ""
    return OutcomeLost(
        f"log entry {flight.entry.entry} was vacuumed before its outcome was known here, and the state no longer "
        f"shows whether the request took effect{why}"
    )


def _is_remembered(read: ReadState, commands: Sequence[Command], outcome: Applied | Refusal) -> bool:
    """Return True if the state would know of the list, had it taken effect.

    A refusal alone does not say so: a transaction that has committed and was fenced afterwards is refused too. Request
    ids are remembered whatever happened since, transactions by their number, also by the list that ends one. But of an
    append outside of them nothing is left once its producer has expired.
    """
    if isinstance(outcome, Refusal):
        return all(hasattr(command, "request_id") for command in commands)
    return any(isinstance(command, EndTxn) for command in commands) or all(
        read(("producer", command.topic_id, command.partition, command.producer_id)) is not None
        for command in commands
        if isinstance(command, Append) and command.transaction == NO_TRANSACTION
    )
