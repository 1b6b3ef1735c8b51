"""A writer of stores made by the words of docs/PROTOCOL.md alone.

It imports nothing of the product. It creates a store or continues one, creates topics, and writes transactions and
records outside of them, with consumers' offsets. It holds nothing between two calls: each reads the log to its end.
"""

from __future__ import annotations

import base64
import copy
import io
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from tests.compatibility.independent_reader import LONG, MEMBERS, StoreReader, crc32c, padded
from tests.compatibility.independent_replay import Command, Damaged, Replay

__all__ = ["Identity", "Refused", "StoreWriter"]

SHORT = {long: short for short, long in LONG.items()}
RECORD = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string(), False), pa.field("value", pa.binary())]))),
        pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
    ]
)
TYPES = {"int64": pa.int64(), "string": pa.string(), "double": pa.float64()}
ONGOING = 1
INLINE_BYTES = 65_536
CLOCK_MAX_S = 600


class Refused(Exception):
    """The state does not accept the commands: nothing was put."""


class Identity(NamedTuple):
    """What `init_producer_id` has given."""

    transactional_id: str | None
    producer_id: int
    epoch: int


def token() -> str:
    """20 of the characters 0-9a-v, from 100 random bits."""
    number = secrets.randbits(100)
    return "".join("0123456789abcdefghijklmnopqrstuv"[number >> 5 * place & 31] for place in range(20))


def _file(table: pa.Table, suffix: str) -> bytes:
    buffer = io.BytesIO()
    if suffix == "arrow":
        with pa.ipc.new_file(buffer, table.schema) as file:
            file.write_table(table)
    else:
        plain = table.replace_schema_metadata(None)
        pa.parquet.write_table(plain, buffer, compression="zstd", store_schema=False, data_page_version="1.0")
    return buffer.getvalue()


def sealed(document: Mapping[str, Any]) -> bytes:
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()[:-1]
    return body + f',"checksum":"{crc32c(body):08x}"}}'.encode()


class StoreWriter:
    """Writes into the store in a local folder. `before_put` is called before each put of an entry.

    An append carries its records if they are at most `inline_rows`; these are written as `inline` says: `zstd` or
    `plain`.
    """

    def __init__(
        self, root: Path, before_put: Callable[[], None] = lambda: None, *, inline_rows: int = 0, inline: str = "zstd"
    ) -> None:
        self.root = root
        self.inline_rows, self.inline = inline_rows, inline
        self.before_put = before_put
        self._time_checked = False
        document = {"format": 1, "store_id": token(), "created_ms": time.time_ns() // 1_000_000}
        if not (root / "_txnlog.json").exists():
            self.put_if_absent("_txnlog.json", sealed(document))

    # objects

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create an object whole and durably; False if the name is taken."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.parent / f".{token()}"
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
        finally:
            temporary.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return True

    def check_time(self) -> None:
        """Compare the clock with the store's: ten minutes apart are too many."""
        if self._time_checked:
            return
        name = f"_log/_clock/{token()}"
        self.put_if_absent(name, b"{}")
        seconds = abs((self.root / name).stat().st_mtime - time.time())
        (self.root / name).unlink()
        if seconds > CLOCK_MAX_S:
            raise Refused(f"the clock is {seconds} s away from the store's")
        self._time_checked = True

    # the log

    def state(self) -> tuple[Replay, str]:
        """The state after the newest entry, confirmed, and that entry's checksum."""
        reader = StoreReader(self.root)
        state = reader.state_from_checkpoint() if reader.heads() else reader.state_from_first()
        name = f"_log/{padded(state.entry)}.json"
        checksum = json.loads(reader.get(name))["checksum"] if state.entry else "00000000"
        return state, checksum

    def commit(self, make: Callable[[Replay], Sequence[Command]]) -> Replay:
        """Put the commands that `make` makes of the newest state, as one list; return the state after them.

        Raises:
            Refused: the state does not accept them.
        """
        self.check_time()
        while True:
            state, previous = self.state()
            now_ms = max(time.time_ns() // 1_000_000, state.timestamp_ms)
            changed = copy.deepcopy(state)
            try:
                # Decoded as a reader does it, before anything is put.
                made = json.loads(json.dumps(make(state)))
                commands = [MEMBERS[one["type"]][1] | one for one in made]
                changed.apply(state.entry + 1, now_ms, commands)
            except Damaged as refused:
                raise Refused(str(refused)) from None
            body_token = token()
            entry = {
                "format": 1,
                "entry": state.entry + 1,
                "token": body_token,
                "previous": previous,
                "timestamp_ms": now_ms,
                "commands": [{SHORT.get(name, name): value for name, value in one.items()} for one in commands],
            }
            self.before_put()
            name = f"_log/{padded(state.entry + 1)}.json"
            self.put_if_absent(name, sealed(entry))
            found = json.loads(StoreReader(self.root).get(name))
            if StoreReader(self.root).horizon() > state.entry + 1:
                raise AssertionError("a vacuum has passed the slot: this writer does not look for its commands again")
            if found["token"] == body_token:
                return changed

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        settings: Mapping[str, str] | None = None,
        schema: Sequence[tuple[str, str, bool]] | None = None,
    ) -> None:
        request = token()
        made = {"type": "create_topic", "request_id": request, "name": name, "partition_count": partitions}
        self.commit(lambda _: [made | {"settings": dict(settings or {}), "schema": schema}])

    def init_producer_id(self, transactional_id: str | None = None) -> Identity:
        request = token()
        made = {"type": "init_producer_id", "request_id": request, "transactional_id": transactional_id}
        state = self.commit(lambda _: [made])
        if transactional_id is None:
            return Identity(None, state.store()["next_producer_id"] - 1, 0)
        known = state.existing("transaction", transactional_id)
        return Identity(transactional_id, known["producer_id"], known["producer_epoch"])

    # records

    def stage(self, born: int, topic: Command, partition: int, rows: Sequence[Mapping[str, Any]]) -> Command:
        """Upload a segment, or encode it for the entry; return the members of an `append` that say what it is."""
        columns = topic["schema"]
        name = "timestamp" if columns is None else "_timestamp"
        schema = RECORD
        if columns is not None:
            declared = [pa.field(column, TYPES[kind], nullable) for column, kind, nullable in columns]
            schema = pa.schema([*declared, RECORD.field("timestamp").with_name(name)])
        now_ms = time.time_ns() // 1_000_000
        times = [int(row.get(name, now_ms)) for row in rows]
        moments = [datetime.fromtimestamp(milliseconds / 1_000, UTC) for milliseconds in times]
        table = pa.Table.from_pylist(
            [dict(row) | {name: moment} for row, moment in zip(rows, moments, strict=True)], schema
        )
        inside: Command = {}
        if len(rows) <= self.inline_rows and len(data := self._stream(table)) <= INLINE_BYTES:
            segment, inside = f"{token()}.inline", {"data": base64.b64encode(data).decode()}
        else:
            suffix = topic["settings"].get("segment.format", "parquet")
            data, segment = _file(table, suffix), f"{padded(born)}-{token()}.{suffix}"
            folder = f"topics/{topic['name']}-{topic['topic_id']}/kafka_partition={partition}"
            assert self.put_if_absent(f"{folder}/{segment}", data)
        return inside | {
            "type": "append",
            "topic_id": topic["topic_id"],
            "partition": partition,
            "segment": segment,
            "record_count": len(rows),
            "size_bytes": len(data),
            "checksum": f"{crc32c(data):08x}",
            "timestamp_min_ms": min(times),
            "timestamp_max_ms": max(times),
        }

    def _stream(self, table: pa.Table) -> bytes:
        """The rows as inline records."""
        buffer = io.BytesIO()
        with pa.ipc.new_stream(buffer, table.schema) as stream:
            stream.write_table(table.combine_chunks())
        if self.inline == "plain":
            return buffer.getvalue()
        return bytes(pa.compress(buffer.getvalue(), codec="zstd", asbytes=True))

    def write(
        self,
        producer: Identity,
        rows: Mapping[tuple[str, int], Sequence[Mapping[str, Any]]],
        *,
        offsets: tuple[str, Mapping[tuple[str, int], int]] | None = None,
        commit: bool = True,
    ) -> None:
        """Write records by (topic, partition): a transaction in one list, or without a transactional id plain appends.

        `offsets` are a group's, by (topic, partition), in the transaction. An aborted one takes two lists: what has
        begun must be in the log before it can end.
        """
        state, _ = self.state()
        staged = [
            self.stage(state.entry, state.existing("topic", topic), partition, some)
            for (topic, partition), some in rows.items()
        ]

        def begun(state: Replay) -> list[Command]:
            made = [self._numbered(state, producer, append) for append in staged]
            if offsets is not None:
                places = [
                    [state.existing("topic", topic)["topic_id"], number, offset, "", -1, -1]
                    for (topic, number), offset in offsets[1].items()
                ]
                inside = self._in_transaction(state, producer)
                made.append({"type": "txn_offset_commit", "group_id": offsets[0], "offsets": places} | inside)
            return made

        def ended(state: Replay) -> list[Command]:
            return [{"type": "end_txn", "committed": commit} | self._in_transaction(state, producer)]

        if producer.transactional_id is None:
            self.commit(begun)
        elif commit:
            self.commit(lambda state: [*begun(state), *ended(state)])
        else:
            self.commit(begun)
            self.commit(ended)

    def _in_transaction(self, state: Replay, producer: Identity) -> Command:
        known = state.existing("transaction", producer.transactional_id)
        number = known["transaction"] if known["status"] == ONGOING else known["transaction"] + 1
        return {
            "transactional_id": producer.transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "transaction": number,
        }

    def _numbered(self, state: Replay, producer: Identity, append: Command) -> Command:
        """Give an `append` its identity, and the sequence after the producer's last in the partition."""
        inside = self._in_transaction(state, producer) if producer.transactional_id is not None else {}
        known = state.get("producer", append["topic_id"], append["partition"], producer.producer_id)
        follows = known is not None and known["producer_epoch"] == producer.epoch and known["batches"]
        sequence = (known["batches"][-1][1] + 1) % 2**31 if follows else 0
        identity = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
        return append | identity | inside | {"base_sequence": sequence}
