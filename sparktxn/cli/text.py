"""Values as text: times, progress, and names that a terminal must not take for commands."""

from __future__ import annotations

from typing import Any

from sparktxn.values.quantities import duration_text, size_text, time_text

__all__ = ["printable", "progress_text", "value_text"]


def printable(text: str) -> str:
    r"""Return `text` with control characters and halves of surrogate pairs as escapes.

    >>> printable("a\x1b[31mb\n")
    'a\\x1b[31mb\\n'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def progress_text(done_bytes: int, total_bytes: int, passed_s: float) -> str:
    """Return how much of a job is done, its rate, and, from its second second on, the time that is left.

    >>> progress_text(1_048_576, 4_194_304, 2.0)
    '1.0 MiB of 4.0 MiB, 512.0 KiB/s, 6 s left'
    """
    # What came while the job ran may make it larger than it was planned.
    text = f"{size_text(done_bytes)} of {size_text(max(done_bytes, total_bytes))}"
    if passed_s < 1 or not done_bytes:
        return text
    rate = done_bytes / passed_s
    left_ms = round(max(0, total_bytes - done_bytes) / rate) * 1_000
    return f"{text}, {size_text(rate)}/s, {duration_text(left_ms) if left_ms else '0 s'} left"


def value_text(name: str, value: Any) -> str:
    """Return a value as people read it; the name of its member says what it is."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if name.endswith("timestamp_ms"):
            return time_text(value)
        return duration_text(value) if name.endswith("_ms") and value >= 0 else str(value)
    if isinstance(value, dict):
        return ", ".join(f"{printable(str(key))}={value_text(str(key), item)}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(value_text("", item) for item in value) or "-"
    return printable(str(value)) or "''"
