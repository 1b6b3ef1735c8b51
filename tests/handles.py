"""What this process holds open for handles of the product."""

from __future__ import annotations

import sys

from sparktxn._foundation.process import handles

__all__ = ["close_handles_of_spark", "open_handles"]


def open_handles() -> int:
    """Return how many logs and memberships are held for handles that were not closed."""
    return handles._caretaker.held


def close_handles_of_spark() -> None:
    """Close what the data source keeps open for the next step of a job."""
    stores = sys.modules.get("pyspark_txnlog.connecting.storehandles")
    while stores is not None and stores._stores:
        stores._stores.popitem()[1].close()
