"""The owner's hold on a list that is on its way to the log."""

from __future__ import annotations

from typing import Protocol

from sparktxn.errors import ClockSkewError, ErrorCode, KafkaException, OutcomeUnknown, StoreUnavailable
from sparktxn.format.commands import CommandResult
from sparktxn.log.write.queue import QueuedList

__all__ = ["Ticket"]


class Writer(Protocol):
    """What writes the lists of a process: see `log/write/committer.py`."""

    def work_for(self, list_: QueuedList) -> None:
        """Write entries until the list is done."""

    def withdraw(self, list_: QueuedList) -> bool:
        """Take the list back, if it is in nothing that may be stored."""


class Ticket:
    """The owner's hold on a list: as long as there is one, the list may be put, and its outcome be learnt.

    A list is known to have happened, known not to have happened, or its owner holds the ticket. An owner that stops
    waiting either keeps the ticket, or lets go: on leaving a `with` block, by `let_go`, or by forgetting it. What was
    not sent by then never is, and what was sent is not put again.
    """

    __slots__ = ("__weakref__", "_list", "_writer")

    def __init__(self, writer: Writer, list_: QueuedList) -> None:
        self._writer = writer
        self._list = list_

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()

    def __del__(self) -> None:
        # A mark only: this may run on any thread, in the middle of anything.
        self._list.let_go = True

    @property
    def results(self) -> list[CommandResult] | None:
        """The commands' results, once it is known that the list has taken effect."""
        return self._list.results

    @property
    def error(self) -> KafkaException | None:
        """Why the list has not taken effect, once that is known; OutcomeLost if it never will be."""
        return self._list.error

    def is_done(self) -> bool:
        """Return True once the outcome is known and final."""
        return self._list.is_done()

    def wait(self) -> list[CommandResult]:
        """Return the commands' results, in order; work on the log until they are known. Call it again after an error.

        Raises:
            CommandRefused: the state refuses a command; nothing was written.
            OutcomeUnknown: the deadline passed; the list may take effect, or have taken it: wait again, or let go.
            StoreUnavailable: the deadline passed before anything was sent: wait again, or let go.
            DamagedObject: the log cannot be read.
        """
        if not self.is_done():
            self._writer.work_for(self._list)
        if self.error is not None:
            raise self.error
        assert self.results is not None
        return self.results

    def wait_once(self) -> list[CommandResult]:
        """Wait as `wait` does, for an owner that does not come back: let go of a list whose outcome is still unknown.

        Raises:
            CommandRefused, DamagedObject: as `wait`.
            StoreUnavailable: the list has not taken effect, and never will.
            OutcomeUnknown: it may have taken effect, or take it if an answer is late; it is not put again.
        """
        try:
            return self.wait()
        except (OutcomeUnknown, StoreUnavailable) as error:
            if self.error is not None:
                raise
            is_withdrawn = self.let_go()
            if self.results is not None:
                return self.results
            if is_withdrawn:
                reason = f"{error}: nothing was written, and nothing will be"
                if isinstance(error, ClockSkewError):
                    raise ClockSkewError(reason) from error
                raise StoreUnavailable(reason, transient=getattr(error, "transient", True)) from error
            raise OutcomeUnknown(f"{error}: it may have taken effect; this process does not try again") from error
        except BaseException:  # an interrupted caller must not find its list written by another's later call
            self.let_go()
            raise

    def withdraw(self) -> bool:
        """Return True if the list is in no body that may be stored, and in no intent: then it takes effect never."""
        return self._writer.withdraw(self._list)

    def let_go(self) -> bool:
        """Give the list up without waiting: `withdraw`, and if that is too late, it is not put again by this process.

        True if it never takes effect; False if that is known otherwise, or unknown.
        """
        self._list.let_go = True
        return self.withdraw()

    def cancel(self) -> bool:
        """Withdraw the list also if it was sent, or is in an intent: an entry then says that it never takes effect.

        True once that is certain. False if it has taken effect, or was refused: see `wait`.

        Raises:
            OutcomeUnknown, StoreUnavailable, DamagedObject: as `wait`; the list may have taken effect: call again.
        """
        if not self.let_go() and not self.is_done():
            self._writer.work_for(self._list)
        return self.error is not None and self.error.args[0].code() == ErrorCode.LOCAL_STATE
