"""Rows to partitions to segments: the one way into the store for columns.

Equal rows in equal order under an equal seed go to equal partitions, however they are cut into batches. A micro-batch
that runs again stages the same records for each partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn.background import Background, InlineBackground
from sparktxn.clock import Clock, Ids, SystemClock
from sparktxn.config.topic import topic_setting
from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode, did_you_mean
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.stage.columns import conformed, slices, tables_of, topic_names
from sparktxn.stage.partitioner import Pick, partitioner, partitions_of_keys
from sparktxn.stage.sizes import row_above, rows_that_fit
from sparktxn.stage.splitting import given_partitions, key_column, row_partitions, split
from sparktxn.stage.staged import StagedSegment, StageTopic
from sparktxn.stage.writer import RECORD_BYTES_MAX, upload_segment

__all__ = ["SegmentStager", "StageTopic", "StagedSegment"]

_BUFFERED_BYTES_MAX: Final = 128 * 1024 * 1024
"""What may wait in memory, over all partitions and the uploads under way."""

# Above this, records that do not compress could pass what one put can carry.
_SEGMENT_BYTES_MAX: Final = 40 * 1024 * 1024


class _Buffer:
    """What waits for one partition."""

    __slots__ = ("partition", "record_count", "size_bytes", "tables", "topic")

    def __init__(self, topic: _Topic, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.clear()

    def clear(self) -> None:
        self.tables: list[pa.Table] = []
        self.record_count = 0
        self.size_bytes = 0


class _Topic:
    """A topic's settings, parsed once, with its partitions' buffers."""

    def __init__(self, stage: StageTopic, pick: Pick) -> None:
        self.stage = stage
        self.pick = pick
        self.segment_rows: int = topic_setting(stage.settings, "segment.rows")
        self.segment_bytes: int = min(topic_setting(stage.settings, "segment.bytes"), _SEGMENT_BYTES_MAX)
        self.record_bytes_max: int = min(RECORD_BYTES_MAX, topic_setting(stage.settings, "max.message.bytes"))
        self.key_column = key_column(stage)
        self.buffers: dict[int, _Buffer] = {}

    def buffer(self, partition: int) -> _Buffer:
        if partition not in self.buffers:
            self.buffers[partition] = _Buffer(self, partition)
        return self.buffers[partition]


class _Rolled(NamedTuple):
    """A segment whose upload has begun."""

    topic: str
    partition: int
    size_bytes: int
    future: Future[StagedSegment]


class SegmentStager:
    """Stages rows as segments that no entry names: nothing is visible until a commit names them. Not thread-safe.

    Args:
        objects: the store.
        ids: for the segments' unique names.
        born: the newest entry that the writer knows.
        topics: the topics that rows may go to, by name.
        seed: where the round robin of rows without a key begins.
        default_topic: the topic of all rows; a column ``topic`` is then not looked at, as in Spark's Kafka sink. A
            typed topic is written this way only.
        partitioner: one of `partitioner.PARTITIONERS`; where it would draw a random partition, the next one is taken.
        clock: for the timestamps of rows that have none.
        background: where uploads run; None uploads in the caller's thread.

    Raises:
        ConfigurationError: the partitioner or the default topic is unknown, or a topic's settings contradict its
            schema.
    """

    def __init__(
        self,
        objects: ObjectStore,
        ids: Ids,
        born: int,
        topics: Mapping[str, StageTopic],
        *,
        seed: int,
        default_topic: str | None = None,
        partitioner: str = "consistent_random",
        clock: Clock | None = None,
        background: Background | None = None,
    ) -> None:
        self._objects = objects
        self._ids = ids
        self._born = born
        self._stage_topics = topics
        self._topics: dict[str, _Topic] = {}
        self._seed = seed
        self._partitioner = _known_partitioner(partitioner)
        self._clock = clock or SystemClock()
        self._background = background or InlineBackground()
        self._buffered_bytes = 0
        self._uploading: list[_Rolled] = []
        self._uploaded: list[StagedSegment] = []
        self._finished = False
        self._default_topic = self._topic(default_topic) if default_topic is not None else None

    def write(self, batch: object) -> None:
        """Stage the rows of `batch`, in Kafka's record layout or with a typed topic's columns.

        `batch` is a record batch, a table, or any object with ``__arrow_c_stream__``, whose rows are taken batch by
        batch.

        Raises:
            TypeError: `batch` is something else.
            ConfigurationError: a column, a topic or a partition is missing or wrong. Nothing names what had been
                staged: give the stager up.
            CommandRefused: MESSAGE_TOO_LARGE, a record is above the topic's ``max.message.bytes``.
            StoreUnavailable: an upload failed.
        """
        if self._finished:
            raise RuntimeError("the stager has finished: open another one")
        for table in tables_of("batch", batch):
            for rows in slices(table):
                for topic, part in self._by_topic(rows):
                    self._stage(topic, part)

    def finish(self) -> list[StagedSegment]:
        """Uploads what waits; all segments by topic and partition, those of a partition in the order of its rows.

        May be called again. After a failed upload every later call fails too: a commit can never miss its records.

        Raises:
            StoreUnavailable: an upload failed.
        """
        self._finished = True
        for _, topic in sorted(self._topics.items()):
            for _, buffer in sorted(topic.buffers.items()):
                if buffer.record_count:
                    self._roll(buffer)
        while self._uploading:
            self._await_oldest()
        return sorted(self._uploaded, key=lambda staged: (staged.topic, staged.partition))

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            if name not in self._stage_topics:
                raise ConfigurationError(
                    f"topic {name!r} is unknown{did_you_mean(name, self._stage_topics)}: "
                    "create it, or name it among the topics that are written",
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
            topic = self._topics[name] = _Topic(self._stage_topics[name], _round_robin(self._seed))
        return topic

    def _by_topic(self, rows: pa.Table) -> Iterator[tuple[_Topic, pa.Table]]:
        if self._default_topic is not None:
            yield self._default_topic, rows
            return
        names = topic_names(rows)
        found = [self._topic(name) for name in names.unique().to_pylist()]
        for topic in found:
            if topic.stage.schema is not None:
                raise ConfigurationError(
                    f"topic {topic.stage.name!r} has declared columns: it is written alone, named for all rows"
                )
            yield topic, rows if len(found) == 1 else rows.filter(pc.equal(names, topic.stage.name))

    def _stage(self, topic: _Topic, rows: pa.Table) -> None:
        records = conformed(topic.stage, rows, self._clock.wall_ms())
        given = given_partitions(topic.stage, rows)
        if not records.num_rows:
            return
        if (largest := row_above(records, topic.record_bytes_max)) is not None:
            raise CommandRefused(ErrorCode.MESSAGE_TOO_LARGE, _too_large(topic, largest))
        partitions = row_partitions(records, given, topic.key_column, partial(self._hashed, topic))
        for partition, part in split(records, partitions):
            self._buffer(topic.buffer(partition), part)

    def _hashed(self, topic: _Topic, keys: pa.Array) -> pa.Array:
        if topic.stage.partition_count == 1:
            return pa.repeat(pa.scalar(0, pa.int32()), len(keys))
        return partitions_of_keys(self._partitioner, keys, topic.stage.partition_count, topic.pick)

    def _buffer(self, buffer: _Buffer, part: pa.Table) -> None:
        """Adds rows to a partition's buffer, and sends off each segment that is full."""
        topic = buffer.topic
        start = 0
        while start < part.num_rows:
            room = topic.segment_rows - buffer.record_count
            rows = part.slice(start, room)
            size_bytes = rows.nbytes
            room_bytes = topic.segment_bytes - buffer.size_bytes
            if size_bytes > room_bytes:
                fitting = rows_that_fit(rows, room_bytes)
                if not fitting and buffer.record_count:
                    self._roll(buffer)
                    continue
                rows = rows.slice(0, max(1, fitting))
                size_bytes = rows.nbytes
            start += rows.num_rows
            buffer.tables.append(rows)
            buffer.record_count += rows.num_rows
            buffer.size_bytes += size_bytes
            self._buffered_bytes += size_bytes
            is_cut_short = start < part.num_rows
            if is_cut_short or buffer.record_count >= topic.segment_rows or buffer.size_bytes >= topic.segment_bytes:
                self._roll(buffer)
        self._keep_within_memory()

    def _keep_within_memory(self) -> None:
        while self._buffered_bytes + sum(rolled.size_bytes for rolled in self._uploading) > _BUFFERED_BYTES_MAX:
            if self._uploading:
                self._await_oldest()
            else:
                buffers = (buffer for topic in self._topics.values() for buffer in topic.buffers.values())
                self._roll(max(buffers, key=lambda buffer: buffer.size_bytes))

    def _roll(self, buffer: _Buffer) -> None:
        table = pa.concat_tables(buffer.tables).combine_chunks()
        stage = buffer.topic.stage
        future = self._background.submit(
            lambda: upload_segment(
                self._objects, self._ids, self._born, stage, buffer.partition, table, clock=self._clock
            )
        )
        self._uploading.append(_Rolled(stage.name, buffer.partition, buffer.size_bytes, future))
        self._buffered_bytes -= buffer.size_bytes
        buffer.clear()
        while self._uploading and self._uploading[0].future.done():
            self._await_oldest()

    def _await_oldest(self) -> None:
        # Deleted after its result only: a failed upload stays the oldest, and fails every later call.
        self._uploaded.append(self._uploading[0].future.result())
        del self._uploading[0]


def _round_robin(seed: int) -> Pick:
    following = seed

    def pick(partition_count: int) -> int:
        nonlocal following
        chosen = following % partition_count
        following += 1
        return chosen

    return pick


def _known_partitioner(name: str) -> str:
    partitioner(name)
    return name


def _too_large(topic: _Topic, size: int) -> str:
    found = f"a record for topic {topic.stage.name!r} has {size} bytes"
    if topic.record_bytes_max == RECORD_BYTES_MAX:
        return f"{found}: one request can store {RECORD_BYTES_MAX}; send smaller records"
    return f"{found}: its setting max.message.bytes allows {topic.record_bytes_max}"
