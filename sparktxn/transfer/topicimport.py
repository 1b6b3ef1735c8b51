"""Importing a Kafka topic through a consumer, exactly once.

The position in the source is committed in the transaction of the records that were read up to it, as a group's offsets.
Each transaction is one batch of a sink, with the number after the last one. So of two processes that import at once,
one is refused: its batch's number is taken, or its run is superseded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa
from msgspec import Struct

from sparktxn._engine.format.segment import RECORD_SCHEMA
from sparktxn._foundation.process.clock import Clock, Deadline
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import SinkState
from sparktxn._kafka.groups import ConsumerGroupTopicPartitions
from sparktxn._kafka.message import TopicPartition
from sparktxn._rows.stage.stagedsegment import StagedSegment
from sparktxn.errors import ConfigurationError, ErrorCode, RetentionPassed, StoreUnavailable
from sparktxn.store import SinkCommit, Store

# What a store knows of earlier imports: the sink of an import's transactional id.


def sink_of(store: Store, transactional_id: str) -> SinkState | None:
    """Return the sink of an import's transactional id, as the log has it now; None if nothing was imported.

    Raises:
        StoreUnavailable, DamagedObject: the log cannot be read.
    """
    store.log.refresh()
    transaction = store.log.transaction(transactional_id)
    return None if transaction is None else transaction.sink


OnProgress = Callable[[int], None]
"""Gets how many records are committed."""

_SCHEMA: Final = RECORD_SCHEMA.append(pa.field("partition", pa.int32()))
_METHODS: Final = ("list_topics", "get_watermark_offsets", "assign", "consume")
_NO_TIMESTAMP: Final = 0
_POLL_S: Final = 0.5
_ASK_S: Final = 30.0
_PLAN_AGE_MS: Final = 60_000


class KafkaConsumer(Protocol):
    """What of confluent-kafka's Consumer an import calls."""

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Return the topic's metadata."""

    def get_watermark_offsets(self, partition: Any, timeout: float) -> Any:
        """Return the first offset of a partition, and the one after its last."""

    def assign(self, partitions: Any) -> Any:
        """Read these partitions, from their offsets on."""

    def consume(self, num_messages: int, timeout: float) -> Any:
        """Return up to so many messages."""


class TopicImportReport(Struct, frozen=True, kw_only=True):
    """What was imported: `records` in `transactions`, or with `dry_run` how many offsets are left.

    `positions` are the source's offsets by partition, up to which records are imported, `ends` those where the source
    ended when the import began. `offsets_left` is how many lie between; control records take offsets, too.
    """

    dry_run: bool
    topic: str
    source: str
    records: int = 0
    transactions: int = 0
    offsets_left: int = 0
    positions: dict[int, int] = {}
    ends: dict[int, int] = {}


def import_topic(
    store: Store,
    topic: str,
    consumer: KafkaConsumer,
    source_topic: str,
    *,
    name: str | None = None,
    topic_partition: Callable[[str, int, int], Any] = TopicPartition,
    batch_records: int = 10_000,
    idle_timeout_s: float = 10.0,
    accept_loss: bool = False,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> TopicImportReport:
    """Append what a Kafka topic has now to a topic, with partitions, keys, headers and timestamps; each record once.

    Call it again to import what has been added since, or to go on after a crash. Where it stands is in the store: the
    committed offsets of the group ``import-NAME`` for the topic's partitions are offsets of the source.

    Args:
        store: an open store.
        topic: a topic of Kafka's record with at least as many partitions as the source.
        consumer: any object with these methods of confluent-kafka's Consumer. It should read committed records, and
            hand out the ends of partitions (``enable.partition.eof``). It is not closed.
        source_topic: the topic that it reads.
        name: what the source is called: the same for every call, and another one for each cluster and topic.
        topic_partition: makes what `consumer` takes of a topic, a partition and an offset: for confluent-kafka its
            ``TopicPartition``.
        batch_records: how many records a transaction has at most.
        idle_timeout_s: an import ends when the source has given nothing for so long.
        accept_loss: go on where the source has deleted records that were not imported.
        dry_run: only return how much there is to import.
        on_progress: called after each transaction.

    Raises:
        ConfigurationError: an argument is wrong, the source has no such topic, or more partitions than `topic`.
        RetentionPassed: the source has deleted records that were not imported; see `accept_loss`.
        BatchRefused, ProducerFenced: another process imports the same source: nothing is imported twice.
        StoreUnavailable: the source reports an error, or a store did not answer: call again.
        OutcomeUnknown: call again, which goes on at the right place.
    """
    arguments.instance("store", store, Store)
    topic = arguments.identifier("topic", topic)
    source_topic = arguments.identifier("source_topic", source_topic)
    name = arguments.identifier("name", source_topic if name is None else name)
    if not all(callable(getattr(consumer, method, None)) for method in _METHODS):
        raise TypeError(f"consumer is {arguments.described(consumer)}: expected an object with {', '.join(_METHODS)}")
    if arguments.function("topic_partition", topic_partition) is None:
        raise TypeError("topic_partition is None: expected a function of a topic, a partition and an offset")
    batch_records = arguments.integer("batch_records", batch_records, 1)
    idle_s = arguments.timeout_s("idle_timeout_s", idle_timeout_s)
    accept_loss = arguments.boolean("accept_loss", accept_loss)
    dry_run = arguments.boolean("dry_run", dry_run)
    arguments.function("on_progress", on_progress)
    source = _Source(consumer, source_topic, topic_partition, idle_s)
    importing = _Importing(store, topic, name)
    importing.begin(source, accept_loss=accept_loss)
    if not dry_run:
        importing.run(source, batch_records, on_progress)
    return importing.report(source, dry_run=dry_run)


class _Source:
    """The topic that is read, up to where it ended at the beginning."""

    def __init__(
        self, consumer: KafkaConsumer, topic: str, topic_partition: Callable[[str, int, int], Any], idle_s: float | None
    ) -> None:
        self._consumer = consumer
        self.topic = topic
        self._topic_partition = topic_partition
        self._idle_s = idle_s
        self.ends: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self._open: set[int] = set()

    def partitions(self) -> list[int]:
        """Return the numbers of the topic's partitions, and note where they begin and end now.

        Raises:
            ConfigurationError: there is no such topic.
        """
        known = self._consumer.list_topics(self.topic, timeout=_ASK_S).topics.get(self.topic)
        if known is None or known.error is not None or not known.partitions:
            raise ConfigurationError(f"the source has no topic {self.topic!r}")
        for number in sorted(known.partitions):
            place = self._topic_partition(self.topic, number, 0)
            found = self._consumer.get_watermark_offsets(place, timeout=_ASK_S)
            if found is None:
                raise StoreUnavailable(f"the source did not say where partition {number} of {self.topic!r} ends")
            self.starts[number], self.ends[number] = found
        self._open = set(self.ends)
        return sorted(self.ends)

    def assign(self, positions: Mapping[int, int]) -> None:
        """Begin to read at these offsets."""
        self._consumer.assign([self._topic_partition(self.topic, *at) for at in sorted(positions.items())])

    def read(self, positions: dict[int, int], count: int, clock: Clock) -> list[Any]:
        """Return up to `count` messages below the ends, and move `positions` behind them.

        There are fewer only if the partitions have been read to their ends, or the source is silent.

        Raises:
            StoreUnavailable: the source reports an error.
        """
        found: list[Any] = []
        silent = Deadline(clock, self._idle_s)
        while len(found) < count and any(positions[number] < self.ends[number] for number in self._open):
            messages = self._consumer.consume(count - len(found), timeout=_POLL_S)
            if not messages and silent.passed():
                break
            for message in messages or ():
                silent = Deadline(clock, self._idle_s)
                self._take(message, positions, found)
        return found

    def _take(self, message: Any, positions: dict[int, int], found: list[Any]) -> None:
        number, error = message.partition(), message.error()
        if error is None:
            if positions[number] <= message.offset() < self.ends[number]:
                found.append(message)
            # One behind the end is left to the next import, with all from the end on.
            positions[number] = max(positions[number], min(message.offset() + 1, self.ends[number]))
        elif error.code() == ErrorCode.LOCAL_PARTITION_EOF:
            # Behind the last record are control records, or an open transaction.
            self._open.discard(number)
            positions[number] = max(positions[number], min(message.offset(), self.ends[number]))
        else:
            raise StoreUnavailable(f"the source reports {error}: call again, which goes on")


class _Importing:
    """One call."""

    def __init__(self, store: Store, topic: str, name: str) -> None:
        self._store = store
        self._topic = topic
        # Of the group, the transactional id and the sink's writer.
        self._id = f"import-{name}"
        self._run_id = store.log.ids.token()
        self._batch = -1
        self._positions: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._records = self._transactions = 0

    def begin(self, source: _Source, *, accept_loss: bool) -> None:
        """Find where to go on.

        Raises:
            ConfigurationError, RetentionPassed: the source does not fit the topic, or what was imported before.
        """
        topic = self._store.view([self._topic]).topics[self._topic]
        if topic.schema is not None:
            raise ConfigurationError(f"topic {self._topic!r} has columns of its own: expected one of Kafka's record")
        numbers = source.partitions()
        if numbers[-1] >= topic.partition_count:
            raise ConfigurationError(
                f"the source's topic {source.topic!r} has {counted(numbers[-1] + 1, 'partition')}, and "
                f"{self._topic!r} has "
                f"{topic.partition_count}: txnlog topics alter {self._topic} --partitions {numbers[-1] + 1}"
            )
        # The batch first: if another process commits in between, the number is taken, and this one is refused.
        sink = sink_of(self._store, self._id)
        if sink is not None:
            self._batch = max(batch.batch_id for batch in sink.batches)
        known = self._store.committed_offsets(self._id).topic_partitions or []
        committed = {at.partition: at.offset for at in known if at.topic == self._topic}
        for number in numbers:
            self._positions[number] = self._position(source, number, committed.get(number), accept_loss=accept_loss)
        self._committed = dict(self._positions)

    def _position(self, source: _Source, number: int, position: int | None, *, accept_loss: bool) -> int:
        start, end = source.starts[number], source.ends[number]
        if position is None:
            return start
        where = f"partition {number} of the source's topic {source.topic!r}"
        if position > end:
            raise ConfigurationError(
                f"{where} ends at offset {end}, and was imported up to {position}: it is another topic; give it "
                "another name"
            )
        if position < start and not accept_loss:
            raise RetentionPassed(
                f"{where} begins at offset {start}, and was imported up to {position}: the records in between are "
                "lost; accept_loss (--accept-loss) goes on without them"
            )
        return max(position, start)

    def run(self, source: _Source, batch_records: int, on_progress: OnProgress | None) -> None:
        """Import batch after batch, each with the positions behind it."""
        source.assign(self._positions)
        while messages := source.read(self._positions, batch_records, self._store.log.clock):
            self._commit(messages)
            if on_progress is not None:
                on_progress(self._records)

    def _commit(self, messages: Sequence[Any]) -> None:
        staged = self._store.log.decide(partial(self._staged, _table(messages, self._store.log.clock.wall_ms())))
        moved = {number: at for number, at in self._positions.items() if at != self._committed[number]}
        places = [TopicPartition(self._topic, *at) for at in moved.items()]
        self._store.commit(
            staged,
            transactional_id=self._id,
            sink=SinkCommit(self._id, self._run_id, self._batch + 1),
            offsets=ConsumerGroupTopicPartitions(self._id, places),
        )
        self._batch += 1
        self._committed |= moved
        self._records += len(messages)
        self._transactions += 1

    def _staged(self, rows: pa.Table) -> list[StagedSegment]:
        plan = self._store.stage_plan([self._topic], max_age_ms=_PLAN_AGE_MS)
        stager = plan.open(seed=0, default_topic=self._topic, digests=False)
        stager.write(rows)
        return stager.finish()

    def report(self, source: _Source, *, dry_run: bool) -> TopicImportReport:
        """Return what was done, or is to do."""
        return TopicImportReport(
            dry_run=dry_run,
            topic=self._topic,
            source=source.topic,
            records=self._records,
            transactions=self._transactions,
            offsets_left=sum(end - self._positions[number] for number, end in source.ends.items()),
            positions=dict(self._positions),
            ends=dict(source.ends),
        )


def _table(messages: Sequence[Any], now_ms: int) -> pa.Table:
    rows = []
    for message in messages:
        kind, timestamp_ms = message.timestamp()
        headers = message.headers()
        rows.append(
            {
                "key": message.key(),
                "value": message.value(),
                "headers": None if headers is None else [{"key": key, "value": value} for key, value in headers],
                "timestamp": now_ms if kind == _NO_TIMESTAMP else timestamp_ms,
                "partition": message.partition(),
            }
        )
    return pa.Table.from_pylist(rows, schema=_SCHEMA)
