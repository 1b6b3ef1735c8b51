"""The newest entries of the log, kept as facts: a page asks for a window, and only new entries are read.

A store without a watcher has a history, too: it is computed from the entries that are left.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from sparktxn.console.history.entryfacts import EntryFacts, facts_of
from sparktxn.console.oneatatime import held
from sparktxn.errors import ViewExpired
from sparktxn.log.views.entryhistory import HistoryReplay, first_entry
from sparktxn.objectstore.contract import ObjectStore

__all__ = ["ENTRIES_KEPT", "Chronicle"]

ENTRIES_KEPT: Final = 2_048
_WEIGHT_MAX: Final = 400_000


class Chronicle:
    """The facts of the newest entries, at most `entries_max` of them and of a bounded size, oldest first.

    Its methods raise:
        DamagedObject, StoreUnavailable, OutcomeUnknown: the log cannot be read.
        ViewExpired: vacuums pass what is read, again and again.
    """

    def __init__(self, objects: ObjectStore, *, entries_max: int = ENTRIES_KEPT, weight_max: int = _WEIGHT_MAX) -> None:
        self._objects = objects
        self._entries_max = entries_max
        self._weight_max = weight_max
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._replay = HistoryReplay(self._objects, facts_of)
        self._kept: deque[EntryFacts] = deque()
        self._weight = 0

    def up_to(self, last: int) -> Sequence[EntryFacts]:
        """Return the facts of the entries up to `last`, which the log has, as far back as they are kept."""
        with held(self._lock):
            try:
                self._follow(last)
            except ViewExpired:
                # What it had not read yet was vacuumed: what is left begins later.
                self._forget()
                self._follow(last)
            return [facts for facts in self._kept if facts.entry <= last]

    def window(self, last: int, count: int) -> Sequence[EntryFacts]:
        """Return the facts of `count` entries that end with `last`: those that are not kept are replayed.

        Raises:
            ViewExpired: a vacuum has passed all of them.
        """
        kept = self.up_to(last)
        if kept and kept[0].entry <= last - count + 1:
            return [facts for facts in kept if facts.entry > last - count]
        first = max(first_entry(self._objects), last - count + 1)
        if kept and kept[0].entry <= first:
            return kept
        return list(HistoryReplay(self._objects, facts_of).entries(first, last))

    def replaced(self, entries: Collection[int]) -> frozenset[str]:
        """Return the transactional ids of which some entries have fenced a producer; of old entries perhaps none."""
        if not entries:
            return frozenset()
        try:
            facts = self.window(max(entries), max(entries) - min(entries) + 1)
        except ViewExpired:
            return frozenset()
        changes = (change for one in facts if one.entry in entries for change in one.transactions)
        return frozenset(change.transactional_id for change in changes if change.fences)

    def _follow(self, last: int) -> None:
        newest = self._kept[-1].entry if self._kept else 0
        if last <= newest:
            return
        first = max(newest + 1, last - self._entries_max + 1)
        if first > newest + 1 or not newest:
            # A gap would be taken for silence.
            self._forget()
            first = max(first, first_entry(self._objects))
        if first > last:
            return
        for facts in self._replay.entries(first, last):
            self._kept.append(facts)
            self._weight += facts.weight
            while len(self._kept) > self._entries_max or (self._weight > self._weight_max and len(self._kept) > 1):
                self._weight -= self._kept.popleft().weight
