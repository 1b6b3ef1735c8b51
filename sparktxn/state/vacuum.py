"""The vacuum's command: what may be deleted is decided by an entry (PROTOCOL.md, "Deleting")."""

from __future__ import annotations

from msgspec.structs import replace

from sparktxn.errors import ErrorCode
from sparktxn.format.commands import CommandResult, Vacuum
from sparktxn.state.delta import Context, Delta, Refusal

__all__ = ["vacuum"]


def vacuum(delta: Delta, command: Vacuum, context: Context) -> CommandResult | Refusal:
    """Raise the horizon and the segment floor: both only grow, and neither passes this entry."""
    store = delta.store()
    if command.horizon < store.horizon or command.segment_floor < store.segment_floor:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"a vacuum to horizon {command.horizon} and segment floor {command.segment_floor} would lower them: they "
            f"are {store.horizon} and {store.segment_floor}; plan again",
        )
    if command.horizon > context.entry or command.segment_floor > context.entry:
        return Refusal(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"a vacuum to horizon {command.horizon} and segment floor {command.segment_floor}: expected entries of the "
            f"log, up to {context.entry}",
        )
    if (command.horizon, command.segment_floor) == (store.horizon, store.segment_floor):
        return CommandResult(duplicate=True)
    delta.put(replace(store, horizon=command.horizon, segment_floor=command.segment_floor))
    return CommandResult.EMPTY
