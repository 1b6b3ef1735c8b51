"""A transactional producer's states, which may follow which (kafka TransactionManager.State), and its calls in turn.

::

    UNINITIALIZED ──► INITIALIZING ──► READY ◄──────────────────────┐
                                         │ begin                    │
                                         ▼                          │
                                   IN_TRANSACTION ─► COMMITTING ────┤
                                         │               │          │
                                         │               ▼          │
                                         ├──────► ABORTABLE_ERROR   │
                                         ▼               │          │
                                      ABORTING ◄─────────┘──────────┘
    IN_TRANSACTION ─► PREPARING ─► PREPARED ─► COMMITTING or ABORTING
    INITIALIZING ─► PREPARED: init_transactions(keep_prepared=True) has found a prepared transaction
    any ──► FATAL_ERROR: only close() is left

PREPARING is this client's own: preparing is a write here, and one whose answer was lost is resumed by the same call.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import force_setattr

from sparktxn._foundation.values import arguments
from sparktxn.errors import ErrorCode, KafkaError, KafkaException


class TransactionPhase(StrEnum):
    """Where a transactional producer is between `init_transactions` and `close`."""

    UNINITIALIZED = "UNINITIALIZED"
    INITIALIZING = "INITIALIZING"
    READY = "READY"
    IN_TRANSACTION = "IN_TRANSACTION"
    PREPARING_TRANSACTION = "PREPARING_TRANSACTION"
    PREPARED_TRANSACTION = "PREPARED_TRANSACTION"
    COMMITTING_TRANSACTION = "COMMITTING_TRANSACTION"
    ABORTING_TRANSACTION = "ABORTING_TRANSACTION"
    ABORTABLE_ERROR = "ABORTABLE_ERROR"
    FATAL_ERROR = "FATAL_ERROR"


_S: Final = TransactionPhase

VALID_PREVIOUS_STATES: Final[dict[TransactionPhase, frozenset[TransactionPhase]]] = {
    _S.UNINITIALIZED: frozenset(),
    _S.INITIALIZING: frozenset({_S.UNINITIALIZED}),
    _S.READY: frozenset({_S.INITIALIZING, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION}),
    _S.IN_TRANSACTION: frozenset({_S.READY}),
    _S.PREPARING_TRANSACTION: frozenset({_S.IN_TRANSACTION}),
    _S.PREPARED_TRANSACTION: frozenset({_S.PREPARING_TRANSACTION, _S.INITIALIZING}),
    _S.COMMITTING_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.PREPARED_TRANSACTION}),
    _S.ABORTING_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.PREPARED_TRANSACTION, _S.ABORTABLE_ERROR}),
    _S.ABORTABLE_ERROR: frozenset(
        {
            _S.INITIALIZING,
            _S.IN_TRANSACTION,
            _S.PREPARING_TRANSACTION,
            _S.COMMITTING_TRANSACTION,
            _S.ABORTABLE_ERROR,
        }
    ),
    _S.FATAL_ERROR: frozenset(_S),
}
"""From which states each state may be entered."""


class ProducerStates:
    """The one owner of a producer's state, `current`, and of the error that led to an error state (K113 to K115).

    One transactional call runs at a time; one that timed out is resumed by the same call (K118).
    """

    __slots__ = ("_error", "_lock", "_running", "_unfinished", "current")

    def __init__(self) -> None:
        self.current = TransactionPhase.UNINITIALIZED
        self._error: KafkaException | None = None
        self._lock = threading.Lock()
        self._running: str | None = None
        self._unfinished: str | None = None

    def move(self, state: TransactionPhase, error: KafkaException | None = None) -> None:
        """Enter `state`; the error states are entered with the `error` that later calls raise.

        Raises:
            AssertionError: the table forbids it; a caller has not checked what it should have.
        """
        if self.current not in VALID_PREVIOUS_STATES[state]:
            raise AssertionError(f"producer state {self.current} cannot become {state}")
        self.current = state
        self._error = error

    def require(self, call: str, *allowed: TransactionPhase) -> None:
        """Pass if the state is one of `allowed`.

        Raises:
            KafkaException: the error of an error state, else _STATE, which names the call and what is expected.
        """
        if self.current in allowed:
            return
        if self._error is not None:
            raise self._error
        expected = " or ".join(state.value for state in allowed)
        reason = f"{call}() needs transaction state {expected}, this producer's is {self.current}{_hint(self.current)}"
        raise KafkaException(KafkaError(ErrorCode.LOCAL_STATE, reason))

    @contextmanager
    def call(self, name: str, *allowed: TransactionPhase) -> Iterator[None]:
        """Run the body as call `name`, which may begin in the states `allowed`; a retriable error leaves it unfinished.

        Raises:
            KafkaException: _PREV_IN_PROGRESS or _CONFLICT, both retriable: this or another call is under way in another
                thread, or another one has not been finished. Otherwise as `require`.
        """
        if not self._lock.acquire(blocking=False):
            running = self._running
            code = ErrorCode.LOCAL_PREV_IN_PROGRESS if running == name else ErrorCode.LOCAL_CONFLICT
            raise _busy(code, f"{running}() is under way in another thread: wait for it, then call {name}()")
        try:
            if self._unfinished not in (None, name):
                reason = f"the outcome of {self._unfinished}() is not known: call {self._unfinished}() again first"
                raise _busy(ErrorCode.LOCAL_CONFLICT, reason)
            self._running = name
            try:
                self.require(name, *allowed)
                yield
            except KafkaException as error:
                self._unfinished = name if error.error.retriable() else None
                raise
            self._unfinished = None
        finally:
            self._running = None
            self._lock.release()


def _hint(state: TransactionPhase) -> str:
    hints = {
        _S.UNINITIALIZED: ": call init_transactions() first",
        _S.INITIALIZING: ": call init_transactions() again",
        _S.READY: ": call begin_transaction() first",
        _S.IN_TRANSACTION: ": commit or abort the open transaction first",
        _S.PREPARING_TRANSACTION: ": call prepare_transaction() again",
        _S.PREPARED_TRANSACTION: ": complete, commit or abort the prepared transaction first",
        _S.COMMITTING_TRANSACTION: ": call commit_transaction() again",
        _S.ABORTING_TRANSACTION: ": call abort_transaction() again",
    }
    return hints.get(state, "")


def _busy(code: ErrorCode, reason: str) -> KafkaException:
    return KafkaException(KafkaError(code, reason, retriable=True))


# What a coordinator stores to decide a prepared transaction (kafka PreparedTxnState).

_TEXT: Final = re.compile(r"(0|[1-9][0-9]{0,18}):(0|[1-9][0-9]{0,4})")


class PreparedTransaction(Struct, frozen=True):
    """The identity that prepared a transaction: no two prepared transactions of a store have the same one.

    Its text is ``producer id:epoch``; a database stores it in the transaction whose fate is to decide this one.
    """

    producer_id: int
    producer_epoch: int

    def __post_init__(self) -> None:
        force_setattr(self, "producer_id", arguments.integer("producer_id", self.producer_id, 0))
        producer_epoch = arguments.integer("producer_epoch", self.producer_epoch, 0, arguments.INT32_MAX)
        force_setattr(self, "producer_epoch", producer_epoch)

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> PreparedTransaction:
        """Return the value whose `str()` is `text`.

        Raises:
            ValueError: `text` is not such a text.
        """
        text = arguments.text("text", text)
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{arguments.shown(text)} is not a prepared transaction: expected <producer id>:<epoch>, such as '7:0'"
            )
        return cls(int(found[1]), int(found[2]))
