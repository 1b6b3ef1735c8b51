"""Sizes of partitions and topics as a view has them: from the log alone, so that no manifest is read."""

from __future__ import annotations

from typing import NamedTuple

from sparktxn.log.keep.runs import sizes_of
from sparktxn.log.views.readview import PartitionView, ReadView

__all__ = ["SMALL_FILE_BYTES", "Figures", "partition_figures", "topic_figures"]

SMALL_FILE_BYTES = 8 * 1_048_576
"""A partition whose files have fewer bytes on average has small files, if they are many."""
_MANY = 8


class Figures(NamedTuple):
    """What partitions have.

    `offsets` counts those of open and aborted records and of ends of transactions too. `segments` counts segments: a
    rewrite puts several of them into one file.
    """

    offsets: int = 0
    segments: int = 0
    size_bytes: int = 0
    behind: int = 0
    """Offsets that read_committed does not reach, because an open transaction begins before them."""

    @property
    def segment_bytes(self) -> int:
        """The mean size of a segment."""
        return self.size_bytes // self.segments if self.segments else 0

    @property
    def has_small_files(self) -> bool:
        """Whether a rewrite is likely to find something to merge."""
        return self.segments > _MANY and self.segment_bytes < SMALL_FILE_BYTES

    def plus(self, other: Figures) -> Figures:
        """Return the sums."""
        return Figures(
            self.offsets + other.offsets,
            self.segments + other.segments,
            self.size_bytes + other.size_bytes,
            self.behind + other.behind,
        )


def partition_figures(view: PartitionView) -> Figures:
    """Return what one partition has."""
    segments = size_bytes = 0
    for count, bytes_, _ in sizes_of(view.sealed, view.segments, view.rewritten):
        segments += count
        size_bytes += bytes_
    offsets = view.log_end_offset - view.log_start_offset
    return Figures(offsets, segments, size_bytes, view.log_end_offset - view.last_stable_offset)


def topic_figures(view: ReadView) -> dict[str, Figures]:
    """Return what each topic of a view has, by name."""
    found = dict.fromkeys(view.topics, Figures())
    for (name, _), partition in view.partitions.items():
        found[name] = found[name].plus(partition_figures(partition))
    return found
