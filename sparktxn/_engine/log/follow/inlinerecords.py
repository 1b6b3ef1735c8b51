"""Inline records by the names of their segments: out of the entries that carry them (PROTOCOL.md, "Inline records").

A follower has read every entry once. What it has seen last is kept, so that a reader at the end of the log asks for
nothing twice. All readers of one store handle share what is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Append, Command, PrepareHalf
from sparktxn._engine.format.entry import LogEntry, decode_entry
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn.errors import DamagedObject

_CACHED_BYTES_MAX: Final = 16 << 20


class InlineCache:
    """Recent inline records, at most `bytes_max` bytes. Safe for several threads."""

    def __init__(self, bytes_max: int = _CACHED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._records: OrderedDict[str, bytes] = OrderedDict()
        self._size_bytes = 0

    def get(self, segment: str) -> bytes | None:
        """Return the records of a segment, None if they are not held."""
        return self._records.get(segment)

    def add(self, records: Iterable[tuple[str, bytes]]) -> None:
        """Hold records, and let go of those that have been held for longest."""
        with self._lock:
            for segment, data in records:
                if segment not in self._records:
                    self._records[segment] = data
                    self._size_bytes += len(data)
            while self._size_bytes > self._bytes_max and len(self._records) > 1:
                self._size_bytes -= len(self._records.popitem(last=False)[1])


_caches: Final[WeakKeyDictionary[ObjectStore, InlineCache]] = WeakKeyDictionary()
_making: Final = Lock()


def inline_cache(objects: ObjectStore) -> InlineCache:
    """Return what is held of the inline records of a store, for as long as its handle lives."""
    cache = _caches.get(objects)
    if cache is None:
        with _making:
            cache = _caches.setdefault(objects, InlineCache())
    return cache


def carried_records(commands: Sequence[Command], entry: int) -> dict[str, bytes]:
    """Return the inline records that the commands of an entry carry, by the names that the state has for them."""
    found = {}
    for command in commands:
        if type(command) is Append:
            if command.data:
                found[command.segment] = command.data
        elif type(command) is PrepareHalf:
            for segment, data in command.data.items():
                found[names.carried_segment(segment, entry)] = data
    return found


def note_inline(objects: ObjectStore, entry: LogEntry) -> None:
    """Hold the inline records that an entry of a followed log carries."""
    carried = carried_records(entry.commands, entry.entry)
    if carried:
        inline_cache(objects).add(carried.items())


def fetch_inline(
    objects: ObjectStore, wanted: Iterable[tuple[int, str]], *, use_kept: bool = True
) -> dict[str, bytes | DamagedObject | None]:
    """Return the inline records of segments, given as (entry that carries it, name), by their names.

    It is None where the entry does not exist, and an error where that object is damaged or does not carry them. Below
    the horizon a slow writer may have put another entry in the place of a deleted one, so the caller judges it.
    Without `use_kept` each entry is read from the store.

    Raises:
        StoreUnavailable: the store did not answer.
    """
    cache = inline_cache(objects)
    found: dict[str, bytes | DamagedObject | None] = {}
    missing: dict[int, list[str]] = {}
    for entry, segment in wanted:
        held = cache.get(segment) if use_kept else None
        if held is None:
            missing.setdefault(entry, []).append(segment)
        else:
            found[segment] = held
    for (entry, segments), data in zip(missing.items(), _fetched(objects, list(missing)), strict=True):
        found.update(dict.fromkeys(segments) if data is None else _carried(objects, entry, data, segments))
    return found


def _fetched(objects: ObjectStore, entries: Sequence[int]) -> list[bytes | None]:
    if len(entries) == 1:
        return [objects.get(names.entry(entries[0]))]
    return objects.get_many([names.entry(entry) for entry in entries]) if entries else []


def _carried(
    objects: ObjectStore, entry: int, data: bytes, segments: Sequence[str]
) -> dict[str, bytes | DamagedObject | None]:
    name = names.entry(entry)
    try:
        decoded = decode_entry(data, name, entry)
    except DamagedObject as damaged:
        return dict.fromkeys(segments, damaged)
    # Readers of other partitions ask for the rest of it next.
    note_inline(objects, decoded)
    carried = carried_records(decoded.commands, entry)
    return {
        segment: carried.get(segment) or DamagedObject(name, f"it does not carry the records of segment {segment!r}")
        for segment in segments
    }
