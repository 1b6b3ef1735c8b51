"""Lists of commands before they are queued: none gets further that a reader of the log would refuse.

A list that cannot be written, or not be read again, would stop every process: it is refused to its caller alone. What
is queued is what a reader decodes, so that the state of this process is that of all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.format.commands import Append, Command
from sparktxn.format.entry import decode_list, encode_list
from sparktxn.objectstore.contract import OBJECT_SIZE_MAX

__all__ = ["APPENDS_BYTES_MAX", "LIST_BYTES_MAX", "CheckedList", "checked_list"]

LIST_BYTES_MAX: Final = OBJECT_SIZE_MAX * 2 // 3
"""Bytes of a list without appends of objects: room is left in the entry for what settles lists of other processes."""
APPENDS_BYTES_MAX: Final = 2 * OBJECT_SIZE_MAX
"""Bytes of a list's appends that name objects: as columns of an append object they take less than half of it."""


class CheckedList(NamedTuple):
    """Commands as a reader decodes them, and their bytes in an entry."""

    commands: tuple[Command, ...]
    encoded: bytes


def checked_list(commands: Sequence[Command]) -> CheckedList:
    """Encode the list and decode it again.

    Raises:
        CommandRefused: _INVALID_ARG: a member holds what an entry cannot, or what a reader takes for something else;
            MSG_SIZE_TOO_LARGE: the list fits no entry. Nothing is queued.
    """
    given = tuple(commands)
    try:
        checked = _through_json(given)
    except Exception as error:  # an encoder fails in any way on what is not a value of a command
        raise _refusal(given, error) from error
    if len(checked.encoded) > LIST_BYTES_MAX:
        _check_size(checked)
    return checked


def _through_json(commands: tuple[Command, ...]) -> CheckedList:
    encoded = encode_list(commands)
    decoded = decode_list(encoded)
    if decoded != commands:
        # Such as bytes for text, which JSON would hold as base64.
        raise ValueError("a reader would find another value")
    return CheckedList(decoded, encoded)


def _refusal(commands: tuple[Command, ...], error: Exception) -> CommandRefused:
    """Return the refusal of a list, which names its first command that is at fault."""
    for number, command in enumerate(commands, 1):
        try:
            _through_json((command,))
        except Exception as fault:  # noqa: BLE001 - as above
            where = f"command {number} of {len(commands)} ({type(command).__name__})"
            return CommandRefused(
                ErrorCode.LOCAL_INVALID_ARG,
                f"{where} holds a value that the log cannot hold: {fault}. Expected 64-bit integers and text that is "
                "valid UTF-8; nothing was written",
            )
    return CommandRefused(ErrorCode.LOCAL_INVALID_ARG, f"the commands cannot be written: {error}")


def _check_size(checked: CheckedList) -> None:
    appends = [command for command in checked.commands if isinstance(command, Append) and not command.data]
    appends_bytes = len(encode_list(appends))
    others_bytes = len(checked.encoded) - appends_bytes
    if appends_bytes <= APPENDS_BYTES_MAX and others_bytes <= LIST_BYTES_MAX:
        return
    raise CommandRefused(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{len(checked.commands)} commands are too large for one log entry: {len(appends)} segments take "
        f"{appends_bytes} bytes (expected at most {APPENDS_BYTES_MAX}), and all else {others_bytes} (expected at most "
        f"{LIST_BYTES_MAX}). Use fewer segments or less metadata in one transaction; nothing was written",
    )
