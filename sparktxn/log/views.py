"""Read views: what a reader sees at one entry, frozen (PROTOCOL.md, "Read views")."""

from __future__ import annotations

from msgspec import Struct

from sparktxn.structs import AbortedTransaction, ManifestRef, SegmentRef, TopicState

__all__ = ["PartitionView", "ReadView"]


class PartitionView(Struct, frozen=True):
    """A partition at an entry: its offsets, and where its records are.

    `sealed` runs come first, in offset order, then the single `segments`; `aborted` holds the ranges that no sealed
    run's index holds.
    """

    topic: TopicState
    partition: int
    entry: int
    log_start_offset: int
    last_stable_offset: int
    log_end_offset: int
    sealed: tuple[ManifestRef, ...]
    segments: tuple[SegmentRef, ...]
    aborted: tuple[AbortedTransaction, ...]


class ReadView(Struct, frozen=True):
    """All asked-for partitions, as (topic, partition), at one entry: the same for everyone, for ever."""

    entry: int
    timestamp_ms: int
    topics: dict[str, TopicState]
    partitions: dict[tuple[str, int], PartitionView]
