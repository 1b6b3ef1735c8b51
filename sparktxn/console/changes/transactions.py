"""Aborting a transaction, and fencing the producers of a transactional id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from sparktxn.admin.transactions import (
    TransactionDescription,
    abort_ongoing,
    describe_transaction,
    fence_producer,
    ongoing_transaction,
)
from sparktxn.console.changes.change import Change, Field, Planned, Row
from sparktxn.console.requestparameters import RequestParameters
from sparktxn.console.shown import query, visible
from sparktxn.console.shownstore import Source

__all__ = ["Abort", "Fence"]

_PREPARED = "It is prepared: its coordinator may have decided that it commits."


class _OfTransactionalId(Change, frozen=True):
    """A change of one transactional id; nothing is to be entered."""

    subject: ClassVar = ("id",)

    transactional_id: str

    @classmethod
    def fields(cls, source: Source, asked: RequestParameters) -> list[Field]:
        """Return no fields; check that the id exists."""
        source.log.refresh()
        describe_transaction(source.log, asked.text("id"))
        return []

    @classmethod
    def asked(cls, source: Source, asked: RequestParameters) -> Self:
        """Return the change of the id that the address names."""
        return cls(asked.text("id"))

    def address(self) -> str:
        """Return the page of the id's transaction."""
        return query("/transaction", id=self.transactional_id)


class Abort(_OfTransactionalId, frozen=True):
    """The end of an open transaction without its records."""

    kind: ClassVar = "abort"
    verb: ClassVar = "Abort the transaction"

    @classmethod
    def title(cls, asked: RequestParameters) -> str:
        """Return the heading."""
        return f"Abort the open transaction of {visible(asked.text('id'), 80)}"

    def planned(self, source: Source) -> Planned:
        """Return the transaction that would be aborted."""
        source.log.refresh()
        record = ongoing_transaction(source.log, self.transactional_id)
        described = describe_transaction(source.log, self.transactional_id)
        notes = ["It is aborted in all its partitions and groups, and its producer is fenced."]
        return Planned(
            rows=[_row(self.transactional_id, described) | {"aborted": False}],
            notes=(*notes, _PREPARED) if described.prepared else tuple(notes),
            basis=record,
        )

    def still_holds(self, source: Source, planned: Planned) -> bool:
        """Return whether the same transaction is open; what it has appended since is no matter."""
        record, now = planned.basis, self.planned(source).basis
        return bool(
            (record.producer_id, record.producer_epoch, record.transaction, record.prepared)
            == (now.producer_id, now.producer_epoch, now.transaction, now.prepared)
        )

    def apply(self, source: Source, planned: Planned) -> Sequence[Row]:
        """Abort the transaction of the plan."""
        abort_ongoing(source.log, planned.basis)
        return [{**row, "aborted": True} for row in planned.rows]


class Fence(_OfTransactionalId, frozen=True):
    """A new epoch of a transactional id, so that its producer can commit nothing more."""

    kind: ClassVar = "fence"
    verb: ClassVar = "Fence the producer"

    @classmethod
    def title(cls, asked: RequestParameters) -> str:
        """Return the heading."""
        return f"Fence the producer of {visible(asked.text('id'), 80)}"

    def planned(self, source: Source) -> Planned:
        """Return the producer that would be fenced, and what it has open."""
        source.log.refresh()
        described = describe_transaction(source.log, self.transactional_id)
        notes = ["Its producer can commit nothing more until it initialises anew. What it has open is aborted."]
        return Planned(
            rows=[_row(self.transactional_id, described) | {"fenced": False}],
            notes=(*notes, _PREPARED) if described.prepared else tuple(notes),
            basis=(
                described.producer_id,
                described.producer_epoch,
                described.transaction,
                described.state,
                described.prepared,
            ),
        )

    def apply(self, source: Source, planned: Planned) -> Sequence[Row]:
        """Fence the producer."""
        identity = fence_producer(source.log, self.transactional_id)
        return [
            {
                "transactional_id": self.transactional_id,
                "producer_id": identity.producer_id,
                "producer_epoch": identity.producer_epoch,
                "fenced": True,
            }
        ]


def _row(transactional_id: str, described: TransactionDescription) -> dict[str, object]:
    return {
        "transactional_id": transactional_id,
        "state": str(described.state),
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "transaction": described.transaction,
        "prepared": described.prepared is not None,
        "partitions": [f"{where.topic}-{where.partition}" for where in described.topic_partitions],
    }
