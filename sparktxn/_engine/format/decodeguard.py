"""What cannot be decoded here: formats and features of newer versions, and files that would take too much memory.

A few bytes of a file can decode to as many as their writer likes: compressed runs, dictionaries, lists
without end. No segment that a writer may write comes near DECODED_BYTES_MAX, so more than that is damage.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from functools import cache
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import inspect

from sparktxn.errors import DamagedObject, FormatVersionError, StoreError

DECODED_BYTES_MAX: Final = 1 << 31
"""A segment is cut at 256 MiB of records, and one record has at most 1 GB."""

ROWS_MAX: Final = DECODED_BYTES_MAX // 8
"""Every row has a timestamp of 8 bytes."""

_BYTES_PER_VALUE: Final = 16
"""What a decoded value takes in addition to its bytes: levels, an offset, a validity."""

# Fields of Parquet's footer (FileMetaData, RowGroup, ColumnChunk, ColumnMetaData) and of its page headers.
_ROWS, _ROW_GROUPS, _CHUNKS, _CHUNK = 3, 4, 1, 3
_TYPE, _PATH, _VALUES, _DATA_PAGE, _DICTIONARY_OFFSET = 1, 3, 5, 9, 11
_KIND, _SIZE, _STORED, _PAGE, _PAGE_V2 = 1, 2, 3, 5, 8
_BYTE_ARRAY: Final = 6
_DICTIONARY_PAGE: Final = 2
_DICTIONARY_ENCODINGS: Final = frozenset({2, 8})
_DEPTH_MAX: Final = 16
_PARTS_MAX: Final = 10_000
_VIEWS: Final = (pa.string_view(), pa.binary_view())

# Types of an Arrow IPC message's header.
_SCHEMA: Final = 1
_RECORD_BATCH: Final = 3
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
_FOOTER_BYTES_MAX: Final = 8 << 20
_HEADER_BYTES_MAX: Final = 16 << 10


class TooLarge(Exception):
    """The file decodes to more than DECODED_BYTES_MAX, or does not say how much."""


def may_expand(data_type: pa.DataType) -> bool:
    """Return True for types whose few values decode to many bytes: no column of a segment has them."""
    if pa.types.is_dictionary(data_type) or pa.types.is_run_end_encoded(data_type) or pa.types.is_null(data_type):
        return True
    # Rows that are views may all be of the same bytes.
    if data_type in _VIEWS or pa.types.is_list_view(data_type) or pa.types.is_large_list_view(data_type):
        return True
    fields = [data_type.field(index) for index in range(data_type.num_fields)]
    return any(may_expand(field.type) for field in fields)


# Parquet. The footer is read here byte by byte: pyarrow's accessors end the process on one that contradicts itself.


def check_parquet(data: bytes, columns: Collection[str]) -> list[str]:
    """Add up what the pages of `columns` (names of top-level columns) say they hold.

    Returns:
        The columns whose dictionaries may hold too much, if their largest value is repeated in every row: read these as
        dictionaries, and look.

    Raises:
        TooLarge: the pages hold too much, or cannot be followed.
    """
    try:
        footer_bytes = int.from_bytes(data[-8:-4], "little")
        if footer_bytes > min(_FOOTER_BYTES_MAX, len(data) - 8):
            raise TooLarge(f"its footer has {footer_bytes} bytes: expected {_FOOTER_BYTES_MAX} at most")
        footer, _ = _struct(data[-8 - footer_bytes : -8], 0)
        rows, groups = footer[_ROWS], footer[_ROW_GROUPS]
        if rows > ROWS_MAX or len(groups) > _PARTS_MAX:
            raise TooLarge(f"it has {rows} rows in {len(groups)} groups: expected {ROWS_MAX} in {_PARTS_MAX} at most")
        wanted = {column.encode() for column in columns}
        chunks = [chunk[_CHUNK] for group in groups for chunk in group[_CHUNKS]]
        return _suspects(data, [chunk for chunk in chunks if chunk[_PATH][0] in wanted])
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError):
        raise TooLarge("its footer and pages cannot be followed") from None


def _suspects(data: bytes, chunks: list[dict[int, Any]]) -> list[str]:
    total = 0
    expanding: dict[str, int] = {}
    for chunk in chunks:
        pages_bytes, dictionary_bytes = _pages(data, chunk)
        total += pages_bytes + chunk[_VALUES] * _BYTES_PER_VALUE
        if chunk[_TYPE] == _BYTE_ARRAY:
            path = chunk[_PATH]
            if len(path) > 1:
                total += dictionary_bytes
            else:
                column = path[0].decode()
                expanding[column] = expanding.get(column, 0) + dictionary_bytes
        if total > DECODED_BYTES_MAX:
            raise TooLarge(f"it decodes to over {DECODED_BYTES_MAX} bytes")
    if total + sum(expanding.values()) <= DECODED_BYTES_MAX:
        return []
    return [column for column, size in expanding.items() if size]


def _pages(data: bytes, chunk: dict[int, Any]) -> tuple[int, int]:
    """Return (decompressed bytes of all pages, bytes if each dictionary-encoded value were the whole dictionary)."""
    position = min(chunk[_DATA_PAGE], chunk.get(_DICTIONARY_OFFSET) or chunk[_DATA_PAGE])
    left, total, dictionary, repeated = chunk[_VALUES], 0, 0, 0
    while left > 0:
        if position < 0:
            raise TooLarge("its pages begin before it does")
        header, header_bytes = _struct(data[position : position + _HEADER_BYTES_MAX], 0)
        size, stored = header[_SIZE], header[_STORED]
        position += header_bytes + stored
        if min(size, stored) < 0 or position > len(data):
            raise TooLarge(f"a page says that it has {stored} bytes, {size} when decompressed")
        total += size
        if header[_KIND] == _DICTIONARY_PAGE:
            dictionary = max(dictionary, size)
            continue
        page, encoding = (header[_PAGE], 2) if _PAGE in header else (header[_PAGE_V2], 4)
        values = page[1]
        if not 0 <= values <= left or (values == 0 and stored == 0):
            raise TooLarge(f"a page says that it has {values} of {left} values")
        left -= values
        if page[encoding] in _DICTIONARY_ENCODINGS:
            repeated += values
    return total, repeated * dictionary


def _struct(data: bytes, position: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return (a struct in Thrift's compact form as {field: value}, where it ends). Every segment read passes here.

    Raises:
        TooLarge: it is nested too deep.
        IndexError: the bytes end before it does.
    """
    if depth > _DEPTH_MAX:
        raise TooLarge("its footer is nested without end")
    found: dict[int, Any] = {}
    field = 0
    while head := data[position]:
        position += 1
        if head >> 4:
            field += head >> 4
        else:
            field, position = _zigzag(data, position)
        kind = head & 15
        byte = data[position]
        if 4 <= kind <= 6 and byte < 128:
            found[field] = byte >> 1 ^ -(byte & 1)
            position += 1
        elif kind == 8 and byte < 128:
            found[field] = data[position + 1 : position + 1 + byte]
            position += 1 + byte
        else:
            found[field], position = _value(data, position, kind, depth)
    return found, position + 1


def _value(data: bytes, position: int, kind: int, depth: int) -> tuple[Any, int]:
    if 4 <= kind <= 6:
        return _zigzag(data, position)
    if kind == 8:
        length, position = _varint(data, position)
        return data[position : position + length], position + length
    if kind == 12:
        return _struct(data, position, depth + 1)
    if kind in (9, 10):
        return _list(data, position, depth + 1)
    if kind in (1, 2):
        return kind == 1, position
    if kind in (3, 7):
        return None, position + (1 if kind == 3 else 8)
    raise TooLarge(f"its footer holds a value of type {kind}")


def _list(data: bytes, position: int, depth: int) -> tuple[list[Any], int]:
    head = data[position]
    count, kind, position = head >> 4, head & 15, position + 1
    if count == 15:
        count, position = _varint(data, position)
    if depth > _DEPTH_MAX or count > len(data) - position:
        raise TooLarge(f"its footer holds a list of {count} values, {depth} deep")
    if kind in (1, 2):
        kind = 3  # in a list a boolean is a byte
    values = []
    for _ in range(count):
        value, position = _value(data, position, kind, depth)
        values.append(value)
    return values, position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while (byte := data[position]) >= 128:
        number |= (byte & 127) << shift
        shift += 7
        position += 1
        if shift > 63:
            raise TooLarge("its footer holds a number without end")
    return number | byte << shift, position + 1


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    number, position = _varint(data, position)
    return number >> 1 ^ -(number & 1), position


# Arrow IPC


def check_arrow(data: bytes) -> int:
    """Add up what the buffers of all record batches say they hold; return how many rows they have.

    Raises:
        TooLarge: they hold too much, or cannot be followed.
    """
    try:
        footer = len(data) - 10 - _i32(data, len(data) - 10)
        root = footer + _u32(data, footer)
        if _count(data, _field(data, root, 2)):
            raise TooLarge("it has dictionaries")
        batches = _field(data, root, 3)
        count = _count(data, batches)
        if count > _PARTS_MAX:
            raise TooLarge(f"it has {count} record batches: expected {_PARTS_MAX} at most")
        rows, left = 0, DECODED_BYTES_MAX
        for index in range(count):
            batch_rows, batch_bytes = _batch(data, _items(data, batches) + 24 * index, left)
            rows, left = rows + batch_rows, left - batch_bytes
    except (struct.error, IndexError):
        raise TooLarge("its footer cannot be followed") from None
    return rows


def _batch(data: bytes, block: int, bytes_max: int) -> tuple[int, int]:
    """Return (rows, bytes) of the record batch that a block of the footer names."""
    start = _i64(data, block)
    metadata_bytes = _i32(data, block + 8)
    prefix = 8 if _u32(data, start) == 0xFFFFFFFF else 4
    message = start + prefix + _u32(data, start + prefix)
    header = _field(data, message, 2)
    batch = header + _u32(data, header)
    buffers, body = _field(data, batch, 2), start + metadata_bytes
    compressed = _field(data, batch, 3) > 0
    total = 0
    for index in range(_count(data, buffers)):
        offset, length = (_i64(data, _items(data, buffers) + 16 * index + 8 * half) for half in (0, 1))
        if min(offset, length) < 0 or body + offset + length > len(data):
            raise TooLarge("a buffer lies outside the file")
        stated = _i64(data, body + offset) if compressed and length >= 8 else -1
        total += max(stated, length)
        if total > bytes_max:
            raise TooLarge(f"it decodes to over {DECODED_BYTES_MAX} bytes")
    length_at = _field(data, batch, 0)
    return _i64(data, length_at) if length_at else 0, total


def check_stream(data: bytes | pa.Buffer) -> None:
    """Check that an Arrow IPC stream is a schema and one record batch, whose buffers are not compressed.

    Such a stream decodes to no more than its own bytes: each buffer is a part of it.

    Raises:
        TooLarge: it has something else, or cannot be followed.
    """
    try:
        _, start = _message(data, 0, _SCHEMA)
        message, body = _message(data, start, _RECORD_BATCH)
        header = _field(data, message, 2)
        if _field(data, header + _u32(data, header), 3):
            raise TooLarge("its buffers are compressed by themselves")
        body_bytes = _field(data, message, 3)
        end = body + (_i64(data, body_bytes) if body_bytes else 0)
        if end < body or bytes(memoryview(data)[end:]) not in (b"", _END_OF_STREAM):
            raise TooLarge("its record batch is not all that it has")
    except (struct.error, IndexError):
        raise TooLarge("its messages cannot be followed") from None


def _message(data: bytes | pa.Buffer, start: int, kind: int) -> tuple[int, int]:
    """Return where a message's flatbuffer has its root, and where its metadata ends."""
    if _u32(data, start) != 0xFFFFFFFF:
        raise TooLarge("a message does not begin as one")
    metadata = start + 8
    message = metadata + _u32(data, metadata)
    found = _field(data, message, 1)
    if not found or _number(data, found, _U8) != kind:
        raise TooLarge("it is not a schema and one record batch")
    return message, metadata + _u32(data, start + 4)


def _field(data: bytes | pa.Buffer, table: int, index: int) -> int:
    """Return where a field of a flatbuffer's table is; 0 if it is not there."""
    vtable = table - _i32(data, table)
    place = 4 + 2 * index
    if place >= _u16(data, vtable):
        return 0
    offset = _u16(data, vtable + place)
    return table + offset if offset else 0


def _count(data: bytes, vector: int) -> int:
    return _u32(data, vector + _u32(data, vector)) if vector else 0


def _items(data: bytes, vector: int) -> int:
    return vector + _u32(data, vector) + 4


def _number(data: bytes | pa.Buffer, position: int, form: struct.Struct) -> int:
    if position < 0:
        raise IndexError
    number: int = form.unpack_from(data, position)[0]
    return number


_U8, _U16, _I32, _U32, _I64 = (struct.Struct(form) for form in ("<B", "<H", "<i", "<I", "<q"))


def _u16(data: bytes | pa.Buffer, position: int) -> int:
    return _number(data, position, _U16)


def _i32(data: bytes | pa.Buffer, position: int) -> int:
    return _number(data, position, _I32)


def _u32(data: bytes | pa.Buffer, position: int) -> int:
    return _number(data, position, _U32)


def _i64(data: bytes | pa.Buffer, position: int) -> int:
    return _number(data, position, _I64)


# What a newer sparktxn has written: distinguished from damage by its name (PROTOCOL.md, "Features").
#
# A document whose checksum holds, and which this version cannot decode, is searched for the first type or member that
# this version does not know. If there is one, a newer version has written it; if there is none, its writer was wrong.

TABLES: Final = "tables"
"""The feature of a store that publishes topics as tables: its state has records of them, and a vacuum keeps more."""

PACKED_HEADS: Final = "packed_heads"
"""The feature of a checkpoint's head whose names are compressed: the head has it, and the store's state does not."""

KEYED_TOPICS: Final = "keyed_topics"
"""The feature of a store that has topics with a key: a reader without it would show deletes as rows."""

READER_FEATURES: Final[frozenset[str]] = frozenset({TABLES, PACKED_HEADS, KEYED_TOPICS})
"""The features that this version can read."""

WRITER_FEATURES: Final[frozenset[str]] = frozenset({TABLES, KEYED_TOPICS})
"""The features that this version can write."""

_SHOWN_MAX: Final = 100


def check_features(required: Iterable[str], known: frozenset[str], name: str, use: str) -> None:
    """Check that this version knows all features that a store requires for `use`, "read" or "write".

    Raises:
        FormatVersionError: it does not; `name` is the object that requires them.
    """
    if unknown := sorted(set(required) - known):
        features = ", ".join(repr(feature[:_SHOWN_MAX]) for feature in unknown)
        raise FormatVersionError(name, f"requires features to {use} the store that this version lacks: {features}")


def undecodable(data: bytes, name: str, expected: Any, noun: str, error: Exception) -> StoreError:
    """Return the error for a document whose checksum holds and which is no `expected`, in words `noun`.

    It is a FormatVersionError if the document has a type or member that this version does not know. Otherwise it is a
    DamagedObject with what the decoder has said.
    """
    try:
        document = msgspec.json.decode(data)
        unknown = _unknown(document, _described(expected))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        unknown = None
    if unknown is not None:
        return FormatVersionError(name, f"has {unknown}, which this version does not know")
    return DamagedObject(name, f"it is not {noun} ({error})")


@cache
def _described(expected: Any) -> inspect.Type:
    """Return the description of a type, which takes far longer to make than to use."""
    return inspect.type_info(expected)


def _unknown(value: Any, expected: inspect.Type) -> str | None:
    """Return the first thing in `value` that a newer version must have added to `expected`; None if there is none."""
    if isinstance(expected, inspect.Metadata):
        return _unknown(value, expected.type)
    if isinstance(expected, inspect.UnionType):
        return _unknown_in_union(value, expected)
    if isinstance(expected, inspect.StructType):
        return _unknown_in_struct(value, expected)
    if isinstance(expected, inspect.TupleType) and isinstance(value, list):
        if len(value) > len(expected.item_types):
            return f"a tuple of {len(value)} members"
        return _first(zip(value, expected.item_types, strict=False))
    if isinstance(expected, inspect.VarTupleType | inspect.ListType) and isinstance(value, list):
        return _first((item, expected.item_type) for item in value)
    if isinstance(expected, inspect.DictType) and isinstance(value, dict):
        return _first((item, expected.value_type) for item in value.values())
    return None


def _unknown_in_union(value: Any, expected: inspect.UnionType) -> str | None:
    structs = [one for one in expected.types if isinstance(one, inspect.StructType)]
    if isinstance(value, dict) and structs and structs[0].tag is not None:
        tag = value.get("type")
        found = [one for one in structs if one.tag == tag]
        if not found:
            return f"the type {str(tag)[:_SHOWN_MAX]!r}" if isinstance(tag, str) else None
        return _unknown_in_struct(value, found[0])
    return _first((value, one) for one in expected.types)


def _unknown_in_struct(value: Any, expected: inspect.StructType) -> str | None:
    if expected.array_like:
        if not isinstance(value, list):
            return None
        if len(value) > len(expected.fields):
            return f"a tuple of {len(value)} members"
        return _first((item, field.type) for item, field in zip(value, expected.fields, strict=False))
    if not isinstance(value, dict):
        return None
    fields = {field.encode_name: field.type for field in expected.fields}
    if expected.forbid_unknown_fields:
        for member in value:
            if member not in fields and member != expected.tag_field:
                of = f" of {expected.tag!r}" if expected.tag is not None else ""
                return f"the member {member[:_SHOWN_MAX]!r}{of}"
    return _first((value[member], type_) for member, type_ in fields.items() if member in value)


def _first(parts: Iterable[tuple[Any, inspect.Type]]) -> str | None:
    return next((found for part, expected in parts if (found := _unknown(part, expected)) is not None), None)
