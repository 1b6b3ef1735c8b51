"""Log entries, and intents that wait for one: one JSON document each (PROTOCOL.md, "Entries", "Intents").

The last member is the CRC-32C of all bytes before it, so that the document can be checked before it is understood.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import google_crc32c
import msgspec
from msgspec import Struct

from sparktxn._engine.format.commands import Command, RequireFeatures
from sparktxn._engine.format.decodeguard import READER_FEATURES, check_features, undecodable
from sparktxn._foundation.values.structs import Int64
from sparktxn.errors import DamagedObject, FormatVersionError

FORMAT_VERSION: Final = 1
NO_CHECKSUM: Final = "00000000"
"""What entry 1 names as the checksum of the entry before it."""

_COPIED_AT_ONCE: Final = 1 << 16
_SUFFIX: Final = b',"checksum":"'
_SUFFIX_LENGTH: Final = len(_SUFFIX) + len('00000000"}')


class LogEntry(Struct, frozen=True, kw_only=True, gc=False):
    """One entry. `checksum` is the document's own: the next entry names it as `previous`."""

    format: Int64
    entry: Int64
    token: str
    previous: str
    timestamp_ms: Int64
    commands: tuple[Command, ...]
    checksum: str = ""


class StoreDocument(Struct, frozen=True, kw_only=True):
    """The store's own object, written once: its format and its identity.

    `copied_from` is the id of the store that this one is a copy of; empty for a store that is none.
    """

    format: Int64
    store_id: str
    created_ms: Int64
    copied_from: str = ""
    checksum: str = ""


class _FormatOnly(Struct):
    format: Int64


_encoder: Final = msgspec.json.Encoder()
_entry_decoder: Final = msgspec.json.Decoder(LogEntry)
_list_decoder: Final = msgspec.json.Decoder(tuple[Command, ...])
_store_decoder: Final = msgspec.json.Decoder(StoreDocument)
_format_decoder: Final = msgspec.json.Decoder(_FormatOnly)


def seal_document(document: bytes) -> tuple[bytes, str]:
    """Return a JSON object with its checksum as one more member, and that checksum."""
    body = document[:-1]
    checksum = f"{google_crc32c.value(body):08x}"
    return body + _SUFFIX + checksum.encode() + b'"}', checksum


def is_sealed(data: bytes) -> bool:
    """Return True if the last member of a document is the checksum of the bytes before it."""
    return data[-_SUFFIX_LENGTH:] == _SUFFIX + b'%08x"}' % _checksum(data)


def _checksum(data: bytes) -> int:
    """Return the CRC-32C of a document's bytes before its last member."""
    if len(data) <= _COPIED_AT_ONCE:
        return int(google_crc32c.value(data[:-_SUFFIX_LENGTH]))
    end = len(data) - _SUFFIX_LENGTH
    checksum = 0
    # A copy of megabytes takes several times as long as their checksum.
    for first in range(0, end, _COPIED_AT_ONCE):
        checksum = google_crc32c.extend(checksum, data[first : min(first + _COPIED_AT_ONCE, end)])
    return checksum


def open_document(data: bytes, name: str) -> None:
    """Check a sealed document's checksum, and then its format version: all versions are sealed alike.

    Raises:
        FormatVersionError: it is of a newer format.
        DamagedObject: it is not a sealed document, or its bytes are not those that were written.
    """
    if not is_sealed(data):
        raise DamagedObject(name, f"its checksum is not {_checksum(data):08x}")
    try:
        version = _format_decoder.decode(data).format
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedObject(name, f"it is not a JSON object with a format version ({error})") from None
    check_format(version, name)


def check_format(version: int, name: str) -> None:
    """Check the format version of a document that could be decoded; raises as `open_document`."""
    if version > FORMAT_VERSION:
        raise FormatVersionError(name, f"has format version {version}, and this version reads up to {FORMAT_VERSION}")
    if version != FORMAT_VERSION:
        raise DamagedObject(name, f"its format version is {version}: expected {FORMAT_VERSION}")


def encode_list(commands: Sequence[Command]) -> bytes:
    """Return a list of commands as an entry holds it: a JSON array.

    Raises:
        Exception: of any kind, if a member holds what JSON cannot.
    """
    return _encoder.encode(commands)


def decode_list(data: bytes) -> tuple[Command, ...]:
    """Return the commands in `data`, checked as those of an entry are.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError, RecursionError: an entry that held them could not be read.
    """
    return _list_decoder.decode(data)


def encode_entry(entry: LogEntry, lists: Iterable[bytes] | None = None) -> tuple[bytes, str]:
    """Return the entry's bytes, and its checksum; `entry.checksum` is not looked at.

    `lists` are the entry's commands as `encode_list` has encoded them, in any number of lists; without, they are
    encoded here.
    """
    head = (
        f'{{"format":{entry.format},"entry":{entry.entry},"token":"{entry.token}","previous":"{entry.previous}",'
        f'"timestamp_ms":{entry.timestamp_ms},"commands":'
    )
    if lists is None:
        commands = encode_list(entry.commands)
    else:
        commands = b"[" + b",".join([encoded[1:-1] for encoded in lists]) + b"]"
    return seal_document(head.encode() + commands + b"}")


def decode_entry(data: bytes, name: str, number: int) -> LogEntry:
    """Return the entry in `data`.

    Raises:
        FormatVersionError: it is of a newer format, holds a command or member that is not known, or requires a
            feature that this version cannot read.
        DamagedObject: it is damaged, or is not entry `number`.
    """
    if not is_sealed(data):
        open_document(data, name)
    try:
        entry = _entry_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        open_document(data, name)
        raise undecodable(data, name, LogEntry, "an entry", error) from None
    check_format(entry.format, name)
    for command in entry.commands:
        if isinstance(command, RequireFeatures):
            check_features(command.reader_features, READER_FEATURES, name, "read")
    if entry.entry != number:
        raise DamagedObject(name, f"it holds entry {entry.entry}")
    if not entry.commands:
        raise DamagedObject(name, "it has no commands")
    return entry


def encode_store(store_id: str, created_ms: int, copied_from: str = "") -> bytes:
    """Return the bytes of the store's own object."""
    fields: dict[str, object] = {"format": FORMAT_VERSION, "store_id": store_id, "created_ms": created_ms}
    if copied_from:
        fields["copied_from"] = copied_from
    return seal_document(_encoder.encode(fields))[0]


def decode_store(data: bytes, name: str) -> StoreDocument:
    """Return the store's own object.

    Raises:
        FormatVersionError: the store is of a newer format.
        DamagedObject: it is damaged.
    """
    open_document(data, name)
    try:
        return _store_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(data, name, StoreDocument, "a store's document", error) from None


# Intents: lists of commands that wait for the writer of the next entry (PROTOCOL.md, "Intents").


class Intent(Struct, frozen=True, kw_only=True):
    """An intent. Each of its lists is all or nothing, and has an id of its own (`list_id`)."""

    format: Int64
    intent: str
    base_entry: Int64
    lists: tuple[tuple[Command, ...], ...]
    checksum: str = ""


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
