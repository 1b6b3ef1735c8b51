"""Lend a log to an address: this process's clients use it, whatever their options, and never close it.

For a log that stands on an object store which no URI can describe. It is for its owner's threads alone, and its clock
may stand still. No other thread gives back what its clients hold when they are dropped.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sparktxn._engine.log.log import Log
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.process.handles import Held, hold
from sparktxn._kafka.settings.consumer import ConsumerSettings
from sparktxn.consumer import member
from sparktxn.store import registry

__all__ = ["close_lent", "lend_log", "take_log_back"]


class _NotHeld(Held):
    """What the client of a lent log holds: nothing that must be given back."""

    def __init__(self) -> None:
        """Count nothing."""

    def release(self) -> None:
        """Do nothing."""


class _Users(list[Held]):
    """The owner of a lent log, who stays when a client leaves."""

    def pop(self, _: Any = -1) -> Held:
        """Leave the owner where it is."""
        return _NOT_HELD


class _Making(threading.local):
    lent = False


_NOT_HELD: Final = _NotHeld()
_making: Final = _Making()
_foreign: Final[weakref.WeakSet[Log]] = weakref.WeakSet()
_lent: Final[dict[tuple[str, int], registry._Key]] = {}


def lend_log(uri: str, log: Log) -> None:
    """Let this process's clients of `uri` use `log` until `take_log_back`. It stays the caller's, who closes it."""
    key = (uri, (("lent", ""),), os.getpid())
    vars(log)["close"] = lambda: None
    with registry._lock:
        _foreign.add(log)
        _lent[uri, os.getpid()] = key
        registry._logs[key] = (log, _Users([_NOT_HELD]))
        registry._objects[key] = log.objects


def take_log_back(uri: str) -> None:
    """End a loan; clients that hold the log keep it."""
    with registry._lock:
        key = _lent.pop((uri, os.getpid()), None)
        if key is not None:
            del registry._logs[key], registry._objects[key]


def close_lent(log: Log) -> None:
    """Close a log that was lent, as its owner."""
    Log.close(log)


# What follows takes the place of the registry's and the consumer's own, for lent logs alone.

_key_of, _shared_of, _hold, _make, _leave_behind = (
    registry._key,
    registry._shared,
    hold,
    member.Membership.__init__,
    member.Membership.leave_behind,
)


def _key(uri: str, options: Mapping[str, Any]) -> registry._Key:
    return _lent.get((uri, os.getpid())) or _key_of(uri, options)


def _shared(key: registry._Key) -> Log | None:
    if key in _lent.values():
        return registry._logs[key][0]
    return _shared_of(key)


def _hold_unless_lent() -> Held:
    return _NOT_HELD if _making.lent else _hold()


def _init(self: member.Membership, log: Log, settings: ConsumerSettings) -> None:
    _making.lent = log in _foreign
    _make(self, log, settings)


def _left(self: member.Membership, workers: Sequence[Background]) -> None:
    if self._held is _NOT_HELD:
        self.life.left = True
    else:
        _leave_behind(self, workers)


for _owner, _name, _value in (
    (registry, "_key", _key),
    (registry, "_shared", _shared),
    (member, "hold", _hold_unless_lent),
    (member.Membership, "__init__", _init),
    (member.Membership, "leave_behind", _left),
):
    setattr(_owner, _name, _value)
