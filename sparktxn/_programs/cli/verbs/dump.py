"""`txnlog dump`: one object of a store, decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from sparktxn._engine.format import names
from sparktxn._engine.format.appends import decode_appends
from sparktxn._engine.format.checkpoint import decode_head, decode_hint
from sparktxn._engine.format.commands import Append, PrepareHalf
from sparktxn._engine.format.entry import decode_entry, decode_store
from sparktxn._engine.format.manifest import decode_manifest
from sparktxn._engine.format.schema import with_offsets
from sparktxn._engine.format.segment import checksum, decode_segment, decode_stream, stored_schema
from sparktxn._engine.format.snapshot import decode_snapshot
from sparktxn._engine.format.txnindex import decode_transaction_index
from sparktxn._programs.cli.failures import WrongUsage
from sparktxn._programs.cli.printedrecords import readable
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import argument, verb
from sparktxn.errors import ConfigurationError, DamagedObject
from sparktxn.store import Store, TableSelection, read_table_task
from sparktxn.store.registry import read_object

app = typer.Typer()

_Decoded = dict[str, Any]


@verb(
    app,
    "dump",
    examples=["txnlog dump 2", "txnlog dump _txnlog.json", "txnlog dump checkpoint --json"],
)
def dump(
    session: Session,
    name: Annotated[
        str,
        argument(
            metavar="OBJECT",
            help="An entry's number, 'checkpoint' for the newest one, or an object's name below the store's address.",
        ),
    ],
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Print so many records of a segment.")] = 10,
) -> None:
    """Decode one object: an entry, a checkpoint, a manifest, an index, a producer snapshot or a segment.

    It is checked as a reader checks it. The verbs log and files name objects. A segment is shown as it is stored. Its
    states say whether its records are committed, open or aborted, or in no file that the newest view reads.
    """
    store = session.store()
    name = _name(store, name)
    try:
        data = read_object(store.uri, name, store.options)
    except ConfigurationError as error:
        raise WrongUsage(str(error)) from None
    decoded = {"kind": None, "checksum": checksum(data), **_decoded(store, name, data, count)}
    row = {"object": name, "size_bytes": len(data), **decoded}
    if session.out.json:
        session.out.row(row)
    else:
        session.out.document(row)


def _name(store: Store, text: str) -> str:
    """Return the name of the object that a user has written in short."""
    if text.isascii() and text.isdigit():
        return names.entry(int(text))
    if text != "checkpoint":
        return text.removeprefix(f"{store.log.objects.uri.rstrip('/')}/")
    hint = decode_hint(_read(store, names.LAST_CHECKPOINT))
    if hint is None:
        raise DamagedObject(names.LAST_CHECKPOINT, "it names no checkpoint")
    return names.checkpoint_head(hint.entry, hint.checkpoint)


def _read(store: Store, name: str) -> bytes:
    data = store.log.objects.get(name)
    if data is None:
        raise WrongUsage("the store has no checkpoint yet: writers make one after checkpoint.entries entries")
    return data


def _decoded(store: Store, name: str, data: bytes, count: int) -> _Decoded:
    entry, head, part = names.parse_entry(name), names.parse_checkpoint_head(name), names.parse_partition_object(name)
    if entry is not None:
        decoded = decode_entry(data, name, entry)
        found: _Decoded = {"kind": "entry"} | _builtins(decoded)
        for command, shown in zip(decoded.commands, found["commands"], strict=True):
            if isinstance(command, Append) and command.data:
                shown["data"] = _inline(store, name, command.topic_id, command.data, count)
            elif isinstance(command, PrepareHalf):
                topic_ids = {segment.segment: segment.topic_id for segment in command.segments}
                for segment, data in command.data.items():
                    shown["data"][segment] = _inline(store, name, topic_ids.get(segment, 0), data, count)
        return found
    if head is not None:
        return {"kind": "checkpoint"} | _builtins(decode_head(data, name, head[0]))
    if name == names.STORE:
        return {"kind": "store"} | _builtins(decode_store(data, name))
    if names.parse_appends(name) is not None:
        return {"kind": "appends", "commands": _list(decode_appends(data, name, checksum(data)))}
    if part is not None:
        return _of_partition(store, name, data, part, count)
    try:
        return {"kind": "document", "content": msgspec.json.decode(data)}
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise WrongUsage(f"object {name!r} is none that this command decodes: expected a name that it prints") from None


def _of_partition(store: Store, name: str, data: bytes, part: tuple[int, int, str], count: int) -> _Decoded:
    topic_id, _, file = part
    decoders: dict[str, tuple[str, Callable[[bytes, str], Any]]] = {
        "/manifest": ("manifest", decode_manifest),
        ".txnindex": ("transaction_index", decode_transaction_index),
        ".snapshot": ("producer_snapshot", decode_snapshot),
    }
    for ending, (kind, decode) in decoders.items():
        if name.endswith(ending):
            return {"kind": kind, "rows": _list(decode(data, name))}
    if names.parse_segment_born(file) is None:
        raise WrongUsage(f"object {name!r} is none that this command decodes: expected a segment, or a sealed file")
    topic = next((known for known in store.topics() if known.topic_id == topic_id), None)
    schema = _own_schema(data) if topic is None else stored_schema(topic.schema)
    if topic is not None and names.has_offsets(file):
        schema = with_offsets(schema)
    table = decode_segment(data, name, schema=schema)
    return {
        "kind": "segment",
        "topic": None if topic is None else topic.name,
        "states": [] if topic is None else _states(store, topic.name, part[1], name),
        "born": names.parse_segment_born(file),
        "record_count": table.num_rows,
        "columns": {field.name: str(field.type) for field in table.schema},
        "records": [readable(row) for row in table.slice(0, count).to_pylist()],
    }


def _states(store: Store, topic: str, partition: int, name: str) -> list[str]:
    """Return what the newest view says of a segment's records: committed, open, aborted, or not read at all."""
    tasks = store.plan_table("segments", TableSelection(topics=(topic,)))
    found = {
        row["state"]
        for task in tasks
        if task.partition is not None and task.partition.partition == partition
        for batch in read_table_task(task, store.options)
        for row in batch.select(["file", "state"]).to_pylist()
        if row["file"] == name
    }
    return sorted(found) or ["not read"]


def _inline(store: Store, name: str, topic_id: int, data: bytes, count: int) -> _Decoded:
    """Return the first `count` of the records that entry `name` carries for a topic."""
    topic = next((known for known in store.topics() if known.topic_id == topic_id), None)
    schema = decode_stream(data).schema if topic is None else stored_schema(topic.schema)
    rows = decode_segment(data, name, schema=schema).slice(0, count).to_pylist()
    return {"size_bytes": len(data), "records": [readable(row) for row in rows]}


def _own_schema(data: bytes) -> pa.Schema:
    """Return the schema of a segment whose topic was deleted, as the file has it."""
    source = pa.BufferReader(data)
    return pq.read_schema(source) if data[:4] == b"PAR1" else pa.ipc.open_file(source).schema


def _builtins(value: Any) -> _Decoded:
    found: _Decoded = msgspec.to_builtins(value)
    return found


def _list(values: Any) -> list[Any]:
    """Return rows by the names of their members, also those that are stored as arrays."""
    return [
        {field: msgspec.to_builtins(getattr(value, field)) for field in value.__struct_fields__} for value in values
    ]
