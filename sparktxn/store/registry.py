"""One log per process and store: clients of one address share it, and with it each other's entries."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparktxn._engine.objectstore import ObjectStore, open_store
from sparktxn._engine.objectstore.contract import checked_object_name
from sparktxn._engine.objectstore.uri import FILE, parse_uri
from sparktxn._foundation.config.store import STORAGE_PREFIX, StoreSettings, storage_options
from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._foundation.process.backgroundjobs import start_background_jobs
from sparktxn._foundation.process.clock import Deadline, RandomIds, SystemClock, acquired_in_time
from sparktxn._foundation.process.handles import ForkGuard, Held, hold
from sparktxn._foundation.values import arguments
from sparktxn.errors import ConfigurationError, StoreUnavailable

if TYPE_CHECKING:
    from sparktxn._engine.log.log import Log

_Key = tuple[str, tuple[tuple[str, str], ...], int]


class _Turn:
    """Lets one thread at a time open a log."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_OPEN_TIMEOUT_S: Final = 60.0
"""How long opening a store may take where the call that opens it is given no time-out."""

# Nothing is asked of an object store while this is held: one that does not answer must not keep other stores' clients.
_lock = threading.Lock()
_opening: weakref.WeakValueDictionary[_Key, _Turn] = weakref.WeakValueDictionary()
_logs: dict[_Key, tuple[Log, list[Held]]] = {}
"""Each open log, and what each of its users holds."""
_objects: dict[_Key, ObjectStore] = {}


def _key(uri: str, options: Mapping[str, Any]) -> _Key:
    return (uri, tuple(sorted((name, _spelling(name, value)) for name, value in options.items())), os.getpid())


def _spelling(name: str, value: object) -> str:
    """Return a text that differs for any two values of an option."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - the caller's own class, or a number of thousands of digits
        raise ConfigurationError(f"option {name!r} is a {type(value).__name__} that has no repr()") from None


def _open_objects(uri: str, options: Mapping[str, Any]) -> tuple[ObjectStore, StoreSettings]:
    given = {name: value for name, value in options.items() if not name.startswith(STORAGE_PREFIX)}
    settings = StoreSettings.parse(given)
    return open_store(uri, settings=settings, storage=storage_options(options), clock=SystemClock()), settings


def acquire_log(uri: str, options: Mapping[str, Any], *, create: bool) -> Log:
    """Return this process's log of the store at `uri` under these options; release it when done.

    Raises:
        ConfigurationError: the URI or an option is wrong.
        StoreNotFound: there is no store, and `create` is False.
        StoreUnavailable: the object store did not answer within the call's time, or a minute.
    """
    key = _key(uri, options)
    with _lock:
        log = _shared(key)
        if log is not None:
            return log
        turn = _opening.get(key) or _opening.setdefault(key, _Turn())
    with Deadline(SystemClock(), _OPEN_TIMEOUT_S).governs():
        if not acquired_in_time(turn.lock):
            raise StoreUnavailable(f"another client of this process was opening {uri!r} until the deadline: call again")
        try:
            with _lock:
                log = _shared(key)
            return log or _open_log(uri, options, key, create=create)
        finally:
            turn.lock.release()


def _shared(key: _Key) -> Log | None:
    """Return the log that this process has open, for one more user; the caller holds the lock."""
    if key not in _logs:
        return None
    log, users = _logs[key]
    users.append(hold())
    return log


def _open_log(uri: str, options: Mapping[str, Any], key: _Key, *, create: bool) -> Log:
    from sparktxn._engine.log.log import Log  # processes that read and write single objects go without it

    objects, settings = _open_objects(uri, options)
    held = hold()
    try:
        log = Log.open(
            objects,
            settings=settings,
            clock=SystemClock(),
            ids=RandomIds(),
            background=ThreadBackground("sparktxn", settings.upload_threads + 1),
            create=create,
            check_clock=True,
        )
    except BaseException:
        held.release()
        objects.close()
        raise
    if settings.fold_bytes_per_minute:
        log.on_checkpoint = lambda: start_background_jobs(log)
    with _lock:
        _logs[key] = (log, [held])
    return log


def release_log(log: Log) -> None:
    """Give a log back; the last user closes it."""
    with _lock:
        for key, (known, users) in list(_logs.items()):
            if known is log:
                users.pop().release()
                if users:
                    return
                del _logs[key]
    log.close()


def release_dropped(log: Log, fork: ForkGuard) -> None:
    """Give back a log of `acquire_log` whose handle was dropped without `close()`; one from before a fork is kept."""
    if not fork.forked() and any(known is log for known, _ in list(_logs.values())):
        release_log(log)


def _start_anew_in_child() -> None:
    """Make the lock anew: a thread that does not exist in the forked child may have held it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew_in_child)


def objects_of(uri: str, options: Mapping[str, Any]) -> ObjectStore:
    """Return this process's object store at `uri`, without a log: for readers and writers of single objects.

    It is kept until the process ends.
    """
    key = _key(uri, options)
    with _lock:
        if key not in _objects:
            _objects[key], _ = _open_objects(uri, options)
        return _objects[key]


def read_object(uri: str, name: str, options: Mapping[str, Any] | None = None) -> bytes:
    """Return the bytes of the object `name` below `uri`, which need not be a store: a file of a folder, or on S3.

    `options` are a store's settings; a folder needs none of them.

    Raises:
        ConfigurationError: the URI or the name is wrong, or no object has the name.
        StoreUnavailable: the object store did not answer.
    """
    address = parse_uri(arguments.path("uri", uri))
    options = arguments.mapping("options", options)
    try:
        name = checked_object_name(arguments.text("name", name))
    except ValueError as error:
        raise ConfigurationError(f"name: {error}, expected one such as 'offsets/0'") from None
    if address.scheme == FILE:
        data, reason = _file_bytes(Path(address.location, name))
    else:
        data, reason = objects_of(str(address), options).get(name), ""
    if data is None:
        raise ConfigurationError(f"uri {str(address)!r} has no object of the name {name!r}{reason}")
    return data


def _file_bytes(path: Path) -> tuple[bytes | None, str]:
    try:
        return path.read_bytes(), ""
    except OSError as error:
        return None, f" ({error.strerror})"
