"""Frozen values that name segments: single ones, sealed runs of them, and what a rewrite has put in their place."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from sparktxn._foundation.values.fieldtypes import (
    Checksum,
    Int64,
    Natural,
    NaturalOrNone,
    Positive,
    SealedFolder,
    SegmentFile,
)

_MERGED: Final = ".offsets.parquet"
"""The end of the name of a file with a column of offsets; `format/names.py` builds and checks it."""


class SegmentRef(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A segment as a partition's list names it. `name` is the file's name in the partition's folder.

    `committed_entry` is the entry that committed its records. It is 0 if none had when the list was written, and for
    aborted records (`state/transactions/partitions.py`).
    """

    name: SegmentFile
    base_offset: Natural
    record_count: Positive
    size_bytes: Positive
    checksum: Checksum
    entry: Positive
    producer_id: NaturalOrNone
    producer_epoch: NaturalOrNone
    base_sequence: NaturalOrNone
    transaction: NaturalOrNone
    timestamp_min_ms: Int64
    timestamp_max_ms: Int64
    committed_entry: Natural = 0

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.record_count

    @property
    def first_row(self) -> int:
        """The row of its file that holds the first record."""
        return 0

    @property
    def row_count(self) -> int:
        """The rows of its file that are left of its records: all, unless a compaction has removed some."""
        return self.record_count

    @property
    def file_records(self) -> int:
        """The rows of its file."""
        return self.record_count

    @property
    def has_offset_column(self) -> bool:
        """Whether its file says the offset of each row, as all do that a rewrite makes."""
        return self.name.endswith(_MERGED)

    @property
    def has_gaps(self) -> bool:
        """Whether some of its offsets have no record: the file says which ones have."""
        return self.row_count != self.record_count

    @property
    def file_share_bytes(self) -> int:
        """About how many bytes of its file its records take."""
        return max(1, self.size_bytes * self.row_count // self.file_records)

    def rows_between(self, start: int, end: int) -> int:
        """Return how many records it has from offset `start` to `end`; at most so many if it has gaps."""
        return max(0, min(self.row_count, min(end, self.end_offset) - max(start, self.base_offset)))


class RewrittenSegment(SegmentRef, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """A segment whose records a rewrite has put into a file that holds those of other segments too.

    It differs from the segment that it replaces in `name`, `size_bytes` and `checksum`, which are the file's, and in
    that its transaction's fate is known: `committed_entry` is above 0. Its records are the rows of the file from
    `first_row` on.
    """

    first_row: Natural
    file_records: Positive


class CompactedSegment(RewrittenSegment, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """A segment of which a compaction has left `row_count` records, fewer than it has offsets.

    Those are the rows of the file from `first_row` on. The file has a column of their offsets.
    """

    row_count: Positive


class FilePart(CompactedSegment, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """Segments that follow each other in a file that a rewrite has made, as one: a reader's, and never stored.

    It has gaps where offsets between them have no record. What its segments do not share is left out: it has no
    producer and no transaction. Its `committed_entry` is their greatest, `committed_entry_min` their least.
    """

    committed_entry_min: Natural


class CommittedTransaction(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A producer's range of offsets that `entry` committed: `last_offset` is that of the control record."""

    producer_id: Natural
    first_offset: Natural
    last_offset: Natural
    entry: Positive


class ManifestRef(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A sealed run of segments: the folder that holds its manifest and sidecars, and what skipping needs.

    The run has an index of aborted transactions only if `aborted_count` is above 0. `committed_entry_max` is the
    greatest of its segments. `committed_late` are the transactions that were committed within the run and had begun
    before it. The manifests of earlier runs do not say which entry committed their segments.
    """

    folder: SealedFolder
    base_offset: Natural
    end_offset: Natural
    segment_count: Positive
    level: Natural
    entry_min: Positive
    entry_max: Positive
    timestamp_min_ms: Int64
    timestamp_max_ms: Int64
    size_bytes: Positive
    checksum: Checksum
    aborted_count: Natural = 0
    committed_entry_max: Natural = 0
    committed_late: tuple[CommittedTransaction, ...] = ()


class RewrittenRange(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """Offsets whose segments are those of `run` that begin within them, since `entry` has rewritten them.

    A later rewrite of some of the run's offsets leaves the others: `run` may begin before the range, and end after it.
    """

    base_offset: Natural
    end_offset: Positive
    entry: Positive
    run: ManifestRef


class Compaction(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """What a compaction has done: below `end_offset` the newest record of each key is left.

    `committed_entry` is the greatest entry that committed records there; 0 if no transaction has had any. Tombstones
    below `tombstones_end` that were the newest of their keys are gone too.
    """

    end_offset: Positive
    committed_entry: Natural
    tombstones_end: Natural


class CompactionPass(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """Offsets below `end_offset` were compacted at `timestamp_ms` or before, the time of an entry.

    One with a `timestamp_ms` below 0 is of a keyed partition: deletes below `end_offset` are gone since an entry.
    """

    end_offset: Positive
    timestamp_ms: Int64


class CompactedPrefix(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """Up to where a partition is compacted by key; see `Compaction` for the first two fields.

    `passes` say when offsets were first compacted, in their order, while tombstones may be left there.
    """

    end_offset: Positive
    committed_entry: Natural
    passes: tuple[CompactionPass, ...] = ()

    @property
    def deletes_gone(self) -> tuple[int, int]:
        """Below which offset of a keyed partition deletes are gone, and since which entry; (0, 0) if none is."""
        if not self.passes or self.passes[0].timestamp_ms >= 0:
            return 0, 0
        return self.passes[0].end_offset, -self.passes[0].timestamp_ms
