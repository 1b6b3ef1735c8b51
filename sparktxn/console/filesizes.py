"""How many files have which size: of the log alone where it says it, else from manifests, which are read once.

A manifest never changes, so only its counts are kept. Those that are missing are read after the page that asks.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from sparktxn.console.oneatatime import ReadsOn, held
from sparktxn.errors import KafkaException
from sparktxn.format import names
from sparktxn.log.keep.runs import is_rewritten, not_rewritten
from sparktxn.log.log import Log
from sparktxn.log.views.readview import PartitionView
from sparktxn.scan.plan import current_segments, rewritten_segments
from sparktxn.values.structs import ManifestRef, RewrittenRange, SegmentRef

__all__ = ["FILE_SIZES", "FileSizes", "Sizes"]

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
