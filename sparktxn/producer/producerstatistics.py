"""What a producer says in its statistics, with librdkafka's names."""

from __future__ import annotations

from typing import Any, Final

from sparktxn.kafka.settings.producer import ProducerSettings
from sparktxn.kafka.statscallback import by_topic
from sparktxn.producer.outbox import Outbox
from sparktxn.producer.states import TransactionPhase
from sparktxn.stage.buffers import Buffers
from sparktxn.stage.transaction import NO_IDENTITY

__all__ = ["producer_statistics"]

_S: Final = TransactionPhase

_TXN_STATES: Final = {
    _S.UNINITIALIZED: "Init",
    _S.INITIALIZING: "WaitPID",
    _S.READY: "Ready",
    _S.IN_TRANSACTION: "InTransaction",
    _S.PREPARING_TRANSACTION: "BeginCommit",
    _S.PREPARED_TRANSACTION: "BeginCommit",
    _S.COMMITTING_TRANSACTION: "CommittingTransaction",
    _S.ABORTING_TRANSACTION: "AbortingTransaction",
    _S.ABORTABLE_ERROR: "AbortableError",
    _S.FATAL_ERROR: "FatalError",
}


def producer_statistics(
    settings: ProducerSettings, buffers: Buffers | None, outbox: Outbox | None, state: TransactionPhase
) -> dict[str, Any]:
    """Return the fields of a producer; `state` is that of its transactions, if it has any.

    Before the producer has opened its store, `buffers` and `outbox` are None, and nothing waits.
    """
    identity = NO_IDENTITY if outbox is None else outbox.identity
    stored = {} if outbox is None else dict(outbox.stored_records)
    eos = {
        "idemp_state": "Init" if identity == NO_IDENTITY else "Assigned",
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
    }
    if settings.transactional_id is not None:
        eos |= {"txn_state": _TXN_STATES[state], "txn_may_enq": state is _S.IN_TRANSACTION}
    return {
        "msg_cnt": 0 if buffers is None else len(buffers),
        "msg_size": 0 if buffers is None else buffers.buffered_bytes(),
        "msg_max": settings.queue_messages_max,
        "msg_size_max": settings.queue_bytes_max,
        "txmsgs": sum(stored.values()),
        "topics": by_topic({place: {"txmsgs": records} for place, records in stored.items()}),
        "eos": eos,
    }
