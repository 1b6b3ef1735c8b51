"""The metadata of tables: each version names files that exist, and the newest those of the log; or is made anew.

The log says which versions a format must have: a topic may have had it for some of them only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import PUBLISHED_PREFIX, CheckpointHead
from sparktxn._engine.format.entry import LogEntry
from sparktxn._engine.log.follow.checkpointheads import copied_entry
from sparktxn._engine.log.keep.replay import Replay
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.values.structs import PublishedPartition, StateKey, StateRecord, TableState
from sparktxn._rows.scan.tablefiles import newest_version, whole_version, with_statistics
from sparktxn._rows.tableformats import delta
from sparktxn._rows.tableformats import version as icebergnames
from sparktxn._rows.tableformats.deltacheckpoint import Add, DeltaFiles
from sparktxn._rows.tableformats.version import FOLDERS, FormatVersions, TableVersion, is_metadata, versions_in
from sparktxn.errors import DamagedObject
from sparktxn.maintenance.checking.segmentcheck import RESTORE, Problem
from sparktxn.maintenance.publishing.tablemetadata import write_metadata
from sparktxn.maintenance.publishing.tableobjects import WRONG_METADATA, iceberg, iceberg_objects, metadata_object

_ATTEMPTS: Final = 3
WRITE_ANEW: Final = "txnlog verify --repair --apply writes the versions of this format anew, from the log"
"""What repairs metadata: all versions that can be read are written again."""
_METRICS: Final = {"column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds"}

_Files = Mapping[str, tuple[int, Any]]
"""Files by path below the topic's folder: their sizes in bytes, and how the format describes them."""

_Canonical = Sequence[tuple[str, Sequence[bytes]]]
"""Objects by name, each with the bytes that it may have: as this version makes it, and as earlier ones did."""


class TableReplay(Replay):
    """A replay that notes in which formats each version of a table was published in this store."""

    def __init__(self, objects: ObjectStore, head: CheckpointHead | None) -> None:
        super().__init__(objects, head)
        self._copied = copied_entry(objects)
        self._formats: dict[int, list[tuple[int, tuple[str, ...]]]] = {}
        self._newest: dict[int, int] = {}
        for table in self._table_records():
            self._note_table(table)

    def take(self, entry: LogEntry, changes: Mapping[StateKey, StateRecord | None], size_bytes: int) -> None:
        """Fold an entry in, and note what it publishes."""
        super().take(entry, changes, size_bytes)
        for record in changes.values():
            if isinstance(record, TableState):
                self._note_table(record)

    def formats_of(self, topic_id: int, version: int) -> tuple[str, ...] | None:
        """Return the formats of a version; None if it was published before the replay begins, or after its end."""
        if version > self._newest.get(topic_id, -1):
            return None
        since = (formats for first, formats in reversed(self._formats[topic_id]) if first <= version)
        return next(since, None)

    def _note_table(self, table: TableState) -> None:
        formats = table.formats if table.published_entry > self._copied else ()
        noted = self._formats.setdefault(table.topic_id, [])
        if not noted or noted[-1][1] != formats:
            noted.append((table.version, formats))
        self._newest[table.topic_id] = table.version


def table_problems(log: Log, replay: TableReplay, topic_ids: Container[int] | None) -> list[Problem]:
    """Return what is wrong with the metadata of tables, and with the files that their versions name.

    What an earlier publisher has not finished is not wrong: the next one goes on. Nor is that a format has no versions
    of the time before the topic had it, or that a copy has none yet.

    Args:
        log: the log of the store.
        replay: says in which formats versions were published.
        topic_ids: whose tables; None for all.

    Raises:
        DamagedObject: a manifest of merged files is missing or damaged, so that it is not known what a table shows.
    """
    copied = copied_entry(log.objects)
    found: list[Problem] = []
    for topic_id in _tables(log):
        if topic_ids is None or topic_id in topic_ids:
            found += _problems(log, replay, topic_id, copied)
    return found


def _tables(log: Log) -> list[int]:
    log.refresh()
    with log.known() as state:
        return [table.topic_id for table in state.tables()]


def _problems(log: Log, replay: TableReplay, topic_id: int, copied: int) -> list[Problem]:
    """Return the problems of one table, of a moment in which no process has published it."""
    found: list[Problem] = []
    for _ in range(_ATTEMPTS):
        with log.known() as state:
            table = next(table for table in state.tables() if table.topic_id == topic_id)
            published = state.published(topic_id)
        if table.published_entry <= copied:
            return []
        found = list(_problems_of(log, replay, table, published))
        log.refresh()
        with log.known() as state:
            if not found or table in state.tables():
                break
    return found


def _problems_of(
    log: Log, replay: TableReplay, table: TableState, published: Sequence[PublishedPartition]
) -> Iterator[Problem]:
    objects, folder = log.objects, names.topic_folder(table.name, table.topic_id)
    sizes = {info.name.removeprefix(folder): info.size_bytes for info in objects.list(folder)}
    newest = newest_version(objects, log.store_id, table, published)
    whole = with_statistics(objects, whole_version(objects, table, published, newest), skip_damaged=True)
    known = {file.path: file.statistics for file in whole.added}
    newest = replace(newest, added=tuple(replace(file, statistics=known[file.path]) for file in newest.added))
    for format_name in FOLDERS:
        versions = versions_in(format_name, sizes)
        expected = _expected(replay, table, format_name, versions)
        if not expected:
            continue
        check = _FormatCheck(objects, table, newest, whole, sizes, versions, expected)
        yield from check.problems(_DELTA if format_name == "delta" else _ICEBERG)


def _expected(replay: TableReplay, table: TableState, format_name: str, versions: FormatVersions) -> list[int]:
    """Return the versions that a format must have.

    What the log does not say any more it must have where an object of it is there. The next publisher finishes the
    newest one.
    """
    found = []
    for version in range(table.kept[0].version, table.version):
        formats = replay.formats_of(table.topic_id, version)
        is_there = version in versions.versions or version in versions.begun
        if is_there if formats is None else format_name in formats:
            found.append(version)
    return [*found, *([table.version] if table.version in versions.versions else ())]


class _Version(NamedTuple):
    """A version that can be read, and the object that says which files it has."""

    version: int
    name: str
    files: _Files


class _Broken(Exception):
    """A version cannot be read, and the object `name` is to blame."""

    def __init__(self, name: str, reason: str, *, is_missing: bool = False) -> None:
        super().__init__(reason)
        self.name = name
        self.reason = reason
        self.is_missing = is_missing


class _Format(NamedTuple):
    """How a format says what its versions have.

    `expected` has the files of the newest version, each as this version of the package describes it and as earlier ones
    did. A file whose footer cannot be read has the second description alone.
    """

    versions: Callable[[_FormatCheck], Iterator[_Version | _Broken]]
    canonical: Callable[[_FormatCheck], _Canonical]
    expected: Callable[[TableVersion], Mapping[str, Sequence[tuple[int, Any]]]]
    plain: Callable[[Any], Any]
    """Returns the description of a file without its statistics."""

    def is_right(self, found: tuple[int, Any], known: Sequence[tuple[int, Any]], *, with_statistics: bool) -> bool:
        """Return whether a file is described as it may be."""
        if with_statistics and len(known) > 1:
            return found in known
        return (found[0], self.plain(found[1])) in [(size, self.plain(each)) for size, each in known]


class _FormatCheck:
    """A table in one format: `sizes` are of all objects in its folder, `expected` the versions that it must have."""

    def __init__(
        self,
        objects: ObjectStore,
        table: TableState,
        newest: TableVersion,
        whole: TableVersion,
        sizes: Mapping[str, int],
        versions: FormatVersions,
        expected: Sequence[int],
    ) -> None:
        self.objects = objects
        self.newest = newest
        self.whole = whole
        self.sizes = sizes
        self.first: Final = table.kept[0].version
        self.versions = versions
        self.expected = expected
        self._folder = names.topic_folder(table.name, table.topic_id)

    def problems(self, described: _Format) -> Iterator[Problem]:
        """Yield what is wrong with the versions that a format has, the last one with its canonical objects."""
        known = described.expected(self.whole)
        seen, named = set[str](), set[str]()
        for found in described.versions(self):
            if isinstance(found, _Broken):
                # All versions after it may be, for the same reason.
                if found.name not in named:
                    yield Problem(self._folder + found.name, found.reason, WRITE_ANEW, found.is_missing)
                named.add(found.name)
                continue
            version, name, files = found
            is_newest = version == self.newest.version
            for path in sorted(files.keys() - seen):
                yield from self._file_problem(version, path, files[path][0])
            for path in sorted(files.keys() if is_newest else files.keys() - seen):
                # Statistics are compared in the newest version: those before may have had fewer columns.
                if path in known and not described.is_right(files[path], known[path], with_statistics=is_newest):
                    yield Problem(self._folder + name, f"it says of {path} what the log does not", WRITE_ANEW)
            seen |= files.keys()
            if is_newest:
                try:
                    yield from self._newest_problems(name, files.keys() ^ known.keys(), described.canonical(self))
                except _Broken as broken:
                    yield Problem(self._folder + broken.name, broken.reason, WRITE_ANEW, broken.is_missing)

    def _newest_problems(self, name: str, wrong: Collection[str], canonical: _Canonical) -> Iterator[Problem]:
        if wrong:
            reason = f"version {self.newest.version} does not have the files of the log: {len(wrong)} differ, as"
            yield Problem(self._folder + name, f"{reason} {min(wrong)}", WRITE_ANEW)
        for object_name, expected in canonical:
            if self.read(object_name) not in expected:
                yield Problem(self._folder + object_name, "it does not say what the log says", WRITE_ANEW)

    @property
    def is_described(self) -> bool:
        """Whether the footers of all files could be read: what is made from them is known."""
        return all(file.statistics is not None for file in self.whole.added)

    def read(self, name: str) -> bytes:
        """Return an object below the topic's folder.

        Raises:
            _Broken: it does not exist.
        """
        try:
            return metadata_object(self.objects, self._folder + name)
        except DamagedObject as damaged:
            raise _Broken(name, damaged.reason, is_missing=True) from damaged

    def _file_problem(self, version: int, path: str, size_bytes: int) -> Iterator[Problem]:
        found_bytes = self.sizes.get(path)
        named = f"version {version} of a table names it"
        if found_bytes is None:
            yield Problem(self._folder + path, f"{named} and it does not exist", RESTORE, True)
        elif found_bytes != size_bytes:
            yield Problem(self._folder + path, f"{named} with {size_bytes} bytes, and it has {found_bytes}", RESTORE)


def _delta_versions(check: _FormatCheck) -> Iterator[_Version | _Broken]:
    """Yield the versions of a Delta table as readers of each one find them."""
    yield from _delta_hint(check)
    files, before = DeltaFiles(None), -1
    for version in check.expected:
        try:
            if version != before + 1 or version == check.expected[0]:
                files = _delta_start(check, version)
            else:
                _apply(check, files, version)
                _compare_checkpoint(check, files, version)
        except _Broken as broken:
            yield broken
            before = -2
            continue
        before = version
        yield _Version(version, delta.commit_name(version), _added(files))


def _delta_hint(check: _FormatCheck) -> Iterator[_Broken]:
    """Yield the checkpoint that the hint names if it does not exist: readers look for it."""
    name = delta.LAST_CHECKPOINT
    hinted = delta.hinted_version(check.read(name)) if name in check.sizes else None
    # Other engines write checkpoints of several parts.
    named = "" if hinted is None else delta.checkpoint_name(hinted).removesuffix("parquet")
    if named and not any(each.startswith(named) for each in check.sizes):
        yield _Broken(f"{named}parquet", "_last_checkpoint names it and it does not exist", is_missing=True)


def _delta_start(check: _FormatCheck, version: int) -> DeltaFiles:
    """Return the files of a version, from the newest checkpoint on that is not above it.

    The checkpoint may be below the promised ones: theirs is not written before the newest version is.

    Raises:
        _Broken: an object that readers need does not exist, or cannot be read.
    """
    start = max((each for each in check.versions.checkpoints if each <= version), default=0)
    present = set(check.versions.versions)
    begin = version
    while begin > start and begin - 1 in present:
        begin -= 1
    if begin > start and version in present:
        # Between them is a gap, which a checkpoint ends, or a commit is lost.
        is_lost = begin - 1 in check.expected
        name = delta.commit_name(begin - 1) if is_lost else delta.checkpoint_name(begin)
        raise _Broken(name, f"version {version} cannot be read without it", is_missing=True)
    files = _checkpoint_files(check, start) if start else DeltaFiles(None)
    for number in range(start + 1 if start else 0, version + 1):
        _apply(check, files, number)
    if delta.commit_name(version) not in check.sizes:
        raise _Broken(delta.commit_name(version), f"version {version} has none", is_missing=True)
    return files


def _apply(check: _FormatCheck, files: DeltaFiles, version: int) -> None:
    name = delta.commit_name(version)
    try:
        files.apply(check.read(name))
    except WRONG_METADATA as error:
        raise _Broken(name, f"it cannot be read: {error}") from error


def _checkpoint_files(check: _FormatCheck, version: int) -> DeltaFiles:
    name = delta.checkpoint_name(version)
    try:
        return DeltaFiles(check.read(name))
    except WRONG_METADATA as error:
        raise _Broken(name, f"it cannot be read: {error}") from error


def _compare_checkpoint(check: _FormatCheck, files: DeltaFiles, version: int) -> None:
    """Compare a checkpoint with the commits up to it: readers of later versions begin there.

    Raises:
        _Broken: it has other files.
    """
    if version in check.versions.checkpoints:
        sizes = {path: add.size for path, add in _checkpoint_files(check, version).files.items()}
        if sizes != {path: add.size for path, add in files.files.items()}:
            raise _Broken(delta.checkpoint_name(version), "it has other files than the commits up to it")


def _delta_files(whole: TableVersion) -> Mapping[str, Sequence[tuple[int, Any]]]:
    return _alternatives(whole, (delta.commit(whole, lambda: whole, None), delta.earlier_commit(whole)), _delta_added)


def _delta_added(commit: bytes) -> _Files:
    files = DeltaFiles(None)
    files.apply(commit)
    return _added(files)


def _alternatives(
    whole: TableVersion, forms: Sequence[Any], files_of: Callable[[Any], _Files]
) -> Mapping[str, Sequence[tuple[int, Any]]]:
    """Return how each file may be described: by the first of the forms only if its footer could be read."""
    newest, earlier = map(files_of, forms)
    unknown = {file.path for file in whole.added if file.statistics is None}
    return {path: (each,) if path in unknown else (newest[path], each) for path, each in earlier.items()}


def _added(files: DeltaFiles) -> _Files:
    return {path: (add.size, add) for path, add in files.files.items()}


def _delta_objects(check: _FormatCheck) -> _Canonical:
    """Return the newest commit; none if the one before it, which it was made from, may be gone."""
    version = check.newest.version
    before = delta.commit_name(version - 1) if version else ""
    has_before = before in check.sizes
    if not check.is_described or (version == check.first > 0 and not has_before):
        return []
    try:
        commit = delta.commit(check.newest, lambda: check.whole, check.read(before) if has_before else None)
    except WRONG_METADATA as error:
        raise _Broken(before, f"it cannot be read: {error}") from error
    return [(delta.commit_name(version), (commit, delta.earlier_commit(check.newest)))]


def _without_statistics(add: Add) -> Add:
    return replace(add, stats="")


def _iceberg_versions(check: _FormatCheck) -> Iterator[_Version | _Broken]:
    """Yield the versions of an Iceberg table, by the newest metadata that has each of them as a snapshot."""
    left = set(check.expected)
    for version in check.expected:
        if (name := icebergnames.metadata_name(version)) not in check.sizes:
            yield _Broken(name, f"version {version} has none", is_missing=True)
            left.discard(version)
    while left:
        newest = max(left)
        name = icebergnames.metadata_name(newest)
        try:
            files = iceberg().IcebergFiles(msgspec.json.decode(check.read(name)), check.read)
            if newest not in files.versions:
                raise ValueError(f"it has no version {newest}")
        except (_Broken, *WRONG_METADATA) as error:
            yield error if isinstance(error, _Broken) else _Broken(name, f"it cannot be read: {error}")
            left.discard(newest)
            continue
        for version in left.intersection(files.versions):
            left.discard(version)
            try:
                yield _Version(version, iceberg().list_name(version), _described(files.files(version)))
            except _Broken as broken:
                yield broken
            except WRONG_METADATA as error:
                yield _Broken(iceberg().list_name(version), f"its files cannot be read: {error}")


def _described(files: Mapping[str, dict[str, Any]]) -> _Files:
    return {path: (file["file_size_in_bytes"], file) for path, file in files.items()}


def _iceberg_files(whole: TableVersion) -> Mapping[str, Sequence[tuple[int, Any]]]:
    forms = [
        iceberg().publication(whole, None, dict[str, bytes]().__getitem__, is_earlier=is_earlier)
        for is_earlier in (False, True)
    ]
    return _alternatives(whole, forms, _iceberg_added)


def _iceberg_added(publication: Sequence[tuple[str, bytes]]) -> _Files:
    objects = dict(publication)
    files = iceberg().IcebergFiles(msgspec.json.decode(publication[-1][1]), objects.__getitem__)
    return _described(files.files(files.versions[-1]))


def _iceberg_objects(check: _FormatCheck) -> _Canonical:
    """Return the objects of the newest version; none if it is the only one that is promised.

    The metadata before it, which it was made from, may be gone then.

    Raises:
        _Broken: the metadata of the version before says something else than it must.
    """
    version = check.newest.version
    version = check.newest.version
    if not check.is_described or version == check.first > 0:
        return []
    forms: list[dict[str, bool]] = [{}, {"is_earlier": True}]
    if version - 1 not in check.versions.versions:
        # Of a release that began anew after a gap.
        forms.append({"is_earlier": True, "keeps_older": False})
    try:
        made = [
            iceberg_objects(check.objects, check.newest, lambda: check.whole, check.first, **form) for form in forms
        ]
    except DamagedObject as damaged:
        raise _Broken(icebergnames.metadata_name(version - 1), damaged.reason) from damaged
    # The list and the metadata are the last ones.
    found = next((each for each in made if all(check.read(name) == data for name, data in each[-2:])), made[0])
    return [(name, (data,)) for name, data in found]


def _without_metrics(file: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in file.items() if name not in _METRICS}


_DELTA: Final = _Format(_delta_versions, _delta_objects, _delta_files, _without_statistics)
_ICEBERG: Final = _Format(_iceberg_versions, _iceberg_objects, _iceberg_files, _without_metrics)


# Writing the metadata of a table anew in one format: all versions that can be read, as the log has published them.
#
# Each is made from the state of its time, by a replay: older versions are written again, too, not the newest alone.

_WINDOW: Final = 64
_FOLDER: Final = re.compile(rf"{re.escape(names.TOPICS)}[^/]*-(?P<topic_id>[0-9]+)/(?P<folder>[^/]+/).*")

TableFormat = tuple[int, str]
"""A topic's id, and the name of a format."""


def damaged_tables(problems: Iterable[Problem]) -> dict[TableFormat, list[Problem]]:
    """Return the problems that go away when metadata is written anew, by what is to be written."""
    by_folder = {folder: format_name for format_name, folder in FOLDERS.items()}
    found: dict[TableFormat, list[Problem]] = {}
    for problem in problems:
        parsed = _FOLDER.fullmatch(problem.object_name) if problem.fix == WRITE_ANEW else None
        if parsed is not None:
            found.setdefault((int(parsed["topic_id"]), by_folder[parsed["folder"]]), []).append(problem)
    return found


def write_tables_anew(log: Log, head: CheckpointHead | None, wanted: Iterable[TableFormat]) -> None:
    """Write all versions anew that can be read, of tables in some formats. Readers find none of them meanwhile.

    After a crash the next publication writes the newest version, and another call the others.

    Args:
        log: the store.
        head: the checkpoint at the horizon, None if that is entry 1.
        wanted: the tables, each in one format.

    Raises:
        ConfigurationError: the packages of a format are not installed; nothing was deleted.
        DamagedObject: the log, or a manifest of merged files, cannot be read.
    """
    with log.known() as state:
        tables = {table.topic_id: table for table in state.tables()}
    wanted = list(wanted)
    if any(format_name == "iceberg" for _, format_name in wanted):
        iceberg()
    known: dict[int, dict[str, FormatVersions]] = {}
    for topic_id, format_name in wanted:
        folder = names.topic_folder(tables[topic_id].name, topic_id)
        listed = [info.name.removeprefix(folder) for info in log.objects.list(folder + FOLDERS[format_name])]
        known.setdefault(topic_id, {})[format_name] = versions_in(format_name, listed)
        log.objects.delete([folder + name for name in listed if is_metadata(format_name, name)])
    _Writing(log, head, tables, known).advance(window=_WINDOW)


class _Writing(Replay):
    """A replay that writes the metadata of each version as the entry has published it.

    `known` are the versions that there were, by topic id and format. The log says nothing any more of some that have
    the files of the first one that it does: these are written where they were.
    """

    def __init__(
        self,
        log: Log,
        head: CheckpointHead | None,
        tables: Mapping[int, TableState],
        known: Mapping[int, Mapping[str, FormatVersions]],
    ) -> None:
        super().__init__(log.objects, head)
        self._log = log
        self._tables = tables
        self._known = known
        self._own_after = copied_entry(log.objects)
        for table in self._table_records():
            self._write_forgotten(table)
            self._write(table, self._known.get(table.topic_id, ()))

    def take(self, entry: LogEntry, changes: Mapping[StateKey, StateRecord | None], size_bytes: int) -> None:
        """Fold an entry in, and write what it publishes."""
        super().take(entry, changes, size_bytes)
        for record in changes.values():
            if isinstance(record, TableState):
                self._write(record, self._known.get(record.topic_id, ()))

    def _write_forgotten(self, table: TableState) -> None:
        """Write the versions with the files of the oldest one that the log has."""
        for format_name, versions in self._known.get(table.topic_id, {}).items():
            for kept in table.kept:
                is_there = kept.version in versions.versions or kept.version in versions.begun
                if table.changed_version <= kept.version < table.version and is_there:
                    older = replace(
                        table,
                        version=kept.version,
                        published_entry=kept.published_entry,
                        timestamp_ms=kept.timestamp_ms,
                        # What entries up to it have committed is what all of these versions show.
                        entry=table.entry_before,
                        is_new_schema=False,
                        formats=(format_name,),
                    )
                    self._write(older, (format_name,))

    def _write(self, table: TableState, formats: Container[str]) -> None:
        newest = self._tables.get(table.topic_id)
        if newest is None or table.published_entry <= self._own_after:
            return
        first = newest.kept[0].version
        if first <= table.version <= newest.version and any(each in formats for each in table.formats):
            published = [
                record
                for part in self.parts.names(f"{PUBLISHED_PREFIX}{table.topic_id}/")
                for record in self.parts.part(part).values()
                if isinstance(record, PublishedPartition)
            ]
            write_metadata(self._log, table, published, formats=formats, first=first)
