"""The metadata of tables as objects: whether the newest version's is complete, what is past, what the log must keep."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, Final

import msgspec

from sparktxn._engine.format import names
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.contract import ObjectInfo, ObjectStore
from sparktxn._foundation.values.structs import TableState
from sparktxn._rows.tableformats import delta
from sparktxn._rows.tableformats import version as icebergnames
from sparktxn._rows.tableformats.version import FOLDERS, FormatVersions, TableVersion, is_metadata, versions_in
from sparktxn.errors import ConfigurationError, DamagedObject, extra_to_install

_OTHERS: Final = re.compile(
    r"(?:[A-Za-z0-9_=-][A-Za-z0-9._=-]*/)*[A-Za-z0-9_=-][A-Za-z0-9._=-]*\.(?:parquet|orc|avro|json|crc|bin|puffin|tmp)"
)
"""What engines call the files that they write, below the topic's folder."""
_KEPT: Final = re.compile(
    r"_delta_log/(?:_last_checkpoint|_sidecars/.*|[0-9]{20}\..*)"
    r"|metadata/(?:v[0-9]+\.metadata\.json|snap-[0-9]+\.avro|[0-9]{20}-[0-9]+\.avro)"
    r"|.*_sealed/.*"
)
"""Names that this package gives, or that a checkpoint of another engine has, which is not a commit."""

_DELTA_VERSION: Final = re.compile(r"_delta_log/([0-9]{20})\.(?:json|checkpoint\.parquet)")

WRONG_METADATA: Final = (ValueError, KeyError, TypeError, IndexError)
"""What metadata raises that is whole and says something else than it must: it has no checksum."""


def check_tables(log: Log, wanted: Iterable[str], tables: Container[str]) -> None:
    """Check that topics which a caller names are among the tables.

    Raises:
        ConfigurationError: one is not a table.
        CommandRefused: one does not exist (UNKNOWN_TOPIC_OR_PARTITION).
    """
    for name in wanted:
        if name not in tables:
            log.view([name])  # refuses one that does not exist
            raise ConfigurationError(f"topic {name!r} is not a table: set its table.formats")


def iceberg() -> Any:
    """Return the module of Iceberg's metadata, whose packages are an extra.

    Raises:
        ConfigurationError: they are not installed.
    """
    try:
        return importlib.import_module("sparktxn._rows.tableformats.iceberg")
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"table.formats=iceberg needs the package {missing.name!r}: {extra_to_install('iceberg')}"
        ) from missing


def format_versions(objects: ObjectStore, folder: str, format_name: str) -> FormatVersions:
    """Return the versions that a table has in a format, by a listing; `folder` is the topic's."""
    listed = objects.list(folder + FOLDERS[format_name])
    return versions_in(format_name, (info.name.removeprefix(folder) for info in listed))


def is_written(objects: ObjectStore, table: TableState) -> bool:
    """Return whether the newest version of a table has all its metadata, and hints that name what stays.

    A publisher may have died before it wrote a hint, or have written it late. Engines that go by such a hint find
    nothing once a vacuum has deleted what it names.
    """
    folder = names.topic_folder(table.name, table.topic_id)
    return all(
        objects.get(folder + _last_name(each, table.version)) is not None and _hint_stays(objects, folder, table, each)
        for each in table.formats
    )


def _last_name(format_name: str, version: int) -> str:
    """Return the object that completes the metadata of a version in a format."""
    return delta.commit_name(version) if format_name == "delta" else icebergnames.metadata_name(version)


def _hint_stays(objects: ObjectStore, folder: str, table: TableState, format_name: str) -> bool:
    """Return whether the hint of a format names what no vacuum deletes: Iceberg's names the newest version."""
    if format_name == "iceberg":
        hint = objects.get(folder + icebergnames.VERSION_HINT)
        return hint is not None and icebergnames.hinted_version(hint) == table.version
    first = table.kept[0].version
    hinted = _hinted_checkpoint(objects, folder) if first else None
    if not first or (hinted is not None and hinted >= first):
        return True
    # Without a checkpoint nothing is deleted.
    start = format_versions(objects, folder, "delta").needed_from(first)
    return not start or (hinted is not None and hinted >= start)


def _hinted_checkpoint(objects: ObjectStore, folder: str) -> int | None:
    hint = objects.get(folder + delta.LAST_CHECKPOINT)
    return delta.hinted_version(hint) if hint is not None else None


def left_by_others(tables: Iterable[TableState], before_ms: int) -> Callable[[ObjectInfo], bool]:
    """Return whether an object is a file that another engine has left in a table's folder before `before_ms`.

    Its writer put it there before its commit was refused, and nothing names it. No such name is one of this package,
    so the log names none.
    """
    folders = {names.topic_folder(table.name, table.topic_id) for table in tables}

    def is_left(info: ObjectInfo) -> bool:
        folder, _, rest = info.name.removeprefix(names.TOPICS).partition("/")
        return (
            f"{names.TOPICS}{folder}/" in folders
            and info.modified_ms < before_ms
            and _OTHERS.fullmatch(rest) is not None
            and _KEPT.fullmatch(rest) is None
            and names.parse_segment_born(rest.rpartition("/")[2]) is None
        )

    return is_left


def needed_entry(objects: ObjectStore, tables: Iterable[TableState]) -> int | None:
    """Return the entry from which on the log must be kept for versions of tables; None if there is none.

    It is 0 while metadata is missing: engines still read the version before.
    """
    return min((entry for _, entry in needed_entries(objects, tables) if entry is not None), default=None)


def needed_entries(objects: ObjectStore, tables: Iterable[TableState]) -> list[tuple[TableState, int | None]]:
    """Return each table with the entry that it needs, as `needed_entry`."""
    return [(table, table.needs_entry if is_written(objects, table) else 0) for table in tables]


def past_metadata(objects: ObjectStore, table: TableState) -> Iterator[ObjectInfo]:
    """Yield the metadata of versions that cannot be read any more. It goes before their files do.

    Of a format that the topic has no more, all goes once none of its versions can be read. There is none while the
    newest version is not described, with hints that name what stays.
    """
    folder, first = names.topic_folder(table.name, table.topic_id), table.kept[0].version
    if not first or not is_written(objects, table):
        return
    for format_name, below in FOLDERS.items():
        listed = {info.name.removeprefix(folder): info for info in objects.list(folder + below)}
        versions = versions_in(format_name, listed)
        needed = versions.needed_from(first)
        if needed is None:
            past = _all_of(format_name, listed)
        elif format_name == "delta":
            past = _past_delta(objects, folder, listed, needed)
        elif format_name in table.formats or min(versions.versions) < first:
            past = _past_iceberg(objects, folder, listed, needed, is_needed=format_name in table.formats)
        else:
            past = []
        yield from (listed[name] for name in past)


def _all_of(format_name: str, names_: Iterable[str]) -> list[str]:
    """Return the metadata of a format, its hint first: readers that go by it find nothing else."""
    found = [name for name in names_ if is_metadata(format_name, name)]
    return sorted(found, key=lambda name: (name not in (delta.LAST_CHECKPOINT, icebergnames.VERSION_HINT), name))


def _past_delta(objects: ObjectStore, folder: str, names_: Iterable[str], needed: int) -> list[str]:
    hinted = _hinted_checkpoint(objects, folder)
    if hinted is not None and hinted < needed:
        return []
    found = {name: _DELTA_VERSION.fullmatch(name) for name in names_}
    return [name for name, match in found.items() if match and int(match[1]) < needed]


def _past_iceberg(
    objects: ObjectStore, folder: str, names_: Iterable[str], oldest: int, *, is_needed: bool
) -> list[str]:
    """Return what no version needs from the oldest one on that the format has.

    Raises:
        ConfigurationError: the packages of Iceberg are not installed; no error if the topic has this format no more.
    """
    try:
        iceberg()
    except ConfigurationError:
        if is_needed:
            raise
        return []
    name = icebergnames.metadata_name(oldest)
    data = metadata_object(objects, folder + name)
    try:
        found: list[str] = iceberg().past_names(
            names_, msgspec.json.decode(data), oldest, lambda each: metadata_object(objects, folder + each)
        )
    except WRONG_METADATA as error:
        raise DamagedObject(folder + name, f"it does not say which objects it needs: {error}") from error
    return found


def iceberg_objects(
    objects: ObjectStore,
    version: TableVersion,
    whole: Callable[[], TableVersion],
    first: int,
    *,
    keeps_older: bool = True,
    is_earlier: bool = False,
) -> list[tuple[str, bytes]]:
    """Return the objects of a version's Iceberg metadata, by name below the topic's folder; the last completes it.

    Args:
        objects: has the metadata of the version before, if it is there.
        version: the version.
        whole: returns it as one that has none before it.
        first: the oldest version that can be read.
        keeps_older: whether the first version after a gap has the snapshots from before the gap. Earlier releases have
            left them out.
        is_earlier: make them as an earlier version of this package did.

    Raises:
        ConfigurationError: the packages of Iceberg are not installed.
        DamagedObject: the metadata of the version before is damaged.
    """
    folder, number = names.topic_folder(version.topic, version.topic_id), version.version
    before = objects.get(folder + icebergnames.metadata_name(number - 1)) if number else None
    older = None
    if before is None and number and keeps_older:
        gap_after = format_versions(objects, folder, "iceberg").newest_below(number, first)
        older = None if gap_after is None else objects.get(folder + icebergnames.metadata_name(gap_after))
    try:
        previous = _metadata_at(before, version.location)
        found: list[tuple[str, bytes]] = iceberg().publication(
            version if previous is not None or not number else whole(),
            previous,
            lambda name: metadata_object(objects, folder + name),
            first=first,
            older=_metadata_at(older, version.location),
            whole=whole,
            is_earlier=is_earlier,
        )
    except WRONG_METADATA as error:
        name = folder + icebergnames.metadata_name(number)
        raise DamagedObject(name, f"it cannot be made from the version before it: {error}") from error
    return found


def _metadata_at(data: bytes | None, location: str) -> Any:
    """Return the decoded metadata of a table; None if there is none, or if it is that of another address."""
    found = None if data is None else msgspec.json.decode(data)
    return found if found is not None and found["location"] == location else None


def metadata_object(objects: ObjectStore, name: str) -> bytes:
    """Return an object that other metadata names.

    Raises:
        DamagedObject: it does not exist.
    """
    data = objects.get(name)
    if data is None:
        raise DamagedObject(name, "metadata of a table names it and it does not exist")
    return data
