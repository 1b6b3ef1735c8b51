"""Writing objects that nobody else writes: all but log entries, whose names are raced for."""

from __future__ import annotations

from typing import Final

from sparktxn.errors import StoreUnavailable
from sparktxn.objectstore.contract import ObjectStore, PutOutcome

__all__ = ["put_new"]

_ATTEMPTS: Final = 5


def put_new(objects: ObjectStore, name: str, data: bytes) -> None:
    """Creates an object under a name that nobody else uses.

    Raises:
        StoreUnavailable: the store did not take it.
    """
    for _ in range(_ATTEMPTS):
        outcome = objects.put_if_absent(name, data)
        if outcome is PutOutcome.CREATED:
            return
        if outcome is PutOutcome.EXISTS or objects.get(name) == data:
            objects.make_durable(name)
            return
    raise StoreUnavailable(f"object {name!r} could not be written")
