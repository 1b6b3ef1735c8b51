"""Horizon markers: which entries may be gone, and which checkpoints are kept (PROTOCOL.md, "Horizon markers").

The number is in the marker's name. The body names the checkpoints that count although they stand on one below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

__all__ = ["HorizonMarker", "decode_marker", "encode_marker"]


class HorizonMarker(Struct, frozen=True):
    """The body. `checkpoints` are the tokens of heads at or above the horizon whose `base` is below it."""

    checkpoints: tuple[str, ...]


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(HorizonMarker)


def encode_marker(checkpoints: Iterable[str]) -> bytes:
    """Return the bytes of a marker."""
    return _encoder.encode(HorizonMarker(tuple(sorted(checkpoints))))


def decode_marker(data: bytes) -> HorizonMarker | None:
    """Return the body, or None if it cannot be read: then every head that is whole counts."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
