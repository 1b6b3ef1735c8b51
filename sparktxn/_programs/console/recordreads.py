"""Reading a few records for a page: from an offset, back from the end, or what the newest entries have committed.

A page reads until it has its rows, or has seen so many records. A filter that nothing meets ends with a place to
continue at. Records are large: one file at a time is decoded, or some small ones. Of each record only what the page
makes of it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from sparktxn import ReadView
from sparktxn._programs.console.history.entryfacts import EntryFacts
from sparktxn._programs.console.pagesource import Source
from sparktxn._programs.console.requestparameters import RequestParameters
from sparktxn._rows.scan.columns import (
    ENTRY,
    OFFSET,
    PARTITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TIMESTAMP,
    known_columns,
    reserved_name,
)
from sparktxn._rows.scan.plan import ReadTask, by_file
from sparktxn.store import Store, read_task
from sparktxn.store.options import TopicPartitionKey
from sparktxn.store.reading import SegmentRef

Row = dict[str, Any]
Make = Callable[[Row], Row]
"""Returns what a page keeps of a record. The columns that the log says have their plain names."""

_BATCH_ROWS: Final = 512
_TYPED_TIMESTAMP: Final = reserved_name(TIMESTAMP, ())
_FETCHED_BYTES: Final = 8 * 1024 * 1024
_PIECE_BYTES: Final = 1024 * 1024
SCANNED_MAX: Final = 20_000
_WINDOW: Final = 16
_WINDOW_GROWTH: Final = 4
_WINDOWS_MAX: Final = 6
_PARTITIONS_MAX: Final = 32


class RecordFilter(NamedTuple):
    """What a record must have: a key, a header with a value, a text anywhere. Empty ones are met by all.

    With `since_ms` it must not be older than that, by its own time.
    """

    key: str = ""
    header: str = ""
    text: str = ""
    since_ms: int | None = None

    @classmethod
    def asked(cls, asked: RequestParameters) -> RecordFilter:
        """Return the filter that a request asks for."""
        return cls(asked.text("key"), asked.text("header"), asked.text("text"))

    @property
    def is_empty(self) -> bool:
        """Whether all records meet it."""
        return self == RecordFilter()

    def meets(self, row: Row) -> bool:
        """Return whether a row has what is asked for."""
        if self.key and _bytes(row.get("key")) != self.key.encode("utf-8", "surrogateescape"):
            return False
        if (
            self.since_ms is not None
            and row[_TYPED_TIMESTAMP if _TYPED_TIMESTAMP in row else TIMESTAMP] < self.since_ms
        ):
            return False
        if self.header and not self._has_header(row.get("headers")):
            return False
        return not self.text or any(self._has_text(value) for name, value in row.items() if not name.startswith("_"))

    def _has_header(self, headers: Any) -> bool:
        name, equals, value = self.header.partition("=")
        return any(
            one["key"] == name and (not equals or _bytes(one["value"]) == value.encode()) for one in headers or ()
        )

    def _has_text(self, value: Any) -> bool:
        if isinstance(value, bytes):
            return self.text.encode() in value
        return value is not None and self.text in str(value)


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


class Found(NamedTuple):
    """What is made of the rows of a page.

    `next_place` is where the next page begins; None at the end. `scanned` records were read.
    """

    rows: list[Row]
    next_place: int | None
    scanned: int


def columns_of(schema: Any) -> list[str]:
    """Return all columns of a topic and of a record's transaction, but the transactional id, which costs a search."""
    left_out = reserved_name("transactional_id", schema)
    return [name for name in known_columns(schema).names if name != left_out]


def batches_of(store: Store, tasks: Sequence[ReadTask], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tasks. Files that have some MiB together are fetched at once, larger ones alone."""
    for task in tasks:
        for part in _parts(task):
            yield from read_task(part, store.options, batch_rows=batch_rows)


def _parts(task: ReadTask) -> Iterator[ReadTask]:
    """Yield a task in parts, each with one file or with some small ones."""
    if sum(segment.size_bytes for segment in task.segments) <= _FETCHED_BYTES:
        yield task
        return
    part: list[SegmentRef] = []
    size_bytes = 0
    for file in by_file(task.segments):
        if part and size_bytes + file[0].size_bytes > _FETCHED_BYTES:
            yield replace(task, segments=tuple(part))
            part, size_bytes = [], 0
        part += file
        size_bytes += file[0].size_bytes
    yield replace(task, segments=tuple(part))


def in_pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in pieces of about 1 MiB, or of one row: as objects of Python rows take several times.

    Rows are halved until they fit, as their sizes may differ widely.
    """
    if batch.num_rows <= 1 or batch.nbytes <= _PIECE_BYTES:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from in_pieces(batch.slice(0, middle))
    yield from in_pieces(batch.slice(middle))


def _rows(store: Store, tasks: list[ReadTask], schema: Any) -> Iterator[Row]:
    for batch in batches_of(store, tasks, _BATCH_ROWS):
        yield from plain_rows(batch, schema)


def plain_rows(batch: pa.RecordBatch, schema: Any) -> Iterator[Row]:
    """Yield the rows of a batch of a topic with this schema, some at a time."""
    for piece in in_pieces(batch):
        yield from _plain(piece, reserved_name(TIMESTAMP, schema))


def _plain(batch: pa.RecordBatch, time_name: str) -> Iterator[Row]:
    """Yield rows with the records' times as milliseconds and those of columns as text, whatever year they are of."""
    columns = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name == time_name:
            column = column.cast(pa.timestamp("ms", field.type.tz), safe=False).cast(pa.int64())
        elif pa.types.is_timestamp(field.type):
            text = column.cast(pa.timestamp(field.type.unit)).cast(pa.string())
            column = text if field.type.tz is None else pc.binary_join_element_wise(text, "Z", "")
        elif pa.types.is_date(field.type):
            column = column.cast(pa.string())
        columns[field.name] = column.to_pylist()
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def from_offset(
    store: Store, view: ReadView, topic: str, partition: int, start: int, count: int, wanted: RecordFilter, make: Make
) -> Found:
    """Return what `make` makes of `count` committed records of a partition from offset `start` on."""
    schema = view.topics[topic].schema
    end = view.partitions[topic, partition].log_end_offset
    offset_name = reserved_name(OFFSET, schema)
    rows: list[Row] = []
    scanned, low, width = 0, start, 4 * count
    while low < end:
        bounds: Mapping[TopicPartitionKey, tuple[int, int | None]] = {(topic, partition): (low, min(end, low + width))}
        for row in _rows(store, store.plan_view(view, bounds=bounds, columns=columns_of(schema), rows="all"), schema):
            scanned += 1
            if wanted.meets(row):
                if len(rows) == count:
                    return Found(rows, row[offset_name], scanned)
                rows.append(make(row))
            if scanned >= SCANNED_MAX and not wanted.is_empty:
                return Found(rows, row[offset_name] + 1, scanned)
        low += width
        width *= _WINDOW_GROWTH
    return Found(rows, None, scanned)


def newest_committed(
    source: Source, view: ReadView, topic: str, to_entry: int, count: int, wanted: RecordFilter, make: Make
) -> Found:
    """Return what `make` makes of the records that the entries up to `to_entry` committed, of all partitions.

    The newest entry comes first. They are about `count`, for the records of one entry stay together, up to twice as
    many. The next place is an entry. Of an entry with very many partitions or records, some are shown.
    """
    store, schema = source.store, view.topics[topic].schema
    place_of = _place_of(schema)
    rows: list[Row] = []
    scanned, high, width = 0, min(to_entry, view.entry), _WINDOW
    facts = source.chronicle.up_to(view.entry)
    for _ in range(_WINDOWS_MAX):
        low = max(0, high - width)
        bounds: dict[TopicPartitionKey, tuple[int, int | None]] = {
            (topic, number): (0, None) for number in _touched(facts, view, topic, low, high)[:_PARTITIONS_MAX]
        }
        some = _FirstRows(2 * count - len(rows))
        tasks = (
            store.plan_commits(view, low, to_entry=high, bounds=bounds, columns=columns_of(schema), rows="all")
            if bounds
            else []
        )
        for row in _rows(store, tasks, schema):
            scanned += 1
            if wanted.meets(row) and some.takes(place := place_of(row)):
                some.add(place, make(row))
            if scanned >= SCANNED_MAX:
                break
        rows += some.in_order()
        if len(rows) >= count:
            last = rows[count - 1][ENTRY] or 0
            kept = [row for row in rows if (row[ENTRY] or 0) >= last]
            return Found(kept, last - 1 if last > 1 else None, scanned)
        high, width = low, width * _WINDOW_GROWTH
        if not high:
            return Found(rows, None, scanned)
        if scanned >= SCANNED_MAX:
            break
    return Found(rows, high, scanned)


class _FirstRows:
    """The first rows of many by their places: `most` of them, and for a while up to twice as many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[tuple[_Place, Row]] = []
        self._last: _Place | None = None

    def takes(self, place: _Place) -> bool:
        """Return whether a row of this place may be one of the first."""
        return self._last is None or place < self._last

    def add(self, place: _Place, row: Row) -> None:
        """Keep a row, and let go of those that are not among the first any more."""
        self._kept.append((place, row))
        if len(self._kept) >= 2 * self._most:
            self._cut()

    def in_order(self) -> list[Row]:
        """Return the first rows by their places."""
        self._cut()
        return [row for _, row in self._kept]

    def _cut(self) -> None:
        self._kept.sort(key=itemgetter(0))
        if len(self._kept) >= self._most:
            del self._kept[self._most :]
            self._last = self._kept[-1][0]


def _touched(facts: Sequence[EntryFacts], view: ReadView, topic: str, low: int, high: int) -> list[int]:
    """Return the partitions of a topic that entries after `low` up to `high` have changed, as far as facts say it."""
    found = view.topics[topic]
    if not facts or facts[0].entry > low + 1:
        return list(range(found.partition_count))
    places = {place for one in facts if low < one.entry <= high for place in one.ends}
    return sorted(number for topic_id, number in places if topic_id == found.topic_id)


_Place = tuple[int, int, int]


def _place_of(schema: Any) -> Callable[[Row], _Place]:
    """Return what gives a row's place on a page: the newest entry first, then by partition and offset."""
    entry, partition, offset = (reserved_name(name, schema) for name in (ENTRY, PARTITION, OFFSET))
    return lambda row: (-(row[entry] or 0), row[partition], row[offset])


RESERVED: Final = (PARTITION, OFFSET, TIMESTAMP, ENTRY, PRODUCER_ID, PRODUCER_EPOCH)
"""The columns of a record that the log says, whatever the topic is."""
