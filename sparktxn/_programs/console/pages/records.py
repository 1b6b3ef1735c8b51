"""Records of a topic: a page of them, and one with all that it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sparktxn import ReadView
from sparktxn._foundation.values.quantities import counted
from sparktxn._programs.console.keyedreads import HISTORY_OFFSETS, LATEST_OFFSETS, history_of, latest_rows
from sparktxn._programs.console.pagesource import Page, Source
from sparktxn._programs.console.pagetext import bytes_text, record_bytes, shortened, visible
from sparktxn._programs.console.recordreads import (
    RESERVED,
    Found,
    Make,
    RecordFilter,
    Row,
    from_offset,
    newest_committed,
)
from sparktxn._programs.console.requestparameters import NotFound, RequestParameters, WrongRequest
from sparktxn.store.options import OFFSET, reserved_name
from sparktxn.store.reading import key_columns

_COUNT: Final = 50
_COUNT_MAX: Final = 500
_CELL_BYTES: Final = 512
_CELL_HEADERS: Final = 20
_CELL_COLUMNS: Final = 100
_VALUE_BYTES: Final = 65_536
_HEADERS: Final = 200
_HEADER_BYTES: Final = 4_096
_COLUMNS: Final = 2_000
_COLUMNS_BYTES: Final = 1_048_576
"""What all columns of a record have together on its page."""
_FORMS: Final = ("auto", "text", "json", "hex")
_HIDDEN: Final = "hidden"
_NUMBERS: Final = ("int", "float", "double", "decimal")


def records(source: Source, asked: RequestParameters, name: str) -> Page:
    """Return a page of a topic's committed records.

    Without `partition` it has what the newest entries have committed, in all partitions. `to` is the newest of them, or
    `until` its time; `time` leaves out older records. With `partition` it has the records from `offset` or `time` on,
    or the last ones. `entry` chooses an older view; `key`, `header` and `text` filter.

    Of a keyed topic it has latest rows, unless `rows` is all, or something chooses records by their places. With `key`
    it has the history of that key.
    """
    entry = asked.entry()
    view = source.topic_view(name, entry)
    topic = view.topics[name]
    wanted = RecordFilter.asked(asked)
    if source.hide_values:
        # What a filter finds says what a value is.
        wanted = RecordFilter()
    partition = _partition(asked, topic.partition_count)
    if partition is None:
        wanted = wanted._replace(since_ms=asked.time_ms("time", source.now_ms()))
    count = asked.count("count", _COUNT, most=_COUNT_MAX)
    form = asked.choice("as", _FORMS, "auto")
    start = None
    make = _Making(
        schema=topic.schema,
        form=form,
        is_hidden=source.hide_values,
        value_bytes=_CELL_BYTES,
        columns=_CELL_COLUMNS,
        headers=_CELL_HEADERS,
        header_bytes=_CELL_BYTES,
    ).row
    keyed = _keyed_rows(source, asked, view, name, partition, count, make)
    if keyed is not None:
        found = Found(keyed["rows"], None, keyed["scanned"])
    elif partition is None:
        found = newest_committed(source, view, name, _last_entry(source, view, asked), count, wanted, make)
    else:
        start = _start(source, view, name, partition, count, asked)
        found = from_offset(source.store, view, name, partition, start, count, wanted, make)
    columns = topic.schema or ()
    content: dict[str, Any] = {
        "topic": name,
        "typed": topic.schema is not None,
        "columns": [column for column, _, _ in columns[:_CELL_COLUMNS]],
        "columns_left_out": max(0, len(columns) - _CELL_COLUMNS),
        "numbers": [column for column, kind, _ in columns[:_CELL_COLUMNS] if kind.startswith(_NUMBERS)],
        "partition_count": topic.partition_count,
        "entry": view.entry,
        "newest_entry": source.log.refresh(),
        "is_now": entry is None,
        "timestamp_ms": view.timestamp_ms,
        "partition": partition,
        "offset": start,
        "count": count,
        "time": asked.text("time") or None,
        "is_narrowed": any(map(asked.has, ("partition", "offset", "time", "until", "key", "header", "text"))),
        "key": wanted.key,
        "header": wanted.header,
        "text": wanted.text,
        "as": form,
        "follow": asked.flag("follow") and entry is None,
        "hidden": source.hide_values,
        "primary_key": list(key_columns(topic.settings)),
        "keyed": None if keyed is None else {part: value for part, value in keyed.items() if part != "rows"},
        "scanned": found.scanned,
        "records": _with_ids(source, found.rows),
        "next": found.next_place,
        "previous": _previous(view, name, partition, start, count),
    }
    return Page("records.html", f"{name}: records", content)


_PLACES: Final = ("offset", "time", "until", "to", "header", "text", "follow")
"""Parameters that choose records as the log has them, and not latest rows."""


def _keyed_rows(
    source: Source, asked: RequestParameters, view: ReadView, name: str, partition: int | None, count: int, make: Make
) -> dict[str, Any] | None:
    """Return the latest rows of a keyed topic, or the history of a key; None if the page has records as the log does.

    Raises:
        WrongRequest: a key is not one of the topic's, or rows are asked for by what they do not have.
    """
    if not key_columns(view.topics[name].settings):
        if asked.has("rows"):
            raise WrongRequest("rows is given, and the topic has no key (primary.key): leave it out")
        return None
    given = next((each for each in _PLACES if asked.has(each)), None)
    kind = asked.choice("rows", ("latest", "all"), "latest" if given is None else "all")
    if asked.has("key") and not source.hide_values:
        before = asked.number("before")
        history = history_of(source, view, name, asked.text("key"), before, count, make)
        return {"kind": "history", "key": asked.text("key"), **history._asdict(), "looked": HISTORY_OFFSETS}
    if kind == "all":
        return None
    if given is not None:
        raise WrongRequest(f"{given} is given for latest rows, which have no place in the log: expected rows=all")
    skip = asked.number("skip", 0, most=LATEST_OFFSETS) or 0
    return {"kind": "latest", **latest_rows(source, view, name, partition, skip, count, make)._asdict()}


def _partition(asked: RequestParameters, partition_count: int) -> int | None:
    """Return the partition that is asked for; None for all of them."""
    found = asked.number("partition", most=partition_count - 1)
    if found is None and asked.has("offset"):
        if partition_count > 1:
            raise WrongRequest(f"offset is given without a partition: expected one from 0 to {partition_count - 1}")
        found = 0
    if found is not None and asked.has("until"):
        raise WrongRequest("until is given for a partition: expected it for all, as it says which entries are shown")
    return found


def _last_entry(source: Source, view: ReadView, asked: RequestParameters) -> int:
    time_ms = asked.time_ms("until", source.now_ms())
    if time_ms is not None:
        return source.store.view([], timestamp_ms=time_ms).entry
    return min(view.entry, asked.number("to", view.entry) or view.entry)


def _start(source: Source, view: ReadView, name: str, partition: int, count: int, asked: RequestParameters) -> int:
    found = view.partitions[name, partition]
    time_ms = asked.time_ms("time", source.now_ms())
    if time_ms is not None:
        offset = source.store.offset_for_time(found, time_ms)
        return found.log_end_offset if offset is None else offset
    return max(found.log_start_offset, asked.number("offset", found.log_end_offset - count) or 0)


def _previous(view: ReadView, name: str, partition: int | None, start: int | None, count: int) -> int | None:
    if partition is None or start is None:
        return None
    low = view.partitions[name, partition].log_start_offset
    return max(low, start - count) if start > low else None


class _Making(NamedTuple):
    """How records become rows of a page: with so many bytes of each value, headers and columns."""

    schema: Any
    form: str
    is_hidden: bool
    value_bytes: int
    columns: int
    headers: int
    header_bytes: int

    def row(self, row: Row) -> Row:
        """Return a record as a page has it; the names of what the log says of it are the same for all topics."""
        found: dict[str, Any] = {name: row.get(reserved_name(name, self.schema)) for name in RESERVED}
        found["timestamp_ms"] = found.pop("timestamp")
        if self.schema is not None:
            names = [column for column, _, _ in self.schema[: self.columns]]
            found["columns"] = {column: self._typed(row[column]) for column in names}
            found["is_delete"] = row.get("_deleted") is True
            return found
        for name in ("key", "value"):
            found[name] = self._shown(row[name], self.value_bytes)
        headers = row["headers"] or ()
        found["headers"] = [
            {
                "key": _HIDDEN if self.is_hidden else shortened(one["key"], self.header_bytes),
                "value": self._shown(one["value"], self.header_bytes),
            }
            for one in headers[: self.headers]
        ]
        found["headers_left_out"] = max(0, len(headers) - self.headers)
        return found

    def _typed(self, value: Any) -> Any:
        if self.is_hidden:
            return None if value is None else _HIDDEN
        most = self.value_bytes
        return record_bytes(value, most) if isinstance(value, bytes) else shortened(value, most)

    def _shown(self, data: bytes | None, most: int) -> dict[str, Any]:
        """Return bytes for JSON, and as `shown` for the page."""
        if self.is_hidden and data is not None:
            return {"length": len(data), "shown": f"{_HIDDEN}, {counted(len(data), 'byte')}"}
        found = record_bytes(data, most)
        if data is None:
            return found | {"shown": "null"}
        part = data if self.form == "json" and len(data) <= _VALUE_BYTES else data[:most]
        text = found.get("text")
        shown = text if self.form in ("auto", "text") and text is not None else bytes_text(part, self.form)
        return found | {"shown": visible(shown, most), "is_cut": len(data) > most}


def _with_ids(source: Source, rows: list[Row]) -> list[Row]:
    """Return rows with the transactional ids of their producers."""
    producers = {row["producer_id"] for row in rows} - {None}
    found = (record for record in (source.transactions() if producers else ()) if record.producer_id in producers)
    owners = {record.producer_id: record.transactional_id for record in found}
    return [row | {"transactional_id": owners.get(row["producer_id"])} for row in rows]


def record(source: Source, asked: RequestParameters, name: str, partition: int, offset: int) -> Page:
    """Return one record, with up to 64 KiB of its value."""
    view = source.topic_view(name, asked.number("entry"))
    schema = view.topics[name].schema
    form = asked.choice("as", _FORMS, "json")
    value_bytes = _VALUE_BYTES if schema is None else max(_CELL_BYTES, _COLUMNS_BYTES // max(16, len(schema)))
    make = _Making(
        schema=schema,
        form=form,
        is_hidden=source.hide_values,
        value_bytes=value_bytes,
        columns=_COLUMNS,
        headers=_HEADERS,
        header_bytes=_HEADER_BYTES,
    ).row
    found = _one(source, view, name, partition, offset, make)
    content = {
        "topic": name,
        "partition": partition,
        "offset": offset,
        "typed": schema is not None,
        "types": {column: kind for column, kind, _ in (schema or ())[:_COLUMNS]},
        "columns_left_out": max(0, len(schema or ()) - _COLUMNS),
        "as": form,
        "hidden": source.hide_values,
        "record": _with_ids(source, [found])[0],
        "view_entry": view.entry,
        "log_start_offset": view.partitions[name, partition].log_start_offset,
        "log_end_offset": view.partitions[name, partition].log_end_offset,
    }
    return Page("record.html", f"{name}-{partition} offset {offset}", content)


def value_of(source: Source, name: str, partition: int, offset: int) -> bytes:
    """Return the whole value of a record of Kafka's kind."""
    view = source.topic_view(name, None)
    offset_name = reserved_name(OFFSET, view.topics[name].schema)
    made = _one(source, view, name, partition, offset, lambda row: {OFFSET: row[offset_name], "data": row.get("value")})
    found = made["data"]
    if not isinstance(found, bytes):
        raise NotFound("this record has no value of bytes: it is null, or the topic is typed")
    return found


def _one(source: Source, view: ReadView, name: str, partition: int, offset: int, make: Callable[[Row], Row]) -> Row:
    if (name, partition) not in view.partitions:
        raise NotFound(f"topic {name!r} has partitions 0 to {view.topics[name].partition_count - 1}, not {partition}")
    found = from_offset(source.store, view, name, partition, offset, 1, RecordFilter(), make)
    if not found.rows or found.rows[0][OFFSET] != offset:
        raise NotFound(
            f"{name}-{partition} has no committed record at offset {offset}: it may be aborted, deleted, compacted, "
            f"or the end of a transaction"
        )
    return found.rows[0]
