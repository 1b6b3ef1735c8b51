"""A reader of stores written by the words of docs/PROTOCOL.md alone.

It imports nothing of the product: pyarrow decodes Parquet files and Arrow, and the standard library does all else. It
is slow and strict: every check that the document allows a reader is made.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from tests.compatibility.independent_replay import (
    SEGMENT,
    Command,
    Damaged,
    Key,
    Record,
    Replay,
    above_log_start,
    crc32c,
    expect,
    key_of,
)

__all__ = ["Damaged", "Replay", "StoreReader", "crc32c", "last_stable_offset", "padded"]

IN_TRANSACTION = ("transactional_id", "producer_id", "producer_epoch", "transaction")
MEMBER = ("request_id", "group_id", "member_id")
MEMBERS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "create_topic": (("request_id", "name", "partition_count"), {"settings": {}, "schema": None}),
    "alter_topic": (("request_id", "name", "topic_id"), {"settings": {}, "new_columns": []}),
    "alter_store": (("request_id", "settings"), {}),
    "create_partitions": (("request_id", "name", "topic_id", "partition_count"), {}),
    "delete_topic": (("request_id", "name", "topic_id"), {}),
    "delete_records": (("request_id", "topic_id", "partition", "before_offset"), {}),
    "init_producer_id": (
        ("request_id",),
        {
            "transactional_id": None,
            "timeout_ms": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
            "keep_prepared": False,
            "fence_reason": "",
        },
    ),
    "add_partitions_to_txn": ((*IN_TRANSACTION, "partitions"), {}),
    "add_offsets_to_txn": ((*IN_TRANSACTION, "group_id"), {}),
    "append": (
        (
            *("topic_id", "partition", "segment", "record_count", "size_bytes", "checksum", "producer_id"),
            *("producer_epoch", "base_sequence", "timestamp_min_ms", "timestamp_max_ms"),
        ),
        {"transactional_id": None, "transaction": -1, "data": ""},
    ),
    "appends": (("object", "checksum", "start", "count"), {}),
    "txn_offset_commit": (
        (*IN_TRANSACTION, "group_id", "offsets"),
        {"generation_id": -1, "member_id": "", "owner": "", "instance_id": ""},
    ),
    "offset_commit": (
        ("request_id", "group_id", "offsets"),
        {"generation_id": -1, "member_id": "", "owner": "", "instance_id": ""},
    ),
    "join_group": (
        (*MEMBER, "topics", "session_timeout_ms", "rebalance_timeout_ms", "assignors"),
        {"classic": False, "instance_id": "", "client_id": "", "host": ""},
    ),
    "update_member": ((*MEMBER, "member_epoch", "topics"), {}),
    "release_partitions": ((*MEMBER, "member_epoch", "changed_entry", "partitions"), {}),
    "leave_group": (MEMBER, {"keeps_place": False}),
    "expire_member": (("group_id", "member_id", "member_epoch", "last_entry", "reason", "after_ms"), {}),
    "end_txn": ((*IN_TRANSACTION, "committed"), {"timed_out_after_ms": 0, "fence_reason": ""}),
    "prepare_txn": (IN_TRANSACTION, {}),
    "expect_end_offset": ((*IN_TRANSACTION, "topic_id", "partition", "log_end_offset"), {}),
    "delete_group": (("request_id", "group_id", "offsets"), {"pending": []}),
    "expire_transactional_id": (IN_TRANSACTION, {}),
    "expire_producers": (("topic_id", "partition", "producers"), {}),
    "expire_offsets": (("group_id",), {"partitions": [], "idle": [], "empty_entry": 0}),
    "settle_intent": (("intent_id", "base_entry"), {"command_count": 0, "refused_code": 0, "reason": ""}),
    "cancel_intent": (("intent_id", "base_entry"), {}),
    "rewrite": (
        (*("request_id", "topic_id", "partition", "base_offset", "end_offset", "planned_entry", "segments", "run"),),
        {"compaction": None},
    ),
    "publish_tables": (("request_id", "entry", "planned_entry", "tables"), {}),
    "vacuum": (("horizon", "segment_floor"), {}),
    "require_features": ((), {"reader_features": [], "writer_features": []}),
    "prepare_half": (("group_id", "transaction_id", "segments", "immunity_ms"), {"data": {}}),
    "check_half": (("group_id", "transaction_id", "checks", "checker", "wait_ms"), {}),
    "end_half": (("group_id", "transaction_id", "committed"), {"by_check": False}),
    "discard_half": (("group_id", "transaction_id", "checks"), {}),
    "resume_half": (("group_id", "transaction_id", "wait_ms"), {}),
    "delete_half": (("group_id", "transaction_id"), {}),
    "sink_batch_commit": ((*IN_TRANSACTION, "writer_id", "run_id", "batch_id", "fingerprint"), {}),
}
# The members that most commands have, by the short names that entries have for them.
LONG = {
    "bytes": "size_bytes",
    "crc": "checksum",
    "epoch": "producer_epoch",
    "generation": "generation_id",
    "group": "group_id",
    "max_ms": "timestamp_max_ms",
    "member": "member_id",
    "min_ms": "timestamp_min_ms",
    "producer": "producer_id",
    "records": "record_count",
    "request": "request_id",
    "sequence": "base_sequence",
    "topic": "topic_id",
    "txn": "transaction",
    "txn_id": "transactional_id",
}
IN_FILE = (*SEGMENT, "first_row", "file_records", "row_count")
INLINE = re.compile(r"(?:([0-9]{20})-)?([0-9a-v]{20}\.inline)")
ZSTANDARD = b"\x28\xb5\x2f\xfd"
RUN = (
    *("folder", "base_offset", "end_offset", "segment_count", "level", "entry_min", "entry_max", "timestamp_min_ms"),
    *("timestamp_max_ms", "size_bytes", "checksum", "aborted_count", "committed_entry_max", "committed_late"),
)


def unseal(name: str, data: bytes) -> Record:
    """The members of a sealed document, its checksum and format version checked."""
    ending = b',"checksum":"%08x"}' % crc32c(data[:-23])
    expect(data[-23:] == ending, name, f"its checksum is not {ending[13:21].decode()}")
    document: Record = json.loads(data)
    expect(document["format"] == 1, name, f"its format is {document['format']}")
    return document


def padded(number: int) -> str:
    return f"{number:020d}"


def parquet(data: bytes) -> pa.Table:
    return pa.parquet.read_table(io.BytesIO(data))


def inline_table(name: str, data: bytes) -> pa.Table:
    """The rows of inline records: an Arrow IPC stream, as it is or as one Zstandard frame."""
    source: Any = io.BytesIO(data)
    if data[:4] == ZSTANDARD:
        source = io.BytesIO(pa.CompressedInputStream(source, "zstd").read())
    stream = pa.ipc.open_stream(source)
    batches = list(stream)
    expect(len(batches) == 1, name, f"its inline records are {len(batches)} record batches")
    expect(source.read(1) == b"", name, "something follows its inline records")
    return pa.Table.from_batches(batches)


def part_of(record: Record) -> str:
    """The part of a checkpoint that holds a record."""

    def hashed(text: str, buckets: int) -> int:
        return zlib.crc32(text.encode()) % buckets

    match record["type"]:
        case "topic" | "topic_name" | "subscribers":
            return f"topics/{hashed(record['name'].replace('.', '_'), 64)}"
        case "partition":
            return f"partitions/{record['topic_id']}/{record['partition'] // 64}"
        case "segments":
            return f"segments/{record['topic_id']}/{record['partition'] // 64}"
        case "producer":
            return f"producers/{record['topic_id']}/{record['partition'] // 64}/{record['producer_id'] % 16}"
        case "transaction":
            return f"transactions/{hashed(record['transactional_id'], 256)}"
        case "offset" | "pending_offsets" | "group" | "member" | "empty_group":
            return f"groups/{hashed(record['group_id'], 64)}"
        case "intents":
            return f"intents/{record['slot'] // 64}"
        case "half":
            return f"halves/{hashed(record['transaction_id'], 256)}"
        case "half_due":
            return f"halves_due/{hashed(record['group_id'], 16)}/{record['slot']}"
        case "table":
            return f"tables/{record['topic_id'] // 64}"
        case "published":
            return f"published/{record['topic_id']}/{record['partition'] // 64}"
        case "half_outcomes":
            return f"half_outcomes/{record['bucket'] // 64}"
        case other:
            return str(other)


class Snapshot(NamedTuple):
    """One producer of a `.snapshot`."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    first_offset: int


class StoreReader:
    """One reading of a store in a local folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.document = unseal("_txnlog.json", self.get("_txnlog.json"))
        if "copied_from" in self.document:
            copies = self.names("_log/_copies")
            expect(bool(copies), "_txnlog.json", "it is of a copy that is not complete")
            name = f"_log/_copies/{copies[-1]}"
            expect(unseal(name, self.get(name))["complete"], name, "the copy is not complete")

    # objects

    def get(self, name: str) -> bytes:
        parts = name.split("/")
        expect(
            re.fullmatch(r"[A-Za-z0-9._=/-]+", name) and not {"", ".", ".."} & set(parts),
            name,
            "it is not a valid name",
        )
        path = self.root / name
        expect(path.is_file(), name, "it does not exist")
        return path.read_bytes()

    def names(self, folder: str) -> list[str]:
        path = self.root / folder
        return sorted(file.name for file in path.iterdir() if file.name[0] != ".") if path.is_dir() else []

    # the log

    def entries(self, after: int, previous: str) -> Iterator[tuple[Record, list[Command]]]:
        """The entries after number `after`, whose checksum is `previous`: each checked, with its commands."""
        number = after + 1
        while (self.root / (name := f"_log/{padded(number)}.json")).exists():
            entry = unseal(name, self.get(name))
            expect(entry["entry"] == number, name, f"it holds entry {entry['entry']}")
            expect(entry["previous"] == previous, name, "it does not follow the entry before")
            yield entry, self._commands(name, entry)
            previous, number = entry["checksum"], number + 1
        later = [file for file in self.names("_log") if re.fullmatch(r"\d{20}\.json", file) and int(file[:20]) > number]
        expect(not later, name, f"it is missing, and {later[:1]} exists")

    def _commands(self, name: str, entry: Record) -> list[Command]:
        commands: list[Command] = []
        for short in entry["commands"]:
            expect(not set(short) & set(LONG.values()), name, "a member is not written under its short name")
            written = {LONG.get(member, member): value for member, value in short.items()}
            kind = written["type"]
            expect(kind in MEMBERS, name, f"command {kind!r} is not known")
            required, defaults = MEMBERS[kind]
            expect(set(required) <= set(written), name, f"{kind!r} lacks a member")
            expect(set(written) <= {"type", *required, *defaults}, name, f"{kind!r} has a member that is not known")
            command = defaults | written
            commands += self._append_object(name, command) if kind == "appends" else [command]
        return commands

    def _append_object(self, entry_name: str, command: Command) -> list[Command]:
        name, start, count = command["object"], command["start"], command["count"]
        data = self.get(name)
        expect(f"{crc32c(data):08x}" == command["checksum"], name, "its checksum is not the one that the entry names")
        rows = parquet(data).slice(start, count).to_pylist()
        expect(len(rows) == count, entry_name, f"it names more rows than {name} has")
        return [
            {"type": "append", "data": ""} | {LONG.get(member, member): value for member, value in row.items()}
            for row in rows
        ]

    def horizon(self) -> int:
        return max((int(name) for name in self.names("_log/_horizon")), default=1)

    # checkpoints

    def heads(self) -> list[str]:
        """The names of all heads, the newest first."""
        found = [name for name in self.names("_log/_checkpoints") if re.fullmatch(r"\d{20}-[0-9a-v]{20}\.json", name)]
        return [f"_log/_checkpoints/{name}" for name in reversed(found)]

    def head(self, name: str) -> Record:
        head = unseal(name, self.get(name))
        expect(
            f"{padded(head['entry'])}-{head['checkpoint']}.json" == name.split("/")[-1], name, "it has another's name"
        )
        if head.get("packed"):
            head = self._unpacked(name, head)
        lines = (
            f"{part} {ref[2]}\n" for part, ref in sorted(head["parts"].items()) if not part.startswith("segments/")
        )
        digest = hashlib.sha256("".join(lines).encode()).hexdigest()
        expect(digest == head["digest"], name, "its digest is not that of its parts")
        return head

    @staticmethod
    def _unpacked(name: str, head: Record) -> Record:
        """A packed head as one that is not."""
        expect(not head["parts"], name, "it is packed, and names parts besides")
        expect("packed_heads" in head["reader_features"], name, "it is packed and does not say so")
        digests = base64.b64decode(head["packed_digests"])
        with pa.CompressedInputStream(pa.py_buffer(base64.b64decode(head["packed"])), "zstd") as stream:
            data = stream.read(len(digests) // 32 * 256 + 1)
        expect(len(data) <= len(digests) // 32 * 256, name, "its columns are too long")
        columns = json.loads(data)
        places = {"parts", "in_folder", "numbers", "sizes_bytes"}
        expect(set(columns) == {*places, "folders"}, name, "it has other columns")
        expect({len(columns[each]) * 32 for each in places} == {len(digests)}, name, "its columns differ in length")
        parts = {}
        for place, part in enumerate(columns["parts"]):
            folder = columns["folders"][columns["in_folder"][place]]
            digest = digests[32 * place : 32 * place + 32].hex()
            parts[part] = [f"{folder}/{columns['numbers'][place]}.json", columns["sizes_bytes"][place], digest]
        expect([*parts] == sorted(parts), name, "its parts are not in the order of their names")
        return head | {"parts": parts}

    def parts(self, head: Record) -> dict[Key, Record]:
        """All records of a checkpoint, its parts checked."""
        records: dict[Key, Record] = {}
        for part, (name, size_bytes, digest) in head["parts"].items():
            data = self.get(name)
            expect(len(data) == size_bytes, name, f"it has {len(data)} bytes, not {size_bytes}")
            expect(hashlib.sha256(data).hexdigest() == digest, name, "its SHA-256 is not the one that the head names")
            found = json.loads(data)
            keys = [key_of(record) for record in found]
            expect(keys == sorted(keys), name, "its records are not sorted")
            expect(all(part_of(record) == part for record in found), name, f"it has records of other parts than {part}")
            records.update(zip(keys, found, strict=True))
        return records

    def usable(self, head: Record) -> bool:
        """False for a head that was published behind the vacuum's back, and may name what is gone."""
        horizon = self.horizon()
        if horizon <= max(head.get("base", 0), 1):
            return True
        return head["checkpoint"] in json.loads(self.get(f"_log/_horizon/{horizon:020}"))["checkpoints"]

    def state_from_first(self) -> Replay:
        """The state after the last entry, from all entries."""
        return self._follow(Replay(), "00000000")

    def state_from_checkpoint(self) -> Replay:
        """The state after the last entry, from the newest head and the entries after it."""
        head = next(head for name in self.heads() if self.usable(head := self.head(name)))
        replay = Replay(self.parts(head))
        replay.entry, replay.timestamp_ms = head["entry"], head["timestamp_ms"]
        state = self._follow(replay, head["entry_checksum"])
        expect(self.horizon() <= head["entry"] + 1, "_log/_horizon", "it has passed the checkpoint")
        return state

    def _follow(self, replay: Replay, previous: str) -> Replay:
        for entry, commands in self.entries(replay.entry, previous):
            replay.apply(entry["entry"], entry["timestamp_ms"], commands)
        return replay

    # sealed runs

    def unsealed(self, state: Replay, located: Record) -> Record:
        """The same places, with all segments one by one, the entry that committed each, and all aborted ranges."""
        topics = {record["topic_id"]: record for record in state.records.values() if record["type"] == "topic"}
        folder = self.partition_folder(topics[located["topic_id"]], located["partition"])
        segments: list[list[Any]] = []
        aborted: list[list[int]] = []
        committed: list[list[int]] = []
        for values in located["sealed"]:
            run = dict(zip(RUN, values, strict=True))
            rows = self._manifest(folder, run)
            entries = [row[SEGMENT.index("committed_entry")] for row in rows]
            expect(max(entries) == run["committed_entry_max"], folder, "a run's greatest committed entry is another")
            expect(all(late[1] < run["base_offset"] for late in run["committed_late"]), folder, "one began in its run")
            segments += rows
            aborted += self._index(folder, run)
            committed += run["committed_late"]
        committed += located["committed"]
        rows = [_noted(row, committed) for row in segments + located["segments"]]
        whole = {
            "sealed": [],
            "segments": self._rewritten(folder, rows, located["rewritten"]),
            "aborted": aborted + located["aborted"],
            "committed": [],
        }
        log_start = state.get("partition", located["topic_id"], located["partition"])["log_start_offset"]
        return above_log_start(located | whole, log_start)

    def _rewritten(self, folder: str, rows: list[list[Any]], ranges: list[list[Any]]) -> list[list[Any]]:
        """The segments, each with its rows in its file, and in rewritten ranges those that replace them."""
        current = [[*row, 0, row[2], row[2]] for row in rows if not any(_within(row, *each[:2]) for each in ranges)]
        for base, end, _, values in ranges:
            run = dict(zip(RUN, values, strict=True))
            found = [row for row in self._manifest(folder, run, IN_FILE) if _within(row, base, end)]
            expect(all(row[SEGMENT.index("committed_entry")] > 0 for row in found), folder, "one is not committed")
            current += found
        return sorted(current, key=lambda row: int(row[1]))

    @staticmethod
    def partition_folder(topic: Record, partition: int) -> str:
        return f"topics/{topic['name']}-{topic['topic_id']}/kafka_partition={partition}"

    def _manifest(self, folder: str, run: Record, columns: tuple[str, ...] = SEGMENT) -> list[list[Any]]:
        name = f"{folder}/_sealed/{run['folder']}/manifest"
        data = self.get(name)
        expect(f"{crc32c(data):08x}" == run["checksum"], name, "its checksum is not the one that the state names")
        table = parquet(data)
        known = (SEGMENT, columns, IN_FILE[:-1]) if columns is IN_FILE else (columns,)
        expect(tuple(table.schema.names) in known, name, f"its columns are {table.schema.names}")
        expect(table.num_rows == run["segment_count"], name, f"it has {table.num_rows} segments")
        rows = [list(row.values()) for row in table.to_pylist()]
        if columns is IN_FILE:
            rows = [row if len(row) > len(SEGMENT) else [*row, 0, row[2]] for row in rows]
            rows = [row if len(row) == len(IN_FILE) else [*row, row[2]] for row in rows]
            expect(all(0 < row[-1] <= row[2] for row in rows), name, "a segment has more rows than offsets, or none")
        expect([row[1] for row in rows] == sorted(row[1] for row in rows), name, "its segments are not in order")
        expect(rows[0][1] == run["base_offset"], name, "it begins at another offset")
        return rows

    def _index(self, folder: str, run: Record) -> list[list[int]]:
        name = f"{folder}/_sealed/{run['folder']}/{padded(run['base_offset'])}.txnindex"
        if not run["aborted_count"]:
            expect(not (self.root / name).exists(), name, "the run has no aborted transactions")
            return []
        data = self.get(name)
        expect(len(data) == 34 * run["aborted_count"], name, f"it has {len(data)} bytes")
        ranges = []
        for version, *values in struct.iter_unpack(">hqqqq", data):
            expect(version == 0, name, f"it has an entry of version {version}")
            ranges.append(values)
        lasts = [values[2] for values in ranges]
        expect(lasts == sorted(lasts), name, "its last offsets do not grow")
        return ranges

    def snapshot(self, folder: str, values: list[Any]) -> list[Snapshot]:
        """The producers in a sealed run's snapshot."""
        run = dict(zip(RUN, values, strict=True))
        name = f"{folder}/_sealed/{run['folder']}/{padded(run['end_offset'])}.snapshot"
        data = self.get(name)
        version, checksum, count = struct.unpack_from(">hIi", data)
        expect(version == 1, name, f"it has version {version}")
        expect(crc32c(data[6:]) == checksum, name, "its checksum is wrong")
        producers = [Snapshot(*fields) for fields in struct.iter_unpack(">qhiqiqiq", data[10:])]
        expect(len(producers) == count, name, f"it has {len(producers)} producers, not {count}")
        return producers

    # records

    def records(self, state: Replay, topic_name: str, isolation: str) -> dict[tuple[int, int], Record]:
        """The rows of a topic by (partition, offset), with the columns of its schema."""
        topic = state.get("topic", topic_name)
        found: dict[tuple[int, int], Record] = {}
        for number in range(topic["partition_count"]):
            partition = state.get("partition", topic["topic_id"], number)
            located = self.unsealed(state, state.get("segments", topic["topic_id"], number))
            start = partition["log_start_offset"]
            committed = isolation == "read_committed"
            end = last_stable_offset(partition) if committed else partition["log_end_offset"]
            aborted = located["aborted"] if committed else []
            for values in located["segments"]:
                segment = dict(zip(IN_FILE, values, strict=True))
                if segment["base_offset"] >= end:
                    break
                for offset, row in self._segment(topic, number, segment):
                    if start <= offset < end and not _is_aborted(aborted, segment["producer_id"], offset):
                        found[number, offset] = row
        return found

    def _inline(self, name: str, segment: Record) -> bytes:
        """The bytes of inline records, from the entry that carries them; it may be below the horizon."""
        entry = unseal(name, self.get(name))
        expect(name == f"_log/{padded(entry['entry'])}.json", name, f"it holds entry {entry['entry']}")
        number, sent = INLINE.fullmatch(segment["name"]).groups()  # type: ignore[union-attr]
        commands = entry["commands"]
        if number is None:
            carried = [one["data"] for one in commands if one["type"] == "append" and one["segment"] == sent]
        else:
            halves = [one.get("data", {}) for one in commands if one["type"] == "prepare_half"]
            carried = [half[sent] for half in halves if sent in half]
        expect(len(carried) == 1, name, f"it carries {segment['name']} {len(carried)} times")
        return base64.b64decode(carried[0], validate=True)

    def _segment(self, topic: Record, partition: int, segment: Record) -> list[tuple[int, Record]]:
        """The rows of a segment, with their offsets."""
        inline = INLINE.fullmatch(segment["name"])
        if inline:
            # The records of a half transaction are in the entry that has prepared it, which the name says.
            name = f"_log/{inline[1] or padded(segment['entry'])}.json"
            data = self._inline(name, segment)
        else:
            name = f"{self.partition_folder(topic, partition)}/{segment['name']}"
            data = self.get(name)
        expect(len(data) == segment["size_bytes"], name, f"it has {len(data)} bytes, not {segment['size_bytes']}")
        expect(f"{crc32c(data):08x}" == segment["checksum"], name, "its checksum is not the one that the log names")
        if name.endswith(".json"):
            table = inline_table(name, data)
        elif name.endswith(".parquet"):
            expect(data[:4] == b"PAR1", name, "it is not a Parquet file")
            table = parquet(data)
        else:
            expect(data[:6] == b"ARROW1", name, "it is not an Arrow file")
            table = pa.ipc.open_file(data).read_all()
        expect(table.num_rows == segment["file_records"], name, f"it has {table.num_rows} rows")
        base, end = segment["base_offset"], segment["base_offset"] + segment["record_count"]
        first, count = segment["first_row"], segment["row_count"]
        if name.endswith(".offsets.parquet") or count < segment["record_count"]:
            # By the file's own offsets; what the manifest says of its rows is only compared.
            column = table.column("offset" if topic["schema"] is None else "_offset").to_pylist()
            expect(column == sorted(set(column)), name, "its offsets do not grow")
            places = [place for place, offset in enumerate(column) if base <= offset < end]
            expect(places == list(range(first, first + count)), name, "its offsets are not those of the segment")
            table, offsets = table.take(places), [column[place] for place in places]
        else:
            table, offsets = table.slice(first, count), list(range(base, end))
        expect(table.num_rows == count, name, "it does not have the rows of the segment")
        columns, stored = columns_of(topic), set(table.schema.names)
        missing = [column for column, nullable in columns.items() if column not in stored and not nullable]
        expect(not missing, name, f"it lacks {missing}")
        rows = [{column: row.get(column) for column in columns} for row in table.to_pylist()]
        if topic["settings"].get("message.timestamp.type") == "LogAppendTime":
            timestamp = pa.scalar(segment["timestamp_max_ms"], pa.timestamp("ms", "UTC")).as_py()
            column = "timestamp" if topic["schema"] is None else "_timestamp"
            rows = [row | {column: timestamp} for row in rows]
        return list(zip(offsets, rows, strict=True))


def columns_of(topic: Record) -> dict[str, bool]:
    """The columns of a topic's segments, and whether they may be null."""
    if topic["schema"] is None:
        return {"key": True, "value": True, "headers": True, "timestamp": False}
    return {name: nullable for name, _, nullable in topic["schema"]} | {"_timestamp": False}


def last_stable_offset(partition: Record) -> int:
    firsts = [first for _, first, _ in partition["open_transactions"]]
    log_start, log_end = int(partition["log_start_offset"]), int(partition["log_end_offset"])
    return max(log_start, min(firsts)) if firsts else log_end


def _noted(row: list[Any], committed: list[list[int]]) -> list[Any]:
    """A segment's row with the entry that committed it."""
    segment = dict(zip(SEGMENT, row, strict=True))
    ends = [
        entry
        for of, first, last, entry in committed
        if of == segment["producer_id"] and first <= segment["base_offset"] < last
    ]
    expect(len(ends) <= 1, segment["name"], f"it was committed by the entries {ends}")
    return [*row[:-1], segment["committed_entry"] or sum(ends)]


def _within(row: list[Any], base: int, end: int) -> bool:
    """True if a segment begins in a range; it then ends in it."""
    expect(row[1] + row[2] <= base or row[1] >= end or base <= row[1] < row[1] + row[2] <= end, row[0], "it is cut")
    return bool(base <= row[1] < end)


def _is_aborted(aborted: list[list[int]], producer_id: int, offset: int) -> bool:
    return any(of == producer_id and first <= offset <= last for of, first, last, _ in aborted)
