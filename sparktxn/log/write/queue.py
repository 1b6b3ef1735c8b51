"""Lists of commands on their way to the log: the states of one, and the queue in which they wait.

Callers append and withdraw on their own threads, without a lock. All else is done by the one thread that writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from sparktxn.errors import CommandRefused, ErrorCode, KafkaError, KafkaException, OutcomeUnknown
from sparktxn.format.commands import Command, CommandResult
from sparktxn.log.write.lists import CheckedList
from sparktxn.state.delta import Refusal
from sparktxn.state.machine import Applied

__all__ = [
    "LISTS_BYTES_MAX",
    "VALID_PREVIOUS_STATES",
    "WITHDRAWN",
    "Failed",
    "IntentId",
    "ListState",
    "Outcome",
    "Queue",
    "QueuedList",
    "WaitingList",
]

LISTS_BYTES_MAX: Final = 1 << 20
"""An entry takes lists until they have so many bytes: every follower reads all of them."""

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


class ListState(Enum):
    """Where a list is. Whether its owner has let go of it is no state: it may do so at any time, on any thread.

    A list in an intent or a body may take effect, now or later, until a confirmed entry says what became of it.
    """

    QUEUED = "in no object that may be stored"
    IN_INTENT = "in an intent, which any writer may take up"
    IN_BODY = "in a body whose slot is not resolved"
    DONE = "its outcome is known and final"


VALID_PREVIOUS_STATES: Final[Mapping[ListState, frozenset[ListState]]] = MappingProxyType(
    {
        # Its slot holds another body, and it is in no intent.
        ListState.QUEUED: frozenset({ListState.IN_BODY}),
        # It was left; or its slot holds another body, and its intent is still open.
        ListState.IN_INTENT: frozenset({ListState.QUEUED, ListState.IN_BODY}),
        # It is put, or is in another body for the same slot; or its intent has expired.
        ListState.IN_BODY: frozenset({ListState.QUEUED, ListState.IN_INTENT, ListState.IN_BODY}),
        ListState.DONE: frozenset({ListState.QUEUED, ListState.IN_INTENT, ListState.IN_BODY}),
    }
)
"""By state: those that a list may come from (format of Kafka's table of transaction states)."""


class QueuedList:
    """One list of commands on its way, as the writer has it: all of it takes effect, or none.

    `let_go` once its owner has given it up: it is put no more. `intent` while it is in one.
    """

    __slots__ = ("base_entry", "commands", "encoded", "error", "intent", "let_go", "results", "state")

    def __init__(self, list_: CheckedList, base_entry: int) -> None:
        self.commands, self.encoded = list_
        self.base_entry = base_entry
        self.state = ListState.QUEUED
        self.results: list[CommandResult] | None = None
        self.error: KafkaException | None = None
        self.intent: IntentId | None = None
        self.let_go = False

    def is_done(self) -> bool:
        """Return True once the outcome is known and final."""
        return self.state is ListState.DONE

    def may_take_effect(self) -> bool:
        """Return True while the list is in an object that is stored, or may be."""
        return self.state in (ListState.IN_INTENT, ListState.IN_BODY)

    def move(self, state: ListState) -> None:
        """Move to `state`, which must be one that the table allows after the present one."""
        assert self.state in VALID_PREVIOUS_STATES[state], f"a list cannot become {state.name} from {self.state.name}"
        self.state = state

    def leave(self, intent: IntentId) -> None:
        """Note, before the object is put, that the list is in an intent."""
        self.intent = intent
        self.move(ListState.IN_INTENT)

    def expire(self) -> None:
        """Take the list out of an intent that no writer can apply any more, for the body that is being made.

        That the intent has expired is not confirmed yet: until its slot is resolved, the list may have taken effect.
        """
        self.intent = None
        self.move(ListState.IN_BODY)

    def leave_slot(self) -> None:
        """Note that the slot of its body is resolved, and holds another body."""
        state = ListState.QUEUED if self.intent is None else ListState.IN_INTENT
        if self.state is not state:
            self.move(state)

    def end(self, outcome: Outcome) -> None:
        """Note the outcome, which is final: a later one changes nothing."""
        if self.is_done():
            return
        if outcome is WITHDRAWN:
            self.error = KafkaException(KafkaError(*WITHDRAWN))
        elif isinstance(outcome, Refusal):
            self.error = CommandRefused(outcome.code, outcome.reason)
        elif isinstance(outcome, OutcomeUnknown):
            self.error = outcome
        elif isinstance(outcome, Failed):
            self.error = outcome.error
        else:
            self.results = outcome.results
        # Last: a caller that waits reads the outcome once it sees this.
        self.move(ListState.DONE)


class Queue:
    """The lists that wait to be written, in the order in which they are taken."""

    def __init__(self) -> None:
        self._lists: deque[QueuedList] = deque()

    def __len__(self) -> int:
        return len(self._lists)

    def add(self, list_: QueuedList) -> None:
        """Add a list at the end."""
        self._lists.append(list_)

    def withdraw(self, list_: QueuedList) -> bool:
        """Take a list out, if it is in no body that may be stored, and in no intent; False if it is too late."""
        if list_.state is not ListState.QUEUED:
            return False
        try:
            self._lists.remove(list_)
        except ValueError:
            return False
        if list_.state is not ListState.QUEUED:
            # The writer has left it in an intent, and given it back, between the two.
            self.give_back([list_])
            return False
        list_.end(WITHDRAWN)
        return True

    def take(self) -> list[QueuedList]:
        """Take the lists at the head that fit one entry, at least one: by bytes, whatever is in them.

        What its owner has let go is left out: it is known not to happen, or may be stored by a body that was sent.
        """
        taken: list[QueuedList] = []
        size_bytes = 0
        while self._lists:
            try:
                list_ = self._lists.popleft()
            except IndexError:  # its owner has withdrawn it just now
                break
            if list_.is_done():
                continue
            if list_.let_go and list_.intent is None:
                if not list_.may_take_effect():
                    list_.end(WITHDRAWN)
                continue
            size_bytes += len(list_.encoded)
            if taken and size_bytes > LISTS_BYTES_MAX:
                self._lists.appendleft(list_)
                break
            taken.append(list_)
        return taken

    def give_back(self, lists: Iterable[QueuedList]) -> None:
        """Put lists at the head, in their order; those that are in the queue stay where they are."""
        # A copy first, in one step of the interpreter: callers append meanwhile, without the lock.
        queued = {id(list_) for list_ in list(self._lists)}
        self._lists.extendleft(reversed([list_ for list_ in lists if id(list_) not in queued]))

    def settled(self, intent_ids: Container[str]) -> list[QueuedList]:
        """Return the lists whose intents are among `intent_ids`; they stay in their places."""
        return [list_ for list_ in list(self._lists) if list_.intent and list_.intent.intent_id in intent_ids]

    def remove(self, list_: QueuedList) -> None:
        """Take out a list that is in the queue, and in an intent."""
        self._lists.remove(list_)
