"""Object stores behind one contract: a local folder, this process's memory, and what fsspec knows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sparktxn._engine.objectstore.contract import ObjectInfo, ObjectStore, PutOutcome
from sparktxn._engine.objectstore.local import LocalStore
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._engine.objectstore.uri import EXTRAS, FILE, MEMORY, check_scheme, parse_uri
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.clock import Clock
from sparktxn.errors import ConfigurationError, extra_to_install

__all__ = ["ObjectInfo", "ObjectStore", "PutOutcome", "open_store"]


def open_store(
    uri: str | os.PathLike[str], *, settings: StoreSettings, storage: Mapping[str, Any], clock: Clock
) -> ObjectStore:
    """Open the object store at `uri`; `storage` goes to fsspec as it is (credentials, endpoint).

    Nothing is sent to a remote store yet.

    Raises:
        ConfigurationError: the URI is not valid, or its scheme is not known or has no atomic create. Or a package is
            missing, or a local folder cannot link or fsync.
    """
    address = parse_uri(uri)
    if address.scheme in (FILE, MEMORY):
        if storage:
            names = ", ".join(f"storage.{name}" for name in sorted(storage))
            raise ConfigurationError(f"{names} given, but the store {str(address)!r} takes no storage.* settings")
        if address.scheme == MEMORY:
            return MemoryStore(address.location, clock)
        return LocalStore(address.location, fsync=settings.fsync)
    check_scheme(address.scheme)
    # Imported late: fsspec and what it brings would double the time to import this package.
    try:
        from sparktxn._engine.objectstore.remote import RemoteStore
    except ImportError as error:
        raise ConfigurationError(
            f"a {address.scheme}:// store needs a package that is not installed ({error}): "
            f"{extra_to_install(EXTRAS[address.scheme])}"
        ) from None
    return RemoteStore(address, storage, request_timeout_s=settings.request_timeout_ms / 1000, clock=clock)
