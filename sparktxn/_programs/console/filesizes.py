"""How many files have which size, of the log alone where it says it, else from manifests; and bytes by kind of object.

A manifest never changes, so only its counts are kept. Those that are missing are read after the page that asks.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from sparktxn import PartitionView, ReadView
from sparktxn._engine.format import names
from sparktxn._engine.log.keep.sealedruns import is_rewritten, not_rewritten, sizes_of, small_files
from sparktxn._engine.log.log import Log
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn._foundation.values.structs import ManifestRef, RewrittenRange, SegmentRef
from sparktxn._programs.console.requestturns import ReadsOn, held
from sparktxn._rows.scan.plan import current_segments, rewritten_segments
from sparktxn.errors import KafkaException

FILE_SIZES: Final = (1_024, 16_384, 262_144, 1_048_576, 8_388_608, 67_108_864)
"""The bounds of the classes of sizes; a last class has what is larger."""
_RUNS_KEPT: Final = 50_000

_Run = ManifestRef | RewrittenRange
_Key = tuple[int, int, str, int]


class Sizes(NamedTuple):
    """How many files are in each class of sizes, and how many manifests are not counted yet.

    `carried` segments are in no file: entries of the log carry them.
    """

    counts: tuple[int, ...]
    manifests_left: int = 0
    carried: int = 0


class FileSizes(ReadsOn):
    """The sizes of a store's files. `read_on` counts manifests that were asked for."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, tuple[int, ...]] = OrderedDict()
        self._wanted: dict[_Key, tuple[PartitionView, _Run]] = {}

    def of(self, views: Iterable[PartitionView]) -> Sizes:
        """Return the sizes of the files of some partitions."""
        sums, left = [0] * (len(FILE_SIZES) + 2), 0
        with held(self._lock):
            for view in views:
                for one, count in enumerate(_counts(not_rewritten(view.segments, view.rewritten))):
                    sums[one] += count
                sealed: list[_Run] = [run for run in view.sealed if not is_rewritten(run, view.rewritten)]
                for run in (*sealed, *view.rewritten):
                    key = _key(view, run)
                    counts = self._known.get(key)
                    if counts is None:
                        left += 1
                        if len(self._wanted) < _RUNS_KEPT:
                            self._wanted[key] = view, run
                        continue
                    self._known.move_to_end(key)
                    for one, count in enumerate(counts):
                        sums[one] += count
        return Sizes(tuple(sums[:-1]), left, sums[-1])

    def _read_some(self) -> bool:
        """Count one manifest."""
        with held(self._lock):
            if not self._wanted:
                return False
            key, (view, run) = self._wanted.popitem()
        objects = self._log.objects
        if isinstance(run, RewrittenRange):
            counts = _counts(rewritten_segments(objects, view, [run], by_segment=True, cache=None))
        else:
            counts = _counts(current_segments(objects, view, [run], cache=None))
        with held(self._lock):
            self._known[key] = counts
            while len(self._known) > _RUNS_KEPT:
                self._known.popitem(last=False)
        return True

    def _note_failure(self, error: KafkaException) -> None:
        # Vacuums may have passed the view, and the page that asks again has a newer one.
        self._wanted = {}


def _key(view: PartitionView, run: _Run) -> _Key:
    """Return what a run is known by; of a run that is rewritten in part other segments are left."""
    if isinstance(run, RewrittenRange):
        return view.topic.topic_id, view.partition, run.run.folder, run.base_offset
    within = (
        each for each in view.rewritten if each.base_offset < run.end_offset and each.end_offset > run.base_offset
    )
    return view.topic.topic_id, view.partition, run.folder, -1 - max((each.entry for each in within), default=0)


def _counts(segments: Iterable[SegmentRef]) -> tuple[int, ...]:
    """Return how many files in each class hold the segments, and last how many segments entries carry."""
    segments = list(segments)
    sizes = {one.name: one.size_bytes for one in segments if not names.is_inline(one.name)}
    counts = [0] * (len(FILE_SIZES) + 2)
    counts[-1] = sum(names.is_inline(one.name) for one in segments)
    for size_bytes in sizes.values():
        place = next((place for place, below in enumerate(FILE_SIZES) if size_bytes < below), len(FILE_SIZES))
        counts[place] += 1
    return tuple(counts)


# Sizes of partitions and topics as a view has them: from the log alone, so that no manifest is read.

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
