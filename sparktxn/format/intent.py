"""Intents: lists of commands that wait for the writer of the next entry (PROTOCOL.md, "Intents")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from sparktxn.errors import DamagedObject
from sparktxn.format.commands import Command
from sparktxn.format.entry import FORMAT_VERSION, open_document, seal_document
from sparktxn.format.newer import undecodable
from sparktxn.values.structs import Int64

__all__ = ["Intent", "decode_intent", "encode_intent", "list_id", "may_travel"]


class Intent(Struct, frozen=True, kw_only=True):
    """An intent. Each of its lists is all or nothing, and has an id of its own (`list_id`)."""

    format: Int64
    intent: str
    base_entry: Int64
    lists: tuple[tuple[Command, ...], ...]
    checksum: str = ""


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Intent)


def list_id(intent: str, index: int) -> str:
    """Return the id under which a list of an intent is settled."""
    return f"{intent}-{index}"


def may_travel(commands: Sequence[Command]) -> bool:
    """Return True if another process may put the list.

    What a client sends over and over may. What allocates or fences does not: an `init_producer_id` or a `join_group`
    that its dead owner has left would fence the instance that took its place. Nor does what is rare.
    """
    return all(command.may_travel for command in commands)


def encode_intent(intent: str, base_entry: int, lists: Sequence[Sequence[Command]]) -> bytes:
    """Return the bytes of an intent."""
    fields = {"format": FORMAT_VERSION, "intent": intent, "base_entry": base_entry, "lists": lists}
    return seal_document(_encoder.encode(fields))[0]


def decode_intent(data: bytes, name: str, base_entry: int, intent: str) -> Intent:
    """Return the intent in `data`; `base_entry` and `intent` are those in its name.

    Raises:
        FormatVersionError: it is of a newer format, or holds a command or member that is not known.
        DamagedObject: it is damaged, another one, or holds a command that must not travel.
    """
    open_document(data, name)
    try:
        found = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(data, name, Intent, "an intent", error) from None
    if (found.base_entry, found.intent) != (base_entry, intent):
        raise DamagedObject(name, f"it holds intent {found.intent!r} of entry {found.base_entry}")
    if not all(commands and may_travel(commands) for commands in found.lists):
        raise DamagedObject(name, "it holds a command that only its owner may put")
    return found
