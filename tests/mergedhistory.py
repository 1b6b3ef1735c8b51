"""Random histories of a maintained store, with a plain model of what each of its views holds."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparktxn import Producer, Store, TopicPartition
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn._foundation.process.clock import SystemClock
from sparktxn._kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.admin import AdminClient
from sparktxn.halfmessage.engine import HalfEngine
from sparktxn.halfmessage.records import MessageRecord
from sparktxn.maintenance import apply_retention, compact, rewrite
from sparktxn.maintenance.publishing.background import Folder
from sparktxn.producer import PreparedTransaction

__all__ = ["COLUMNS", "DAY_MS", "OPTIONS", "PARTITIONS", "PLAIN", "TYPED", "MergedHistory", "Row", "columns_of"]

PARTITIONS: Final = 2
KEYS: Final = 6
DAY_MS: Final = 86_400_000
OPTIONS: Final = {"store.fsync": False, "checkpoint.seal.segments": 2, "checkpoint.fold.bytes.per.minute": 0}
"""Nothing is done in the background: the newest entry after a commit is the one that committed."""
TYPED: Final = "typed"
"""A topic with declared columns, which become more."""
KEYED: Final = "keyed"
"""A topic of keys and values that is compacted."""
PLAIN: Final = "plain"
"""A topic of keys and values that also takes half messages."""
_RECORD: Final = ("partition", "offset", "entry", "key", "value")
COLUMNS: Final = {TYPED: ("_partition", "_offset", "_entry"), KEYED: _RECORD, PLAIN: _RECORD}
"""What a row of the model has, the declared columns after these."""

Row = tuple[Any, ...]
Place = tuple[str, int, int]
"""A topic, a partition and an offset."""


class Written(NamedTuple):
    """A record: its values by column, and whether retention may remove it."""

    values: dict[str, Any]
    is_old: bool


class Snapshot(NamedTuple):
    """What one view holds: the declared columns, committed rows by place, and the last stable offsets."""

    columns: tuple[str, ...]
    rows: dict[Place, tuple[int, Written]]
    stable_ends: dict[tuple[str, int], int]


class MergedHistory:
    """Three topics that producers write to, and that are folded, rewritten, compacted and cut in between.

    `seen` has the model of each view that a step left. `settings` are those of all topics. Transactions are ended at
    once, stay open, or are prepared; so are those of half messages.
    """

    settings: Mapping[str, str] = {}

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.columns = [pa.field("id", pa.int64())]
        self.rows: dict[Place, tuple[int, Written]] = {}
        self.pending: dict[str, dict[Place, Written]] = {}
        self.seen: dict[int, Snapshot] = {}
        self.prepared: dict[str, PreparedTransaction] = {}
        self.halves: list[tuple[str, dict[str, Any]]] = []
        self.retained = self.compacted = self.committed_halves = self.committed_prepared = 0
        self.number = 0
        kept: dict[str, str | None] = {"retention.ms": str(DAY_MS), **self.settings}
        compaction = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0"}
        store.create_topic(TYPED, PARTITIONS, schema=pa.schema(self.columns), settings=kept)
        store.create_topic(KEYED, PARTITIONS, settings=kept | compaction | {"delete.retention.ms": str(2**50)})
        store.create_topic(PLAIN, PARTITIONS, settings=kept)
        self.admin = AdminClient({"bootstrap.servers": store.uri, **OPTIONS})
        self.folder = Folder(store.log, 1 << 40, RewriteSettings(target_bytes=4_096, min_segments=2), pause_s=0)
        self.producers: dict[str, Producer] = {}
        # Without a client that asks what has become of half messages, whenever they are due.
        self.engine = HalfEngine(HalfMessageSettings.parse({"bootstrap.servers": store.uri, **OPTIONS}))
        self._start()

    def step(self) -> None:
        """Do one thing, most often a write, and note what the view holds then."""
        actions = {
            self._write: 20,
            self._half: 3,
            self._fold: 2,
            self._rewrite: 2,
            self._compact: 2,
            self._delete: 1,
            self._retain: 1,
            self._add_column: 1,
        }
        self.random.choices([*actions], [*actions.values()])[0]()
        self.note()

    def finish(self) -> None:
        """Add a column, write, fold, compact, rewrite and shorten what there is."""
        for name in [*self.pending]:
            self._commit(name)
        while self.halves:
            self._end_half()
        writes = [self._write] * 5
        for action in (self._add_column, *writes, self._fold, self._compact, self._rewrite, self._retain):
            action()
            self.note()

    def note(self) -> None:
        """Note what the newest view holds."""
        view = self.store.view([*COLUMNS])
        ends = {place: partition.last_stable_offset for place, partition in view.partitions.items()}
        self.seen[view.entry] = Snapshot(tuple(field.name for field in self.columns), dict(self.rows), ends)

    def expected(self, topic: str, entry: int, *, is_stable: bool = False) -> list[Row]:
        """Return the rows of a view, sorted, with `COLUMNS` and the declared ones; below the last stable offsets."""
        seen = self.seen[entry]
        names = seen.columns if topic == TYPED else ("key", "value")
        return sorted(
            (partition, offset, committed, *map(written.values.get, names))
            for (of, partition, offset), (committed, written) in seen.rows.items()
            if of == topic and (not is_stable or offset < seen.stable_ends[topic, partition])
        )

    def close(self) -> None:
        """Close the clients; what they have not committed is aborted."""
        for producer in self.producers.values():
            producer.close()
        self.engine.close()
        self.admin.close()

    def _start(self) -> None:
        for name in ("a", "b"):
            # Nothing times out on a slow machine.
            settings = {"transactional.id": name, "transaction.timeout.ms": 900_000, **OPTIONS}
            self.producers[name] = Producer({"bootstrap.servers": self.store.uri, **settings})
            self.producers[name].init_transactions()

    def _write(self) -> None:
        name = self.random.choice(sorted(self.producers))
        producer = self.producers[name]
        if name in self.prepared:
            self._end_prepared(name)
            return
        self._produce(name, self.random.choice([*COLUMNS]), self.random.randrange(PARTITIONS))
        chance = self.random.random()
        if chance < 0.5:
            self._commit(name)
        elif chance < 0.65:
            producer.abort_transaction()
            del self.pending[name]
        elif chance < 0.75:
            self.prepared[name] = producer.prepare_transaction()

    def _produce(self, name: str, topic: str, partition: int) -> None:
        """Write some records in a producer's transaction, which begins with them if none is open."""
        producer = self.producers[name]
        if name not in self.pending:
            producer.begin_transaction()
            self.pending[name] = {}
        is_old = self.random.random() < 0.7
        rows = self._typed_rows() if topic == TYPED else self._keyed_rows()
        timestamp_ms = 1_000_000 + self.number if is_old else SystemClock().wall_ms()
        if topic == TYPED:
            table = pa.Table.from_pylist(rows, pa.schema(self.columns))
            times = pa.array([timestamp_ms] * len(rows), pa.timestamp("ms", "UTC"))
            producer.produce_arrow(topic, table.append_column("_timestamp", times), partition)
        else:
            for row in rows:
                producer.produce(topic, row["value"], row["key"], partition=partition, timestamp=timestamp_ms)
        producer.flush()
        first = self._end(topic, partition) - len(rows)
        self.pending[name] |= {
            (topic, partition, first + place): Written(row, is_old) for place, row in enumerate(rows)
        }

    def _end_prepared(self, name: str) -> None:
        if self.random.random() < 0.3:
            self.producers[name].abort_transaction()
            del self.pending[name], self.prepared[name]
        else:
            self._commit(name)
            self.committed_prepared += 1

    def _half(self) -> None:
        """Send a half message, or end the transaction of one."""
        if self.halves and self.random.random() < 0.6:
            self._end_half()
            return
        row = self._keyed_rows()[0] | {"value": b"half %d" % self.number}
        name = f"half {self.number}"
        message = MessageRecord(PLAIN, row["value"], name, SystemClock().wall_ms(), keys=(row["key"].decode(),))
        self.engine.prepare("shop", name, self.engine.stage([message]), 6_000)
        self.halves.append((name, row))

    def _end_half(self) -> None:
        name, row = self.halves.pop(self.random.randrange(len(self.halves)))
        if self.random.random() < 0.3:
            self.engine.end("shop", name, committed=False)
            return
        before = [self._end(PLAIN, partition) for partition in range(PARTITIONS)]
        self.engine.end("shop", name, committed=True)
        entry = self.store.view([PLAIN]).entry
        (partition,) = (number for number in range(PARTITIONS) if self._end(PLAIN, number) > before[number])
        self.rows[PLAIN, partition, before[partition]] = entry, Written(row, is_old=False)
        self.committed_halves += 1

    def _commit(self, name: str) -> None:
        if name in self.prepared:
            self.producers[name].complete_transaction(self.prepared.pop(name))
        else:
            self.producers[name].commit_transaction()
        entry = self.store.view([TYPED]).entry
        self.rows |= {place: (entry, row) for place, row in self.pending.pop(name).items()}

    def _typed_rows(self) -> list[dict[str, Any]]:
        count = self.random.randrange(1, 6)
        self.number += count
        return [{field.name: number for field in self.columns} for number in range(self.number - count, self.number)]

    def _keyed_rows(self) -> list[dict[str, Any]]:
        """Rows with different keys: a compaction takes a segment as a whole, or not at all."""
        keys = self.random.sample(range(KEYS), self.random.randrange(1, 4))
        self.number += len(keys)
        value = None if self.random.random() < 0.2 else b"%d" % self.number
        return [{"key": b"k%d" % key, "value": value} for key in keys]

    def _end(self, topic: str, partition: int) -> int:
        return self.store.view([topic]).partitions[topic, partition].log_end_offset

    def _fold(self) -> None:
        self.store.log.checkpoint()
        self.folder.after_checkpoint()
        self.folder.step()

    def _rewrite(self) -> None:
        target = self.random.choice([1_024, 33_554_432])
        rewrite(self.store, {"rewrite.min.segments": 2, "rewrite.target.bytes": target})

    def _compact(self) -> None:
        """Keep the newest record of each key, tombstones too, of what is below the last stable offset."""
        ends = {place: partition.last_stable_offset for place, partition in self.store.view([KEYED]).partitions.items()}
        newest: dict[tuple[int, bytes], Place] = {}
        below = [place for place in sorted(self.rows) if place[0] == KEYED and place[2] < ends[KEYED, place[1]]]
        for place in below:
            newest[place[1], self.rows[place][1].values["key"]] = place
        gone = set(below) - set(newest.values())
        report = compact(self.store, {"compact.target.bytes": self.random.choice([1_024, 33_554_432])})
        assert (report.lost, report.unresolved, report.removed_records) == ((), 0, len(gone))
        self.compacted += len(gone)
        self.rows = {place: row for place, row in self.rows.items() if place not in gone}

    def _delete(self) -> None:
        """Move a log start, often into a file."""
        topic, number = self.random.choice([*COLUMNS]), self.random.randrange(PARTITIONS)
        partition = self.store.view([topic]).partitions[topic, number]
        start = self.random.randint(partition.log_start_offset, partition.last_stable_offset)
        for future in self.admin.delete_records([TopicPartition(topic, number, start)]).values():
            future.result()
        self._shorten(topic, number, start)

    def _retain(self) -> None:
        for short in apply_retention(self.store).shortened:
            removed = self._shorten(short.topic, short.partition, short.new_log_start_offset)
            assert all(row.is_old for row in removed)
            self.retained += len(removed)

    def _shorten(self, topic: str, partition: int, start: int) -> list[Written]:
        below = {place for place in self.rows if place[:2] == (topic, partition) and place[2] < start}
        return [self.rows.pop(place)[1] for place in below]

    def _add_column(self) -> None:
        if len(self.columns) < 4 and not self.pending:
            field = pa.field(f"more{len(self.columns)}", pa.int64())
            self.store.add_columns(TYPED, pa.schema([field]))
            self.columns.append(field)
            # A producer knows the columns of the time when it first wrote.
            for producer in self.producers.values():
                producer.close()
            self._start()


def columns_of(topic: str, seen: Snapshot) -> list[str]:
    """Return the names of the columns that the model has of a topic's rows."""
    return [*COLUMNS[topic], *(seen.columns if topic == TYPED else ())]
