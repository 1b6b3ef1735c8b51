"""Whether a Parquet file of another program may be a segment of a topic as it is (PROTOCOL.md, "Segments")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from sparktxn.arguments import TIMESTAMP_MS_MAX
from sparktxn.config.topic import is_compacted, topic_setting
from sparktxn.errors import ConfigurationError, DamagedObject, did_you_mean
from sparktxn.format.decodeguard import ROWS_MAX, TooLarge, check_parquet
from sparktxn.format.segment import decode_row_groups, decode_segment, parquet_footer, stored_schema
from sparktxn.objectstore.uri import OBJECT_SIZE_MAX
from sparktxn.stage.columns import null_path
from sparktxn.stage.recordsizes import row_above
from sparktxn.structs import TopicState

__all__ = ["Fit", "fit"]

_CODECS: Final = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZ4", "ZSTD")
_ENCODINGS: Final = (
    "PLAIN",
    "PLAIN_DICTIONARY",
    "RLE_DICTIONARY",
    "RLE",
    "BIT_PACKED",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
)
_ROW_GROUPS_MAX: Final = 10_000
_INSTEAD: Final = "import it without in_place (--in-place), which reads and writes its records"
_LARGE: Final = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


class Fit(Struct, frozen=True):
    """What the log is to say of a file that fits. `timestamps_ms` is None if the file has no column of them."""

    record_count: int
    timestamps_ms: tuple[int, int] | None


def fit(file: str, data: bytes, topic: TopicState, folders: tuple[str, ...] = ()) -> Fit | None:
    """Check a whole file, each record of it, and return what the log is to say of it; None if it has no records.

    Args:
        file: the file's name, for the error.
        data: its bytes.
        topic: the topic whose segment it is to be.
        folders: columns that the names of the file's folders hold, and not the file itself.

    Raises:
        ConfigurationError: no segment of the topic may be like this. The error names the column and both types.
    """
    try:
        metadata = parquet_footer(data, file)
    except DamagedObject as damaged:
        raise _refused(file, f"{damaged.reason}") from None
    if metadata is None:
        raise _refused(file, f"it starts with {data[:4]!r} and is no Parquet file")
    if len(data) > OBJECT_SIZE_MAX:
        raise _refused(file, f"it has {len(data)} bytes, and an object of a store at most {OBJECT_SIZE_MAX}")
    is_undated = _check_columns(file, metadata, topic, folders)
    _check_features(file, metadata)
    if metadata.num_rows == 0:
        return None
    try:
        checked = _Rows(file, topic)
        for rows in _decoded(data, file, metadata, topic, undated=is_undated):
            checked.check(rows)
    except DamagedObject as damaged:
        raise _refused(file, damaged.reason) from None
    return Fit(metadata.num_rows, None if is_undated else checked.timestamps_ms)


def _refused(file: str, reason: str, mend: str = _INSTEAD) -> ConfigurationError:
    return ConfigurationError(f"file {file!r} cannot be a segment as it is: {reason}; {mend}")


def _check_columns(file: str, metadata: pq.FileMetaData, topic: TopicState, folders: tuple[str, ...]) -> bool:
    """Check the file's columns against the topic's; return whether the timestamp is missing."""
    try:
        found = metadata.schema.to_arrow_schema()
    except pa.ArrowException as error:
        raise _refused(file, f"its schema is none of Arrow: {str(error).splitlines()[0]}") from None
    expected = stored_schema(topic.schema)
    timestamp = expected.names[-1]
    for name in found.names:
        if found.names.count(name) > 1:
            raise _refused(file, f"it has column {name!r} {found.names.count(name)} times")
        if name not in expected.names:
            raise _refused(
                file,
                f"it has column {name!r}, and topic {topic.name!r} has {', '.join(expected.names)}"
                f"{did_you_mean(name, expected.names)}",
                f"add the column to the topic, or {_INSTEAD} (--ignore-other-columns leaves it out)",
            )
    for field in expected:
        if field.name in found.names:
            _check_type(file, topic.name, found.field(field.name), field)
        elif field.name in folders:
            raise _refused(
                file, f"column {field.name!r} is in the name of its folder and not in the file, where readers look"
            )
        elif not field.nullable and field.name != timestamp:
            raise _refused(
                file, f"it has no column {field.name!r}, which topic {topic.name!r} has as {field.type} not null"
            )
    return timestamp not in found.names


def _check_type(file: str, topic: str, found: pa.Field, expected: pa.Field) -> None:
    if not _is_same(found.type, expected.type):
        raise _refused(
            file,
            f"column {expected.name!r} has type {found.type}, and topic {topic!r} has {expected.type}",
            f"write the file with that type, or {_INSTEAD}",
        )


def _is_same(found: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether Parquet stores both types alike: names of lists' items, and widths of offsets, are Arrow's own."""
    found = _LARGE.get(found, found)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(expected):
        # Parquet stores whether a time is of UTC, and no zone.
        return found.unit == expected.unit and (found.tz is None) is (expected.tz is None)
    if pa.types.is_list(expected):
        is_list = pa.types.is_list(found) or pa.types.is_large_list(found)
        return is_list and _is_same(found.value_type, expected.value_type)
    if pa.types.is_map(expected):
        is_map = pa.types.is_map(found) and _is_same(found.key_type, expected.key_type)
        return is_map and _is_same(found.item_type, expected.item_type)
    if pa.types.is_struct(expected):
        return (
            pa.types.is_struct(found)
            and [field.name for field in found] == [field.name for field in expected]
            and all(_is_same(one.type, other.type) for one, other in zip(found, expected, strict=True))
        )
    return bool(found.equals(expected))


def _check_features(file: str, metadata: pq.FileMetaData) -> None:
    """Check what of Parquet the file uses, against what every reader of segments knows."""
    if metadata.num_rows > ROWS_MAX or metadata.num_row_groups > _ROW_GROUPS_MAX:
        raise _refused(
            file,
            f"it has {metadata.num_rows} rows in {metadata.num_row_groups} row groups, and a segment at most "
            f"{ROWS_MAX} in {_ROW_GROUPS_MAX}",
        )
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group)
        for index in range(rows.num_columns):
            column = rows.column(index)
            if column.compression not in _CODECS:
                raise _refused(
                    file,
                    f"column {column.path_in_schema!r} is compressed with {column.compression}, and a segment with "
                    f"one of {', '.join(_CODECS)}",
                )
            if column.physical_type == "INT96":
                raise _refused(
                    file,
                    f"column {column.path_in_schema!r} has Parquet's old type INT96, and a segment INT64",
                    "write it with spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS, or " + _INSTEAD,
                )
            for encoding in column.encodings:
                if encoding not in _ENCODINGS:
                    raise _refused(
                        file,
                        f"column {column.path_in_schema!r} is encoded as {encoding}, and a segment as one of "
                        f"{', '.join(_ENCODINGS)}",
                    )


def _decoded(
    data: bytes, file: str, metadata: pq.FileMetaData, topic: TopicState, *, undated: bool
) -> Iterator[pa.Table]:
    """Yield all rows as readers decode them, a row group at a time where the file cannot grow without bound."""
    schema = stored_schema(topic.schema)
    timestamp_ms = 0 if undated else None
    count = metadata.num_rows
    try:
        may_grow = bool(check_parquet(data, schema.names))
    except TooLarge as error:
        raise _refused(file, str(error)) from None
    if may_grow:
        yield decode_segment(data, file, schema=schema, record_count=count, timestamp_ms=timestamp_ms)
        return
    groups = decode_row_groups(
        data,
        file,
        schema=schema,
        columns=schema.names,
        record_count=count,
        rows=range(count),
        timestamp_ms=timestamp_ms,
    )
    yield from (rows for _, rows in groups)


class _Rows:
    """Checks what staging checks of records; keeps their least and greatest timestamps."""

    def __init__(self, file: str, topic: TopicState) -> None:
        self._file = file
        self._topic = topic
        self._size_max = min(OBJECT_SIZE_MAX, topic_setting(topic.settings, "max.message.bytes"))
        self._needs_key = topic.schema is None and is_compacted(topic.settings)
        self.timestamps_ms = (TIMESTAMP_MS_MAX, 0)

    def check(self, rows: pa.Table) -> None:
        """Check some rows.

        Raises:
            ConfigurationError: one of them may not be a record of the topic.
        """
        for field, column in zip(rows.schema, rows.columns, strict=True):
            for chunk in column.chunks:
                if path := null_path(chunk, field, field.name):
                    self._refuse(f"column {path!r} is null in at least one row, and may not be")
        if self._needs_key and rows.column("key").null_count:
            self._refuse("a record has no key, and the topic's cleanup.policy compacts it by key")
        if (size := row_above(rows, self._size_max)) is not None:
            self._refuse(f"a record has {size} bytes, and its setting max.message.bytes allows {self._size_max}")
        found = pc.min_max(rows.column(rows.num_columns - 1))
        least, greatest = found["min"].value, found["max"].value
        if not 0 <= least <= greatest <= TIMESTAMP_MS_MAX:
            self._refuse(f"its timestamps go from {least} to {greatest} ms: expected 0 (1970) to {TIMESTAMP_MS_MAX}")
        self.timestamps_ms = min(self.timestamps_ms[0], least), max(self.timestamps_ms[1], greatest)

    def _refuse(self, problem: str) -> NoReturn:
        raise _refused(self._file, f"of topic {self._topic.name!r} {problem}", "write the file without such records")
