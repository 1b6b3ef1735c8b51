"""The bytes of segments, from objects of their own or out of log entries; the one place where readers get them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sparktxn._engine.format.segment import checksum
from sparktxn._engine.log.follow.inlinerecords import fetch_inline, inline_cache
from sparktxn._engine.log.views.readview import PartitionView
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.values.quantities import counted
from sparktxn._rows.scan.plan import LocatedSegment, missing_object
from sparktxn.errors import DamagedObject, damage_named

_KEPT_SEGMENTS_MAX: Final = 256
"""Reading so many, of at most 64 KiB each, does not keep a caller."""


def are_kept(objects: ObjectStore, view: PartitionView, start: int, end: int) -> bool:
    """Return whether the log's follower has kept all records from offset `start` to `end`: no request is needed.

    So it is of the few that a reader at the end of the log finds.
    """
    if view.rewritten or (view.sealed and view.sealed[-1].end_offset > start):
        return False
    kept = inline_cache(objects)
    count = 0
    for segment in reversed(view.segments):
        if segment.end_offset <= start:
            break
        count += 1
        if count > _KEPT_SEGMENTS_MAX or (segment.base_offset < end and kept.get(segment.name) is None):
            return False
    return count > 0


def fetch_each(
    objects: ObjectStore, stored: Sequence[tuple[str, str, int | None]], *, use_kept: bool = True
) -> list[bytes | DamagedObject | None]:
    """Return the bytes of each segment, not checked.

    It is None where the object is missing, and an error where an entry does not carry the segment.

    Args:
        objects: the store.
        stored: the object's name, the segment's name and the entry that carries it, if one does, of each.
        use_kept: whether inline records may be those that a follower of the log has kept.

    Raises:
        StoreUnavailable: the store did not answer.
    """
    inline = [(carrier, segment) for _, segment, carrier in stored if carrier is not None]
    carried = fetch_inline(objects, inline, use_kept=use_kept) if inline else {}
    files = [name for name, _, carrier in stored if carrier is None]
    fetched = iter(objects.get_many(files) if len(files) > 1 else [objects.get(name) for name in files])
    return [next(fetched) if carrier is None else carried[segment] for _, segment, carrier in stored]


def fetch_segments(objects: ObjectStore, segments: Sequence[LocatedSegment], view_entry: int) -> Iterator[bytes]:
    """Yield the bytes of segments that a view at `view_entry` names; those of inline records are checked.

    All are fetched before the first is given.

    Raises:
        DamagedObject: a segment is missing, or its entry does not carry its records.
        ViewExpired: it is so because the vacuum has passed the view.
    """
    fetched = fetch_each(objects, [(name, segment.name, carrier) for segment, name, carrier in segments])
    # What has been given is not kept: a window's bytes are freed one by one.
    fetched.reverse()
    for located in segments:
        data = fetched.pop()
        if data is None:
            raise missing_object(objects, located.object_name, view_entry)
        if isinstance(data, bytes) and located.carrier is None:
            yield data
        else:
            yield _checked(objects, located, data, view_entry)


def _checked(objects: ObjectStore, located: LocatedSegment, data: bytes | DamagedObject, view_entry: int) -> bytes:
    """Return inline records that are those which the view names: another entry may be in the place of a deleted one."""
    try:
        if isinstance(data, DamagedObject):
            raise data
        check_bytes(located, data)
    except DamagedObject as damaged:
        raise missing_object(objects, located.object_name, view_entry, damage=damaged) from None
    return data


def fetch_segment(objects: ObjectStore, located: LocatedSegment, view_entry: int) -> bytes:
    """Return the bytes of one segment, checked against what the log says of it.

    Raises:
        DamagedObject: the segment is missing or altered.
        ViewExpired: it is missing because the vacuum has passed the view.
    """
    with damage_named(objects.uri):
        (data,) = fetch_segments(objects, [located], view_entry)
        check_bytes(located, data)
    return data


def check_bytes(located: LocatedSegment, data: bytes, *, check_checksums: bool = True) -> None:
    """Check a segment's bytes against what the log says of it.

    Raises:
        DamagedObject: they are others.
    """
    segment, name, _ = located
    if len(data) != segment.size_bytes:
        raise DamagedObject(name, f"it has {counted(len(data), 'byte')}, expected {segment.size_bytes}")
    if check_checksums and (found := checksum(data)) != segment.checksum:
        raise DamagedObject(name, f"its checksum is {found}, expected {segment.checksum}")
