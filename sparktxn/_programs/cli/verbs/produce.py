"""`txnlog produce`: write records from standard input or files, with kcat's habits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import pyarrow as pa
import typer

from sparktxn import Message
from sparktxn._engine.format.schema import parse_type
from sparktxn._foundation.values.quantities import counted
from sparktxn._programs.cli import completion
from sparktxn._programs.cli.failures import WrongUsage
from sparktxn._programs.cli.printedrecords import unescaped
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.standardstreams import standard_input
from sparktxn._programs.cli.verb import argument, option, verb
from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.producer import Producer
from sparktxn.store.staging import StageTopic
from sparktxn.transfer.exactvalues import WrongLine
from sparktxn.transfer.jsonrows import JsonRows, some_lines

app = typer.Typer()

_READ_BYTES: Final = 1 << 20
_TYPED_LINES: Final = 1_000
_TYPED_BYTES: Final = 4 * 1024 * 1024
_QUEUE_FULL_S: Final = 1.0


@verb(
    app,
    "produce",
    examples=[
        "printf 'apples\\npears\\n' | txnlog produce -t orders",
        "printf 'o-17:2 apples\\no-18:1 pear\\n' | txnlog produce -t orders -K : --transactional-id shop-1",
        "printf 'order data' | txnlog produce -t orders -k o-19 -H source=shop -H version=2",
        "txnlog consume -t orders -e | txnlog produce -t copies",
        'printf \'{"id": 1, "fare": 9.5}\\n\' | txnlog produce -t trips',
    ],
)
def produce(
    session: Session,
    topic: Annotated[
        str, option("--topic", "-t", metavar="TOPIC", help="The topic.", autocompletion=completion.topics)
    ],
    files: Annotated[
        list[Path] | None, argument(metavar="FILE…", help="Files, each one record; with --lines each line.")
    ] = None,
    partition: Annotated[int, typer.Option("--partition", "-p", min=-1, help="The partition; -1: by key.")] = -1,
    key: Annotated[str | None, option("--key", "-k", metavar="KEY", help="The key of all records.")] = None,
    key_delimiter: Annotated[
        str | None, option("--key-delimiter", "-K", metavar="TEXT", help="What is between key and value.")
    ] = None,
    delimiter: Annotated[str, typer.Option("--delimiter", "-D", metavar="TEXT", help="What ends a record.")] = "\\n",
    header: Annotated[
        list[str] | None, option("--header", "-H", metavar="NAME=VALUE", help="A header of all records.")
    ] = None,
    null: Annotated[bool, typer.Option("--null", "-Z", help="An empty key or value is null.")] = False,
    lines: Annotated[bool, typer.Option("--lines", "-l", help="Read lines of the files.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the keys of the rows, of a keyed topic.")] = False,
    transactional_id: Annotated[
        str | None,
        option(
            "--transactional-id",
            metavar="ID",
            help="Write all records in one transaction.",
            autocompletion=completion.transactional_ids,
        ),
    ] = None,
) -> None:
    """Write a record for each line of standard input, or for each file.

    With --transactional-id all records of one call become visible together, or none of them: also if the call fails, or
    is killed. A typed topic takes a JSON object on each line; of a keyed one with "_deleted": true it deletes the key.
    """
    between, after = None if key_delimiter is None else unescaped(key_delimiter), unescaped(delimiter)
    if not after or between == b"":
        raise WrongUsage("--delimiter and --key-delimiter must not be empty")
    if key is not None and between is not None:
        raise WrongUsage("--key and --key-delimiter exclude each other: leave one of them out")
    state = _existing(session, topic)
    common: dict[str, Any] = {"partition": partition, "headers": _headers(header)}
    own_key = None if key is None else key.encode("utf-8", "surrogateescape")
    if delete and not state.primary_key:
        raise WrongUsage(f"topic {topic!r} has no key (primary.key): leave --delete out")
    wrong_for_typed = own_key is not None or between is not None or common["headers"]
    if state.schema is not None and wrong_for_typed:
        raise WrongUsage(f"topic {topic!r} is typed: its records have columns, and neither keys nor headers")
    texts = _texts(files or (), after, lines=lines or state.schema is not None)
    settings = session.settings(transactional_id=transactional_id)
    writer = _Writer(Producer(settings), topic, session.timeout_s)
    with writer.producer:
        if transactional_id is not None:
            writer.producer.init_transactions(session.timeout_s)
        with writer.producer.transaction() if transactional_id is not None else nullcontext():
            if state.schema is not None:
                writer.write_typed(texts, state, partition, delete=delete)
            else:
                for text in texts:
                    record = _key_and_value(text, own_key, between, null=null)
                    writer.write(record, common)
        writer.finish()
    row = {"topic": topic, "record_count": writer.count, "transactional_id": transactional_id}
    if session.out.json:
        session.out.row(row)
    else:
        session.out.remark(f"wrote {counted(writer.count, 'record')} to topic {topic}")


class _Writer:
    """Writes the records of one call, and learns whether they are stored."""

    def __init__(self, producer: Producer, topic: str, timeout_s: float) -> None:
        self.producer = producer
        self.count = 0
        self._topic = topic
        self._timeout_s = timeout_s
        self._error: KafkaError | None = None

    def write(self, record: tuple[bytes | None, bytes | None], common: dict[str, Any]) -> None:
        """Queue one record; wait while the queue is full."""
        key, value = record
        while True:
            try:
                self.producer.produce(self._topic, value, key, on_delivery=self._delivered, **common)
                break
            except BufferError:
                self.producer.poll(_QUEUE_FULL_S)
        self.count += 1
        self._check()

    def write_typed(self, lines: Iterator[bytes], topic: StageTopic, partition: int, *, delete: bool) -> None:
        """Queue a record for each line, a JSON object.

        Raises:
            WrongUsage: a line does not have the topic's columns.
        """
        schema = _schema(topic)
        rows = JsonRows(schema, whole=() if delete else topic.whole_columns)
        for some in some_lines(lines, _TYPED_LINES, _TYPED_BYTES):
            self._write_rows(rows, some, schema, partition, delete=delete)

    def _write_rows(
        self, rows: JsonRows, lines: list[tuple[int, bytes]], schema: pa.Schema, partition: int, *, delete: bool
    ) -> None:
        try:
            table = rows.table(lines)
        except WrongLine as error:
            expected = ", ".join(f"{field.name} {field.type}" for field in schema)
            raise WrongUsage(
                f"line {error.line} is not a record of the topic: {error.reason}; expected {expected}"
            ) from None
        self.producer.produce_arrow(self._topic, table, partition, delete=delete)
        self.count += table.num_rows

    def finish(self) -> None:
        """Wait until all records are stored.

        Raises:
            KafkaException: one of them is not.
        """
        left = self.producer.flush(self._timeout_s)
        self._check()
        if left:
            reason = (
                f"{counted(left, 'record')} not stored within {self._timeout_s:g} s: write them again, or use --timeout"
            )
            raise KafkaException(KafkaError(ErrorCode.LOCAL_TIMED_OUT, reason))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._error = self._error or error

    def _check(self) -> None:
        if self._error is not None:
            raise KafkaException(self._error)


def _existing(session: Session, name: str) -> StageTopic:
    return session.store().stage_plan([name], timeout_s=session.timeout_s).topics[name]


def _schema(topic: StageTopic) -> pa.Schema:
    columns = topic.schema or ()
    return pa.schema([pa.field(name, parse_type(type_), nullable=nullable) for name, type_, nullable in columns])


def _headers(given: list[str] | None) -> list[tuple[str, bytes | None]]:
    pairs: list[tuple[str, bytes | None]] = []
    for text in given or ():
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise WrongUsage(f"--header {text!r} is malformed: expected NAME=VALUE")
        pairs.append((name, value.encode("utf-8", "surrogateescape")))
    return pairs


def _key_and_value(
    text: bytes, key: bytes | None, between: bytes | None, *, null: bool
) -> tuple[bytes | None, bytes | None]:
    if between is not None and between in text:
        key, _, text = text.partition(between)
    value: bytes | None = text
    return (None if null and not key else key), (None if null and not value else value)


def _texts(files: list[Path] | tuple[()], delimiter: bytes, *, lines: bool) -> Iterator[bytes]:
    """Yield what is to be written: the texts between delimiters of standard input or of files, or whole files."""
    if not files:
        yield from _split(standard_input().buffer, delimiter)
    for file in files:
        if lines:
            with file.open("rb") as stream:
                yield from _split(stream, delimiter)
        else:
            yield file.read_bytes()


def _split(stream: BinaryIO, delimiter: bytes) -> Iterator[bytes]:
    """Yield the texts between delimiters; the last one needs none after it."""
    rest = b""
    # What a terminal or a pipe has is taken at once, not only when there is much of it.
    read = getattr(stream, "read1", stream.read)
    while data := read(_READ_BYTES):
        *whole, rest = (rest + data).split(delimiter)
        yield from whole
    if rest:
        yield rest
