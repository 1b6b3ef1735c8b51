"""A log that is lent to an address: its clients use it, and never close it."""

from __future__ import annotations

import pytest

from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.clock import SystemClock
from sparktxn.errors import ConfigurationError, StoreNotFound
from sparktxn.store import Store
from sparktxn.store.registry import objects_of
from sparktxn.testing.clocks import StrictBackground
from tests.lending import lend_log, take_log_back
from tests.world import next_number, open_log


class Watched(StrictBackground):
    """Remembers whether it was closed."""

    closed = False

    def close(self, timeout_s: float | None = None) -> None:
        """Notes it."""
        self.closed = True


def test_clients_of_the_address_use_the_log_and_do_not_close_it() -> None:
    background = Watched()
    objects = MemoryStore(f"lent-{next_number()}", SystemClock())
    log = open_log(objects, background=background)
    lend_log("memory://borrowed", log)
    with Store.open("memory://borrowed", options={"checkpoint.entries": 7}) as store:
        assert store.log is log
        assert objects_of("memory://borrowed", {}) is objects
        take_log_back("memory://borrowed")
        store.create_topic("topic")
    assert not background.closed
    with pytest.raises((StoreNotFound, ConfigurationError)):
        Store.open("memory://borrowed")
