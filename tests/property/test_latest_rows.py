"""Latest rows of keyed topics: at each entry every reader of tables gives what a dict replayed from the commits has."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sparktxn import Consumer, Producer, Store, TopicPartition, read_arrow, to_duckdb, to_pandas
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn._rows.scan import latestrows, latesttask, superseded
from sparktxn.admin.topics import delete_topic
from sparktxn.errors import KafkaException
from sparktxn.maintenance import compact, rewrite, vacuum
from sparktxn.maintenance.publishing.background import Folder
from sparktxn.tables import to_polars
from tests.compatibility.independent_reader import StoreReader
from tests.seeds import examples, seed_of

Key = tuple[Any, ...]
Rows = dict[Key, tuple[Any, ...]]
Change = tuple[Key, tuple[Any, ...] | None]

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("region", pa.string(), nullable=False),
        ("tags", pa.list_(pa.int8())),
        ("size", pa.int32()),
    ]
)
KEYS = ("id", "region,id")
ALL = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}
CALM = {"store.fsync": False, "checkpoint.fold.bytes.per.minute": 0}
PARTITIONS = 3


class Program:
    """A random program, and the rows that each entry must show."""

    def __init__(self, root: Path, random: Random) -> None:
        self.uri, self.random = str(root), random
        self.store = Store.open(self.uri, create=True, options=CALM | {"checkpoint.seal.segments": 3})
        self.key = random.choice(KEYS)
        small = {
            "segment.rows": str(random.choice([2, 10_000_000])),
            "append.inline.bytes": random.choice(["0", "16384"]),
        }
        compaction = {
            "min.cleanable.dirty.ratio": random.choice(["0", "0.3"]),
            "delete.retention.ms": random.choice(["0", "604800000"]),
        }
        settings = {"primary.key": self.key, "segment.format": random.choice(["parquet", "arrow"])}
        self.settings = settings | small | compaction
        self.store.create_topic("plain", 1)
        # The columns of an entry become more with those of its topic.
        self.shown: dict[int, tuple[list[str], Rows]] = {}
        self.create()
        self.first_entry = 0
        self.folder = Folder(self.store.log, 1 << 40, RewriteSettings(target_bytes=4_096, min_segments=2), pause_s=0)
        self.numbers = count(1)
        self.waiting: dict[str, list[Change]] = {"a": [], "b": []}
        self.open_producers()

    def create(self) -> None:
        """Create the topic."""
        self.store.create_topic("keyed", PARTITIONS, settings=self.settings, schema=SCHEMA)
        self.columns = list(SCHEMA.names)
        self.rows: Rows = {}
        self.commit([])

    def open_producers(self) -> None:
        self.producers = {name: self.producer(name) for name in ("a", "b")}
        self.plain = Producer({"bootstrap.servers": self.uri, "linger.ms": 0} | CALM)

    def producer(self, name: str) -> Producer:
        found = Producer({"bootstrap.servers": self.uri, "transactional.id": name} | CALM)
        found.init_transactions(30)
        found.begin_transaction()
        return found

    def key_of(self, row: dict[str, Any]) -> Key:
        return tuple(row[name] for name in self.key.split(","))

    def batch(self) -> tuple[pa.Table, list[Change]]:
        """Some rows, keys among them twice: upserts, deletes or both."""
        kind = self.random.choice(["upserts", "upserts", "both", "keys"])
        rows = []
        for _ in range(self.random.randint(1, 6)):
            number = next(self.numbers)
            row = {
                "id": self.random.randrange(8), "region": self.random.choice(["", "EU", 'a"b']), "name": f"n{number}",
                "tags": self.random.choice([None, [1, None], []]), "size": self.random.choice([None, number]),
                "_deleted": kind == "keys" or (kind == "both" and self.random.random() < 0.4),
            }  # fmt: skip
            row |= {name: self.random.choice([None, number]) for name in self.columns if name not in row}
            rows.append(row)
        changes: list[Change] = [
            (self.key_of(row), None if row["_deleted"] else tuple(row[name] for name in self.columns)) for row in rows
        ]
        kept = [name for name in rows[0] if kind == "both" or name != "_deleted"]
        if kind == "keys":
            kept = self.key.split(",") + (["_deleted"] if self.random.random() < 0.5 else [])
        types = {field.name: field.type for field in SCHEMA}
        table = pa.table({name: pa.array([row[name] for row in rows], types.get(name)) for name in kept})
        return table, changes

    def commit(self, changes: list[Change]) -> None:
        """Note that an entry shows these changes, too."""
        for key, row in changes:
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        self.shown[self.store.view().entry] = (self.columns, dict(self.rows))

    # steps

    def produce(self) -> None:
        name = self.random.choice("ab")
        table, changes = self.batch()
        delete = table.num_columns == len(self.key.split(","))
        if self.random.random() < 0.3:
            self.producers[name].produce("plain", b"x")
        self.producers[name].produce_arrow("keyed", table, delete=delete)
        self.waiting[name] += changes
        if self.random.random() < 0.3:
            self.producers[name].flush(30)

    def end(self) -> None:
        name = self.random.choice("ab")
        producer = self.producers[name]
        if self.random.random() < 0.75:
            producer.commit_transaction(30)
            self.commit(self.waiting[name])
        else:
            producer.abort_transaction(30)
        self.waiting[name] = []
        producer.begin_transaction()

    def take_over(self) -> None:
        name = self.random.choice("ab")
        old, self.producers[name] = self.producers[name], self.producer(name)
        changes, self.waiting[name] = self.waiting[name], []
        if changes:
            with pytest.raises(KafkaException):
                old.commit_transaction(30)
        old.close()

    def stage(self) -> None:
        stager = self.store.stage_plan(["keyed"]).open(seed=1, default_topic="keyed", inline=self.random.random() < 0.5)
        changes: list[Change] = []
        for _ in range(self.random.randint(1, 3)):
            table, more = self.batch()
            stager.write(table, delete=table.num_columns == len(self.key.split(",")))
            changes += more
        self.store.commit(stager.finish(), transactional_id=self.random.choice([None, "job"]))
        self.commit(changes)

    def append(self) -> None:
        table, changes = self.batch()
        self.plain.produce_arrow("keyed", table, delete=table.num_columns == len(self.key.split(",")))
        assert self.plain.flush(30) == 0
        self.commit(changes)

    def widen(self) -> None:
        if len(self.columns) < len(SCHEMA) + 2 and not any(self.waiting.values()):
            name = f"more{len(self.columns)}"
            self.store.add_columns("keyed", pa.schema([(name, pa.int64())]))
            self.columns.append(name)
            self.rows = {key: (*row, None) for key, row in self.rows.items()}
            for entry, (columns, rows) in self.shown.items():
                if columns is self.columns:
                    self.shown[entry] = (columns, {key: (*row, None) for key, row in rows.items()})
            for producer in self.producers.values():
                producer.abort_transaction(30)
                producer.begin_transaction()

    def create_again(self) -> None:
        if not any(self.waiting.values()) and self.random.random() < 0.3:
            delete_topic(self.store.log, "keyed")
            self.create()
            # Clients know a topic by its id for a while.
            for producer in (*self.producers.values(), self.plain):
                producer.close()
            self.open_producers()

    def maintain(self) -> None:
        kind = self.random.choice(["compact", "compact", "rewrite", "fold"])
        if kind == "compact":
            compact(self.store, {"compact.target.bytes": self.random.choice([1_024, 33_554_432])})
        elif kind == "rewrite":
            rewrite(self.store, {"rewrite.min.segments": 2})
        else:
            self.store.log.checkpoint()
            self.folder.after_checkpoint()
            self.folder.step()
        if self.random.random() < 0.5:
            self.store.log.checkpoint()
        if self.random.random() < 0.3:
            self.store.log.checkpoint()
            self.first_entry = max(self.first_entry, vacuum(self.store, ALL).horizon)

    def run(self, steps: int) -> None:
        kinds: list[Callable[[], None]] = [
            *[self.produce] * 5, *[self.end] * 4, *[self.stage] * 2, *[self.append] * 2,
            self.take_over, self.widen, self.create_again, *[self.maintain] * 2,
        ]  # fmt: skip
        for _ in range(steps):
            self.random.choice(kinds)()

    # what is read

    def read(self, entry: int, **asked: Any) -> Rows:
        columns, _ = self.shown[entry]
        table = read_arrow(self.store, "keyed", as_of=entry, columns=columns, **asked).read_all()
        found = {self.key_of(row): tuple(row.values()) for row in table.to_pylist()}
        assert len(found) == table.num_rows
        return found

    def close(self) -> None:
        for producer in (*self.producers.values(), self.plain):
            producer.close()
        self.store.close()


@pytest.fixture
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans compare a few keys at once, and many keys have one hash."""
    monkeypatch.setattr(latesttask, "plan_latest", partial(latestrows.plan_latest, memory_bytes=200))
    monkeypatch.setattr(superseded, "_JOINED_ROWS_MIN", 3)
    monkeypatch.setattr(superseded, "_COMPARED_ROWS", 2)
    hashes_of = superseded.hashes_of
    monkeypatch.setattr(superseded, "hashes_of", lambda columns: hashes_of(columns) % np.uint64(3) << np.uint64(60))


@pytest.fixture
def small_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows of a base are joined at once, with a few rows of a tail at most."""
    monkeypatch.setattr(superseded, "_JOINED_ROWS_MIN", 2)
    monkeypatch.setattr(superseded, "_JOINED_ROWS_MAX", 2)
    monkeypatch.setattr(latestrows, "_JOINED_KEYS_MAX", 9)


def programs() -> Iterator[int]:
    yield from range(examples(5, 200))


@pytest.mark.parametrize("number", list(programs()))
def test_at_each_entry_the_latest_rows_are_those_of_a_dict(
    tmp_path: Path, number: int, request: pytest.FixtureRequest
) -> None:
    if number % 3:
        request.getfixturevalue(("", "small_turns", "small_joins")[number % 3])
    random = Random(seed_of(f"latest rows {number}", number))
    program = Program(tmp_path / "store", random)
    program.run(40)
    known = sorted(entry for entry in program.shown if entry >= program.first_entry)
    for entry in known:
        columns, expected = program.shown[entry]
        assert program.read(entry) == expected, f"entry {entry}"
        some = random.choice(sorted(expected)) if expected else program.key_of({"id": 0, "region": ""})
        wanted = list(zip(program.key.split(","), ["="] * len(some), some, strict=True))
        assert program.read(entry, where=wanted) == {key: row for key, row in expected.items() if key == some}
        for asked in _conditions(random, program):
            found = {
                key: row
                for key, row in expected.items()
                if _meets(asked, dict(zip(columns, row, strict=True)) | {"_deleted": False})
            }
            assert program.read(entry, where=asked) == found, f"entry {entry}, {asked}"
        size = columns.index("size")
        bigger = {key: row for key, row in expected.items() if row[size] is not None and row[size] > 40}
        assert program.read(entry, where=[("size", ">", 40)]) == bigger
        assert program.read(entry, where=pc.field("size") > 40) == bigger
    _every_reader_agrees(program)
    program.close()


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, ">=": operator.ge,
    "in": lambda value, values: value in values,
    "not in": lambda value, values: value not in values,
    "starts with": lambda value, start: value.startswith(start),
}  # fmt: skip


_ON_DELETES: list[tuple[str, str, Any]] = [
    ("_deleted", "=", False), ("_deleted", "!=", True), ("_deleted", "in", [False]), ("_deleted", "=", True),
]  # fmt: skip


def _conditions(random: Random, program: Program) -> Iterator[list[tuple[str, str, Any]]]:
    """On the whole key, on a part of it, several on a column, and together with other columns."""
    ids, regions = range(-1, 9), ["", "EU", 'a"b', "US"]
    on_ids = [
        ("id", "=", random.choice(ids)), ("id", "in", random.choices(ids, k=3)), ("id", "<", random.choice(ids)),
        ("id", "not in", random.choices(ids, k=2)),
    ]  # fmt: skip
    on_regions = [
        ("region", "=", random.choice(regions)), ("region", "in", random.choices(regions, k=2)),
        ("region", "!=", random.choice(regions)), ("region", "starts with", random.choice(["", "E", "a"])),
    ]  # fmt: skip
    others = [("name", ">=", "n3"), ("size", ">=", 30), ("size", "!=", 0), *_ON_DELETES]
    for _ in range(4):
        asked = [random.choice(on_ids), random.choice(on_regions)]
        asked += random.sample([*on_ids, *on_regions, *others], random.randint(0, 2))
        random.shuffle(asked)
        yield asked[random.choice([0, 0, 1]) :]


def _meets(asked: list[tuple[str, str, Any]], row: dict[str, Any]) -> bool:
    return all(row[name] is not None and _COMPARED[kind](row[name], value) for name, kind, value in asked)


def _every_reader_agrees(program: Program) -> None:
    """Tables of now, without the columns named, and the log, which a reader applies row by row."""
    uri, rows = program.uri, program.rows
    table = read_arrow(uri, "keyed").read_all()
    assert "_deleted" not in table.column_names
    counts = {
        "arrow": table.num_rows, "pandas": len(to_pandas(uri, "keyed")), "polars": to_polars(uri, "keyed").height,
        "duckdb": len(to_duckdb(uri, "keyed").fetchall()),
    }  # fmt: skip
    assert set(counts.values()) == {len(rows)}, counts
    applied: Rows = {}
    whole = read_arrow(uri, "keyed", rows="all").read_all().to_pylist()
    for asked in ([one] for one in _ON_DELETES):
        some = read_arrow(uri, "keyed", rows="all", where=asked).read_all().to_pylist()
        assert some == [row for row in whole if _meets(asked, row)], asked
    for row in whole:
        key = program.key_of(row)
        applied.pop(key, None)
        if not row["_deleted"]:
            applied[key] = tuple(row[name] for name in program.columns)
    assert applied == rows
    assert _consumed(program) == rows
    _is_as_the_document_says(program)


def _is_as_the_document_says(program: Program) -> None:
    """A reader that follows the document alone finds the same rows, and nothing that a writer may not do."""
    reader = StoreReader(Path(program.uri))
    found = reader.records(reader.state_from_checkpoint(), "keyed", "read_uncommitted")
    columns = ["id", "region", "name", "_deleted", "_partition", "_offset"]
    table = read_arrow(program.uri, "keyed", rows="all", columns=columns).read_all()
    assert {place: (row["id"], row["region"], row["name"], bool(row["_deleted"])) for place, row in found.items()} == {
        (row["_partition"], row["_offset"]): (row["id"], row["region"], row["name"], row["_deleted"])
        for row in table.to_pylist()
    }


def _consumed(program: Program) -> Rows:
    """What a consumer has that applies the log."""
    applied: Rows = {}
    own = {"group.id": "g", "enable.auto.commit": False}
    with Consumer({"bootstrap.servers": program.uri} | own | CALM) as consumer:
        at = [TopicPartition("keyed", number, 0) for number in range(PARTITIONS)]
        consumer.assign(at)
        ends = {one.partition: consumer.get_watermark_offsets(one)[1] for one in at}
        while any(one.offset < ends[one.partition] for one in consumer.position(at) if ends[one.partition]):
            table = consumer.consume_arrow(timeout=10)
            for row in [] if table is None else table.to_pylist():
                key = program.key_of(row)
                applied.pop(key, None)
                if not row["_deleted"]:
                    applied[key] = tuple(row[name] for name in program.columns)
    return applied
