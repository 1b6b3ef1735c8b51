"""The end of the log: the first entry that is absent, and none after it (PROTOCOL.md, "Entries").

A lost entry (an incomplete copy, a lifecycle rule, a deletion by hand) would read as a shorter log. The next writer
would fill its place, and nothing could repair the store afterwards. So a process that opens the log looks for entries
behind the end.
"""

from __future__ import annotations

from sparktxn.errors import DamagedObject
from sparktxn.format.names import ENTRIES, entry, parse_entry
from sparktxn.log.follow.tail import Tail
from sparktxn.objectstore.contract import ObjectStore

__all__ = ["check_end"]


def check_end(objects: ObjectStore, tail: Tail) -> None:
    """Follow the log to its end, and check that no later entry exists.

    Entries that other writers add meanwhile are followed. An entry is created after the one before it. One that is
    absent after a later one was listed is missing, or was vacuumed. The caller rules out the latter by the horizon,
    read afterwards.

    Raises:
        DamagedObject: an entry is missing.
        FormatVersionError: a newer version has written an entry.
    """
    listed = [number for name in objects.list_names(ENTRIES, entry(tail.entry)) if (number := parse_entry(name))]
    if not listed:
        return
    tail.advance(at_most=max(listed))
    missing = tail.entry + 1
    later = [number for number in listed if number > missing]
    if later:
        raise DamagedObject(
            entry(missing), f"entry {missing} is missing and entry {min(later)} exists: restore entry {missing}"
        )
