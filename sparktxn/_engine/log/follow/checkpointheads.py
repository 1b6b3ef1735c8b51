"""Finding and reading checkpoints, and which copy of the store is the newest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import (
    CheckpointHead,
    PartRef,
    decode_head,
    decode_hint,
    decode_opened_head,
    decode_part,
)
from sparktxn._engine.format.copies import CopyDocument, decode_copy
from sparktxn._engine.format.entry import StoreDocument
from sparktxn._engine.format.names import CHECKPOINTS, LAST_CHECKPOINT, checkpoint_head, parse_checkpoint_head
from sparktxn._engine.format.names import horizon as horizon_marker
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values.structs import StateRecord
from sparktxn.errors import DamagedObject, StoreNotFound, damage_named

_Decode = Callable[[bytes, str, int], CheckpointHead]


def hinted_head(objects: ObjectStore) -> CheckpointHead | None:
    """Return the head that the hint names, if it is whole; it may be old."""
    return _hinted(objects, objects.get(LAST_CHECKPOINT), decode_head)


def head_to_open(objects: ObjectStore, hint: bytes | None) -> CheckpointHead | None:
    """Return the head that `hint`, just read, names; what its parts are is checked when a part is asked for."""
    return _hinted(objects, hint, decode_opened_head)


def _hinted(objects: ObjectStore, hint: bytes | None, decode: _Decode) -> CheckpointHead | None:
    named = decode_hint(hint) if hint is not None else None
    return read_head(objects, named.entry, named.checkpoint, decode) if named is not None else None


def read_head(
    objects: ObjectStore, entry: int, checkpoint: str, decode: _Decode = decode_head
) -> CheckpointHead | None:
    """Return a head by its name, or None, loudly, if it is damaged; quietly if it does not exist.

    Raises:
        FormatVersionError: a newer version has written it. It is not skipped: what it names must not be deleted.
    """
    try:
        return open_head(objects, entry, checkpoint, decode)
    except DamagedObject as error:
        log_event("checkpoint_skipped", error=error)
        return None


def open_head(
    objects: ObjectStore, entry: int, checkpoint: str, decode: _Decode = decode_head
) -> CheckpointHead | None:
    """Return a head by its name; None if it does not exist.

    Raises:
        DamagedObject: it is damaged.
        FormatVersionError: it is of a newer format, or requires a feature that this version cannot read.
    """
    name = checkpoint_head(entry, checkpoint)
    if parse_checkpoint_head(name) is None:
        return None
    data = objects.get(name)
    return None if data is None else decode(data, name, entry)


def newest_head(
    objects: ObjectStore, *, at_most: int | None = None, excluded: frozenset[str] = frozenset()
) -> CheckpointHead | None:
    """Return the newest whole head by a listing, without heads after entry `at_most` and those in `excluded`."""
    found = []
    for name in objects.list_names(CHECKPOINTS):
        parsed = parse_checkpoint_head(name)
        if parsed is not None and parsed[1] not in excluded and (at_most is None or parsed[0] <= at_most):
            found.append(parsed)
    for entry, checkpoint in sorted(found, reverse=True):
        head = read_head(objects, entry, checkpoint)
        if head is not None:
            return head
    return None


def check_heads(objects: ObjectStore, horizon: int, at_most: int | None = None) -> None:
    """Find the damage by which no head up to entry `at_most` is usable: what is lost by it has not expired.

    There is a usable head of the entry `horizon` as long as the horizon is there.

    Raises:
        DamagedObject: a head that no vacuum has passed is damaged or, if it would have counted, missing.
    """
    with damage_named(objects.uri):
        for name in objects.list_names(CHECKPOINTS):
            parsed = parse_checkpoint_head(name)
            if parsed is not None and horizon - 1 <= parsed[0] and (at_most is None or parsed[0] <= at_most):
                open_head(objects, *parsed)
        if at_most is None or at_most >= horizon:
            raise DamagedObject(
                horizon_marker(horizon),
                f"entries below {horizon} may be gone, and no checkpoint that holds their state is whole",
            )


def read_part(objects: ObjectStore, ref: PartRef) -> list[StateRecord]:
    """Return a part's records.

    Raises:
        DamagedObject: it is missing or damaged.
    """
    return read_parts(objects, [ref])[0]


def read_parts(objects: ObjectStore, refs: Sequence[PartRef]) -> list[list[StateRecord]]:
    """Return the records of several parts, fetched side by side.

    Raises:
        DamagedObject: one is missing or damaged.
    """
    read = []
    for ref, data in zip(refs, objects.get_many([ref.name for ref in refs]), strict=True):
        if data is None:
            raise DamagedObject(ref.name, "the checkpoint's head names it and it does not exist")
        read.append(decode_part(data, ref.name, ref))
    return read


# Copies of a store: which document of one is the newest, and whether it is a store yet (PROTOCOL.md, "Copies").


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
