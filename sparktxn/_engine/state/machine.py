"""The machine: one command, or a list of them, applied to a state.

``state(N)`` is a function of entries 1 to N and of nothing else: no clock, no randomness, no I/O, no cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparktxn._engine.format import commands, names
from sparktxn._engine.format.commands import Command, CommandResult
from sparktxn._engine.state import halfmessages
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.rules import RULES
from sparktxn._engine.state.transactions import partitions
from sparktxn.errors import DamagedObject, ErrorCode


class Applied(NamedTuple):
    """What a list of commands answers, and the commands that an entry must carry: those not done before."""

    results: list[CommandResult]
    to_write: list[Command]


def apply(delta: Delta, command: Command, context: Context) -> CommandResult | Refusal:
    """Apply one command to `delta`; what it has changed before a refusal is the caller's to undo."""
    return RULES[type(command)].handler(delta, command, context)


def apply_entry(delta: Delta, list_: Sequence[Command], context: Context) -> None:
    """Apply commands of the entry that `context` names to `delta`.

    Raises:
        DamagedObject: the state refuses one of them; the delta is then of no use.
    """
    for command in list_:
        result = RULES[type(command)].handler(delta, command, context)
        if isinstance(result, Refusal):
            name = names.entry(context.entry)
            raise DamagedObject(name, f"the state before it refuses a command of it: {result.reason}")


def apply_list(delta: Delta, list_: Sequence[Command], context: Context) -> Applied | Refusal:
    """Apply a list to `delta` in order, all or nothing: after a refusal or an error the delta is as before.

    Commands that have taken effect before succeed with their original results and are not to be written again. Of
    appends that are no longer remembered that is so only if another append of the list is: one list has named both.
    """
    start = len(delta.replaced)
    results: list[CommandResult] = []
    to_write: list[Command] = []
    refusal: Refusal | None = None
    try:
        for command in list_:
            mark = len(delta.replaced)
            result = RULES[type(command)].handler(delta, command, context)
            if isinstance(result, Refusal):
                refusal = result
                break
            results.append(result)
            if result.duplicate:
                # What is not written must change nothing either: a follower of the log never sees it.
                delta.undo(mark)
            else:
                to_write.append(command)
        else:
            refusal = _refusal_of_whole(delta, list_, results, to_write)
    except BaseException:
        delta.undo(start)
        raise
    if refusal is not None:
        delta.undo(start)
        return refusal
    return Applied(results, to_write)


def _refusal_of_whole(
    delta: Delta, list_: Sequence[Command], results: Sequence[CommandResult], to_write: Sequence[Command]
) -> Refusal | None:
    """Return why a list is refused of which each command alone passes; None if it is not."""
    halves = [command for command in to_write if isinstance(command, commands.PrepareHalf)]
    if halves and (rejected := halfmessages.rejection(delta.get, halves)):
        return rejected
    is_forgotten = len(to_write) < len(results) and any(result is partitions.FORGOTTEN for result in results)
    if is_forgotten and not _is_repetition(list_, results):
        if any(getattr(command, "transactional_id", None) is not None for command in list_):
            return Refusal(ErrorCode.INVALID_TXN_STATE, "the transaction has ended without these segments")
        return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "other segments were stored with these sequences")
    if len(to_write) < len(results) and _goes_on_after_its_end(list_, results):
        return Refusal(ErrorCode.INVALID_TXN_STATE, "the transaction has ended before: its list appends nothing more")
    return None


def _goes_on_after_its_end(list_: Sequence[Command], results: Sequence[CommandResult]) -> bool:
    """Return True if a list ends a transaction that has ended, and appends what was not there: keyed rows of another.

    They lie outside of the transaction, so its number does not show which list has named them.
    """
    pairs = list(zip(list_, results, strict=True))
    has_ended = any(isinstance(command, commands.EndTxn) and result.duplicate for command, result in pairs)
    return has_ended and any(isinstance(command, commands.Append) and not result.duplicate for command, result in pairs)


def _is_repetition(list_: Sequence[Command], results: Sequence[CommandResult]) -> bool:
    """Return True if one of the list's appends names the segment that is stored under its sequences."""
    return any(
        isinstance(command, commands.Append) and result.duplicate and result is not partitions.FORGOTTEN
        for command, result in zip(list_, results, strict=True)
    )
