"""Rows to partitions to segments, in a process that does not open the log.

Equal rows in equal order under an equal seed go to equal partitions, however they are cut into batches. A micro-batch
that runs again stages the same records for each partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import takewhile
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.process.background import Background, InlineBackground
from sparktxn._foundation.process.clock import Clock, Ids, SystemClock
from sparktxn._foundation.process.handles import NoCopies
from sparktxn._foundation.values import arguments
from sparktxn._rows.stage.buffers import Buffers, Limits, TopicBuffer
from sparktxn._rows.stage.columnconversion import conformed, slices, tables_of, topic_names
from sparktxn._rows.stage.keyedrows import as_deletes
from sparktxn._rows.stage.partitioner import Pick, partitioner, partitions_of_keys
from sparktxn._rows.stage.pendingsegment import PendingSegment, Uploads, stage_inline
from sparktxn._rows.stage.recordsizes import row_above
from sparktxn._rows.stage.rowpartitions import given_partitions, row_partitions, split
from sparktxn._rows.stage.stagedsegment import INLINE_LIST_BYTES_MAX, RowsDigest, StagedSegment, StageTopic, with_digest
from sparktxn._rows.stage.uploading import RECORD_BYTES_MAX
from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode, did_you_mean

__all__ = ["STAGING_THREADS", "SegmentStager", "StageTopic", "StagedSegment"]

_BUFFERED_BYTES_MAX: Final = 64 * 1024 * 1024
"""What may wait in memory over all partitions, and as much again of files that grow."""

_REQUEST_TIMEOUT_S: Final = 60.0

STAGING_THREADS: Final = 2
"""Uploads at a time: twice as many segments wait at most, which is as much memory as the buffers have."""


class _Topic(NamedTuple):
    """A topic's buffers, and where its rows without a key go."""

    buffer: TopicBuffer
    pick: Pick


class SegmentStager(NoCopies):
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
        background: uploads full segments while the caller goes on. It serves this stager alone, which closes it. None:
            the caller's thread uploads.
        digests: whether the segments get a digest of the rows' content, which a micro-batch's fingerprint is made of.
        inline_bytes: the last records of a partition are not uploaded if they have at most so many bytes, and at most
            the topic's ``append.inline.bytes``. The entry that names them carries them. 0: all are uploaded.

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
        digests: bool = True,
        inline_bytes: int = 0,
    ) -> None:
        self._has_digest = digests
        self._digest: RowsDigest | None = None
        self._stage_topics = topics
        self._topics: dict[str, _Topic] = {}
        self._seed = seed
        self._partitioner = _known_partitioner(partitioner)
        self._clock = clock or SystemClock()
        self._background = background or InlineBackground()
        uploads = Uploads(
            objects,
            ids,
            self._clock,
            self._background,
            lambda: born,
            _REQUEST_TIMEOUT_S,
            STAGING_THREADS,
            counts_payload=True,
            inline_bytes=inline_bytes,
        )
        self._buffers = Buffers(uploads, Limits(0, 0, bytes_max=2 * _BUFFERED_BYTES_MAX))
        self._uploading: deque[PendingSegment] = deque()
        self._uploaded: list[StagedSegment] = []
        self._finished = False
        self._failed: Exception | None = None
        self._default_topic = self._topic(default_topic) if default_topic is not None else None

    def __repr__(self) -> str:
        return f"SegmentStager(topics={sorted(self._stage_topics)})"

    def write(self, batch: object, *, partition: int | None = None, delete: bool = False) -> None:
        """Stage the rows of `batch`, in Kafka's record layout or with a typed topic's columns.

        `batch` is a record batch, a table, or any object with ``__arrow_c_stream__``, whose rows are taken batch by
        batch. All go to `partition`, if it is given. With `delete` each row of a keyed topic deletes its key; without,
        those with true in a column ``_deleted`` do, and all others are upserts.

        Raises:
            TypeError: `batch` is something else.
            ConfigurationError: a column, a topic or a partition is missing or wrong. Nothing names what had been
                staged: give the stager up.
            CommandRefused: MESSAGE_TOO_LARGE, a record is above the topic's ``max.message.bytes``; INVALID_RECORD, a
                key is too long, or belongs to another partition than the given one.
            StoreUnavailable: an upload failed.
        """
        if self._finished:
            raise RuntimeError("the stager has finished: open another one")
        if self._failed is not None:
            raise self._failed
        partition = arguments.integer_or_none("partition", partition, 0)
        delete = arguments.boolean("delete", delete)
        staged = False
        try:
            for table in tables_of("batch", batch):
                for rows in slices(table):
                    if delete:
                        rows = self._deletes(rows)
                    for topic, part in self._by_topic(rows):
                        self._stage(topic, part, partition)
                        staged = True
        except Exception as error:
            # Rows before the wrong one are staged: a commit of them would be half of what the caller gave.
            if staged:
                self._fail(error)
            raise

    def finish(self) -> list[StagedSegment]:
        """Upload what waits; return all segments by topic and partition, each partition's in the order of its rows.

        With `inline_bytes`, small ones are encoded and not uploaded.

        May be called again. After a failed upload, or a `write` that failed after its first rows, every later call
        raises that error again: a commit can never miss records.

        Raises:
            StoreUnavailable: an upload failed.
        """
        self._finished = True
        if self._failed is not None:
            raise self._failed
        waiting = self._buffers.take()
        stage_inline(waiting, INLINE_LIST_BYTES_MAX)
        missing = [segment for segment in waiting if segment.staged is None]
        # A single one would only wait for a thread to begin.
        for segment in missing if len(missing) > 1 else ():
            segment.start()
        self._uploading = deque(waiting)
        self._take_uploaded(waits=True)
        self._background.close(0)
        return with_digest(sorted(self._uploaded, key=lambda staged: (staged.topic, staged.partition)), self._digest)

    def _take_uploaded(self, *, waits: bool) -> None:
        """Note the first segments that are uploaded, and wait for those that are too many; with `waits` for all.

        Raises:
            StoreUnavailable: an upload failed.
        """
        if self._failed is not None:
            raise self._failed
        segments = list(self._uploading)
        excess = len(segments) if waits else max(0, len(segments) - 2 * STAGING_THREADS)
        ready = segments[:excess]
        ready += takewhile(lambda segment: not segment.is_under_way, segments[excess:])
        try:
            self._uploaded += [segment.finish() for segment in ready]
        except Exception as error:
            self._fail(error)
            raise
        for _ in ready:
            self._uploading.popleft()
        self._buffers.settle(ready)

    def _fail(self, error: Exception) -> None:
        """Have every later call raise the first error; uploads that have not begun never do."""
        if self._failed is None:
            self._failed = error
            self._background.close(0)

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            if name not in self._stage_topics:
                raise ConfigurationError(
                    f"topic {name!r} is unknown{did_you_mean(name, self._stage_topics)}: "
                    "create it, or name it among the topics that are written",
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
            topic = self._topics[name] = _Topic(TopicBuffer(self._stage_topics[name]), _round_robin(self._seed))
        return topic

    def _by_topic(self, rows: pa.Table) -> Iterator[tuple[_Topic, pa.Table]]:
        if self._default_topic is not None:
            yield self._default_topic, rows
            return
        names = topic_names(rows)
        found = [self._topic(name) for name in names.unique().to_pylist()]
        for topic in found:
            stage = topic.buffer.stage
            if stage.schema is not None:
                raise ConfigurationError(
                    f"topic {stage.name!r} has declared columns: it is written alone, named for all rows"
                )
            yield topic, rows if len(found) == 1 else rows.filter(pc.equal(names, stage.name))

    def _deletes(self, rows: pa.Table) -> pa.Table:
        if self._default_topic is None:
            raise ConfigurationError("delete is True, and no topic is named for all rows: expected a default topic")
        return as_deletes(self._default_topic.buffer.stage, rows)

    def _stage(self, topic: _Topic, rows: pa.Table, partition: int | None) -> None:
        buffer = topic.buffer
        records = conformed(buffer.stage, rows, self._clock.wall_ms())
        given = given_partitions(buffer.stage, rows, records, partition)
        if not records.num_rows:
            return
        if (largest := row_above(records, buffer.size_max)) is not None:
            raise CommandRefused(ErrorCode.MESSAGE_TOO_LARGE, _too_large(buffer, largest))
        if self._has_digest:
            # numpy takes a tenth of a second to import: only processes that stage micro-batches pay for it.
            from sparktxn._rows.stage.rowdigest import digest_of_records

            chosen = None if buffer.stage.primary_key else given
            self._digest = digest_of_records(buffer.stage, rows, records, chosen).plus(self._digest)
        partitions = row_partitions(records, given, buffer.key_column, partial(self._hashed, topic))
        for partition, part in split(records, partitions):
            self._uploading += self._buffers.add_table(buffer.partitions[partition], part)
            self._take_uploaded(waits=False)

    def _hashed(self, topic: _Topic, keys: pa.Array) -> pa.Array:
        partition_count = topic.buffer.partition_count
        if partition_count == 1:
            return pa.repeat(pa.scalar(0, pa.int32()), len(keys))
        return partitions_of_keys(self._partitioner, keys, partition_count, topic.pick)


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


def _too_large(topic: TopicBuffer, size: int) -> str:
    found = f"a record for topic {topic.stage.name!r} has {size} bytes"
    if topic.size_max == RECORD_BYTES_MAX:
        return f"{found}: one request can store {RECORD_BYTES_MAX}; send smaller records"
    return f"{found}: its setting max.message.bytes allows {topic.size_max}"
