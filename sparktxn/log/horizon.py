"""The horizon: below it, log entries may be gone (PROTOCOL.md, "Confirming").

Whoever has read or put slots asks for the horizon *afterwards*: if it is not above the first of those slots, none of
them can have been deleted and created again, and all that was concluded from them is final.

A checkpoint names objects of the one that it stands on (its *base*) besides its own. One that was published after the
vacuum had listed what to keep, and stands on one below the horizon, may name what is gone: nobody may use it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparktxn.format.checkpoint import CheckpointHead
from sparktxn.format.horizon import decode_marker, encode_marker
from sparktxn.format.names import HORIZONS, horizon, parse_horizon
from sparktxn.log.checkpoints import newest_head
from sparktxn.log.writing import put_new
from sparktxn.objectstore.contract import ObjectStore

__all__ = ["is_kept", "is_usable", "read_horizon", "usable_head", "write_horizon"]


def read_horizon(objects: ObjectStore) -> int:
    """The greatest horizon marker's number; 1 if there is none."""
    found = 1
    for name in objects.list_names(HORIZONS):
        number = parse_horizon(name)
        if number is not None and number > found:
            found = number
    return found


def write_horizon(objects: ObjectStore, number: int, checkpoints: Iterable[str]) -> None:
    """Writes a marker, durable once this returns. `checkpoints` are tokens of heads to keep whose base is below it.

    Raises:
        StoreUnavailable: it could not be written; it may still appear.
    """
    put_new(objects, horizon(number), encode_marker(checkpoints))


def is_usable(objects: ObjectStore, head: CheckpointHead, at_horizon: int) -> bool:
    """False for a head that may name what a vacuum to `at_horizon` has deleted. Read the horizon after the head."""
    return is_kept(objects, head.base, head.checkpoint, at_horizon)


def usable_head(
    objects: ObjectStore, *, at_most: int | None = None, excluded: frozenset[str] = frozenset()
) -> CheckpointHead | None:
    """The newest whole head that is usable; heads after entry `at_most` and checkpoints in `excluded` do not count."""
    while True:
        head = newest_head(objects, at_most=at_most, excluded=excluded)
        if head is None or is_usable(objects, head, read_horizon(objects)):
            return head
        excluded |= {head.checkpoint}


def is_kept(objects: ObjectStore, base: int, checkpoint: str, at_horizon: int) -> bool:
    """True if the objects of a checkpoint that stands on the one after entry `base` cannot have been deleted."""
    if at_horizon <= max(base, 1):
        return True
    data = objects.get(horizon(at_horizon))
    if data is None:
        # Only a greater marker lets a smaller one go.
        newer = read_horizon(objects)
        return newer > at_horizon and is_kept(objects, base, checkpoint, newer)
    marker = decode_marker(data)
    return marker is None or checkpoint in marker.checkpoints
