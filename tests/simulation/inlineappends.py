"""Inline appends of simulated processes that work below the clients, and what a checker finds of them.

Their records are the name of their segment, once for each record.
"""

from __future__ import annotations

from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Append
from sparktxn._engine.format.entry import decode_entry
from sparktxn._engine.format.segment import checksum
from sparktxn.errors import DamagedObject
from tests.simulation.truth import RecordedObjects, Truth

__all__ = ["check_carried", "check_kept", "inlined"]


def inlined(append: Append, inline_bytes: int) -> Append:
    """Return `append` with its records in it if they are at most `inline_bytes`; else as it is."""
    segment = names.inline_segment(names.segment_token(append.segment))
    data = _records(segment, append.record_count)
    if len(data) > inline_bytes:
        return append
    return replace(append, segment=segment, data=data, size_bytes=len(data), checksum=checksum(data))


def _records(segment: str, record_count: int) -> bytes:
    return segment.encode() * record_count


def check_carried(truths: list[Truth]) -> None:
    """An entry carries the records that its appends were given, and names no object for them."""
    for truth in truths:
        for command in truth.commands:
            if isinstance(command, Append):
                expected = _records(command.segment, command.record_count) if names.is_inline(command.segment) else b""
                assert command.data == expected, f"entry {truth.entry} carries other records of {command.segment}"


def check_kept(objects: RecordedObjects, truths: list[Truth], from_entry: int) -> None:
    """What views from an entry on read of inline records is there, as it was written: the true entry, and no other."""
    carried = {
        command.segment: truth.entry
        for truth in truths
        for command in truth.commands
        if isinstance(command, Append) and command.data
    }
    read = {
        segment
        for truth in truths[from_entry:]
        for seen in truth.partitions.values()
        for segment, offset in seen.segments
        if offset >= seen.log_start_offset and segment in carried
    }
    for segment in sorted(read):
        name = names.entry(carried[segment])
        data = objects.get(name)
        assert data is not None, f"{segment} is read from entry {from_entry} on, and {name} does not exist"
        try:
            appends = decode_entry(data, name, carried[segment]).commands
        except DamagedObject as damaged:
            raise AssertionError(f"{segment} is read from entry {from_entry} on: {damaged}") from damaged
        assert any(isinstance(append, Append) and append.segment == segment for append in appends), (
            f"{segment} is read from entry {from_entry} on, and {name} is another entry"
        )
