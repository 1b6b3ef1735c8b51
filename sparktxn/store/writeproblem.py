"""Whether a store takes writes, for servers that say so: a gateway, an exporter, a console."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sparktxn._engine.format import names
from sparktxn._engine.objectstore.contract import PutOutcome
from sparktxn._engine.objectstore.writehealth import DiskStore, WatchedStore
from sparktxn.errors import StoreUnavailable

if TYPE_CHECKING:
    from sparktxn._engine.log.log import Log


def write_problem(log: Log, *, tries: bool) -> str | None:
    """Return why the store takes no writes; None if it does, or if that is not known. Log it once a minute.

    It goes by the writes of this process, and by what a local disk says of its room.

    Args:
        log: the log of an open store.
        tries: whether an object may be written, as large as the one that failed last, and deleted again. This is how a
            process that writes nothing meanwhile sees that the store takes writes again.
    """
    objects = log.objects
    if isinstance(objects, DiskStore) and (reason := objects.why_full()) is not None:
        if isinstance(objects, WatchedStore):
            objects.writes.say(reason)
        return reason
    if not isinstance(objects, WatchedStore) or objects.writes.unwritten is None:
        return None
    if tries:
        name = names.clock(log.ids.token())
        with suppress(StoreUnavailable):
            if objects.put_if_absent(name, b"?" * objects.writes.unwritten[0]) is PutOutcome.CREATED:
                objects.delete([name])
    unwritten = objects.writes.unwritten
    return None if unwritten is None else unwritten[1]
