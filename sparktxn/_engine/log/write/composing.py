"""What the next entry holds: each list checked against the state that the lists before it leave.

What fails with one list is the outcome of that list, and stops no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.appends import ENTRY_BYTES_MAX, fold
from sparktxn._engine.format.commands import CancelIntent, Command, SettleIntent
from sparktxn._engine.format.entry import FORMAT_VERSION, LogEntry, encode_entry, encode_list
from sparktxn._engine.log.follow.follower import Follower
from sparktxn._engine.log.follow.inlinerecords import carried_records
from sparktxn._engine.log.write.intents import Intents
from sparktxn._engine.log.write.queue import WITHDRAWN, Failed, IntentId, Outcome, QueuedList, WaitingList
from sparktxn._engine.objectstore.contract import ObjectStore, checked_data
from sparktxn._engine.objectstore.puts import put_until_stored
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.machine import Applied, apply, apply_list
from sparktxn._foundation.process.clock import Clock, Ids
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values.structs import StateKey, StateRecord
from sparktxn.errors import DamagedObject, ErrorCode, KafkaError, KafkaException, OutcomeLost, StoreUnavailable


class Flight:
    """An entry that was sent, or is about to be: its bytes stay as they are until its slot is resolved.

    `changes` were computed from parts that stood as `basis` says. `accepted` is what it settles, `settled` what was
    settled before, `others` the lists of other processes in it. `may_land` once a put of it has not been answered for
    certain.
    """

    __slots__ = ("accepted", "basis", "changes", "data", "entry", "may_land", "others", "settled", "taken")

    def __init__(
        self,
        taken: Sequence[QueuedList],
        entry: LogEntry,
        data: bytes,
        changes: Mapping[StateKey, StateRecord | None],
        basis: object,
        accepted: list[tuple[QueuedList, Outcome]],
        settled: list[tuple[QueuedList, Outcome]],
        others: Sequence[WaitingList],
    ) -> None:
        self.taken = taken
        self.entry = entry
        self.data = data
        self.changes = changes
        self.basis = basis
        self.accepted = accepted
        self.settled = settled
        self.others = others
        self.may_land = False

    def was_let_go_meanwhile(self) -> bool:
        """Return True if an owner has let go of a list since this body was begun that no body has carried before."""
        return any(
            list_.let_go and not list_.may_take_effect() for list_, outcome in self.accepted if outcome is not WITHDRAWN
        )

    def has_let_go(self) -> bool:
        """Return True if it would write a list whose owner has given it up."""
        return any(list_.let_go for list_, outcome in self.accepted if outcome is not WITHDRAWN)


class Composer:
    """Composes the entries of a process. Its callers hold the follower's lock."""

    def __init__(
        self,
        objects: ObjectStore,
        follower: Follower,
        clock: Clock,
        ids: Ids,
        intents: Intents,
        *,
        clock_skew_ms_max: int,
    ) -> None:
        self._objects = objects
        self._follower = follower
        self._clock = clock
        self._ids = ids
        self._intents = intents
        self._clock_skew_ms_max = clock_skew_ms_max
        self._clock_skew_reported = False

    def compose(self, taken: Sequence[QueuedList]) -> Flight:
        """Return the body of the entry after the tail's, with all of the lists that the state takes.

        Raises:
            StoreUnavailable, DamagedObject: the state cannot be read, or was passed by a vacuum.
            ValueError: no store would take the entry.
        """
        tail = self._follower.tail
        # A writer never extends a log that holds an entry which the state refuses.
        tail.parts.catch_up()
        context = Context(tail.entry + 1, self._timestamp_ms(tail.timestamp_ms))
        delta = Delta(tail.parts.get)
        accepted: list[tuple[QueuedList, Outcome]] = []
        settled: list[tuple[QueuedList, Outcome]] = []
        body = _Body()
        for list_ in taken:
            mark = len(delta.replaced)
            known: Outcome | None = None
            outcome: Outcome = WITHDRAWN
            try:
                if list_.intent is not None:
                    known = self._intents.known(list_, tail, context)
                # Given up before any body has carried it, or in an intent that an entry must then cancel.
                is_withdrawn = list_.let_go and (list_.intent is not None or not list_.may_take_effect())
                if known is None and not is_withdrawn:
                    refused = None if list_.condition is None else list_.condition(delta.get)
                    outcome = refused or apply_list(delta, list_.commands, context)
                    tail.parts.load_for(delta.since(mark))
            except Exception as error:  # noqa: BLE001 - it is this list's outcome, or raised again
                delta.undo(mark)
                outcome = self._failure(error)
            if known is not None:
                settled.append((list_, known))
            elif list_.intent is not None:
                # In an intent any writer may take it up until an entry says what has become of it.
                body.add(_settle(delta, list_.intent, outcome, context))
                accepted.append((list_, outcome))
            elif isinstance(outcome, Applied) and outcome.to_write:
                is_whole = len(outcome.to_write) == len(list_.commands)
                body.add(outcome.to_write, list_.encoded if is_whole else None)
                accepted.append((list_, outcome))
            else:
                settled.append((list_, outcome))
        others = self._take_up(body, delta, context) if accepted else []
        entry, data = self._encoded(body, context)
        return Flight(taken, entry, data, delta.changes, tail.parts.basis, accepted, settled, others)

    def _encoded(self, body: _Body, context: Context) -> tuple[LogEntry, bytes]:
        """Return the entry and its bytes; appends that would make it too large are put into an object of their own."""
        entry = LogEntry(
            format=FORMAT_VERSION,
            entry=context.entry,
            token=self._ids.token(),
            previous=self._follower.tail.checksum,
            timestamp_ms=context.timestamp_ms,
            commands=tuple(body.commands),
        )
        data, checksum = encode_entry(entry, body.lists)
        if len(data) > ENTRY_BYTES_MAX and len(data) - _inline_bytes(body.commands) > ENTRY_BYTES_MAX:
            # Written before the entry that names it; if that entry is lost, it is garbage that no entry names.
            name = names.appends(entry.entry, entry.token)
            folded, appends = fold(body.commands, name)
            put_until_stored(self._objects, name, appends, self._clock)
            entry = replace(entry, commands=folded)
            data, checksum = encode_entry(entry)
        # One that no store takes would be put again without end.
        checked_data(names.entry(entry.entry), data)
        return replace(entry, checksum=checksum), data

    def _failure(self, error: Exception) -> Failed:
        """Return the outcome of a list that has met a damaged part, or a defect of the state machine.

        What fails with one list is that list's outcome: the others go on.

        Raises:
            StoreUnavailable, DamagedObject: no list has failed: the state cannot be read, or was passed by a vacuum.
        """
        if isinstance(error, StoreUnavailable):
            raise error
        if not isinstance(error, DamagedObject):
            return _failed(error)
        if self._follower.is_behind():
            raise error
        return Failed(error)

    def _take_up(self, body: _Body, delta: Delta, context: Context) -> list[WaitingList]:
        """Settle lists that other processes have left; one that cannot be applied here is left to its owner."""
        others = []
        tail = self._follower.tail
        for list_ in self._intents.waiting(tail):
            mark = len(delta.replaced)
            try:
                outcome = apply_list(delta, list_.commands, context)
                tail.parts.load_for(delta.since(mark))
                body.add(_settle(delta, list_.id, outcome, context))
            except Exception as error:  # noqa: BLE001 - it leaves the list to its owner, or is raised again
                delta.undo(mark)
                log_event("intent_not_applied", intent_id=list_.id.intent_id, error=self._failure(error).error)
                self._intents.ignore(list_.id)
                continue
            others.append(list_)
        return others

    def _timestamp_ms(self, previous_ms: int) -> int:
        now_ms = self._clock.wall_ms()
        if previous_ms - now_ms > self._clock_skew_ms_max and not self._clock_skew_reported:
            self._clock_skew_reported = True
            log_event("clock_behind", behind_ms=previous_ms - now_ms)
        return max(previous_ms, now_ms)


class _Body:
    """The commands of an entry that is composed, and their bytes."""

    __slots__ = ("commands", "lists")

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.lists: list[bytes] = []

    def add(self, commands: Sequence[Command], encoded: bytes | None = None) -> None:
        """Add a list; `encoded` is its bytes where they are known."""
        self.commands += commands
        self.lists.append(encode_list(commands) if encoded is None else encoded)


def _inline_bytes(commands: Sequence[Command]) -> int:
    """Return about how many bytes of an entry the records take that `commands` carry: base64 makes 4 of 3."""
    return sum(map(len, carried_records(commands, 0).values())) * 4 // 3


def not_written(list_: QueuedList, error: Exception) -> Outcome:
    """Return the outcome of a list that fits no entry, not even alone; one in an intent may still be written."""
    if list_.intent is None:
        return _failed(error)
    return OutcomeLost(f"{_defect(error)}. Another process may have written it")


def _defect(error: Exception) -> str:
    """Return the text for the owner of a list that this process fails with."""
    log_event("list_not_written", exc_info=error)
    return f"the request cannot be written, by a defect of sparktxn: {type(error).__name__}: {error}"


def _failed(error: Exception) -> Failed:
    """Return the outcome of a list that this process cannot work on, and that no entry applies."""
    return Failed(KafkaException(KafkaError(ErrorCode.LOCAL_FAIL, f"{_defect(error)}. Nothing was written")))


def _settle(delta: Delta, intent: IntentId, outcome: Outcome, context: Context) -> list[Command]:
    """Return the commands that settle an intent's list as `outcome`, applied to `delta`."""
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
    return [settle, *outcome.to_write]
