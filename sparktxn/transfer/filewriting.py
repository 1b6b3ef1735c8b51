"""Writing a topic's records to one file, so that an import has each value as it was, or refusing them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sparktxn.errors import ConfigurationError
from sparktxn.format.statistics import paths_without_fractions
from sparktxn.transfer.csvvalues import csv_names, is_text_in_csv
from sparktxn.transfer.jsonrows import encoded, json_bytes, json_values
from sparktxn.values.hiddennulls import without_hidden_nulls

__all__ = ["FORMATS", "FileWriter"]

FORMATS: Final = ("parquet", "arrow", "csv", "json")
"""The formats of files: json is a JSON object on each line."""


class FileWriter:
    """Writes one file.

    Args:
        path: the file, which does not exist.
        file_format: one of FORMATS.
        schema: the columns.
        is_record: they are those of Kafka's record, whose bytes are text where they are UTF-8.
    """

    def __init__(self, path: Path, file_format: str, schema: pa.Schema, *, is_record: bool) -> None:
        self.path = path
        self._format = file_format
        self._is_record = is_record
        if file_format == "parquet":
            statistics = paths_without_fractions(schema)
            self._file: Any = pyarrow.parquet.ParquetWriter(
                path, schema, compression="zstd", write_statistics=statistics
            )
        elif file_format == "arrow":
            self._file = pa.ipc.new_file(path, schema)
        elif file_format == "csv":
            self._schema = _text_schema(schema, is_record=is_record)
            self._file = pyarrow.csv.CSVWriter(path, self._schema)
        else:
            self._file = path.open("wb")

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows.

        Raises:
            ConfigurationError: a value does not fit the format.
        """
        if self._format == "parquet":
            self._file.write_table(without_hidden_nulls(pa.table(batch)))
        elif self._format == "arrow":
            self._file.write_batch(batch)
        elif self._format == "csv":
            if batch.num_columns == 1 and batch.column(0).null_count:
                raise ConfigurationError(
                    f"column {batch.schema.names[0]!r} has a null, which csv of one column cannot hold (it would be an "
                    "empty line): export another column too, or json, parquet or arrow"
                )
            columns = [self._texts(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
            self._file.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        else:
            names = batch.schema.names
            columns = [self._values(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
            for row in zip(*columns, strict=True):
                self._file.write(encoded(self._members(dict(zip(names, row, strict=True)))) + b"\n")

    def close(self) -> None:
        """End the file."""
        self._file.close()

    def _values(self, field: pa.Field, column: pa.Array) -> list[Any]:
        values = json_values(field, column)
        if self._is_record and pa.types.is_nested(field.type):
            return [headers and [self._members(header) for header in headers] for headers in values]
        return values

    def _members(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return Kafka's record, or one of its headers, with its bytes as text or base64."""
        if not self._is_record:
            return row
        found: dict[str, Any] = {}
        for name, value in row.items():
            found |= json_bytes(name, value) if isinstance(value, bytes) else {name: value}
        return found

    def _texts(self, field: pa.Field, column: pa.Array) -> pa.Array:
        """Return a column as CSV holds it: bytes and times as in JSON, nested values as JSON."""
        kind = field.type
        if self._is_record and pa.types.is_binary(kind):
            try:
                return column.cast(pa.string())
            except pa.ArrowInvalid:
                raise ConfigurationError(
                    f"column {field.name!r} has bytes that are not UTF-8, which csv cannot hold: export json, parquet "
                    "or arrow"
                ) from None
        if pa.types.is_nested(kind):
            values = self._values(field, column)
            return pa.array([None if value is None else msgspec.json.encode(value).decode() for value in values])
        if pa.types.is_date(kind):
            json_values(field, column)  # Checks the years.
            return column
        if is_text_in_csv(kind):
            return pa.array([msgspec.to_builtins(value) for value in json_values(field, column)], pa.string())
        return column


def _text_schema(schema: pa.Schema, *, is_record: bool) -> pa.Schema:
    names = schema.names if is_record else csv_names(schema).values()
    kinds = (pa.string() if is_text_in_csv(kind) else kind for kind in schema.types)
    return pa.schema(list(zip(names, kinds, strict=True)))
