"""Request ids: commands that have no other identity take effect once within the window."""

from __future__ import annotations

import zlib
from typing import Final

from sparktxn._engine.format.commands import CommandResult
from sparktxn._engine.state.delta import Context, Delta
from sparktxn._foundation.values.structs import RequestResult, RequestWindow, StateKey

REQUEST_WINDOW: Final = 1_000
"""Entries for which a request id is remembered (W of PROTOCOL.md)."""

REQUEST_BUCKETS: Final = 1_024
"""Records over which request ids are spread, so that one among very many is found, and noted, quickly."""


def request_key(request_id: str) -> StateKey:
    """Return the key of the record that remembers a request id."""
    return ("requests", zlib.crc32(request_id.encode()) % REQUEST_BUCKETS)


def remembered(delta: Delta, context: Context, request_id: str) -> CommandResult | None:
    """Return the answer that the request got, marked as a duplicate; None if the window is past it."""
    window: RequestWindow | None = delta.get(request_key(request_id))
    oldest = context.entry - REQUEST_WINDOW
    for result in reversed(window.requests) if window else ():
        if result.request_id == request_id and result.entry > oldest:
            return CommandResult(
                duplicate=True,
                topic_id=result.topic_id,
                producer_id=result.producer_id,
                producer_epoch=result.producer_epoch,
                transaction=result.transaction,
                committed=result.committed,
                prepared_producer_id=result.prepared_producer_id,
                prepared_producer_epoch=result.prepared_producer_epoch,
            )
    return None


def remember(delta: Delta, context: Context, request_id: str, result: CommandResult) -> CommandResult:
    """Return `result`, noted under the request's id.

    Ids older than the window are forgotten in its bucket and, in turn, in one other, so that none stays for long.
    """
    key = request_key(request_id)
    _forget(delta, context, ("requests", context.entry % REQUEST_BUCKETS))
    kept = _forget(delta, context, key)
    noted = RequestResult(
        request_id,
        context.entry,
        result.topic_id,
        result.producer_id,
        result.producer_epoch,
        result.transaction,
        result.committed,
        result.prepared_producer_id,
        result.prepared_producer_epoch,
    )
    delta.put(RequestWindow(int(key[1]), (*kept, noted)))
    return result


def _forget(delta: Delta, context: Context, key: StateKey) -> tuple[RequestResult, ...]:
    """Return what a bucket still remembers, after it has forgotten what the window is past."""
    window: RequestWindow | None = delta.get(key)
    if window is None:
        return ()
    oldest = context.entry - REQUEST_WINDOW
    if window.requests[0].entry > oldest:
        return window.requests
    kept = tuple(known for known in window.requests if known.entry > oldest)
    if kept:
        delta.put(RequestWindow(window.bucket, kept))
    else:
        delta.remove(key)
    return kept
