"""Checks of pending half transactions: which are due, claiming one, asking the client's checker, settling.

A check is claimed by an entry before the checker is asked: of several processes that find it due one asks. A check
is due once its wait has passed by this process's monotonic clock, since it first knew the entry that the wait begins
with. No two clocks are compared: a clock that is wrong makes a check late, never early.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from sparktxn._engine.format.commands import CheckHalf, DiscardHalf, EndHalf
from sparktxn._engine.log.log import CLOSE_TIMEOUT_S
from sparktxn._foundation.process.background import start_thread
from sparktxn._foundation.process.clock import Deadline, callers_own_time, time_left_s
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values.structs import HalfDue, HalfState
from sparktxn.errors import CommandRefused, DamagedObject, KafkaException
from sparktxn.halfmessage.engine import HalfEngine
from sparktxn.halfmessage.records import MessageRecord

if TYPE_CHECKING:
    from sparktxn._engine.log.write.queue import Ticket

Ask = Callable[[HalfState, Sequence[MessageRecord]], bool | None]
"""Asks the client's checker about a half transaction: True commits, False rolls back, None leaves it pending."""

_SIGHTINGS_MAX: Final = 4_096


class Sightings:
    """When this process first knew an entry: some entries with their times, the older the fewer."""

    def __init__(self) -> None:
        self._entries: list[int] = []
        self._seen_s: list[float] = []

    def note(self, entry: int, now_s: float) -> None:
        """Note that `entry` is known now."""
        if self._entries and self._entries[-1] >= entry:
            return
        self._entries.append(entry)
        self._seen_s.append(now_s)
        if len(self._entries) > _SIGHTINGS_MAX:
            middle = _SIGHTINGS_MAX // 2
            self._entries[:middle] = self._entries[:middle:2]
            self._seen_s[:middle] = self._seen_s[:middle:2]

    def seen_s(self, entry: int, now_s: float) -> float:
        """Return when `entry` was known, at the latest; `now_s` if it is not noted."""
        index = bisect_left(self._entries, entry)
        return self._seen_s[index] if index < len(self._entries) else now_s


class _Bell:
    """What the thread waits for. It refers to nothing of the client, so that a waiting thread keeps none alive."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.thread: threading.Thread | None = None

    def join(self, timeout_s: float | None) -> None:
        """Wait for the check under way, but not on its own thread."""
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(timeout_s)


class Checks:
    """Asks for the outcomes of half transactions, those of other processes of the group too, until it is closed."""

    def __init__(self, engine: HalfEngine, groups: Callable[[], Sequence[str]], ask: Ask) -> None:
        """`groups` returns the producer groups to ask for, and `ask` is called on one thread at a time."""
        self._engine = engine
        self._groups = groups
        self._ask = ask
        self._sightings = Sightings()
        self._bell = _Bell()
        self._life = Deadline(engine.log.clock, None)

    def start(self) -> None:
        """Begin to poll, on a thread of its own.

        Raises:
            KafkaException: ``_CRIT_SYS_RESOURCE``: the machine gives no thread.
        """
        poll_s = self._engine.settings.check_poll_s
        bell = self._bell
        bell.thread = start_thread(
            "sparktxn-checks",
            _serve,
            bell,
            weakref.ref(self),
            poll_s,
            finish=bell.closed.set,
            give_up=self._life.end,
        )

    def close(self) -> None:
        """Stop: wait for the check under way, up to the caller's deadline or half a minute."""
        self._bell.closed.set()
        self._bell.join(time_left_s(CLOSE_TIMEOUT_S))
        self._life.end()

    def stopper(self) -> Callable[[], None]:
        """Return what ends the thread of a client that was dropped."""
        return self._bell.closed.set

    def round(self) -> int:
        """Ask for all that is due, one by one; return how many checks were claimed. Called by the thread.

        Raises:
            KafkaException: the store does not answer, or cannot be read; the next round tries again.
        """
        engine = self._engine
        claimed = 0
        sent: list[tuple[HalfDue, Ticket]] = []
        with self._life.governs():
            try:
                with engine.within():
                    self._sightings.note(engine.log.refresh(), engine.log.clock.monotonic_s())
                    due = self._due()
                for found in due:
                    if self._bell.closed.is_set():
                        break
                    claimed += self._check(found, sent)
            finally:
                self._wait(sent)
        return claimed

    def _due(self) -> list[HalfDue]:
        """Return what is due, the oldest first in each group."""
        log = self._engine.log
        now_s, until_ms = log.clock.monotonic_s(), log.clock.wall_ms()
        return [
            due
            for group_id in self._groups()
            for due in log.half_dues(group_id, until_ms)
            if now_s - self._sightings.seen_s(due.entry, now_s) >= due.wait_ms / 1000
        ]

    def _check(self, due: HalfDue, sent: list[tuple[HalfDue, Ticket]]) -> bool:
        """Discard a half transaction, or claim a check and ask; True if a check was claimed."""
        engine, log = self._engine, self._engine.log
        named = (due.group_id, due.transaction_id)
        half = log.half(*named)
        if half is None or half.discarded_entry or half.due_ms != due.due_ms:
            return False
        try:
            with engine.within():
                if half.checks >= engine.settings.checks_max:
                    log.submit([DiscardHalf(*named, half.checks)])
                    log_event(
                        "half_discarded", transaction_id=due.transaction_id, group_id=due.group_id, checks=half.checks
                    )
                    return False
                messages = engine.messages_of(half)
                claim = CheckHalf(*named, half.checks, log.ids.token(), engine.settings.check_interval_ms)
                log.submit([claim])
                self._sightings.note(log.entry, log.clock.monotonic_s())
        except CommandRefused as refused:
            # Settled meanwhile, or claimed by another process.
            log_event("half_not_claimed", transaction_id=due.transaction_id, reason=refused)
            return False
        except DamagedObject as damaged:
            log_event("half_unreadable", transaction_id=due.transaction_id, group_id=due.group_id, error=damaged)
            return False
        outcome = self._answer(half, messages)
        if outcome is not None:
            sent.append((due, log.send([EndHalf(*named, outcome, by_check=True)])))
        return True

    def _answer(self, half: HalfState, messages: Sequence[MessageRecord]) -> bool | None:
        try:
            with callers_own_time():
                return self._ask(half, messages)
        except Exception:  # noqa: BLE001 - logged with its trace
            log_event("half_checker_failed", transaction_id=half.transaction_id, exc_info=True)
            return None

    def _wait(self, sent: Sequence[tuple[HalfDue, Ticket]]) -> None:
        """Wait for the settlements; one that is refused or unknown is left to the next check."""
        with self._engine.within():
            for due, ticket in sent:
                try:
                    ticket.wait_once()
                except KafkaException as error:
                    log_event("half_not_settled_by_check", transaction_id=due.transaction_id, error=error)


def _serve(bell: _Bell, reference: weakref.ref[Checks], poll_s: float) -> None:
    """Do a round at intervals. Between two rounds this thread refers to nothing of the client."""
    while not bell.closed.wait(poll_s):
        checks = reference()
        if checks is None:
            return
        try:
            checks.round()
        except KafkaException as error:
            log_event("halves_not_checked", error=error)
        except Exception:  # noqa: BLE001 - logged with its trace
            log_event("half_check_round_failed", exc_info=True)
        del checks
