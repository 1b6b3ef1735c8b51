"""Keys, values and headers as callers give them, and as records keep them."""

from __future__ import annotations

from collections.abc import Mapping

from sparktxn.message import Headers

__all__ = ["record_bytes", "record_headers", "record_timestamp"]


def record_bytes(what: str, given: object) -> bytes:
    """`given` as bytes; text is stored as UTF-8.

    Raises:
        TypeError: `given` is neither text nor bytes; `what` names it.
    """
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"{what} is {type(given).__name__}: expected str or bytes")


def record_headers(given: object) -> tuple[Headers | None, int]:
    """The headers, None for none, and how many bytes they have.

    Raises:
        TypeError: `given` is no mapping and no list of pairs, or a name is not text.
        UnicodeEncodeError: a name, or a value given as text, holds half a surrogate pair.
    """
    if isinstance(given, Mapping):
        given = list(given.items())
    if not isinstance(given, list | tuple):
        raise TypeError(f"headers is {type(given).__name__}: expected a dict, or a list of (str, str or bytes or None)")
    pairs: Headers = []
    size = 0
    for header in given:
        if not isinstance(header, tuple | list) or len(header) != 2 or not isinstance(header[0], str):
            raise TypeError(f"header {header!r} is not a pair: expected (str, str or bytes or None)")
        value = None if header[1] is None else record_bytes(f"header {header[0]!r}", header[1])
        pairs.append((header[0], value))
        # Encoded here, so that a name which is no text is the caller's error and not that of a whole segment.
        size += len(header[0].encode()) + (0 if value is None else len(value))
    return pairs or None, size


def record_timestamp(timestamp: int) -> int:
    """A record's own timestamp, in milliseconds.

    Raises:
        TypeError: it is not a whole number.
        ValueError: it is before 1970, as Kafka's ProducerRecord refuses it.
    """
    if type(timestamp) is not int:
        raise TypeError(f"timestamp must be int, not {type(timestamp).__name__}")
    if timestamp < 0:
        raise ValueError(f"timestamp is {timestamp} ms: expected 0 (now) or more")
    return timestamp
