"""Putting an object under a name that no other writer races for, and hints: all but log entries."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from sparktxn._engine.objectstore.contract import BatchStore, ObjectStore, PutOutcome
from sparktxn._engine.objectstore.writehealth import failure_of, with_last_error
from sparktxn._foundation.process.clock import Clock, time_left_s
from sparktxn._foundation.process.events import log_event
from sparktxn.errors import StoreUnavailable

_ATTEMPTS_MAX: Final = 8
_BACKOFF_S: Final = 0.05
_BACKOFF_S_MAX: Final = 2.0


def put_until_stored(
    objects: ObjectStore, name: str, data: bytes, clock: Clock, *, timeout_s: float | None = None
) -> bytes:
    """Put an object until the store shows that it exists, and return the bytes that it holds, durable.

    The same bytes may be put again after any answer. An object that exists is an earlier attempt, or another writer's
    object that is as good. A store that refuses is asked no more, unless the refusal may pass.

    Args:
        objects: the store.
        name: the object's name.
        data: its bytes.
        clock: for the waits between attempts, which grow.
        timeout_s: how long all attempts may take together; the deadlines that govern this thread apply too. There are
            at most eight, unless the store says that it refuses for now.

    Raises:
        StoreUnavailable: the store refuses it (not transient), did not take it, or did not show it in time; it may
            still appear.
    """
    ends_s = None if timeout_s is None else clock.monotonic_s() + timeout_s
    pause_s = _BACKOFF_S
    for attempt in itertools.count(1):
        left_s = None if ends_s is None else max(0.0, ends_s - clock.monotonic_s())
        refused: StoreUnavailable | None = None
        try:
            if objects.put_if_absent(name, data, timeout_s=left_s) is PutOutcome.CREATED:
                return data
        except StoreUnavailable as error:
            refused = error
        # An earlier attempt may be there, whatever the store says to this one.
        found = _stored(objects, name) if refused is None or attempt > 1 else None
        if found is not None:
            return found
        if refused is not None and not refused.transient:
            raise refused
        failure = failure_of(objects)
        if failure is not None and failure.is_refused:
            raise StoreUnavailable(failure.reason, transient=False)
        left_s = time_left_s(None if ends_s is None else max(0.0, ends_s - clock.monotonic_s()))
        if left_s == 0.0 or (attempt >= _ATTEMPTS_MAX and (ends_s is None or refused is None)):
            if refused is not None:
                raise refused
            break
        clock.sleep(pause_s if left_s is None else min(pause_s, left_s))
        pause_s = min(2 * pause_s, _BACKOFF_S_MAX)
    reason = f"object {name!r} was not stored at {objects.uri}: the store did not confirm it in time"
    raise StoreUnavailable(with_last_error(reason, objects))


def put_each_until_stored(objects: ObjectStore, each: Sequence[tuple[str, bytes]], clock: Clock) -> None:
    """Put objects, given as (name, bytes), as `put_until_stored` does; all are durable once this returns.

    Raises:
        StoreUnavailable: the store did not take one, or did not show it in time; any of them may still appear.
    """
    outcomes = objects.put_each_if_absent(each) if isinstance(objects, BatchStore) else [PutOutcome.UNKNOWN] * len(each)
    for (name, data), outcome in zip(each, outcomes, strict=True):
        if outcome is not PutOutcome.CREATED:
            put_until_stored(objects, name, data, clock)


def replace_hint(objects: ObjectStore, name: str, data: bytes) -> None:
    """Write a hint over an older one. One that the store refuses is left to whatever writes the next: no error.

    A store may take few writes over one object, and an old hint costs its readers requests, and nothing else.
    """
    try:
        objects.put(name, data)
    except StoreUnavailable as error:
        log_event("hint_refused", hint=name, error=error)


def _stored(objects: ObjectStore, name: str) -> bytes | None:
    """Return the object's bytes once they are durable; None if it does not exist, or the store does not answer."""
    try:
        found = objects.get(name)
        if found is not None:
            objects.make_durable(name)
    except StoreUnavailable:
        return None
    return found
