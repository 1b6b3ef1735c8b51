"""What the pages of one console share: the store, its chronicle, and what may be shown."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final

from msgspec import Struct

from sparktxn import ReadView
from sparktxn._foundation.values.structs import TransactionState
from sparktxn._programs.console.filesizes import FileSizes
from sparktxn._programs.console.history.entryfacts import Chronicle
from sparktxn._programs.console.history.entryfigures import Past
from sparktxn._programs.console.requestparameters import NotFound
from sparktxn._programs.console.requestturns import FewAtATime
from sparktxn.store import Store

_READING_MAX: Final = 2
"""So many pages read records or entries at a time."""


class Page(Struct, frozen=True):
    """One page: the template that shows it, its title, and its content, which is also its JSON.

    `read_on` reads more of what the page shows, for about so many seconds, once it is sent; None if all is read.
    """

    template: str
    title: str
    content: dict[str, object]
    read_on: Callable[[float], None] | None = None


class Source:
    """An open store as the pages read it. Nothing here writes to it.

    With `allow_changes` the console has forms that do.
    """

    def __init__(self, store: Store, *, hide_values: bool = False, allow_changes: bool = False) -> None:
        self.store = store
        self.log = store.log
        self.hide_values = hide_values
        self.allow_changes = allow_changes
        self.reading = FewAtATime(store.log, _READING_MAX)
        self.chronicle = Chronicle(store.log.objects)
        self.sizes = FileSizes(store.log)
        self.past = Past(store.log, self.chronicle)

    @cached_property
    def uri(self) -> str:
        """The store's address, which holds no credentials."""
        return self.log.objects.uri

    def now_ms(self) -> int:
        """Return the time by this process's clock."""
        return self.log.clock.wall_ms()

    def transactions(self) -> list[TransactionState]:
        """Return the transactions of all transactional ids at the newest entry, in any order."""
        with self.log.known() as known:
            return known.transactions()

    def view(self) -> ReadView:
        """Return all topics at the newest entry. Nothing is proposed for transactions that are past their time-outs."""
        self.log.refresh()
        return self.log.known_view()

    def topic_view(self, name: str, entry: int | None) -> ReadView:
        """Return a view that has the topic: the newest one of all topics, or that of the topic at an older entry.

        Raises:
            NotFound: there is no such topic now.
            CommandRefused: there was none at the entry, or the entry is not in the log.
            ViewExpired: the vacuum has passed the entry.
        """
        view = self.view()
        if entry is not None and entry != view.entry:
            return self.store.view([name], entry=entry)
        if name not in view.topics:
            raise NotFound(f"there is no topic {name!r} in this store")
        return view
