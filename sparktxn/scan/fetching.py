"""The bytes of segments, from objects of their own or out of log entries; the one place where readers get them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sparktxn.errors import DamagedObject, damage_named
from sparktxn.format import names
from sparktxn.format.segment import checksum
from sparktxn.log.follow.inlinerecords import fetch_inline, inline_cache
from sparktxn.log.views.readview import PartitionView
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.scan.plan import missing_object
from sparktxn.values.quantities import counted
from sparktxn.values.structs import SegmentRef

__all__ = ["NamedSegment", "check_bytes", "fetch_each", "fetch_segment", "fetch_segments"]


_KEPT_SEGMENTS_MAX: Final = 256
"""Reading so many, of at most 64 KiB each, does not keep a caller."""


class NamedSegment(NamedTuple):
    """A segment, and the name of the object that holds its records."""

    name: str
    segment: SegmentRef


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
    objects: ObjectStore, stored: Sequence[tuple[str, str, int]], *, use_kept: bool = True
) -> list[bytes | DamagedObject | None]:
    """Return the bytes of each segment, not checked.

    It is None where the object is missing, and an error where an entry does not carry the segment.

    Args:
        objects: the store.
        stored: the object's name, the segment's name and the entry that appended it, of each.
        use_kept: whether inline records may be those that a follower of the log has kept.

    Raises:
        StoreUnavailable: the store did not answer.
    """
    inline = [(names.carrier(segment, entry), segment) for _, segment, entry in stored if names.is_inline(segment)]
    carried = fetch_inline(objects, inline, use_kept=use_kept) if inline else {}
    files = [name for name, segment, _ in stored if segment not in carried]
    fetched = iter(objects.get_many(files) if len(files) > 1 else [objects.get(name) for name in files])
    return [carried[segment] if segment in carried else next(fetched) for _, segment, _ in stored]


def fetch_segments(objects: ObjectStore, segments: Sequence[NamedSegment], view_entry: int) -> Iterator[bytes]:
    """Yield the bytes of segments that a view at `view_entry` names; those of inline records are checked.

    All are fetched before the first is given.

    Raises:
        DamagedObject: a segment is missing, or its entry does not carry its records.
        ViewExpired: it is so because the vacuum has passed the view.
    """
    fetched = fetch_each(objects, [(named.name, named.segment.name, named.segment.entry) for named in segments])
    # What has been given is not kept: a window's bytes are freed one by one.
    fetched.reverse()
    for named in segments:
        data = fetched.pop()
        if data is None:
            raise missing_object(objects, named.name, view_entry)
        if isinstance(data, bytes) and not names.is_inline(named.segment.name):
            yield data
        else:
            yield _checked(objects, named, data, view_entry)


def _checked(objects: ObjectStore, named: NamedSegment, data: bytes | DamagedObject, view_entry: int) -> bytes:
    """Return inline records that are those which the view names: another entry may be in the place of a deleted one."""
    try:
        if isinstance(data, DamagedObject):
            raise data
        check_bytes(named, data)
    except DamagedObject as damaged:
        raise missing_object(objects, named.name, view_entry, damage=damaged) from None
    return data


def fetch_segment(objects: ObjectStore, named: NamedSegment, view_entry: int) -> bytes:
    """Return the bytes of one segment, checked against what the log says of it.

    Raises:
        DamagedObject: the segment is missing or altered.
        ViewExpired: it is missing because the vacuum has passed the view.
    """
    with damage_named(objects.uri):
        (data,) = fetch_segments(objects, [named], view_entry)
        check_bytes(named, data)
    return data


def check_bytes(named: NamedSegment, data: bytes, *, check_checksums: bool = True) -> None:
    """Check a segment's bytes against what the log says of it.

    Raises:
        DamagedObject: they are others.
    """
    segment = named.segment
    if len(data) != segment.size_bytes:
        raise DamagedObject(named.name, f"it has {counted(len(data), 'byte')}, expected {segment.size_bytes}")
    if check_checksums and (found := checksum(data)) != segment.checksum:
        raise DamagedObject(named.name, f"its checksum is {found}, expected {segment.checksum}")
