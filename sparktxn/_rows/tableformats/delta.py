"""A topic as a Delta Lake table: the commit of each version, its schema and statistics (PROTOCOL.md, "Tables").

All is a pure function of the log, so that two processes which write a commit write the same bytes. Readers need to know
as little as Delta allows. Other engines must not write: a feature of ours, which they do not know, makes them refuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from math import isfinite
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec
import pyarrow as pa
from msgspec import UNSET, Struct
from msgspec.structs import replace

from sparktxn._engine.format.names import PARTITION_COLUMN
from sparktxn._engine.format.schema import offset_column, stored_schema, timestamp_column
from sparktxn._engine.format.statistics import leaves
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._rows.tableformats.columnstatistics import DELTA_LOCAL_TIME, names_of
from sparktxn._rows.tableformats.deltacheckpoint import (
    Action,
    Add,
    CommitInfo,
    Format,
    MetaData,
    Protocol,
    Remove,
    checkpoint,
    decode,
    encode,
    hinted_version,
    last_checkpoint,
)
from sparktxn._rows.tableformats.version import TableFile, TableVersion, table_schema

__all__ = [
    "BOUNDED",
    "LAST_CHECKPOINT",
    "WRITER_FEATURE",
    "bounded_columns",
    "checkpoint",
    "checkpoint_name",
    "commit",
    "commit_name",
    "earlier_commit",
    "earlier_statistics_text",
    "has_local_times",
    "hinted_version",
    "last_checkpoint",
    "schema_string",
    "statistics_text",
]


# The columns of a topic's table as Delta Lake's metadata has them: Spark's JSON form of a schema.

_encoder: Final = msgspec.json.Encoder()


def schema_string(schema: pa.Schema) -> str:
    """Return the columns as the text of `metaData.schemaString`.

    >>> schema_string(pa.schema([pa.field("a", pa.int8(), nullable=False)]))
    '{"type":"struct","fields":[{"name":"a","type":"byte","nullable":false,"metadata":{}}]}'
    """
    return _encoder.encode(_struct(list(schema))).decode()


def has_local_times(schema: pa.Schema) -> bool:
    """Return whether a column or a field of one is a timestamp without a time zone, which not all readers know."""
    return any(_holds_local_time(field.type) for field in schema)


def _holds_local_time(data_type: pa.DataType) -> bool:
    if pa.types.is_map(data_type):
        return _holds_local_time(data_type.key_type) or _holds_local_time(data_type.item_type)
    if pa.types.is_nested(data_type):
        return any(_holds_local_time(data_type.field(index).type) for index in range(data_type.num_fields))
    names = names_of(data_type)
    return names is not None and names.delta == DELTA_LOCAL_TIME


def _struct(fields: list[pa.Field]) -> dict[str, Any]:
    return {"type": "struct", "fields": [_field(field) for field in fields]}


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _type(field.type), "nullable": field.nullable, "metadata": {}}


def _type(data_type: pa.DataType) -> str | dict[str, Any]:
    names = names_of(data_type)
    if names is not None:
        return names.delta
    if pa.types.is_list(data_type):
        item = data_type.value_field
        return {"type": "array", "elementType": _type(item.type), "containsNull": item.nullable}
    if pa.types.is_map(data_type):
        types = {"keyType": _type(data_type.key_type), "valueType": _type(data_type.item_type)}
        return {"type": "map", **types, "valueContainsNull": data_type.item_field.nullable}
    return _struct([data_type.field(index) for index in range(data_type.num_fields)])


# Statistics of a Delta table's files, and the columns that have bounds in all of them ("Per-file Statistics").
#
# delta-rs loses the rows of a file that has no bounds of a column which the table's property names. Where the
# property is missing it takes all columns for named. So the property names exactly those of which each file has
# bounds, or nulls.

BOUNDED: Final = "delta.dataSkippingStatsColumns"
"""The property of a table that names the columns with bounds."""

_COLUMNS_MAX: Final = 200
"""So many columns have bounds, the first ones: each commit has them for each of its files."""

_TEXT_MAX: Final = 32
"""So many characters of a text are kept, as Spark does it."""

_LAST_CHARACTER: Final = "\U0010ffff"

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EPOCH: Final = datetime(1970, 1, 1)
_FIRST_DAY: Final = date(1970, 1, 1)
_TICKS_PER_MS: Final = {"ms": 1, "us": 1000}


class _Statistics(Struct, frozen=True, rename="camel"):
    """What a reader may skip a file by.

    Bounds may be wide unless they are tight: no value need be at them. Delta takes bounds for tight where nothing is
    said. A reader that ignores `tight_bounds` skips files by them, which is sound for wide ones.
    """

    num_records: int
    min_values: dict[str, Any]
    max_values: dict[str, Any]
    null_count: dict[str, int]
    tight_bounds: bool


class _Bounds(NamedTuple):
    """The bounds of a column as JSON has them; not exact if no value need be at one of them."""

    low: Any
    high: Any
    is_exact: bool = True


def bounded_columns(files: Iterable[TableFile], columns: Columns | None) -> list[str]:
    """Return the columns of a topic's table of which each file has bounds, or nothing but nulls.

    They are written as the property has them, in the order of the table.
    """
    found = dict(_columns_with_bounds(columns))
    for file in files:
        described = _Described(file, columns)
        found = {name: data_type for name, data_type in found.items() if described.is_bounded(name, data_type)}
    return [_quoted(name) for name in found]


def statistics_text(file: TableFile, columns: Columns | None) -> str:
    """Return a file's statistics as an `add` has them."""
    described = _Described(file, columns)
    statistics = _Statistics(file.record_count, {}, {}, {}, tight_bounds=True)
    is_exact = True
    for name, data_type in _columns_with_bounds(columns):
        if (null_count := described.null_count(name)) is not None:
            statistics.null_count[name] = null_count
        if (bounds := described.bounds(name, data_type)) is not None:
            statistics.min_values[name] = bounds.low
            statistics.max_values[name] = bounds.high
            is_exact = is_exact and bounds.is_exact
    return _encoder.encode(msgspec.structs.replace(statistics, tight_bounds=is_exact)).decode()


def earlier_statistics_text(file: TableFile, columns: Columns | None) -> str:
    """Return a file's statistics as earlier versions wrote them: those that the log has, of times and offsets."""
    offset, timestamp = _own_columns(columns)
    times = _time_bounds(file.timestamp_min_ms, file.timestamp_max_ms)
    found = {offset: (file.offset_min, file.offset_max), timestamp: times}
    # One bound of times may be outside of what Delta's text has.
    lows, highs = ({name: pair[side] for name, pair in found.items() if pair[side] is not None} for side in (0, 1))
    statistics = _Statistics(file.record_count, lows, highs, {offset: 0, timestamp: 0}, tight_bounds=False)
    return _encoder.encode(statistics).decode()


@lru_cache
def _own_columns(columns: Columns | None) -> tuple[str, str]:
    stored = stored_schema(columns)
    return offset_column(stored), timestamp_column(stored)


@lru_cache
def _columns_with_bounds(columns: Columns | None) -> tuple[tuple[str, pa.DataType], ...]:
    """Return the columns whose values Delta has bounds of: the table's own, then the first ones.

    Fields of structs are left out: Polars 2.1 reads no table in which only some fields of a struct have bounds.
    """
    *declared, timestamp, offset, _ = table_schema(columns)
    found = (
        (leaf.names[0], leaf.type)
        for leaf in leaves(pa.schema([offset, timestamp, *declared]))
        if leaf.names is not None and len(leaf.names) == 1 and _bounds_of(leaf.type) is not None
    )
    return tuple(islice(found, _COLUMNS_MAX))


class _Described:
    """A file as its statistics describe it."""

    def __init__(self, file: TableFile, columns: Columns | None) -> None:
        self._file = file
        self._known = {each.names: each for each in file.statistics or ()}
        self._offset, _ = _own_columns(columns)

    def null_count(self, name: str) -> int | None:
        """Return how many rows have null; a column that the file does not have is null in all of them."""
        if name == self._offset:
            return 0
        if self._file.statistics is None:
            return None
        column = self._known.get((name,))
        return self._file.record_count if column is None else column.null_count

    def bounds(self, name: str, data_type: pa.DataType) -> _Bounds | None:
        """Return the bounds of a column; None if there are none, or Delta cannot write them."""
        if name == self._offset:
            return _Bounds(self._file.offset_min, self._file.offset_max)
        column = self._known.get((name,))
        if column is None or column.low is None or column.high is None or column.type != data_type:
            return None
        make = _bounds_of(data_type)
        return None if make is None else make(column.low, column.high, data_type)

    def is_bounded(self, name: str, data_type: pa.DataType) -> bool:
        """Return whether a reader may take it that the file has bounds of a column, or nothing but nulls."""
        return self.null_count(name) == self._file.record_count or (
            self.null_count(name) is not None and self.bounds(name, data_type) is not None
        )


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _bounds_of(data_type: pa.DataType) -> Callable[[Any, Any, pa.DataType], _Bounds | None] | None:
    """Return what makes bounds of a type; None for types that Delta has none of."""
    if pa.types.is_integer(data_type):
        return _integers
    if pa.types.is_floating(data_type):
        return _fractions
    if pa.types.is_decimal(data_type):
        return _decimals
    if pa.types.is_date(data_type):
        return _dates
    if pa.types.is_timestamp(data_type):
        return _timestamps
    return _texts if pa.types.is_string(data_type) else None


def _integers(low: int, high: int, _: pa.DataType) -> _Bounds:
    return _Bounds(low, high)


def _fractions(low: float, high: float, _: pa.DataType) -> _Bounds | None:
    """Return bounds of fractions: JSON has no infinite ones. Zeros of Parquet's bounds have the sign that is wider."""
    return _Bounds(low, high, low != 0 and high != 0) if isfinite(low) and isfinite(high) else None


def _decimals(low: int, high: int, data_type: pa.DataType) -> _Bounds:
    return _Bounds(_decimal(low, data_type.scale), _decimal(high, data_type.scale))


def _decimal(digits: int, scale: int) -> msgspec.Raw:
    sign, _, _ = Decimal(digits).as_tuple()
    text = str(abs(digits)).rjust(scale + 1, "0")
    whole = text[: len(text) - scale] + (f".{text[-scale:]}" if scale else "")
    return msgspec.Raw((("-" if sign else "") + whole).encode())


def _dates(low: int, high: int, _: pa.DataType) -> _Bounds | None:
    first, last = _date(low), _date(high)
    return None if first is None or last is None else _Bounds(first, last)


def _date(days: int) -> str | None:
    """Return a date as text; None outside of the years 1 to 9999, which Delta's text does not have."""
    try:
        return (_FIRST_DAY + timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def _timestamps(low: int, high: int, data_type: pa.DataType) -> _Bounds | None:
    ticks = _TICKS_PER_MS[data_type.unit]
    first, last = _time_bounds(low // ticks, -(-high // ticks), "Z" if data_type.tz else "")
    if first is None or last is None:
        return None
    return _Bounds(first, last, low % ticks == 0 and high % ticks == 0)


def _time_bounds(low_ms: int, high_ms: int, zone: str = "Z") -> tuple[str | None, str | None]:
    return _time(low_ms, zone), _time(high_ms, zone)


def _time(milliseconds: int, zone: str) -> str | None:
    """Return a time as text; None outside of the years 1 to 9999, which Delta's text does not have."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds") + zone


def _texts(low: bytes, high: bytes, _: pa.DataType) -> _Bounds | None:
    try:
        least, greatest = low.decode(), high.decode()
    except UnicodeDecodeError:  # of foreign bytes
        return None
    cut = _cut_above(greatest)
    return _Bounds(least[:_TEXT_MAX], cut, len(least) <= _TEXT_MAX and cut == greatest)


def _cut_above(text: str) -> str:
    """Return a text that is cut, or the whole one, and not less than it.

    The last character of Unicode follows the cut. Only a text with that character at this place could be greater, so
    all that stand there are kept, too.
    """
    if len(text) <= _TEXT_MAX:
        return text
    end = _TEXT_MAX
    while text[end : end + 1] == _LAST_CHARACTER:
        end += 1
    return text[:end] + _LAST_CHARACTER


_LOG: Final = "_delta_log/"

LAST_CHECKPOINT: Final = f"{_LOG}_last_checkpoint"
"""The hint that says which checkpoint is the newest, below the topic's folder."""

WRITER_FEATURE: Final = "txnlogTopic"
"""What an engine would have to know to write the table: that a topic's log alone decides what it holds."""

_NOT_NULL: Final = "invariants"
"""Spark reads no table with columns that may not be null, unless its protocol names this feature of writers."""

_LOCAL_TIMES: Final = "timestampNtz"

# Versions of Delta's protocol. The last ones of both have lists of features in their place.
_READER_VERSION: Final = 1
_READER_VERSION_OF_FEATURES: Final = 3
_WRITER_VERSION_OF_FEATURES: Final = 7

_KEPT: Final = "interval 36500 days"
_CONFIGURATION: Final = {
    # Spark's VACUUM has not always asked for features of writers. By default it deletes nothing younger than this.
    "delta.deletedFileRetentionDuration": _KEPT,
    # The owner deletes old commits, and no engine does that writes a checkpoint, for which it needs no feature.
    "delta.enableExpiredLogCleanup": "false",
    "delta.logRetentionDuration": _KEPT,
}
"""Settings of the table. The first and the last also let readers travel to each version whose files exist."""


def commit_name(version: int) -> str:
    """Return the name of a version's commit, below the topic's folder."""
    return f"{_LOG}{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """Return the name of a version's checkpoint, below the topic's folder."""
    return f"{_LOG}{version:020d}.checkpoint.parquet"


def commit(version: TableVersion, whole: Callable[[], TableVersion], previous: bytes | None) -> bytes:
    """Return the commit of a version: what it changes in the table, as lines of JSON.

    The property of columns with bounds becomes shorter where an added file lacks bounds. It begins anew with the
    schema, and after a version that has none, as an earlier version of this package wrote it. Then all files are added
    again, since delta-rs finds no rows in those without bounds of a column that the property names.

    Args:
        version: the version, whose added files have their statistics.
        whole: returns it as one that has none before it.
        previous: the commit of the version before; None if there is none.

    Raises:
        ValueError: the bytes of `previous` are not a commit of a topic's table.
    """
    before = None if previous is None else _bounded_before(previous)
    added = version.added
    if before is None or version.is_new_schema:
        files = whole().added if version.version else added
        bounded = bounded_columns(files, version.columns)
        if previous is not None:
            paths = {file.path for file in added}
            again = (replace(file, changes_data=False) for file in files if file.path not in paths)
            added = tuple(sorted((*added, *again), key=lambda file: file.path))
    else:
        own = set(bounded_columns(added, version.columns))
        bounded = [name for name in before if name in own]
    return encode(_actions(version, added, bounded, is_new=before is None or bounded != list(before)))


def earlier_commit(version: TableVersion) -> bytes:
    """Return the commit of a version as earlier versions of this package wrote it."""
    return encode(_actions(version, version.added, None))


def _bounded_before(previous: bytes) -> tuple[str, ...] | None:
    for action in decode(previous):
        if action.commit_info is not UNSET and action.commit_info.txnlog_bounded is not UNSET:
            return action.commit_info.txnlog_bounded
    return None


def _actions(
    version: TableVersion, added: Iterable[TableFile], bounded: Sequence[str] | None, *, is_new: bool = False
) -> Iterator[Action]:
    info = _commit_info(version)
    yield Action(commit_info=info if bounded is None else replace(info, txnlog_bounded=tuple(bounded)))
    schema = table_schema(version.columns)
    if version.is_new_schema:
        yield Action(protocol=_protocol(schema))
    if version.is_new_schema or is_new:
        yield Action(meta_data=_metadata(version, schema, bounded))
    for file in version.removed:
        yield Action(remove=_remove(file, version))
    text = statistics_text if bounded is not None else earlier_statistics_text
    for file in added:
        yield Action(add=_add(file, version, text(file, version.columns)))


def _commit_info(version: TableVersion) -> CommitInfo:
    return CommitInfo(
        timestamp=version.timestamp_ms,
        operation="PUBLISH",
        # Spark's DESCRIBE HISTORY shows these, and no fields that it does not know.
        operation_parameters={"entry": str(version.entry), "publishedEntry": str(version.published_entry)},
        engine_info="txnlog",
        txnlog_entry=version.entry,
        txnlog_published_entry=version.published_entry,
    )


def _protocol(schema: pa.Schema) -> Protocol:
    if has_local_times(schema):
        readers = (_LOCAL_TIMES,)
        writers = (*readers, _NOT_NULL, WRITER_FEATURE)
        return Protocol(_READER_VERSION_OF_FEATURES, _WRITER_VERSION_OF_FEATURES, readers, writers)
    return Protocol(_READER_VERSION, _WRITER_VERSION_OF_FEATURES, writer_features=(_NOT_NULL, WRITER_FEATURE))


def _metadata(version: TableVersion, schema: pa.Schema, bounded: Sequence[str] | None) -> MetaData:
    return MetaData(
        id=version.table_id,
        name=version.topic,
        format=Format("parquet", {}),
        schema_string=schema_string(schema),
        partition_columns=(PARTITION_COLUMN,),
        configuration=_CONFIGURATION if bounded is None else _CONFIGURATION | {BOUNDED: ",".join(bounded)},
    )


def _remove(file: TableFile, version: TableVersion) -> Remove:
    return Remove(
        path=_uri(file.path),
        deletion_timestamp=version.timestamp_ms,
        data_change=file.changes_data,
        extended_file_metadata=True,
        partition_values={PARTITION_COLUMN: str(file.partition)},
        size=file.size_bytes,
    )


def _add(file: TableFile, version: TableVersion, statistics: str) -> Add:
    return Add(
        path=_uri(file.path),
        partition_values={PARTITION_COLUMN: str(file.partition)},
        size=file.size_bytes,
        modification_time=version.timestamp_ms,
        data_change=file.changes_data,
        stats=statistics,
    )


def _uri(path: str) -> str:
    """Return a path as Delta has it, percent-encoded. Spark and delta-rs leave ``=`` as it is."""
    return quote(path, safe="/=")
