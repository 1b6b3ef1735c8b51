"""Verifies the metadata of tables: each version that is promised names files that exist, the newest one the log's."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sparktxn.errors import DamagedObject
from sparktxn.format import names
from sparktxn.log.follow.newestcopy import copied_entry
from sparktxn.log.log import Log
from sparktxn.maintenance.checking.segmentcheck import RESTORE, Problem
from sparktxn.maintenance.tableobjects import WRONG_METADATA, iceberg, iceberg_objects, metadata_object
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.scan.tablefiles import newest_version, whole_version, with_statistics
from sparktxn.tableformats import delta
from sparktxn.tableformats.deltaactions import Add
from sparktxn.tableformats.deltafiles import DeltaFiles
from sparktxn.tableformats.version import TableVersion
from sparktxn.values.structs import PublishedPartition, TableState

__all__ = ["table_problems"]

_ATTEMPTS: Final = 3
_COMMIT: Final = re.compile(r"_delta_log/([0-9]{20})\.json")
_FOLDERS: Final = {"delta": "_delta_log/", "iceberg": "metadata/"}
_ANEW: Final = (
    "delete {folder} and publish: txnlog tables publish --apply writes the newest version anew, without older ones"
)

_Files = Mapping[str, tuple[int, Any]]
"""Files by path below the topic's folder: their sizes in bytes, and how the format describes them."""

_Canonical = Sequence[tuple[str, Sequence[bytes]]]
"""Objects by name, each with the bytes that it may have: as this version makes it, and as earlier ones did."""


def table_problems(log: Log, topic_ids: Container[int] | None) -> list[Problem]:
    """Return what is wrong with the metadata of tables, and with the files that their versions name.

    What an earlier publisher has not finished is not wrong: the next one goes on. Nor is that a format has no versions
    of the time before the topic had it, or that a copy has none yet.

    Args:
        log: the log of the store.
        topic_ids: whose tables; None for all.

    Raises:
        DamagedObject: a manifest of merged files is missing or damaged, so that it is not known what a table shows.
    """
    copied = copied_entry(log.objects)
    found: list[Problem] = []
    for topic_id in _tables(log):
        if topic_ids is None or topic_id in topic_ids:
            found += _problems(log, topic_id, copied)
    return found


def _tables(log: Log) -> list[int]:
    log.refresh()
    with log.known() as state:
        return [table.topic_id for table in state.tables()]


def _problems(log: Log, topic_id: int, copied: int) -> list[Problem]:
    """Return the problems of one table, of a moment in which no process has published it."""
    found: list[Problem] = []
    for _ in range(_ATTEMPTS):
        with log.known() as state:
            table = next(table for table in state.tables() if table.topic_id == topic_id)
            published = state.published(topic_id)
        if table.published_entry <= copied:
            return []
        found = list(_problems_of(log, table, published))
        log.refresh()
        with log.known() as state:
            if not found or table in state.tables():
                break
    return found


def _problems_of(log: Log, table: TableState, published: Sequence[PublishedPartition]) -> Iterator[Problem]:
    objects, folder = log.objects, names.topic_folder(table.name, table.topic_id)
    sizes = {info.name.removeprefix(folder): info.size_bytes for info in objects.list(folder)}
    newest = newest_version(objects, log.store_id, table, published)
    whole = with_statistics(objects, whole_version(objects, table, published, newest), skip_damaged=True)
    known = {file.path: file.statistics for file in whole.added}
    newest = replace(newest, added=tuple(replace(file, statistics=known[file.path]) for file in newest.added))
    for format_name in table.formats:
        check = _FormatCheck(objects, table, newest, whole, sizes, folder + _FOLDERS[format_name])
        yield from check.problems(_DELTA if format_name == "delta" else _ICEBERG)


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

    versions: Callable[[_FormatCheck], Iterator[_Version]]
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
    """A table in one of its formats. `sizes` are of all objects in its folder, and `metadata` has the format's."""

    def __init__(
        self,
        objects: ObjectStore,
        table: TableState,
        newest: TableVersion,
        whole: TableVersion,
        sizes: Mapping[str, int],
        metadata: str,
    ) -> None:
        self.objects = objects
        self.newest = newest
        self.whole = whole
        self.sizes = sizes
        self.promised: Final = range(table.kept[0].version, table.version + 1)
        """The versions that readers may ask for."""
        self._folder = names.topic_folder(table.name, table.topic_id)
        self._fix = _ANEW.format(folder=metadata)

    def problems(self, described: _Format) -> Iterator[Problem]:
        """Yield what is wrong with the versions that a format has, the last one with its canonical objects."""
        known = described.expected(self.whole)
        seen = set[str]()
        try:
            for version, name, files in described.versions(self):
                is_newest = version == self.newest.version
                for path in sorted(files.keys() - seen):
                    yield from self._file_problem(version, path, files[path][0])
                for path in sorted(files.keys() if is_newest else files.keys() - seen):
                    # Statistics are compared in the newest version: those before may have had fewer columns.
                    if path in known and not described.is_right(files[path], known[path], with_statistics=is_newest):
                        yield Problem(self._folder + name, f"it says of {path} what the log does not", self._fix)
                seen |= files.keys()
                if is_newest:
                    yield from self._newest_problems(name, files.keys() ^ known.keys(), described.canonical(self))
        except _Broken as broken:
            yield Problem(self._folder + broken.name, broken.reason, self._fix, broken.is_missing)

    def _newest_problems(self, name: str, wrong: Collection[str], canonical: _Canonical) -> Iterator[Problem]:
        if wrong:
            reason = f"version {self.newest.version} does not have the files of the log: {len(wrong)} differ, as"
            yield Problem(self._folder + name, f"{reason} {min(wrong)}", self._fix)
        for object_name, expected in canonical:
            if self.read(object_name) not in expected:
                yield Problem(self._folder + object_name, "it does not say what the log says", self._fix)

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


def _delta_versions(check: _FormatCheck) -> Iterator[_Version]:
    """Yield the versions of a Delta table that are promised.

    Raises:
        _Broken: one cannot be read.
    """
    found = (_COMMIT.fullmatch(name) for name in check.sizes)
    commits = [version for match in found if match and (version := int(match[1])) in check.promised]
    if not commits:
        return
    start = _first_checkpoint(check, min(commits))
    files = DeltaFiles(None)
    for version in range(start, max(commits) + 1):
        is_checkpoint = version == start > 0
        name = delta.checkpoint_name(version) if is_checkpoint else delta.commit_name(version)
        data = check.read(name)
        try:
            if is_checkpoint:
                files = DeltaFiles(data)
            else:
                files.apply(data)
        except WRONG_METADATA as error:
            raise _Broken(name, f"it cannot be read: {error}") from error
        if version in check.promised:
            yield _Version(version, delta.commit_name(version), _added(files))


def _first_checkpoint(check: _FormatCheck, version: int) -> int:
    """Return the version from whose checkpoint on a reader of `version` reads, 0 for none.

    It may be below the promised ones: theirs is not written before the newest version is. Without any it is `version`.
    """
    for number in range(version, 0, -1):
        if delta.checkpoint_name(number) in check.sizes:
            return number
    return 0 if delta.commit_name(0) in check.sizes else version


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
    if not check.is_described or (version == check.promised[0] > 0 and not has_before):
        return []
    try:
        commit = delta.commit(check.newest, lambda: check.whole, check.read(before) if has_before else None)
    except WRONG_METADATA as error:
        raise _Broken(before, f"it cannot be read: {error}") from error
    return [(delta.commit_name(version), (commit, delta.earlier_commit(check.newest)))]


def _without_statistics(add: Add) -> Add:
    return replace(add, stats="")


def _iceberg_versions(check: _FormatCheck) -> Iterator[_Version]:
    """Yield the versions of an Iceberg table that are promised.

    Raises:
        _Broken: one cannot be read.
    """
    names_ = {iceberg().metadata_name(number): number for number in check.promised}
    name = max((name for name in names_ if name in check.sizes), key=names_.__getitem__, default=None)
    if name is None:
        return
    try:
        files = iceberg().IcebergFiles(msgspec.json.decode(check.read(name)), check.read)
        for version in files.versions:
            yield _Version(version, iceberg().list_name(version), _described(files.files(version)))
    except WRONG_METADATA as error:
        raise _Broken(name, f"its files cannot be read: {error}") from error


def _described(files: Mapping[str, dict[str, Any]]) -> _Files:
    return {path: (file["file_size_in_bytes"], file) for path, file in files.items()}


def _iceberg_files(whole: TableVersion) -> Mapping[str, Sequence[tuple[int, Any]]]:
    objects = dict(iceberg().publication(whole, None, dict[str, bytes]().__getitem__))
    metadata = msgspec.json.decode(objects[iceberg().metadata_name(whole.version)])
    files = _described(iceberg().IcebergFiles(metadata, objects.__getitem__).files(whole.version))
    return {path: (each,) for path, each in files.items()}


def _iceberg_objects(check: _FormatCheck) -> _Canonical:
    """Return the objects of the newest version; none if it is the only one that is promised.

    The metadata before it, which it was made from, may be gone then.

    Raises:
        _Broken: the metadata of the version before says something else than it must.
    """
    version = check.newest.version
    if version == check.promised[0] > 0:
        return []
    try:
        found = iceberg_objects(check.objects, check.newest, lambda: check.whole, check.promised[0])
        return [(name, (data,)) for name, data in found]
    except DamagedObject as damaged:
        raise _Broken(iceberg().metadata_name(version - 1), damaged.reason) from damaged


_DELTA: Final = _Format(_delta_versions, _delta_objects, _delta_files, _without_statistics)
_ICEBERG: Final = _Format(_iceberg_versions, _iceberg_objects, _iceberg_files, lambda file: file)
