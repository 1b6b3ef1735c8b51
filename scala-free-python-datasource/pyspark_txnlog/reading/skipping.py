"""Which segments a read leaves out, because no record of theirs can meet a condition on the timestamp."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

if TYPE_CHECKING:
    from sparktxn import ReadTask

__all__ = ["is_on_timestamp", "without_skipped"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_MAY_MEET: Final[dict[type, Callable[[int, int, int], bool]]] = {
    EqualTo: lambda first, last, value: first <= value <= last,
    GreaterThan: lambda first, last, value: last > value,
    GreaterThanOrEqual: lambda first, last, value: last >= value,
    LessThan: lambda first, last, value: first < value,
    LessThanOrEqual: lambda first, last, value: first <= value,
}
"""Whether a record from `first` to `last` can meet a comparison with `value`, all of them in microseconds."""


def is_on_timestamp(condition: Filter, name: str) -> bool:
    """Return True if `condition` compares the column `name`, a record's timestamp, with a moment."""
    if type(condition) not in _MAY_MEET:
        return False
    known: Any = condition
    return known.attribute == (name,) and isinstance(known.value, datetime) and known.value.tzinfo is not None


def without_skipped(tasks: Iterable[ReadTask], conditions: Sequence[Any]) -> list[ReadTask]:
    """Return `tasks` without segments none of whose records can meet all `conditions`, and without empty tasks.

    The log has the least and the greatest timestamp of each segment, in milliseconds. A task of an internal topic has
    no segments, and stays as it is.
    """
    checks = [(_MAY_MEET[type(condition)], _microseconds(condition.value)) for condition in conditions]
    kept = []
    for task in tasks:
        segments = tuple(
            segment
            for segment in task.segments
            if all(
                check(segment.timestamp_min_ms * 1_000, segment.timestamp_max_ms * 1_000, at) for check, at in checks
            )
        )
        if len(segments) == len(task.segments):
            kept.append(task)
        elif segments:
            kept.append(replace(task, segments=segments))
    return kept


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
