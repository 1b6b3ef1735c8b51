"""Intents: lists that another process may put for their owner take effect once (PROTOCOL.md, "Intents").

What entry E has settled is remembered in one record, under E modulo the window. An intent's base is the state that it
was written at. Only the entries after it can have settled it, so only their records have to be read. Once one of them
is past the window, the intent is refused, since the state could no longer know.
"""

from __future__ import annotations

from typing import Final

from sparktxn._engine.format.commands import CancelIntent, CommandResult, SettleIntent
from sparktxn._engine.state.delta import Context, Delta, ReadState, Refusal
from sparktxn._engine.state.requests import REQUEST_WINDOW
from sparktxn._foundation.values.structs import IntentWindow, SettledIntent, StateKey
from sparktxn.errors import ErrorCode

INTENT_WINDOW: Final = REQUEST_WINDOW
"""Entries for which a settled intent is remembered (W of PROTOCOL.md)."""

_CANCELLED: Final = "its owner has cancelled it"


def intent_key(entry: int) -> StateKey:
    """Return the key of the record that remembers what an entry has settled."""
    return ("intents", entry % INTENT_WINDOW)


def is_expired(base_entry: int, entry: int) -> bool:
    """Return True if entry `entry` can no longer settle an intent: what has done so may be forgotten."""
    return entry - base_entry > INTENT_WINDOW


def settlement(read: ReadState, intent_id: str, base_entry: int, entry: int) -> SettledIntent | None:
    """Return what an entry after `base_entry`, up to `entry`, has settled the intent as; None if the state has no such
    entry."""
    for number in range(max(base_entry, entry - INTENT_WINDOW) + 1, entry + 1):
        window: IntentWindow | None = read(intent_key(number))
        if window is not None and window.entry == number:
            for settled in window.settled:
                if settled.intent_id == intent_id:
                    return settled
    return None


def why_not_settled(read: ReadState, intent_id: str, base_entry: int, entry: int) -> Refusal | None:
    """Return why entry `entry` may not settle the intent; None if it may."""
    if not 0 <= base_entry < entry:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"intent {intent_id!r} names the state {base_entry}, which is not before entry {entry}",
        )
    if is_expired(base_entry, entry):
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"intent {intent_id!r} has expired: it was written at entry {base_entry}"
        )
    if settlement(read, intent_id, base_entry, entry) is not None:
        return Refusal(ErrorCode.INVALID_REQUEST, f"intent {intent_id!r} is settled")
    return None


def settle_intent(delta: Delta, command: SettleIntent, context: Context) -> CommandResult | Refusal:
    """Note an intent as applied, by the commands that follow, or as refused."""
    if command.command_count < 0 or (command.refused_code and command.command_count):
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"intent {command.intent_id!r} is settled with code {command.refused_code} and {command.command_count} "
            "commands: expected commands where it is applied, and none where it is refused",
        )
    settled = SettledIntent(command.intent_id, command.refused_code, command.reason)
    return _settle(delta, settled, command.base_entry, context)


def cancel_intent(delta: Delta, command: CancelIntent, context: Context) -> CommandResult | Refusal:
    """Note an intent as cancelled: a list that is in it takes effect never."""
    return _settle(
        delta, SettledIntent(command.intent_id, ErrorCode.INVALID_REQUEST, _CANCELLED), command.base_entry, context
    )


def _settle(delta: Delta, settled: SettledIntent, base_entry: int, context: Context) -> CommandResult | Refusal:
    refusal = why_not_settled(delta.get, settled.intent_id, base_entry, context.entry)
    if refusal is not None:
        return refusal
    key = intent_key(context.entry)
    window: IntentWindow | None = delta.get(key)
    before = window.settled if window is not None and window.entry == context.entry else ()
    delta.put(IntentWindow(int(key[1]), context.entry, (*before, settled)))
    return CommandResult.EMPTY
