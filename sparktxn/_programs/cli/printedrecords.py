"""What `txnlog consume` reads, and how it prints a record: by a format string, or as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparktxn import TIMESTAMP_LOG_APPEND_TIME, Message, PartitionView, ReadTask, ReadView
from sparktxn._engine.format.schema import DELETED_COLUMN
from sparktxn._programs.cli.failures import WrongUsage, time_ms
from sparktxn.consumer.polling import messages_of
from sparktxn.errors import ViewExpired
from sparktxn.store import Store, read_task
from sparktxn.store.options import SystemClock, TopicPartitionKey
from sparktxn.store.reading import Isolation, Order, checked_order, end_of
from sparktxn.transfer.jsonrows import encoded, json_bytes, json_values

Printer = Callable[["Record"], bytes]


class Record(NamedTuple):
    """One record. A typed topic's has `columns`, and as its value the columns as JSON."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    is_log_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    columns: dict[str, Any] | None = None


def record_of(message: Message) -> Record:
    """Return a client's message as a record."""
    kind, timestamp_ms = message.timestamp()
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        timestamp_ms,
        kind == TIMESTAMP_LOG_APPEND_TIME,
        message.key(),
        message.value(),
        message.headers() or [],
    )


def records_of(batch: pa.RecordBatch, topic: str, partition: int) -> Iterator[Record]:
    """Yield the rows of a batch as a reader of the topic gets it."""
    messages = messages_of(batch, topic, partition)
    yield from _typed(batch) if messages is None else map(record_of, messages)


def _typed(batch: pa.RecordBatch) -> Iterator[Record]:
    # A delete must not look like a row.
    names = [name for name in batch.schema.names if not name.startswith("_") or name == DELETED_COLUMN]
    times = batch.column("_timestamp").cast(pa.int64()).to_pylist()
    places = [batch.column(name).to_pylist() for name in ("_topic", "_partition", "_offset")]
    values = (json_values(batch.schema.field(name), batch.column(name)) for name in names)
    rows = (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))
    for columns, timestamp_ms, topic, partition, offset in zip(rows, times, *places, strict=True):
        yield Record(topic, partition, offset, timestamp_ms, False, None, encoded(columns), [], columns)


def json_line(record: Record) -> bytes:
    """Return a record as JSON on a line; bytes that are not UTF-8 are in ``key_base64`` or ``value_base64``."""
    row: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": "log_append" if record.is_log_append_time else "create",
    }
    if record.columns is not None:
        row["value"] = record.columns
    else:
        row |= json_bytes("key", record.key) | json_bytes("value", record.value)
        row["headers"] = [{"name": name} | json_bytes("value", value) for name, value in record.headers]
    return encoded(row) + b"\n"


def readable(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with bytes as text; those that are not UTF-8 are base64, under their name with ``_base64``."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            found |= json_bytes(name, value)
        elif isinstance(value, dict):
            found[name] = readable(value)
        elif isinstance(value, list):
            found[name] = [readable(item) if isinstance(item, dict) else item for item in value]
        else:
            found[name] = value
    return found


_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PARTS = re.compile(r"\\(?P<hex>x[0-9a-fA-F]{2})|\\(?P<escape>.)|%(?P<token>.)|(?P<text>[^\\%]+|[\\%])", re.DOTALL)
_TOKENS: Final = "%t %p %o %k %s %h %T %K %S %%"


def unescaped(text: str) -> bytes:
    r"""Return the bytes that ``\n``, ``\t``, ``\x1e`` and their like mean.

    Raises:
        WrongUsage: an escape is unknown.
    """
    return b"".join(_escape(part, text) for part in _PARTS.finditer(text))


def _escape(part: re.Match[str], text: str) -> bytes:
    if part["hex"]:
        return bytes([int(part["hex"][1:], 16)])
    if part["escape"]:
        if part["escape"] not in _ESCAPES:
            raise WrongUsage(rf"{text!r} has the unknown escape \{part['escape']}: expected \n \r \t \0 \\ or \xNN")
        return _ESCAPES[part["escape"]]
    return part[0].encode("utf-8", "surrogateescape")


def format_printer(text: str, *, null: bytes = b"") -> Printer:
    r"""Return what prints a record by kcat's format string; `null` is printed for a key or a value that is null.

    Its tokens are topic, partition, offset, key, value, headers, timestamp in milliseconds, and the lengths of key and
    value in bytes (-1 for null)::

        %t %p %o %k %s %h %T %K %S %%

    Raises:
        WrongUsage: a token or an escape is unknown.
    """
    tokens: dict[str, Printer] = {
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "k": lambda record: null if record.key is None else record.key,
        "s": lambda record: null if record.value is None else record.value,
        "h": lambda record: b",".join(_header(name, value, null) for name, value in record.headers),
        "T": lambda record: b"%d" % record.timestamp_ms,
        "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
        "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
    }
    parts: list[Printer] = []
    for part in _PARTS.finditer(text):
        token = part["token"]
        if token in tokens:
            parts.append(tokens[token])
        elif token not in (None, "%"):
            raise WrongUsage(f"--format {text!r} has the unknown token %{token}: expected {_TOKENS}")
        else:
            plain = b"%" if token else _escape(part, text)
            parts.append(lambda record, plain=plain: plain)  # type: ignore[misc]
    return lambda record: b"".join(part(record) for part in parts)


def _header(name: str, value: bytes | None, null: bytes) -> bytes:
    return name.encode() + b"=" + (null if value is None else value)


# Reading topics without a group: from offsets that a user names, to the end or on and on.

_BATCH_ROWS: Final = 1_000
_TAIL_OFFSETS: Final = 64
_TAIL_GROWTH: Final = 8
_WAIT_S_MIN: Final = 0.05
_WAIT_S_MAX: Final = 1.0
_EXPECTED: Final = "beginning, end, an offset, -N for the last N, or s@TIME"


class Start(NamedTuple):
    """Where reading starts in each partition: at an offset, so many records before the end, or at a time."""

    offset: int | None = None
    before_end: int | None = None
    timestamp_ms: int | None = None


class _How(NamedTuple):
    """Which records are read, and what decides where a reader waits."""

    isolation: Isolation
    order: Order


def parse_start(text: str) -> Start:
    """Return where to start, as kcat writes it.

    Raises:
        WrongUsage: it is none of the forms.
    """
    if text in ("beginning", "end"):
        return Start(offset=0) if text == "beginning" else Start(before_end=0)
    if text.startswith("s@"):
        return Start(timestamp_ms=time_ms("--offset s@", text[2:], SystemClock().wall_ms()))
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise WrongUsage(f"--offset {text!r} is malformed: expected {_EXPECTED}")
    number = int(text)
    return Start(offset=number) if number >= 0 else Start(before_end=-number)


class _Reader:
    """Where a reader of some partitions stands.

    A round reads a view: what was committed after the last round, or in offset order what follows its end. A round that
    is broken off continues where it was.
    """

    def __init__(self, store: Store, topics: Sequence[str], partitions: Sequence[int], start: Start, how: _How) -> None:
        self._store = store
        self._topics = topics
        self._partitions = partitions
        self._start = start
        self._isolation, self._order = how
        self._after_entry = 0
        self._to_entry: int | None = None
        self._floors: dict[TopicPartitionKey, int] = {}
        self._positions: dict[TopicPartitionKey, int] = {}
        self._read = partial(read_task, options=store.options)

    def view(self, timeout_s: float) -> ReadView:
        """Return the newest view, with a position for each partition that is to be read.

        Raises:
            WrongUsage: a partition does not exist.
        """
        view = self._store.view(self._topics, timeout_s=timeout_s)
        is_first = not self._positions
        for key, partition in view.partitions.items():
            if key not in self._positions and (not self._partitions or key[1] in self._partitions):
                self._positions[key] = self._first(view, partition) if is_first else partition.log_start_offset
        for topic in self._topics:
            count = view.topics[topic].partition_count
            missing = [number for number in self._partitions if number >= count]
            if missing:
                raise WrongUsage(f"topic {topic!r} has partitions 0 to {count - 1}, not {missing[0]}")
        if is_first and self._start.offset is not None:
            self._floors = dict.fromkeys(self._positions, self._start.offset)
        return view

    def _first(self, view: ReadView, partition: PartitionView) -> int:
        start, end = partition.log_start_offset, self._end(partition)
        wanted = self._start
        if wanted.timestamp_ms is not None:
            found = self._store.offset_for_time(
                partition, wanted.timestamp_ms, order=self._order, isolation=self._isolation
            )
            return end if found is None else found
        if wanted.before_end is not None:
            return self._last(view, partition, wanted.before_end)
        return max(start, wanted.offset or 0)

    def _last(self, view: ReadView, partition: PartitionView, count: int) -> int:
        """Return the offset from which on a partition has `count` records, or its start if it has fewer.

        Ends of transactions take offsets, and some records are not shown: the last offsets may hold none.
        """
        start, end = partition.log_start_offset, self._end(partition)
        if not count:
            return max(start, end - count)
        key, width = (partition.topic.name, partition.partition), _TAIL_OFFSETS + 2 * count
        while True:
            low = max(start, end - width)
            bounds = {key: (low, end)}
            tasks = self._store.plan_view(
                view, order=self._order, isolation=self._isolation, bounds=bounds, by_segment=True, rows="all"
            )
            kept = [bounds for task in tasks for bounds in task.kept_offsets(self._read)]
            missing = count
            for first, last in reversed(kept):
                if last - first >= missing:
                    return last - missing
                missing -= last - first
            if low == start:
                return start
            width *= _TAIL_GROWTH

    def _end(self, partition: PartitionView) -> int:
        return end_of(partition, self._isolation, self._order)

    def records(self, view: ReadView) -> Iterator[Record]:
        """Yield the records of a round, partition by partition."""
        if self._to_entry is None:
            self._to_entry = view.entry
        for key, position in self._positions.items():
            for task in self._tasks(view, key, position):
                for batch in read_task(task, self._store.options, batch_rows=_BATCH_ROWS):
                    for record in records_of(batch, *key):
                        # Before it is handed out: a reader that is asked again goes on after it.
                        self._positions[key] = record.offset + 1
                        yield record
            self._positions[key] = max(position, self._end(view.partitions[key]))
        self._after_entry, self._to_entry = self._to_entry, None
        if self._order == "commit":
            # What is committed later may lie below what was read: only an offset that was asked for is a limit.
            self._positions = {key: self._floors.get(key, 0) for key in self._positions}

    def _tasks(self, view: ReadView, key: TopicPartitionKey, position: int) -> Sequence[ReadTask]:
        if self._order == "commit":
            bounds = {key: (position, None)}
            return self._store.plan_commits(view, self._after_entry, to_entry=self._to_entry, bounds=bounds, rows="all")
        bounds = {key: (position, None)}
        return self._store.plan_view(view, order="offset", isolation=self._isolation, bounds=bounds, rows="all")


def read_topics(
    store: Store,
    topics: Sequence[str],
    partitions: Sequence[int],
    start: Start,
    isolation: Isolation,
    *,
    follow: bool,
    timeout_s: float,
    order: Order | None = None,
) -> Iterator[Record | None]:
    """Yield the records of topics; None where all existing ones have been given. Without `follow` it ends there.

    `partitions` are those to read, none means all. Records that are deleted while they are read are left out. `order`
    is as in `Store.plan_view`. In commit order records come when they are committed, whatever lies before them.

    Raises:
        ConfigurationError: the order does not go with the isolation level.
        WrongUsage: a partition does not exist.
        CommandRefused: a topic does not exist.
        DamagedObject: an object is missing or altered.
    """
    reader = _Reader(store, topics, partitions, start, _How(isolation, checked_order(order, isolation)))
    clock = SystemClock()
    wait_s, expired = _WAIT_S_MIN, False
    while True:
        found = False
        try:
            for record in reader.records(reader.view(timeout_s)):
                found, expired = True, False
                yield record
        except ViewExpired:
            # The vacuum has passed the view; a newer one names the existing segments, unless something else is wrong.
            if expired:
                raise
            expired = True
            continue
        yield None
        if not follow:
            return
        wait_s = _WAIT_S_MIN if found else min(wait_s * 2, _WAIT_S_MAX)
        clock.sleep(wait_s)
