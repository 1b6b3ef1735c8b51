"""The bytes of segments, from objects of their own or out of log entries; the one place where readers get them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sparktxn.errors import DamagedObject, damage_named
from sparktxn.format import names
from sparktxn.format.segment import checksum
from sparktxn.log.follow.inlinerecords import fetch_inline
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.scan.plan import missing_object
from sparktxn.structs import SegmentRef

__all__ = ["NamedSegment", "check_bytes", "fetch_segment", "fetch_segments"]


class NamedSegment(NamedTuple):
    """A segment, and the name of the object that holds its records."""

    name: str
    segment: SegmentRef


def fetch_segments(objects: ObjectStore, segments: Sequence[NamedSegment], view_entry: int) -> Iterator[bytes]:
    """Yield the bytes of segments that a view at `view_entry` names; those of inline records are checked.

    All are fetched before the first is given.

    Raises:
        DamagedObject: a segment is missing, or its entry does not carry its records.
        ViewExpired: it is so because the vacuum has passed the view.
    """
    inline = [(named.segment.entry, named.segment.name) for named in segments if names.is_inline(named.segment.name)]
    carried = fetch_inline(objects, inline) if inline else {}
    files = [named.name for named in segments if named.segment.name not in carried]
    fetched = objects.get_many(files) if len(files) > 1 else [objects.get(name) for name in files]
    # What has been given is not kept: a window's bytes are freed one by one.
    fetched.reverse()
    for named in segments:
        if named.segment.name in carried:
            yield _checked(objects, named, carried[named.segment.name], view_entry)
            continue
        data = fetched.pop()
        if data is None:
            raise missing_object(objects, named.name, view_entry)
        yield data


def _checked(objects: ObjectStore, named: NamedSegment, data: bytes | DamagedObject | None, view_entry: int) -> bytes:
    """Return inline records that are those which the view names: another entry may be in the place of a deleted one."""
    if data is None:
        raise missing_object(objects, named.name, view_entry)
    try:
        if isinstance(data, DamagedObject):
            raise data
        check_bytes(named, data)
    except DamagedObject as damaged:
        raise missing_object(objects, named.name, view_entry, damage=damaged) from None
    return data


def fetch_segment(objects: ObjectStore, named: NamedSegment, view_entry: int, *, check_checksums: bool = True) -> bytes:
    """Return the bytes of one segment, checked against what the log says of it.

    Raises:
        DamagedObject: the segment is missing or altered.
        ViewExpired: it is missing because the vacuum has passed the view.
    """
    with damage_named(objects.uri):
        (data,) = fetch_segments(objects, [named], view_entry)
        check_bytes(named, data, check_checksums=check_checksums)
    return data


def check_bytes(named: NamedSegment, data: bytes, *, check_checksums: bool = True) -> None:
    """Check a segment's bytes against what the log says of it.

    Raises:
        DamagedObject: they are others.
    """
    segment = named.segment
    if len(data) != segment.size_bytes:
        raise DamagedObject(named.name, f"it has {len(data)} bytes, expected {segment.size_bytes}")
    if check_checksums and (found := checksum(data)) != segment.checksum:
        raise DamagedObject(named.name, f"its checksum is {found}, expected {segment.checksum}")
