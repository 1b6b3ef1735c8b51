"""Where a read starts and ends: offsets as options say them, resolved against a read view."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sparktxn import ConfigurationError, RetentionPassed, arguments

if TYPE_CHECKING:
    from sparktxn import ReadView

__all__ = [
    "EARLIEST",
    "LATEST",
    "Partition",
    "StartingOffsets",
    "explicit_offset",
    "parse_json",
    "parse_offsets",
    "partitions_of",
    "topic_named",
    "within_log",
]

EARLIEST: Final = -2
LATEST: Final = -1

Partition = tuple[str, int]
StartingOffsets = str | dict[str, dict[int, int]]
"""``earliest``, ``latest``, or offsets by topic and partition, where -2 means earliest and -1 latest."""

_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")

_EXPECTED: Final = 'expected earliest, latest or JSON such as {"flights":{"0":23,"1":-2}}'


def parse_json(name: str, value: str, expected: str) -> Any:
    """What an option's JSON text holds.

    Raises:
        ConfigurationError: it is not JSON, or nested too deep, or holds a number too long to be one.
    """
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"option {name!r} is not JSON at line {error.lineno}, column {error.colno} ({error.msg}): "
            f"{arguments.shown(value)}; {expected}"
        ) from None
    except (ValueError, RecursionError):  # a number with thousands of digits; lists in lists without end
        raise ConfigurationError(f"option {name!r} is not JSON that can be read; {expected}") from None


def parse_offsets(name: str, value: str) -> StartingOffsets:
    """The offsets of an option's text.

    Raises:
        ConfigurationError: names the option, and the position or the topic and partition that is wrong.
    """
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        return word
    parsed = parse_json(name, value, _EXPECTED)
    if not isinstance(parsed, dict) or not parsed:
        raise ConfigurationError(f"option {name!r} is {arguments.shown(value)}: {_EXPECTED}")
    return {
        topic: _topic_offsets(name, topic_named(name, topic), by_partition) for topic, by_partition in parsed.items()
    }


def topic_named(name: str, topic: str) -> str:
    """Return the name of a topic in an option's JSON, where an escape may be half of a surrogate pair.

    Raises:
        ConfigurationError: it is not a name.
    """
    return arguments.identifier(f"a topic of option {name!r}", topic)


def _topic_offsets(name: str, topic: str, by_partition: Any) -> dict[int, int]:
    if not isinstance(by_partition, dict) or not by_partition:
        raise ConfigurationError(
            f"option {name!r} has {arguments.shown(by_partition)} for topic {topic!r}: expected offsets by partition, "
            f'as in {{"{topic}":{{"0":23}}}}'
        )
    offsets: dict[int, int] = {}
    for partition, offset in by_partition.items():
        if not _PARTITION.fullmatch(partition) or int(partition) > arguments.INT32_MAX:
            raise ConfigurationError(
                f"option {name!r} has partition {partition!r} for topic {topic!r}: expected a number from 0"
            )
        if type(offset) is not int or not EARLIEST <= offset <= arguments.INT64_MAX:
            raise ConfigurationError(
                f"option {name!r} has offset {arguments.shown(offset)} for partition {partition} of topic {topic!r}: "
                "expected a number from 0, or -2 for earliest, or -1 for latest"
            )
        offsets[int(partition)] = offset
    return offsets


def partitions_of(view: ReadView, assigned: Mapping[str, tuple[int, ...]] | None) -> list[Partition]:
    """The partitions to read, in order: those that are assigned, or all of the view.

    Raises:
        ConfigurationError: an assigned partition does not exist.
    """
    if assigned is None:
        return sorted(view.partitions)
    partitions = sorted((topic, partition) for topic, numbers in assigned.items() for partition in numbers)
    for topic, partition in partitions:
        _check_partition("assign", view, topic, partition)
    return partitions


def _check_partition(name: str, view: ReadView, topic: str, partition: int) -> None:
    count = view.topics[topic].partition_count
    if partition >= count:
        raise ConfigurationError(
            f"option {name!r} names partition {partition} of topic {topic!r}, which has partitions 0 to {count - 1}"
        )


def explicit_offset(
    name: str,
    offsets: StartingOffsets,
    view: ReadView,
    partition: Partition,
    *,
    latest: Mapping[Partition, int],
    missing: int,
) -> int:
    """The offset that an option gives for `partition`; `latest` is where its topic ends, `missing` is the offset if it
    gives none.

    Raises:
        ConfigurationError: the option names a partition that does not exist, or an offset past the end.
    """
    topic, number = partition
    if isinstance(offsets, str):
        asked = EARLIEST if offsets == "earliest" else LATEST
    else:
        by_partition = offsets.get(topic, {})
        for named in by_partition:
            _check_partition(name, view, topic, named)
        asked = by_partition.get(number, missing)
    if asked == EARLIEST:
        return view.partitions[partition].log_start_offset
    if asked == LATEST:
        return latest[partition]
    if asked > latest[partition]:
        raise ConfigurationError(
            f"option {name!r} has offset {asked} for partition {number} of topic {topic!r}: the last that can be "
            f"read is {latest[partition]}"
        )
    return asked


def within_log(view: ReadView, partition: Partition, offset: int, *, fail: bool) -> int:
    """`offset`, or where the log starts now if that has moved past it.

    Raises:
        RetentionPassed: it has, and `fail` is set.
    """
    start = view.partitions[partition].log_start_offset
    if offset < start and fail:
        topic, number = partition
        raise RetentionPassed(
            f"offset {offset} of partition {number} of topic {topic!r} was removed: the log starts at {start}. Set the "
            "option failOnDataLoss to false to go on from there"
        )
    return max(offset, start)
