"""Sizes of partitions and topics as a view has them: from the log alone, so that no manifest is read."""

from __future__ import annotations

from typing import NamedTuple

from sparktxn.log.keep.runs import is_rewritten, not_rewritten
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
        return Figures(*(one + two for one, two in zip(self, other, strict=True)))


def partition_figures(view: PartitionView) -> Figures:
    """Return what one partition has."""
    segments = size_bytes = 0
    for run in view.sealed:
        if not view.rewritten or not is_rewritten(run, view.rewritten):
            segments += run.segment_count
            size_bytes += run.size_bytes
    for segment in not_rewritten(view.segments, view.rewritten) if view.rewritten else view.segments:
        segments += 1
        size_bytes += segment.file_share_bytes
    for rewritten in view.rewritten:
        segments += rewritten.run.segment_count
        size_bytes += rewritten.run.size_bytes
    offsets = view.log_end_offset - view.log_start_offset
    return Figures(offsets, segments, size_bytes, view.log_end_offset - view.last_stable_offset)


def topic_figures(view: ReadView) -> dict[str, Figures]:
    """Return what each topic of a view has, by name."""
    found: dict[str, list[int]] = {name: [0, 0, 0, 0] for name in view.topics}
    for (name, _), partition in view.partitions.items():
        sums, figures = found[name], partition_figures(partition)
        sums[0] += figures.offsets
        sums[1] += figures.segments
        sums[2] += figures.size_bytes
        sums[3] += figures.behind
    return {name: Figures(*sums) for name, sums in found.items()}
