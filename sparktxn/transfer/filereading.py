"""Reading files of other programs as rows of a topic, some at a time.

Each value arrives as it was, or is an error that names the file, the line or row, the column and the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn.errors import ConfigurationError, did_you_mean
from sparktxn.transfer.arrowrows import Int96Error, arrow_tables, parquet_tables
from sparktxn.transfer.csvrows import CsvRows, csv_rows
from sparktxn.transfer.csvvalues import WrongText, csv_names, typed_column
from sparktxn.transfer.exactvalues import WrongLine
from sparktxn.transfer.jsonrows import JsonRows, some_lines
from sparktxn.transfer.jsonvalues import BASE64

__all__ = ["SUFFIXES", "Columns", "check_suffix", "rows_of"]

SUFFIXES: Final = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
"""The formats of files, by the ends of their names."""

_PIECE_BYTES: Final = 4 * 1024 * 1024
_LINES: Final = 10_000
_LINE_BYTES_MAX: Final = 256 * 1024 * 1024
_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")


class Columns(NamedTuple):
    """What a file's columns are to be.

    `names` has the topic's names of the file's columns, where they differ. Of the columns that the topic does not have,
    those in `ignored` are left out, or with None all.
    """

    schema: pa.Schema
    is_record: bool
    names: Mapping[str, str]
    ignored: frozenset[str] | None

    def mine(self, name: str) -> str:
        """Return the topic's name of a column; one whose name is given to another column is not the topic's."""
        if name in self.names:
            return self.names[name]
        return f"{name} (of the file)" if name in self.names.values() else name

    def kept(self, found: list[str]) -> dict[str, str]:
        """Return the topic's names of those of a file's columns that are kept.

        Raises:
            ValueError: a column is unknown, there twice or to be renamed and missing, or none is the topic's.
        """
        kept: dict[str, str] = {}
        for name in found:
            mine = self.mine(name)
            if mine in self.schema.names:
                if mine in kept.values():
                    raise ValueError(f"column {name!r} is there {found.count(name)} times: expected once")
                kept[name] = mine
            elif self.ignored is not None and mine not in self.ignored:
                known = self.schema.names
                raise ValueError(
                    f"column {mine!r} is none of the topic's: expected {', '.join(known)}{did_you_mean(mine, known)}; "
                    "name its column, or leave other columns out (--ignore-other-columns)"
                )
        self.check_found(found)
        return kept

    def kept_of_csv(self, found: list[str]) -> dict[str, str]:
        """Return what `kept` returns for a file of CSV, where a typed topic's columns of bytes have other names.

        Raises:
            ConfigurationError: two of the topic's columns have one name there.
            ValueError: as `kept`; or a column of bytes does not say that they are base64.
        """
        if self.is_record:
            return self.kept(found)
        names = csv_names(self.schema)
        own = {name: mine for mine, name in names.items()}
        columns = self._replace(
            schema=pa.schema([self.schema.field(mine).with_name(name) for name, mine in own.items()]),
            names={name: names.get(mine, mine) if name.endswith(BASE64) else mine for name, mine in self.names.items()},
        )
        for name in found:
            mine = columns.mine(name)
            if mine in names and mine not in own and mine not in (self.ignored or ()):
                raise ValueError(
                    f"column {name!r} would be bytes of the topic's column {mine!r}: expected {names[mine]!r}, or "
                    "another name with this end, for csv holds bytes as base64, and the name says so"
                )
        return {name: own[mine] for name, mine in columns.kept(found).items()}

    def check_found(self, found: list[str]) -> None:
        """Pass if a file's columns have each one that is to be renamed, and one at least that is kept.

        Raises:
            ValueError: they have not.
        """
        missing = next((name for name in self.names if name not in found), None)
        if missing is not None:
            raise ValueError(f"the file has no column {missing!r}, which is to be {self.names[missing]!r}")
        mine = {self.mine(name) for name in found}
        if self.is_record:
            mine |= {name.removesuffix(BASE64) for name in mine}
        if mine.isdisjoint(self.schema.names):
            raise ValueError(f"no column is the topic's: expected {', '.join(self.schema.names)}")


def check_suffix(path: Path) -> str:
    """Return a file's format, by the end of its name.

    Raises:
        ConfigurationError: the name has another end.
    """
    found = SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise ConfigurationError(f"file {str(path)!r} has no known end: expected one of {', '.join(SUFFIXES)}")
    return found


def rows_of(path: Path, columns: Columns, on_read: Callable[[int], object]) -> Iterator[pa.Table]:
    """Yield a file's rows in their order, some at a time, with the topic's columns that the file has.

    Text of CSV and JSON has the topic's types then; columns of Parquet and Arrow have the file's. Before rows are
    yielded, `on_read` is called with about how many bytes of the file have been read.

    Raises:
        ConfigurationError: the file cannot be read as what its name says, or a value is not of its column's type.
        OSError: the disk does not answer.
    """
    file_format = check_suffix(path)
    try:
        if file_format == "csv":
            yield from _csv_tables(path, columns, on_read)
        elif file_format == "json":
            yield from _json_tables(path, columns, on_read)
        else:
            size_bytes = path.stat().st_size

            def at(part: float) -> None:
                on_read(int(part * size_bytes))

            is_parquet = file_format == "parquet"
            tables = parquet_tables(path, columns.schema, columns.names, at) if is_parquet else arrow_tables(path, at)
            yield from _checked(tables, columns)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(f"file {str(path)!r} cannot be read as {file_format}: {reason}") from None
    except WrongLine as error:
        raise ConfigurationError(f"file {str(path)!r}, line {error.line}: {error.reason}") from None
    except Int96Error as error:
        raise ConfigurationError(f"file {str(path)!r}, {error}") from None
    except ValueError as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(f"file {str(path)!r}: {error}") from None


def _checked(tables: Iterator[pa.Table], columns: Columns) -> Iterator[pa.Table]:
    row = 0
    for table in tables:
        kept = columns.kept(table.column_names)
        if len(set(table.column_names)) < table.num_columns:
            table = table.select([index for index, name in enumerate(table.column_names) if name in kept])
        rows = table.select(list(kept)).rename_columns(list(kept.values()))
        for name in kept.values():
            if columns.schema.field(name).type == _MILLISECONDS:
                _check_milliseconds(name, rows.column(name), row)
        row += table.num_rows
        yield rows


def _check_milliseconds(name: str, column: pa.ChunkedArray, before: int) -> None:
    """Pass if a record's timestamp keeps its digits and its zone; staging cuts them, as Kafka's clients do."""
    kind = column.type
    if not pa.types.is_timestamp(kind):
        return
    if kind.tz is None:
        raise ValueError(f"column {name!r} is {kind}, a time without a zone: expected instants; cast it to UTC")
    if kind.unit in ("us", "ns"):
        step = 1_000 if kind.unit == "us" else 1_000_000
        numbers = column.cast(pa.int64())
        is_whole = pc.equal(pc.multiply(pc.divide(numbers, step), step), numbers)
        row = pc.index(pc.fill_null(is_whole, True), False).as_py()
        if row >= 0:
            raise ValueError(
                f"row {before + row + 1}, column {name!r}: {numbers[row]} {kind.unit} since 1970 has a part of a "
                "millisecond, which a record's timestamp does not keep: round it"
            )


def _csv_tables(path: Path, columns: Columns, on_read: Callable[[int], object]) -> Iterator[pa.Table]:
    kept: dict[str, str] | None = None
    for rows in csv_rows(path, on_read):
        if kept is None:
            kept = columns.kept_of_csv(rows.table.column_names)
        yield pa.table(
            {mine: _of_texts(rows, name, columns.schema.field(mine), columns) for name, mine in kept.items()}
        )


def _of_texts(rows: CsvRows, name: str, field: pa.Field, columns: Columns) -> pa.ChunkedArray:
    try:
        return typed_column(rows.table.column(name), field, bytes_are_text=columns.is_record)
    except WrongText as error:
        raise WrongLine(rows.line_of(error.row), f"column {name!r}: {error.reason}") from None


def _json_tables(path: Path, columns: Columns, on_read: Callable[[int], object]) -> Iterator[pa.Table]:
    found: list[str] = []
    read_bytes = 0

    def mine(name: str) -> str:
        found.append(name)
        return columns.mine(name)

    reader = JsonRows(columns.schema, is_record=columns.is_record, names=mine, ignored=columns.ignored)
    for lines in some_lines(_lines(path), _LINES, _PIECE_BYTES):
        read_bytes += sum(len(line) for _, line in lines)
        on_read(read_bytes)
        yield reader.table(lines)
    if found:
        columns.check_found(found)


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for number in count(1):
            line = file.readline(_LINE_BYTES_MAX)
            if len(line) == _LINE_BYTES_MAX:
                raise WrongLine(number, f"it has {_LINE_BYTES_MAX} bytes or more: expected a JSON object on each line")
            if not line:
                return
            yield line
