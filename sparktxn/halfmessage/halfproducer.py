"""What both shapes of RocketMQ's producers share: an engine and its checks, from the start to the shutdown."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sparktxn._foundation.process.clock import Clock, SystemClock
from sparktxn._foundation.process.handles import NoCopies, give_back_later
from sparktxn._foundation.values.structs import HalfState
from sparktxn._kafka.settings.halfmessage import HalfMessageSettings
from sparktxn.errors import KafkaException
from sparktxn.halfmessage.checks import Checks
from sparktxn.halfmessage.engine import HalfEngine
from sparktxn.halfmessage.records import MessageRecord

AnyMessage = TypeVar("AnyMessage")


class MessageQueue(NamedTuple):
    """Where a message goes: RocketMQ's queue is a partition."""

    topic: str
    queue_id: int


def filled(message: AnyMessage, record: MessageRecord, **more: object) -> AnyMessage:
    """Give a message what a record of it says, and `more`; return it as the first one of its transaction."""
    # Not checked: this producer has done so, or another program has written what this one could not.
    for name, value in (
        ("topic", record.topic),
        ("body", record.body),
        ("properties", dict(record.properties)),
        ("message_id", record.message_id),
        ("born_timestamp", record.born_ms),
        ("messages", (message,)),
        *more.items(),
    ):
        object.__setattr__(message, name, value)
    return message


class HalfProducer(NoCopies):
    """Owns what a producer has opened. It is dropped without a shutdown, too: its thread keeps no producer alive."""

    def __init__(self) -> None:
        self._engine: HalfEngine | None = None
        self._checks: Checks | None = None
        self._dropped: Any = None

    @abstractmethod
    def _groups(self) -> Sequence[str]:
        """Return the groups to ask for: none while nothing could be asked."""

    @abstractmethod
    def _shown(self, record: MessageRecord, half: HalfState) -> Any:
        """Return a message that was read back, as the program is shown it."""

    @abstractmethod
    def _resolved(self, message: Any) -> bool | None:
        """Ask the program: True commits, False rolls back, None leaves the transaction pending."""

    @abstractmethod
    def _not_started(self) -> Exception:
        """Return the error of a producer that is not started."""

    def _started(self) -> HalfEngine:
        if self._engine is None:
            raise self._not_started()
        self._engine.check_process()
        return self._engine

    def _open(self, settings: HalfMessageSettings, *, sends_ends: bool, checks: bool) -> HalfEngine:
        """Open the store, and begin to send ends and to ask.

        Raises:
            StoreNotFound, StoreUnavailable: the store cannot be opened.
            KafkaException: ``_CRIT_SYS_RESOURCE``: no thread can be started.
        """
        engine = HalfEngine(settings)
        reference = weakref.ref(self)
        asking = Checks(engine, lambda: _groups_of(reference), partial(_ask, reference))
        try:
            if sends_ends:
                engine.ends.start()
            if checks:
                asking.start()
        except KafkaException:
            engine.close()
            raise
        self._engine, self._checks = engine, asking
        self._dropped = weakref.finalize(self, give_back_later, partial(_give_back, asking.stopper(), engine))
        self._dropped.atexit = False
        return engine

    def _close(self, before: Callable[[], object] = lambda: None) -> None:
        """Stop the checks and give the store back, after what comes `before`; again it changes nothing."""
        engine, checks = self._engine, self._checks
        self._engine = self._checks = None
        if engine is None or checks is None or not self._dropped.detach():
            return
        before()
        checks.close()
        engine.close()


def clock_of(producer: HalfProducer) -> Clock:
    """Return the clock of a producer's store; the machine's before it is started."""
    engine = producer._engine
    return engine.log.clock if engine is not None else SystemClock()


def _groups_of(reference: weakref.ref[HalfProducer]) -> Sequence[str]:
    producer = reference()
    return () if producer is None else producer._groups()


def _ask(reference: weakref.ref[HalfProducer], half: HalfState, records: Sequence[MessageRecord]) -> bool | None:
    producer = reference()
    if producer is None:
        return None
    messages = tuple(producer._shown(record, half) for record in records)
    messages[0].messages = messages
    return producer._resolved(messages[0])


def _give_back(stop: Callable[[], object], engine: HalfEngine) -> None:
    stop()
    engine.give_back()
