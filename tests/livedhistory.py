"""A store that has lived, whose topics were published in between: what each version of their tables must have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparktxn import Store, read_arrow
from sparktxn._engine.format.names import PARTITION_COLUMN
from sparktxn._rows.tableformats.version import table_schema
from sparktxn.maintenance import publish_tables, vacuum, verify
from sparktxn.producer import PreparedTransaction, Producer
from sparktxn.testing.clocks import ManualClock
from tests.mergedhistory import OPTIONS, PARTITIONS, TYPED
from tests.tablehistory import NAMES, TableHistory

__all__ = ["LivedHistory", "Version", "check_whole", "lived", "place_of", "wrong_versions"]

_NOW: Final = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 0}


def place_of(row: dict[str, Any]) -> tuple[int, int]:
    """Where a row of a table is in its topic: partition and offset."""
    return row[PARTITION_COLUMN], row["_offset" if "_offset" in row else "offset"]


class Version(NamedTuple):
    """A version of a topic's table, the entry that it shows, and its rows by partition and offset."""

    topic: str
    number: int
    entry: int
    rows: list[dict[str, Any]]


class LivedHistory(TableHistory):
    """A history whose topics are published; `versions` are those of their tables."""

    def __init__(self, store: Store, seed: int) -> None:
        super().__init__(store, seed)
        self.versions: list[Version] = []
        self._middle_ms = 0
        self._prepared: tuple[str, Producer, PreparedTransaction] | None = None

    def live(self) -> None:
        """Have all happen that a store sees, and publish in between."""
        self._steps(12)
        self._prepare()
        self._steps(12)
        self._decide()
        self._middle_ms = self.store.log.clock.wall_ms()
        self._steps(12)
        self.finish()
        self.publish()
        self._add_files()

    def publish(self) -> None:
        """Publish all topics that have something new."""
        self.note()
        report = publish_tables(self.store)
        assert not report.overtaken
        for table in report.tables:
            self.versions.append(Version(table.topic, table.version, report.entry, self._rows(table.topic)))

    def forget(self) -> None:
        """Publish versions from which on younger ones alone can be read, and have a vacuum delete the older ones."""
        self.keep_history(self.topics, 0)
        self.finish()
        log = self.store.log
        clock, log.clock = log.clock, ManualClock(self._middle_ms / 1000)
        try:
            self.publish()
        finally:
            log.clock = clock
        self.vacuum()
        with self.store.log.known() as state:
            kept = {(table.name, each.version) for table in state.tables() for each in table.kept}
        self.versions = [each for each in self.versions if (each.topic, each.number) in kept]

    def vacuum(self) -> None:
        """Delete what no reader may still need, at once."""
        self.store.log.checkpoint()
        vacuum(self.store, _NOW)

    def location(self, topic: str) -> str:
        """The address of a topic's table."""
        return f"file://{self.store.uri}/topics/{topic}-{self.topics[topic]}"

    def newest(self, topic: str) -> Version:
        """The newest version of a topic's table."""
        return next(each for each in reversed(self.versions) if each.topic == topic)

    def objects(self) -> dict[str, bytes]:
        """All that the store has, by name."""
        folder = Path(self.store.uri)
        return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}

    def _steps(self, count: int) -> None:
        for number in range(count):
            self.step()
            if number % 4 == 3:
                self.publish()

    def _add_files(self) -> None:
        """Publish two more files of each partition: other engines would merge them."""
        name = min(self.producers)
        if name in self.pending:
            self._commit(name)
        for _ in range(2):
            for partition in range(PARTITIONS):
                self._produce(name, TYPED, partition)
            self._commit(name)
            self.publish()

    def _rows(self, topic: str) -> list[dict[str, Any]]:
        """What a read at the newest entry gives, which is what the model has."""
        entry = max(self.seen)
        declared = next(each.schema for each in self.store.topics() if each.name == topic)
        names = set(table_schema(declared).names)
        read = read_arrow(self.store, topic, as_of=entry).read_all().to_pylist()
        found = [{NAMES.get(name, name): value for name, value in row.items()} for row in read]
        rows = sorted(({name: row[name] for name in names} for row in found), key=place_of)
        columns, expected = self.in_files(topic, entry)
        assert [tuple(row[NAMES.get(name, name)] for name in columns) for row in rows] == expected
        return rows

    def _prepare(self) -> None:
        """Prepare a transaction, which then is open until it is decided."""
        while not self.pending.keys() - self.prepared.keys():
            self._write()
        name = min(self.pending.keys() - self.prepared.keys())
        producer = self.producers.pop(name)
        self._prepared = name, producer, producer.prepare_transaction()

    def _decide(self) -> None:
        assert self._prepared is not None
        name, producer, prepared = self._prepared
        producer.complete_transaction(prepared)
        self.producers[name] = producer
        entry = self.store.view([TYPED]).entry
        self.rows |= {place: (entry, row) for place, row in self.pending.pop(name).items()}
        self._prepared = None
        self.note()
        self.publish()


@contextmanager
def lived(path: Path, seed: int) -> Iterator[LivedHistory]:
    """A store in `path` that has lived. Its newest versions are not all of the same entry."""
    with Store.open(path, create=True, options=OPTIONS) as store:
        history = LivedHistory(store, seed)
        try:
            history.live()
            yield history
        finally:
            history.close()


Read = Callable[[Version], list[dict[str, Any]]]
"""Reads a version by another engine."""


def wrong_versions(versions: list[Version], read: Read) -> list[tuple[str, int]]:
    """The versions of which an engine reads something else than their entries committed."""
    return [(each.topic, each.number) for each in versions if read(each) != each.rows]


def check_whole(history: LivedHistory, read: Read) -> None:
    """Check that all is as it was for readers of the log and of tables, and that publishing and vacuuming go on."""
    assert verify(history.store).problems == ()
    assert wrong_versions(history.versions, read) == []
    before = len(history.versions)
    history.finish()
    history.publish()
    history.vacuum()
    assert len(history.versions) >= before + 2
    assert wrong_versions(history.versions[before:], read) == []
    assert verify(history.store).problems == ()
