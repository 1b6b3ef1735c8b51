"""The object store's own clock: how old an object is, whoever's clock is wrong (PROTOCOL.md, "Time-outs")."""

from __future__ import annotations

from typing import Final

from sparktxn.clock import Ids
from sparktxn.errors import StoreUnavailable
from sparktxn.format import names
from sparktxn.log.writing import put_new
from sparktxn.objectstore.contract import ObjectStore

__all__ = ["modified_ms", "rounding_ms", "store_now_ms"]

_LEFT_BEHIND_MS: Final = 3_600_000
_SECOND_MS: Final = 1_000


def store_now_ms(objects: ObjectStore, ids: Ids) -> int:
    """The store's time, in milliseconds: the time of an object that is written now, and deleted again.

    Who dies in between leaves an object of a few bytes, which a later call deletes.

    Raises:
        StoreUnavailable: the store did not take the object, or does not list it.
    """
    name = names.clock(ids.token())
    put_new(objects, name, b"now")
    found = {info.name: info.modified_ms for info in objects.list(names.CLOCKS)}
    now_ms = found.get(name)
    if now_ms is None:
        raise StoreUnavailable(
            f"the object {name!r} that was just written is not listed: the store's time is not known"
        )
    objects.delete([other for other, other_ms in found.items() if other == name or now_ms - other_ms > _LEFT_BEHIND_MS])
    return now_ms


def modified_ms(objects: ObjectStore, name: str) -> int | None:
    """When the object was written, by the store's clock; None if it does not exist.

    Raises:
        StoreUnavailable: the store did not answer.
    """
    return next((info.modified_ms for info in objects.list(name) if info.name == name), None)


def rounding_ms(*times_ms: int) -> int:
    """By how much a difference of these times may be too long: S3 tells whole seconds, rounded down."""
    return _SECOND_MS - 1 if all(time_ms % _SECOND_MS == 0 for time_ms in times_ms) else 0
