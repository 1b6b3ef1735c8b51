"""Reading files of other programs as rows of a topic, some at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sparktxn.errors import ConfigurationError

__all__ = ["SUFFIXES", "check_suffix", "rows_of"]

SUFFIXES: Final = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
"""The formats of files, by the ends of their names."""

_ROWS: Final = 65_536
_LINES: Final = 10_000


def check_suffix(path: Path) -> str:
    """Return a file's format, by the end of its name.

    Raises:
        ConfigurationError: the name has another end.
    """
    found = SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise ConfigurationError(f"file {str(path)!r} has no known end: expected one of {', '.join(SUFFIXES)}")
    return found


def rows_of(path: Path, types: Mapping[str, pa.DataType], names: Mapping[str, str]) -> Iterator[pa.Table]:
    """Yield a file's rows in their order, some at a time.

    Args:
        path: the file.
        types: the topic's columns; text of CSV and JSON is converted to these, other columns stay text.
        names: the topic's names of the file's columns, where they differ.

    Raises:
        ConfigurationError: the file cannot be read as what its name says, or a value is not of its column's type.
        OSError: the disk does not answer.
    """
    file_format = check_suffix(path)
    renaming = _Renaming(names)
    try:
        if file_format == "parquet":
            with pyarrow.parquet.ParquetFile(path) as file:
                yield from (renaming.of(pa.Table.from_batches([batch])) for batch in file.iter_batches(_ROWS))
        elif file_format == "arrow":
            with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
                for index in range(reader.num_record_batches):
                    yield renaming.of(pa.Table.from_batches([reader.get_batch(index)]))
        elif file_format == "csv":
            yield from _csv_rows(path, types, renaming)
        else:
            yield from _json_rows(path, types, renaming)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(f"file {str(path)!r} cannot be read as {file_format}: {reason}") from None
    if missing := renaming.missing():
        raise ConfigurationError(f"file {str(path)!r} has no column {missing!r}, which is to be {names[missing]!r}")


class _Renaming:
    """The topic's names of a file's columns; notes which of those that are to be renamed the file has."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._replaced = set(names.values())
        self._seen: set[str] | None = None

    def mine(self, name: str) -> str:
        """Return the topic's name of a column; one whose name is given to another column is not the topic's."""
        self._seen = (self._seen or set()) | {name}
        if name in self._names:
            return self._names[name]
        return f"{name} (of the file)" if name in self._replaced else name

    def of(self, table: pa.Table) -> pa.Table:
        """Return the table with the topic's names."""
        return table.rename_columns([self.mine(name) for name in table.column_names])

    def missing(self) -> str | None:
        """Return a column to rename that the file does not have; None for a file without rows."""
        return None if self._seen is None else next((name for name in self._names if name not in self._seen), None)


def _csv_rows(path: Path, types: Mapping[str, pa.DataType], renaming: _Renaming) -> Iterator[pa.Table]:
    with pyarrow.csv.open_csv(path) as reader:
        header = reader.schema.names
    options = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    row = 1
    with pyarrow.csv.open_csv(path, convert_options=options) as reader:
        for batch in reader:
            table = renaming.of(pa.Table.from_batches([batch]))
            columns = {
                name: _from_text(path, row, name, table.column(name), types.get(name, pa.string()))
                for name in table.column_names
            }
            yield pa.table(columns)
            row += batch.num_rows


def _from_text(path: Path, row: int, name: str, column: pa.ChunkedArray, kind: pa.DataType) -> Any:
    if pa.types.is_nested(kind):
        texts = enumerate(column.to_pylist(), row)
        values = [None if text is None else _parsed(path, number, text) for number, text in texts]
        return _array(path, row, name, values, kind)
    if pa.types.is_timestamp(kind):
        return _array(path, row, name, column.to_pylist(), kind)
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        raise _wrong_type(path, row, name, kind, error) from None


def _json_rows(path: Path, types: Mapping[str, pa.DataType], renaming: _Renaming) -> Iterator[pa.Table]:
    line = 1
    with path.open(encoding="utf-8") as file:
        while lines := list(islice(file, _LINES)):
            rows = [_object(path, number, text) for number, text in enumerate(lines, line) if text.strip()]
            columns = {}
            for name in dict.fromkeys(name for row in rows for name in row):
                mine = renaming.mine(name)
                values = [row.get(name) for row in rows]
                if mine in types:
                    columns[mine] = _array(path, line, mine, values, types[mine])
                else:
                    columns[mine] = pa.array([json.dumps(value) for value in values])
            if columns:
                yield pa.table(columns)
            line += len(lines)


def _parsed(path: Path, line: int, text: str) -> Any:
    """Return what JSON in a row holds."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"file {str(path)!r}, row {line}: it is not JSON ({error})") from None


def _object(path: Path, line: int, text: str) -> dict[str, Any]:
    row = _parsed(path, line, text)
    if not isinstance(row, dict):
        raise ConfigurationError(f"file {str(path)!r}, row {line}: expected a JSON object on each line")
    return row


def _array(path: Path, row: int, name: str, values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array([_value(value, kind) for value in values], kind)
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
        raise _wrong_type(path, row, name, kind, error) from None


def _wrong_type(path: Path, row: int, name: str, kind: pa.DataType, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"file {str(path)!r}, in row {row} or after it: column {name!r} is no {kind} ({error})")


def _value(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON as the type has it."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind) and isinstance(value, str):
        moment = datetime.fromisoformat(value)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None and kind.tz is not None else moment
    if pa.types.is_date(kind) and isinstance(value, str):
        return date.fromisoformat(value)
    if pa.types.is_decimal(kind) and isinstance(value, str | int):
        return Decimal(value)
    if pa.types.is_binary(kind) and isinstance(value, str):
        return value.encode()
    if pa.types.is_nested(kind) and not isinstance(value, list | dict):
        raise TypeError(f"{value!r} is no value of {kind}")
    if pa.types.is_list(kind):
        return [_value(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return [(_value(key, kind.key_type), _value(item, kind.item_type)) for key, item in pairs]
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            raise TypeError(f"{value!r} is no value of {kind}")
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return {field.name: _value(value.get(field.name), field.type) for field in fields}
    return value
