"""Writing a Parquet segment piece by piece, in bounded memory: what is decoded is a row group, never the whole file."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparktxn._engine.format.schema import timestamp_column
from sparktxn._engine.format.segment import parquet_options
from sparktxn._engine.format.statistics import TIMESTAMP_BOUNDS_KEY, columns_with_statistics, leaves, numbered_columns
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.values.arrowvalues import without_hidden_nulls

FILE_BYTES: Final = 32 * 1024 * 1024
"""How large a file becomes while there are more records for it: one request can carry half as much again."""

ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
ROW_GROUP_ROWS: Final = 1_048_576
"""A row group ends at whichever comes first. It is what a reader has in memory, decoded, and what a condition skips."""


class SegmentWriter:
    """A Parquet segment that grows by tables: with the columns of `with_offsets`, or a fresh one, without offsets.

    The columns of a job's segment have the numbers that an Iceberg table has for them, whether the topic is one by now
    or not. The timestamp has no statistics there, but bounds in the footer.

    Args:
        compression: topic setting ``compression.type``.
        background: encodes a row group while the caller collects the next; None: the caller waits for each.
        is_fresh: whether the segment is new in the log, with no column of offsets.

    Raises:
        ConfigurationError: Parquet does not know that compression.
    """

    def __init__(self, compression: str, background: Background | None = None, *, is_fresh: bool = False) -> None:
        self._compression = compression
        self._is_fresh = is_fresh
        self._background = background
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._options: dict[str, Any] = {}
        self._timestamp_bounds_ms: list[int] = []
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

    @property
    def timestamp_bounds_ms(self) -> tuple[int, int]:
        """The least and the greatest timestamp, once the file is finished."""
        low, high = self._timestamp_bounds_ms
        return low, high

    def written_bytes(self) -> int:
        """Wait for the row group under way; return what the row groups take in the file."""
        self._wait()
        return self._written_bytes

    def add(self, table: pa.Table, expected_bytes: int) -> None:
        """Add rows that are expected to take so many bytes of the file; enough of them are written as a row group."""
        size_bytes = table.nbytes
        self._waiting.append(table)
        self._waiting_bytes += size_bytes
        self._waiting_expected_bytes += min(size_bytes, expected_bytes)
        self._waiting_rows += table.num_rows
        self.record_count += table.num_rows
        self.decoded_bytes += size_bytes
        if self._waiting_bytes >= ROW_GROUP_BYTES or self._waiting_rows >= ROW_GROUP_ROWS:
            self.end_row_group()

    def end_row_group(self) -> None:
        """Write the rows that wait as a row group."""
        if not self._waiting:
            return
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
        rows = without_hidden_nulls(pa.concat_tables(tables).combine_chunks())
        timestamp = timestamp_column(rows.schema)
        times_ms = rows.column(timestamp).cast(pa.int64())
        found = pc.min_max(pa.chunked_array([*times_ms.chunks, pa.array(self._timestamp_bounds_ms, pa.int64())]))
        self._timestamp_bounds_ms = [found["min"].as_py(), found["max"].as_py()]
        if self._writer is None:
            self._options = parquet_options(rows, self._compression)
            if not self._is_fresh:
                kept = [path for path in self._options["write_statistics"] if path != timestamp]
                self._options["write_statistics"] = kept
            self._writer = self._writer_of(rows.schema)
        elif not set(self._options["write_statistics"]).issubset(columns_with_statistics(rows)):
            self._writer = self._without_statistics_of_fractions(rows.schema, self._closed(self._writer))
        self._writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)

    def _writer_of(self, schema: pa.Schema) -> pq.ParquetWriter:
        return pq.ParquetWriter(self._sink, schema if self._is_fresh else numbered_columns(schema), **self._options)

    def _without_statistics_of_fractions(self, schema: pa.Schema, written: bytes) -> pq.ParquetWriter:
        """Begin again with the row groups that are `written`: a column has its first NaN after them.

        No column of fractions has statistics then, so a file begins again once at most.
        """
        fractions = {leaf.path for leaf in leaves(schema) if pa.types.is_floating(leaf.type)}
        kept = [path for path in self._options["write_statistics"] if path not in fractions]
        self._options["write_statistics"] = kept
        self._sink = pa.BufferOutputStream()
        writer = self._writer_of(schema)
        with pq.ParquetFile(pa.BufferReader(written)) as file:
            for group in range(file.num_row_groups):
                writer.write_table(file.read_row_group(group).cast(schema), row_group_size=ROW_GROUP_ROWS)
        return writer

    def _closed(self, writer: pq.ParquetWriter) -> bytes:
        if not self._is_fresh:
            low, high = self._timestamp_bounds_ms
            writer.add_key_value_metadata({TIMESTAMP_BOUNDS_KEY: f"{low} {high}"})
        writer.close()
        data: bytes = self._sink.getvalue().to_pybytes()
        return data

    def _wait(self) -> None:
        """Wait for the row group under way: no two are, and sizes do not depend on how fast one was."""
        if self._under_way is not None:
            self._under_way.result()
            self._under_way, self._under_way_bytes, self._under_way_expected_bytes = None, 0, 0
            self._written_bytes = int(self._sink.tell())

    def finish(self) -> bytes:
        """Return the file's bytes, of at least one row; the writer is of no use afterwards."""
        self._wait()
        # On this thread: if all threads of the background waited for each other's work, none would end.
        self._background = None
        self.end_row_group()
        if self._writer is None:
            raise ValueError("a segment holds at least one record")
        return self._closed(self._writer)
