"""Sealed runs: the segments and aborted transactions that their objects hold, checked against what names them.

All readers of runs read them here, so that each of them refuses the same damage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import groupby
from math import inf
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sparktxn._engine.format import names
from sparktxn._engine.format.manifest import decode_manifest, manifest_rows, segments_of_rows
from sparktxn._engine.format.segment import checksum
from sparktxn._engine.format.txnindex import decode_transaction_index
from sparktxn._engine.objectstore.contract import ObjectReader
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TRANSACTION,
    AbortedTransaction,
    FilePart,
    ManifestRef,
    PartitionSegments,
    RewrittenRange,
    SegmentRef,
)
from sparktxn.errors import DamagedObject, StoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Segments of merged files as a reader plans them: those that follow each other in a file are one part of it.
#
# The file says the offset of each row. So a reader that asks for nothing else of its segments needs none of them.
# What it costs to plan, to hand out and to read a file then does not grow with their number.


def joined(segments: Iterable[SegmentRef]) -> list[SegmentRef]:
    """Return `segments` in their order, and as one those that follow each other in a file that a rewrite has made."""
    found: list[SegmentRef] = []
    for _, group in groupby(segments, attrgetter("name")):
        file = list(group)
        if len(file) == 1 or not file[0].has_offset_column:
            found += file
            continue
        first, end_row = 0, file[0].first_row
        for place, segment in enumerate(file):
            if segment.first_row != end_row:
                found.append(_part(file[first:place]))
                first = place
            end_row = segment.first_row + segment.row_count
        found.append(_part(file[first:]))
    return found


def joined_rows(rows: pa.Table) -> tuple[SegmentRef, ...]:
    """Return `joined` of the segments that rows of a manifest describe, without making each of them."""
    places = _places(rows)
    if len(places) == rows.num_rows:
        return segments_of_rows(rows)
    firsts = segments_of_rows(_rows_at(rows, places))
    lasts = segments_of_rows(_rows_at(rows, np.append(places[1:], rows.num_rows) - 1))
    committed = _numbers(rows["committed_entry"])
    parts = zip(
        firsts,
        lasts,
        np.minimum.reduceat(_numbers(rows["entry"]), places).tolist(),
        np.minimum.reduceat(_numbers(rows["timestamp_min_ms"]), places).tolist(),
        np.maximum.reduceat(_numbers(rows["timestamp_max_ms"]), places).tolist(),
        np.minimum.reduceat(committed, places).tolist(),
        np.maximum.reduceat(committed, places).tolist(),
        strict=True,
    )
    return tuple(first if first == last else _file_part(first, last, *found) for first, last, *found in parts)


def _places(rows: pa.Table) -> NDArray[np.intp]:
    """Return which rows of a manifest do not follow the one before them in a file that says their offsets."""
    if "first_row" not in rows.column_names:
        return np.arange(rows.num_rows)
    files = rows["name"].combine_chunks().dictionary_encode()
    file, first_row = np.from_dlpack(files.indices), _numbers(rows["first_row"])
    end_row = first_row + _numbers(rows["row_count" if "row_count" in rows.column_names else "record_count"])
    is_merged = np.fromiter(map(names.has_offsets, files.dictionary.to_pylist()), np.bool_)[file]
    follows = (file[1:] == file[:-1]) & (first_row[1:] == end_row[:-1]) & is_merged[1:]
    return np.append(0, np.flatnonzero(~follows) + 1)


def _numbers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    # to_numpy() would import pandas, which takes each process 0.2 s.
    found: NDArray[np.int64] = np.asarray(np.from_dlpack(column.combine_chunks()), np.int64)
    return found


def _rows_at(rows: pa.Table, places: NDArray[np.intp]) -> pa.Table:
    return pa.concat_tables([rows.slice(place, 1) for place in places.tolist()])


def committed_from(segment: SegmentRef) -> int:
    """Return the least entry that committed records of a segment, or of a part of a file; 0 if some are not known."""
    return segment.committed_entry_min if isinstance(segment, FilePart) else segment.committed_entry


def _part(segments: Sequence[SegmentRef]) -> SegmentRef:
    if len(segments) == 1:
        return segments[0]
    return _file_part(
        segments[0],
        segments[-1],
        min(segment.entry for segment in segments),
        min(segment.timestamp_min_ms for segment in segments),
        max(segment.timestamp_max_ms for segment in segments),
        min(committed_from(segment) for segment in segments),
        max(segment.committed_entry for segment in segments),
    )


def _file_part(
    first: SegmentRef,
    last: SegmentRef,
    entry: int,
    timestamp_min_ms: int,
    timestamp_max_ms: int,
    committed_entry_min: int,
    committed_entry_max: int,
) -> FilePart:
    return FilePart(
        first.name,
        first.base_offset,
        last.end_offset - first.base_offset,
        first.size_bytes,
        first.checksum,
        entry,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        NO_TRANSACTION,
        timestamp_min_ms,
        timestamp_max_ms,
        committed_entry_max,
        first_row=first.first_row,
        file_records=first.file_records,
        row_count=last.first_row + last.row_count - first.first_row,
        committed_entry_min=committed_entry_min,
    )


_CACHED_BYTES_MAX: Final = 64 * 1024 * 1024
_SEGMENT_BYTES: Final = 700
"""What a decoded segment takes in memory: 631 bytes where all its numbers are large, and its place in a tuple."""
_Key = tuple[str, str, str, bool]
_Absent = Callable[[str], StoreError]
"""Given an object's name, the error for its absence."""


class ManifestCache:
    """Decoded manifests, by store, object name and checksum: a sealed run never changes. Safe for several threads.

    They take at most `bytes_max` bytes of memory; a manifest that takes more by itself is not held. One may be held
    twice: its segments, and what `joined` makes of them.
    """

    def __init__(self, bytes_max: int = _CACHED_BYTES_MAX) -> None:
        self._segments_max = bytes_max // _SEGMENT_BYTES
        self._lock = Lock()
        self._manifests: OrderedDict[_Key, tuple[SegmentRef, ...]] = OrderedDict()
        self._segment_count = 0

    def get(self, key: _Key) -> tuple[SegmentRef, ...] | None:
        """Return a manifest's segments, None if they are not held."""
        with self._lock:
            segments = self._manifests.get(key)
            if segments is not None:
                self._manifests.move_to_end(key)
            return segments

    def add(self, key: _Key, segments: tuple[SegmentRef, ...]) -> None:
        """Hold a manifest's segments, and let go of those that were not asked for longest."""
        with self._lock:
            if key in self._manifests or len(segments) > self._segments_max:
                return
            self._manifests[key] = segments
            self._segment_count += len(segments)
            while self._segment_count > self._segments_max:
                _, oldest = self._manifests.popitem(last=False)
                self._segment_count -= len(oldest)

    def keep(self, objects: ObjectReader, folder: str, run: ManifestRef, segments: Sequence[SegmentRef]) -> None:
        """Hold the segments of a run in a partition's folder, as if its manifest had been read."""
        self.add(_key(objects, folder, run, by_segment=True), tuple(segments))


def _key(objects: ObjectReader, folder: str, run: ManifestRef, *, by_segment: bool) -> _Key:
    return objects.uri, names.manifest(folder, run.folder), run.checksum, by_segment


def _absent(name: str) -> StoreError:
    return DamagedObject(name, "a sealed run names it and it does not exist")


def segments_of(
    objects: ObjectReader,
    folder: str,
    runs: Sequence[ManifestRef],
    *,
    cache: ManifestCache | None = None,
    absent: _Absent = _absent,
    joined_runs: Container[ManifestRef] = (),
) -> list[tuple[SegmentRef, ...]]:
    """Return each run's segments, in offset order; `folder` is the partition's. Those of `joined_runs` are `joined`.

    Raises:
        DamagedObject: a manifest is not the one that the state names; or, unless `absent` says otherwise, is missing.
    """
    keys = [_key(objects, folder, run, by_segment=run not in joined_runs) for run in runs]
    found = {key: cache.get(key) if cache is not None else None for key in keys}
    # What is left of a rewritten run may be two ranges of it.
    missing = {key: run for run, key in zip(runs, keys, strict=True) if found[key] is None}
    fetched = _fetched(objects, [name for _, name, *_ in missing], absent)
    for (key, run), data in zip(missing.items(), fetched, strict=True):
        segments = found[key] = _manifest(run, key[1], data, by_segment=key[3])
        if cache is not None:
            cache.add(key, segments)
    return [found[key] or () for key in keys]


def check_manifest(objects: ObjectReader, folder: str, run: ManifestRef) -> None:
    """Check that a run's manifest has the checksum that the state names; it is not decoded.

    Raises:
        DamagedObject: it has another one, or is missing.
    """
    name = names.manifest(folder, run.folder)
    (data,) = _fetched(objects, [name], _absent)
    _check_checksum(run, name, data)


def is_rewritten(run: ManifestRef, rewritten: Sequence[RewrittenRange]) -> bool:
    """Return True if all segments of a sealed run are replaced by those of one rewritten range."""
    found = _ending_after(rewritten, run.base_offset)
    return found is not None and found.base_offset <= run.base_offset and run.end_offset <= found.end_offset


def not_rewritten(segments: Iterable[SegmentRef], rewritten: Sequence[RewrittenRange]) -> list[SegmentRef]:
    """Return the segments that no rewritten range replaces.

    Raises:
        DamagedObject: a range replaces a part of a segment.
    """
    segments = list(segments)
    if not rewritten or not segments:
        return segments
    first, last = segments[0], segments[-1]
    covering = _ending_after(rewritten, first.base_offset)
    if covering is not None and covering.base_offset <= first.base_offset and last.end_offset <= covering.end_offset:
        return []
    return [segment for segment in segments if not _is_replaced(segment, _ending_after(rewritten, segment.base_offset))]


def rewritten_segments_of(
    objects: ObjectReader,
    folder: str,
    rewritten: Sequence[RewrittenRange],
    *,
    cache: ManifestCache | None = None,
    absent: _Absent = _absent,
    by_segment: bool = True,
) -> list[SegmentRef]:
    """Return the segments of rewritten ranges, in offset order; `folder` is the partition's.

    Unless `by_segment` they are `joined`.

    Raises:
        DamagedObject: as for `segments_of`; or a segment is not known to be committed, or lies across a range's end.
    """
    runs = [each.run for each in rewritten]
    # Of a cut range only its segments say what is left.
    joined_runs = set() if by_segment else {each.run for each in rewritten if _is_whole(each)}
    manifests = segments_of(objects, folder, runs, cache=cache, absent=absent, joined_runs=joined_runs)
    found: list[SegmentRef] = []
    for each, segments in zip(rewritten, manifests, strict=True):
        if any(committed_from(segment) == 0 for segment in segments):
            raise DamagedObject(each.run.folder, "a rewritten segment does not name the entry that committed it")
        found += segments if _is_whole(each) else [one for one in segments if _is_replaced(one, each)]
    return found if by_segment else joined(found)


def _is_whole(rewritten: RewrittenRange) -> bool:
    """Return whether the segments of a rewritten range are all of its run's."""
    run = rewritten.run
    return rewritten.base_offset <= run.base_offset and run.end_offset <= rewritten.end_offset


def current_segments(
    objects: ObjectReader,
    folder: str,
    located: PartitionSegments,
    *,
    before: float = inf,
    cache: ManifestCache | None = None,
) -> list[SegmentRef]:
    """Return the segments of a partition's places that no rewrite has replaced, and those that rewrites have made.

    With `before`, those that begin below that offset, and perhaps more: runs that begin later are not read.

    Raises:
        DamagedObject: a manifest is missing, or not the one that the state names.
    """
    rewritten = [each for each in located.rewritten if each.base_offset < before]
    sealed = [run for run in located.sealed if run.base_offset < before]
    runs = [run for run in sealed if not is_rewritten(run, located.rewritten)]
    # One after the other: the bytes of many manifests are not held together.
    segments = [segment for run in runs for segment in segments_of(objects, folder, [run], cache=cache)[0]]
    current = not_rewritten([*segments, *located.segments], located.rewritten)
    return current + rewritten_segments_of(objects, folder, rewritten, cache=cache)


def sizes_of(
    sealed: Iterable[ManifestRef], segments: Iterable[SegmentRef], rewritten: Sequence[RewrittenRange]
) -> Iterator[tuple[int, int, bool]]:
    """Yield how many current segments there are, with how many bytes, and whether a rewrite has made them.

    No manifest is read, so those of a run or of a rewrite are together; others come one by one.
    """
    for run in sealed:
        if not rewritten or not is_rewritten(run, rewritten):
            yield run.segment_count, run.size_bytes, False
    for segment in not_rewritten(segments, rewritten) if rewritten else segments:
        yield 1, segment.file_share_bytes, False
    for each in rewritten:
        yield each.run.segment_count, each.run.size_bytes, True


def small_files(
    sealed: Iterable[ManifestRef],
    segments: Iterable[SegmentRef],
    rewritten: Sequence[RewrittenRange],
    *,
    below_bytes: int,
    at_least: int,
) -> int:
    """Return about how many small files a partition has for a rewrite to merge; 0 if they are less than `at_least`.

    No manifest is read. Segments in one object count once: an entry that carries records, and what a rewrite has made.
    The segments of a sealed run count as small if they are so on average.
    """
    runs = (run for run in sealed if not rewritten or not is_rewritten(run, rewritten))
    count = sum(run.segment_count for run in runs if run.size_bytes < below_bytes * run.segment_count)
    single = not_rewritten(segments, rewritten) if rewritten else segments
    objects = (one.entry if names.is_inline(one.name) else one.name for one in single if one.size_bytes < below_bytes)
    count += len(set(objects)) + sum(each.run.size_bytes < below_bytes for each in rewritten)
    return count if count >= at_least else 0


def _ending_after(rewritten: Sequence[RewrittenRange], offset: int) -> RewrittenRange | None:
    index = bisect_right(rewritten, offset, key=attrgetter("end_offset"))
    return rewritten[index] if index < len(rewritten) else None


def _is_replaced(segment: SegmentRef, rewritten: RewrittenRange | None) -> bool:
    """Return whether a segment lies in a range that ends after its first record, and not after the range.

    Raises:
        DamagedObject: a part of it does.
    """
    if rewritten is None or segment.end_offset <= rewritten.base_offset or segment.base_offset >= rewritten.end_offset:
        return False
    if segment.base_offset < rewritten.base_offset or segment.end_offset > rewritten.end_offset:
        raise DamagedObject(
            segment.name,
            f"its offsets {segment.base_offset} to {segment.end_offset} lie across an end of the range "
            f"{rewritten.base_offset} to {rewritten.end_offset}, which entry {rewritten.entry} has rewritten",
        )
    return True


def aborted_of(
    objects: ObjectReader, folder: str, runs: Sequence[ManifestRef], *, absent: _Absent = _absent
) -> list[tuple[AbortedTransaction, ...]]:
    """Return each run's aborted transactions, in the order of their ends; `folder` is the partition's.

    Raises:
        DamagedObject: an index is not whole; or, unless `absent` says otherwise, is missing.
    """
    indexed = [run for run in runs if run.aborted_count]
    index_names = [names.transaction_index(folder, run.folder, run.base_offset) for run in indexed]
    fetched = iter(zip(index_names, _fetched(objects, index_names, absent), strict=True))
    return [_index(run, *next(fetched)) if run.aborted_count else () for run in runs]


def _fetched(objects: ObjectReader, object_names: Sequence[str], absent: _Absent) -> list[bytes]:
    if len(object_names) == 1:
        fetched = [objects.get(object_names[0])]
    else:
        fetched = objects.get_many(object_names) if object_names else []
    for name, data in zip(object_names, fetched, strict=True):
        if data is None:
            raise absent(name)
    return [data for data in fetched if data is not None]


def _manifest(run: ManifestRef, name: str, data: bytes, *, by_segment: bool) -> tuple[SegmentRef, ...]:
    _check_checksum(run, name, data)
    if by_segment:
        segments = decode_manifest(data, name)
        count = len(segments)
    else:
        rows = manifest_rows(data, name)
        segments, count = joined_rows(rows), rows.num_rows
    if count != run.segment_count:
        raise DamagedObject(name, f"it names {counted(count, 'segment')}, expected {run.segment_count}")
    return segments


def _check_checksum(run: ManifestRef, name: str, data: bytes) -> None:
    if (found := checksum(data)) != run.checksum:
        raise DamagedObject(name, f"its checksum is {found}, expected {run.checksum}")


def _index(run: ManifestRef, name: str, data: bytes) -> tuple[AbortedTransaction, ...]:
    transactions = decode_transaction_index(data, name)
    if len(transactions) != run.aborted_count:
        raise DamagedObject(name, f"it holds {counted(len(transactions), 'transaction')}, expected {run.aborted_count}")
    return transactions
