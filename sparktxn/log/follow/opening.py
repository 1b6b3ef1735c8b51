"""Opening a replica: from the newest checkpoint that counts, along the log, and confirmed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparktxn.format.checkpoint import CheckpointHead
from sparktxn.log.follow.confirm import Passed, Premise, confirm, names_of
from sparktxn.log.follow.heads import check_heads, newest_head
from sparktxn.log.follow.tail import Tail
from sparktxn.objectstore.contract import ObjectStore

__all__ = ["open_tail"]

AnyTail = TypeVar("AnyTail", bound=Tail)


def open_tail(
    objects: ObjectStore,
    make: Callable[[CheckpointHead | None, frozenset[str]], AnyTail],
    follow: Callable[[AnyTail], object],
    *,
    hinted: CheckpointHead | None = None,
    at_most: int | None = None,
) -> AnyTail | Passed:
    """Return a replica that `follow` has advanced, confirmed; how a vacuum has passed it if none can be.

    Args:
        objects: the store.
        make: makes a replica that stands at a head, or before entry 1; the tokens are of heads that are not usable.
        follow: advances it.
        hinted: the head to try first; else, and if it does not count, heads are listed.
        at_most: heads after this entry do not count.

    Raises:
        DamagedObject, FormatVersionError: an object cannot be read, and no vacuum has passed it. A head that is damaged
            or missing counts if the replica can stand at no other one.
    """
    unusable: frozenset[str] = frozenset()
    rejected: tuple[int, int] | None = None
    head = hinted
    while True:
        is_listed = head is None or head is not hinted
        if head is None:
            head = newest_head(objects, at_most=at_most, excluded=unusable)
        tail = make(head, unusable)
        passed = _passed(objects, head, tail, follow)
        if passed is None:
            return tail
        if head is not None and not passed.entries:
            unusable |= {head.checkpoint}
        else:
            # The hint was older than the horizon, or the horizon has moved since: a newer checkpoint exists.
            if (tail.confirmed_entry, passed.horizon) == rejected:
                check_heads(objects, passed.horizon, at_most)
                return passed
            rejected = (tail.confirmed_entry, passed.horizon) if is_listed else None
        head = None


def _passed(
    objects: ObjectStore, head: CheckpointHead | None, tail: AnyTail, follow: Callable[[AnyTail], object]
) -> Passed | None:
    """Advance a replica that stands at `head`, and confirm it; return how a vacuum has passed it, if one has."""
    premise = (Premise() if head is None else names_of(head)).with_slot(tail.confirmed_entry + 1)
    passed = confirm(objects, lambda: premise, lambda: follow(tail))
    if isinstance(passed, Passed):
        return passed
    tail.confirmed_entry = tail.entry
    return None
