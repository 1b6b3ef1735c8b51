"""The horizon: below it, log entries may be gone (PROTOCOL.md, "Confirming").

Whoever has read or put slots asks for the horizon *afterwards*: if it is not above the first of those slots, none of
them can have been deleted and created again, and all that was concluded from them is final.
"""

from __future__ import annotations

from sparktxn.format.names import HORIZONS, parse_horizon
from sparktxn.objectstore.contract import ObjectStore

__all__ = ["read_horizon"]


def read_horizon(objects: ObjectStore) -> int:
    """The greatest horizon marker's number; 1 if there is none."""
    found = 1
    for name in objects.list_names(HORIZONS):
        number = parse_horizon(name)
        if number is not None and number > found:
            found = number
    return found
