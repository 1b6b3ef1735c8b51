"""A store's log, as one process uses it: sending commands, following, read views, and what the state says.

All clients of a process share one `Log` per store: that is what makes their commits travel together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Command, CommandResult
from sparktxn._engine.format.entry import decode_store, encode_store
from sparktxn._engine.log.follow.checkpointheads import check_copied
from sparktxn._engine.log.follow.follower import Follower
from sparktxn._engine.log.keep.checkpointer import Checkpointer
from sparktxn._engine.log.views.knownstate import Known, KnownState
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._engine.log.views.refusals import Refusals
from sparktxn._engine.log.views.viewing import Snapshot, Viewer
from sparktxn._engine.log.write.committer import Committer
from sparktxn._engine.log.write.intents import Intents
from sparktxn._engine.log.write.storeclock import ClockCheck
from sparktxn._engine.log.write.transactiontimeouts import Timeouts
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.puts import put_until_stored
from sparktxn._engine.state.settings import Condition
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.process.clock import Clock, Deadline, Ids, time_left_s
from sparktxn._foundation.values.fieldtypes import Result
from sparktxn.errors import StoreNotFound, damage_named

_BORN_MAX_AGE_S: Final = 60.0

CLOSE_TIMEOUT_S: Final = 30.0
"""How long a client's close() waits for the object store where it is given no time-out."""


class Log(Known):
    """One process's handle of a store's log; what it knows of the state is asked by the methods of `Known`."""

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
        self.on_checkpoint: Callable[[], None] | None = None
        """Called in the background when this process has written a checkpoint that was due."""
        follower = Follower(objects, clock, checkpoint_entries=settings.checkpoint_entries, hint=hint)
        super().__init__(
            follower,
            read_time=lambda: self.within(settings.request_timeout_ms / 1000),
            watch=lambda: self._timeouts.check_if_due(),
        )
        self._viewer = Viewer(objects, follower, window=settings.checkpoint_entries)
        self._refusals = Refusals(self._read_on, clock)
        self._checkpointer = Checkpointer(
            objects, self._follower, background, clock, ids, settings, after_write=self._after_checkpoint
        )
        self._timeouts = Timeouts(
            self._follower,
            lambda commands: self.send(commands),
            background,
            clock,
            interval_s=settings.timeout_check_interval_ms / 1000,
        )
        self._committer = Committer(
            objects,
            self._follower,
            clock,
            ids,
            request_timeout_s=settings.request_timeout_ms / 1000,
            clock_skew_ms_max=settings.clock_skew_ms_max,
            intents=Intents(objects, background, clock, ids, self._follower.watched),
            after_win=(self._checkpointer.after_win, self._timeouts.check_if_due),
            clock_check=clock_check,
        )
        self.send = self._committer.send
        """Queues a list of commands, all or nothing; see `Committer.send`. It is written when a caller waits for it."""

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
        """Open a store's log, to a confirmed state; with `create`, make the store if there is none.

        With `check_clock`, nothing is written while `clock` is far from the store's; see `ClockCheck`.

        Raises:
            StoreNotFound: there is no store, and `create` is False; or there is an unfinished copy of one.
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
        with damage_named(objects.uri):
            store = decode_store(document, names.STORE)
        check_copied(objects, store)
        return cls(
            objects,
            settings=settings,
            clock=clock,
            ids=ids,
            background=background,
            store_id=store.store_id,
            hint=hint,
            clock_check=clock_check,
        )

    def within(self, timeout_s: float | None) -> AbstractContextManager[Deadline]:
        """Return a context whose waits and requests keep `timeout_s` by this log's clock: no limit if None or below 0.

        An earlier deadline of the thread still counts.
        """
        return Deadline(self.clock, timeout_s).governs()

    def submit(self, commands: Sequence[Command], condition: Condition | None = None) -> list[CommandResult]:
        """Send a list and wait for it; what is not known by the caller's deadline is let go of, and not tried again.

        Raises:
            CommandRefused, OutcomeUnknown, StoreUnavailable, DamagedObject: see `Ticket.wait_once`.
        """
        return self.send(commands, condition).wait_once()

    def _after_checkpoint(self) -> None:
        if self.on_checkpoint is not None:
            self.on_checkpoint()

    def checkpoint(self) -> int | None:
        """Write a checkpoint now, and return its entry; None if vacuum has passed it meanwhile."""
        head = self._checkpointer.checkpoint()
        return head.entry if head is not None else None

    @property
    def checkpoint_entry(self) -> int:
        """The entry of the newest checkpoint that this process has written or adopted; 0 if there is none."""
        return self._follower.tail.checkpoint_entry

    def refresh(self, *, max_age_s: float = 0.0) -> int:
        """Follow the log to its end, confirmed; return the newest entry's number.

        Nothing is read if that was last done up to `max_age_s` ago.

        Raises:
            OutcomeUnknown: another thread kept the log busy until the caller's deadline.
            StoreUnavailable, DamagedObject: the log cannot be read.
        """
        if 0 < max_age_s >= self.clock.monotonic_s() - self._follower.refreshed_s:
            return self._follower.tail.confirmed_entry
        with self.known() as state:
            return state.entry

    def decide(self, by_what_is_known: Callable[[], Result], forget: Callable[[], object] | None = None) -> Result:
        """Return what the function returns; what it refuses is decided again once the log was read to its end.

        Every refusal of a client that follows from topics, columns, partitions or settings goes through here. The read
        has the time of one request of the store. See `Refusals.decide`.

        Raises:
            KafkaException: the refusal, by what the log says now.
            StoreError: the log cannot be read.
        """
        return self._refusals.decide(by_what_is_known, forget)

    def _read_on(self, *, max_age_s: float) -> None:
        with self.within(self.settings.request_timeout_ms / 1000):
            self.refresh(max_age_s=max_age_s)

    @contextmanager
    def known(self) -> Iterator[KnownState]:
        """Follow the log to its end, confirmed, and have that state asked for several records under one lock.

        Raises:
            OutcomeUnknown, StoreUnavailable, DamagedObject: as `refresh`.
        """
        with self._follower.locked("refresh"):
            self._follower.refresh()
            yield self._state
        self._checkpointer.after_refresh()

    def read_by_s(self, entry: int) -> float | None:
        """Return a moment, by the monotonic clock, by which this process had read an entry; None if it has not.

        The entry was written before.
        """
        return self._follower.read_by_s(entry)

    def born(self) -> int:
        """Return the newest entry known, for a segment's name; poll the log if that is over a minute old."""
        self.refresh(max_age_s=_BORN_MAX_AGE_S)
        return self._follower.tail.entry

    def view(
        self,
        topics: Iterable[str] | None,
        *,
        entry: int | None = None,
        timestamp_ms: int | None = None,
    ) -> ReadView:
        """Return the named topics (None: all) at the log's end, `entry`, or the last entry not after `timestamp_ms`.

        Transactions that hold back readers of the log's end are watched, and aborted once their time-outs have passed:
        a caller that waits for their records only asks for the next view. A view of the past waits for none.

        Raises:
            CommandRefused: a topic does not exist there (UNKNOWN_TOPIC_OR_PARTITION), or `entry` is not in the log yet.
            ViewExpired: vacuum has passed the entry.
            OutcomeUnknown, StoreUnavailable, DamagedObject: as `refresh`.
        """
        view = self._viewer.view(topics, entry, timestamp_ms)
        self._checkpointer.after_refresh()
        if entry is None and timestamp_ms is None:
            self._timeouts.check_if_due()
        return view

    def known_view(self, topics: Iterable[str] | None = None) -> ReadView:
        """Return the named topics (None: all) at the newest entry known to be final here.

        After its own write nothing is asked: a caller that must see what other processes have written takes `view`.

        Raises:
            CommandRefused: a topic does not exist there (UNKNOWN_TOPIC_OR_PARTITION).
            OutcomeUnknown, StoreUnavailable, DamagedObject: as `refresh`.
        """
        return self._viewer.known_view(topics)

    def snapshot(
        self,
        prefixes: Sequence[str],
        *,
        entry: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Snapshot:
        """Return the records of parts whose names start with one of `prefixes`; entry and errors as `view`."""
        return self._viewer.snapshot(prefixes, entry, timestamp_ms)

    def close(self) -> None:
        """Wait for background work, up to the call's deadline or half a minute; calling twice is harmless."""
        self.background.close(time_left_s(CLOSE_TIMEOUT_S))
        self.objects.close()
