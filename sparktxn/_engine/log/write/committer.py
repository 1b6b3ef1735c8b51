"""The write loop: has callers' lists put as entries, alone and while others write (PROTOCOL.md, "Won, lost, unknown").

Callers leave lists of commands in a queue (`log/write/queue.py`). The thread that gets the lock takes all that fit one
entry, its own among them (group commit). It has the entry composed, and hands it to the slot (`log/write/slotrace.py`).
No caller gets an answer before the entry is confirmed. What cannot be known by the deadline is reported as unknown,
and stays in flight. The next call of any client resolves that slot first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sparktxn._engine.format.commands import Command
from sparktxn._engine.log.follow.follower import Follower
from sparktxn._engine.log.write.composing import Composer, not_written
from sparktxn._engine.log.write.intents import Intents
from sparktxn._engine.log.write.queue import Queue, QueuedList, Ticket, Turns, checked_list
from sparktxn._engine.log.write.slotrace import BACKOFF_S, Conclusion, Slot, pause
from sparktxn._engine.log.write.storeclock import ClockCheck
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.state.settings import Condition
from sparktxn._foundation.process.clock import Clock, Deadline, Ids, is_time_up
from sparktxn.errors import DamagedObject, FormatVersionError, KafkaException, StoreUnavailable
from sparktxn.metrics.process import PROCESS, Call

# What a writer does while other processes write: it leaves its lists to them, and sees whether they were taken up.
#
# Where a lock orders the writers of a machine, this is what a writer does while it waits for that lock. Elsewhere
# writers that have met take turns, in the order of their intents.

_PATIENCE_S: Final = 0.1
"""How long to wait for each of the intents that were left earlier: one entry, with room to spare."""


class Answered(Exception):
    """Ends the wait for the lock: another process's entry has settled what was waited for."""


class Alongside:
    """The writer's work while others write. Its callers hold the follower's lock.

    Args:
        objects: the store.
        follower: owns the state.
        clock: for the waits.
        queue: the lists that are left.
        slot: nothing is left while it holds a body.
        intents: where they are left.
    """

    def __init__(
        self,
        objects: ObjectStore,
        follower: Follower,
        clock: Clock,
        queue: Queue,
        slot: Slot,
        intents: Intents,
    ) -> None:
        self._objects = objects
        self._follower = follower
        self._clock = clock
        self._queue = queue
        self._slot = slot
        self._intents = intents

    def leave(self) -> None:
        """Leave what waits in an intent, as far as it may travel, unless one is out already."""
        if self._intents.is_out:
            return
        self._follower.tail.check_writable()
        taken = self._queue.take()
        try:
            self._intents.leave(taken, self._follower.tail.entry)
        finally:
            self._queue.give_back(taken)

    def follow(self, list_: QueuedList) -> None:
        """Leave an intent, follow the log, and see whether it was taken up.

        Raises:
            Answered: it was, and the list is done.
        """
        if self._slot.flight is not None:
            return
        self.leave()
        # What settles a list is likely to be the very next entry: where a poll is slow, one is enough for now.
        self._follower.advance(at_most=None if self._objects.probe_is_cheap else self._follower.tail.entry + 1)
        self._answer_noted()
        if list_.is_done():
            raise Answered

    def take_turns(self, list_: QueuedList) -> None:
        """Wait for this writer's turn, by its intents, if writers have met and no lock orders them.

        Raises:
            Answered: another process's entry has settled what was waited for.
        """
        if self._slot.flight is None and self._intents.contended:
            self.follow(list_)
            self._slot.probes = False
            self.wait_for_turn(list_)

    def wait_for_turn(self, list_: QueuedList) -> None:
        """Let the owner of the oldest intent write; the others wait for its entry.

        No process waits without end: the oldest intent may be that of a dead process.

        Raises:
            Answered: another process's entry has settled what was waited for.
        """
        while (rank := self._intents.rank(self._follower.tail)) > 0:
            entry, gives_up = self._follower.tail.entry, Deadline(self._clock, rank * _PATIENCE_S)
            while self._follower.tail.entry == entry:
                if gives_up.passed() or is_time_up():
                    return
                self._clock.sleep(BACKOFF_S)
                self.follow(list_)

    def _answer_noted(self) -> None:
        """Resolve the lists that other writers' entries have settled, after confirming."""
        settled = self._follower.tail.settled
        if not settled:
            return
        noted = self._queue.settled(settled)
        if not noted:
            return
        if not self._follower.confirm():
            self._follower.reopen()
            return
        for list_ in noted:
            assert list_.intent is not None
            self._queue.remove(list_)
            self._intents.answer([(list_, settled[list_.intent.intent_id])], self._follower.tail)


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
        after_win: Iterable[Callable[[], None]],
        clock_check: ClockCheck | None = None,
    ) -> None:
        self._objects = objects
        self._follower = follower
        self._clock = clock
        self._composer = Composer(objects, follower, clock, ids, intents, clock_skew_ms_max=clock_skew_ms_max)
        self._intents = intents
        self._after_win = tuple(after_win)
        self._turns = Turns()
        self._queue = Queue()
        self._slot = Slot(objects, follower, clock, self._queue, intents, request_timeout_s=request_timeout_s)
        self._alongside = Alongside(objects, follower, clock, self._queue, self._slot, intents)
        self._end_is_checked = False
        self._clock_check = clock_check

    def send(self, commands: Sequence[Command], condition: Condition | None = None) -> Ticket:
        """Queue a list of commands, all or nothing; it is written when a caller waits for it, or for another.

        The ticket is the caller's hold on it: see `Ticket`. What `condition` returns for the state that the list is to
        follow refuses it, as the state itself does.

        Raises:
            CommandRefused: the list cannot be written, or not be read again (_INVALID_ARG), or fits no entry.
        """
        list_ = QueuedList(checked_list(commands), self._follower.tail.entry, condition)
        self._queue.add(list_)
        return Ticket(self, list_)

    def withdraw(self, list_: QueuedList) -> bool:
        """Take a list out of the queue, if it is in no body that may be stored, and in no intent."""
        return self._queue.withdraw(list_)

    def work_for(self, list_: QueuedList) -> None:
        """Write entries until the list is done.

        Raises:
            OutcomeUnknown, StoreUnavailable: of whatever it was working on, which may be other callers' lists.
            DamagedObject: see `Ticket.wait`.
        """
        backoff_s = BACKOFF_S
        with Call(PROCESS.log_write, self._clock):
            while True:
                with self._turns.turn(list_.is_done):
                    if list_.is_done():
                        return
                    with self._follower.locked("commit"):
                        if list_.is_done():
                            return
                        failure = self._round(list_)
                        if list_.is_done():
                            break
                        if is_time_up():
                            raise self._slot.too_late(list_, failure)
                if failure is not None:
                    PROCESS.write_retries.add()
                    backoff_s = pause(self._clock, backoff_s)
            self._intents.clear()
            for work in self._after_win:
                work()

    def _round(self, list_: QueuedList) -> StoreUnavailable | None:
        """Resolve what is in flight, or write one entry with all that waits; return a failure that may pass."""
        slot = self._slot
        try:
            if self._clock_check is not None and slot.flight is None and list_.intent is None:
                self._clock_check.check()
            try:
                with self._objects.contention_lock(lambda: self._alongside.follow(list_)):
                    if not self._objects.probe_is_cheap:
                        self._alongside.take_turns(list_)
                    if slot.flight is None:
                        self._build()
                    elif slot.flight.has_let_go():
                        found = slot.make_room()
                        if found is not None:
                            self._answer(slot.conclude(found))
                        elif not self._build() and not slot.holds(list_):
                            return None
                    if slot.flight is not None:
                        self._answer(slot.conclude(slot.resolve()))
            except (DamagedObject, FormatVersionError) as damage:
                # A part that is loaded only now may have been vacuumed; what is in flight is then resolved again.
                self._follower.begin_again(damage)
        except Answered:
            return None
        except StoreUnavailable as failure:
            if not failure.transient:
                raise
            return failure
        return None

    def _build(self) -> bool:
        """Make the next body, from a state as new as it must be, the flight; False if nothing is left to write.

        While the slot holds a body it is another one for that slot: False also if the log has gone on beyond it.
        """
        is_another = self._slot.flight is not None
        fresh = self._slot.probes and not is_another
        if fresh:
            self._follower.advance()
        if not self._end_is_checked:
            self._follower.check_end()
            self._end_is_checked = True
        self._follower.tail.check_writable()
        taken = self._queue.take()
        try:
            while True:
                if is_another and self._slot.is_passed():
                    self._queue.give_back(taken)
                    return False
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
                    continue
                if flight.was_let_go_meanwhile():
                    continue  # its owner has the answer that it is not tried again
                if flight.accepted:
                    self._slot.take_off(flight)
                    return True
                if self._follower.confirm():
                    self._intents.answer(flight.settled, self._follower.tail)
                    return False
                self._follower.reopen()
                fresh = True
        except BaseException:
            if self._slot.flight is None or self._slot.flight.taken is not taken:
                self._queue.give_back(one for one in taken if not one.is_done())
            raise

    def _apart(self, taken: list[QueuedList], error: Exception) -> list[QueuedList]:
        """Return what to try after an entry could not be composed: its first list alone, and where that fails none.

        Whatever has failed, it does so once for each list and its owner, and stops no caller permanently.
        """
        if len(taken) > 1:
            self._queue.give_back(taken[1:])
            return taken[:1]
        self._intents.answer([(list_, not_written(list_, error)) for list_ in taken], self._follower.tail)
        return []

    def _answer(self, conclusion: Conclusion) -> None:
        """Answer all callers whose outcomes the slot has decided, and go on to the next slot."""
        self._intents.answer(conclusion.outcomes, self._follower.tail)
        if conclusion.others:
            self._intents.settled_here(conclusion.others)
        self._slot.close()
        if conclusion.is_lost:
            self._intents.note_contention()
            self._alongside.leave()
