"""Rows of keyed topics for a page: the latest rows that changed last, and the history of one key.

Which rows of a key are the latest follows from all rows after them. So both are read back from the log end, by the
columns of the key, and up to so many offsets. A page costs the same however large a topic is, and says where it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from sparktxn import ReadView
from sparktxn._programs.console.pagesource import Source
from sparktxn._programs.console.recordreads import (
    Make,
    Row,
    batches_of,
    columns_of,
    plain_rows,
)
from sparktxn._programs.console.requestparameters import WrongRequest
from sparktxn._rows.scan.columns import known_columns
from sparktxn.store.options import Condition
from sparktxn.store.reading import key_columns
from sparktxn.transfer.jsonrows import key_reader

_DELETED: Final = "_deleted"
_PLACE: Final = ("_partition", "_offset", "_entry")
_BATCH_ROWS: Final = 65_536
_PARTITIONS_MAX: Final = 32
LATEST_OFFSETS: Final = 20_000
"""So many of the newest offsets, of all partitions together, are looked at for latest rows."""
_SEGMENT_ROWS_MAX: Final = 1_000_000
"""Files are decoded whole: partitions whose newest files have more rows together are left out."""
HISTORY_OFFSETS: Final = 500_000
"""So many offsets of a partition are looked at for the history of a key."""


class _RowPlace(NamedTuple):
    """Where a row is."""

    partition: int
    offset: int


class LatestFound(NamedTuple):
    """The latest rows that changed last, newest first.

    They are those of `partitions`, from the last `offsets` offsets of each. `skipped` is where the next page begins;
    None if there is none.
    """

    rows: list[Row]
    partitions: list[int]
    offsets: int
    scanned: int
    skipped: int | None


class HistoryFound(NamedTuple):
    """Rows of one key in `partition`, newest first.

    `before` is the offset where the next page goes on; None at the end. `partition` is None if it has no rows.
    """

    rows: list[Row]
    partition: int | None
    scanned: int
    before: int | None


def latest_rows(
    source: Source, view: ReadView, topic: str, partition: int | None, skip: int, count: int, make: Make
) -> LatestFound:
    """Return what `make` makes of latest rows of a keyed topic, but for the first `skip`."""
    chosen = [partition] if partition is not None else _changed(source, view, topic)
    offsets = LATEST_OFFSETS // max(1, len(chosen))
    key = key_columns(view.topics[topic].settings)
    newest: list[tuple[int, int, int]] = []
    read: list[int] = []
    scanned = segment_rows = 0
    for number in chosen:
        end = view.partitions[topic, number].log_end_offset
        tasks = _planned(source, view, topic, number, max(0, end - offsets), end, key)
        segment_rows += sum(segment.row_count for task in tasks for segment in task.segments)
        if read and segment_rows > _SEGMENT_ROWS_MAX:
            break
        read.append(number)
        seen: dict[tuple[Any, ...], tuple[int, int, int] | None] = {}
        for batch in batches_of(source.store, tasks, _BATCH_ROWS):
            scanned += batch.num_rows
            keys = zip(*(batch.column(name).to_pylist() for name in key), strict=True)
            places = zip(*(batch.column(name).to_pylist() for name in _PLACE), strict=True)
            deleted = batch.column(_DELETED).to_pylist()
            for one, place, is_deleted in zip(keys, places, deleted, strict=True):
                seen[one] = None if is_deleted else (-(place[2] or 0), place[0], place[1])
        newest += [place for place in seen.values() if place is not None]
    shown = sorted(newest)[skip : skip + count]
    more = len(newest) > skip + count
    rows = _rows_at(source, view, topic, [_RowPlace(number, offset) for _, number, offset in shown], make)
    return LatestFound(rows, read, offsets, scanned, skip + count if more else None)


def _changed(source: Source, view: ReadView, topic: str) -> list[int]:
    """Return the partitions that have changed last, as far as it is known; of few partitions all that have rows."""
    found = view.topics[topic]
    numbers: dict[int, None] = {}
    if found.partition_count > _PARTITIONS_MAX:
        for one in reversed(source.chronicle.up_to(view.entry)):
            numbers |= dict.fromkeys(sorted(number for topic_id, number in one.ends if topic_id == found.topic_id))
            if len(numbers) >= _PARTITIONS_MAX:
                break
    numbers |= dict.fromkeys(range(found.partition_count))
    return [number for number in numbers if view.partitions[topic, number].log_end_offset][:_PARTITIONS_MAX]


def history_of(
    source: Source, view: ReadView, topic: str, text: str, before: int | None, count: int, make: Make
) -> HistoryFound:
    """Return what `make` makes of the rows of one key, given as text (PROTOCOL.md, "Keyed topics").

    Raises:
        WrongRequest: it is not a key of the topic.
    """
    schema = known_columns(view.topics[topic].schema)
    fields = [schema.field(name).with_nullable(False) for name in key_columns(view.topics[topic].settings)]
    try:
        values = key_reader(fields)(text.encode("utf-8", "surrogateescape"))
    except ValueError as error:
        form = "its text" if len(fields) == 1 else f"a JSON array of {', '.join(field.name for field in fields)}"
        raise WrongRequest(f"key is not one of the topic ({error}): expected {form}") from None
    wanted = [(field.name, pa.array([value], field.type)[0]) for field, value in zip(fields, values, strict=True)]
    conditions = tuple(Condition(name, "=", value.as_py()) for name, value in wanted)
    alone = source.store.view([topic], entry=view.entry)
    partition = next((task.partition for task in source.store.plan_latest(alone, conditions=conditions)), None)
    if partition is None:
        return HistoryFound([], None, 0, None)
    end = view.partitions[topic, partition].log_end_offset if before is None else before
    low = max(view.partitions[topic, partition].log_start_offset, end - HISTORY_OFFSETS)
    tasks = _planned(source, view, topic, partition, low, end, [field.name for field in fields])
    offsets: list[int] = []
    scanned = 0
    for batch in batches_of(source.store, [replace(task, conditions=conditions) for task in tasks], _BATCH_ROWS):
        scanned += batch.num_rows
        for name, value in wanted:
            batch = batch.filter(pc.equal(batch.column(name), value))
        offsets += batch.column("_offset").to_pylist()
    shown = sorted(offsets, reverse=True)[:count]
    rows = _rows_at(source, view, topic, [_RowPlace(partition, offset) for offset in shown], make)
    older = shown[-1] if len(offsets) > count else low if low > 0 else None
    return HistoryFound(rows, partition, scanned, older)


def _planned(
    source: Source, view: ReadView, topic: str, partition: int, low: int, end: int, key: Sequence[str]
) -> Sequence[Any]:
    columns = tuple(dict.fromkeys([*key, _DELETED, *_PLACE]))
    bounds: Mapping[Any, Any] = {(topic, partition): (low, end)}
    return source.store.plan_view(view, bounds=bounds, columns=columns, rows="all")


def _rows_at(source: Source, view: ReadView, topic: str, places: Sequence[_RowPlace], make: Make) -> list[Row]:
    """Return what `make` makes of the rows at these places, in their order."""
    found: dict[_RowPlace, Row] = {}
    schema = view.topics[topic].schema
    wanted: dict[int, list[int]] = {}
    for number, offset in places:
        wanted.setdefault(number, []).append(offset)
    for number, offsets in wanted.items():
        for some in _ranges(sorted(offsets)):
            bounds: Mapping[Any, Any] = {(topic, number): (some.start, some.stop)}
            tasks = source.store.plan_view(view, bounds=bounds, columns=columns_of(schema), rows="all")
            for batch in batches_of(source.store, tasks, _BATCH_ROWS):
                kept = batch.filter(pc.is_in(batch.column("_offset"), pa.array(offsets, pa.int64())))
                for row in plain_rows(kept, schema):
                    found[_RowPlace(number, row["_offset"])] = make(row)
    return [found[place] for place in places]


def _ranges(offsets: Sequence[int]) -> Iterator[range]:
    """Yield the ranges of offsets that are read at once: rows between those that are near are read with them."""
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset - last > _BATCH_ROWS:
            yield range(first, last + 1)
            first = offset
        last = offset
    yield range(first, last + 1)
