"""What is on its way to the log: lists of commands, and the entry that carries them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sparktxn.clock import Deadline
from sparktxn.errors import ClockSkewError, ErrorCode, KafkaException, OutcomeUnknown, StoreUnavailable
from sparktxn.format.commands import Command, CommandResult
from sparktxn.format.entry import LogEntry
from sparktxn.log.write.lists import CheckedList
from sparktxn.state.delta import Refusal
from sparktxn.state.machine import Applied
from sparktxn.structs import StateKey, StateRecord

if TYPE_CHECKING:
    from sparktxn.log.write.committer import Committer

__all__ = ["WITHDRAWN", "Failed", "Flight", "IntentId", "Outcome", "QueuedList", "Ticket", "WaitingList"]

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


class QueuedList:
    """One list of commands on its way, as the committer has it: all of it takes effect, or none.

    `sent` while it is in a body whose slot is not resolved, or in an intent: then it may take effect. `let_go` once its
    owner has given it up: it is put no more.
    """

    __slots__ = ("base_entry", "commands", "encoded", "error", "intent", "let_go", "results", "sent")

    def __init__(self, list_: CheckedList, base_entry: int) -> None:
        self.commands, self.encoded = list_
        self.base_entry = base_entry
        self.results: list[CommandResult] | None = None
        self.error: KafkaException | None = None
        self.sent = False
        self.intent: IntentId | None = None
        self.let_go = False

    def is_done(self) -> bool:
        """True once the outcome is known and final."""
        return self.results is not None or self.error is not None


class Ticket:
    """The owner's hold on a list: as long as there is one, the list may be put, and its outcome be learnt.

    A list is known to have happened, known not to have happened, or its owner holds the ticket. An owner that stops
    waiting either keeps the ticket, or lets go: on leaving a `with` block, by `let_go`, or by forgetting it. What was
    not sent by then never is, and what was sent is not put again.
    """

    __slots__ = ("__weakref__", "_committer", "_list")

    def __init__(self, committer: Committer, list_: QueuedList) -> None:
        self._committer = committer
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
        """True once the outcome is known and final."""
        return self._list.is_done()

    def wait(self, deadline: Deadline) -> list[CommandResult]:
        """The commands' results, in order; works on the log until they are known. May be called again after an error.

        Raises:
            CommandRefused: the state refuses a command; nothing was written.
            OutcomeUnknown: the deadline passed; the list may take effect, or have taken it: wait again, or let go.
            StoreUnavailable: the deadline passed before anything was sent: wait again, or let go.
            DamagedObject: the log cannot be read.
        """
        if not self.is_done():
            self._committer.work_for(self._list, deadline)
        if self.error is not None:
            raise self.error
        assert self.results is not None
        return self.results

    def wait_once(self, deadline: Deadline) -> list[CommandResult]:
        """`wait`, for an owner that does not come back: it lets go of the list if the outcome is not known by then.

        Raises:
            CommandRefused, DamagedObject: as `wait`.
            StoreUnavailable: the list has not taken effect, and never will.
            OutcomeUnknown: it may have taken effect, or take it if an answer is late; it is not put again.
        """
        try:
            return self.wait(deadline)
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
        """True if the list is in no body that may be stored, and in no intent: then it takes effect never."""
        return self._committer.withdraw(self._list)

    def let_go(self) -> bool:
        """Gives the list up without waiting: `withdraw`, and if that is too late, it is not put again by this process.

        True if it never takes effect; False if that is known otherwise, or unknown.
        """
        self._list.let_go = True
        return self.withdraw()

    def cancel(self, deadline: Deadline) -> bool:
        """Withdraws the list also if it was sent, or is in an intent: an entry then says that it never takes effect.

        True once that is certain. False if it has taken effect, or was refused: see `wait`.

        Raises:
            OutcomeUnknown, StoreUnavailable, DamagedObject: as `wait`; the list may have taken effect: call again.
        """
        if not self.let_go() and not self.is_done():
            self._committer.work_for(self._list, deadline)
        return self.error is not None and self.error.args[0].code() == ErrorCode.LOCAL_STATE


class Flight:
    """An entry that was sent, or is about to be: its bytes stay as they are until its slot is resolved.

    `changes` were computed from parts that stood as `standing` says. `accepted` is what it settles, `settled` what was
    settled before, `others` the lists of other processes in it. `may_land` once a put of it has not been answered for
    certain.
    """

    __slots__ = ("accepted", "changes", "data", "entry", "may_land", "others", "settled", "standing", "taken")

    def __init__(
        self,
        taken: Sequence[QueuedList],
        entry: LogEntry,
        data: bytes,
        changes: Mapping[StateKey, StateRecord | None],
        standing: object,
        accepted: list[tuple[QueuedList, Outcome]],
        settled: list[tuple[QueuedList, Outcome]],
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
        self.may_land = False

    def was_let_go_meanwhile(self) -> bool:
        """True if an owner has let go of a list since this body was begun that no body has carried before."""
        return any(list_.let_go and not list_.sent for list_, outcome in self.accepted if outcome is not WITHDRAWN)

    def has_let_go(self) -> bool:
        """True if it would write a list whose owner has given it up."""
        return any(list_.let_go for list_, outcome in self.accepted if outcome is not WITHDRAWN)
