"""The rows of docs/PROTOCOL.md, section "Internal topics", by its words alone."""

from __future__ import annotations

from tests.compatibility.independent_replay import INTERNAL_NAMES, Command, Key, Record, Replay

ROWS_PER_ENTRY = 2**20
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
PREPARE_COMMIT, PREPARE_ABORT = 2, 3
IDENTITY = ("status", "producer_id", "producer_epoch", "transaction", "prepared")
SHOWN = ("producer_id", "producer_epoch", "transaction", "timeout_ms", "last_producer_epoch", "previous_producer_id")


class History(Replay):
    """A replay that notes what it passes; `transactions` and `offsets` are the two topics' rows by offset."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions: dict[int, Record] = {}
        self.offsets: dict[int, Record] = {}
        self.halves: dict[int, Record] = {}
        self.settled: dict[int, Record] = {}
        self.discarded: dict[int, Record] = {}
        self._passed: dict[Key, list[Record | None]] = {}
        self._committing: Record | None = None
        self._names = {-2 - place: name for place, name in enumerate(INTERNAL_NAMES)}

    def apply(self, entry: int, timestamp_ms: int, commands: list[Command]) -> None:
        before = {
            key: record for key, record in self.records.items() if key[0] in ("transaction", "offset", "member", "half")
        }
        self._passed = {}
        super().apply(entry, timestamp_ms, commands)
        for key in before.keys() - self.records.keys():
            if key[0] not in ("half", "member"):
                self._passed.setdefault(key, []).append(None)
        before |= {("discarded", *key[1:]): half for key, half in before.items() if half.get("discarded_entry")}
        tables = {"transaction": self.transactions, "offset": self.offsets, "half": self.halves}
        for table, rows in (tables | {"settled": self.settled, "discarded": self.discarded}).items():
            first = number = entry * ROWS_PER_ENTRY
            for key in sorted(key for key in self._passed if key[0] == table):
                if table == "offset" and key[2] < 0:
                    continue
                current = before.get(key)
                for record in self._passed[key]:
                    if _plain(record) != _plain(current):
                        rows[number] = self._row(key, record, timestamp_ms)
                        number += 1
                    current = record
            if table == "offset":
                number = self._add_members(before, number, timestamp_ms)
            assert number - first < ROWS_PER_ENTRY

    def _add_members(self, before: dict[Key, Record], number: int, timestamp_ms: int) -> int:
        """A row for each member that differs from what it was before the entry, but for its sign of life."""
        for key in sorted(key for key in {*before, *self.records} if key[0] == "member"):
            was, now = before.get(key), self.records.get(key)
            if was is None or now is None or was | {"last_entry": now["last_entry"]} != now:
                row: Record = {"entry": self.entry, "timestamp_ms": timestamp_ms}
                row |= {"group_id": key[1], "member_id": key[2]}
                self.offsets[number] = row if now is None else row | self._member(now)
                number += 1
        return number

    def _member(self, record: Record) -> Record:
        shown = {name: record[name] for name in ("client_id", "host", "member_epoch", "topics")}
        shown |= {"group_instance_id": record["instance_id"] or None, "is_away": record["left"]}
        for name in ("assigned", "revoking"):
            shown[name] = [{"topic": self._names.get(held[0]), "partition": held[1]} for held in record[name]]
        return shown

    def put(self, record: Record) -> None:
        if record["type"] == "half":
            key = ("half", record["group_id"], record["transaction_id"])
            self._pass_half(key, self.records.get(key), record)
        elif record["type"] == "half_outcomes":
            settled = record["settled"][-1]
            self._passed[("settled", settled[0], settled[1])] = [{"settled": settled}]
        super().put(record)
        if record["type"] == "topic":
            self._names[record["topic_id"]] = record["name"]
        if record["type"] == "transaction":
            self._pass(record)
        elif record["type"] == "offset":
            self._pass(record | {"by": self._committing})

    def _pass_half(self, key: Key, before: Record | None, half: Record | None) -> None:
        self._passed.setdefault(key, []).append(half)
        was, now = (bool(one and one["discarded_entry"]) for one in (before, half))
        if was or now:
            self._passed.setdefault(("discarded", *key[1:]), []).append(half if now else None)

    def _settle_half(self, half: Record, outcome: int, source: str) -> None:
        key = ("half", half["group_id"], half["transaction_id"])
        self._pass_half(key, self.records[key], None)
        super()._settle_half(half, outcome, source)

    def _pass(self, record: Record) -> None:
        if record["type"] == "offset":
            key: Key = ("offset", record["group_id"], record["topic_id"], record["partition"])
            self._passed.setdefault(key, []).append(record)
            return
        passed = self._passed.setdefault(("transaction", record["transactional_id"]), [])
        last = passed[-1] if passed else None
        if last is not None and all(last[member] == record[member] for member in IDENTITY):
            passed.pop()
        passed.append(record)

    def _end(self, transaction: Record, *, committed: bool) -> Record:
        self._pass(transaction | {"status": PREPARE_COMMIT if committed else PREPARE_ABORT})
        self._committing = transaction if committed else None
        ended = super()._end(transaction, committed=committed)
        self._committing = None
        return ended

    def _row(self, key: Key, record: Record | None, timestamp_ms: int) -> Record:
        row: Record = {"entry": self.entry, "timestamp_ms": timestamp_ms}
        if key[0] in ("half", "settled", "discarded"):
            row |= {"group_id": key[1], "transaction_id": key[2]}
            return row if record is None else row | _half(key[0], record)
        if key[0] == "transaction":
            row["transactional_id"] = key[1]
            return row if record is None else row | self._transaction(record)
        row |= {"group_id": key[1], "topic": self._names.get(key[2]), "topic_id": key[2], "partition": key[3]}
        return row if record is None else row | _offset(record)

    def _transaction(self, record: Record) -> Record:
        return {
            "state": STATES[record["status"]],
            **{member: record[member] for member in SHOWN},
            "partitions": [{"topic": self._names.get(topic), "partition": n} for topic, n in record["partitions"]],
            "groups": list(dict.fromkeys(group for group, _, _ in record["offsets"])),
            "start_timestamp_ms": _time(record["start_timestamp_ms"]),
            "last_update_timestamp_ms": _time(record["last_update_timestamp_ms"]),
            "prepared": record["prepared"] is not None,
            "fence_reason": record["fence_reason"] or None,
        }


def _half(table: str, record: Record) -> Record:
    if table == "settled":
        _, _, outcome, source, *_ = record["settled"]
        return {"outcome": ("Committed", "RolledBack", "Deleted")[outcome - 1], "source": source}
    found = {
        "checks": record["checks"],
        "topics": sorted({segment[0] for segment in record["segments"]}),
        "message_count": sum(segment[4] for segment in record["segments"]),
        "prepared_timestamp_ms": record["prepared_timestamp_ms"],
    }
    if table == "discarded":
        return found
    is_discarded = record["discarded_entry"] > 0
    due_ms = None if is_discarded else record["due_ms"]
    return found | {"state": "Discarded" if is_discarded else "Pending", "due_timestamp_ms": due_ms}


def _plain(record: Record | None) -> Record | None:
    return None if record is None else {member: value for member, value in record.items() if member != "by"}


def _offset(record: Record) -> Record:
    by = record["by"] or {"transactional_id": None, "producer_id": None}
    return {
        "offset": record["offset"],
        "metadata": record["metadata"],
        "leader_epoch": None if record["leader_epoch"] < 0 else record["leader_epoch"],
        "commit_timestamp_ms": record["commit_timestamp_ms"],
        "transactional_id": by["transactional_id"],
        "producer_id": by["producer_id"],
    }


def _time(timestamp_ms: int) -> int | None:
    return None if timestamp_ms < 0 else timestamp_ms
