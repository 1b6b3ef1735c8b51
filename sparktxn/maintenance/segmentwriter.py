"""Writing a Parquet segment piece by piece, in bounded memory: what is decoded is a row group, never the whole file."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from sparktxn.background import Background
from sparktxn.format.segment import parquet_options

__all__ = ["SegmentWriter"]

_ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
_ROW_GROUP_ROWS: Final = 1_048_576


class SegmentWriter:
    """A Parquet segment that grows by tables with the columns of `with_offsets`, for the topic's stored schema.

    Args:
        compression: topic setting ``compression.type``.
        background: encodes a row group while the caller collects the next; None: the caller waits for each.

    Raises:
        ConfigurationError: Parquet does not know that compression.
    """

    def __init__(self, compression: str, background: Background | None = None) -> None:
        self._compression = compression
        self._background = background
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._waiting_expected_bytes = 0
        self._waiting_rows = 0
        self._under_way: Future[None] | None = None
        self._under_way_bytes = 0
        self._under_way_expected_bytes = 0
        self._written_bytes = 0
        self.record_count = 0
        self.decoded_bytes = 0

    @property
    def size_bytes_max(self) -> int:
        """How large the file is so far, at most: what is not in a finished row group counts as it is."""
        return self._written_bytes + self._under_way_bytes + self._waiting_bytes

    @property
    def expected_bytes(self) -> int:
        """About how large the file is so far, if what is not in a finished row group becomes as large as expected."""
        return self._written_bytes + self._under_way_expected_bytes + self._waiting_expected_bytes

    def add(self, table: pa.Table, expected_bytes: int) -> None:
        """Add rows that are expected to take so many bytes of the file; enough of them are written as a row group."""
        size_bytes = table.nbytes
        self._waiting.append(table)
        self._waiting_bytes += size_bytes
        self._waiting_expected_bytes += min(size_bytes, expected_bytes)
        self._waiting_rows += table.num_rows
        self.record_count += table.num_rows
        self.decoded_bytes += size_bytes
        if self._waiting_bytes >= _ROW_GROUP_BYTES or self._waiting_rows >= _ROW_GROUP_ROWS:
            self._write()

    def _write(self) -> None:
        self._wait()
        work = partial(self._encode, self._waiting)
        if self._background is None:
            work()
            self._written_bytes = int(self._sink.tell())
        else:
            self._under_way = self._background.submit(work)
            self._under_way_bytes = self._waiting_bytes
            self._under_way_expected_bytes = self._waiting_expected_bytes
        self._waiting, self._waiting_bytes, self._waiting_expected_bytes, self._waiting_rows = [], 0, 0, 0

    def _encode(self, tables: list[pa.Table]) -> None:
        rows = pa.concat_tables(tables).combine_chunks()
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, rows.schema, **parquet_options(rows, self._compression))
        self._writer.write_table(rows, row_group_size=_ROW_GROUP_ROWS)

    def _wait(self) -> None:
        """Wait for the row group under way: no two are, and sizes do not depend on how fast one was."""
        if self._under_way is not None:
            self._under_way.result()
            self._under_way, self._under_way_bytes, self._under_way_expected_bytes = None, 0, 0
            self._written_bytes = int(self._sink.tell())

    def finish(self) -> bytes:
        """Return the file's bytes, of at least one row; the writer is of no use afterwards."""
        if self._waiting:
            self._write()
        self._wait()
        if self._writer is None:
            raise ValueError("a segment holds at least one record")
        self._writer.close()
        data: bytes = self._sink.getvalue().to_pybytes()
        return data
