"""Jobs that a vacuum or another job may overtake: what they miss may then have been deleted, so they begin again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from sparktxn._engine.log.follow.confirm import Premise, judge
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._engine.objectstore import ObjectStore
from sparktxn._foundation.values.fieldtypes import Result
from sparktxn.errors import ViewExpired

_ATTEMPTS: Final = 3
"""So many are made: a vacuum raises the horizon once, so even the second attempt is hardly ever overtaken."""


class Overtaken(Exception):
    """A vacuum has passed the horizon that the job relies on, or another job of its kind has gone further."""


def check_not_overtaken(objects: ObjectStore, premise: Premise) -> None:
    """Check that `premise` still holds.

    Raises:
        Overtaken: a horizon is in force that is above it.
    """
    if judge(objects, premise) is not None:
        raise Overtaken


def in_attempts(
    attempt: Callable[[], Result],
    overtaken: tuple[type[Exception], ...] = (Overtaken,),
    again: Callable[[Result], object] = lambda result: False,
) -> Result:
    """Return what `attempt` returns; it is called up to three times.

    Args:
        attempt: does what may be overtaken.
        overtaken: the errors that say so. Other errors are raised at once, and of the last attempt these, too.
        again: says whether a result shows that other jobs came first. That of the last attempt is returned anyway.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            result = attempt()
        except overtaken:
            continue
        if not again(result):
            return result
    return attempt()


def on_a_view(log: Log, topics: Iterable[str] | None, plan: Callable[[ReadView], Result]) -> Result:
    """Return what `plan` makes of a read view; of a newer one if a vacuum has passed it.

    Raises:
        ViewExpired: vacuums have passed each of them.
        CommandRefused, StoreUnavailable, DamagedObject, OutcomeUnknown: as `Log.view`, and what `plan` raises.
    """
    names = None if topics is None else list(topics)
    return in_attempts(lambda: plan(log.view(names)), (ViewExpired,))
