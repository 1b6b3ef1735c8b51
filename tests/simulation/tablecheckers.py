"""Checkers of published topics: what other engines read at any moment, compared with the log as it truly was."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import TABLES_PREFIX
from sparktxn._engine.format.commands import Append, PublishTables
from sparktxn._foundation.values.structs import TableState
from sparktxn._rows.tableformats import delta, iceberg
from sparktxn._rows.tableformats import version as icebergnames
from sparktxn.maintenance import PublishReport
from tests.deltareader import DeltaRow, DeltaVersions
from tests.icebergreader import IcebergVersions
from tests.simulation.clienthistory import Batch, ClientHistory, Record
from tests.simulation.sharedobjects import SharedObjects
from tests.simulation.simulator import Simulator
from tests.simulation.truth import COMMITTED, Truth, records_of, replay, true_tail

__all__ = [
    "Engine",
    "SeenVersion",
    "check_log_entries",
    "check_newest",
    "check_newest_rows",
    "check_rows",
    "check_same_bytes",
    "check_snapshots",
    "check_tables",
    "note_reads",
]

_BEFORE_ALL: Final = -1
_HINTS: Final = (delta.LAST_CHECKPOINT, iceberg.VERSION_HINT)


class SeenVersion(Struct, frozen=True):
    """A version of a table as an engine first read it, at a moment of the simulation, and what it says of itself."""

    topic: str
    topic_id: int
    version: int
    entry: int
    published_entry: int
    moment: int
    rows: tuple[DeltaRow, ...]


class Engine:
    """Reads tables as other engines do: by their metadata and files alone, all of one moment.

    Which versions can be read says the log as it truly is, of which no engine knows. `seen` are the versions that were
    read, by topic id and version; `met` is what publishers have noted. In a copy of a store, those that entries up to
    `copied_entry` have published are not there.
    """

    def __init__(self, objects: SharedObjects, copied_entry: int = 0) -> None:
        self.seen: dict[tuple[int, int], SeenVersion] = {}
        self.met: Counter[str] = Counter()
        self._objects = objects
        self._copied_entry = copied_entry
        self._changes = 0
        self._tail = true_tail(objects)
        self._late: frozenset[str] = frozenset()
        objects.watchers.append(self._note_hint)

    def look(self, moment: int) -> bool:
        """Read all versions that are promised now, if an object has changed since the last look; return whether.

        Raises:
            AssertionError: one has incomplete metadata, names a file that does not exist or has another size, or has
                other files in one of its formats. Or a hint names what does not exist.
        """
        if self._objects.changes == self._changes:
            return False
        self._changes = self._objects.changes
        for table in self.newest():
            self._look_at(table, moment)
            self._check_hints(names.topic_folder(table.name, table.topic_id), moment)
        return True

    def check_complete(self, report: PublishReport) -> None:
        """Fail if a version that a publisher has published, and says so, was never described in all formats."""
        tables = self.newest()
        for told in report.tables:
            folders = [names.topic_folder(each.name, each.topic_id) for each in tables if each.name == told.topic]
            described = (delta.commit_name(told.version), f"metadata/v{told.version + 1}.metadata.json")
            assert any(all(folder + name in self._objects.history for name in described) for folder in folders), (
                f"version {told.version} of {told.topic} is published, and was never described"
            )

    def check_hints(self) -> None:
        """Fail if a hint that came late was never put right."""
        assert not self._late, f"{sorted(self._late)} name versions that vacuums have deleted"

    def newest(self) -> list[TableState]:
        """Return the tables as the log has them, which were published here."""
        self._tail.advance()
        known = (table for table in records_of(self._tail, TABLES_PREFIX) if isinstance(table, TableState))
        return [table for table in known if table.published_entry > self._copied_entry]

    def _look_at(self, table: TableState, moment: int) -> None:
        folder = names.topic_folder(table.name, table.topic_id)
        versions, snapshots = DeltaVersions(self._objects, folder), IcebergVersions(self._objects, folder)
        # While the newest version is being described, the one before must be readable.
        newest = table.version if versions.exists(table.version) else table.version - 1
        newest_snapshot = table.version if snapshots.exists(table.version) else table.version - 1
        own = [each.version for each in table.kept if each.published_entry > self._copied_entry]
        first = min(own[0], newest)
        where = f"{folder} at moment {moment}"
        for version in range(max(0, first), newest + 1):
            files = versions.files(version)
            for name, (size, _) in files.items():
                data = self._objects.get(folder + name)
                assert data is not None, f"{where}: file {name} of version {version} does not exist"
                assert len(data) == size, f"{where}: file {name} of version {version} has another size"
            if version <= newest_snapshot:
                assert snapshots.files(version, newest_snapshot) == files, f"{where}: version {version} has other files"
            if (table.topic_id, version) not in self.seen:
                self._read(table, versions, version, moment)

    def _note_hint(self, name: str) -> None:
        """Note whether a hint names a version that is promised when it is written, or comes too late for that."""
        if name.endswith(_HINTS):
            for table in self.newest():
                if name.startswith(names.topic_folder(table.name, table.topic_id)):
                    is_late = self._hinted(name) < table.kept[0].version
                    self._late = self._late | {name} if is_late else self._late - {name}

    def _hinted(self, name: str) -> int:
        data = self._objects.objects[name]
        said = delta if name.endswith(delta.LAST_CHECKPOINT) else icebergnames
        version: int | None = said.hinted_version(data)
        assert version is not None
        return version

    def _check_hints(self, folder: str, moment: int) -> None:
        """Check that an engine which begins with a hint finds what that names; the writer of a late one still works."""
        for hint in _HINTS:
            if folder + hint not in self._objects.objects or folder + hint in self._late:
                continue
            version = self._hinted(folder + hint)
            where = f"{folder} at moment {moment}: {hint} names version {version}, which does not exist"
            if hint == iceberg.VERSION_HINT:
                snapshots = IcebergVersions(self._objects, folder)
                assert snapshots.exists(version), where
                snapshots.files(version, version)
            else:
                assert folder + delta.checkpoint_name(version) in self._objects.objects, where
                DeltaVersions(self._objects, folder).files(version)

    def _read(self, table: TableState, versions: DeltaVersions, version: int, moment: int) -> None:
        self.seen[table.topic_id, version] = SeenVersion(
            table.name,
            table.topic_id,
            version,
            versions.entry(version),
            versions.published_entry(version),
            moment,
            tuple(versions.rows(version, table.name)),
        )


def check_tables(simulator: Simulator, history: ClientHistory, engine: Engine) -> None:
    """All of them; what engines have read is noted for the checkers of clients."""
    truths = replay(simulator.shared, ())
    check_same_bytes(simulator.described)
    check_log_entries(engine, truths)
    check_rows(engine, truths)
    check_snapshots(engine, history, truths)
    check_newest(engine, history)
    note_reads(history, engine)


def note_reads(history: ClientHistory, engine: Engine) -> None:
    """Note what engines have read as what readers were given: the checkers of clients judge it, too."""
    for seen in engine.seen.values():
        records = tuple(
            Record((topic, seen.topic_id, partition), offset, value.decode())
            for topic, partition, offset, value in seen.rows
        )
        reader = f"an engine with version {seen.version} of {seen.topic}"
        moment = seen.moment
        history.batches.append(Batch(reader, _BEFORE_ALL, True, False, moment, moment, {}, records))


def check_log_entries(engine: Engine, truths: Sequence[Truth]) -> None:
    """A version says of itself what the entry says that has published it."""
    for seen in engine.seen.values():
        said = [
            (command.entry, wanted.version)
            for command in truths[seen.published_entry].commands
            if isinstance(command, PublishTables)
            for wanted in command.tables
            if wanted.topic_id == seen.topic_id
        ]
        assert (seen.entry, seen.version) in said, f"version {seen.version} of {seen.topic}: the log says {said}"


def check_rows(engine: Engine, truths: Sequence[Truth]) -> None:
    """A version has the offsets that entries up to its own have committed, from the log starts on, and no others."""
    counts = {
        command.segment: command.record_count
        for truth in truths
        for command in truth.commands
        if isinstance(command, Append)
    }
    for seen in engine.seen.values():
        found = [(partition, offset) for _, partition, offset, _ in seen.rows]
        expected = sorted(_committed(seen, truths, counts))
        assert found == expected, (
            f"version {seen.version} of {seen.topic} at entry {seen.entry}: without "
            f"{sorted(set(expected) - set(found))}, with {sorted(set(found) - set(expected))}"
        )


def _committed(seen: SeenVersion, truths: Sequence[Truth], counts: Mapping[str, int]) -> set[tuple[int, int]]:
    shown, published = truths[seen.entry], truths[seen.published_entry]
    found = set()
    for (topic, partition), start in _starts(seen, published).items():
        there = shown.partitions.get((topic, partition))
        if there is None or there.topic_id != seen.topic_id:
            continue
        for segment, base in there.segments:
            if shown.fates[segment] == COMMITTED:
                found |= {(partition, offset) for offset in range(max(base, start), base + counts[segment])}
    return found


def _starts(seen: SeenVersion, truth: Truth) -> dict[tuple[str, int], int]:
    """Return the log starts of a version's topic when it was published; of a deleted topic there is nothing."""
    return {
        key: partition.log_start_offset
        for key, partition in truth.partitions.items()
        if key[0] == seen.topic and partition.topic_id == seen.topic_id
    }


def check_snapshots(engine: Engine, history: ClientHistory, truths: Sequence[Truth]) -> None:
    """Versions that one entry has published are one snapshot: each has a transaction's records, or none has."""
    together: dict[int, list[SeenVersion]] = defaultdict(list)
    for seen in engine.seen.values():
        together[seen.published_entry].append(seen)
    for entry, snapshot in together.items():
        assert len({seen.entry for seen in snapshot}) == 1, f"versions of entry {entry} show several entries"
        starts: dict[tuple[str, int], int] = {}
        for seen in snapshot:
            starts |= _starts(seen, truths[entry])
        values = {value.decode() for seen in snapshot for *_, value in seen.rows}
        for transaction in history.transactions:
            # What was sent to a topic that is deleted may be in the table of another one of its name.
            sent = [
                value
                for topic, number, value in transaction.sent
                if starts.get((topic, number)) == 0 and topic not in history.deleted_topics
            ]
            there = [value in values for value in sent]
            assert all(there) or not any(there), f"{transaction.name} is torn in the versions of entry {entry}"


def check_newest(engine: Engine, history: ClientHistory) -> None:
    """In the end the newest versions have what a reader is given that has read all."""
    check_newest_rows(engine, history.final_view(committed=True).records)


def check_newest_rows(engine: Engine, records: Sequence[Record]) -> None:
    """The newest versions have these records."""
    for table in engine.newest():
        seen = engine.seen[table.topic_id, table.version]
        found = [(partition, offset, value.decode()) for _, partition, offset, value in seen.rows]
        expected = sorted(
            (record.place[2], record.offset, record.value)
            for record in records
            if record.place[:2] == (table.name, table.topic_id)
        )
        assert found == expected, f"the newest version of {table.name} is not what readers read"


def check_same_bytes(described: Mapping[str, Mapping[bytes, Collection[str]]]) -> None:
    """What describes a version has the same bytes, whichever process writes it; Delta's checkpoints alone need not."""
    for name, offers in described.items():
        if not name.endswith(".checkpoint.parquet"):
            assert len(offers) == 1, f"{name} was written with other bytes by {[sorted(by) for by in offers.values()]}"
