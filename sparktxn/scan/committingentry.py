"""Which entry committed a transaction that a user names: as the table ``entries`` shows it, or as a sink's batch."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sparktxn.errors import ConfigurationError
from sparktxn.format.commands import EndTxn, SinkBatchCommit
from sparktxn.log.log import Log
from sparktxn.log.views.entryhistory import first_entry
from sparktxn.log.views.entrysummary import Ending, find_ending
from sparktxn.values import arguments
from sparktxn.values.structs import TransactionState, TransactionStatus

__all__ = ["committing_entry"]

# The digits of no number that a log may hold are more.
_TRANSACTION: Final = re.compile(r"(.+):([0-9]{1,19}):([0-9]{1,19})", re.DOTALL)
_BATCH: Final = re.compile(r"(.+):([0-9]{1,19})", re.DOTALL)


class _Named(NamedTuple):
    """What a name may mean: (transactional id, producer id, number), and (query id or txnAppId, batch id)."""

    transaction: tuple[str, int, int] | None
    batch: tuple[str, int] | None

    def is_ended_by(self, end: EndTxn, batch: SinkBatchCommit | None) -> bool:
        """Return whether `end`, which may have committed a sink's `batch`, ended what is named."""
        if (end.transactional_id, end.producer_id, end.transaction) == self.transaction:
            return True
        return end.committed and batch is not None and (batch.writer_id, batch.batch_id) == self.batch


def committing_entry(log: Log, name: str) -> int:
    """Return the entry that committed the transaction that `name` names.

    Recent ones are found in the state. For others the log's entries are read from the newest to the oldest.

    Raises:
        ConfigurationError: `name` names no transaction, or one that is open, aborted or not found.
        DamagedObject: an entry is missing or damaged.
    """
    named = _parsed(name)
    log.refresh()
    oldest, newest = first_entry(log.objects), log.entry
    start = oldest
    for record in log.transactions():
        entry = _remembered(record, named)
        if entry is not None:
            return entry
        if (record.transactional_id, record.producer_id, record.transaction) == named.transaction:
            if record.status is TransactionStatus.ONGOING:
                raise ConfigurationError(
                    f"transaction {arguments.shown(name)} is open: only a committed one can be read as of"
                )
            start = max(oldest, record.start_entry)
    found = find_ending(log.objects, start, newest, named.is_ended_by)
    return _committed(name, found, oldest, newest)


def _parsed(name: str) -> _Named:
    transaction, batch = _TRANSACTION.fullmatch(name), _BATCH.fullmatch(name)
    if batch is None:
        raise ConfigurationError(
            f"transaction {arguments.shown(name)} is not the name of one: expected "
            "transactionalId:producerId:number as the table 'entries' shows it, or queryId:batchId of a sink"
        )
    return _Named(
        None if transaction is None else (transaction[1], int(transaction[2]), int(transaction[3])),
        (batch[1], int(batch[2])),
    )


def _remembered(record: TransactionState, named: _Named) -> int | None:
    """Return the entry that committed the sink's batch, if the transactional id's state has it."""
    if record.sink is None or named.batch is None or record.sink.writer_id != named.batch[0]:
        return None
    return next((batch.entry for batch in record.sink.batches if batch.batch_id == named.batch[1]), None)


def _committed(name: str, found: Ending | None, oldest: int, newest: int) -> int:
    if found is None:
        passed = f", or an entry below {oldest}, which a vacuum may have passed, has" if oldest > 1 else ""
        raise ConfigurationError(
            f"transaction {arguments.shown(name)} is unknown: none of the entries {oldest} to {newest} has committed "
            f"it{passed}; the table 'entries' lists those that they have"
        )
    if not found.committed:
        raise ConfigurationError(
            f"transaction {arguments.shown(name)} was aborted, by entry {found.entry}: it has no records to read"
        )
    return found.entry
