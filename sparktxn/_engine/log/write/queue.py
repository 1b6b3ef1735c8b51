"""Lists of commands on their way to the log: checked, their states, the queue, tickets, and whose turn it is.

Callers append and withdraw on their own threads, without a lock. All else is done by the one thread that writes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from sparktxn._engine.format.commands import Append, Command, CommandResult
from sparktxn._engine.format.entry import decode_list, encode_list
from sparktxn._engine.objectstore.contract import OBJECT_SIZE_MAX
from sparktxn._engine.state.delta import Refusal
from sparktxn._engine.state.machine import Applied
from sparktxn._engine.state.settings import Condition
from sparktxn._foundation.process.clock import time_left_s
from sparktxn.errors import (
    ClockSkewError,
    CommandRefused,
    ErrorCode,
    KafkaError,
    KafkaException,
    OutcomeUnknown,
    StoreUnavailable,
)

# Lists of commands before they are queued: none gets further that a reader of the log would refuse.
#
# A list that cannot be written, or not be read again, would stop every process: it is refused to its caller alone.
# What is queued is what a reader decodes, so that the state of this process is that of all others.

LIST_BYTES_MAX: Final = OBJECT_SIZE_MAX * 2 // 3
"""Bytes of a list without appends of objects: room is left in the entry for what settles lists of other processes."""
APPENDS_BYTES_MAX: Final = 2 * OBJECT_SIZE_MAX
"""Bytes of a list's appends that name objects: as columns of an append object they take less than half of it."""


class CheckedList(NamedTuple):
    """Commands as a reader decodes them, and their bytes in an entry."""

    commands: tuple[Command, ...]
    encoded: bytes


def checked_list(commands: Sequence[Command]) -> CheckedList:
    """Encode the list and decode it again.

    Raises:
        CommandRefused: _INVALID_ARG: a member holds what an entry cannot, or what a reader takes for something else;
            MSG_SIZE_TOO_LARGE: the list fits no entry. Nothing is queued.
    """
    given = tuple(commands)
    try:
        checked = _through_json(given)
    except Exception as error:  # an encoder fails in any way on what is not a value of a command
        raise _refusal(given, error) from error
    if len(checked.encoded) > LIST_BYTES_MAX:
        _check_size(checked)
    return checked


def _through_json(commands: tuple[Command, ...]) -> CheckedList:
    encoded = encode_list(commands)
    decoded = decode_list(encoded)
    if decoded != commands:
        # Such as bytes for text, which JSON would hold as base64.
        raise ValueError("a reader would find another value")
    return CheckedList(decoded, encoded)


def _refusal(commands: tuple[Command, ...], error: Exception) -> CommandRefused:
    """Return the refusal of a list, which names its first command that is at fault."""
    for number, command in enumerate(commands, 1):
        try:
            _through_json((command,))
        except Exception as fault:  # noqa: BLE001 - as above
            where = f"command {number} of {len(commands)} ({type(command).__name__})"
            return CommandRefused(
                ErrorCode.LOCAL_INVALID_ARG,
                f"{where} holds a value that the log cannot hold: {fault}. Expected 64-bit integers and text that is "
                "valid UTF-8; nothing was written",
            )
    return CommandRefused(ErrorCode.LOCAL_INVALID_ARG, f"the commands cannot be written: {error}")


def _check_size(checked: CheckedList) -> None:
    appends = [command for command in checked.commands if isinstance(command, Append) and not command.data]
    appends_bytes = len(encode_list(appends))
    others_bytes = len(checked.encoded) - appends_bytes
    if appends_bytes <= APPENDS_BYTES_MAX and others_bytes <= LIST_BYTES_MAX:
        return
    raise CommandRefused(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{len(checked.commands)} commands are too large for one log entry: {len(appends)} segments take "
        f"{appends_bytes} bytes (expected at most {APPENDS_BYTES_MAX}), and all else {others_bytes} (expected at most "
        f"{LIST_BYTES_MAX}). Use fewer segments or less metadata in one transaction; nothing was written",
    )


LISTS_BYTES_MAX: Final = 1 << 20
"""An entry takes lists until they have so many bytes: every follower reads all of them."""

_WAIT_S: Final = 1.0

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
    """Where a list is. Whether its owner has let go of it is not a state: it may do so at any time, on any thread.

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

    `let_go` once its owner has given it up: it is put no more. `intent` while it is in one. `condition` must hold for
    the state that it follows, so only this process puts it.
    """

    __slots__ = ("_failure", "base_entry", "commands", "condition", "encoded", "intent", "let_go", "results", "state")

    def __init__(self, list_: CheckedList, base_entry: int, condition: Condition | None = None) -> None:
        self.commands, self.encoded = list_
        self.condition = condition
        self.base_entry = base_entry
        self.state = ListState.QUEUED
        self.results: list[CommandResult] | None = None
        self._failure: Refusal | KafkaException | None = None
        self.intent: IntentId | None = None
        self.let_go = False

    @property
    def error(self) -> KafkaException | None:
        """Why the list has not taken effect, once that is known.

        A refusal is made anew for each who asks: an error that is kept would keep itself, by the frames that raise it.
        """
        failure = self._failure
        if failure is WITHDRAWN:
            return KafkaException(KafkaError(*WITHDRAWN))
        return CommandRefused(failure.code, failure.reason) if isinstance(failure, Refusal) else failure

    def is_done(self) -> bool:
        """Return True once the outcome is known and final."""
        return self.state is ListState.DONE

    def may_take_effect(self) -> bool:
        """Return True while the list is in an object that is stored, or may be."""
        return self.state in (ListState.IN_INTENT, ListState.IN_BODY)

    def raise_about(self, error: OutcomeUnknown | StoreUnavailable) -> None:
        """Raise the error as one about this list, whatever it was met with; pass if the list's outcome is known.

        Raises:
            OutcomeUnknown: the list may have taken effect, or take it.
            StoreUnavailable: it was not sent, and has not taken effect.
        """
        if self.is_done():
            return
        if self.may_take_effect() and isinstance(error, StoreUnavailable):
            unknown = (
                f"the outcome is unknown at the deadline (possibly persisted): call the same method again: {error}"
            )
            raise OutcomeUnknown(unknown) from error
        if not self.may_take_effect() and isinstance(error, OutcomeUnknown):
            raise StoreUnavailable(f"the request was not sent by the deadline: call again: {error}") from error
        try:
            raise error
        finally:
            del error  # it has this frame now, and would keep itself by it

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
        if isinstance(outcome, Failed):
            self._failure = outcome.error
        elif isinstance(outcome, Refusal | OutcomeUnknown):
            self._failure = outcome
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


class _Writer(Protocol):
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

    def __init__(self, writer: _Writer, list_: QueuedList) -> None:
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
        list_ = self._list
        if not list_.is_done():
            try:
                self._writer.work_for(list_)
            except (OutcomeUnknown, StoreUnavailable) as error:
                list_.raise_about(error)
        if list_.results is not None:
            return list_.results
        assert list_.error is not None
        raise list_.error

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
            try:
                self._writer.work_for(self._list)
            except (OutcomeUnknown, StoreUnavailable) as error:
                self._list.raise_about(error)
        return self.error is not None and self.error.args[0].code() == ErrorCode.LOCAL_STATE


class Turns:
    """Says which caller writes, of those whose lists wait; the others leave as soon as their lists are done.

    The replica's lock alone would do, but not as well. It may go to a caller that is to write the next entry, before it
    goes to those that the last entry has answered. Each of these would wait for one entry more. Its next list would
    miss that entry.

    It is not a lock: a caller that has waited for a second goes on as if it had the turn. A caller that gives its turn
    back wakes one more, which gets the turn, and the first of those whose lists are done. Each of these wakes the next
    one as it leaves. Dozens that were woken at once would only wait for the interpreter's lock, and each asks for that
    again and again. The others sleep on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writer: _Waiting | None = None
        self._waiting: deque[_Waiting] = deque()
        self._answered: deque[_Waiting] = deque()

    @contextmanager
    def turn(self, is_done: Callable[[], bool]) -> Iterator[None]:
        """Wait until no other caller has the turn, or the list is done; then have the turn until the end of the block.

        Nothing is raised when the caller's deadline passes.

        Args:
            is_done: says whether the list is done. It becomes so while another caller has the turn.
        """
        own = _Waiting(is_done)
        left_s = time_left_s()
        try:
            with self._lock:
                waits = self._writer is not None and not is_done()
                if waits:
                    self._waiting.append(own)
                elif self._writer is None:
                    self._writer = own
            if waits:
                own.woken.acquire(timeout=_WAIT_S if left_s is None else min(left_s, _WAIT_S))
            yield
        finally:
            self._leave(own)

    def _leave(self, own: _Waiting) -> None:
        with self._lock:
            for sleeping in (self._waiting, self._answered):
                if own in sleeping:
                    sleeping.remove(own)
            if self._writer is own:
                self._pass_on()
            if self._answered:
                self._answered.popleft().woken.release()

    def _pass_on(self) -> None:
        waiting, self._waiting, self._writer = self._waiting, deque(), None
        for other in waiting:
            if other.is_done():
                self._answered.append(other)
            elif self._writer is None:
                self._writer = other
                other.woken.release()
            else:
                self._waiting.append(other)


class _Waiting:
    """A caller; `woken` is held until it may go on."""

    __slots__ = ("is_done", "woken")

    def __init__(self, is_done: Callable[[], bool]) -> None:
        self.is_done = is_done
        self.woken = threading.Lock()
        self.woken.acquire()
