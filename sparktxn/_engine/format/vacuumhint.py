"""The vacuum's hint: what the last vacuum has left nothing of, so that the next one need not list it again.

It decides only where a vacuum looks for garbage, never what it deletes: one that is wrong leaves garbage behind.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from sparktxn._engine.format.names import parse_partition_folder
from sparktxn._foundation.values.fieldtypes import Int64, Natural, Positive


class VacuumHint(Struct, frozen=True, kw_only=True):
    """What a vacuum to `horizon` and `segment_floor` has done: it has deleted all garbage that it found.

    All objects of partitions were listed at `listed_ms`, by the store's clock: `objects` of them were kept. `folders`
    are those of partitions in which objects stay and which the checkpoint at the horizon does not have.
    """

    horizon: Positive
    segment_floor: Natural
    listed_ms: Int64
    objects: Natural
    folders: tuple[str, ...] = ()


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(VacuumHint)


def encode_vacuum_hint(hint: VacuumHint) -> bytes:
    """Return the hint's bytes."""
    return _encoder.encode(hint)


def decode_vacuum_hint(data: bytes) -> VacuumHint | None:
    """Return the hint; None if it cannot be read: everything is listed then."""
    try:
        hint = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if None in map(parse_partition_folder, hint.folders) else hint
