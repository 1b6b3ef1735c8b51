"""The fingerprint of a micro-batch: what a repetition must have again (PROTOCOL.md, "Micro-batches").

It begins with a digest of sizes, and a digest of the content follows, after the name of its kind. Earlier versions
recorded the sizes alone.
"""

from __future__ import annotations

from typing import Final

__all__ = ["fingerprint", "is_same_content", "is_same_size"]

_SEPARATOR: Final = ":"


def fingerprint(sizes: str, kind: str = "", content: str = "") -> str:
    """Return the fingerprint of rows with these digests of their sizes and, of this kind, of their content."""
    return _SEPARATOR.join([sizes, kind, content] if kind else [sizes])


def is_same_content(one: str, other: str) -> bool:
    """Return whether two fingerprints are of the same rows, as far as both say.

    Where they have no digest of one kind, sizes are compared: of rows of fixed width that are as many they are equal.
    """
    if _kind(one) == _kind(other):
        return one == other
    return is_same_size(one, other)


def is_same_size(one: str, other: str) -> bool:
    """Return whether two fingerprints are of as many rows in each topic, with as many bytes."""
    return one.partition(_SEPARATOR)[0] == other.partition(_SEPARATOR)[0]


def _kind(text: str) -> str:
    return text.partition(_SEPARATOR)[2].partition(_SEPARATOR)[0]
