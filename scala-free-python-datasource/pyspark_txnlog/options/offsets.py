"""Offsets and timestamps by topic and partition, as options say them in JSON, and the partitions of a read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from sparktxn import ConfigurationError, RetentionPassed
from sparktxn.store.options import TopicPartitionKey, arguments

if TYPE_CHECKING:
    from sparktxn import ReadView, Store
    from sparktxn.store.reading import Isolation

EARLIEST: Final = -2
LATEST: Final = -1
COMMITTED: Final = "committed"
"""In place of offsets: those that a consumer group has committed."""

ByPartition = dict[str, dict[int, int]]
"""Numbers by topic and partition."""
Offsets = str | ByPartition
"""``earliest``, ``latest``, or offsets by topic and partition, where -2 means earliest and -1 latest."""

_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")

_EXPECTED: Final = 'expected earliest, latest or JSON such as {"flights":{"0":23,"1":-2}}'
_EXPECTED_TIMESTAMPS: Final = 'expected JSON such as {"flights":{"0":1700000000000,"1":1700000000000}}'


def parse_json(named: str, value: str, expected: str, fraction: Callable[[str], Any] = float) -> Any:
    """Return what an option's JSON text holds; `fraction` makes a number of the text of one that is not whole.

    Raises:
        ConfigurationError: it is not JSON, or nested too deep, or holds a number too long to be one, or a name twice.
    """

    def named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # The last one would count, and what the others say be lost.
        found: dict[str, Any] = {}
        for key, item in pairs:
            if key in found:
                raise ConfigurationError(f"{named} names {arguments.shown(key)} twice: expected each name once")
            found[key] = item
        return found

    try:
        return json.loads(value, object_pairs_hook=named_once, parse_float=fraction)
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"{named} is not JSON at line {error.lineno}, column {error.colno} ({error.msg}): "
            f"{arguments.shown(value)}; {expected}"
        ) from None
    except ConfigurationError:
        raise
    except (ValueError, RecursionError):  # a number with thousands of digits; lists in lists without end
        raise ConfigurationError(f"{named} is not JSON that can be read; {expected}") from None


def parse_offsets(named: str, value: str, *, or_committed: bool = False) -> Offsets:
    """Return the offsets of an option's text; the error names `committed` too where the option takes it.

    Raises:
        ConfigurationError: names the option, and the position or the topic and partition that is wrong.
    """
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        return word
    expected = f"{_EXPECTED}, or {COMMITTED}" if or_committed else _EXPECTED
    return _by_partition(named, value, "offset", EARLIEST, expected)


def parse_timestamps(named: str, value: str) -> ByPartition:
    """Return the timestamps of an option's text, in milliseconds since 1970.

    Raises:
        ConfigurationError: names the option, and the position or the topic and partition that is wrong.
    """
    return _by_partition(named, value, "timestamp", 0, _EXPECTED_TIMESTAMPS)


def _by_partition(named: str, value: str, what: str, minimum: int, expected: str) -> ByPartition:
    parsed = parse_json(named, value, expected)
    if not isinstance(parsed, dict) or not parsed:
        raise ConfigurationError(f"{named} is {arguments.shown(value)}: {expected}")
    return {
        topic: _of_topic(named, topic_named(named, topic), numbers, what, minimum) for topic, numbers in parsed.items()
    }


def topic_named(named: str, topic: str) -> str:
    """Return the name of a topic in an option's JSON, where an escape may be half of a surrogate pair.

    Raises:
        ConfigurationError: it is not a name.
    """
    return arguments.identifier(f"a topic of {named}", topic)


def _of_topic(named: str, topic: str, numbers: Any, what: str, minimum: int) -> dict[int, int]:
    if not isinstance(numbers, dict) or not numbers:
        raise ConfigurationError(
            f"{named} has {arguments.shown(numbers)} for topic {topic!r}: expected {what}s by partition, "
            f'as in {{"{topic}":{{"0":23}}}}'
        )
    found: dict[int, int] = {}
    for partition, number in numbers.items():
        if not _PARTITION.fullmatch(partition) or int(partition) > arguments.INT32_MAX:
            raise ConfigurationError(
                f"{named} has partition {partition!r} for topic {topic!r}: expected a number from 0"
            )
        if type(number) is not int or not minimum <= number <= arguments.INT64_MAX:
            expected = (
                "milliseconds since 1970" if minimum == 0 else "a number from 0, or -2 for earliest, or -1 for latest"
            )
            raise ConfigurationError(
                f"{named} has {what} {arguments.shown(number)} for partition {partition} of topic {topic!r}: "
                f"expected {expected}"
            )
        found[int(partition)] = number
    return found


def partitions_of(view: ReadView, assigned: Mapping[str, tuple[int, ...]] | None) -> list[TopicPartitionKey]:
    """Return the partitions to read, in order: those that are assigned, of topics in the view, or all of the view.

    Raises:
        ConfigurationError: an assigned partition does not exist.
    """
    if assigned is None:
        return sorted(view.partitions)
    partitions = sorted(
        (topic, partition) for topic, numbers in assigned.items() if topic in view.topics for partition in numbers
    )
    for topic, partition in partitions:
        partition_exists("assign", view, topic, partition)
    return partitions


def partition_exists(name: str, view: ReadView, topic: str, partition: int) -> None:
    """Raise if a topic of the view does not have a partition that the option `name` names.

    Raises:
        ConfigurationError: it does not; the message says which partitions it has.
    """
    count = view.topics[topic].partition_count
    if partition >= count:
        raise ConfigurationError(
            f"option {name!r} names partition {partition} of topic {topic!r}, which has partitions 0 to {count - 1}"
        )


def within_log(view: ReadView, partition: TopicPartitionKey, offset: int, *, fail: bool) -> int:
    """Return `offset`, or where the log starts now if that has moved past it.

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


def readable_ranges(
    store: Store, view: ReadView, starts: Mapping[TopicPartitionKey, int], isolation: Isolation
) -> dict[TopicPartitionKey, tuple[int, int]]:
    """Return what a read in offset order has from `starts` on: to the last stable offsets, or the ends of the log."""
    ranges = store.ranges(view, isolation=isolation)
    return {key: (start, max(start, ranges[key][1])) for key, start in starts.items()}
