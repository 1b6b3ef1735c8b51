"""Ends of half transactions that are sent one way, as RocketMQ sends them: the sender does not wait.

An end is queued, and is in the next entry that this process writes, such as that of the sender's next half message. If
there is none within a few milliseconds, a thread writes one. An end that is not stored is not an error of its sender: a
check settles the half transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from sparktxn.errors import CommandRefused
from sparktxn.format.commands import EndHalf
from sparktxn.log.log import CLOSE_TIMEOUT_S
from sparktxn.process.background import start_thread
from sparktxn.process.clock import Deadline, time_left_s
from sparktxn.process.events import log_event

if TYPE_CHECKING:
    from sparktxn.log.log import Log
    from sparktxn.log.write.queue import Ticket

__all__ = ["LINGER_S", "Ends"]

LINGER_S: Final = 0.005
"""How long an end waits for another entry of this process to carry it."""


class _End(NamedTuple):
    """An end on its way. Its sender's deadline says how long this process tries to store it."""

    command: EndHalf
    ticket: Ticket
    deadline: Deadline


class Ends:
    """The ends that one client has sent and that are not known to be stored.

    It refers to nothing of the client, so that its thread keeps no client alive.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._sent: dict[str, _End] = {}
        self._carriers: set[object] = set()
        self._filled = threading.Event()
        self._closed = threading.Event()
        self._life = Deadline(log.clock, None)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that writes what no other entry carries.

        Raises:
            KafkaException: ``_CRIT_SYS_RESOURCE``: the machine gives no thread.
        """
        self._thread = start_thread("sparktxn-ends", self._serve, finish=self._finish, give_up=self._give_up)

    def send(self, command: EndHalf) -> None:
        """Queue an end, and return before it is stored.

        A warning in the log reports an end that is refused, or not known to be stored in this call's time. What was not
        put by then never is, and what was put is not put again.
        """
        self._sent[command.transaction_id] = _End(
            command, self._log.send([command]), Deadline(self._log.clock, time_left_s())
        )
        if not self._filled.is_set():
            self._filled.set()

    @contextmanager
    def carrier(self) -> Iterator[None]:
        """Note that the body writes an entry, which carries the ends that were sent before: none goes alone meanwhile.

        So an end does not go alone where a busy machine takes long to make the entry that would have carried it.
        """
        own = object()
        self._carriers.add(own)
        try:
            yield
        finally:
            self._carriers.discard(own)

    def settle(self) -> None:
        """Wait until what was sent before this call is stored, refused or given up."""
        self._settle(lambda end: True)

    def settle_if_alone(self) -> None:
        """Do so unless an entry is about to carry the ends; then leave those that are not done."""
        if not self._carriers or self._closed.is_set():
            self.settle()
        else:
            self._settle(lambda end: end.ticket.is_done() or end.deadline.passed())

    def _settle(self, is_meant: Callable[[_End], bool]) -> None:
        with self._life.governs():
            for end in filter(is_meant, list(self._sent.values())):
                self._wait(end)

    def close(self) -> None:
        """Wait until all ends are stored, up to the caller's deadline or half a minute; report and give up the rest."""
        self._finish()
        if self._thread is not None:
            self._thread.join(time_left_s(CLOSE_TIMEOUT_S))
        self._give_up()

    def _serve(self) -> None:
        while True:
            self._filled.wait()
            self._closed.wait(LINGER_S)
            self._filled.clear()
            self.settle_if_alone()
            if self._sent:
                self._filled.set()
            elif self._closed.is_set():
                return

    def _finish(self) -> None:
        """Have the thread end once it has stored what was sent."""
        self._closed.set()
        self._filled.set()

    def _give_up(self) -> None:
        """Send no further request, and put none of the ends any more."""
        self._life.end()
        for end in list(self._sent.values()):
            end.ticket.let_go()
            is_stored = end.ticket.results is not None
            self._report(end, None if is_stored else end.ticket.error or "the time for it has passed")

    def _wait(self, end: _End) -> None:
        problem: Exception | None = None
        try:
            with end.deadline.governs():
                end.ticket.wait_once()
        except Exception as error:  # noqa: BLE001 - of any kind: it is reported, and the other ends go on
            problem = error
        self._report(end, problem)

    def _report(self, end: _End, problem: object) -> None:
        """Forget an end, and report why it is not known to be stored; only the first report of an end counts."""
        if self._sent.pop(end.command.transaction_id, None) is None or problem is None:
            return
        half = f"half message {end.command.transaction_id!r} of group {end.command.group_id!r}"
        if isinstance(problem, CommandRefused):
            log_event("half_end_refused", half=half, reason=problem)
        else:
            log_event("half_end_unknown", half=half, reason=problem)
