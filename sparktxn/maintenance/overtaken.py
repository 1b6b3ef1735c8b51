"""Jobs that a vacuum may overtake: what they miss may then have been deleted, so they begin again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from sparktxn.log.follow.confirm import Premise, judge
from sparktxn.objectstore import ObjectStore

__all__ = ["Overtaken", "check_not_overtaken", "in_attempts"]

_ATTEMPTS: Final = 3

Result = TypeVar("Result")


class Overtaken(Exception):
    """A vacuum has passed the horizon that the job relies on, or another job of its kind has gone further."""


def check_not_overtaken(objects: ObjectStore, premise: Premise) -> None:
    """Check that `premise` still holds.

    Raises:
        Overtaken: a horizon is in force that is above it.
    """
    if judge(objects, premise) is not None:
        raise Overtaken


def in_attempts(attempt: Callable[[], Result]) -> Result | None:
    """Return what the first attempt returns that is not overtaken; None if three were."""
    for _ in range(_ATTEMPTS):
        try:
            return attempt()
        except Overtaken:
            continue
    return None
