"""Counts with their nouns, as people write them."""

from __future__ import annotations

__all__ = ["counted"]

_ES = ("s", "x", "ch", "sh")


def counted(count: int, noun: str, shown: str | None = None) -> str:
    """Return a count with its noun, in the plural unless it is 1; `shown` is the count as text where that differs.

    >>> counted(1, "topic"), counted(2, "entry"), counted(0, "address"), counted(1_000, "record", "1,000")
    ('1 topic', '2 entries', '0 addresses', '1,000 records')
    """
    text = str(count) if shown is None else shown
    if count == 1:
        return f"{text} {noun}"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{text} {noun[:-1]}ies"
    return f"{text} {noun}es" if noun.endswith(_ES) else f"{text} {noun}s"
