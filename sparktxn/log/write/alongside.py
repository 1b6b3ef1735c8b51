"""What a writer does while other processes write: it leaves its lists to them, and sees whether they were taken up.

Where a lock orders the writers of a machine, this is what a writer does while it waits for that lock. Elsewhere writers
that have met take turns, in the order of their intents.
"""

from __future__ import annotations

from typing import Final

from sparktxn.log.follow.follower import Follower
from sparktxn.log.write.intents import Intents
from sparktxn.log.write.queue import Queue, QueuedList
from sparktxn.log.write.slotrace import BACKOFF_S, Slot
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.process.clock import Clock, Deadline, is_time_up

__all__ = ["Alongside", "Answered"]

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
