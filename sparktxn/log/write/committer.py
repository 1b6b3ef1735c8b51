"""The write loop: the only place that creates log entries (PROTOCOL.md, "Won, lost, unknown").

Callers leave lists of commands; the thread that gets the lock writes, in one entry, all that have gathered, its own
among them (group commit). A slot is never left before it is known which body it holds. A body's bytes never change, and
no caller gets an answer before it is confirmed. What cannot be known by the deadline is reported as unknown, and stays
in flight. The next call of any client resolves that slot first.

A list that its owner has let go of is not put again. Another body without it is put for the same slot, and the one that
is read there decides.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sparktxn.clock import Clock, Deadline, Ids, is_time_up, time_left_s
from sparktxn.errors import (
    CommandRefused,
    KafkaError,
    KafkaException,
    OutcomeLost,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from sparktxn.format import names
from sparktxn.format.commands import Append, Command
from sparktxn.format.entry import LogEntry, decode_entry
from sparktxn.log.follow.follower import Follower
from sparktxn.log.follow.tail import Tail
from sparktxn.log.write.composing import Composer, defect, failed
from sparktxn.log.write.intents import Intents
from sparktxn.log.write.lists import checked_list
from sparktxn.log.write.storeclock import ClockCheck
from sparktxn.log.write.tickets import WITHDRAWN, Failed, Flight, Outcome, QueuedList, Ticket
from sparktxn.log.write.turns import Turns
from sparktxn.objectstore.contract import ObjectStore, PutOutcome
from sparktxn.state.delta import Context, ReadState, Refusal
from sparktxn.state.machine import Applied, apply_list
from sparktxn.state.requests import REQUEST_WINDOW
from sparktxn.structs import NO_TRANSACTION

__all__ = ["LISTS_BYTES_MAX", "Committer", "Ticket"]

logger = logging.getLogger("sparktxn")

_BACKOFF_S: Final = 0.02
_BACKOFF_S_MAX: Final = 1.0
_LONE_AFTER: Final = 16
"""Entries won one after the other, with none of another process between, that make a writer a lone one."""
LISTS_BYTES_MAX: Final = 1 << 20
"""An entry takes lists until they have so many bytes: every follower reads all of them."""
_PATIENCE_S: Final = 0.1
"""How long to wait for each of the intents that were left earlier: one entry, with room to spare."""


class _Answered(Exception):
    """Ends the wait for the lock: another process's entry has settled what was waited for."""


class Committer:
    """Writes entries for all clients of a process."""

    def __init__(
        self,
        objects: ObjectStore,
        follower: Follower,
        clock: Clock,
        ids: Ids,
        *,
        request_timeout_s: float,
        clock_skew_ms_max: int,
        intents: Intents,
        after_win: Callable[[], None],
        clock_check: ClockCheck | None = None,
    ) -> None:
        self._objects = objects
        self._follower = follower
        self._clock = clock
        self._composer = Composer(objects, follower, clock, ids, intents, clock_skew_ms_max=clock_skew_ms_max)
        self._request_timeout_s = request_timeout_s
        self._intents = intents
        self._after_win = after_win
        self._turns = Turns()
        self._waiting: deque[QueuedList] = deque()
        self._flight: Flight | None = None
        self._replaced: list[Flight] = []
        self._probe = objects.probe_is_cheap
        self._last_won = 0
        self._end_is_checked = False
        self._won_in_a_row = 0
        self._clock_check = clock_check

    def send(self, commands: Sequence[Command]) -> Ticket:
        """Queues a list; nothing is written before a caller waits, for it or for another list.

        Raises:
            CommandRefused: see `checked_list`: an entry that held the list could not be read, or not be put.
        """
        list_ = QueuedList(checked_list(commands), self._follower.tail.entry)
        self._waiting.append(list_)
        return Ticket(self, list_)

    def withdraw(self, ticket: QueuedList) -> bool:
        """Takes a list out of the queue, if it is in no body that may be stored."""
        if ticket.sent or ticket.is_done():
            return False
        try:
            self._waiting.remove(ticket)
        except ValueError:
            return False
        self._tell(ticket, WITHDRAWN)
        return True

    def work_for(self, ticket: QueuedList, deadline: Deadline) -> None:
        """Writes entries until the ticket is done.

        Raises:
            OutcomeUnknown, StoreUnavailable, DamagedObject: see `Ticket.wait`.
        """
        backoff_s = _BACKOFF_S
        while not ticket.is_done():
            try:
                with self._turns.turn(ticket.is_done, deadline):
                    if ticket.is_done():
                        return
                    with self._follower.locked(deadline, "commit"):
                        if ticket.is_done():
                            return
                        failure = self._try_round(ticket, deadline)
                        if not ticket.is_done() and is_time_up(deadline):
                            raise self._too_late(ticket, failure)
            except (OutcomeUnknown, StoreUnavailable) as error:
                if ticket.is_done():
                    return
                told = _about(ticket, error)
                if told is error:
                    raise
                raise told from error
            if failure is not None:
                self._pause(backoff_s, deadline)
                backoff_s = min(2 * backoff_s, _BACKOFF_S_MAX)
        self._intents.clear()
        self._after_win()

    def _try_round(self, ticket: QueuedList, deadline: Deadline) -> StoreUnavailable | None:
        try:
            if self._clock_check is not None and self._flight is None and ticket.intent is None:
                self._clock_check.check()
            # A part that is loaded only now may have been vacuumed; what is in flight is then resolved again.
            self._follower.attempt(lambda: self._turn(ticket, deadline))
        except _Answered:
            return None
        except StoreUnavailable as failure:
            if not failure.transient:
                raise
            return failure
        return None

    def _turn(self, ticket: QueuedList, deadline: Deadline) -> None:
        with self._objects.contention_lock(lambda: self._wait_beside(ticket)):
            self._wait_for_turn(ticket, deadline)
            self._round(ticket, deadline)

    def _wait_beside(self, ticket: QueuedList) -> None:
        """What to do while others write: leave an intent, follow the log, and see whether it was taken up.

        Raises:
            _Answered: it was.
        """
        if self._flight is not None:
            return
        self._leave_intent()
        # What settles a list is likely to be the very next entry: where a poll is slow, one is enough for now.
        self._follower.advance(at_most=None if self._objects.probe_is_cheap else self._follower.tail.entry + 1)
        self._answer_noted()
        if ticket.is_done():
            raise _Answered

    def _wait_for_turn(self, ticket: QueuedList, deadline: Deadline) -> None:
        """Where no lock orders the writers, let the owner of the oldest intent write; the others wait for its entry.

        No process waits without end: the oldest intent may be that of a dead process.

        Raises:
            _Answered: another process's entry has settled what was waited for.
        """
        if self._objects.probe_is_cheap or self._flight is not None or not self._intents.contended:
            return
        self._wait_beside(ticket)
        self._probe = False
        while (rank := self._intents.rank(self._follower.tail)) > 0:
            entry, gives_up = self._follower.tail.entry, Deadline(self._clock, rank * _PATIENCE_S)
            while self._follower.tail.entry == entry:
                if gives_up.passed() or is_time_up(deadline):
                    return
                self._clock.sleep(_BACKOFF_S)
                self._wait_beside(ticket)

    def _leave_intent(self) -> None:
        taken = self._take()
        try:
            self._intents.leave(taken, self._follower.tail.entry)
        finally:
            self._give_back(taken)

    def _answer_noted(self) -> None:
        """Resolve the tickets that other writers' entries have settled, after confirming."""
        tail = self._follower.tail
        if not tail.settled:
            return
        noted = [ticket for ticket in list(self._waiting) if ticket.intent and ticket.intent.intent_id in tail.settled]
        if not noted:
            return
        if not self._follower.confirm():
            self._follower.reopen()
            return
        for ticket in noted:
            assert ticket.intent is not None
            self._waiting.remove(ticket)
            self._tell(ticket, tail.settled[ticket.intent.intent_id])

    def _too_late(self, ticket: QueuedList, failure: StoreUnavailable | None) -> StoreError:
        """Return the error at the deadline: a list that was in a sent body may still take effect, now or later."""
        if not ticket.sent:
            return failure or StoreUnavailable("the deadline passed, and the request is in no entry: call again")
        if self._flight is not None:
            return self._unknown(self._flight, failure)
        return OutcomeUnknown("other writers won every entry up to the deadline: call the same method again")

    def _round(self, ticket: QueuedList, deadline: Deadline) -> None:
        """Resolves what is in flight, or writes one entry with all that waits."""
        if self._flight is None:
            self._build()
        elif self._flight.has_let_go() and not self._replace(self._flight, deadline) and not self._is_in_flight(ticket):
            return
        if self._flight is not None:
            self._resolve(self._flight, deadline)

    def _is_in_flight(self, ticket: QueuedList) -> bool:
        return any(ticket is one for body in self._bodies() for one in body.taken)

    def _bodies(self) -> list[Flight]:
        """All bodies that may be stored in the slot that is not resolved, the newest first."""
        return [self._flight, *reversed(self._replaced)] if self._flight is not None else []

    def _replace(self, flight: Flight, deadline: Deadline) -> bool:
        """Gives the slot another body, without the lists that their owners have given up: they are not put again.

        Whichever body the slot turns out to hold decides. False if nothing is left to put in its place, or the slot is
        taken.
        """
        slot = flight.entry.entry
        found = self._read_slot(flight)
        if found is not None:
            self._conclude(flight, found, deadline)
            return False
        if self._follower.tail.entry + 1 != slot:
            # It was there, and a vacuum has deleted it: confirming says so.
            self._resolve(flight, deadline)
            return False
        self._give_back(one for one in flight.taken if not one.is_done() and (not one.let_go or one.intent is not None))
        return self._build(slot)

    def _build(self, slot: int | None = None) -> bool:
        """Makes the next entry's body, from a state as new as it must be, the flight; False if none is left to write.

        With `slot`, it is another body for that slot: False also if the log has gone on beyond it.
        """
        fresh = self._probe and slot is None
        if fresh:
            self._follower.advance()
        if not self._end_is_checked:
            self._follower.check_end()
            self._end_is_checked = True
        taken = self._take()
        try:
            while True:
                try:
                    flight = self._composer.compose(taken)
                except KafkaException:
                    raise
                except Exception as error:  # noqa: BLE001 - a defect, which a list may have brought to light
                    taken = self._apart(taken, error)
                    if not taken:
                        return False
                    continue
                if flight.settled and not fresh:
                    # A refusal, or "done before", may come from what the log has said since: read it first.
                    self._follower.advance()
                    fresh = True
                    if slot not in (None, self._follower.tail.entry + 1):
                        self._give_back(taken)
                        return False
                    continue
                if flight.was_let_go_meanwhile():
                    continue  # its owner has the answer that it is not tried again
                if flight.accepted:
                    self._take_off(flight)
                    return True
                if self._follower.confirm():
                    self._answer(flight)
                    return False
                self._follower.reopen()
                fresh = True
        except BaseException:
            if self._flight is None or self._flight.taken is not taken:
                self._give_back(ticket for ticket in taken if not ticket.is_done())
            raise

    def _take_off(self, flight: Flight) -> None:
        if self._flight is not None:
            self._replaced.append(self._flight)
        self._flight = flight

    def _apart(self, taken: list[QueuedList], error: Exception) -> list[QueuedList]:
        """What to try after an entry could not be composed: its first list alone, and where that fails none.

        Whatever has failed, it does so once for each list and its owner, and stops no caller permanently.
        """
        if len(taken) > 1:
            self._give_back(taken[1:])
            return taken[:1]
        for ticket in taken:
            # One in an intent may be applied by another process.
            lost = OutcomeLost(f"{defect(error)}. Another process may have written it")
            self._tell(ticket, lost if ticket.intent is not None else failed(error))
        return []

    def _take(self) -> list[QueuedList]:
        """The lists at the head of the queue that fit one entry, at least one: by bytes, whatever is in them.

        What its owner has let go is left out: it is known not to happen, or may be stored by a body that was sent.
        """
        self._follower.tail.check_writable()
        taken: list[QueuedList] = []
        size_bytes = 0
        while self._waiting:
            try:
                list_ = self._waiting.popleft()
            except IndexError:  # its owner has withdrawn it just now
                break
            if list_.is_done():
                continue
            if list_.let_go and list_.intent is None:
                if not list_.sent:
                    self._tell(list_, WITHDRAWN)
                continue
            size_bytes += len(list_.encoded)
            if taken and size_bytes > LISTS_BYTES_MAX:
                self._waiting.appendleft(list_)
                break
            taken.append(list_)
        return taken

    def _give_back(self, lists: Iterable[QueuedList]) -> None:
        """Puts lists at the head of the queue, in their order; those that are in it stay where they are."""
        # A copy first, in one step of the interpreter: callers append meanwhile, without the lock.
        queued = {id(list_) for list_ in list(self._waiting)}
        self._waiting.extendleft(reversed([list_ for list_ in lists if id(list_) not in queued]))

    def _resolve(self, flight: Flight, deadline: Deadline) -> None:
        """Puts the body until its slot is resolved."""
        for ticket, _ in flight.accepted:
            ticket.sent = True
        self._conclude(flight, self._put_until_resolved(flight, deadline), deadline)

    def _conclude(self, flight: Flight, found: Flight | tuple[LogEntry, int], deadline: Deadline) -> None:
        """Confirm what the slot holds, apply it, and answer all callers."""
        if not self._confirm(flight, deadline):
            self._follower.reopen()
            self._look_for(self._bodies())
            return
        self._apply(flight.entry.entry, found)
        won = isinstance(found, Flight)
        self._choose_probing(flight.entry.entry, won=won)
        if isinstance(found, Flight):
            self._answer(found)
            self._intents.settled_here(found.others)
        self._close_slot(self._bodies())
        if not won:
            self._intents.note_contention()
            self._leave_intent()

    def _close_slot(self, bodies: Sequence[Flight]) -> None:
        """Takes the lists of the slot's bodies that it does not hold back into the queue: they are in none any more."""
        left = {id(one): one for body in bodies for one in body.taken if not one.is_done()}
        for one in left.values():
            one.sent = one.intent is not None
            if one.let_go and not one.sent:
                self._tell(one, WITHDRAWN)
        self._give_back(one for one in left.values() if not one.is_done())
        self._replaced = []
        # Last: what an interruption has kept from being done is done when the slot is resolved again.
        self._flight = None

    def _choose_probing(self, entry: int, *, won: bool) -> None:
        """Decide whether to read the next slot before it is put: a lone writer would find it free each time."""
        self._won_in_a_row = self._won_in_a_row + 1 if won and entry == self._last_won + 1 else 0
        if won:
            self._last_won = entry
        is_alone = self._won_in_a_row >= _LONE_AFTER
        self._probe = not won or (self._objects.probe_is_cheap and not is_alone)

    def _apply(self, slot: int, found: Flight | tuple[LogEntry, int]) -> None:
        """Applies the entry that the slot holds, unless following the log has done so since the body was first sent.

        Nothing more is read: it would be younger than the confirm. Changes that were computed before the state took its
        names from another checkpoint would bring the old names back: they are computed again.
        """
        tail = self._follower.tail
        if tail.entry + 1 == slot:
            if not isinstance(found, Flight):
                tail.apply(*found)
            elif tail.parts.standing is found.standing:
                tail.take(found.entry, found.changes, len(found.data))
            else:
                tail.apply(found.entry, len(found.data))
        tail.confirmed_entry = tail.entry

    def _confirm(self, flight: Flight, deadline: Deadline) -> bool:
        backoff_s = _BACKOFF_S
        while True:
            try:
                return self._follower.is_confirmed(flight.entry.entry)
            except StoreUnavailable as error:
                if is_time_up(deadline):
                    raise self._unknown(flight, error) from None
            self._pause(backoff_s, deadline)
            backoff_s = min(2 * backoff_s, _BACKOFF_S_MAX)

    def _put_until_resolved(self, flight: Flight, deadline: Deadline) -> Flight | tuple[LogEntry, int]:
        """The body of this process that the slot holds, or another's entry and its size."""
        name = names.entry(flight.entry.entry)
        backoff_s = _BACKOFF_S
        while True:
            remaining_s = deadline.remaining_s()
            timeout_s = self._request_timeout_s if remaining_s is None else min(remaining_s, self._request_timeout_s)
            if self._put(flight, name, timeout_s) is PutOutcome.CREATED:
                return flight
            cause = None
            try:
                found = self._read_slot(flight)
                if found is not None:
                    return found
            except StoreUnavailable as error:
                cause = error
            if is_time_up(deadline):
                raise self._unknown(flight, cause)
            self._pause(backoff_s, deadline)
            backoff_s = min(2 * backoff_s, _BACKOFF_S_MAX)

    def _put(self, flight: Flight, name: str, timeout_s: float) -> PutOutcome:
        may_land, flight.may_land = flight.may_land, True
        try:
            return self._objects.put_if_absent(name, flight.data, timeout_s=timeout_s)
        except StoreUnavailable:
            # Nothing of this put can have landed; if there was none before it, the slot is as free as it was.
            if not may_land and not self._replaced:
                flight.may_land = False
                self._close_slot([flight])
            raise

    def _read_slot(self, flight: Flight) -> Flight | tuple[LogEntry, int] | None:
        """What the slot holds: a body of this process, or another's entry and its size; None if it is free."""
        name = names.entry(flight.entry.entry)
        data = self._objects.get(name)
        if data is None:
            return None
        entry = decode_entry(data, name, flight.entry.entry)
        own = next((body for body in self._bodies() if body.entry.token == entry.token), None)
        if own is None:
            return entry, len(data)
        self._objects.make_durable(name)
        return own

    def _pause(self, seconds: float, deadline: Deadline) -> None:
        """Sleep for so long, or until time is up."""
        left_s = time_left_s(deadline.remaining_s())
        self._clock.sleep(seconds if left_s is None else min(seconds, left_s))

    def _unknown(self, flight: Flight, cause: StoreError | None) -> OutcomeUnknown:
        why = f" ({cause})" if cause is not None else ""
        return OutcomeUnknown(
            f"the outcome of log entry {flight.entry.entry} is unknown at the deadline{why}: "
            "call the same method again, which resolves it; nothing was deleted"
        )

    def _answer(self, flight: Flight) -> None:
        for ticket, outcome in (*flight.accepted, *flight.settled):
            self._tell(ticket, outcome)

    def _tell(self, ticket: QueuedList, outcome: Outcome) -> None:
        if outcome is WITHDRAWN:
            ticket.error = KafkaException(KafkaError(*WITHDRAWN))
        elif isinstance(outcome, Refusal):
            ticket.error = CommandRefused(outcome.code, outcome.reason)
        elif isinstance(outcome, OutcomeUnknown):
            ticket.error = outcome
        elif isinstance(outcome, Failed):
            ticket.error = outcome.error
        else:
            ticket.results = outcome.results
        self._intents.forget(ticket)
        if ticket.intent is not None:
            self._follower.tail.settled.pop(ticket.intent.intent_id, None)

    def _look_for(self, bodies: Sequence[Flight]) -> None:
        """The slot has fallen below the horizon: the confirmed state shows whether its lists have taken effect."""
        tail = self._follower.tail
        context = Context(tail.entry + 1, tail.timestamp_ms)
        sent = {ticket: body for body in reversed(bodies) for ticket, _ in body.accepted if not ticket.is_done()}
        # All are looked up before any owner gets an answer: reading the state may fail, and the flight is then resolved
        # again.
        found = {ticket: self._found(ticket, body, tail, context) for ticket, body in sent.items()}
        for ticket, outcome in found.items():
            if outcome is not None:
                self._tell(ticket, outcome)
        self._close_slot(bodies)

    def _found(self, ticket: QueuedList, flight: Flight, tail: Tail, context: Context) -> Outcome | None:
        """What has become of a list in a body that was sent; None if it has taken no effect, and can be put again."""
        if ticket.intent is not None:
            return self._intents.known(ticket, tail, context)
        outcome = apply_list(tail.parts.get, ticket.commands, context)
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


def _about(ticket: QueuedList, error: OutcomeUnknown | StoreUnavailable) -> StoreError:
    """The error as one about this list, whatever it was met with: one that was not sent has not taken effect."""
    if ticket.sent and isinstance(error, StoreUnavailable):
        return OutcomeUnknown(f"the outcome is unknown at the deadline ({error}): call the same method again")
    if not ticket.sent and isinstance(error, OutcomeUnknown):
        return StoreUnavailable(f"the request was not sent by the deadline ({error}): call again")
    return error


def _is_remembered(read: ReadState, commands: Sequence[Command], outcome: Applied | Refusal) -> bool:
    """True if the state would know of the list, had it taken effect.

    A refusal alone does not say so: a transaction that has committed and was fenced afterwards is refused too. Request
    ids are remembered whatever happened since, transactions by their number. But of an append outside of them nothing
    is left once its producer has expired.
    """
    if isinstance(outcome, Refusal):
        return all(hasattr(command, "request_id") for command in commands)
    return all(
        read(("producer", command.topic_id, command.partition, command.producer_id)) is not None
        for command in commands
        if isinstance(command, Append) and command.transaction == NO_TRANSACTION
    )
