"""Planning a job from a read view, alongside vacuums that may pass the view meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from sparktxn.errors import ViewExpired
from sparktxn.log.log import Log
from sparktxn.log.views.readview import ReadView

__all__ = ["ATTEMPTS", "on_a_view"]

ATTEMPTS: Final = 3
"""So many views are tried: a vacuum raises the horizon once, so even the second is hardly ever passed."""

Result = TypeVar("Result")


def on_a_view(log: Log, topics: Iterable[str] | None, plan: Callable[[ReadView], Result]) -> Result:
    """Return what `plan` makes of a read view; of a newer one if a vacuum has passed it.

    Raises:
        ViewExpired: vacuums have passed each of them.
        CommandRefused, StoreUnavailable, DamagedObject, OutcomeUnknown: as `Log.view`, and what `plan` raises.
    """
    names = None if topics is None else list(topics)
    for _ in range(ATTEMPTS - 1):
        try:
            return plan(log.view(names))
        except ViewExpired:
            continue
    return plan(log.view(names))
