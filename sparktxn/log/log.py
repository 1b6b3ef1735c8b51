"""A store's log, as one process uses it: sending commands, following, read views, and what the state says.

All clients of a process share one `Log` per store: that is what makes their commits travel together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from sparktxn.background import Background
from sparktxn.clock import Clock, Deadline, Ids, time_left_s
from sparktxn.config.store import StoreSettings
from sparktxn.errors import CommandRefused, ErrorCode, StoreNotFound, ViewExpired, did_you_mean
from sparktxn.format import names
from sparktxn.format.checkpoint import part_of, producer_parts
from sparktxn.format.commands import Command, CommandResult
from sparktxn.format.entry import decode_store, encode_store
from sparktxn.log.checkpointer import Checkpointer
from sparktxn.log.committer import Committer, Ticket
from sparktxn.log.confirm import Passed, attempt
from sparktxn.log.follower import Follower
from sparktxn.log.history import find_entry, first_entry
from sparktxn.log.horizon import read_horizon
from sparktxn.log.intents import Intents
from sparktxn.log.opening import open_tail
from sparktxn.log.storeclock import ClockCheck
from sparktxn.log.tail import Tail
from sparktxn.log.timeouts import Timeouts
from sparktxn.log.views import ReadView, capture_view, with_internal
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.objectstore.putting import put_until_stored
from sparktxn.state.internal import INTERNAL_TOPICS
from sparktxn.structs import (
    CommittedOffset,
    PartitionSegments,
    PartitionState,
    PendingOffset,
    PendingOffsets,
    ProducerState,
    StoreState,
    TopicState,
    TransactionState,
)

__all__ = ["CLOSE_TIMEOUT_S", "Log"]

Record = TypeVar("Record")
Result = TypeVar("Result")

_BORN_MAX_AGE_S: Final = 60.0

CLOSE_TIMEOUT_S: Final = 30.0
"""How long a client's close() waits for the object store where it is given no time-out."""


class Log:
    """One process's handle of a store's log."""

    def __init__(
        self,
        objects: ObjectStore,
        *,
        settings: StoreSettings,
        clock: Clock,
        ids: Ids,
        background: Background,
        store_id: str,
        hint: bytes | None,
        clock_check: ClockCheck | None = None,
    ) -> None:
        self.objects = objects
        self.settings = settings
        self.clock = clock
        self.ids = ids
        self.background = background
        self.store_id = store_id
        self._follower = Follower(objects, clock, checkpoint_entries=settings.checkpoint_entries, hint=hint)
        self._checkpointer = Checkpointer(objects, self._follower, background, clock, ids, settings)
        self._committer = Committer(
            objects,
            self._follower,
            clock,
            ids,
            request_timeout_s=settings.request_timeout_ms / 1000,
            clock_skew_ms_max=settings.clock_skew_ms_max,
            intents=Intents(objects, background, clock, ids, self._follower.watched),
            after_win=self._after_win,
            clock_check=clock_check,
        )
        self._timeouts = Timeouts(
            self._follower,
            self._committer.send,
            background,
            clock,
            interval_s=settings.timeout_check_interval_ms / 1000,
        )

    @classmethod
    def open(
        cls,
        objects: ObjectStore,
        *,
        settings: StoreSettings,
        clock: Clock,
        ids: Ids,
        background: Background,
        create: bool = False,
        check_clock: bool = False,
    ) -> Log:
        """Opens a store's log, to a confirmed state; with `create`, makes the store if there is none.

        With `check_clock`, nothing is written while `clock` is far from the store's; see `ClockCheck`.

        Raises:
            StoreNotFound: there is no store, and `create` is False.
            DamagedObject, FormatVersionError: the store cannot be read.
            StoreUnavailable: the object store does not answer.
            ClockSkewError: the store would be made by a wrong clock.
        """
        clock_check = ClockCheck(objects, clock, ids, settings.clock_skew_ms_max) if check_clock else None
        document, hint = objects.get_many([names.STORE, names.LAST_CHECKPOINT])
        if document is None and create:
            if clock_check is not None:
                clock_check.check()
            document = put_until_stored(objects, names.STORE, encode_store(ids.token(), clock.wall_ms()), clock)
        if document is None:
            raise StoreNotFound(
                f"there is no store at {objects.uri!r}: create one with its first topic, "
                f"AdminClient({{'bootstrap.servers': {objects.uri!r}}}).create_topics([NewTopic(…)])"
            )
        store_id = decode_store(document, names.STORE).store_id
        return cls(
            objects,
            settings=settings,
            clock=clock,
            ids=ids,
            background=background,
            store_id=store_id,
            hint=hint,
            clock_check=clock_check,
        )

    def deadline(self, timeout_s: float | None = None) -> Deadline:
        """A deadline by this log's clock; without `timeout_s` never."""
        return Deadline(self.clock, timeout_s)

    def send(self, commands: Sequence[Command]) -> Ticket:
        """Queues a list of commands, all or nothing; it is written when a caller waits for it, or for another.

        The ticket is the caller's hold on it: see `Ticket`.

        Raises:
            CommandRefused: the list cannot be written, or not be read again (_INVALID_ARG), or fits no entry.
        """
        return self._committer.send(commands)

    def submit(self, commands: Sequence[Command], deadline: Deadline) -> list[CommandResult]:
        """Sends a list and waits for it; what is not known by the deadline is let go of: this process tries no more.

        Raises:
            CommandRefused, OutcomeUnknown, StoreUnavailable, DamagedObject: see `Ticket.wait_once`.
        """
        return self.send(commands).wait_once(deadline)

    def _after_win(self) -> None:
        self._checkpointer.after_win()
        self._timeouts.look_if_due()

    def checkpoint(self) -> int | None:
        """Writes a checkpoint now, and tells its entry; None if vacuum has passed it meanwhile."""
        head = self._checkpointer.checkpoint()
        return head.entry if head is not None else None

    @property
    def entry(self) -> int:
        """The newest entry that this process has applied."""
        return self._follower.tail.entry

    def refresh(self, deadline: Deadline) -> int:
        """Follows the log to its end, confirmed; the newest entry's number.

        Raises:
            OutcomeUnknown: another thread kept the log busy until the deadline.
            StoreUnavailable, DamagedObject: the log cannot be read.
        """
        with self._follower.locked(deadline, "refresh"):
            self._follower.refresh()
            entry = self._follower.tail.entry
        self._checkpointer.after_refresh()
        return entry

    def born(self, deadline: Deadline) -> int:
        """The newest entry known, for a segment's name: read from the log if that knowledge is over a minute old."""
        if self.clock.monotonic_s() - self._follower.refreshed_s > _BORN_MAX_AGE_S:
            self.refresh(deadline)
        return self._follower.tail.entry

    def view(
        self,
        topics: Iterable[str] | None,
        deadline: Deadline,
        *,
        entry: int | None = None,
        timestamp_ms: int | None = None,
    ) -> ReadView:
        """The named topics (None: all) at the log's end, at `entry`, or at the last entry not after `timestamp_ms`.

        The transactions that hold back its readers are watched, and aborted once their time-outs have passed: a caller
        that waits for their records only asks for the next view.

        Raises:
            CommandRefused: a topic does not exist there (UNKNOWN_TOPIC_OR_PARTITION), or `entry` is not in the log yet.
            ViewExpired: vacuum has passed the entry.
            OutcomeUnknown, StoreUnavailable, DamagedObject: as `refresh`.
        """
        view = self._locked_view(topics, deadline, entry, timestamp_ms)
        self._timeouts.look_if_due()
        return view

    def _locked_view(
        self, topics: Iterable[str] | None, deadline: Deadline, entry: int | None, timestamp_ms: int | None
    ) -> ReadView:
        with self._follower.locked(deadline, "view"):
            # A vacuum may have deleted what was about to be read: what it has kept is elsewhere.
            while isinstance(view := self._view(topics, entry, timestamp_ms), Passed):
                pass
        self._checkpointer.after_refresh()
        return view

    def _view(self, topics: Iterable[str] | None, entry: int | None, timestamp_ms: int | None) -> ReadView | Passed:
        self._follower.refresh()
        tail = self._follower.tail
        if timestamp_ms is not None:
            entry = self._entry_at(timestamp_ms, tail)
        if entry is not None and entry != tail.entry:
            tail = self._tail_at(entry, tail)
        return attempt(self.objects, lambda: tail.premise, lambda: self._capture(tail, topics))

    def _capture(self, tail: Tail, topics: Iterable[str] | None) -> ReadView:
        found = self._topics_of(tail) if topics is None else []
        internal = []
        for name in topics or ():
            if name in INTERNAL_TOPICS:
                internal.append(INTERNAL_TOPICS[name])
                continue
            topic: TopicState | None = tail.parts.get(("topic", name))
            if topic is None:
                known = [known.name for known in self._topics_of(tail)]
                raise CommandRefused(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {name!r} does not exist in {self.objects.uri!r}{did_you_mean(name, known)}; "
                    "AdminClient.create_topics([NewTopic(…)]) creates one",
                )
            found.append(topic)
        view = capture_view(tail.parts.get, found, tail.entry, tail.timestamp_ms, tail.parts.base)
        return with_internal(view, internal, first_entry(self.objects)) if internal else view

    def _tail_at(self, entry: int, newest: Tail) -> Tail:
        """A replica that stands at an older entry: from the newest checkpoint not after it, and the entries between."""
        if not 0 <= entry <= newest.entry:
            raise CommandRefused(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"there is no entry {entry}: the log's newest is {newest.entry}"
            )
        window = self.settings.checkpoint_entries
        tail = open_tail(
            self.objects,
            lambda head, unusable: Tail(self.objects, head, unusable),
            lambda tail: tail.advance_to(entry, window),
            at_most=entry,
        )
        if isinstance(tail, Passed):
            raise ViewExpired(f"entry {entry} can no longer be viewed: vacuum has deleted entries below {tail.horizon}")
        return tail

    def _entry_at(self, timestamp_ms: int, newest: Tail) -> int:
        """Return the last entry whose timestamp is not after `timestamp_ms`; timestamps never fall."""
        if newest.timestamp_ms <= timestamp_ms:
            return newest.entry
        first = read_horizon(self.objects)
        while isinstance(found := find_entry(self.objects, timestamp_ms + 1, first, newest.entry), Passed):
            first = found.horizon
        return found - 1

    def _topics_of(self, tail: Tail) -> list[TopicState]:
        found = [
            record
            for part in tail.parts.names("topics/")
            for record in tail.parts.part(part).values()
            if isinstance(record, TopicState)
        ]
        return sorted(found, key=lambda topic: topic.name)

    def store_state(self) -> StoreState:
        """What belongs to the whole store, as last known."""
        known: StoreState | None = self._known("store", lambda tail: tail.parts.get(("store",)))
        return known or StoreState()

    def topics(self) -> list[TopicState]:
        """All topics by name, as last known."""
        return self._known("topics", self._topics_of)

    def topic(self, name: str) -> TopicState | None:
        """A topic as last known; the internal ones, which `topics` does not list, too."""
        if name in INTERNAL_TOPICS:
            return INTERNAL_TOPICS[name]
        topic: TopicState | None = self._known("topic", lambda tail: tail.parts.get(("topic", name)))
        return topic

    def transaction(self, transactional_id: str) -> TransactionState | None:
        """A transactional id as last known."""
        key = ("transaction", transactional_id)
        found: TransactionState | None = self._known("transaction", lambda tail: tail.parts.get(key))
        return found

    def transactions(self) -> list[TransactionState]:
        """All transactional ids as last known, in any order."""
        return self._records("transactions/", TransactionState)

    def producer(self, topic_id: int, partition: int, producer_id: int) -> ProducerState | None:
        """A producer in a partition as last known."""
        key = ("producer", topic_id, partition, producer_id)
        found: ProducerState | None = self._known("producer", lambda tail: tail.parts.get(key))
        return found

    def producers(self, topic_id: int, partition: int) -> list[ProducerState]:
        """All producers of a partition as last known, by producer id."""
        found = self._records_in(producer_parts(topic_id, partition), ProducerState)
        return sorted(
            (producer for producer in found if producer.partition == partition),
            key=lambda producer: producer.producer_id,
        )

    def all_producers(self) -> list[ProducerState]:
        """The producers of all partitions as last known, those of deleted topics too, in any order."""
        return self._records("producers/", ProducerState)

    def partition(self, topic_id: int, partition: int) -> tuple[PartitionState, PartitionSegments] | None:
        """A partition, and where its records are, as last known; None if it does not exist."""

        def read(tail: Tail) -> tuple[PartitionState, PartitionSegments] | None:
            state: PartitionState | None = tail.parts.get(("partition", topic_id, partition))
            return None if state is None else (state, tail.parts.get(("segments", topic_id, partition)))

        return self._known("partition", read)

    def committed_offset(self, group_id: str, topic_id: int, partition: int) -> CommittedOffset | None:
        """A group's committed offset as last known."""
        key = ("offset", group_id, topic_id, partition)
        found: CommittedOffset | None = self._known("committed offset", lambda tail: tail.parts.get(key))
        return found

    def group_offsets(self, group_id: str) -> list[CommittedOffset]:
        """All committed offsets of a group as last known."""
        found = self._records_in([_group_part(group_id)], CommittedOffset)
        return [record for record in found if record.group_id == group_id]

    def group_pending_offsets(self, group_id: str) -> list[PendingOffsets]:
        """All offsets of a group that wait for the end of their transactions, as `pending_offsets` gives them."""
        found = self._records_in([_group_part(group_id)], PendingOffsets)
        pending = [record for record in found if record.group_id == group_id]
        if pending:
            self._timeouts.look_if_due()
        return pending

    def pending_offsets(self, group_id: str, topic_id: int, partition: int) -> tuple[PendingOffset, ...]:
        """Offsets of a partition that wait for the end of their transactions, as last known.

        Their transactions are watched, and aborted once their time-outs have passed: a caller that waits only calls
        again.
        """
        key = ("pending_offsets", group_id, topic_id, partition)
        found: PendingOffsets | None = self._known("pending offsets", lambda tail: tail.parts.get(key))
        if found is None:
            return ()
        self._timeouts.look_if_due()
        return found.offsets

    def group_ids(self) -> list[str]:
        """All groups that have committed an offset, as last known. Reads the offsets of every group."""
        committed = {offset.group_id for offset in self.committed_offsets()}
        return sorted(committed | {offset.group_id for offset in self._records("groups/", PendingOffsets)})

    def committed_offsets(self) -> list[CommittedOffset]:
        """The committed offsets of all groups as last known, those of deleted topics too, in any order."""
        return self._records("groups/", CommittedOffset)

    def _records(self, prefix: str, kind: type[Record]) -> list[Record]:
        """All records of a kind in the parts whose name starts with `prefix`."""
        return self._known(prefix, lambda tail: _records_of(tail, tail.parts.names(prefix), kind))

    def _records_in(self, parts: list[str], kind: type[Record]) -> list[Record]:
        """All records of a kind in `parts`."""
        return self._known("state", lambda tail: _records_of(tail, parts, kind))

    def _known(self, what: str, read: Callable[[Tail], Result]) -> Result:
        """What `read` finds in the state as last known; if a vacuum has passed that one, in the state as it is now.

        Raises:
            OutcomeUnknown: another call kept the log busy until the deadline, at most the request time-out.
            StoreUnavailable, DamagedObject: a part of the state cannot be read.
        """
        with self._follower.locked(self.deadline(self.settings.request_timeout_ms / 1000), what):
            return self._follower.insist(lambda: read(self._follower.tail))

    def close(self) -> None:
        """Wait for background work, up to the call's deadline or half a minute; calling twice is harmless."""
        self.background.close(time_left_s(CLOSE_TIMEOUT_S))
        self.objects.close()


def _group_part(group_id: str) -> str:
    """The part that holds all offsets of a group, and of the groups that share its bucket."""
    return part_of(("offset", group_id, 0, 0))


def _records_of(tail: Tail, parts: list[str], kind: type[Record]) -> list[Record]:
    """All records of a kind in `parts`, which are fetched side by side."""
    tail.load(parts)
    return [record for part in parts for record in tail.parts.part(part).values() if isinstance(record, kind)]
