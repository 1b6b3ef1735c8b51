"""Arrow's values of Python's whole numbers, texts and bytes, made without pandas.

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

__all__ = ["byte_strings", "empty_table", "integers", "lists_of_pairs", "repeated", "scalar_of"]

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
