"""Sizes of partitions and topics as a view has them: from the log alone, so that no manifest is read."""

from __future__ import annotations

from typing import NamedTuple

from sparktxn.config.maintenance import RewriteSettings
from sparktxn.log.keep.runs import sizes_of, small_files
from sparktxn.log.views.readview import PartitionView, ReadView

__all__ = ["Figures", "partition_figures", "topic_figures"]

_SMALL_BYTES = RewriteSettings().target_bytes // 2
_SMALL_FILES_MERGED = RewriteSettings().min_segments


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
    small_files: int = 0
    """About how many small files, and entries that carry records, a rewrite would merge."""

    @property
    def segment_bytes(self) -> int:
        """The mean size of a segment."""
        return self.size_bytes // self.segments if self.segments else 0

    def plus(self, other: Figures) -> Figures:
        """Return the sums."""
        return Figures(
            self.offsets + other.offsets,
            self.segments + other.segments,
            self.size_bytes + other.size_bytes,
            self.behind + other.behind,
            self.small_files + other.small_files,
        )


def partition_figures(view: PartitionView) -> Figures:
    """Return what one partition has."""
    segments = size_bytes = 0
    places = view.sealed, view.segments, view.rewritten
    for count, bytes_, _ in sizes_of(*places):
        segments += count
        size_bytes += bytes_
    offsets = view.log_end_offset - view.log_start_offset
    small = small_files(*places, below_bytes=_SMALL_BYTES, at_least=_SMALL_FILES_MERGED)
    return Figures(offsets, segments, size_bytes, view.log_end_offset - view.last_stable_offset, small)


def topic_figures(view: ReadView) -> dict[str, Figures]:
    """Return what each topic of a view has, by name."""
    found = dict.fromkeys(view.topics, Figures())
    for (name, _), partition in view.partitions.items():
        found[name] = found[name].plus(partition_figures(partition))
    return found
