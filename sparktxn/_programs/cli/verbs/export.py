"""`txnlog export`: write a topic's committed records to files for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import pyarrow as pa
import typer

from sparktxn._foundation.values.quantities import counted
from sparktxn._programs.cli import completion
from sparktxn._programs.cli.failures import WrongUsage, time_ms
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import Order, OrderOption, argument, option, verb
from sparktxn.errors import ConfigurationError
from sparktxn.store.options import Condition, SystemClock, known_columns, parse_conditions, typed_conditions
from sparktxn.store.reading import key_columns
from sparktxn.transfer import export_topic

app = typer.Typer()


class ExportedRows(StrEnum):
    """Which rows of a keyed topic are written."""

    LATEST = "latest"
    ALL = "all"


@verb(
    app,
    "export",
    examples=[
        "txnlog export -t orders orders-files",
        "txnlog export -t orders orders-lines --format json --column key --column value -p 0 --from-offset 2",
        "txnlog export -t trips trips-files --where 'fare > 5' --format csv --json",
    ],
)
def export(
    session: Session,
    folder: Annotated[Path, argument(metavar="DIR", help="A new folder, or an empty one.")],
    topic: Annotated[
        str, option("--topic", "-t", metavar="TOPIC", help="The topic.", autocompletion=completion.topics)
    ],
    file_format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="parquet, arrow, csv, or json (lines).")
    ] = "parquet",
    columns: Annotated[list[str] | None, option("--column", metavar="NAME", help="A column to write.")] = None,
    partitions: Annotated[list[int] | None, option("--partition", "-p", min=0, help="A partition to write.")] = None,
    from_offset: Annotated[int, typer.Option("--from-offset", min=0, help="The first offset.")] = 0,
    to_offset: Annotated[int | None, option("--to-offset", min=0, help="The offset to end before.")] = None,
    where: Annotated[
        list[str] | None,
        option("--where", metavar="CONDITION", help="Such as \"fare >= 5 and zone = 'north'\"; all must hold."),
    ] = None,
    rows: Annotated[
        ExportedRows | None, option("--rows", help="Of a topic with a key: its latest rows (the default), or all.")
    ] = None,
    entry: Annotated[int | None, option("--entry", min=0, help="As of this entry of the log.")] = None,
    time: Annotated[str | None, option("--time", metavar="TIME", help="As of this time.")] = None,
    order: OrderOption = Order.COMMIT,
) -> None:
    """Write the committed records of a read view to files of a local folder, one folder for each partition.

    The folder appears whole at the end, with a file _SUCCESS, or not at all. The partition's number is in the name of
    its folder. Text formats need keys and values that are UTF-8.
    """
    if entry is not None and time is not None:
        raise WrongUsage("--entry and --time exclude each other: leave one of them out")
    store = session.store()
    known = store.view([topic], timeout_s=session.timeout_s).topics[topic]
    columns_known = known_columns(known.schema)
    conditions = [condition for text in where or () for condition in _conditions(text, columns_known)]
    offsets = None
    if partitions or from_offset or to_offset is not None:
        offsets = dict.fromkeys(partitions or range(known.partition_count), (from_offset, to_offset))
    with session.out.progress("export: planning …") as shown:
        report = export_topic(
            store,
            topic,
            folder,
            file_format=file_format,
            columns=columns or None,
            offsets=offsets,
            where=conditions,
            rows=None if rows is None else rows.value,
            order=order.value,
            entry=entry,
            timestamp_ms=None if time is None else time_ms("--time", time, SystemClock().wall_ms()),
            on_progress=lambda records: shown(f"export: {counted(records, 'record')} …"),
        )
    session.out.row(msgspec.to_builtins(report))
    if key_columns(known.settings) and rows is not ExportedRows.ALL:
        session.out.remark("these are the latest rows of the keys: --rows all writes all rows, with a column _deleted")


def _conditions(text: str, known: pa.Schema) -> tuple[Condition, ...]:
    """Return the conditions of an option's text."""
    try:
        return typed_conditions(parse_conditions(text), known, SystemClock().wall_ms())
    except ConfigurationError as error:
        raise WrongUsage(f"--where {text!r}: {error}") from None
