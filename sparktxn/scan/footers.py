"""Footers of merged files, read without their rows."""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from sparktxn.errors import DamagedObject
from sparktxn.objectstore.contract import ObjectStore

__all__ = ["read_footer"]

_MAGIC: Final = b"PAR1"
_END: Final = struct.Struct("<I4s")
_FIRST_BYTES: Final = 65_536
"""What the first request reads of the end: with few columns that has the footer, and with small files all."""


def read_footer(objects: ObjectStore, name: str, size_bytes: int) -> pq.FileMetaData:
    """Return the footer of a Parquet file of `size_bytes`.

    Raises:
        DamagedObject: the file does not exist, or has no footer that can be read.
        StoreUnavailable: the store did not answer.
    """
    data = _end_of(objects, name, size_bytes, _FIRST_BYTES)
    if len(data) < _END.size or not data.endswith(_MAGIC):
        raise DamagedObject(name, "it does not end as a Parquet file does")
    length, _ = _END.unpack(data[-_END.size :])
    wanted = length + _END.size
    if len(data) < wanted <= size_bytes:
        data = _end_of(objects, name, size_bytes, wanted)
    try:
        # The decoder asks for the first bytes of a file, and for nothing between them and the footer.
        return pq.read_metadata(pa.BufferReader(_MAGIC + data[-wanted:]))
    except Exception as error:  # foreign bytes make the decoders below us fail in any way
        raise DamagedObject(name, f"its footer cannot be read: {error}") from error


def _end_of(objects: ObjectStore, name: str, size_bytes: int, count: int) -> bytes:
    data = objects.get_range(name, max(0, size_bytes - count), size_bytes)
    if data is None:
        raise DamagedObject(name, "a version of a table names it and it does not exist")
    return data
