"""`Consumer`: confluent-kafka's consumer over a store, and `consume_arrow` for those who have columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa

from sparktxn import arguments
from sparktxn.clock import Clock, Deadline, in_time
from sparktxn.consumer.assignment import Assignment, PartitionKey, Progress, check_offset
from sparktxn.consumer.bookmark import Bookmark, bookmark, rewind
from sparktxn.consumer.commits import Commits
from sparktxn.consumer.fetcher import Chunk
from sparktxn.consumer.offsets import GroupOffsets, unknown_partition
from sparktxn.consumer.polling import Reading
from sparktxn.consumer.subscription import RebalanceCallback, Subscription
from sparktxn.dropped import give_back_later, weakly
from sparktxn.errors import CommandRefused, ErrorCode, KafkaError, KafkaException, StoreError
from sparktxn.fork import ForkGuard
from sparktxn.internaltopics import listed
from sparktxn.kafka.message import OFFSET_END, ConsumerGroupMetadata, Message, TopicPartition, topic_partitions
from sparktxn.kafka.metadata import ClusterMetadata, cluster_metadata
from sparktxn.kafka.settings.consumer import ConsumerSettings
from sparktxn.log.log import CLOSE_TIMEOUT_S
from sparktxn.log.look.views import PartitionView
from sparktxn.scan.offsets import offset_for_time
from sparktxn.scan.plan import end_of
from sparktxn.store import Store

__all__ = ["Consumer"]

_ARROW_RECORDS: Final = 100_000
_TIMEOUT_S: Final = 60.0
_CALLBACKS: Final = ("error_cb", "on_commit")


def _clock_of(consumer: Consumer) -> Clock:
    return consumer._log.clock


class Consumer:
    """Reads topics of one store, in one group. For one thread at a time.

    Worker threads poll the log, read records and commit offsets, so no call waits longer for the object store than its
    time-out. `poll(0)` returns at once, with what has arrived since the last call. Callbacks (on_assign, on_revoke,
    on_commit, error_cb) run inside the calls of this class, on the caller's thread. A time-out of -1 or None waits
    without end. Every method raises RuntimeError once the consumer is closed, or in a process that was forked after it
    was made.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        """Opens the store at ``bootstrap.servers``; keyword arguments are settings with ``_`` for ``.``.

        Raises:
            ConfigurationError: a setting is unknown or wrong, or ``group.id`` is missing.
            StoreNotFound: there is no store there.
        """
        given = arguments.mapping("config", config)
        given |= {name if name in _CALLBACKS else name.replace("_", "."): value for name, value in settings.items()}
        self._settings = ConsumerSettings.parse(given)
        self._fork = ForkGuard()
        self._closed = False
        self._store = Store.open(self._settings.uri, options=self._settings.store_options)
        self._log = self._store.log
        self._assignment = Assignment()
        self._offsets = GroupOffsets(self._log, self._settings.group_id, self._assignment)
        self._committer = self._log.background.sibling("sparktxn-offsets", 1)
        self._commits = Commits(self._offsets, self._assignment, self._settings, self._log.clock, self._committer)
        self._reader = self._log.background.sibling("sparktxn-reader", 2)
        self._workers = (self._committer, self._reader)
        self._reading = Reading(
            self._log,
            self._settings.uri,
            self._settings,
            self._assignment,
            self._offsets,
            weakly(self._rebalance),
            self._reader,
            self._commits.under_way,
        )
        self._ready = self._reading.ready
        self._rebalanced_to: set[PartitionKey] = set()
        self._assigned_by_user = False
        # Looked up once: poll() is called for every message.
        self._now_s = self._log.clock.monotonic_s
        self._forked = self._fork.forked

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Consumer({self._settings.uri!r}, group {self._settings.group_id!r})"

    # Reading

    def poll(self, timeout: float | None = -1.0) -> Message | None:
        """The next message, or one whose `error()` says what happened; None if none came within `timeout` seconds.

        Raises:
            DamagedObject: an object of one partition is damaged; other partitions are still handed out.
        """
        if self._ready and not self._forked() and self._now_s() < self._commits.due_at_s:
            return self._ready.popleft()
        return self._next(self._log.deadline(arguments.timeout_s("timeout", timeout)))

    def consume(self, num_messages: int = 1, timeout: float | None = -1.0) -> list[Message]:
        """Up to `num_messages` messages: fewer only if `timeout` seconds pass."""
        num_messages = arguments.integer("num_messages", num_messages, 0)
        deadline = self._log.deadline(arguments.timeout_s("timeout", timeout))
        messages: list[Message] = []
        while len(messages) < num_messages:
            try:
                message = self._next(deadline)
            except KafkaException:
                # What has been taken must not be lost; the error comes again.
                if not messages:
                    raise
                break
            if message is None:
                break
            messages.append(message)
            ready = self._ready
            messages += [ready.popleft() for _ in range(min(num_messages - len(messages), len(ready)))]
        return messages

    def _next(self, deadline: Deadline) -> Message | None:
        while True:
            self._keep_house()
            if self._reading.events:
                return self._reading.events.popleft()
            if self._ready:
                return self._ready.popleft()
            if not self._reading.fill() and not self._reading.wait(deadline):
                return None

    def consume_arrow(self, num_records: int = _ARROW_RECORDS, timeout: float | None = -1.0) -> pa.Table | None:
        """Up to `num_records` records as a table; None if there were none within `timeout` seconds.

        Returns as soon as there are any. Topics with Kafka's record give key, value, topic, partition, offset,
        timestamp, timestampType and headers. A topic with declared columns gives these and ``_topic``, ``_partition``,
        ``_offset`` and ``_timestamp``. A table has one schema; each partition's records in it are in order.

        Raises:
            KafkaException: what `poll` returns as a message's error(), but for the end of a partition.
        """
        num_records = arguments.integer("num_records", num_records, 1)
        deadline = self._log.deadline(arguments.timeout_s("timeout", timeout))
        self._keep_house()
        self._reading.give_back()
        while True:
            self._raise_events()
            chunk = self._reading.next_chunk(num_records, None)
            if chunk is not None:
                return self._table(chunk, num_records, deadline)
            if not self._reading.events and not self._reading.wait(deadline):
                return None
            self._keep_house()

    def _table(self, chunk: Chunk | None, num_records: int, deadline: Deadline) -> pa.Table:
        batches: list[pa.RecordBatch] = []
        rows = 0
        while chunk is not None:
            if batches and chunk.batch.schema != batches[0].schema:
                chunk.source.give_back(chunk.batch.num_rows)
                break
            self._reading.handed_out(chunk)
            batches.append(chunk.batch)
            rows += chunk.batch.num_rows
            if rows >= num_records:
                break
            try:
                chunk = self._reading.more_in_view(num_records - rows, deadline)
            except StoreError:
                # What has been taken must not be lost; the error comes again.
                break
        return pa.Table.from_batches(batches)

    def _raise_events(self) -> None:
        while self._reading.events:
            error = self._reading.events.popleft().error()
            if error is not None and error.code() != ErrorCode.LOCAL_PARTITION_EOF:
                raise KafkaException(error)

    # Which partitions

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Reads all partitions of `topics` (names, or patterns that begin with ``^``), in place of what was subscribed.

        `on_assign(consumer, partitions)` is called inside poll(), and may call assign() with other offsets; `on_revoke`
        before partitions go. `on_lost` is never called: partitions are not taken away.
        """
        self._check()
        names = arguments.items("topics", topics, str)
        arguments.function("on_lost", on_lost)
        subscription = Subscription(names, on_assign, on_revoke) if names else None
        if subscription is None:
            self.unsubscribe()
            return
        if self._reading.subscription is None:
            self._revoke()
        else:
            self._reading.give_back()
        self._reading.subscription = subscription
        self._reading.forget()

    def unsubscribe(self) -> None:
        """Reads nothing any more; on_revoke is called here."""
        self._check()
        self._revoke()
        self._reading.subscription = None
        self._reading.forget()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads exactly `partitions`, each from its offset; without one from the committed offset."""
        self._check()
        partitions = self._checked_distinct(partitions)
        self._assigned_by_user = True
        self._reading.give_back()
        self._assignment.clear()
        for partition in partitions:
            self._assignment.add(Progress((partition.topic, partition.partition), partition.offset))
        self._reading.forget()

    def unassign(self) -> None:
        """Reads no partition; a subscription stays."""
        self.assign([])

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads `partitions` too.

        Raises:
            KafkaException: ``_CONFLICT``: one is assigned already.
        """
        self._check()
        partitions = self._checked_distinct(partitions)
        for partition in partitions:
            if (partition.topic, partition.partition) in self._assignment:
                raise KafkaException(KafkaError(ErrorCode.LOCAL_CONFLICT, f"{partition} is assigned already"))
        self._assigned_by_user = True
        for partition in partitions:
            self._assignment.add(Progress((partition.topic, partition.partition), partition.offset))
        self._reading.look_again()

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads `partitions` no longer.

        Raises:
            KafkaException: ``_STATE``: one is not assigned.
        """
        self._check()
        assigned = [self._assignment.require(partition) for partition in topic_partitions("partitions", partitions)]
        self._assigned_by_user = True
        self._reading.give_back()
        for progress in assigned:
            self._reading.discard(progress.key)
            self._assignment.remove(progress.key)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        self._check()
        return self._assignment.partitions()

    @staticmethod
    def _checked_distinct(partitions: object) -> list[TopicPartition]:
        given = topic_partitions("partitions", partitions)
        check_offset(given)
        if len(set(given)) < len(given):
            reason = f"a partition is named twice in {given}"
            raise KafkaException(KafkaError(ErrorCode.LOCAL_INVALID_ARG, reason))
        return given

    def _rebalance(self, wanted: set[PartitionKey]) -> None:
        """The subscribed topics have other partitions than before: call the user's function, which may assign
        differently."""
        if wanted == self._rebalanced_to:
            return
        kept = {progress.key: progress for progress in self._assignment}
        self._revoke()
        self._rebalanced_to = wanted
        subscription = self._reading.subscription
        self._assigned_by_user = False
        if subscription is not None and subscription.on_assign is not None:
            subscription.on_assign(self, [TopicPartition(*key) for key in sorted(wanted)])
        if not self._assigned_by_user:
            for key in sorted(wanted):
                self._assignment.add(kept.get(key) or Progress(key, TopicPartition(*key).offset))

    def _revoke(self) -> None:
        """Takes all partitions away, after their offsets are on their way and the user's function was called."""
        self._reading.give_back()
        self._rebalanced_to = set()
        if not len(self._assignment):
            return
        self._commits.commit_at_last()
        subscription = self._reading.subscription
        if subscription is not None and subscription.on_revoke is not None:
            subscription.on_revoke(self, self._assignment.partitions())
        for progress in self._assignment:
            self._reading.discard(progress.key)
        self._assignment.clear()

    # Where in them

    def seek(self, partition: TopicPartition) -> None:
        """Goes on at `partition.offset`.

        Raises:
            KafkaException: ``_STATE``: the partition is not assigned; ``_INVALID_ARG``: the offset means nothing.
        """
        self._check()
        check_offset([arguments.instance("partition", partition, TopicPartition)])
        progress = self._assignment.require(partition)
        self._reading.give_back()
        self._reading.discard(progress.key)
        progress.seek(partition.offset)
        self._reading.look_again()

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The next offset of each partition; OFFSET_INVALID while it is unknown; an error if it is not assigned."""
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

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Hands out no records of `partitions` until `resume`."""
        self._check()
        paused = [self._assignment.require(partition) for partition in topic_partitions("partitions", partitions)]
        self._reading.give_back()
        for progress in paused:
            progress.paused = True
            self._reading.discard(progress.key)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Hands out records of `partitions` again."""
        self._check()
        given = topic_partitions("partitions", partitions)
        for progress in [self._assignment.require(partition) for partition in given]:
            progress.paused = False

    @in_time("timeout", _clock_of)
    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = -1.0, cached: bool = False
    ) -> tuple[int, int]:
        """(log start offset, end): under read_committed the end is the last stable offset.

        `cached` answers from the view that is being read, without a poll of the log.

        Raises:
            KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``.
        """
        self._check()
        arguments.instance("partition", partition, TopicPartition)
        timeout = arguments.timeout_s("timeout", timeout)
        if arguments.boolean("cached", cached):
            return self._reading.watermarks_in_view((partition.topic, partition.partition))
        view = self._view_of(partition, timeout)
        return view.log_start_offset, end_of(view, self._settings.isolation)

    @in_time("timeout", _clock_of)
    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float | None = -1.0
    ) -> list[TopicPartition]:
        """For each partition, whose offset holds a time in milliseconds, the first offset that is not older.

        OFFSET_END where there is none.
        """
        self._check()
        given = topic_partitions("partitions", partitions)
        timeout = arguments.timeout_s("timeout", timeout)
        found = []
        for partition in given:
            answer = TopicPartition(partition.topic, partition.partition, partition.offset)
            if partition.offset >= 0:
                view = self._view_of(partition, timeout)
                offset = offset_for_time(self._log.objects, view, partition.offset, self._settings.isolation)
                answer.offset = OFFSET_END if offset is None else offset
            found.append(answer)
        return found

    def _view_of(self, partition: TopicPartition, timeout: float | None) -> PartitionView:
        deadline = self._log.deadline(_TIMEOUT_S if timeout is None else timeout)
        try:
            view = self._log.view([partition.topic], deadline)
        except CommandRefused as refused:
            raise KafkaException(refused.error) from None
        found = view.partitions.get((partition.topic, partition.partition))
        if found is None:
            raise KafkaException(unknown_partition(partition))
        return found

    @in_time("timeout", _clock_of)
    def list_topics(self, topic: str | None = None, timeout: float | None = -1.0) -> ClusterMetadata:
        """All topics, or the one named."""
        self._check()
        topic = arguments.text_or_none("topic", topic)
        timeout = arguments.timeout_s("timeout", timeout)
        return cluster_metadata(self._settings.uri, listed(self._store.topics(timeout), topic), topic)

    # The group's offsets

    @in_time("timeout", _clock_of)
    def committed(self, partitions: Sequence[TopicPartition], timeout: float | None = -1.0) -> list[TopicPartition]:
        """The group's committed offsets, OFFSET_INVALID where there is none.

        Raises:
            KafkaException: ``UNSTABLE_OFFSET_COMMIT`` (retriable): a transaction with one of them is still open.
        """
        self._check()
        given = topic_partitions("partitions", partitions)
        timeout = arguments.timeout_s("timeout", timeout)
        return self._offsets.committed(given, -1.0 if timeout is None else timeout)

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commits `message`'s offset plus one, `offsets`, or what is stored; returns it if not asynchronous.

        Raises:
            KafkaException: synchronous: it failed, or there was nothing to commit (``_NO_OFFSET``).
                ``ILLEGAL_GENERATION``: another consumer of the group has committed for one of the partitions since this
                one started from there. Nothing was committed, and the text says what to do.
        """
        self._check()
        asynchronous = arguments.boolean("asynchronous", asynchronous)
        message, offsets = _checked_choice(message, offsets)
        self._reading.settle()
        chosen = self._commits.stored() if message is None and offsets is None else _offsets_of(message, offsets)
        if asynchronous:
            self._commits.commit_beside(chosen)
            return None
        return self._commits.commit(chosen)

    def store_offsets(self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None) -> None:
        """Stores `message`'s offset plus one, or `offsets`, for the next commit.

        Raises:
            KafkaException: ``_INVALID_ARG``: enable.auto.offset.store is on; ``_STATE``: a partition is not assigned.
        """
        self._check()
        if self._settings.enable_auto_offset_store:
            reason = "store_offsets() needs the setting enable.auto.offset.store=false"
            raise KafkaException(KafkaError(ErrorCode.LOCAL_INVALID_ARG, reason))
        if message is None and offsets is None:
            raise ValueError("store_offsets() takes a message or offsets")
        chosen = _offsets_of(*_checked_choice(message, offsets))
        for progress, partition in [(self._assignment.require(partition), partition) for partition in chosen]:
            progress.store(partition.offset, partition.metadata, partition.leader_epoch)

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """What `Producer.send_offsets_to_transaction` takes: opaque, may be pickled.

        It says where this consumer has started from, so take it anew for each transaction.
        """
        self._check()
        return self._offsets.metadata(self._settings.group_instance_id)

    def begin_block(self) -> Bookmark:
        """Note where this consumer is, for `Producer.transaction`; automatic commits wait until `end_block`.

        Returns:
            What `end_block` takes: opaque.
        """
        self._check()
        began = bookmark(self._assignment, self._reading)
        self._commits.held = True
        return began

    def end_block(self, began: Bookmark, committed: bool) -> None:
        """Go on after a transaction: from here if it was committed, else from where its block began.

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

    def memberid(self) -> str:
        """Always empty: the group has no members, every consumer reads what it subscribes to."""
        self._check()
        return ""

    # The end

    def close(self) -> None:
        """Commits stored offsets if they are committed automatically, and gives everything back; twice is harmless.

        Wait up to half a minute for the object store. Offsets that are not committed by then are given up, with a
        warning, and never committed.
        """
        if self._closed:
            return
        if self._forked():
            self._closed = True
            return
        with self._log.deadline(CLOSE_TIMEOUT_S).governs() as deadline:
            try:
                self._revoke()
                self._commits.close(deadline)
                self._commits.collect()
            finally:
                self._closed = True
                self._ready.clear()
                self._reading.forget()
                self._reader.close(0)
                self._committer.close(0)
                self._store.close()

    def __del__(self) -> None:
        # Without close(). This may run anywhere, also where a lock is held: another thread ends the workers.
        for workers in self.__dict__.get("_workers", ()):
            give_back_later(partial(workers.close, 1.0))

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")
        self._fork.check("consumer")

    def _keep_house(self) -> None:
        self._check()
        if self._now_s() >= self._commits.due_at_s:
            self._reading.settle()
            self._commits.commit_on_its_own()
        self._commits.collect()


def _checked_choice(message: object, offsets: object) -> tuple[Message | None, list[TopicPartition] | None]:
    """What commit() or store_offsets() is given.

    Raises:
        TypeError: `message` is not a Message, or `offsets` not a list of TopicPartition.
        ValueError: both are given.
    """
    if message is not None and offsets is not None:
        raise ValueError("expected a message or offsets, not both")
    return (
        None if message is None else arguments.instance("message", message, Message),
        None if offsets is None else topic_partitions("offsets", offsets),
    )


def _offsets_of(message: Message | None, offsets: Sequence[TopicPartition] | None) -> list[TopicPartition]:
    """What to commit for a message (the offset after it) or as given."""
    if message is None:
        return list(offsets or ())
    error, topic, partition, offset = message.error(), message.topic(), message.partition(), message.offset()
    if error is not None:
        raise KafkaException(error)
    if topic is None or partition is None or offset is None:
        raise ValueError("the message has no offset: it was not consumed")
    return [TopicPartition(topic, partition, TopicPartition(topic, partition, offset).offset + 1)]
