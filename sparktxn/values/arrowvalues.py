"""Arrow's values of Python's whole numbers and texts, made without pandas.

`pa.scalar()`, `pa.array()`, and functions of `pyarrow.compute` that are given a value of Python's, import pandas where
it is installed. That takes each process 0.2 s, which a worker of Spark spends before its first row.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable

import pyarrow as pa

__all__ = ["empty_table", "integers", "scalar_of"]


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


def integers(values: Iterable[int]) -> pa.Array:
    """Return an array of the type int64."""
    numbers = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table without rows, each of whose columns is one array."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
