"""Which of some files entries have named: read from the entries alone, without a replica of the state.

While the horizon stays, a vacuum need not know what else is kept. A file is named by an entry after the one that it was
born at, or never.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sparktxn.errors import DamagedObject
from sparktxn.format import names
from sparktxn.format.entry import decode_entry
from sparktxn.log.follow.tail import commands_of
from sparktxn.log.keep.replay import NamedFile
from sparktxn.objectstore.contract import ObjectInfo, ObjectStore
from sparktxn.state.rules import files_named_by
from sparktxn.values.fieldtypes import TopicIdPartition

__all__ = ["named_since"]

_WINDOW: Final = 64


def named_since(
    objects: ObjectStore, infos: Iterable[ObjectInfo], last: int
) -> dict[TopicIdPartition, dict[str, NamedFile]]:
    """Return those of the files in a listing that entries up to `last` name, by partition and name.

    Entries are read from the first that may name one of them, until all are named.

    Raises:
        DamagedObject: an entry, or an object that it names, is missing or damaged.
        FormatVersionError: a newer version has written one.
    """
    left: dict[TopicIdPartition, set[str]] = {}
    count, first = 0, last
    for info in infos:
        parsed = names.parse_partition_object(info.name)
        born = None if parsed is None else names.parse_segment_born(parsed[2])
        if parsed is not None and born is not None:
            left.setdefault(parsed[:2], set()).add(parsed[2])
            count += 1
            first = min(first, born)
    found: dict[TopicIdPartition, dict[str, NamedFile]] = {}
    previous = None
    for start in range(first + 1, last + 1, _WINDOW):
        if not count:
            break
        numbers = range(start, min(start + _WINDOW, last + 1))
        for number, data in zip(numbers, objects.get_many([*map(names.entry, numbers)]), strict=True):
            if data is None:
                raise DamagedObject(names.entry(number), f"it is missing, and the log has had entry {last}")
            entry = decode_entry(data, names.entry(number), number)
            if previous not in (None, entry.previous):
                raise DamagedObject(names.entry(number), f"it does not follow entry {number - 1}")
            previous = entry.checksum
            for where, name, size_bytes, checksum in files_named_by(commands_of(objects, entry)):
                if name in left.get(where, ()):
                    left[where].remove(name)
                    count -= 1
                    found.setdefault(where, {})[name] = NamedFile(number, size_bytes, checksum)
    return found
