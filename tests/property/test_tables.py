"""Random histories of published topics: each version of a table has, for other engines, the rows of its entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.table import StaticTable

from sparktxn import Store
from sparktxn._engine.log.write.storeclock import store_now_ms
from sparktxn.maintenance import repair, vacuum, verify
from sparktxn.maintenance.publishing.publish import PublishedTable, publish_tables
from tests.compatibility.independent_reader import StoreReader
from tests.compatibility.independent_replay import key_of
from tests.deltareader import DeltaVersions
from tests.icebergreader import IcebergVersions
from tests.mergedhistory import COLUMNS, DAY_MS, OPTIONS, TYPED, Row
from tests.seeds import seed_of
from tests.tablehistory import NAMES, TableHistory

FORMATS = ("", "delta", "iceberg", "delta,iceberg", "delta,iceberg")


class Published(NamedTuple):
    """A version of a topic's table, the entry that it shows, and its formats."""

    topic: str
    version: int
    entry: int
    formats: tuple[str, ...]


class PublishedHistory(TableHistory):
    """A history whose topics are published in between; `versions` are those of their tables."""

    def __init__(self, store: Store, seed: int) -> None:
        super().__init__(store, seed)
        self.versions: list[Published] = []
        self.vacuumed = 0
        self.formats: dict[str, tuple[str, ...]] = dict.fromkeys(COLUMNS, ("delta", "iceberg"))
        self.switched = 0
        self.repaired = 0

    def step(self) -> None:
        super().step()
        chance = self.random.random()
        if chance < 0.2:
            self.publish()
        elif chance < 0.25:
            self.vacuum()
        elif chance < 0.35:
            self.switch()

    def switch(self) -> None:
        """Have a topic be a table in other formats, or in none; one that is new is published though no record is."""
        topic, formats = self.random.choice([*COLUMNS]), self.random.choice(FORMATS)
        self.set_formats(topic, formats)
        self.formats[topic] = tuple(formats.split(",")) if formats else ()
        self.switched += 1
        if self.random.random() < 0.5:
            self.publish()

    def damage(self) -> None:
        """Delete metadata: verifying finds what readers miss, and its repair lets them read all versions again."""
        objects = self.store.log.objects
        names = [info.name for info in objects.list("topics/")]
        metadata = [name for name in names if "/_delta_log/" in name or "/metadata/" in name]
        for name in self.random.sample(metadata, min(len(metadata), 4)):
            data = objects.get(name)
            objects.delete([name])
            problems = verify(self.store).problems
            if problems:
                assert {problem.object_name.split("/")[1] for problem in problems} == {name.split("/")[1]}, name
                left = repair(self.store, dry_run=False).left
                assert left == (), (name, left)
                self.repaired += 1
            else:
                publish_tables(self.store)  # finishes the newest version
            assert verify(self.store).problems == (), name
            self.check(self.versions)
            assert data is not None

    def vacuum(self) -> None:
        """Shorten the history of some tables, and delete what may go; the versions that are promised stay whole."""
        short = self.random.sample([*COLUMNS], self.random.randrange(len(COLUMNS) + 1))
        self.keep_history(short, 0)
        self.publish()
        # A topic that no version was published of is not a table yet: no engine writes into it.
        with self.store.log.known() as state:
            folders = [f"topics/{table.name}-{table.topic_id}/" for table in state.tables()]
        left = [f"{folder}{'kafka_partition=0/' * (number % 3)}part-0.parquet" for number, folder in enumerate(folders)]
        log = self.store.log
        for name in left:
            log.objects.put(name, b"of a writer that was refused")
        left_ms = max(info.modified_ms for name in left for info in log.objects.list(name))
        while store_now_ms(log.objects, log.clock, log.ids) <= left_ms:
            pass  # a disk's times are coarse, and what is no older than the vacuum's first moment stays
        vacuum(self.store, {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.list.all.ms": 0})
        assert log.objects.get_many(left) == [None] * len(left)
        self.keep_history(short, DAY_MS)
        with self.store.log.known() as state:
            first = {table.name: table.kept[0].version for table in state.tables()}
        promised = [each for each in self.versions if each.version >= first[each.topic]]
        self.vacuumed += len(self.versions) - len(promised)
        self.versions = promised
        self.check(promised)

    def publish(self) -> None:
        """Publish one topic or both, and check what engines read."""
        topics = self.random.choice([None, None, *([name] for name in COLUMNS if self.formats[name])])
        self._publish(topics)
        # Where the history is short, a version without a change lets go of those before.
        assert not any(table.added_files or table.removed_files for table in self._publish(topics))
        assert self._publish(topics) == ()

    def _publish(self, topics: list[str] | None) -> tuple[PublishedTable, ...]:
        self.note()
        report = publish_tables(self.store, topics)
        assert not report.overtaken
        check_by_the_document(self.store)
        found = [
            Published(table.topic, table.version, report.entry, self.formats[table.topic]) for table in report.tables
        ]
        self.versions += found
        self.check(found)
        return report.tables

    def check(self, versions: list[Published]) -> None:
        for each in versions:
            columns, expected = self.in_files(each.topic, each.entry)
            folder = Path(self.store.uri) / "topics" / f"{each.topic}-{self.topics[each.topic]}"
            objects, below = self.store.log.objects, f"topics/{folder.name}/"
            if "delta" in each.formats:
                assert by_delta_rs(folder, each.version, columns) == expected, each
                assert by_polars(folder, each.version, columns) == expected, each
            if "iceberg" in each.formats:
                assert by_pyiceberg(folder, each.version, columns) == shown_by_pyiceberg(columns, expected), each
                others = (other for other in self.versions if other.topic == each.topic and "iceberg" in other.formats)
                newest = max(other.version for other in others)
                seen = IcebergVersions(objects, below).files(each.version, newest)
                if "delta" in each.formats:
                    assert seen == DeltaVersions(objects, below).files(each.version), each


def by_delta_rs(folder: Path, version: int, columns: list[str]) -> list[Row]:
    table = QueryBuilder().register("topic", DeltaTable(folder, version=version))
    return _sorted(pa.table(table.execute("select * from topic").read_all()), columns)


def by_polars(folder: Path, version: int, columns: list[str]) -> list[Row]:
    return _sorted(polars.scan_delta(str(folder), version=version).collect().to_arrow(), columns)


def by_pyiceberg(folder: Path, version: int, columns: list[str]) -> list[Row]:
    table = StaticTable.from_metadata(f"file://{folder}/metadata/v{version + 1}.metadata.json")
    return _sorted(table.scan().to_arrow(), columns)


def shown_by_pyiceberg(columns: list[str], rows: list[Row]) -> list[Row]:
    """Return rows as pyiceberg 0.12 has them: a null list of structs is an empty one."""
    shown = (
        [[] if name == "headers" and value is None else value for name, value in zip(columns, row, strict=True)]
        for row in rows
    )
    return [tuple(row) for row in shown]


def _sorted(table: pa.Table, columns: list[str]) -> list[Row]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(tuple(row[NAMES.get(name, name)] for name in columns) for row in rows)


def check_by_the_document(store: Store) -> None:
    """Compare the state's tables with a replay that knows docs/PROTOCOL.md alone."""
    with store.log.known() as state:
        tables = state.tables()
        records = [*tables, *(each for table in tables for each in state.published(table.topic_id))]
    reader = StoreReader(Path(store.uri))
    replayed = reader.state_from_checkpoint() if reader.heads() else reader.state_from_first()
    found = replayed.records.values()
    kinds = [record for record in found if record["type"] in ("table", "published")]
    plain: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(records))
    known = [{"type": "table" if "formats" in each else "published", **each} for each in plain]
    by_key = [{key_of(record): record for record in some} for some in (kinds, known)]
    assert by_key[0] == by_key[1]


def run(path: Path, seed: int, steps: int) -> PublishedHistory:
    """Run a history, and check all versions in the end."""
    with Store.open(path, create=True, options=OPTIONS) as store:
        history = PublishedHistory(store, seed)
        try:
            for _ in range(steps):
                history.step()
            history.finish()
            history.publish()
            history.check(history.versions)
            assert verify(store).problems == ()
            history.damage()
            return history
        finally:
            history.close()


def test_every_version_of_a_table_has_the_rows_of_its_entry(tmp_path: Path) -> None:
    # What the history is for happens with this seed; nights have histories of their own, below.
    history = run(tmp_path / "store", 1, 40)
    assert history.retained
    assert history.compacted
    assert history.committed_halves
    assert history.committed_prepared
    assert history.vacuumed
    assert history.switched
    assert history.repaired
    assert len({each.version for each in history.versions if each.topic == TYPED}) > 3
    assert len(history.seen[max(history.seen)].columns) > 1


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(20))
def test_every_version_of_the_tables_of_long_histories(tmp_path: Path, number: int) -> None:
    run(tmp_path / "store", seed_of(f"tables {number}", number), 150)
