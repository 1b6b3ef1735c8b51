"""Confirming: the one place that decides whether an answer is final (PROTOCOL.md, "The horizon, and confirming").

A vacuum deletes entries below the horizon, and objects that only older checkpoints name. A slow writer may then create
the name of a deleted entry again. So the horizon is read *after* the work. If it has not passed what the work relied
on, the result is final, and a damaged object is damage. Otherwise both are void: begin again with a newer checkpoint.

Below the horizon, log entries may be gone (PROTOCOL.md, "Horizon markers"): its markers are read and written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import CheckpointHead, decode_marker, encode_marker
from sparktxn._engine.log.follow.checkpointheads import newest_head
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.puts import put_until_stored
from sparktxn._foundation.process.clock import Clock
from sparktxn._foundation.values.fieldtypes import Result
from sparktxn.errors import DamagedObject, FormatVersionError


class Premise(NamedTuple):
    """What an answer relies on: it is final unless the horizon is above one of these entries.

    `entry` is the first slot that was read or put since the last confirmed state. `base` is the entry of the oldest
    checkpoint from which a name of an object was taken. A horizon above `base` spares the objects that the checkpoint
    with the token `checkpoint` names, if the horizon's marker names it. "" is in no marker, but a marker that cannot be
    decoded names every checkpoint. With None, nothing is spared.
    """

    entry: int | None = None
    base: int | None = None
    checkpoint: str | None = None

    def with_slot(self, slot: int) -> Premise:
        """Return a premise of this and of another slot."""
        return self._replace(entry=slot if self.entry is None else min(self.entry, slot))


class Passed(NamedTuple):
    """A vacuum has passed a premise, so that answers which rely on it are void.

    `entries` is True if the premise's entry is below `horizon`, `names` if objects that it names may be deleted.
    """

    horizon: int
    entries: bool
    names: bool


def judge(objects: ObjectStore, premise: Premise) -> Passed | None:
    """Return how a vacuum has passed the premise; None if all that was concluded from it before is final."""
    horizon = read_horizon(objects)
    passed = Passed(horizon, _is_above(horizon, premise.entry), not _is_kept(objects, premise, horizon))
    return passed if passed.entries or passed.names else None


def attempt(objects: ObjectStore, premise: Callable[[], Premise], work: Callable[[], Result]) -> Result | Passed:
    """Return what `work` returns, which is not confirmed. What it raises for damage counts only if it is final.

    Args:
        objects: the store.
        premise: what the work has relied on; asked after the work.
        work: reads the store.

    Raises:
        DamagedObject, FormatVersionError: an object cannot be read, and no vacuum has passed the premise.
    """
    try:
        return work()
    except (DamagedObject, FormatVersionError) as damage:
        return excused(objects, premise(), damage)


def excused(objects: ObjectStore, premise: Premise, damage: DamagedObject | FormatVersionError) -> Passed:
    """Return how a vacuum has passed the premise of work that has met `damage`.

    Raises:
        DamagedObject, FormatVersionError: none has: the damage is final.
    """
    if isinstance(damage, DamagedObject):
        damage.name_store(objects.uri)
    passed = judge(objects, premise)
    if passed is None:
        raise damage
    return passed


def confirm(objects: ObjectStore, premise: Callable[[], Premise], work: Callable[[], Result]) -> Result | Passed:
    """Return what `work` returns, once that is final; arguments and errors are those of `attempt`."""
    result = attempt(objects, premise, work)
    if isinstance(result, Passed):
        return result
    passed = judge(objects, premise())
    return result if passed is None else passed


def names_of(head: CheckpointHead) -> Premise:
    """Return the premise of what is read by the names in a head.

    A checkpoint names objects of its base in addition to its own. The base may be below the horizon, and the vacuum may
    not have known the head when it listed what to keep. Then these objects may be deleted.
    """
    return Premise(base=head.base, checkpoint=head.checkpoint)


def usable_heads(objects: ObjectStore, heads: Iterable[CheckpointHead]) -> list[CheckpointHead]:
    """Return those of `heads`, which were read before, whose objects no vacuum may have deleted."""
    read = list(heads)
    horizon = read_horizon(objects) if read else 1
    return [head for head in read if _is_kept(objects, names_of(head), horizon)]


def usable_head(
    objects: ObjectStore, *, at_most: int | None = None, excluded: frozenset[str] = frozenset()
) -> CheckpointHead | None:
    """Return the newest whole head that is usable.

    Heads after entry `at_most` and checkpoints in `excluded` do not count.
    """
    while True:
        head = newest_head(objects, at_most=at_most, excluded=excluded)
        if head is None or usable_heads(objects, [head]):
            return head
        excluded |= {head.checkpoint}


def head_past(objects: ObjectStore, entry: int, *, at_most: int, excluded: frozenset[str]) -> CheckpointHead | None:
    """Return the newest usable head, not below the horizon, if a vacuum has passed the checkpoint after `entry`."""
    passed = judge(objects, Premise(base=entry))
    head = usable_head(objects, at_most=at_most, excluded=excluded) if passed is not None else None
    return head if head is not None and passed is not None and not _is_above(passed.horizon, head.entry) else None


def _is_above(horizon: int, entry: int | None) -> bool:
    """Return True if entry `entry`, or a checkpoint of it, may be deleted; the horizon of a new store is 1."""
    return entry is not None and horizon > max(entry, 1)


def _is_kept(objects: ObjectStore, premise: Premise, horizon: int) -> bool:
    """Return True if no vacuum up to `horizon` may have deleted objects that the premise names."""
    while _is_above(horizon, premise.base):
        if premise.checkpoint is None:
            return False
        is_named = _names_checkpoint(objects, horizon, premise.checkpoint)
        if is_named is not None:
            return is_named
        # Only a greater marker lets a smaller one be deleted.
        before, horizon = horizon, read_horizon(objects)
        if horizon <= before:
            return False
    return True


def read_horizon(objects: ObjectStore) -> int:
    """Return the greatest horizon marker's number; 1 if there is none."""
    found = 1
    for name in objects.list_names(names.HORIZONS):
        number = names.parse_horizon(name)
        if number is not None and number > found:
            found = number
    return found


def write_horizon(objects: ObjectStore, clock: Clock, number: int, checkpoints: Iterable[str]) -> None:
    """Write a marker, durable once this returns. `checkpoints` are tokens of heads to keep whose base is below it.

    Raises:
        StoreUnavailable: it could not be written; it may still appear.
    """
    put_until_stored(objects, names.horizon(number), encode_marker(checkpoints), clock)


def _names_checkpoint(objects: ObjectStore, number: int, checkpoint: str) -> bool | None:
    """Return True if the marker names the checkpoint, as one that cannot be decoded names all; None if it is gone."""
    data = objects.get(names.horizon(number))
    if data is None:
        return None
    marker = decode_marker(data)
    return marker is None or checkpoint in marker.checkpoints
