"""Request ids: commands that have no other identity take effect once within the window."""

from __future__ import annotations

from typing import Final

from sparktxn.format.commands import CommandResult
from sparktxn.state.delta import Context, Delta
from sparktxn.structs import RequestResult, RequestWindow

__all__ = ["REQUEST_WINDOW", "remember", "remembered"]

REQUEST_WINDOW: Final = 1_000
"""Entries for which a request id is remembered (W of PROTOCOL.md)."""

_KEY: Final = ("requests",)


def remembered(delta: Delta, request_id: str) -> CommandResult | None:
    """What the request was answered when an entry applied it, marked as a duplicate; None if it is not known."""
    window: RequestWindow | None = delta.get(_KEY)
    for result in reversed(window.requests) if window else ():
        if result.request_id == request_id:
            return CommandResult(
                duplicate=True,
                topic_id=result.topic_id,
                producer_id=result.producer_id,
                producer_epoch=result.producer_epoch,
                transaction=result.transaction,
                committed=result.committed,
            )
    return None


def remember(delta: Delta, context: Context, request_id: str, result: CommandResult) -> CommandResult:
    """`result`, noted under the request's id; ids older than the window are forgotten."""
    window: RequestWindow | None = delta.get(_KEY)
    oldest = context.entry - REQUEST_WINDOW
    kept = window.requests if window else ()
    if kept and kept[0].entry <= oldest:
        kept = tuple(known for known in kept if known.entry > oldest)
    noted = RequestResult(
        request_id,
        context.entry,
        result.topic_id,
        result.producer_id,
        result.producer_epoch,
        result.transaction,
        result.committed,
    )
    delta.put(RequestWindow((*kept, noted)))
    return result
