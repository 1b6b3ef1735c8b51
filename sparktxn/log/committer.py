"""The write loop: the only place that creates log entries (PROTOCOL.md, "Won, lost, unknown").

Callers leave lists of commands; whoever gets the lock writes, in one entry, all that have gathered, its own among them
(group commit). A slot is never left before it is known who has it, its bytes never change while that is open, and
nobody is told anything before it is confirmed. What cannot be known by the deadline is said to be unknown, and stays in
flight: the next call, whoever makes it, resolves that slot first.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from sparktxn.clock import Clock, Deadline, Ids, is_time_up, time_left_s
from sparktxn.errors import (
    CommandRefused,
    DamagedObject,
    ErrorCode,
    KafkaError,
    KafkaException,
    OutcomeLost,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from sparktxn.format import names
from sparktxn.format.appends import ENTRY_BYTES_MAX, fold
from sparktxn.format.commands import Append, CancelIntent, Command, SettleIntent
from sparktxn.format.entry import FORMAT_VERSION, LogEntry, decode_entry, encode_entry, encode_list
from sparktxn.log.follower import Follower
from sparktxn.log.intents import Intents
from sparktxn.log.lists import checked_list
from sparktxn.log.storeclock import ClockCheck
from sparktxn.log.tail import Tail
from sparktxn.log.tickets import WITHDRAWN, Failed, Flight, IntentId, Outcome, Ticket, WaitingList
from sparktxn.log.writing import put_new
from sparktxn.objectstore.contract import ObjectStore, PutOutcome
from sparktxn.objectstore.uri import checked_data
from sparktxn.state.delta import Context, Delta, ReadState, Refusal
from sparktxn.state.machine import Applied, apply, apply_list
from sparktxn.state.requests import REQUEST_WINDOW
from sparktxn.structs import NO_TRANSACTION

__all__ = ["Committer", "Ticket"]

logger = logging.getLogger("sparktxn")

_BACKOFF_S: Final = 0.02
_BACKOFF_S_MAX: Final = 1.0
_LONE_AFTER: Final = 16
"""Entries won one after the other, with none of another process between, that make a writer a lone one."""
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
        self._ids = ids
        self._request_timeout_s = request_timeout_s
        self._intents = intents
        self._after_win = after_win
        self._waiting: deque[Ticket] = deque()
        self._flight: Flight | None = None
        self._probe = objects.probe_is_cheap
        self._last_won = 0
        self._end_is_checked = False
        self._won_in_a_row = 0
        self._clock_skew_ms_max = clock_skew_ms_max
        self._clock_skew_told = False
        self._clock_check = clock_check

    def send(self, commands: Sequence[Command]) -> Ticket:
        """Queues a list; nothing is written before a caller waits, for it or for another list.

        Raises:
            CommandRefused: see `checked_list`: an entry that held the list could not be read, or not be put.
        """
        ticket = Ticket(self, checked_list(commands), self._follower.tail.entry)
        self._waiting.append(ticket)
        return ticket

    def withdraw(self, ticket: Ticket) -> bool:
        """Takes a list out of the queue, if it was in no body that was sent."""
        if ticket.sent or ticket.is_done():
            return False
        try:
            self._waiting.remove(ticket)
        except ValueError:
            return False
        self._tell(ticket, WITHDRAWN)
        return True

    def cancel(self, ticket: Ticket, deadline: Deadline) -> None:
        """Sees to it that the list takes effect never, if it has not.

        Raises:
            OutcomeUnknown, StoreUnavailable, DamagedObject: see `Ticket.cancel`.
        """
        ticket.cancelled = True
        self.work_for(ticket, deadline)

    def work_for(self, ticket: Ticket, deadline: Deadline) -> None:
        """Writes entries until the ticket is done.

        Raises:
            OutcomeUnknown, StoreUnavailable, DamagedObject: see `Ticket.wait`.
        """
        backoff_s = _BACKOFF_S
        while not ticket.is_done():
            with self._follower.locked(deadline, "commit"):
                if ticket.is_done():
                    return
                failure = self._try_round(ticket, deadline)
                if not ticket.is_done() and is_time_up(deadline):
                    raise self._too_late(ticket, failure)
            if failure is not None:
                self._pause(backoff_s, deadline)
                backoff_s = min(2 * backoff_s, _BACKOFF_S_MAX)
        self._intents.clear()
        self._after_win()

    def _try_round(self, ticket: Ticket, deadline: Deadline) -> StoreUnavailable | None:
        try:
            if self._clock_check is not None and self._flight is None and ticket.intent is None:
                self._clock_check.check()
            with self._objects.contention_lock(lambda: self._wait_beside(ticket)):
                self._wait_for_turn(ticket, deadline)
                self._round(deadline)
        except _Answered:
            return None
        except StoreUnavailable as failure:
            if not failure.transient:
                raise
            return failure
        except DamagedObject:
            # A part that is loaded only now may have been vacuumed; what is in flight is resolved again.
            if not self._follower.is_behind():
                raise
            self._follower.reopen()
        return None

    def _wait_beside(self, ticket: Ticket) -> None:
        """What to do while others write: leave an intent, follow the log, and see whether it was taken up.

        Raises:
            _Answered: it was.
        """
        if self._flight is not None:
            return
        self._leave_intent()
        # What settles a list is likely to be the very next entry: where a look is slow, one is enough for now.
        self._follower.advance(at_most=None if self._objects.probe_is_cheap else self._follower.tail.entry + 1)
        self._answer_noted()
        if ticket.is_done():
            raise _Answered

    def _wait_for_turn(self, ticket: Ticket, deadline: Deadline) -> None:
        """Where no lock orders the writers: who has left the oldest intent writes, and the others wait for its entry.

        Nobody waits for ever: the oldest intent may be that of a dead process.

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
        """Tells those whose lists the entries that were just read have settled, once that is confirmed."""
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

    def _too_late(self, ticket: Ticket, failure: StoreUnavailable | None) -> StoreError:
        """What to tell at the deadline: a list that was in a sent body may still take effect, now or later."""
        if not ticket.sent:
            return failure or StoreUnavailable("the deadline passed before the request was sent: call again")
        if self._flight is not None:
            return self._unknown(self._flight, failure)
        return OutcomeUnknown("other writers won every entry up to the deadline: call the same method again")

    def _round(self, deadline: Deadline) -> None:
        """Resolves what is in flight, or writes one entry with all that waits."""
        if self._flight is None:
            self._flight = self._build()
            if self._flight is None:
                return
        self._resolve(self._flight, deadline)

    def _build(self) -> Flight | None:
        """The next entry's body, from a state as new as it must be; None if nothing is left to write."""
        fresh = self._probe
        if fresh:
            self._follower.advance()
        if not self._end_is_checked:
            self._follower.check_end()
            self._end_is_checked = True
        taken = self._take()
        try:
            while True:
                try:
                    flight = self._compose(taken)
                except KafkaException:
                    raise
                except Exception as error:  # noqa: BLE001 - a defect, which a list may have brought to light
                    taken = self._apart(taken, error)
                    if not taken:
                        return None
                    continue
                if flight.settled and not fresh:
                    # A refusal, or "done before", may come from what the log has said since: read it first.
                    self._follower.advance()
                    fresh = True
                    continue
                if flight.accepted:
                    return flight
                if self._follower.confirm():
                    self._answer(flight)
                    return None
                self._follower.reopen()
                fresh = True
        except BaseException:
            self._give_back(ticket for ticket in taken if not ticket.is_done())
            raise

    def _apart(self, taken: list[Ticket], error: Exception) -> list[Ticket]:
        """What to try after an entry could not be composed: its first list alone, and where that fails none.

        Whatever has failed, it does so once for each list and its owner, and stops nobody for good.
        """
        if len(taken) > 1:
            self._give_back(taken[1:])
            return taken[:1]
        for ticket in taken:
            # One in an intent may be applied by another process.
            lost = OutcomeLost(f"{_defect(error)}. Another process may have written it")
            self._tell(ticket, lost if ticket.intent is not None else _failed(error))
        return []

    def _take(self) -> list[Ticket]:
        """The lists at the head of the queue that fit one entry, at least one: by bytes, whatever is in them."""
        self._follower.tail.check_writable()
        taken: list[Ticket] = []
        size_bytes = 0
        while self._waiting and (not taken or size_bytes + len(self._waiting[0].encoded) <= ENTRY_BYTES_MAX):
            ticket = self._waiting.popleft()
            size_bytes += len(ticket.encoded)
            taken.append(ticket)
        return taken

    def _give_back(self, tickets: Iterable[Ticket]) -> None:
        self._waiting.extendleft(reversed(list(tickets)))

    def _compose(self, taken: Sequence[Ticket]) -> Flight:
        tail = self._follower.tail
        context = Context(tail.entry + 1, self._timestamp_ms(tail.timestamp_ms))
        entry_delta = Delta(tail.parts.get)
        accepted: list[tuple[Ticket, Outcome]] = []
        settled: list[tuple[Ticket, Outcome]] = []
        body = _Body()
        for ticket in taken:
            outcome, is_known = self._outcome(ticket, entry_delta, context)
            if is_known:
                settled.append((ticket, outcome))
            elif ticket.intent is not None:
                # In an intent it may be taken up by anybody until an entry says what has become of it.
                body.add(_settle(entry_delta, ticket.intent, outcome, context))
                accepted.append((ticket, outcome))
            elif not isinstance(outcome, Applied) or not outcome.to_write:
                settled.append((ticket, outcome))
            else:
                entry_delta.changes.update(outcome.changes)
                is_whole = len(outcome.to_write) == len(ticket.commands)
                body.add(outcome.to_write, ticket.encoded if is_whole else None)
                accepted.append((ticket, outcome))
        others = self._take_up(body, entry_delta, context) if accepted else []
        entry = LogEntry(
            format=FORMAT_VERSION,
            entry=context.entry,
            token=self._ids.token(),
            previous=tail.checksum,
            timestamp_ms=context.timestamp_ms,
            commands=tuple(body.commands),
        )
        data, checksum = encode_entry(entry, body.lists)
        if len(data) > ENTRY_BYTES_MAX:
            # Written before the entry that names it; if that entry is lost, it is garbage that nobody names.
            name = names.appends(entry.entry, entry.token)
            folded, appends = fold(body.commands, name)
            put_new(self._objects, name, appends)
            entry = replace(entry, commands=folded)
            data, checksum = encode_entry(entry)
        # One that no store takes would be put again without end.
        checked_data(names.entry(entry.entry), data)
        entry = replace(entry, checksum=checksum)
        return Flight(taken, entry, data, entry_delta.changes, tail.parts.standing, accepted, settled, others)

    def _outcome(self, ticket: Ticket, delta: Delta, context: Context) -> tuple[Outcome, bool]:
        """What becomes of a list after what is in `delta`, and whether the log has said so before.

        What fails with one list is that list's outcome: the others go on.
        """
        try:
            known = self._intents.known(ticket, self._follower.tail, context)
            if known is not None:
                return known, True
            return WITHDRAWN if ticket.cancelled else self._applied(ticket.commands, delta, context), False
        except StoreUnavailable:
            raise
        except Exception as error:  # a part that is damaged, or a defect of the state machine, which this list has met
            if not isinstance(error, DamagedObject):
                return _failed(error), False
            if self._follower.is_behind():
                raise
            return Failed(error), False

    def _applied(self, commands: Sequence[Command], delta: Delta, context: Context) -> Applied | Refusal:
        """What a list does after what is in `delta`; what it changes can be folded into the state once it is won."""
        outcome = apply_list(delta.get, commands, context)
        if isinstance(outcome, Applied):
            self._follower.tail.parts.load_for(outcome.changes)
        return outcome

    def _take_up(self, body: _Body, delta: Delta, context: Context) -> list[WaitingList]:
        """Settles lists that other processes have left; one that cannot be applied here is left to its owner."""
        others = []
        for list_ in self._intents.waiting(self._follower.tail):
            try:
                body.add(_settle(delta, list_.id, self._applied(list_.commands, delta, context), context))
            except StoreUnavailable:
                raise
            except Exception as error:
                if isinstance(error, DamagedObject) and self._follower.is_behind():
                    raise
                logger.exception("intent %r cannot be applied", list_.id.intent_id)
                self._intents.ignore(list_.id)
                continue
            others.append(list_)
        return others

    def _timestamp_ms(self, previous_ms: int) -> int:
        now_ms = self._clock.wall_ms()
        if previous_ms - now_ms > self._clock_skew_ms_max and not self._clock_skew_told:
            self._clock_skew_told = True
            logger.warning(
                "this clock is %d ms behind the log's newest timestamp, which is kept: set the clock right, here or "
                "where that entry was written",
                previous_ms - now_ms,
            )
        return max(previous_ms, now_ms)

    def _resolve(self, flight: Flight, deadline: Deadline) -> None:
        """Puts the body until its slot is resolved, confirms, and tells everybody."""
        for ticket, _ in flight.accepted:
            ticket.sent = True
        other = self._put_until_resolved(flight, deadline)
        if not self._confirm(flight, deadline):
            self._follower.reopen()
            self._look_for(flight)
            return
        self._apply(flight, other)
        self._flight = None
        self._choose_probing(flight.entry.entry, won=other is None)
        if other is None:
            self._answer(flight)
            self._intents.settled_here(flight.others)
            return
        self._give_back(flight.taken)
        self._intents.contended = True
        self._leave_intent()

    def _choose_probing(self, entry: int, *, won: bool) -> None:
        """Decides whether to look at the next slot before it is put: a lone writer would find it free each time."""
        self._won_in_a_row = self._won_in_a_row + 1 if won and entry == self._last_won + 1 else 0
        if won:
            self._last_won = entry
        is_alone = self._won_in_a_row >= _LONE_AFTER
        self._probe = not won or (self._objects.probe_is_cheap and not is_alone)

    def _apply(self, flight: Flight, other: tuple[LogEntry, int] | None) -> None:
        """Applies the entry that the slot holds, unless following the log has done so since the body was first sent.

        Nothing more is read: it would be younger than the confirm. Changes that were computed before the state took its
        names from another checkpoint would bring the old names back: they are computed again.
        """
        tail = self._follower.tail
        if tail.entry + 1 == flight.entry.entry:
            if other is None and tail.parts.standing is flight.standing:
                tail.take(flight.entry, flight.changes, len(flight.data))
            else:
                tail.apply(*(other or (flight.entry, len(flight.data))))
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

    def _put_until_resolved(self, flight: Flight, deadline: Deadline) -> tuple[LogEntry, int] | None:
        """None once the slot holds this body; the entry and its size if it holds another's."""
        name = names.entry(flight.entry.entry)
        backoff_s = _BACKOFF_S
        while True:
            remaining_s = deadline.remaining_s()
            timeout_s = self._request_timeout_s if remaining_s is None else min(remaining_s, self._request_timeout_s)
            if self._objects.put_if_absent(name, flight.data, timeout_s=timeout_s) is PutOutcome.CREATED:
                return None
            try:
                data = self._objects.get(name)
            except StoreUnavailable as error:
                if is_time_up(deadline):
                    raise self._unknown(flight, error) from None
                data = None
            if data is not None:
                entry = decode_entry(data, name, flight.entry.entry)
                if entry.token != flight.entry.token:
                    return entry, len(data)
                self._objects.make_durable(name)
                return None
            if is_time_up(deadline):
                raise self._unknown(flight, None)
            self._pause(backoff_s, deadline)
            backoff_s = min(2 * backoff_s, _BACKOFF_S_MAX)

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

    def _tell(self, ticket: Ticket, outcome: Outcome) -> None:
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

    def _look_for(self, flight: Flight) -> None:
        """The slot has fallen below the horizon: the confirmed state tells whether its lists have taken effect."""
        tail = self._follower.tail
        context = Context(tail.entry + 1, tail.timestamp_ms)
        # All are looked up before anybody is told: reading the state may fail, and the flight is then resolved again.
        found = {ticket: self._found(ticket, flight, tail, context) for ticket, _ in flight.accepted}
        again = [ticket for ticket in flight.taken if found.get(ticket) is None]
        for ticket, outcome in found.items():
            if outcome is not None:
                self._tell(ticket, outcome)
        self._flight = None
        self._give_back(again)

    def _found(self, ticket: Ticket, flight: Flight, tail: Tail, context: Context) -> Outcome | None:
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
            f"tells whether the request took effect{why}"
        )


class _Body:
    """The commands of an entry that is composed, and their bytes."""

    __slots__ = ("commands", "lists")

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.lists: list[bytes] = []

    def add(self, commands: Sequence[Command], encoded: bytes | None = None) -> None:
        """Adds a list; `encoded` is its bytes where they are known."""
        self.commands += commands
        self.lists.append(encode_list(commands) if encoded is None else encoded)


def _defect(error: Exception) -> str:
    logger.error("a list of commands cannot be written", exc_info=error)
    return f"the request cannot be written, by a defect of sparktxn: {type(error).__name__}: {error}"


def _failed(error: Exception) -> Failed:
    """The outcome of a list that this process cannot work on, and that no entry applies."""
    return Failed(KafkaException(KafkaError(ErrorCode.LOCAL_FAIL, f"{_defect(error)}. Nothing was written")))


def _settle(delta: Delta, intent: IntentId, outcome: Outcome, context: Context) -> list[Command]:
    """The commands that settle an intent's list as `outcome`, applied to `delta`."""
    settle: SettleIntent | CancelIntent
    if outcome is WITHDRAWN or not isinstance(outcome, (Applied, Refusal)):
        settle = CancelIntent(*intent)
    elif isinstance(outcome, Refusal):
        settle = SettleIntent(*intent, refused_code=outcome.code, reason=outcome.reason)
    else:
        settle = SettleIntent(*intent, command_count=len(outcome.to_write))
    noted = apply(delta, settle, context)
    assert not isinstance(noted, Refusal), f"an intent is settled that may not be: {noted.reason}"
    if not isinstance(outcome, Applied):
        return [settle]
    delta.changes.update(outcome.changes)
    return [settle, *outcome.to_write]


def _is_remembered(read: ReadState, commands: Sequence[Command], outcome: Applied | Refusal) -> bool:
    """True if the state would know of the list, had it taken effect.

    A refusal alone does not say so: a transaction that has committed and was fenced afterwards is refused too. Request
    ids are remembered whatever happened since; transactions by their number; but of an append outside of them nothing
    is left once its producer has expired.
    """
    if isinstance(outcome, Refusal):
        return all(hasattr(command, "request_id") for command in commands)
    return all(
        read(("producer", command.topic_id, command.partition, command.producer_id)) is not None
        for command in commands
        if isinstance(command, Append) and command.transaction == NO_TRANSACTION
    )
