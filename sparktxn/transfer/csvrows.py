r"""CSV to columns of text, exactly, in pieces of whole records.

Records end with ``\n`` or ``\r\n``. A value that has a comma, a quote or an end of line is in double quotes, and quotes
in it are doubled (RFC 4180). Nothing between two commas is null, and ``""`` is an empty text; no other text is null.
An empty line is not a record; in a file of one column it is refused, as it might be a null.
What another reader might take for something else is an error. Arrow's reader gets one piece at a time. It loses bytes
where a value in quotes lies on the border of its own blocks (docs/adr/0027).
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from sparktxn._foundation.values.quantities import counted
from sparktxn.errors import ConfigurationError
from sparktxn.transfer.exactvalues import WrongLine, shown, text_reader
from sparktxn.transfer.jsonrows import BASE64, json_reader, parsed

_PIECE_BYTES: Final = 4 * 1024 * 1024
_RECORD_BYTES_MAX: Final = 256 * 1024 * 1024

_QUOTED = re.compile(rb'(?:(?<=[,\n])|\A)"[^"]*+(?:""[^"]*+)*+"(?=,|\r?\n|\r?\Z)')
_LONE = re.compile(rb'"|\r(?!\n)')
_FIELD = re.compile(rb'("(?:[^"]|"")*+"|[^,]*+)(?:,|\Z)', re.DOTALL)


class CsvRows(NamedTuple):
    """Some records, as columns of text."""

    table: pa.Table
    piece: bytes
    first_line: int

    def line_of(self, row: int) -> int:
        """Return the line in which a row begins."""
        lines = (line for line, record in _records(self.piece, self.first_line) if record)
        return next(islice(lines, row, None))


def csv_rows(path: Path, on_read: Callable[[int], object]) -> Iterator[CsvRows]:
    """Yield a file's records some at a time; first its columns without records.

    Before them `on_read` is called with how many bytes of the file have been read.

    Raises:
        WrongLine: a record has another number of values than the first one, or is not CSV.
        OSError: the disk does not answer.
    """
    with path.open("rb") as file:
        names: list[str] = []
        for piece, line in _pieces(file):
            _check_quotes(piece, line)
            on_read(file.tell())
            if names:
                yield CsvRows(_parsed(piece, line, names), piece, line)
                continue
            head = next((record for _, record in _records(piece, line)), b"")
            names = _names(head, line)
            yield CsvRows(pa.table({name: pa.array([], pa.string()) for name in names}), b"", line)
            rest = piece[len(head) :].removeprefix(b"\r").removeprefix(b"\n")
            line += head.count(b"\n") + 1
            if rest:
                yield CsvRows(_parsed(rest, line, names), rest, line)
    if not names:
        raise WrongLine(1, "the file is empty: expected the names of its columns in the first line")


def _pieces(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield pieces of whole records, each with the number of its first line."""
    line = 1
    rest = file.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
    while True:
        data = file.read(max(_PIECE_BYTES, len(rest)))
        rest += data
        end = _last_end(rest) if data else len(rest)
        if end:
            yield rest[:end], line
            line += rest.count(b"\n", 0, end)
            rest = rest[end:]
        elif len(rest) > _RECORD_BYTES_MAX:
            raise WrongLine(line, f"the record has more than {_RECORD_BYTES_MAX} bytes: is a quote not closed?")
        if not data:
            return


def _last_end(data: bytes) -> int:
    """Return where the last whole record ends: an end of line with an even number of quotes before it."""
    end = data.rfind(b"\n") + 1
    is_inside = data.count(b'"', 0, end) % 2 == 1
    while end and is_inside:
        # Back over the quote that makes the number odd, and over those between it and the end of line before it.
        quote = data.rfind(b'"', 0, end)
        before = data.rfind(b"\n", 0, quote) + 1
        is_inside = (1 + data.count(b'"', before, end)) % 2 == 1
        end = before
    return end


def _check_quotes(piece: bytes, first_line: int) -> None:
    """Pass if quotes are only around values or doubled in them, and ends of line are of one kind.

    Raises:
        WrongLine: readers of CSV differ in what such a record means.
    """
    if b'"' not in piece and b"\r" not in piece:
        return
    bare = _QUOTED.sub(b"", piece) if b'"' in piece else piece
    if _LONE.search(bare) is None:
        return
    line = first_line
    for line, record in _records(piece, first_line):
        for index, value in enumerate(_values(record), 1):
            if (lone := _LONE.search(_QUOTED.sub(b"", value))) is None:
                continue
            what = "a quote" if lone[0] == b'"' else r"\r without \n"
            raise WrongLine(
                line,
                f"value {index}, {shown(value.decode(errors='replace'))}, has {what} where readers of CSV differ: put "
                'the value in quotes, and double each quote in it ("")',
            )
    raise WrongLine(line, r"the file ends with \r without \n, where readers of CSV differ: end it with \n")


def _values(record: bytes) -> list[bytes]:
    """Return a record's values as they are written."""
    found = [match[1] for match in _FIELD.finditer(record)]
    # At the end of the record there is one more empty match, unless the record ends with a comma.
    return found if record.endswith(b",") or len(found) == 1 else found[:-1]


def _records(piece: bytes, first_line: int) -> Iterator[tuple[int, bytes]]:
    """Yield records and empty lines, without their ends, each with its line."""
    begin, begin_line, line, at, quotes = 0, first_line, first_line, 0, 0
    while at < len(piece):
        end = piece.find(b"\n", at)
        end = len(piece) if end < 0 else end
        quotes += piece.count(b'"', at, end)
        at, line = end + 1, line + 1
        if quotes % 2 and at < len(piece):
            continue
        yield begin_line, piece[begin:end].removesuffix(b"\r")
        begin, begin_line, quotes = at, line, 0


def _names(head: bytes, line: int) -> list[str]:
    try:
        names = [_unquoted(value).decode() for value in _values(head)]
    except UnicodeDecodeError:
        raise WrongLine(line, "the names of the columns are not UTF-8: save the file as UTF-8") from None
    for name in names:
        if names.count(name) > 1:
            raise WrongLine(line, f"column {name!r} is there {names.count(name)} times: expected once")
    return names


def _unquoted(value: bytes) -> bytes:
    return value[1:-1].replace(b'""', b'"') if value.startswith(b'"') else value


def _parsed(piece: bytes, first_line: int, names: list[str]) -> pa.Table:
    is_single = len(names) == 1
    # Arrow takes nothing at the very end of a piece for an empty text if the value before it is in quotes.
    piece = piece if piece.endswith(b"\n") else piece + b"\n"
    # It drops a byte-order mark at the start of what it gets, which is text where a piece begins with one.
    piece = BOM_UTF8 + piece if piece.startswith(BOM_UTF8) else piece
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(piece),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=len(piece) + 1, column_names=names),
            pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=not is_single),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        for line, record in _records(piece, first_line):
            values = _values(record) if record or is_single else [b""] * len(names)
            if len(values) != len(names):
                raise WrongLine(
                    line,
                    f"the record has {counted(len(values), 'value')}, and the first line "
                    f"{counted(len(names), 'name')} of columns",
                ) from None
            for name, value in zip(names, values, strict=True):
                try:
                    value.decode()
                except UnicodeDecodeError:
                    raise WrongLine(line, f"column {name!r} is not UTF-8: save the file as UTF-8") from None
        raise WrongLine(first_line, f"Arrow cannot read the records from here on: {error}") from None
    if is_single and table.column(0).null_count:
        line = next(line for line, record in _records(piece, first_line) if not record)
        raise WrongLine(
            line,
            "the line is empty, which is null to some readers of a file of one column, and no record to others: take "
            'it out, or write an empty text as ""',
        )
    return table


# Columns of text to a topic's types: whole columns where each text has a plain form, value by value where not.

_TIME: Final = r"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}"
_PLAIN: Final = {
    pa.bool_(): r"^(true|false)$",
    pa.int8(): r"^-?[0-9]{1,18}$",
    pa.int16(): r"^-?[0-9]{1,18}$",
    pa.int32(): r"^-?[0-9]{1,18}$",
    pa.int64(): r"^-?[0-9]{1,18}$",
    pa.float32(): r"^-?([0-9]{1,6}|[0-9]{1,3}\.[0-9]{1,3})$",
    pa.float64(): r"^-?([0-9]{1,15}|[0-9]{1,7}\.[0-9]{1,8})$",
    pa.date32(): r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$",
    pa.timestamp("us"): rf"^{_TIME}(\.[0-9]{{1,6}})?$",
    pa.timestamp("us", tz="UTC"): rf"^{_TIME}(\.[0-9]{{1,6}})?Z$",
    pa.timestamp("ms", tz="UTC"): rf"^{_TIME}(\.[0-9]{{1,3}})?Z$",
}
"""Texts that Arrow casts as `text_reader` reads them, or refuses."""


class WrongText(ValueError):
    """The text in row `row` is not a value of the column, because of `reason`."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


def is_text_in_csv(kind: pa.DataType) -> bool:
    """Return whether values of a type are written as text of ours, as Arrow's own would lose some of them."""
    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_timestamp(kind))


def csv_names(schema: pa.Schema) -> dict[str, str]:
    """Return the names in CSV of a typed topic's columns, by their own: those of bytes say that these are base64.

    Other programs write bytes as they are, and some of them are base64 by chance: their files are refused by the name.

    Raises:
        ConfigurationError: two columns have one name there.
    """
    found = {each.name: each.name + BASE64 if pa.types.is_binary(each.type) else each.name for each in schema}
    for mine, name in found.items():
        if name != mine and name in found:
            raise ConfigurationError(
                f"column {name!r} of csv is two columns, as it has the bytes of {mine!r}: use json, parquet or arrow, "
                "or leave one of them out"
            )
    return found


def typed_column(texts: pa.ChunkedArray, field: pa.Field, *, bytes_are_text: bool) -> pa.ChunkedArray:
    """Return the values that texts hold; nested ones are JSON. Binary values are base64, but for `bytes_are_text`.

    Raises:
        WrongText: a text holds none, or is null and may not be.
    """
    if not field.nullable and texts.null_count:
        row = pc.index(texts.is_valid(), False).as_py()
        raise WrongText(row, f"it is null, and may not be: expected {field.type}")
    kind = field.type
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_binary(kind) and bytes_are_text:
        return texts.cast(kind)
    plain = _plain_decimal(kind) if pa.types.is_decimal(kind) else _PLAIN.get(kind)
    if plain is not None and pc.all(pc.match_substring_regex(texts, plain)).as_py() is not False:
        try:
            return texts.cast(kind)
        except pa.ArrowException:
            pass  # One of them is out of range: the loop below finds it.
    return pa.chunked_array([pa.array(_read_values(texts, _reader(field, bytes_are_text=bytes_are_text)), kind)])


def _plain_decimal(kind: pa.DataType) -> str:
    """Return what decimals that fit look like: Arrow's cast of others may wrap around."""
    whole = kind.precision - kind.scale
    fraction = rf"(\.[0-9]{{1,{kind.scale}}})?" if kind.scale else ""
    return rf"^-?{f'[0-9]{{1,{whole}}}' if whole else '0'}{fraction}$"


def _reader(field: pa.Field, *, bytes_are_text: bool) -> Callable[[str], Any]:
    if not pa.types.is_nested(field.type):
        return text_reader(field.type)
    read = json_reader(field, bytes_are_text=bytes_are_text)
    return lambda text: read(parsed(text))


def _read_values(texts: pa.ChunkedArray, read: Callable[[str], Any]) -> list[Any]:
    values: list[Any] = []
    for text in texts.to_pylist():
        try:
            values.append(None if text is None else read(text))
        except ValueError as error:
            raise WrongText(len(values), str(error)) from None
    return values
