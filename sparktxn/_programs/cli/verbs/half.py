"""`txnlog half`: RocketMQ's half messages that are not settled, and what an administrator decides about them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Annotated, Any

import typer

from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import Apply, argument, option, verb
from sparktxn.admin import HalfMessageId, HalfMessageState
from sparktxn.errors import ErrorCode, KafkaError, KafkaException

app = typer.Typer(no_args_is_help=True)

_OnlyGroup = Annotated[list[str] | None, option("--group", "-G", metavar="GROUP", help="Only of a producer group.")]
_Group = Annotated[str, argument(metavar="GROUP", help="The producer group.")]
_Transaction = Annotated[list[str], argument(metavar="TRANSACTION…", help="Ids of transactions.")]


@verb(app, "pending", examples=["txnlog half pending", "txnlog half pending --group shop --json"])
def pending(session: Session, group: _OnlyGroup = None) -> None:
    """List half messages that wait for their outcome, the oldest first."""
    _show(session, group, HalfMessageState.PENDING)


@verb(app, "discarded", examples=["txnlog half discarded"])
def discarded(session: Session, group: _OnlyGroup = None) -> None:
    """List half messages that were given up after their last check, the oldest first."""
    _show(session, group, HalfMessageState.DISCARDED)


def _show(session: Session, group: list[str] | None, state: HalfMessageState) -> None:
    rows = [
        _row(one)
        for one in session.admin()
        .list_half_messages(group_ids=group or None, states=[state], request_timeout=session.timeout_s)
        .result()
    ]
    session.out.rows(rows, none=f"no {state.lower()} half messages")


def _row(one: Any) -> dict[str, Any]:
    return {
        "group_id": one.id.group_id,
        "transaction_id": one.id.transaction_id,
        "state": str(one.state),
        "checks": one.checks,
        "prepared_timestamp_ms": one.prepared_timestamp_ms,
        "prepared_entry": one.prepared_entry,
        "messages": one.messages,
    }


@verb(app, "discard", examples=["txnlog half discard shop t-1"])
def discard(session: Session, group: _Group, transactions: _Transaction) -> None:
    """Give half messages up: they are kept, and no checker is asked for them."""
    ids = [HalfMessageId(group, one) for one in transactions]
    futures = session.admin().discard_half_messages(ids, request_timeout=session.timeout_s)
    _report(session, futures, "discarded")


@verb(app, "resume", examples=["txnlog half resume shop t-2"])
def resume(session: Session, group: _Group, transactions: _Transaction) -> None:
    """Make discarded half messages pending again; checkers are asked for them."""
    ids = [HalfMessageId(group, one) for one in transactions]
    futures = session.admin().resume_half_messages(ids, request_timeout=session.timeout_s)
    _report(session, futures, "resumed")


@verb(app, "delete", examples=["txnlog half delete shop t-2", "txnlog half delete shop t-2 --apply"])
def delete(session: Session, group: _Group, transactions: _Transaction, apply: Apply = False) -> None:
    """Forget discarded half messages: no reader ever sees them.

    Without --apply it prints what would be deleted.
    """
    admin, timeout_s = session.admin(), session.timeout_s
    found = admin.list_half_messages(
        group_ids=[group], states=[HalfMessageState.DISCARDED], request_timeout=timeout_s
    ).result()
    known = {one.id.transaction_id: one for one in found}
    missing = [one for one in transactions if one not in known]
    if missing:
        reason = f"group {group!r} has no discarded half message {missing[0]!r}: txnlog half discarded shows them"
        raise KafkaException(KafkaError(ErrorCode.INVALID_TXN_STATE, reason))
    if apply:
        ids = [HalfMessageId(group, one) for one in transactions]
        for future in admin.delete_half_messages(ids, request_timeout=timeout_s).values():
            future.result()
    session.out.rows([_row(known[one]) | {"deleted": apply} for one in transactions], none="")
    if not apply:
        session.out.remark("nothing was deleted: add --apply to delete these half messages")


def _report(session: Session, futures: dict[HalfMessageId, Future[None]], done: str) -> None:
    for id_, future in futures.items():
        future.result()
        session.out.done(
            f"{done} {id_.transaction_id} of group {id_.group_id}",
            {"group_id": id_.group_id, "transaction_id": id_.transaction_id, done: True},
        )
