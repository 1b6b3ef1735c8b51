"""The metadata of tables as objects: whether the newest version's is complete, what is past, what the log must keep."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from sparktxn.errors import ConfigurationError, DamagedObject
from sparktxn.format import names
from sparktxn.objectstore.contract import ObjectInfo, ObjectStore
from sparktxn.tableformats import delta
from sparktxn.values.structs import TableState

__all__ = ["iceberg", "is_written", "needed_entry", "past_metadata"]

_DELTA_VERSION: Final = re.compile(r"_delta_log/([0-9]{20})\.(?:json|checkpoint\.parquet)")


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
    """Return whether the newest version of a table has all its metadata."""
    folder = names.topic_folder(table.name, table.topic_id)
    return all(objects.get(folder + _last_name(each, table.version)) is not None for each in table.formats)


def _last_name(format_name: str, version: int) -> str:
    """Return the object that completes the metadata of a version in a format."""
    return delta.commit_name(version) if format_name == "delta" else str(iceberg().metadata_name(version))


def needed_entry(objects: ObjectStore, tables: Iterable[TableState]) -> int | None:
    """Return the entry from which on the log must be kept for versions of tables; None if there is none.

    It is 0 while metadata is missing: engines still read the version before.
    """
    needed = [table.needs_entry if is_written(objects, table) else 0 for table in tables]
    return min((entry for entry in needed if entry is not None), default=None)


def past_metadata(objects: ObjectStore, table: TableState) -> Iterator[ObjectInfo]:
    """Yield the metadata of versions that cannot be read any more. It goes before their files do."""
    folder, first = names.topic_folder(table.name, table.topic_id), table.kept[0].version
    if not first:
        return
    if "delta" in table.formats and objects.get(folder + delta.checkpoint_name(first)) is not None:
        for info in objects.list(f"{folder}_delta_log/"):
            found = _DELTA_VERSION.fullmatch(info.name.removeprefix(folder))
            if found and int(found[1]) < first:
                yield info
    if "iceberg" in table.formats:
        yield from _past_iceberg(objects, folder, table.version)


def _past_iceberg(objects: ObjectStore, folder: str, version: int) -> Iterator[ObjectInfo]:
    """Yield what no snapshot of the newest metadata needs; nothing while that is missing."""

    def read(name: str) -> bytes:
        data = objects.get(folder + name)
        if data is None:
            raise DamagedObject(folder + name, "metadata of a table names it and it does not exist")
        return data

    name = iceberg().metadata_name(version)
    data = objects.get(folder + name)
    if data is None:
        return
    listed = {info.name.removeprefix(folder): info for info in objects.list(f"{folder}metadata/")}
    try:
        past = iceberg().past_names(listed, msgspec.json.decode(data), read)
    except ValueError as error:
        raise DamagedObject(folder + name, f"it does not say which objects it needs: {error}") from error
    yield from (listed[each] for each in past)
