"""What staging takes and gives: a topic as a writer must know it, and a segment that is uploaded and not yet named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sparktxn._engine.format.schema import DELETED_COLUMN
from sparktxn._engine.state.keyed import is_keyed, key_columns, required_columns
from sparktxn._foundation.config.topic import is_compacted, topic_values
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import TopicState

INLINE_LIST_BYTES_MAX: Final = 131_072
"""Inline records that one list carries: every follower of the log reads them."""

_UINT64_MAX: Final = 2**64 - 1
_RANGES: Final = {
    "topic_id": (1, arguments.INT64_MAX),
    "partition": (0, arguments.INT32_MAX),
    "record_count": (1, arguments.INT64_MAX),
    "size_bytes": (1, arguments.INT64_MAX),
    "timestamp_min_ms": (-1, arguments.INT64_MAX),
    "timestamp_max_ms": (-1, arguments.INT64_MAX),
    "payload_bytes": (-1, arguments.INT64_MAX),
}
_DIGEST_RANGES: Final = dict.fromkeys(("row_count", "low", "high"), (0, _UINT64_MAX))


class StageTopic(Struct, frozen=True, kw_only=True):
    """A topic as staging knows it, its settings parsed: picklable, so that processes without the log can stage.

    With `has_times_of_entries` a record's timestamp is its entry's, and none is stored (``LogAppendTime``).
    `partition_key` is the column that chooses the partition of a typed topic's rows, "" if none does. `primary_key` has
    the columns of a keyed topic's key, `required_columns` those outside of it that an upsert must have; with
    `missing_is_null` an upsert may lack columns.
    """

    name: str
    topic_id: int
    partition_count: int
    schema: tuple[tuple[str, str, bool], ...] | None
    segment_format: str
    compression: str
    segment_rows: int
    segment_bytes: int
    message_bytes_max: int
    inline_bytes: int
    partition_key: str
    has_times_of_entries: bool
    is_compacted: bool
    primary_key: tuple[str, ...] = ()
    required_columns: tuple[str, ...] = ()
    missing_is_null: bool = False

    @property
    def whole_columns(self) -> tuple[str, ...]:
        """The columns that each upsert must have: none of a topic without a key, or with ``upsert.missing=null``."""
        if not self.primary_key or self.missing_is_null:
            return ()
        return tuple(name for name, _, _ in self.schema or () if name != DELETED_COLUMN)

    @classmethod
    def of(cls, topic: TopicState) -> StageTopic:
        """Return what staging needs of a topic's state."""
        segment_format, compression, rows, size_bytes, message_bytes, inline_bytes, key, times = topic_values(
            topic.settings,
            "segment.format",
            "compression.type",
            "segment.rows",
            "segment.bytes",
            "max.message.bytes",
            "append.inline.bytes",
            "partition.key",
            "message.timestamp.type",
        )
        keyed = is_keyed(topic)
        return cls(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_count=topic.partition_count,
            schema=topic.schema,
            segment_format=segment_format,
            compression=compression,
            segment_rows=rows,
            segment_bytes=size_bytes,
            message_bytes_max=message_bytes,
            inline_bytes=inline_bytes,
            partition_key=key,
            has_times_of_entries=times == "LogAppendTime",
            is_compacted=is_compacted(topic.settings),
            primary_key=key_columns(topic.settings) if keyed else (),
            required_columns=required_columns(topic.settings) if keyed else (),
            missing_is_null=topic.settings.get("upsert.missing") == "null",
        )


class RowsDigest(Struct, frozen=True):
    """What rows are, whatever their order: the kind of the digest, how many they are, and two sums over them."""

    kind: str
    row_count: int
    low: int
    high: int

    def checked(self) -> RowsDigest:
        """Return the digest in plain values, as a caller may give one.

        Raises:
            TypeError, ConfigurationError: a field is not what a digest has.
        """
        kind = arguments.identifier("kind", self.kind)
        return RowsDigest(kind, **arguments.integers(self, _DIGEST_RANGES))

    def plus(self, other: RowsDigest | None) -> RowsDigest:
        """Return the digest of these rows and of those of another digest, which may be of another kind."""
        if other is None:
            return self
        kinds = {*self.kind.split("+"), *other.kind.split("+")}
        return RowsDigest(
            "+".join(sorted(kinds)),
            self.row_count + other.row_count,
            (self.low + other.low) & _UINT64_MAX,
            (self.high + other.high) & _UINT64_MAX,
        )


class StagedSegment(Struct, frozen=True):
    """A segment in the store that no entry names yet: invisible, and removed by a vacuum if it stays so.

    `segment` is the file's name in the partition's folder. `payload_bytes` is what the records hold, whatever their
    order, their division into segments and their encoding: a replayed batch has the same sum. `data` is the segment
    itself where the entry that names it is to carry it: then nothing of it is in the store yet. `digest` is that of all
    rows that one stager got: the first of its segments has it. With `keeps_times` the records have the times that it
    says, also where the topic's records have those of entries. `is_keyed`: its topic has a key.
    """

    topic: str
    topic_id: int
    partition: int
    segment: str
    record_count: int
    size_bytes: int
    checksum: str
    timestamp_min_ms: int
    timestamp_max_ms: int
    payload_bytes: int
    data: bytes = b""
    digest: RowsDigest | None = None
    keeps_times: bool = False
    is_keyed: bool = False

    def __repr__(self) -> str:
        """Show which segment it is, and nothing of its records."""
        return f"StagedSegment({self.topic!r}, partition={self.partition}, segment={self.segment!r})"

    def checked(self) -> StagedSegment:
        """Return the segment in plain values, as a caller may give one: inside they are trusted.

        Raises:
            TypeError, ConfigurationError: a field is not what a log can hold.
        """
        texts = {name: arguments.identifier(name, getattr(self, name)) for name in ("topic", "segment", "checksum")}
        return replace(
            self,
            **texts,
            **arguments.integers(self, _RANGES),
            data=arguments.instance("data", self.data, bytes, "bytes"),
            is_keyed=self.is_keyed is True,
            digest=None if self.digest is None else arguments.instance("digest", self.digest, RowsDigest).checked(),
        )


def may_be_carried(size_bytes: int, topic_limit_bytes: int, store_limit_bytes: int) -> bool:
    """Return whether an entry may carry records of so many bytes, by the settings of their topic and of the store."""
    return 0 < min(store_limit_bytes, topic_limit_bytes) >= size_bytes


def with_digest(staged: Sequence[StagedSegment], digest: RowsDigest | None) -> list[StagedSegment]:
    """Return segments that were staged together, of whose rows this is the digest."""
    return [replace(segment, digest=digest if place == 0 else None) for place, segment in enumerate(staged)]
