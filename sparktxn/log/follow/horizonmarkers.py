"""The horizon's markers: below the horizon, log entries may be gone (PROTOCOL.md, "Horizon markers").

What the horizon means for an answer is decided in `log/follow/confirm.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparktxn.format.horizon import decode_marker, encode_marker
from sparktxn.format.names import HORIZONS, horizon, parse_horizon
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.objectstore.putting import put_until_stored
from sparktxn.process.clock import Clock

__all__ = ["names_checkpoint", "read_horizon", "write_horizon"]


def read_horizon(objects: ObjectStore) -> int:
    """Return the greatest horizon marker's number; 1 if there is none."""
    found = 1
    for name in objects.list_names(HORIZONS):
        number = parse_horizon(name)
        if number is not None and number > found:
            found = number
    return found


def write_horizon(objects: ObjectStore, clock: Clock, number: int, checkpoints: Iterable[str]) -> None:
    """Write a marker, durable once this returns. `checkpoints` are tokens of heads to keep whose base is below it.

    Raises:
        StoreUnavailable: it could not be written; it may still appear.
    """
    put_until_stored(objects, horizon(number), encode_marker(checkpoints), clock)


def names_checkpoint(objects: ObjectStore, number: int, checkpoint: str) -> bool | None:
    """Return True if the marker names the checkpoint, as one that cannot be decoded names all; None if it is gone."""
    data = objects.get(horizon(number))
    if data is None:
        return None
    marker = decode_marker(data)
    return marker is None or checkpoint in marker.checkpoints
