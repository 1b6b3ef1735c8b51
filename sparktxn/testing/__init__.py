"""What an author of an object store needs: the contract, its conformance tests, and a log over the store.

`sparktxn.testing.objectstore_tests` has the tests (extra ``testing``), `faultystore` a store whose answers fail or get
lost, `clocks` clocks that tests set.
"""

from sparktxn._engine.objectstore import open_store
from sparktxn._engine.objectstore.contract import ObjectStore, PutOutcome
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.clock import Deadline

__all__ = ["Deadline", "ObjectStore", "PutOutcome", "StoreSettings", "open_store"]


def __dir__() -> list[str]:
    return sorted(__all__)
