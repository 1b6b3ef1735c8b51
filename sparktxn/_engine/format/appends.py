"""Append objects: the append commands of an entry that would be too large, as Parquet (PROTOCOL.md, "Append objects").

The entry holds one `appends` command in the place of each run of them; it names the object with its checksum. Appends
that carry their records stay in the entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, TypeGuard

import pyarrow as pa
import pyarrow.parquet as pq

from sparktxn._engine.format.commands import Append, Appends, Command
from sparktxn._engine.format.decodeguard import check_parquet
from sparktxn._engine.format.segment import checksum
from sparktxn.errors import DamagedObject, FormatVersionError

ENTRY_BYTES_MAX: Final = 262_144
"""An entry with more bytes, inline records aside, puts its appends into an object of their own."""

_COLUMNS: Final = {
    field: column
    for field, column in zip(Append.__struct_fields__, Append.__struct_encode_fields__, strict=True)
    if field != "data"
}
_TEXTS: Final = {"segment", "checksum", "transactional_id"}
_APPENDS_MAX: Final = 1_000_000

APPENDS_SCHEMA: Final = pa.schema(
    [
        pa.field(column, pa.string() if field in _TEXTS else pa.int64(), nullable=field == "transactional_id")
        for field, column in _COLUMNS.items()
    ]
)
"""One column per member of the append command, named as in an entry."""


def encode_appends(appends: Sequence[Append]) -> bytes:
    """Return the object's bytes; rows in the order of the commands."""
    columns = [
        pa.array([getattr(append, field) for append in appends], APPENDS_SCHEMA.field(column).type)
        for field, column in _COLUMNS.items()
    ]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(columns, schema=APPENDS_SCHEMA)
    pq.write_table(table, sink, compression="zstd", compression_level=1, store_schema=False)
    return bytes(sink.getvalue().to_pybytes())


def decode_appends(data: bytes, name: str, expected: str) -> tuple[Append, ...]:
    """Return the commands in the object, whose checksum an entry names.

    Raises:
        FormatVersionError: it has a column that is not known.
        DamagedObject: its bytes are not those that the entry names, or they are not append commands.
    """
    if checksum(data) != expected:
        raise DamagedObject(name, f"its checksum is not {expected}, which the log names")
    try:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        if file.metadata.num_rows > _APPENDS_MAX:
            raise DamagedObject(name, f"it has {file.metadata.num_rows} rows: expected {_APPENDS_MAX} at most")
        if added := sorted(set(file.schema_arrow.names) - set(APPENDS_SCHEMA.names)):
            raise FormatVersionError(name, f"has columns that this version does not know: {added}")
        if check_parquet(data, APPENDS_SCHEMA.names):
            raise DamagedObject(name, "its texts are longer than those of any commands")
        table = file.read(columns=APPENDS_SCHEMA.names, use_threads=False)
        columns = [table.column(field).to_pylist() for field in APPENDS_SCHEMA.names]
    except (DamagedObject, FormatVersionError):
        raise
    except Exception as error:  # foreign bytes make the decoders below us fail in any way
        raise DamagedObject(name, f"it cannot be decoded: {error}") from error
    return tuple(Append(*row) for row in zip(*columns, strict=True))


def fold(commands: Sequence[Command], name: str) -> tuple[tuple[Command, ...], bytes]:
    """Return the commands with each run of appends as one command that names object `name`, and that object's bytes."""
    appends = [command for command in commands if _is_foldable(command)]
    data = encode_appends(appends)
    digits = checksum(data)
    folded: list[Command] = []
    start = 0
    for is_append, run in groupby(commands, key=_is_foldable):
        if not is_append:
            folded.extend(run)
            continue
        count = len(list(run))
        folded.append(Appends(object=name, checksum=digits, start=start, count=count))
        start += count
    return tuple(folded), data


def _is_foldable(command: Command) -> TypeGuard[Append]:
    return isinstance(command, Append) and not command.data


def expand(commands: Sequence[Command], appends: Sequence[Append], found_in: str) -> tuple[Command, ...]:
    """Return the commands that `fold` has folded.

    Raises:
        DamagedObject: entry `found_in` names rows that the object does not have.
    """
    expanded: list[Command] = []
    for command in commands:
        if not isinstance(command, Appends):
            expanded.append(command)
            continue
        run = appends[command.start : command.start + command.count]
        if len(run) != command.count or command.start < 0:
            raise DamagedObject(found_in, f"it names {command.count} rows of {command.object!r} from {command.start}")
        expanded.extend(run)
    return tuple(expanded)
