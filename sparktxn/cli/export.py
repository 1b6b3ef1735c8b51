"""`txnlog export`: write a topic's committed records to files for other programs."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import typer

from sparktxn.cli.failures import WrongUsage
from sparktxn.cli.session import Session
from sparktxn.cli.text import parse_time_ms
from sparktxn.cli.verb import Order, OrderOption, verb
from sparktxn.clock import SystemClock
from sparktxn.scan.columns import known_columns
from sparktxn.scan.conditions import OPERATORS, Condition
from sparktxn.transfer import export_topic

__all__ = ["app"]

app = typer.Typer()

_WORDS = "|".join(re.escape(word) for word in sorted(OPERATORS, key=len, reverse=True))
_CONDITION = re.compile(rf"\s*(?P<column>[^\s=<>!]+)\s*(?P<operator>{_WORDS})(?:\s*(?P<value>\S.*?))?\s*", re.DOTALL)


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
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.", show_default=False)],
    topic: Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic.", show_default=False)],
    file_format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="parquet, arrow, csv, or json (lines).")
    ] = "parquet",
    columns: Annotated[
        list[str] | None, typer.Option("--column", metavar="NAME", help="A column to write.", show_default=False)
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="A partition to write.", show_default=False)
    ] = None,
    from_offset: Annotated[int, typer.Option("--from-offset", min=0, help="The first offset.")] = 0,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, help="The offset to end before.", show_default=False)
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="CONDITION", help="Such as 'fare >= 5'; all must hold.", show_default=False),
    ] = None,
    entry: Annotated[
        int | None, typer.Option("--entry", min=0, help="As of this entry of the log.", show_default=False)
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="TIME", help="As of this time.", show_default=False)
    ] = None,
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
    conditions = [_condition(text, known_columns(known.schema)) for text in where or ()]
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
            order=order.value,
            entry=entry,
            timestamp_ms=None if time is None else _time_ms("--time", time),
            on_progress=lambda records: shown(f"export: {records} records …"),
        )
    session.out.row(msgspec.to_builtins(report))


def _time_ms(option: str, text: str) -> int:
    try:
        return parse_time_ms(text, SystemClock().wall_ms())
    except ValueError as error:
        raise WrongUsage(f"{option}: {error}") from None


def _condition(text: str, known: pa.Schema) -> Condition:
    """Return the condition in a text such as ``fare >= 5``.

    The value is text for a column of text or bytes, a time for one of timestamps, and JSON otherwise.
    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise WrongUsage(f"--where {text!r} is malformed: expected COLUMN OPERATOR VALUE, such as 'fare >= 5'")
    column, operator, value = found["column"], found["operator"], found["value"]
    if value is None or column not in known.names:
        return Condition(column, operator)
    kind = known.field(column).type
    if operator != "in":
        return Condition(column, operator, _value(text, value, kind))
    return Condition(column, operator, tuple(_value(text, one.strip(), kind) for one in value.strip("()").split(",")))


def _value(where: str, text: str, kind: pa.DataType) -> Any:
    if pa.types.is_binary(kind):
        return text.encode()
    if pa.types.is_string(kind):
        return text
    if pa.types.is_timestamp(kind):
        return datetime.fromtimestamp(_time_ms("--where", text) / 1000, UTC)
    try:
        return json.loads(text)
    except ValueError:
        raise WrongUsage(f"--where {where!r}: {text!r} is no value of a column of {kind}") from None
