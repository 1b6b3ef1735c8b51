"""`Consumer`: confluent-kafka's consumer over a store, and `consume_arrow` for those who have columns."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from sparktxn._engine.log.log import CLOSE_TIMEOUT_S, Log
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._foundation.process.clock import Clock, in_time
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.process.handles import ForkGuard, weakly
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._foundation.values.quantities import html_table
from sparktxn._kafka.clustermetadata import ClusterMetadata, cluster_metadata
from sparktxn._kafka.message import (
    OFFSET_BEGINNING,
    OFFSET_END,
    ConsumerGroupMetadata,
    Message,
    TopicPartition,
    topic_partitions,
)
from sparktxn._kafka.settings.client import settings_of_keywords
from sparktxn._kafka.settings.consumer import ConsumerSettings
from sparktxn._kafka.unsupported import WithoutCredentials
from sparktxn._rows.scan.offsets import offset_for_time, view_of_existing
from sparktxn._rows.scan.plan import end_of
from sparktxn.consumer.assignment import (
    NO_TOPIC_ID,
    Assignment,
    Progress,
    RebalanceCallback,
    Stored,
    Subscription,
    check_offset,
    distinct_partitions,
)
from sparktxn.consumer.consumerstatistics import ConsumerStatistics
from sparktxn.consumer.fetcher import Chunk
from sparktxn.consumer.member import Membership, Seen
from sparktxn.consumer.offsetcommits import Commits, checked_choice, offsets_of
from sparktxn.consumer.offsets import GroupOffsets, unknown_partition
from sparktxn.consumer.polling import Gathering, Reading
from sparktxn.consumer.rebalancing import Rebalancing
from sparktxn.consumer.threadturns import ConsumerTurns, in_turn
from sparktxn.errors import ConfigurationError, ErrorCode, KafkaError, KafkaException, StoreError
from sparktxn.store import Store
from sparktxn.store.memberexpiry import reserved_because

# Records that are read as one Arrow table.


def table_of(reading: Reading, chunk: Chunk | None, num_records: int) -> pa.Table:
    """Return `chunk` with what follows it in the view that is read: one schema, about `num_records` records."""
    batches: list[pa.RecordBatch] = []
    rows = 0
    while chunk is not None:
        if batches and chunk.batch.schema != batches[0].schema:
            chunk.source.give_back(chunk.batch.num_rows)
            break
        reading.handed_out(chunk)
        batches.append(chunk.batch)
        rows += chunk.batch.num_rows
        if rows >= num_records:
            break
        try:
            chunk = reading.more_in_view(num_records - rows)
        except StoreError:
            # What has been taken must not be lost; the error comes again.
            break
    return pa.Table.from_batches(batches)


# Where a consumer was when a transaction's block began, and the way back there if the block fails.


class _Place(Struct, frozen=True):
    """One partition's position and its stored offset, with the topic's id."""

    topic_id: int
    position: int
    stored: Stored


class Bookmark(Struct, frozen=True):
    """The places of a consumer in its partitions, in turn: opaque, for `Consumer.end_block`."""

    places: dict[TopicPartitionKey, _Place]


def bookmark(assignment: Assignment, reading: Reading) -> Bookmark:
    """Note where the consumer is; a position that is not found yet is noted when it is."""
    reading.settle()
    places = {}
    under_way = reading.partition_under_way()
    for progress in sorted(assignment.in_turn(), key=lambda progress: progress.key != under_way):
        places[progress.key] = _Place(progress.topic_id, progress.position, progress.stored)
        progress.began_at = None
    return Bookmark(places)


def rewind(assignment: Assignment, reading: Reading, began: Bookmark) -> None:
    """Move positions and stored offsets back to where they were; messages that were fetched are read again.

    A partition that was assigned later returns to its first position. One whose topic was created again stays.
    """
    reading.give_back()
    for progress in assignment:
        place = began.places.get(progress.key)
        if place is not None and place.topic_id not in (NO_TOPIC_ID, progress.topic_id):
            continue
        position = place.position if place is not None and place.position >= 0 else progress.began_at
        if position is None:
            continue
        reading.discard(progress.key)
        progress.go_to(position)
        progress.stored = Stored() if place is None else place.stored
    assignment.take_turns(began.places)
    reading.poll_again()


def unread(assignment: Assignment, reading: Reading, messages: Iterable[Message]) -> None:
    """Go back before `messages`, the last ones that were handed out: they are read again, and count as not read."""
    reading.give_back()
    first: dict[TopicPartitionKey, int] = {}
    for message in messages:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if message.error() is None and topic is not None and partition is not None and offset is not None:
            first.setdefault((topic, partition), offset)
    for key, position in first.items():
        progress = assignment.get(key)
        if progress is None or progress.position <= position:
            continue  # it has another owner now, or was sought elsewhere
        reading.discard(key)
        progress.go_to(position)
        if progress.stored.offset > position:
            progress.stored = Stored(position)
    reading.poll_again()


# What a consumer answers about partitions and topics: it reads the log, and changes nothing.


def clock_of(consumer: ConsumerLookups) -> Clock:
    """Return the clock of the consumer's store."""
    return consumer._log.clock


class ConsumerLookups(WithoutCredentials):
    """The calls of a consumer that ask for offsets, times and topics."""

    _settings: ConsumerSettings
    _log: Log
    _store: Store
    _reading: Reading

    @in_time("timeout", clock_of)
    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = -1.0, cached: bool = False
    ) -> tuple[int, int]:
        """Return (log start offset, end) of `partition`: under read_committed the end is the last stable offset.

        `cached` answers from the view that is being read, without a poll of the log.

        Raises:
            KafkaException: ``_UNKNOWN_PARTITION``.
        """
        self._check()
        arguments.instance("partition", partition, TopicPartition)
        if arguments.boolean("cached", cached):
            return self._reading.watermarks_in_view((partition.topic, partition.partition))
        view = self._view_of(partition)
        return view.log_start_offset, end_of(view, self._settings.isolation)

    @in_time("timeout", clock_of)
    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float | None = -1.0
    ) -> list[TopicPartition]:
        """Return for each of `partitions`, whose offset is a time in milliseconds, the first offset that is not older.

        OFFSET_END where there is none; the end for OFFSET_END, and the start for OFFSET_BEGINNING.

        Raises:
            KafkaException: ``_UNKNOWN_PARTITION``.
        """
        self._check()
        given = topic_partitions("partitions", partitions)
        with self._log.within(_TIMEOUT_S):
            whole = view_of_existing(self._log, (partition.topic for partition in given))
        found = []
        for partition in given:
            answer = TopicPartition(partition.topic, partition.partition, partition.offset)
            if partition.offset >= 0:
                view = _of_view(whole, partition)
                offset = offset_for_time(self._log.objects, view, partition.offset, self._settings.isolation)
                answer.offset = OFFSET_END if offset is None else offset
            elif partition.offset in (OFFSET_BEGINNING, OFFSET_END):
                view = _of_view(whole, partition)
                begins = partition.offset == OFFSET_BEGINNING
                answer.offset = view.log_start_offset if begins else end_of(view, self._settings.isolation)
            found.append(answer)
        return found

    def _view_of(self, partition: TopicPartition) -> PartitionView:
        with self._log.within(_TIMEOUT_S):
            return _of_view(view_of_existing(self._log, [partition.topic]), partition)

    @in_time("timeout", clock_of)
    def list_topics(self, topic: str | None = None, timeout: float | None = -1.0) -> ClusterMetadata:
        """Return all topics, or `topic` alone."""
        self._check()
        topic = arguments.text_or_none("topic", topic)
        self._log.refresh()
        return cluster_metadata(self._settings.uri, self._log.listed_topics(topic), topic)

    @in_time("timeout", clock_of)
    def cluster_id(self, timeout: float | None = -1.0) -> str:
        """Return the id that the store was created with; `timeout` is in seconds."""
        self._check()
        return self._log.store_id


def _of_view(view: ReadView, partition: TopicPartition) -> PartitionView:
    found = view.partitions.get((partition.topic, partition.partition))
    if found is None:
        reason = unknown_partition(partition).str()
        raise KafkaException(KafkaError(ErrorCode.LOCAL_UNKNOWN_PARTITION, reason))
    return found


_ARROW_RECORDS: Final = 100_000
_TIMEOUT_S: Final = 60.0
_CALLBACKS: Final = ("error_cb", "on_commit", "stats_cb")


class Consumer(ConsumerLookups):
    """Reads topics of one store, in one group. Safe for threads: their calls take turns.

    While one thread waits for records in `poll`, or runs a callback there, another may commit, pause or close. A call
    that reads returns nothing if another thread reads until its time-out.

    Worker threads poll the log, read records and commit offsets, so no call waits longer for the object store than its
    time-out. `poll(0)` returns at once, with what has arrived since the last call. Callbacks (on_assign, on_revoke,
    on_commit, error_cb, stats_cb) run inside the calls of this class, on the caller's thread. A `timeout` is in
    seconds; -1 or None waits without end. Every method raises RuntimeError once the consumer is closed, or in a process
    that was forked after it was made.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        """Open the store at ``bootstrap.servers``; keyword arguments are settings with ``_`` for ``.``.

        Raises:
            ConfigurationError: a setting is unknown or wrong, or ``group.id`` is missing, or reserved.
            StoreNotFound: there is no store there.
        """
        given = arguments.mapping("config", config)
        given |= settings_of_keywords(settings, _CALLBACKS)
        self._settings = ConsumerSettings.parse(given)
        if reason := reserved_because(self._settings.group_id):
            raise ConfigurationError(reason)
        self._fork = ForkGuard()
        self._closed = self._is_closing = False
        self._turns = ConsumerTurns()
        self._store = Store.open(self._settings.uri, options=self._settings.store_options)
        self._log = self._store.log
        self._assignment = Assignment()
        self._membership = Membership(self._log, self._settings)
        self._offsets = GroupOffsets(self._log, self._settings.group_id, self._assignment, self._membership.speaker)
        self._committer = self._log.background.sibling("sparktxn-offsets", 1)
        self._commits = Commits(
            self._offsets,
            self._assignment,
            self._settings,
            self._log.clock,
            self._committer,
            self._turns,
        )
        self._reader = self._log.background.sibling("sparktxn-reader", 2)
        self._workers = (self._committer, self._reader)
        self._reading = Reading(
            self._log,
            self._settings.uri,
            self._settings,
            self._assignment,
            self._offsets,
            self._membership,
            weakly(self._follow),
            self._reader,
            self._commits.under_way,
            self._turns,
        )
        parts = (self._membership, self._assignment, self._reading)
        self._rebalancing = Rebalancing(
            weakref.ref(self), self._settings, *parts, self._commits, self._log.clock, self._turns
        )
        self._statistics = ConsumerStatistics(self._settings, self._log.clock, *parts, self._turns)
        self._ready = self._reading.ready
        self._has_read = False
        self._due_at_s = 0.0
        # Looked up once: poll() is called for every message.
        self._now_s = self._log.clock.monotonic_s
        self._forked = self._fork.forked
        self._enter = self._turns.state.acquire
        self._leave = self._turns.state.release

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.uri!r}, group {self._settings.group_id!r})"

    def _repr_html_(self) -> str:
        columns = ("topic", "partition", "position", "committed")
        rows = (
            (*one.key, *(None if offset < 0 else offset for offset in (one.position, one.committed)))
            for one in self._assignment
        )
        return html_table(repr(self), columns, rows)

    # Reading

    def poll(self, timeout: float | None = -1.0) -> Message | None:
        """Return the next message, or one whose `error()` says what happened; None if `timeout` seconds bring none.

        Raises:
            DamagedObject: an object of one partition is damaged; other partitions are still handed out.
        """
        life = self._membership.life
        now_s = life.polled_s = self._now_s()
        if self._ready and now_s < self._due_at_s and not life.wakes and not self._forked() and self._enter(False):
            try:
                if self._ready:  # no other thread has taken it
                    return self._ready.popleft()
            finally:
                self._leave()
        with self._reads(timeout) as has_turn:
            return self._next() if has_turn else None

    def consume(self, num_messages: int = 1, timeout: float | None = -1.0) -> list[Message]:
        """Return up to `num_messages` messages: fewer only if `timeout` seconds pass."""
        num_messages = arguments.integer("num_messages", num_messages, 0)
        with self._reads(timeout) as has_turn:
            return self._gather(num_messages) if has_turn else []

    def _gather(self, num_messages: int) -> list[Message]:
        messages: list[Message] = []
        try:
            while len(messages) < num_messages:
                try:
                    message = self._next()
                except KafkaException:
                    # What has been taken must not be lost; the error comes again.
                    if not messages:
                        raise
                    break
                if message is None:
                    break
                self._reading.states.gather()
                messages.append(message)
                ready = self._ready
                messages += [ready.popleft() for _ in range(min(num_messages - len(messages), len(ready)))]
        finally:
            self._reading.states.end_gathering()
        return messages

    def __iter__(self) -> Iterator[Message]:
        """Yield each message as `poll` returns it, and wait for the next one without end.

        The end of a partition is left out. Leave the loop by `break`, then close the consumer.

        Raises:
            KafkaException: what a message's error() is otherwise.
            DamagedObject: as `poll`.
        """
        while True:
            message = self.poll()
            error = None if message is None else message.error()
            if message is not None and error is None:
                yield message
            elif error is not None and error.code() != ErrorCode.LOCAL_PARTITION_EOF:
                raise KafkaException(error)

    def _next(self) -> Message | None:
        while True:
            may_read = self._do_upkeep()
            if self._reading.events:
                return self._reading.events.popleft()
            if not may_read:
                return None
            if self._ready:
                return self._ready.popleft()
            if not self._reading.fill() and (
                self._reading.states.gathering is Gathering.INTERRUPTED or not self._waits()
            ):
                return None

    def _waits(self) -> bool:
        """Wait for records while other threads use this consumer. Return False if the call is to end."""
        return self._turns.waits(self._reading.wait)

    @contextmanager
    def _reads(self, timeout: float | None) -> Iterator[bool]:
        """Take the turn to read within `timeout` seconds, which govern the block too; yield whether it was taken."""
        timeout_s = arguments.timeout_s("timeout", timeout)
        self._check()
        if not self._has_read:
            self._has_read = True
            if self._reading.subscription is None and not self._assignment.topics():
                # A broker's consumer waits without a word, and so does this one for programs that know.
                log_event("polled_without_partitions", consumer=self)
        with self._log.within(timeout_s), self._turns.reads() as has_turn:
            yield has_turn

    def consume_arrow(self, num_records: int = _ARROW_RECORDS, timeout: float | None = -1.0) -> pa.Table | None:
        """Return up to `num_records` records as a table; None if there were none within `timeout` seconds.

        Returns as soon as there are any. Topics with Kafka's record give key, value, topic, partition, offset,
        timestamp, timestampType and headers. A topic with declared columns gives these and ``_topic``, ``_partition``,
        ``_offset`` and ``_timestamp``. A table has one schema; each partition's records in it are in order.

        Raises:
            KafkaException: what `poll` returns as a message's error(), but for the end of a partition.
        """
        num_records = arguments.integer("num_records", num_records, 1)
        with self._reads(timeout) as has_turn:
            return self._next_table(num_records) if has_turn else None

    def _next_table(self, num_records: int) -> pa.Table | None:
        while True:
            may_read = self._do_upkeep()
            self._reading.give_back()
            self._raise_events()
            if not may_read:
                return None
            chunk = self._reading.next_chunk(num_records, None)
            if chunk is not None:
                return table_of(self._reading, chunk, num_records)
            if not self._reading.events and not self._waits():
                return None

    def _raise_events(self) -> None:
        while self._reading.events:
            error = self._reading.events.popleft().error()
            if error is not None and error.code() != ErrorCode.LOCAL_PARTITION_EOF:
                raise KafkaException(error)

    # Which partitions

    @in_turn
    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Read all partitions of `topics` (names, or patterns that begin with ``^``), in place of what was subscribed.

        The consumer joins its group at the next poll(), and reads the partitions that the group gives it.
        `on_assign` is called with the consumer and its partitions inside poll(), and may assign them with other
        offsets. `on_revoke` is called before partitions go to another member, while their offsets can be committed.
        `on_lost`, or `on_revoke` without it, is called when others may have them already, and nothing can be committed.
        """
        self._check()
        names = arguments.items("topics", topics, str)
        arguments.function("on_lost", on_lost)
        subscription = Subscription(names, on_assign, on_revoke, on_lost) if names else None
        if subscription is None:
            self.unsubscribe()
            return
        self._rebalancing.subscribe()
        self._reading.subscription = subscription
        self._reading.forget()

    @in_turn
    def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group; on_revoke is called here."""
        self._check()
        self._rebalancing.leave()
        self._reading.subscription = None
        self._reading.forget()

    @in_turn
    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly `partitions`, each from its offset; without one from the committed offset.

        Raises:
            KafkaException: ``_STATE``: in a callback of incremental lists, which takes incremental_assign().
        """
        self._check()
        partitions = distinct_partitions(partitions)
        self._rebalancing.check_whole()
        self._reading.give_back()
        self._assignment.clear()
        for partition in partitions:
            self._assignment.add(Progress((partition.topic, partition.partition), partition.offset))
        self._reading.forget()

    @in_turn
    def unassign(self) -> None:
        """Read no partition; a subscription stays."""
        self.assign([])

    @in_turn
    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read `partitions` too.

        Raises:
            KafkaException: ``_CONFLICT``: one is assigned already; ``_STATE``: in a callback of whole lists.
        """
        self._check()
        partitions = distinct_partitions(partitions)
        self._rebalancing.check_incremental()
        for partition in partitions:
            if (partition.topic, partition.partition) in self._assignment:
                raise KafkaException(KafkaError(ErrorCode.LOCAL_CONFLICT, f"{partition} is assigned already"))
        for partition in partitions:
            self._assignment.add(Progress((partition.topic, partition.partition), partition.offset))
        self._reading.poll_again()

    @in_turn
    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read `partitions` no longer.

        Raises:
            KafkaException: ``_INVALID_ARG``: one is not assigned; ``_STATE``: in a callback of whole lists.
        """
        self._check()
        given = topic_partitions("partitions", partitions)
        self._rebalancing.check_incremental()
        assigned = [self._assignment.require(partition, ErrorCode.LOCAL_INVALID_ARG) for partition in given]
        self._reading.give_back()
        for progress in assigned:
            self._reading.discard(progress.key)
            self._assignment.remove(progress.key)

    @in_turn
    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        self._check()
        return self._assignment.partitions()

    def _follow(self, seen: Seen, view: ReadView) -> None:
        """Take over what the group's state says."""
        self._rebalancing.follow(seen, view)

    # Where in them

    @in_turn
    def seek(self, partition: TopicPartition) -> None:
        """Go on in `partition` at its offset.

        Raises:
            KafkaException: ``_UNKNOWN_PARTITION``: it is not assigned; ``_INVALID_ARG``: the offset means nothing.
        """
        self._check()
        check_offset([arguments.instance("partition", partition, TopicPartition)])
        progress = self._assignment.require(partition, ErrorCode.LOCAL_UNKNOWN_PARTITION)
        self._reading.give_back()
        self._reading.discard(progress.key)
        progress.seek(partition.offset)
        self._reading.poll_again()

    @in_turn
    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the next offset of each of `partitions`; OFFSET_INVALID: unknown yet, `error`: it is not assigned."""
        self._check()
        given = topic_partitions("partitions", partitions)
        self._reading.settle()
        found = []
        for partition in given:
            answer = TopicPartition(partition.topic, partition.partition)
            progress = self._assignment.get((partition.topic, partition.partition))
            if progress is None:
                answer.error = KafkaError(ErrorCode.LOCAL_UNKNOWN_PARTITION, "the partition is not assigned")
            elif progress.resolved:
                answer.offset = progress.position
            found.append(answer)
        return found

    @in_turn
    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Hand out no records of `partitions` until `resume`; one that is not assigned is left out."""
        self._check()
        given = topic_partitions("partitions", partitions)
        self._reading.give_back()
        for progress in self._assignment.those_of(given):
            progress.paused = True
            self._reading.discard(progress.key)

    @in_turn
    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Hand out records of `partitions` again; one that is not assigned is left out."""
        self._check()
        for progress in self._assignment.those_of(topic_partitions("partitions", partitions)):
            progress.paused = False

    # The group's offsets

    @in_time("timeout", clock_of)
    def committed(self, partitions: Sequence[TopicPartition], timeout: float | None = -1.0) -> list[TopicPartition]:
        """Return the group's committed offsets of `partitions`, OFFSET_INVALID where there is none.

        This consumer's commits that were asked for before are waited for, as a broker answers in order.

        Raises:
            OutcomeUnknown: one of them has not ended within `timeout` seconds.
            KafkaException: ``UNSTABLE_OFFSET_COMMIT`` (retriable): a transaction with one of them is still open.
        """
        self._check()
        given = topic_partitions("partitions", partitions)
        self._commits.wait_unsettled()
        return self._offsets.committed(given)

    @in_turn
    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit `message`'s offset plus one, `offsets`, or what is stored; return it if not `asynchronous`.

        Raises:
            KafkaException: synchronous: it failed, or there was nothing to commit (``_NO_OFFSET``).
                ``ILLEGAL_GENERATION``: another consumer of the group has committed for one of the partitions since this
                one started from there. Nothing was committed, and the text says what to do.
        """
        self._check()
        asynchronous = arguments.boolean("asynchronous", asynchronous)
        message, offsets = checked_choice(message, offsets)
        self._reading.settle()
        chosen = self._commits.stored() if message is None and offsets is None else offsets_of(message, offsets)
        if asynchronous:
            self._commits.begin_commit(chosen)
            return None
        return self._commits.commit(chosen)

    @in_turn
    def store_offsets(self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None) -> None:
        """Store `message`'s offset plus one, or `offsets`, for the next commit.

        Raises:
            KafkaException: ``_INVALID_ARG``: enable.auto.offset.store is on; ``_UNKNOWN_PARTITION``: not assigned.
        """
        self._check()
        if self._settings.enable_auto_offset_store:
            reason = "store_offsets() needs the setting enable.auto.offset.store=false"
            raise KafkaException(KafkaError(ErrorCode.LOCAL_INVALID_ARG, reason))
        if message is None and offsets is None:
            raise ValueError("store_offsets() takes a message or offsets")
        chosen = offsets_of(*checked_choice(message, offsets))
        code = ErrorCode.LOCAL_UNKNOWN_PARTITION
        for progress, partition in [(self._assignment.require(partition, code), partition) for partition in chosen]:
            progress.stored = Stored(partition.offset, partition.metadata, partition.leader_epoch)

    @in_turn
    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """Return what `Producer.send_offsets_to_transaction` takes: opaque, may be pickled.

        It says which member of the group this consumer is, or where it has started from. It changes inside poll() and
        consume(), so take it anew for each transaction.
        """
        self._check()
        return self._offsets.metadata(self._settings.group_instance_id)

    @in_turn
    def begin_block(self) -> Bookmark:
        """Return where this consumer is, for `Producer.transaction`; automatic commits wait until `end_block`."""
        self._check()
        began = bookmark(self._assignment, self._reading)
        self._commits.held = True
        return began

    @in_turn
    def end_block(self, began: Bookmark, committed: bool) -> None:
        """Go on after a transaction: from here if it was `committed`, else from where its block `began`.

        Positions, fetched messages and stored offsets return there; automatic commits go on.
        """
        arguments.instance("began", began, Bookmark, "what begin_block() has given")
        committed = arguments.boolean("committed", committed)
        if self._closed:
            return
        self._check()
        if not committed:
            rewind(self._assignment, self._reading, began)
        self._commits.held = False
        self._reading.poll_soon()

    @in_turn
    def unread(self, messages: Sequence[Message]) -> None:
        """Go back before `messages`, the last ones that were handed out, for `AIOConsumer`: they count as not read."""
        self._check()
        unread(self._assignment, self._reading, arguments.items("messages", messages, Message))

    @in_turn
    def memberid(self) -> str | None:
        """Return this consumer's id in its group; None before a classic member has joined.

        A consumer that has lost its place joins again under another id.
        """
        self._check()
        return self._membership.member_id()

    # The end

    def close(self) -> None:
        """Commit stored offsets if they are committed automatically, leave the group, and give everything back.

        Twice is harmless, also from two threads. Wait up to half a minute for the object store, and for callbacks that
        other threads run. Offsets that are not committed by then are given up, with a warning, and never committed.
        """
        if self._closed or self._forked():
            self._closed = True
            return
        with self._turns.state:
            self._turns.waits_for_callbacks(CLOSE_TIMEOUT_S)  # such as the on_revoke of another thread's close()
            if not (self._closed or self._is_closing):
                with self._log.within(CLOSE_TIMEOUT_S):
                    self._close()

    def _close(self) -> None:
        self._is_closing = True
        try:
            try:
                self._rebalancing.leave()
            finally:  # on_revoke may raise: the group is left even so
                self._commits.close()
            self._commits.collect()
        finally:
            self._closed = True
            self._ready.clear()
            self._reading.forget()
            self._reader.close(0)
            self._committer.close(0)
            self._membership.let_go()
            self._store.close()

    def __del__(self) -> None:
        # Without close(). This may run anywhere, also where a lock is held: another thread ends the workers.
        # In a forked child it is the parent's, and stays.
        membership = self.__dict__.get("_membership")
        if membership is not None and not self._closed and not self._fork.forked():
            membership.leave_behind(self.__dict__.get("_workers", ()))

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")
        self._fork.check("consumer")

    def _do_upkeep(self) -> bool:
        """See to commits, to the group and to callbacks. Return False if nothing may be handed out now.

        Raises:
            KafkaException: ``UNKNOWN_MEMBER_ID``: the partitions are lost inside a transaction's block.
        """
        self._check()
        now_s = self._now_s()
        self._membership.life.polled_s = now_s
        is_subscribed = self._reading.subscription is not None
        may_read = True
        if is_subscribed:
            self._membership.beat_if_due(now_s)
            may_read = self._rebalancing.check_life(now_s)
        if may_read and now_s >= self._commits.due_at_s:
            self._reading.settle()
            self._commits.commit_on_its_own()
        self._commits.collect()
        if now_s >= self._statistics.due_at_s:
            self._statistics.call_back()
        self._due_at_s = min(self._commits.due_at_s, self._statistics.due_at_s)
        if is_subscribed:
            if may_read:
                self._reading.follow_group()
            self._due_at_s = min(self._due_at_s, self._membership.due_at_s, self._reading.follow_at_s)
        return may_read
