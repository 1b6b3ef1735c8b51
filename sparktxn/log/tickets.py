"""What is on its way to the log: lists of commands, and the entry that carries them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sparktxn.clock import Deadline
from sparktxn.errors import ErrorCode, KafkaException, OutcomeUnknown
from sparktxn.format.commands import Command, CommandResult
from sparktxn.format.entry import LogEntry
from sparktxn.log.lists import CheckedList
from sparktxn.state.delta import Refusal
from sparktxn.state.machine import Applied
from sparktxn.structs import StateKey, StateRecord

if TYPE_CHECKING:
    from sparktxn.log.committer import Committer

__all__ = ["WITHDRAWN", "Flight", "IntentId", "Outcome", "Ticket", "WaitingList"]

WITHDRAWN: Final = Refusal(ErrorCode.LOCAL_STATE, "the request was withdrawn: make it again")
"""The outcome of a list that its caller has taken back, and that takes effect never."""


class Failed(NamedTuple):
    """The outcome of a list that was not written because working on it has failed."""

    error: KafkaException


Outcome = Applied | Refusal | OutcomeUnknown | Failed


class IntentId(NamedTuple):
    """A list's id, and the state that it was left at."""

    intent_id: str
    base_entry: int


class WaitingList(NamedTuple):
    """A list that another process has left."""

    id: IntentId
    commands: tuple[Command, ...]


class Ticket:
    """One list of commands on its way: all of it takes effect, or none."""

    __slots__ = ("_committer", "base_entry", "cancelled", "commands", "encoded", "error", "intent", "results", "sent")

    def __init__(self, committer: Committer, list_: CheckedList, base_entry: int) -> None:
        self._committer = committer
        self.commands, self.encoded = list_
        self.base_entry = base_entry
        self.results: list[CommandResult] | None = None
        self.error: KafkaException | None = None
        self.sent = False
        self.intent: IntentId | None = None
        self.cancelled = False

    def is_done(self) -> bool:
        """True once the outcome is known and final."""
        return self.results is not None or self.error is not None

    def wait(self, deadline: Deadline) -> list[CommandResult]:
        """The commands' results, in order; works on the log until they are known. May be called again after an error.

        Raises:
            CommandRefused: the state refuses a command; nothing was written.
            OutcomeUnknown: the deadline passed; the list may take effect, or have taken it: wait again.
            StoreUnavailable: the deadline passed before anything was sent: wait again, or withdraw.
            DamagedObject: the log cannot be read.
        """
        if not self.is_done():
            self._committer.work_for(self, deadline)
        if self.error is not None:
            raise self.error
        assert self.results is not None
        return self.results

    def withdraw(self) -> bool:
        """True if the list was in no body that was sent, and in no intent: then it never will be."""
        return self._committer.withdraw(self)

    def cancel(self, deadline: Deadline) -> bool:
        """Withdraws the list also if it was sent, or is in an intent: an entry then says that it never takes effect.

        True once that is certain. False if it has taken effect, or was refused: `wait` tells.

        Raises:
            OutcomeUnknown, StoreUnavailable, DamagedObject: as `wait`; the list may have taken effect: call again.
        """
        if not self.withdraw():
            self._committer.cancel(self, deadline)
        return self.error is not None and self.error.args[0].code() == ErrorCode.LOCAL_STATE


class Flight:
    """An entry that was sent, or is about to be: its bytes stay as they are until its slot is resolved.

    `changes` were computed from parts that stood as `standing` says. `accepted` is what it settles, `settled` what was
    settled before, `others` the lists of other processes in it.
    """

    __slots__ = ("accepted", "changes", "data", "entry", "others", "settled", "standing", "taken")

    def __init__(
        self,
        taken: Sequence[Ticket],
        entry: LogEntry,
        data: bytes,
        changes: Mapping[StateKey, StateRecord | None],
        standing: object,
        accepted: list[tuple[Ticket, Outcome]],
        settled: list[tuple[Ticket, Outcome]],
        others: Sequence[WaitingList],
    ) -> None:
        self.taken = taken
        self.entry = entry
        self.data = data
        self.changes = changes
        self.standing = standing
        self.accepted = accepted
        self.settled = settled
        self.others = others
