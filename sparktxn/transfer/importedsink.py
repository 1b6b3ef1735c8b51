"""What a store knows of earlier imports: the sink of an import's transactional id."""

from __future__ import annotations

from sparktxn.store import Store
from sparktxn.values.structs import SinkState

__all__ = ["sink_of"]


def sink_of(store: Store, transactional_id: str) -> SinkState | None:
    """Return the sink of an import's transactional id, as the log has it now; None if nothing was imported.

    Raises:
        StoreUnavailable, DamagedObject: the log cannot be read.
    """
    store.log.refresh()
    transaction = store.log.transaction(transactional_id)
    return None if transaction is None else transaction.sink
