"""Arrow's values of Python's whole numbers, texts and bytes, made without pandas; and values that nulls hide.

`pa.scalar()`, `pa.array()`, and functions of `pyarrow.compute` that are given a value of Python's, import pandas where
it is installed. That takes each process 0.2 s, which a worker of Spark spends before its first row.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_BINARY: Final = pa.binary()
_INT64: Final = pa.int64()
_INT32_MAX: Final = 2**31 - 1


def scalar_of(value: int | str | None, kind: pa.DataType) -> pa.Scalar:
    """Return `value` as `pa.scalar` does, for types of signed whole numbers, of times, and of text."""
    if value is None:
        return pa.nulls(1, kind)[0]
    if isinstance(value, str):
        data = value.encode()
        ends = struct.pack("=2i", 0, len(data))
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])[0]
    data = value.to_bytes(kind.bit_width // 8, sys.byteorder, signed=True)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])[0]


def integers(values: Iterable[int], kind: pa.DataType = _INT64) -> pa.Array:
    """Return an array of the type int64, or of times, which Arrow stores as such."""
    numbers = array("q", values)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)], 0)


def repeated(values: pa.Array, ends: pa.Array) -> pa.Array:
    """Return each of `values` again and again, up to the row of the result that `ends` has for it.

    `pa.RunEndEncodedArray.from_arrays()` imports pandas.
    """
    kind = pa.run_end_encoded(ends.type, values.type)
    runs = pa.Array.from_buffers(kind, ends[-1].as_py() if len(ends) else 0, [None], 0, children=[ends, values])
    return pc.run_end_decode(runs)


def byte_strings(values: Sequence[bytes | None], kind: pa.DataType = _BINARY) -> pa.Array:
    """Return an array of the type binary, or of text in UTF-8; only more than 2 GiB import pandas.

    1,000 values take 0.05 ms, and `pa.array()` 0.03 ms once it has imported pandas.
    """
    bitmap, ends = _layout(values)
    if ends is None:
        return pa.array(values, kind)
    data = b"".join(values if bitmap is None else (value or b"" for value in values))  # type: ignore[arg-type]
    return pa.Array.from_buffers(kind, len(values), [bitmap, ends, pa.py_buffer(data)])


def lists_of_pairs(values: Sequence[Sequence[tuple[str, bytes | None]] | None], kind: pa.ListType) -> pa.Array:
    """Return an array of lists, whose items have a text and bytes."""
    pairs = [pair for value in values for pair in value or ()]
    first, second = kind.value_type
    names = byte_strings([name.encode() for name, _ in pairs], first.type)
    items = pa.StructArray.from_arrays([names, byte_strings([data for _, data in pairs])], fields=[first, second])
    return pa.Array.from_buffers(kind, len(values), [*_layout(values)], children=[items])


def _layout(values: Sequence[Sequence[object] | None]) -> tuple[pa.Buffer | None, pa.Buffer | None]:
    """Return Arrow's bitmap of the values that are not null, None if all are; and where each begins, with the end.

    The second is None if the end is too far for 32 bits.
    """
    bitmap = None
    lengths: Iterable[int] = map(len, values)  # type: ignore[arg-type]
    if None in values:
        is_value = np.fromiter((value is not None for value in values), np.bool_, len(values))
        bitmap = pa.py_buffer(np.packbits(is_value, bitorder="little"))
        lengths = (len(value or ()) for value in values)
    ends = np.zeros(len(values) + 1, np.int64)
    np.add.accumulate(np.fromiter(lengths, np.int64, len(values)), out=ends[1:])
    return bitmap, pa.py_buffer(ends.astype(np.int32)) if ends[-1] <= _INT32_MAX else None


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table without rows, each of whose columns is one array."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


# Nulls that no reader sees: a struct is null, and so is its field, although the field is declared not null.
#
# Arrow leaves open what lies below a null struct, and programs differ in what they write there. Spark writes nulls,
# and so does `pyarrow.nulls`. pyarrow's Parquet writer refuses them.


def without_hidden_nulls(table: pa.Table) -> pa.Table:
    """Return the same rows; where a struct is null, its fields that are not null have some value."""
    for index, field in enumerate(table.schema):
        if _may_hide(field.type):
            column = table.column(index)
            chunks = [_shown(chunk, None) for chunk in column.chunks]
            table = table.set_column(index, field, pa.chunked_array(chunks, field.type))
    return table


def _may_hide(data_type: pa.DataType) -> bool:
    if pa.types.is_struct(data_type):
        return any(not field.nullable or _may_hide(field.type) for field in data_type)
    if pa.types.is_map(data_type):
        return _may_hide(data_type.key_type) or _may_hide(data_type.item_type)
    return pa.types.is_list(data_type) and _may_hide(data_type.value_type)


def _shown(array: pa.Array, hidden: pa.Array | None) -> pa.Array:
    """Return an array without nulls where it is `hidden` (booleans, None: nowhere) by those of what it lies in."""
    if not _may_hide(array.type):
        return array
    if not pa.types.is_struct(array.type):
        # A list's items lie in as many rows as they need, and none of them below a null.
        return _of_parts(array, [_shown(array.values, None)])
    below = array.is_null() if hidden is None else pc.or_(hidden, array.is_null())
    parts = [array.field(index) for index in range(array.type.num_fields)]
    shown = [
        _shown(part if field.nullable else _required(part, below), below)
        for part, field in zip(parts, array.type, strict=True)
    ]
    return pa.StructArray.from_arrays(shown, fields=list(array.type), mask=array.is_null())


def _required(part: pa.Array, hidden: pa.Array) -> pa.Array:
    """Return a field's values, none of them null; as they are if one is that is not hidden: a writer refuses it."""
    if not part.null_count or not pc.all(pc.or_(hidden, part.is_valid())).as_py():
        return part
    if pa.types.is_struct(part.type):
        return pa.StructArray.from_arrays(
            [part.field(index) for index in range(part.type.num_fields)], fields=list(part.type)
        )
    parts = [part.values] if pa.types.is_list(part.type) or pa.types.is_map(part.type) else []
    return _of_parts(part, parts, has_nulls=False)


def _of_parts(array: pa.Array, parts: list[pa.Array], *, has_nulls: bool = True) -> pa.Array:
    """Return an array with its own buffers and these values of a list or a map; without nulls if it has none."""
    validity, *buffers = array.buffers()[: 2 if parts else None]
    nulls = array.null_count if has_nulls else 0
    own = [validity if has_nulls else None, *buffers]
    return pa.Array.from_buffers(array.type, len(array), own, nulls, array.offset, parts or None)
