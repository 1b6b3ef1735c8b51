"""All transactional ids of a store in order, kept up to date by the entries since: no request reads them all again."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from sparktxn.console.history.entryfacts import Chronicle, EntryFacts
from sparktxn.console.oneatatime import held
from sparktxn.log.log import Log
from sparktxn.values.structs import TransactionState, TransactionStatus

__all__ = ["IdsPage", "TransactionalIds"]


class IdsPage(NamedTuple):
    """Some transactional ids in their order, and the one that the next page begins with; None on the last page."""

    ids: list[str]
    next_id: str | None


class TransactionalIds:
    """The transactional ids of a log, the open transactions among them, and which id has which producer id.

    One request at a time sees them, as of the newest entry. Its methods raise what `Log.known` and `Chronicle` raise.
    """

    def __init__(self, log: Log, chronicle: Chronicle) -> None:
        self._log = log
        self._chronicle = chronicle
        self._lock = threading.Lock()
        self._entry = 0
        self._ordered: list[str] = []
        self._producers: dict[str, int] = {}
        self._owners: dict[int, str] = {}
        self._open: set[str] = set()

    def __len__(self) -> int:
        return len(self._ordered)

    def open(self) -> list[str]:
        """Return the ids with an open transaction, in their order."""
        with self._up_to_date():
            return sorted(self._open)

    def owner(self, producer_id: int) -> str | None:
        """Return the transactional id that has or had a producer id; None if it has none, or is forgotten."""
        with self._up_to_date():
            return self._owners.get(producer_id)

    def page(self, start: str, prefix: str, count: int) -> IdsPage:
        """Return `count` ids that begin with `prefix`, from `start` on."""
        with self._up_to_date():
            first = bisect_left(self._ordered, max(start, prefix))
            found = [name for name in self._ordered[first : first + count + 1] if name.startswith(prefix)]
        return IdsPage(found[:count], found[count] if len(found) > count else None)

    @contextmanager
    def _up_to_date(self) -> Iterator[None]:
        """Hold the turn of this request, with what is known brought forward to the newest entry."""
        with held(self._lock):
            newest = self._log.refresh()
            if newest != self._entry:
                self._bring_forward(newest)
            yield

    def _bring_forward(self, newest: int) -> None:
        facts = [one for one in self._chronicle.up_to(newest) if one.entry > self._entry] if self._entry else []
        if facts and facts[0].entry == self._entry + 1:
            self._apply(facts)
            self._entry = newest
            return
        with self._log.known() as state:
            entry, records = state.entry, state.transactions()
        self._keep(records)
        self._entry = entry

    def _keep(self, records: Sequence[TransactionState]) -> None:
        self._producers = {record.transactional_id: record.producer_id for record in records}
        self._ordered = sorted(self._producers)
        self._owners = {record.producer_id: record.transactional_id for record in records}
        self._open = {record.transactional_id for record in records if _is_open(record)}

    def _apply(self, facts: Sequence[EntryFacts]) -> None:
        for change in (change for one in facts for change in one.transactions):
            name = change.transactional_id
            if change.status is None:
                if name in self._producers:
                    self._owners.pop(self._producers.pop(name), None)
                    del self._ordered[bisect_left(self._ordered, name)]
                self._open.discard(name)
                continue
            if name not in self._producers:
                insort(self._ordered, name)
            self._producers[name] = change.producer_id
            self._owners[change.producer_id] = name
            if change.status is TransactionStatus.ONGOING:
                self._open.add(name)
            else:
                self._open.discard(name)


def _is_open(record: TransactionState) -> bool:
    return record.status is TransactionStatus.ONGOING
