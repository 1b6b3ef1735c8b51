"""All transactional ids of a store in order, kept up to date by the entries since: no request reads them all again."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from sparktxn.console.history.chronicle import Chronicle
from sparktxn.console.history.entryfacts import EntryFacts
from sparktxn.console.history.keptup import KeptUp
from sparktxn.log.log import Log
from sparktxn.log.views.known import KnownState
from sparktxn.values.structs import TransactionState, TransactionStatus

__all__ = ["IdsPage", "TransactionalIds"]


class IdsPage(NamedTuple):
    """Some transactional ids in their order, and the one that the next page begins with; None on the last page."""

    ids: list[str]
    next_id: str | None


class TransactionalIds(KeptUp):
    """The transactional ids of a log, the open transactions among them, and which id has which producer id."""

    def __init__(self, log: Log, chronicle: Chronicle) -> None:
        super().__init__(log, chronicle)
        self._ordered: list[str] = []
        self._producers: dict[str, int] = {}
        self._owners: dict[int, str] = {}
        self._open: set[str] = set()

    def __len__(self) -> int:
        return len(self._ordered)

    def open(self) -> list[str]:
        """Return the ids with an open transaction, in their order."""
        with self.up_to_date():
            return sorted(self._open)

    def owner(self, producer_id: int) -> str | None:
        """Return the transactional id that has or had a producer id; None if it has none, or is forgotten."""
        with self.up_to_date():
            return self._owners.get(producer_id)

    def page(self, start: str, prefix: str, count: int) -> IdsPage:
        """Return `count` ids that begin with `prefix`, from `start` on."""
        with self.up_to_date():
            first = bisect_left(self._ordered, max(start, prefix))
            found = [name for name in self._ordered[first : first + count + 1] if name.startswith(prefix)]
        return IdsPage(found[:count], found[count] if len(found) > count else None)

    def _ask(self, state: KnownState) -> Callable[[], None]:
        return partial(self._keep, state.transactions())

    def _keep(self, records: Sequence[TransactionState]) -> None:
        self._producers = {record.transactional_id: record.producer_id for record in records}
        self._ordered = sorted(self._producers)
        self._owners = {record.producer_id: record.transactional_id for record in records}
        self._open = {record.transactional_id for record in records if _is_open(record)}

    def _apply(self, facts: Sequence[EntryFacts]) -> bool:
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
        return True


def _is_open(record: TransactionState) -> bool:
    return record.status is TransactionStatus.ONGOING
