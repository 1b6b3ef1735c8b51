"""`txnlog consume`: print the records of topics, with kcat's habits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final

import typer

from sparktxn import TopicPartition
from sparktxn._programs.cli import completion
from sparktxn._programs.cli.failures import WrongUsage
from sparktxn._programs.cli.printedrecords import (
    Printer,
    Record,
    format_printer,
    json_line,
    parse_start,
    read_topics,
    record_of,
    records_of,
    unescaped,
)
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.standardstreams import has_reader
from sparktxn._programs.cli.verb import Order, option, verb
from sparktxn.consumer import Consumer
from sparktxn.errors import KafkaException
from sparktxn.store.options import TopicPartitionKey

app = typer.Typer()

_FLUSH_RECORDS: Final = 500
_POLL_S: Final = 0.5


class Isolation(StrEnum):
    """Which records are read."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


_Topics = Annotated[
    list[str], option("--topic", "-t", metavar="TOPIC", help="A topic to read.", autocompletion=completion.topics)
]
_Partitions = Annotated[list[int] | None, option("--partition", "-p", min=0, help="Only this partition.")]
_Offset = Annotated[
    str,
    typer.Option(
        "--offset",
        "-o",
        metavar="WHERE",
        help="beginning, end, an offset, -N for the last N records, or s@TIME: ISO 8601, milliseconds or an age.",
    ),
]
_Count = Annotated[int | None, option("--count", "-c", min=1, help="End after so many records.")]
_Exit = Annotated[bool, typer.Option("--exit", "-e", help="End when all records are read.")]
_Format = Annotated[
    str | None,
    option(
        "--format",
        "-f",
        metavar="FORMAT",
        help="%t topic, %p partition, %o offset, %k key, %s value, %h headers, %T timestamp, "
        "%K and %S lengths of key and value, \\n \\t \\x1e.",
    ),
]
_KeyDelimiter = Annotated[str | None, option("--key-delimiter", "-K", metavar="TEXT", help="Print key, TEXT, value.")]
_Delimiter = Annotated[str, typer.Option("--delimiter", "-D", metavar="TEXT", help="Printed after each record.")]
_Null = Annotated[bool, typer.Option("--null", "-Z", help="Print NULL for a key or value that is null.")]
_Group = Annotated[
    str | None,
    option(
        "--group",
        "-G",
        metavar="GROUP",
        help="Join a consumer group, and commit what was printed.",
        autocompletion=completion.groups,
    ),
]
_Order = Annotated[
    Order | None,
    option(
        "--order",
        help="commit reads what is committed, and nothing waits for open transactions. offset reads up to the last "
        "stable offsets, as groups do. The default is commit without a group and with read_committed, else offset.",
    ),
]
_Isolation = Annotated[Isolation, typer.Option("--isolation", help="Whether open and aborted transactions are read.")]


@verb(
    app,
    "consume",
    examples=[
        "txnlog consume -t orders -e",
        "txnlog consume -t orders -p 0 -o -5 -e --json",
        "txnlog consume -t orders -o s@2h -e -f '%t [%p] at %o, %T: %k = %s\\n'",
        "txnlog consume -t orders -G accounts -c 2",
        "txnlog consume -t orders -e | head -1",
    ],
)
def consume(
    session: Session,
    topics: _Topics,
    partitions: _Partitions = None,
    offset: _Offset = "beginning",
    count: _Count = None,
    exit_at_end: _Exit = False,
    format_: _Format = None,
    key_delimiter: _KeyDelimiter = None,
    delimiter: _Delimiter = "\\n",
    null: _Null = False,
    group: _Group = None,
    isolation: _Isolation = Isolation.READ_COMMITTED,
    order: _Order = None,
) -> None:
    """Print records of topics, and wait for more.

    It ends with -e at the end, with -c after a count, or with Ctrl-C. Without a format it prints values. The value of a
    typed topic's record is its columns as JSON.
    """
    printer = _printer(session, format_, key_delimiter, delimiter, b"NULL" if null else b"")
    if group is None:
        start = parse_start(offset)
        store = session.store()
        records = read_topics(
            store,
            list(dict.fromkeys(topics)),
            partitions or (),
            start,
            isolation.value,
            order=None if order is None else order.value,
            follow=not exit_at_end,
            timeout_s=session.timeout_s,
        )
        _print(records, printer, count)
        return
    if order is Order.COMMIT:
        raise WrongUsage("with --group records come in offset order, for a group's offsets say what it has read")
    if offset not in ("beginning", "end") or partitions:
        raise WrongUsage(
            "with --group the group decides the partitions, and --offset is beginning or end, for those without a "
            "committed offset: txnlog groups reset moves a group's offsets"
        )
    own = {"group_id": group, "isolation_level": isolation.value, "client_id": "txnlog"}
    reset = "earliest" if offset == "beginning" else "latest"
    settings = session.settings(**own, auto_offset_reset=reset) | {"enable.auto.offset.store": "false"}
    with Consumer(settings) as consumer:
        consumer.subscribe(topics)
        typed = _are_typed(session, topics)
        _print(_of_group(consumer, typed=typed, follow=not exit_at_end, count=count), printer, count, consumer)


def _printer(session: Session, format_: str | None, key_delimiter: str | None, delimiter: str, null: bytes) -> Printer:
    if session.out.json:
        if format_ is not None or key_delimiter is not None:
            raise WrongUsage("--json takes no --format and no --key-delimiter: leave one of them out")
        return json_line
    if format_ is not None:
        return format_printer(format_, null=null)
    between, after = None if key_delimiter is None else unescaped(key_delimiter), unescaped(delimiter)
    key, value = format_printer("%k", null=null), format_printer("%s", null=null)
    if between is None:
        return lambda record: value(record) + after
    return lambda record: key(record) + between + value(record) + after


def _print(
    records: Iterator[Record | None], printer: Printer, count: int | None, consumer: Consumer | None = None
) -> None:
    """Print up to `count` records. What has been printed and flushed is stored for the group's next commit."""
    out = sys.stdout.buffer
    printed: dict[TopicPartitionKey, int] = {}
    left, waiting = count, 0

    def flush() -> None:
        out.flush()
        if consumer is not None and printed and has_reader():
            consumer.store_offsets(offsets=[TopicPartition(*key, offset) for key, offset in printed.items()])
            printed.clear()

    for record in records:
        if record is not None:
            out.write(printer(record))
            printed[record.topic, record.partition] = record.offset + 1
            waiting += 1
            left = None if left is None else left - 1
        if record is None or waiting >= _FLUSH_RECORDS or left == 0:
            flush()
            waiting = 0
        if left == 0 or not has_reader():
            return
    flush()


def _are_typed(session: Session, topics: list[str]) -> bool:
    known = {topic.name: topic for topic in session.store().topics(session.timeout_s)}
    kinds = {known[name].schema is not None for name in topics if name in known}
    if len(kinds) > 1:
        raise WrongUsage("a group reads typed topics or topics of Kafka's records, not both in one call")
    return True in kinds


def _of_group(consumer: Consumer, *, typed: bool, follow: bool, count: int | None) -> Iterator[Record | None]:
    """Yield records that the group gives to this member; None where none waits."""
    most = _FLUSH_RECORDS if count is None else min(count, _FLUSH_RECORDS)
    while True:
        found = _typed_records(consumer, most) if typed else _messages(consumer, most)
        yield from found
        yield None
        if not found and not follow and _is_at_end(consumer):
            return


def _messages(consumer: Consumer, most: int) -> list[Record]:
    first = consumer.poll(_POLL_S)
    if first is None:
        return []
    messages = [first, *consumer.consume(most - 1, 0)]
    for message in messages:
        error = message.error()
        if error is not None:
            raise KafkaException(error)
    return [record_of(message) for message in messages]


def _typed_records(consumer: Consumer, most: int) -> list[Record]:
    table = consumer.consume_arrow(most, _POLL_S)
    return [] if table is None else [one for batch in table.to_batches() for one in records_of(batch, "", 0)]


def _is_at_end(consumer: Consumer) -> bool:
    """Return True if this member has partitions, and has read all of them to their ends."""
    positions = consumer.position(consumer.assignment())
    return bool(positions) and all(
        one.offset >= 0 and one.offset >= consumer.get_watermark_offsets(one)[1] for one in positions
    )
