"""The metadata of tables as objects: whether the newest version's is complete, what is past, what the log must keep."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, Final

import msgspec

from sparktxn.errors import ConfigurationError, DamagedObject
from sparktxn.format import names
from sparktxn.log.log import Log
from sparktxn.objectstore.contract import ObjectInfo, ObjectStore
from sparktxn.tableformats import delta
from sparktxn.tableformats.version import TableVersion
from sparktxn.values.structs import TableState

__all__ = [
    "WRONG_METADATA",
    "check_tables",
    "iceberg",
    "iceberg_objects",
    "is_written",
    "left_by_others",
    "metadata_object",
    "needed_entry",
    "past_metadata",
]

_OTHERS: Final = re.compile(
    r"(?:[A-Za-z0-9_=-][A-Za-z0-9._=-]*/)*[A-Za-z0-9_=-][A-Za-z0-9._=-]*\.(?:parquet|orc|avro|json|crc|bin|puffin|tmp)"
)
"""What engines call the files that they write, below the topic's folder."""
_KEPT: Final = re.compile(
    r"_delta_log/(?:_last_checkpoint|_sidecars/.*|[0-9]{20}\..*)"
    r"|metadata/(?:v[0-9]+\.metadata\.json|snap-[0-9]+\.avro|[0-9]{20}-[0-9]+\.avro)"
    r"|.*_sealed/.*"
)
"""Names that this package gives, or that a checkpoint of another engine has, which is no commit."""

_DELTA_VERSION: Final = re.compile(r"_delta_log/([0-9]{20})\.(?:json|checkpoint\.parquet)")


WRONG_METADATA: Final = (ValueError, KeyError, TypeError, IndexError)
"""What metadata raises that is whole and says something else than it must: it has no checksum."""


def check_tables(log: Log, wanted: Iterable[str], tables: Container[str]) -> None:
    """Check that topics which a caller names are among the tables.

    Raises:
        ConfigurationError: one is no table.
        CommandRefused: one does not exist (UNKNOWN_TOPIC_OR_PARTITION).
    """
    for name in wanted:
        if name not in tables:
            log.view([name])  # refuses one that does not exist
            raise ConfigurationError(f"topic {name!r} is no table: set its table.formats")


def iceberg() -> Any:
    """Return the module of Iceberg's metadata, whose packages are an extra.

    Raises:
        ConfigurationError: they are not installed.
    """
    try:
        return importlib.import_module("sparktxn.tableformats.iceberg")
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"table.formats=iceberg needs the package {missing.name!r}: pip install 'sparktxn[iceberg]'"
        ) from missing


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
    return delta.commit_name(version) if format_name == "delta" else str(iceberg().metadata_name(version))


def _hint_stays(objects: ObjectStore, folder: str, table: TableState, format_name: str) -> bool:
    """Return whether the hint of a format names what no vacuum deletes: Iceberg's names the newest version."""
    if format_name == "iceberg":
        hint = objects.get(folder + iceberg().VERSION_HINT)
        return hint is not None and iceberg().hinted_version(hint) == table.version
    first = table.kept[0].version
    hint = objects.get(folder + delta.LAST_CHECKPOINT) if first else None
    hinted = delta.hinted_version(hint) if hint is not None else None
    if not first or (hinted is not None and hinted >= first):
        return True
    # Without this checkpoint nothing is deleted.
    return objects.get(folder + delta.checkpoint_name(first)) is None


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
    needed = [table.needs_entry if is_written(objects, table) else 0 for table in tables]
    return min((entry for entry in needed if entry is not None), default=None)


def past_metadata(objects: ObjectStore, table: TableState) -> Iterator[ObjectInfo]:
    """Yield the metadata of versions that cannot be read any more. It goes before their files do.

    There is none while the newest version is not described, with hints that name what stays.
    """
    folder, first = names.topic_folder(table.name, table.topic_id), table.kept[0].version
    if not first or not is_written(objects, table):
        return
    if "delta" in table.formats and objects.get(folder + delta.checkpoint_name(first)) is not None:
        for info in objects.list(f"{folder}_delta_log/"):
            found = _DELTA_VERSION.fullmatch(info.name.removeprefix(folder))
            if found and int(found[1]) < first:
                yield info
    if "iceberg" in table.formats:
        yield from _past_iceberg(objects, folder, table.version)


def _past_iceberg(objects: ObjectStore, folder: str, version: int) -> Iterator[ObjectInfo]:
    """Yield what no snapshot of the newest metadata needs."""
    name = iceberg().metadata_name(version)
    data = metadata_object(objects, folder + name)
    listed = {info.name.removeprefix(folder): info for info in objects.list(f"{folder}metadata/")}
    try:
        past = iceberg().past_names(
            listed, msgspec.json.decode(data), lambda each: metadata_object(objects, folder + each)
        )
    except WRONG_METADATA as error:
        raise DamagedObject(folder + name, f"it does not say which objects it needs: {error}") from error
    yield from (listed[each] for each in past)


def iceberg_objects(
    objects: ObjectStore, version: TableVersion, whole: Callable[[], TableVersion], first: int
) -> list[tuple[str, bytes]]:
    """Return the objects of a version's Iceberg metadata, by name below the topic's folder; the last completes it.

    Args:
        objects: has the metadata of the version before, if it is there.
        version: the version.
        whole: returns it as one that has none before it.
        first: the oldest version that can be read.

    Raises:
        ConfigurationError: the packages of Iceberg are not installed.
        DamagedObject: the metadata of the version before is damaged.
    """
    folder, number = names.topic_folder(version.topic, version.topic_id), version.version
    before = objects.get(folder + iceberg().metadata_name(number - 1)) if number else None
    try:
        previous = None if before is None else msgspec.json.decode(before)
        if previous is not None and previous["location"] != version.location:
            previous = None
        found: list[tuple[str, bytes]] = iceberg().publication(
            version if previous is not None or not number else whole(),
            previous,
            lambda name: metadata_object(objects, folder + name),
            first=first,
        )
    except WRONG_METADATA as error:
        name = folder + iceberg().metadata_name(number)
        raise DamagedObject(name, f"it cannot be made from the version before it: {error}") from error
    return found


def metadata_object(objects: ObjectStore, name: str) -> bytes:
    """Return an object that other metadata names.

    Raises:
        DamagedObject: it does not exist.
    """
    data = objects.get(name)
    if data is None:
        raise DamagedObject(name, "metadata of a table names it and it does not exist")
    return data
