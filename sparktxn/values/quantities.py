"""Sizes, durations and times as people read them: what the command prints, and what the console shows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

__all__ = ["duration_text", "size_text", "time_text"]

_STEP: Final = 1_024
_SIZES: Final = ("KiB", "MiB", "GiB", "TiB")
_DURATIONS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))


def size_text(size_bytes: float) -> str:
    """Return a size in the greatest unit of which it has at least one.

    >>> size_text(999), size_text(1_500_000)
    ('999 B', '1.4 MiB')
    """
    if size_bytes < _STEP:
        return f"{size_bytes:.0f} B"
    value, unit = size_bytes / _STEP, _SIZES[0]
    for unit in _SIZES:
        # What rounds to the next unit has it.
        if round(value, 1) < _STEP or unit == _SIZES[-1]:
            break
        value /= _STEP
    return f"{value:.1f} {unit}"


def duration_text(duration_ms: int) -> str:
    """Return a duration in its two greatest units.

    >>> duration_text(90_061_000), duration_text(250), duration_text(-60_000)
    ('1 d 1 h', '250 ms', '-1 min')
    """
    sign, left = ("-" if duration_ms < 0 else ""), abs(duration_ms)
    parts: list[str] = []
    for unit, length_ms in _DURATIONS:
        count, left = divmod(left, length_ms)
        if count or (unit == "ms" and not parts):
            parts.append(f"{count} {unit}")
    return sign + " ".join(parts[:2])


def time_text(timestamp_ms: int) -> str:
    """Return a time in milliseconds as ISO 8601 in UTC, or as it is if no date can say it.

    >>> time_text(0), time_text(2**62)
    ('1970-01-01T00:00:00.000Z', '4611686018427387904 ms')
    """
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
