"""Documents of a copy: how far the copying of a store has come (PROTOCOL.md, "Copies")."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from sparktxn._engine.format.decodeguard import undecodable
from sparktxn._engine.format.entry import FORMAT_VERSION, open_document, seal_document
from sparktxn._foundation.values.structs import Int64
from sparktxn.errors import DamagedObject


class CopyDocument(Struct, frozen=True, kw_only=True):
    """A plan, or with `complete` its end: the copy has all that views from `horizon` to `entry` read.

    `entry_checksum` is that of entry `entry`. `token` is new for every document. `topics` is read alone: with topics in
    it, an earlier version has copied these alone, and the copy is no older one of the whole store.
    """

    format: Int64 = FORMAT_VERSION
    copy: Int64
    token: str
    horizon: Int64
    entry: Int64
    entry_checksum: str
    complete: bool
    topics: dict[str, Int64] = {}
    checksum: str = ""


_NOT_WRITTEN: Final = ("topics", "checksum")
_decoder: Final = msgspec.json.Decoder(CopyDocument)


def encode_copy(document: CopyDocument) -> bytes:
    """Return the document's bytes; `document.checksum` is not looked at."""
    fields = {name: getattr(document, name) for name in document.__struct_fields__ if name not in _NOT_WRITTEN}
    return seal_document(msgspec.json.encode(fields))[0]


def decode_copy(data: bytes, name: str, number: int) -> CopyDocument:
    """Return the document in `data`.

    Raises:
        FormatVersionError: it is of a newer format.
        DamagedObject: it is damaged, or is not document `number`.
    """
    open_document(data, name)
    try:
        document = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(data, name, CopyDocument, "a copy's document", error) from None
    if document.copy != number:
        raise DamagedObject(name, f"it is document {document.copy} of the copy")
    return document
