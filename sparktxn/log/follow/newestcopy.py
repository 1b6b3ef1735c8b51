"""Copies of a store: which document of one is the newest, and whether it is a store yet (PROTOCOL.md, "Copies")."""

from __future__ import annotations

from sparktxn.errors import DamagedObject, StoreNotFound
from sparktxn.format import names
from sparktxn.format.copies import CopyDocument, decode_copy
from sparktxn.format.entry import StoreDocument
from sparktxn.objectstore.contract import ObjectStore

__all__ = ["check_copied", "copied_entry", "newest_copy"]


def newest_copy(objects: ObjectStore) -> CopyDocument | None:
    """Return the newest document of a copy; None if there is none.

    Raises:
        DamagedObject, FormatVersionError: it cannot be read.
    """
    found = [number for name in objects.list_names(names.COPIES) if (number := names.parse_copy(name)) is not None]
    if not found:
        return None
    number = max(found)
    name = names.copy(number)
    data = objects.get(name)
    if data is None:
        raise DamagedObject(name, "it was listed and does not exist: nothing deletes it")
    return decode_copy(data, name, number)


def copied_entry(objects: ObjectStore) -> int:
    """Return the entry up to which the log is that of the store that this one is a copy of; 0 if it is none.

    Raises:
        DamagedObject, FormatVersionError: the newest document of the copy cannot be read.
    """
    copied = newest_copy(objects)
    return 0 if copied is None else copied.entry


def check_copied(objects: ObjectStore, store: StoreDocument) -> None:
    """Check that a store which is a copy has all that its log names.

    Raises:
        StoreNotFound: it is a copy that was never finished: it is not a store yet.
        DamagedObject, FormatVersionError: its newest document cannot be read.
    """
    if not store.copied_from:
        return
    newest = newest_copy(objects)
    if newest is None or not newest.complete:
        raise StoreNotFound(
            f"at {objects.uri!r} is an unfinished copy of the store with the id {store.copied_from}, and no store yet: "
            f"finish it with txnlog copy --apply from that store, or delete it"
        )
