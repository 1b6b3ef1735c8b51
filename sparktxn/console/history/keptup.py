"""What the state of a log says, kept up to date by the entries since: no request reads all of it again."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sparktxn.console.history.chronicle import Chronicle
from sparktxn.console.history.entryfacts import EntryFacts
from sparktxn.console.oneatatime import held
from sparktxn.log.log import Log
from sparktxn.log.views.known import KnownState

__all__ = ["KeptUp"]


class KeptUp(ABC):
    """Something that is known of a log, as of the newest entry inside of `up_to_date`, for one request at a time.

    Its methods raise what `Log.known` and `Chronicle` raise.
    """

    def __init__(self, log: Log, chronicle: Chronicle) -> None:
        self._log = log
        self._chronicle = chronicle
        self._lock = threading.Lock()
        self._entry = 0

    @contextmanager
    def up_to_date(self) -> Iterator[None]:
        """Hold the turn of this request, with what is known brought forward to the newest entry."""
        with held(self._lock):
            newest = self._log.refresh()
            if newest != self._entry:
                self._bring_forward(newest)
            yield

    def _bring_forward(self, newest: int) -> None:
        facts = [one for one in self._chronicle.up_to(newest) if one.entry > self._entry] if self._entry else []
        if facts and facts[0].entry == self._entry + 1 and self._apply(facts):
            self._entry = newest
            return
        with self._log.known() as state:
            entry, keep = state.entry, self._ask(state)
        keep()
        self._entry = entry

    @abstractmethod
    def _ask(self, state: KnownState) -> Callable[[], None]:
        """Take all that is needed out of the state; return what keeps it, which is called without the log's lock."""

    @abstractmethod
    def _apply(self, facts: Sequence[EntryFacts]) -> bool:
        """Apply what all entries since have done; False, with nothing changed, if they do not say enough."""
