"""Records of a topic: a page of them, and one with all that it holds."""

from __future__ import annotations

from typing import Any, Final

from sparktxn.console.recordreads import RESERVED, Found, RecordFilter, from_offset, newest_committed
from sparktxn.console.requestparameters import NotFound, RequestParameters
from sparktxn.console.shown import bytes_text, record_bytes, visible
from sparktxn.console.shownstore import Page, Source
from sparktxn.log.views.readview import ReadView
from sparktxn.scan.columns import reserved_name
from sparktxn.values.counted import counted

__all__ = ["record", "records", "value_of"]

_COUNT: Final = 50
_COUNT_MAX: Final = 500
_CELL_BYTES: Final = 512
_VALUE_BYTES: Final = 65_536
_FORMS: Final = ("auto", "text", "json", "hex")
_HIDDEN: Final = "hidden"
_NUMBERS: Final = ("int", "float", "double", "decimal")


def records(source: Source, asked: RequestParameters, name: str) -> Page:
    """Return a page of a topic's committed records.

    Without `partition` it has what the newest entries have committed, in all partitions; `to` is the newest of them.
    With it, the records from `offset` or `time` on, or the last ones. `entry` chooses an older view; `key`, `header`
    and `text` filter.
    """
    entry = asked.entry()
    view = source.topic_view(name, entry)
    topic = view.topics[name]
    wanted = RecordFilter.asked(asked)
    if source.hide_values:
        # What a filter finds says what a value is.
        wanted = RecordFilter()
    partition = asked.number("partition", most=topic.partition_count - 1)
    count = asked.count("count", _COUNT, most=_COUNT_MAX)
    form = asked.choice("as", _FORMS, "auto")
    start = None
    if partition is None:
        found = newest_committed(source, view, name, _last_entry(source, view, asked), count, wanted)
    else:
        start = _start(source, view, name, partition, count, asked)
        found = from_offset(source.store, view, name, partition, start, count, wanted)
    content: dict[str, Any] = {
        "topic": name,
        "typed": topic.schema is not None,
        "columns": [column for column, _, _ in topic.schema or ()],
        "numbers": [column for column, kind, _ in topic.schema or () if kind.startswith(_NUMBERS)],
        "partition_count": topic.partition_count,
        "entry": view.entry,
        "newest_entry": source.log.refresh(),
        "is_now": entry is None,
        "timestamp_ms": view.timestamp_ms,
        "partition": partition,
        "offset": start,
        "count": count,
        "key": wanted.key,
        "header": wanted.header,
        "text": wanted.text,
        "as": form,
        "follow": asked.flag("follow") and entry is None,
        "hidden": source.hide_values,
        "scanned": found.scanned,
        "records": [_row(source, topic.schema, row, form) for row in found.rows],
        "next": found.next_place,
        "previous": _previous(view, name, partition, start, count),
    }
    return Page("records.html", f"{name}: records", content)


def _last_entry(source: Source, view: ReadView, asked: RequestParameters) -> int:
    time_ms = asked.time_ms("time", source.now_ms())
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


def _row(source: Source, schema: Any, row: dict[str, Any], form: str, most: int = _CELL_BYTES) -> dict[str, Any]:
    """Return a record as a page has it; the names of what the log says of it are the same for all topics."""
    found: dict[str, Any] = {name: row.get(reserved_name(name, schema)) for name in RESERVED}
    found["timestamp_ms"] = found.pop("timestamp")
    found["transactional_id"] = None if found["producer_id"] is None else source.ids.owner(found["producer_id"])
    if schema is None:
        for name in ("key", "value"):
            found[name] = _shown(source, row[name], form, most)
        found["headers"] = [
            {
                "key": _HIDDEN if source.hide_values else one["key"],
                "value": _shown(source, one["value"], form, most),
            }
            for one in row["headers"] or ()
        ]
    else:
        found["columns"] = {column: _typed(source, row[column], most) for column, _, _ in schema}
    return found


def _typed(source: Source, value: Any, most: int) -> Any:
    if source.hide_values:
        return None if value is None else _HIDDEN
    if isinstance(value, bytes):
        return record_bytes(value, most)
    return value[:most] + "…" if isinstance(value, str) and len(value) > most else value


def _shown(source: Source, data: bytes | None, form: str, most: int) -> dict[str, Any]:
    """Return bytes for JSON, and as `shown` for the page."""
    if source.hide_values and data is not None:
        return {"length": len(data), "shown": f"{_HIDDEN}, {counted(len(data), 'byte')}"}
    found = record_bytes(data, most)
    if data is None:
        return found | {"shown": "null"}
    part = data if form == "json" and len(data) <= _VALUE_BYTES else data[:most]
    text = found.get("text")
    shown = text if form in ("auto", "text") and text is not None else bytes_text(part, form)
    return found | {"shown": visible(shown, most), "is_cut": len(data) > most}


def record(source: Source, asked: RequestParameters, name: str, partition: int, offset: int) -> Page:
    """Return one record, with up to 64 KiB of its value."""
    view = source.topic_view(name, asked.number("entry"))
    schema = view.topics[name].schema
    form = asked.choice("as", _FORMS, "json")
    row = _one(source, view, name, partition, offset).rows[0]
    content = {
        "topic": name,
        "partition": partition,
        "offset": offset,
        "typed": schema is not None,
        "types": {column: kind for column, kind, _ in schema or ()},
        "as": form,
        "hidden": source.hide_values,
        "record": _row(source, schema, row, form, _VALUE_BYTES),
        "view_entry": view.entry,
        "log_start_offset": view.partitions[name, partition].log_start_offset,
        "log_end_offset": view.partitions[name, partition].log_end_offset,
    }
    return Page("record.html", f"{name}-{partition} offset {offset}", content)


def value_of(source: Source, name: str, partition: int, offset: int) -> bytes:
    """Return the whole value of a record of Kafka's kind."""
    found = _one(source, source.topic_view(name, None), name, partition, offset).rows[0].get("value")
    if not isinstance(found, bytes):
        raise NotFound("this record has no value of bytes: it is null, or the topic is typed")
    return found


def _one(source: Source, view: ReadView, name: str, partition: int, offset: int) -> Found:
    if (name, partition) not in view.partitions:
        raise NotFound(f"topic {name!r} has partitions 0 to {view.topics[name].partition_count - 1}, not {partition}")
    found = from_offset(source.store, view, name, partition, offset, 1, RecordFilter())
    if not found.rows or found.rows[0][reserved_name("offset", view.topics[name].schema)] != offset:
        raise NotFound(
            f"{name}-{partition} has no committed record at offset {offset}: it may be aborted, deleted, compacted, "
            f"or the end of a transaction"
        )
    return found
