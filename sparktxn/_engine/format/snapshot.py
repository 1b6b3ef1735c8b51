"""The producers at the end of a sealed run, byte for byte Kafka's ``.snapshot``, version 1 (PROTOCOL.md, "Sidecars").

Big-endian: int16 version, uint32 CRC-32C of all that follows it, int32 count, then per producer 46 bytes::

    int64 producer id, int16 producer epoch, int32 last sequence, int64 last offset,
    int32 offset delta (offsets in the last batch after its first), int64 timestamp,
    int32 coordinator epoch, int64 first offset of the current transaction (-1: none)

As in Kafka only the last batch of each producer is kept: it is for Kafka's tools and for people, never for validation.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import google_crc32c
from msgspec import Struct

from sparktxn._foundation.values.structs import ProducerState
from sparktxn.errors import DamagedObject, FormatVersionError

_VERSION: Final = 1
_HEADER: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_INT32_MAX: Final = 2**31 - 1
_SEQUENCES: Final = 2**31


class ProducerSnapshotEntry(Struct, frozen=True, array_like=True):
    """One producer; the fields and their order are Kafka's."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_transaction_first_offset: int


def snapshot_entry(producer: ProducerState) -> ProducerSnapshotEntry:
    """Return what a snapshot keeps of a producer's state.

    Coordinator epochs are entry numbers here, and 32 bits in Kafka. Above the largest they stay at it, so that a later
    one never looks older.
    """
    last_offset, offset_delta = -1, 0
    if producer.batches:
        last = producer.batches[-1]
        # Sequences wrap to 0 after the largest, also inside a batch.
        offset_delta = (last.last_sequence - last.first_sequence) % _SEQUENCES
        last_offset = last.base_offset + offset_delta
    return ProducerSnapshotEntry(
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        last_offset,
        offset_delta,
        producer.timestamp_ms,
        min(producer.coordinator_epoch, _INT32_MAX),
        producer.current_transaction_first_offset,
    )


def encode_snapshot(entries: Sequence[ProducerSnapshotEntry]) -> bytes:
    """Return the snapshot's bytes.

    Raises:
        ValueError: a number does not fit its field.
    """
    try:
        packed = [_ENTRY.pack(*_numbers(entry)) for entry in entries]
    except struct.error as error:
        raise ValueError(f"a producer does not fit a snapshot: {error}") from None
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEADER.pack(_VERSION, google_crc32c.value(body)) + body


def _numbers(entry: ProducerSnapshotEntry) -> tuple[int, ...]:
    return tuple(getattr(entry, field) for field in entry.__struct_fields__)


def decode_snapshot(data: bytes, name: str) -> tuple[ProducerSnapshotEntry, ...]:
    """Return the producers in the snapshot, in its order.

    Raises:
        DamagedObject: the bytes are cut off, altered, or hold a producer twice.
        FormatVersionError: the version is above 1.
    """
    if len(data) < _HEADER.size + _COUNT.size:
        raise DamagedObject(name, f"it has {len(data)} bytes: expected at least {_HEADER.size + _COUNT.size}")
    version, stored_crc = _HEADER.unpack_from(data)
    if version > _VERSION:
        raise FormatVersionError(name, f"has version {version}, and this version reads up to {_VERSION}")
    if version != _VERSION:
        raise DamagedObject(name, f"its version is {version}: expected {_VERSION}")
    body = data[_HEADER.size :]
    if google_crc32c.value(body) != stored_crc:
        raise DamagedObject(name, f"its checksum is {google_crc32c.value(body):08x}: expected {stored_crc:08x}")
    (count,) = _COUNT.unpack_from(body)
    packed = body[_COUNT.size :]
    if count * _ENTRY.size != len(packed):
        raise DamagedObject(
            name, f"its producers have {len(packed)} bytes: expected {count} of {_ENTRY.size} bytes each"
        )
    entries = tuple(ProducerSnapshotEntry(*numbers) for numbers in _ENTRY.iter_unpack(packed))
    if len({entry.producer_id for entry in entries}) != count:
        raise DamagedObject(name, "it holds a producer id twice")
    return entries
