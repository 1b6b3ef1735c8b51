"""Regular expressions that clients of a server send: matched by RE2, in time that grows with the texts alone.

Python's `re` backtracks, without end for some patterns, and keeps the interpreter's lock meanwhile. One pattern of one
client would stop a gateway for all of them. Kafka's brokers use RE2, too. It has no look-ahead and no back references.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn.values.arrowvalues import byte_strings

__all__ = ["matching_texts"]

_PATTERN_LENGTH_MAX: Final = 1_000


def matching_texts(pattern: str, texts: Iterable[str]) -> list[str]:
    """Return the texts of which a pattern matches the whole, in their order; a dot matches a line's end, too.

    Raises:
        ValueError: it is not a pattern of RE2, or has over 1,000 characters; the message says which.
    """
    if len(pattern) > _PATTERN_LENGTH_MAX:
        raise ValueError(f"a pattern has {len(pattern)} characters: expected at most {_PATTERN_LENGTH_MAX}")
    try:
        # Alone first: a pattern such as `a)|(b` is none, but would be one within the group.
        pc.match_substring_regex(_column([""]), pattern)
        found = list(texts)
        matched = pc.match_substring_regex(_column(found), rf"\A(?s:{pattern})\z")
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise ValueError(f"{pattern!r} is not a regular expression of RE2: {reason}") from error
    return [text for text, is_matched in zip(found, matched.to_pylist(), strict=True) if is_matched]


def _column(texts: list[str]) -> pa.Array:
    return byte_strings([text.encode() for text in texts], pa.string())
