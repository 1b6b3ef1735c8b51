"""Read views: what a reader sees at one entry, frozen (PROTOCOL.md, "Read views")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from sparktxn._engine.state.delta import ReadState
from sparktxn._engine.state.transactions.partitions import last_stable_offset
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._foundation.values.quantities import html_table
from sparktxn._foundation.values.structs import (
    AbortedTransaction,
    CommittedTransaction,
    CompactedPrefix,
    ManifestRef,
    PartitionSegments,
    PartitionState,
    RewrittenRange,
    SegmentRef,
    TopicState,
)


class PartitionView(Struct, frozen=True, gc=False):
    """A partition at an entry: its offsets, and where its records are.

    `sealed` runs come first, in offset order, then the single `segments`; `aborted` and `committed` hold the ranges of
    ended transactions that no sealed run has. Segments that begin within `rewritten` ranges are replaced by those of
    the ranges. `compacted` says up to where only the newest record of each key is left. The runs' objects are kept for
    as long as the horizon is not above `base_entry`, the checkpoint that names them, nor above `entry`.
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
    base_entry: int | None = None
    committed: tuple[CommittedTransaction, ...] = ()
    rewritten: tuple[RewrittenRange, ...] = ()
    compacted: CompactedPrefix | None = None

    def rows_at_most(self, start: int, end: int) -> int:
        """Return about how many rows a range of offsets has: not all of them need have records."""
        return end - start

    def computed_ranges(self, start: int, end: int, entries_max: int | None) -> Iterator[tuple[int, int]]:
        """Yield what of a range is computed, `entries_max` entries at a time: nothing, if rows are stored."""
        return iter(())

    def shared_rows(self, start: int, end: int) -> int:
        """Return how many rows of a range count where a limit is shared out between partitions."""
        return max(0, end - start)

    def end_within(self, start: int, end: int, rows_max: int, all_rows: int) -> int:
        """Return where the beginning of a range ends that has its share of `rows_max`, as one of `all_rows`."""
        # A small partition still gets its turn.
        return min(end, start + max(1, rows_max * (end - start) // max(all_rows, rows_max)))

    def unread_from(self, entry: int) -> int:
        """Return the least offset that entries after `entry` may commit, apart from those that have been read."""
        return self.last_stable_offset

    def entries_after(self, entry: int, start: int) -> range:
        """Return the entries after `entry` whose rows are computed from offset `start` on: none, if rows are stored."""
        return range(0)


class ReadView(Struct, frozen=True):
    """All asked-for partitions, as (topic, partition), at one entry: the same for every reader, and never changed."""

    entry: int
    timestamp_ms: int
    topics: dict[str, TopicState]
    partitions: dict[TopicPartitionKey, PartitionView]

    def _repr_html_(self) -> str:
        columns = ("topic", "partition", "log start offset", "last stable offset", "log end offset")
        rows = (
            (name, number, found.log_start_offset, found.last_stable_offset, found.log_end_offset)
            for (name, number), found in self.partitions.items()
        )
        return html_table(f"read view at entry {self.entry}", columns, rows)


def capture_view(
    read: ReadState, topics: Iterable[TopicState], entry: int, timestamp_ms: int, base_entry: int | None = None
) -> ReadView:
    """Return the view of a state: its records are frozen, so naming them is enough.

    `base_entry` is the checkpoint that names all of its sealed runs.
    """
    named: dict[str, TopicState] = {}
    partitions: dict[TopicPartitionKey, PartitionView] = {}
    for topic in topics:
        named[topic.name] = topic
        for number in range(topic.partition_count):
            state: PartitionState = read(("partition", topic.topic_id, number))
            located: PartitionSegments = read(("segments", topic.topic_id, number))
            partitions[topic.name, number] = PartitionView(
                topic,
                number,
                entry,
                state.log_start_offset,
                last_stable_offset(state),
                state.log_end_offset,
                located.sealed,
                located.segments,
                located.aborted,
                base_entry,
                located.committed,
                located.rewritten,
                located.compacted,
            )
    return ReadView(entry, timestamp_ms, named, partitions)
