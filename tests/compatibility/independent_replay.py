"""The state machine of docs/PROTOCOL.md, section "Commands", by its words alone: what entries do to the records.

An entry that breaks a rule for writers is an error here, not something to be put right.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable
from typing import Any

from tests.compatibility.independent_groups import Groups
from tests.compatibility.independent_tables import Tables

Record = dict[str, Any]
Key = tuple[Any, ...]
Command = dict[str, Any]

INLINE_BYTES = 65_536
EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT = 0, 1, 4, 5
SEQUENCES = 2**31
DELETED = ["_deleted", "bool", True]
KEY_TYPE = r"bool|int8|int16|int32|int64|string|binary|date32|timestamp\[us(, tz=UTC)?\]|decimal128\(\d+, \d+\)"
INTERNAL = tuple((-number, 0) for number in range(2, 7))
INTERNAL_NAMES = (
    *("__transaction_state", "__consumer_offsets"),
    *("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"),
)

SEGMENT = (
    *("name", "base_offset", "record_count", "size_bytes", "checksum", "entry", "producer_id", "producer_epoch"),
    *("base_sequence", "transaction", "timestamp_min_ms", "timestamp_max_ms", "committed_entry"),
)


class Damaged(Exception):
    """An object is not what the document says it must be; the message begins with its name."""


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def expect(condition: object, name: str, reason: str) -> None:
    if not condition:
        raise Damaged(f"{name}: {reason}")


class Replay(Groups, Tables):
    """The state, by key, as the commands change it. A record is the JSON object that a checkpoint has for it."""

    def __init__(self, records: dict[Key, Record] | None = None) -> None:
        self.records = records if records is not None else {}
        self.entry = 0
        self.timestamp_ms = 0

    # records

    def get(self, *key: Any) -> Any:
        return self.records.get(key)

    def put(self, record: Record) -> None:
        self.records[key_of(record)] = record

    def change(self, record: Record, **changes: Any) -> Record:
        changed = record | changes
        self.put(changed)
        return changed

    def need(self, condition: object, reason: str) -> None:
        expect(condition, f"entry {self.entry}", reason)

    def existing(self, *key: Any) -> Any:
        found = self.records.get(key)
        self.need(found is not None, f"there is no {key}")
        return found

    def store(self) -> Record:
        return self.get("store") or {
            "type": "store",
            "next_producer_id": 0,
            "next_topic_id": 1,
            "horizon": 1,
            "segment_floor": 0,
            "reader_features": [],
            "writer_features": [],
        }

    # entries

    def apply(self, entry: int, timestamp_ms: int, commands: list[Command]) -> None:
        self.need(timestamp_ms >= self.timestamp_ms, "its timestamp falls")
        self.entry, self.timestamp_ms = entry, timestamp_ms
        for command in commands:
            handler: Callable[[Command], None] = getattr(self, command["type"])
            handler(command)

    def remember(self, command: Command, **answer: Any) -> None:
        bucket = zlib.crc32(command["request_id"].encode()) % 1_024
        self._forget_requests(self.entry % 1_024)
        kept = self._forget_requests(bucket)
        self.need(all(noted[0] != command["request_id"] for noted in kept), "a request is written a second time")
        told = {"topic_id": -1, "producer_id": -1, "producer_epoch": -1, "transaction": -1, "committed": False}
        told |= {"prepared_producer_id": -1, "prepared_producer_epoch": -1} | answer
        noted = [command["request_id"], self.entry, *told.values()]
        self.put({"type": "requests", "bucket": bucket, "requests": [*kept, noted]})

    def _forget_requests(self, bucket: int) -> list[Any]:
        record = self.records.pop(("requests", bucket), None)
        kept = [noted for noted in record["requests"] if noted[1] > self.entry - 1_000] if record else []
        if kept:
            self.put({"type": "requests", "bucket": bucket, "requests": kept})
        return kept

    # intents

    def settle_intent(self, command: Command) -> None:
        self._settle(command, command["refused_code"], command["reason"])

    def cancel_intent(self, command: Command) -> None:
        self._settle(command, 42, "its owner has cancelled it")

    def _settle(self, command: Command, code: int, reason: str) -> None:
        intent_id, base = command["intent_id"], command["base_entry"]
        self.need(self.entry - 1_000 <= base < self.entry, "an intent is settled that has expired, or is of the future")
        remembered = [record for record in self.records.values() if record["type"] == "intents"]
        since = [record for record in remembered if record["entry"] > base]
        ids = [settled[0] for record in since for settled in record["settled"]]
        self.need(intent_id not in ids, "an intent is settled a second time")
        slot = self.entry % 1_000
        here = self.get("intents", slot)
        before = here["settled"] if here and here["entry"] == self.entry else []
        settled = [*before, [intent_id, code, reason]]
        self.put({"type": "intents", "slot": slot, "entry": self.entry, "settled": settled})

    # topics

    def create_topic(self, command: Command) -> None:
        name, collision_key = command["name"], command["name"].replace(".", "_")
        valid = re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) and name not in (".", "..")
        self.need(valid, f"topic {name!r} has no valid name")
        self.need(self.get("topic_name", collision_key) is None, f"topic {name!r} exists, or collides")
        self.need(collision_key not in INTERNAL_NAMES, f"topic {name!r} is internal")
        self.need(1 <= command["partition_count"] <= 10_000, "a topic has no valid partition count")
        self._check_settings(command["settings"])
        key = self._check_keyed(command["settings"], command["schema"])
        if command["schema"] is not None:
            self._check_columns([column for column in command["schema"] if not (key and column == DELETED)])
        store = self.store()
        topic_id = store["next_topic_id"]
        self.put(store | {"next_topic_id": topic_id + 1})
        self.put({"type": "topic_name", "collision_key": collision_key, "name": name})
        described = {member: command[member] for member in ("name", "partition_count", "settings", "schema")}
        self.put({"type": "topic", **described, "topic_id": topic_id, "created_entry": self.entry})
        self._add_partitions(topic_id, 0, command["partition_count"], keyed=bool(key))
        self.topic_changes(name)
        self.remember(command, topic_id=topic_id)

    def _check_settings(self, settings: dict[str, Any]) -> None:
        known = {
            "message.timestamp.type": ("CreateTime", "LogAppendTime"),
            "segment.format": ("parquet", "arrow"),
            "reject.transaction.message": ("true", "false"),
        }
        for setting, values in known.items():
            self.need(settings.get(setting) in (None, *values), f"setting {setting!r} has an unknown value")

    def _check_keyed(self, settings: dict[str, Any], columns: list[list[Any]] | None) -> list[str]:
        """The columns of a topic's key; none if it has none."""
        if not settings.get("primary.key"):
            is_compacted = "compact" in settings.get("cleanup.policy", "")
            self.need(columns is None or not is_compacted, "a topic with columns and no key is compacted")
            return []
        self.need("keyed_topics" in self.store()["reader_features"], "the store does not require the feature of keys")
        self.need(settings.get("cleanup.policy") == "compact", "a keyed topic is not compacted alone")
        for name, unset in (("retention.ms", "-1"), ("retention.bytes", "-1"), ("partition.key", "")):
            self.need(settings.get(name, unset) == unset, f"a keyed topic has {name}")
        key, known = settings["primary.key"].split(","), {name: (kind, null) for name, kind, null in columns or ()}
        self.need(len(set(key)) == len(key) and DELETED in (columns or ()), "a keyed topic has other columns")
        for name, (kind, nullable) in known.items():
            self.need(nullable == (name not in key), "a column outside the key is not null, or one of it may be null")
            self.need(name not in key or re.fullmatch(KEY_TYPE, kind), "a column of a key has another type")
        self.need(set(key) <= known.keys(), "a key has a column that is not declared")
        return key

    def _check_columns(self, columns: list[list[Any]]) -> None:
        lowered = [name.lower() for name, _, _ in columns]
        self.need(1 <= len(columns) <= 10_000, "a schema has too few or too many columns")
        self.need(len(set(lowered)) == len(lowered), "two columns have one name")
        reserved = any(not name.strip() or name[0] == "_" or name == "kafka_partition" for name in lowered)
        self.need(not reserved, "a column's name is reserved or empty")

    def _add_partitions(self, topic_id: int, first: int, end: int, *, keyed: bool = False) -> None:
        for number in range(first, end):
            where = {"topic_id": topic_id, "partition": number}
            offsets = {"log_start_offset": 0, "log_end_offset": 0, "open_transactions": []}
            self.put({"type": "partition", **where, **offsets} | ({"keyed": True} if keyed else {}))
            self.put(
                {
                    "type": "segments",
                    **where,
                    "sealed": [],
                    "segments": [],
                    "aborted": [],
                    "committed": [],
                    "rewritten": [],
                    "compacted": None,
                }
            )

    def _topic(self, command: Command) -> Record:
        topic: Record = self.existing("topic", command["name"])
        self.need(topic["topic_id"] == command["topic_id"], "a topic has another id")
        return topic

    def alter_topic(self, command: Command) -> None:
        topic = self._topic(command)
        self._check_settings(command["settings"])
        settings = {name: value for name, value in topic["settings"].items() if name not in command["settings"]}
        settings |= {name: value for name, value in command["settings"].items() if value is not None}
        for name in ("primary.key", "upsert.not.null"):
            self.need(settings.get(name, "") == topic["settings"].get(name, ""), f"{name} changes")
        schema = topic["schema"]
        key = self._check_keyed(settings, schema)
        if command["new_columns"]:
            self.need(schema is not None, "Kafka's record takes no columns")
            self.need(all(nullable for _, _, nullable in command["new_columns"]), "a new column is not nullable")
            schema = [*schema, *command["new_columns"]]
            self._check_columns([column for column in schema if not (key and column == DELETED)])
        self.change(topic, settings=settings, schema=schema)
        self.remember(command, topic_id=topic["topic_id"])

    def alter_store(self, command: Command) -> None:
        self._check_settings(command["settings"])
        store = self.store()
        settings = {name: value for name, value in store.get("settings", {}).items() if name not in command["settings"]}
        settings |= {name: value for name, value in command["settings"].items() if value is not None}
        # A record without any leaves them out.
        kept = {member: value for member, value in store.items() if member != "settings"}
        self.put(kept | ({"settings": settings} if settings else {}))
        self.remember(command)

    def create_partitions(self, command: Command) -> None:
        topic = self._topic(command)
        is_more = topic["partition_count"] < command["partition_count"] <= 10_000
        self.need(is_more, "partitions can only be added, and not above 10,000")
        self.need(not topic["settings"].get("primary.key"), "a keyed topic gets more partitions")
        self._add_partitions(topic["topic_id"], topic["partition_count"], command["partition_count"])
        self.change(topic, partition_count=command["partition_count"])
        self.topic_changes(topic["name"])
        self.remember(command, topic_id=topic["topic_id"])

    def delete_topic(self, command: Command) -> None:
        topic = self._topic(command)
        for number in range(topic["partition_count"]):
            del self.records["partition", topic["topic_id"], number]
            del self.records["segments", topic["topic_id"], number]
        del self.records["topic_name", topic["name"].replace(".", "_")]
        del self.records["topic", topic["name"]]
        self.topic_changes(topic["name"], topic["topic_id"])
        self.remember(command, topic_id=topic["topic_id"])

    def delete_records(self, command: Command) -> None:
        where = command["topic_id"], command["partition"]
        partition, located = self.existing("partition", *where), self.existing("segments", *where)
        before = command["before_offset"]
        before = partition["log_end_offset"] if before == -1 else before
        self.need(0 <= before <= partition["log_end_offset"], "records are deleted before an offset that is not there")
        self.need("keyed" not in partition, "the log start of a keyed partition moves")
        if before > partition["log_start_offset"]:
            self.change(partition, log_start_offset=before)
            self.put(above_log_start(located, before))
        self.remember(command)

    # producers and transactions

    def _next_producer_id(self) -> int:
        store = self.store()
        self.put(store | {"next_producer_id": store["next_producer_id"] + 1})
        producer_id: int = store["next_producer_id"]
        return producer_id

    def init_producer_id(self, command: Command) -> None:
        if command["transactional_id"] is None:
            self.remember(command, producer_id=self._next_producer_id(), producer_epoch=0)
            return
        transaction = self.get("transaction", command["transactional_id"])
        if transaction is None:
            transaction = self._first_transaction(command["transactional_id"])
        elif not _names_identity_before(command, transaction):
            transaction = self._next_epoch(command, transaction)
        transaction = self.change(
            transaction,
            timeout_ms=command["timeout_ms"],
            last_update_timestamp_ms=self.timestamp_ms,
            request_id=command["request_id"],
        )
        told = {member: transaction[member] for member in ("producer_id", "producer_epoch", "transaction", "committed")}
        if transaction["prepared"] is not None:
            told |= {f"prepared_{member}": value for member, value in transaction["prepared"].items()}
        self.remember(command, **told)

    def _first_transaction(self, transactional_id: str) -> Record:
        return {
            "type": "transaction",
            "transactional_id": transactional_id,
            "producer_id": self._next_producer_id(),
            "producer_epoch": 0,
            "last_producer_epoch": -1,
            "previous_producer_id": -1,
            "timeout_ms": 0,
            "status": EMPTY,
            "transaction": 0,
            "committed": False,
            "partitions": [],
            "offsets": [],
            "start_timestamp_ms": -1,
            "last_update_timestamp_ms": -1,
            "request_id": "",
            "fence_reason": "",
            "sink": None,
            "pending_sink": None,
            "start_entry": -1,
            "prepared": None,
            "last_prepared": None,
        }

    def _next_epoch(self, command: Command, transaction: Record) -> Record:
        given = command["producer_id"], command["producer_epoch"]
        named = given[0] != -1
        if named:
            current = transaction["producer_id"], transaction["producer_epoch"]
            self.need(given == current, f"an init names {given}, not {current}")
        reason = command["fence_reason"]
        if command["keep_prepared"]:
            self.need(not named, "an init that keeps what is prepared names an identity")
            if transaction["prepared"] is not None:
                return self._next_identity(transaction, last_epoch=-1) | {"fence_reason": reason}
        if transaction["status"] == ONGOING:
            fenced = self._fenced(transaction, reason or "a newer producer has initialised it")
            transaction = self._end(fenced, committed=False)
        transaction = self._next_identity(transaction, last_epoch=given[1] if named else -1)
        changes = {"status": EMPTY, "start_timestamp_ms": -1, "partitions": [], "offsets": [], "fence_reason": reason}
        return transaction | changes

    def _next_identity(self, transaction: Record, *, last_epoch: int) -> Record:
        if transaction["producer_epoch"] >= 32_766:
            bumped = {"producer_id": self._next_producer_id(), "producer_epoch": 0}
            bumped["previous_producer_id"] = transaction["producer_id"]
        else:
            bumped = {"producer_epoch": transaction["producer_epoch"] + 1}
        return transaction | bumped | {"last_producer_epoch": last_epoch}

    def _fenced(self, transaction: Record, reason: str) -> Record:
        return transaction | {
            "producer_epoch": min(transaction["producer_epoch"] + 1, 32_767),
            "last_producer_epoch": -1,
            "fence_reason": reason,
        }

    def _owned(self, command: Command) -> Record:
        transaction: Record = self.existing("transaction", command["transactional_id"])
        current = transaction["producer_id"], transaction["producer_epoch"]
        given = command["producer_id"], command["producer_epoch"]
        self.need(given == current, f"{given} writes for {command['transactional_id']!r}, which belongs to {current}")
        return transaction

    def _joined(self, command: Command) -> Record:
        transaction = self._owned(command)
        if transaction["status"] == ONGOING and command["transaction"] == transaction["transaction"]:
            self.need(transaction["prepared"] is None, "a prepared transaction takes something")
            return transaction
        between = transaction["status"] in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
        self.need(between and command["transaction"] == transaction["transaction"] + 1, "a transaction is out of turn")
        return self.change(
            transaction,
            status=ONGOING,
            transaction=command["transaction"],
            committed=False,
            partitions=[],
            offsets=[],
            start_timestamp_ms=self.timestamp_ms,
            start_entry=self.entry,
            last_update_timestamp_ms=self.timestamp_ms,
        )

    def _register(self, transaction: Record, partitions: list[list[int]]) -> None:
        added = [where for where in partitions if where not in transaction["partitions"]]
        self.change(transaction, partitions=[*transaction["partitions"], *added])

    def add_partitions_to_txn(self, command: Command) -> None:
        for topic_id, number in command["partitions"]:
            self.existing("partition", topic_id, number)
        self._register(self._joined(command), command["partitions"])

    def add_offsets_to_txn(self, command: Command) -> None:
        self._joined(command)

    def append(self, command: Command) -> None:
        where, producer_id = (command["topic_id"], command["partition"]), command["producer_id"]
        partition = self.existing("partition", *where)
        known = self.get("producer", *where, producer_id)
        in_transaction = command["transaction"] != -1
        if in_transaction:
            self.need("keyed" not in partition, "a row of a keyed partition is appended in a transaction")
            self._register(self._joined(command), [list(where)])
        elif known is not None:
            self.need(known["current_transaction_first_offset"] < 0, "an append leaves its open transaction out")
        self._check_sequence(known, command)
        self._check_segment(command)
        base_offset, count = partition["log_end_offset"], command["record_count"]
        times = command["timestamp_min_ms"], command["timestamp_max_ms"]
        least, greatest = (self.timestamp_ms, self.timestamp_ms) if times == (-1, -1) else times
        last_sequence = (command["base_sequence"] + count - 1) % SEQUENCES
        token = re.split(r"[-.]", command["segment"])[-2]
        batch = [command["base_sequence"], last_sequence, base_offset, greatest, command["transaction"], False, token]
        same_epoch = known is not None and known["producer_epoch"] == command["producer_epoch"]
        first_offset = known["current_transaction_first_offset"] if known is not None else -1
        opens = in_transaction and first_offset < 0
        self.put(
            {
                "type": "producer",
                "topic_id": where[0],
                "partition": where[1],
                "producer_id": producer_id,
                "producer_epoch": command["producer_epoch"],
                "batches": [*(known["batches"] if same_epoch else []), batch][-5:],
                "timestamp_ms": greatest,
                "coordinator_epoch": known["coordinator_epoch"] if known is not None else -1,
                "current_transaction_first_offset": base_offset if opens else first_offset,
            }
        )
        open_transactions = partition["open_transactions"] + (
            [[producer_id, base_offset, command["transactional_id"]]] if opens else []
        )
        self.change(partition, log_end_offset=base_offset + count, open_transactions=open_transactions)
        noted = command | {
            "name": command["segment"],
            "base_offset": base_offset,
            "entry": self.entry,
            "timestamp_min_ms": least,
            "timestamp_max_ms": greatest,
            "committed_entry": self.entry if command["transaction"] == -1 else 0,
        }
        located = self.existing("segments", *where)
        self.change(located, segments=[*located["segments"], [noted[member] for member in SEGMENT]])

    def _check_segment(self, command: Command) -> None:
        """A segment is a file of its time, or inline records that the command carries."""
        born = re.fullmatch(r"(\d{20})-[0-9a-v]{20}\.(parquet|arrow)", command["segment"])
        if born:
            self.need(command["data"] == "", "an append carries records and names a file")
            self.need(self.store()["segment_floor"] <= int(born[1]) < self.entry, "a segment is not of its time")
            return
        self.need(re.fullmatch(r"[0-9a-v]{20}\.inline", command["segment"]), "no segment has such a name")
        data = base64.b64decode(command["data"], validate=True)
        self.need(0 < len(data) == command["size_bytes"] <= INLINE_BYTES, "inline records have another size")
        self.need(crc32c(data) == int(command["checksum"], 16), "inline records have another checksum")

    def _check_sequence(self, known: Record | None, command: Command) -> None:
        self.need(1 <= command["record_count"] <= 2**28, "a segment has no records, or too many")
        self.need(1 <= command["size_bytes"] <= 2**31, "a segment has no bytes, or too many")
        self.need(0 <= command["producer_epoch"] <= 32_767, "an epoch is out of range")
        self.need(command["timestamp_max_ms"] <= (2**63 - 1) // 1_000, "a timestamp is too late")
        if known is None:
            return
        self.need(command["producer_epoch"] >= known["producer_epoch"], "an append has an old epoch")
        fresh = command["producer_epoch"] > known["producer_epoch"] or not known["batches"]
        expected = 0 if fresh else (known["batches"][-1][1] + 1) % SEQUENCES
        self.need(command["base_sequence"] == expected, f"an append has not sequence {expected}")

    def end_txn(self, command: Command) -> None:
        transaction = self._owned(command)
        self.need(transaction["status"] == ONGOING, "a transaction ends that is not ongoing")
        self.need(transaction["transaction"] == command["transaction"], "another transaction ends")
        after_ms = command["timed_out_after_ms"]
        reason = f"transaction timed out after {after_ms} ms" if after_ms > 0 else command["fence_reason"]
        if reason:
            self.need(not command["committed"], "a transaction commits by being fenced")
            self.need(after_ms == 0 or transaction["prepared"] is None, "a prepared transaction times out")
            transaction = self._fenced(transaction, reason)
        ended = self._end(transaction, committed=command["committed"])
        if transaction["prepared"] is not None and not reason:
            self.put(self._next_identity(ended, last_epoch=ended["producer_epoch"]))

    def prepare_txn(self, command: Command) -> None:
        transaction = self._owned(command)
        self.need(transaction["status"] == ONGOING, "a transaction is prepared that is not ongoing")
        self.need(transaction["transaction"] == command["transaction"], "another transaction is prepared")
        self.need(transaction["prepared"] is None, "a transaction is prepared a second time")
        identity = {member: command[member] for member in ("producer_id", "producer_epoch")}
        self.change(transaction, prepared=identity, last_update_timestamp_ms=self.timestamp_ms)

    def _end(self, transaction: Record, *, committed: bool) -> Record:
        prepared = transaction["prepared"]
        under = transaction
        if prepared is not None:
            epoch = min(prepared["producer_epoch"] + 1, 32_767)
            under = transaction | {"producer_id": prepared["producer_id"], "producer_epoch": epoch}
            outcome = [prepared["producer_id"], prepared["producer_epoch"], transaction["transaction"], committed]
            transaction = transaction | {"prepared": None, "last_prepared": outcome}
        for topic_id, number in transaction["partitions"]:
            self._end_in_partition(under, topic_id, number, committed)
        for group_id, topic_id, number in transaction["offsets"]:
            self._end_offset(under, (group_id, topic_id, number), committed)
        kept, pending = transaction["sink"], transaction["pending_sink"]
        return self.change(
            transaction,
            status=COMPLETE_COMMIT if committed else COMPLETE_ABORT,
            committed=committed,
            partitions=[],
            offsets=[],
            last_update_timestamp_ms=self.timestamp_ms,
            sink=pending if committed and pending is not None else kept,
            pending_sink=None,
        )

    def _end_in_partition(self, transaction: Record, topic_id: int, number: int, committed: bool) -> None:
        producer_id = transaction["producer_id"]
        partition = self.get("partition", topic_id, number)
        producer = self.get("producer", topic_id, number, producer_id)
        if partition is None or producer is None or producer["current_transaction_first_offset"] < 0:
            return
        control_offset = partition["log_end_offset"]
        still_open = [open_ for open_ in partition["open_transactions"] if open_[0] != producer_id]
        self.change(partition, log_end_offset=control_offset + 1, open_transactions=still_open)
        batches = [
            [*batch[:5], batch[5] or (not committed and batch[4] == transaction["transaction"]), *batch[6:]]
            for batch in producer["batches"]
            if transaction["producer_epoch"] == producer["producer_epoch"]
        ]
        self.change(
            producer,
            producer_epoch=transaction["producer_epoch"],
            batches=batches,
            timestamp_ms=self.timestamp_ms,
            coordinator_epoch=self.entry,
            current_transaction_first_offset=-1,
        )
        first_offset = producer["current_transaction_first_offset"]
        located = self.existing("segments", topic_id, number)
        if committed:
            ended = [producer_id, first_offset, control_offset, self.entry]
            self.change(located, committed=[*located["committed"], ended])
        else:
            last_stable_offset = min((open_[1] for open_ in still_open), default=control_offset + 1)
            aborted = [producer_id, first_offset, control_offset, last_stable_offset]
            self.change(located, aborted=[*located["aborted"], aborted])

    # groups

    def txn_offset_commit(self, command: Command) -> None:
        transaction = self._joined(command)
        producer_id = command["producer_id"]
        touched = {tuple(where) for where in transaction["offsets"]}
        self.check_commit(command)
        self._check_owner(command, producer_id)
        for topic_id, number, *values in command["offsets"]:
            self._place(topic_id, number)
            where = (command["group_id"], topic_id, number)
            touched.add(where)
            noted = _offset_values(values)
            sent = [command["transactional_id"], producer_id, *noted.values(), self.entry, command.get("owner", "")]
            self._put_pending(where, producer_id, sent)
        self.change(transaction, offsets=[list(where) for where in sorted(touched)])

    def _pending(self, where: Key) -> list[list[Any]]:
        found = self.get("pending_offsets", *where)
        return [] if found is None else found["offsets"]

    def _put_pending(self, where: Key, producer_id: int, sent: list[Any] | None) -> None:
        others = [pending for pending in self._pending(where) if pending[1] != producer_id]
        offsets = others if sent is None else sorted([*others, sent], key=lambda pending: pending[1])
        if offsets:
            named = dict(zip(("group_id", "topic_id", "partition"), where, strict=True))
            self.put({"type": "pending_offsets", **named, "offsets": offsets})
        else:
            self.records.pop(("pending_offsets", *where), None)

    def _check_owner(self, command: Command, producer_id: int) -> None:
        owner = command.get("owner", "")
        for topic_id, number, *values in command["offsets"]:
            started_from = values[3] if len(values) > 3 else -1
            if started_from < 0:
                continue
            where = (command["group_id"], topic_id, number)
            current = self.get("offset", *where)
            unmoved = current is None or current["effective_entry"] == started_from
            self.need(unmoved or (owner and current["owner"] == owner), "another consumer has committed meanwhile")
            for pending in self._pending(where):
                own = pending[1] == producer_id or (owner and pending[6] == owner)
                self.need(own, "another consumer's open transaction holds an offset")

    def _place(self, topic_id: int, number: int) -> None:
        if (topic_id, number) not in INTERNAL:
            self.existing("partition", topic_id, number)

    def offset_commit(self, command: Command) -> None:
        self.check_commit(command)
        self._check_owner(command, -1)
        for topic_id, number, *values in command["offsets"]:
            self._place(topic_id, number)
            where = {"group_id": command["group_id"], "topic_id": topic_id, "partition": number}
            told = {"commit_timestamp_ms": self.timestamp_ms, "entry": self.entry, "effective_entry": self.entry}
            self.put({"type": "offset", **where, **_offset_values(values), **told, "owner": command.get("owner", "")})
        self.remember(command)

    def _end_offset(self, transaction: Record, where: Key, committed: bool) -> None:
        producer_id = transaction["producer_id"]
        pending = next((pending for pending in self._pending(where) if pending[1] == producer_id), None)
        if pending is None:  # the group was deleted meanwhile
            return
        self._put_pending(where, producer_id, None)
        _, _, offset, metadata, leader_epoch, entry, owner = pending
        current = self.get("offset", *where)
        if committed and (current is None or current["entry"] <= entry):
            values = {"offset": offset, "metadata": metadata, "leader_epoch": leader_epoch}
            named = dict(zip(("group_id", "topic_id", "partition"), where, strict=True))
            told = {"commit_timestamp_ms": self.timestamp_ms, "entry": entry, "effective_entry": self.entry}
            self.put({"type": "offset", **named, **values, **told, "owner": owner})

    def delete_group(self, command: Command) -> None:
        self.need(self.get("group", command["group_id"]) is None, "a group is deleted that has members")
        for topic_id, number, entry in command["offsets"]:
            self._forget(("offset", command["group_id"], topic_id, number), entry)
        for topic_id, number, producer_id, entry in command["pending"]:
            where = (command["group_id"], topic_id, number)
            if any(pending[1] == producer_id and pending[5] == entry for pending in self._pending(where)):
                self._put_pending(where, producer_id, None)
        self.remember(command)

    def _forget(self, key: Key, entry: int) -> None:
        if key in self.records and self.records[key]["entry"] == entry:
            del self.records[key]

    def rewrite(self, command: Command) -> None:
        where = command["topic_id"], command["partition"]
        partition, located = self.existing("partition", *where), self.existing("segments", *where)
        base, end, run = command["base_offset"], command["end_offset"], command["run"]
        self.need(partition["log_start_offset"] < end <= partition["log_end_offset"], "it goes astray")
        is_open = any(base <= first < end for _, first, _ in partition["open_transactions"])
        self.need(not is_open, "it rewrites what is not decided")
        self.need(base <= run[1] < run[2] <= end, "the run does not lie in the range")
        self.need(run[4] == 0 and run[11] == 0 and run[13] == [], "the run has a level, or ended transactions")
        self.need(0 <= command["planned_entry"] < self.entry, "it was planned at no entry")
        store = self.store()
        for name in command["segments"]:
            match = re.fullmatch(r"(\d{20})-[0-9a-v]{20}\.(offsets\.)?parquet", name)
            self.need(match and store["segment_floor"] <= int(match[1]) < self.entry, "a segment has expired")
        self.need(store["horizon"] <= int(run[0][21:41]) < self.entry, "the run has expired")
        ranges = [[base, end, self.entry, run]]
        for first, last, entry, other in located["rewritten"]:
            touched = first < end and base < last
            self.need(not touched or entry <= command["planned_entry"], "another rewrite came first")
            if not touched:
                ranges.append([first, last, entry, other])
                continue
            ranges += [[low, high, entry, other] for low, high in ((first, base), (end, last)) if low < high]
        compacted = self._compacted(located["compacted"], command, partition)
        self.change(located, rewritten=sorted(ranges, key=lambda each: int(each[0])), compacted=compacted)
        self.remember(command)

    def _compacted(self, known: list[Any] | None, command: Command, partition: Record) -> list[Any] | None:
        if command["compaction"] is None:
            return known
        end, committed_entry, tombstones_end = command["compaction"]
        firsts = [first for _, first, _ in partition["open_transactions"]]
        self.need(end <= min([*firsts, partition["log_end_offset"]]), "it compacts what is not stable")
        self.need(max(command["end_offset"], tombstones_end) <= end, "it compacts less than it replaces")
        self.need(committed_entry <= command["planned_entry"], "it knows of later commits than its plan")
        before = known or [0, 0, []]
        passes = [each for each in before[2] if each[0] > tombstones_end]
        gone = []
        if partition.get("keyed"):
            gone = [each for each in before[2] if each[1] < 0]
            passes = [each for each in passes if each[1] >= 0]
            if tombstones_end > max([each[0] for each in gone], default=0):
                gone = [[tombstones_end, -self.entry]]
        if before[0] < end:
            passes.append([end, self.timestamp_ms])
        return [max(before[0], end), max(before[1], committed_entry), gone + passes[-100:]]

    def vacuum(self, command: Command) -> None:
        store = self.store()
        raised = {member: command[member] for member in ("horizon", "segment_floor")}
        self.need(all(store[member] <= value <= self.entry for member, value in raised.items()), "a vacuum goes astray")
        self.need(any(store[member] < value for member, value in raised.items()), "a vacuum changes nothing")
        self.put(store | raised)

    def require_features(self, command: Command) -> None:
        names = [*command["reader_features"], *command["writer_features"]]
        self.need(all(re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) for name in names), "a feature has no valid name")
        store = self.store()
        added = {
            member: sorted({*store[member], *command[member]}) for member in ("reader_features", "writer_features")
        }
        self.need(any(store[member] != names for member, names in added.items()), "features are required already")
        self.put(store | added)

    # expiry

    def expire_transactional_id(self, command: Command) -> None:
        transaction = self._owned(command)
        self.need(transaction["transaction"] == command["transaction"], "an id expires that has been used since")
        self.need(transaction["status"] != ONGOING, "an id expires that has an open transaction")
        del self.records["transaction", command["transactional_id"]]

    def expire_producers(self, command: Command) -> None:
        where = command["topic_id"], command["partition"]
        for producer_id, *seen in command["producers"]:
            producer = self.get("producer", *where, producer_id)
            if producer is None:
                continue
            last_sequence = producer["batches"][-1][1] if producer["batches"] else -1
            is_open = producer["current_transaction_first_offset"] >= 0 and self.get("partition", *where) is not None
            if seen == [producer["producer_epoch"], last_sequence, producer["coordinator_epoch"]] and not is_open:
                del self.records["producer", *where, producer_id]

    def expire_offsets(self, command: Command) -> None:
        for where in command["partitions"]:
            if tuple(where) not in INTERNAL and self.get("partition", *where) is None:
                self.records.pop(("offset", command["group_id"], *where), None)
        group_id, since = command["group_id"], command["empty_entry"]
        empty = self.get("empty_group", group_id) or {"entry": 0}
        if self.get("group", group_id) is not None or empty["entry"] != since:
            return
        for topic_id, partition, entry in command["idle"]:
            offset = self.get("offset", group_id, topic_id, partition)
            is_pending = self.get("pending_offsets", group_id, topic_id, partition) is not None
            if offset is not None and offset["effective_entry"] == entry and not is_pending:
                del self.records["offset", group_id, topic_id, partition]
        if since and not command["partitions"] and not command["idle"]:
            del self.records["empty_group", group_id]

    # conditional commits

    def expect_end_offset(self, command: Command) -> None:
        self._joined(command)
        end = self.existing("partition", command["topic_id"], command["partition"])["log_end_offset"]
        self.need(end == command["log_end_offset"], f"a transaction took effect at end {end}, against its expectation")

    # half transactions

    def prepare_half(self, command: Command) -> None:
        named = {member: command[member] for member in ("group_id", "transaction_id", "segments", "immunity_ms")}
        self.need(all(named[member] for member in ("group_id", "transaction_id", "segments")), "a half lacks a member")
        self.need(self._outcome(command) is None, "a half is prepared again after it was settled")
        known = self._half(command)
        count = len(known["segments"]) if known else 0
        before = known["segments"] if known else []
        sent = [[*each[:3], each[3][-27:] if each[3].endswith(".inline") else each[3], *each[4:]] for each in before]
        if known:
            self.need(sent == command["segments"][:count], "a half gets other segments")
            self.need(len(command["segments"]) > count, "a half is prepared a second time")
            self._pending_half(command)
        added = []
        for each in command["segments"][count:]:
            topic, topic_id, partition, segment, _, size_bytes, digits, *_ = each
            self.need(self.existing("topic", topic)["topic_id"] == topic_id, "a topic has another id")
            self.existing("partition", topic_id, partition)
            carried = {"segment": segment, "size_bytes": size_bytes, "checksum": digits}
            self._check_segment(carried | {"data": command["data"].get(segment, "")})
            is_inline = segment.endswith(".inline")
            added.append([*each[:3], f"{self.entry:020d}-{segment}" if is_inline else segment, *each[4:]])
        named["segments"] = [*before, *added]
        prepared = {"prepared_entry": self.entry, "prepared_timestamp_ms": self.timestamp_ms}
        half = {"type": "half", **named, **prepared, "due_ms": 0, "checks": 0, "checker": "", "discarded_entry": 0}
        if known:
            half = known | {"segments": named["segments"], "immunity_ms": command["immunity_ms"]}
        self._wait_half(half, command["immunity_ms"])

    def _half(self, command: Command) -> Any:
        return self.get("half", command["group_id"], command["transaction_id"])

    def _pending_half(self, command: Command) -> Record:
        half: Record = self.existing("half", command["group_id"], command["transaction_id"])
        self.need(half["discarded_entry"] == 0, "a discarded half is used")
        del self.records["half_due", half["group_id"], half["due_ms"] // 8_192, half["transaction_id"]]
        return half

    def _discarded_half(self, command: Command) -> Record:
        half: Record = self.existing("half", command["group_id"], command["transaction_id"])
        self.need(half["discarded_entry"] > 0, "a half is not discarded")
        return half

    def _wait_half(self, half: Record, wait_ms: int) -> None:
        due_ms = self.timestamp_ms + wait_ms
        self.put(half | {"due_ms": due_ms})
        named = {"group_id": half["group_id"], "slot": due_ms // 8_192, "transaction_id": half["transaction_id"]}
        self.put({"type": "half_due", **named, "due_ms": due_ms, "wait_ms": wait_ms, "entry": self.entry})

    def _bucket_of(self, command: Command) -> int:
        return zlib.crc32(command["transaction_id"].encode()) % 1_024

    def _outcome(self, command: Command) -> Any:
        known = self.get("half_outcomes", self._bucket_of(command))
        named = [command["group_id"], command["transaction_id"]]
        return next((one for one in known["settled"] if one[:2] == named), None) if known else None

    def check_half(self, command: Command) -> None:
        half = self._pending_half(command)
        self.need(half["checks"] == command["checks"], "a check is claimed that another has claimed")
        checked = half | {"checks": half["checks"] + 1, "checker": command["checker"]}
        self._wait_half(checked, command["wait_ms"])

    def end_half(self, command: Command) -> None:
        half = self._pending_half(command)
        for _, topic_id, number, segment, *rest, least, greatest in half["segments"] if command["committed"] else ():
            partition = self.existing("partition", topic_id, number)
            base = partition["log_end_offset"]
            self.change(partition, log_end_offset=base + rest[0])
            times = (self.timestamp_ms, self.timestamp_ms) if greatest < 0 else (least, greatest)
            placed = [segment, base, *rest, self.entry, -1, -1, -1, -1, *times, self.entry]
            located = self.existing("segments", topic_id, number)
            self.change(located, segments=[*located["segments"], placed])
        source = "check" if command["by_check"] else "client"
        self._settle_half(half, 1 if command["committed"] else 2, source)

    def _settle_half(self, half: Record, outcome: int, source: str) -> None:
        del self.records[key_of(half)]
        bucket = self._bucket_of(half)
        before = self.get("half_outcomes", bucket)
        token = half["segments"][-1][3][21:41]
        noted = [half["group_id"], half["transaction_id"], outcome, source, self.entry, token]
        settled = [*(before["settled"] if before else []), noted]
        old = [one for one in settled[:-32] if one[4] > self.entry - 1_000]
        self.put({"type": "half_outcomes", "bucket": bucket, "settled": [*old, *settled[-32:]]})

    def discard_half(self, command: Command) -> None:
        half = self._pending_half(command)
        self.need(half["checks"] == command["checks"], "a half is discarded that has been checked since")
        self.change(half, discarded_entry=self.entry)

    def resume_half(self, command: Command) -> None:
        half = self._discarded_half(command)
        self._wait_half(half | {"checks": 0, "checker": "", "discarded_entry": 0}, command["wait_ms"])

    def delete_half(self, command: Command) -> None:
        self._settle_half(self._discarded_half(command), 3, "administrator")

    # micro-batches

    def sink_batch_commit(self, command: Command) -> None:
        transaction = self._joined(command)
        writer_id, run_id = command["writer_id"], command["run_id"]
        batch = [command["batch_id"], command["fingerprint"], self.entry]
        sink = transaction["pending_sink"] or transaction["sink"]
        if sink is None:
            self.change(transaction, pending_sink=[writer_id, run_id, [], [], [batch]])
            return
        last_writer, last_run, superseded, past_writers, batches = sink
        self.need(writer_id not in past_writers, "a superseded writer commits a batch")
        if writer_id != last_writer:
            past_writers = [*past_writers, last_writer][-100:]
            self.change(transaction, pending_sink=[writer_id, run_id, [], past_writers, [batch]])
            return
        self.need(run_id not in superseded, "a superseded run commits a batch")
        self.need(batch[0] > batches[-1][0], "a batch is committed again")
        if last_run and last_run != run_id:
            superseded = [*superseded, last_run][-100:]
        self.change(transaction, pending_sink=[writer_id, run_id, superseded, past_writers, [*batches, batch][-20:]])


def _offset_values(values: list[Any]) -> Record:
    return dict(zip(("offset", "metadata", "leader_epoch"), values[:3], strict=True))


def _names_identity_before(command: Command, transaction: Record) -> bool:
    """True if an init names the identity before the last bump, which was made for a call that named it."""
    if transaction["last_producer_epoch"] < 0 or command["producer_epoch"] != transaction["last_producer_epoch"]:
        return False
    has_new_id = transaction["producer_epoch"] == 0 and transaction["previous_producer_id"] >= 0
    before = transaction["previous_producer_id"] if has_new_id else transaction["producer_id"]
    return bool(command["producer_id"] == before)


def above_log_start(located: Record, log_start: int) -> Record:
    """The places of a partition without what ends at or below the log start."""
    return located | {
        "sealed": [run for run in located["sealed"] if run[2] > log_start],
        "segments": [segment for segment in located["segments"] if segment[1] + segment[2] > log_start],
        "aborted": [aborted for aborted in located["aborted"] if aborted[2] + 1 > log_start],
        "committed": [committed for committed in located["committed"] if committed[2] + 1 > log_start],
        "rewritten": [rewritten for rewritten in located["rewritten"] if rewritten[1] > log_start],
    }


KEYS = {
    "store": (),
    "requests": ("bucket",),
    "intents": ("slot",),
    "topic": ("name",),
    "topic_name": ("collision_key",),
    "partition": ("topic_id", "partition"),
    "segments": ("topic_id", "partition"),
    "producer": ("topic_id", "partition", "producer_id"),
    "transaction": ("transactional_id",),
    "half": ("group_id", "transaction_id"),
    "half_due": ("group_id", "slot", "transaction_id"),
    "half_outcomes": ("bucket",),
    "offset": ("group_id", "topic_id", "partition"),
    "pending_offsets": ("group_id", "topic_id", "partition"),
    "group": ("group_id",),
    "empty_group": ("group_id",),
    "member": ("group_id", "member_id"),
    "subscribers": ("name",),
    "table": ("topic_id",),
    "published": ("topic_id", "partition"),
}


def key_of(record: Record) -> Key:
    return (record["type"], *(record[member] for member in KEYS[record["type"]]))
