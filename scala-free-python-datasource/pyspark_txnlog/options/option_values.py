"""How the text of an option of Spark becomes a value, where settings have no such kind (`sparktxn.config.values`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark_txnlog.options.offsets import COMMITTED, parse_json, parse_offsets, topic_named
from sparktxn import ConfigurationError
from sparktxn.config.times import TimeAgo, is_relative, parse_time_ago
from sparktxn.config.values import refusal
from sparktxn.values import arguments

if TYPE_CHECKING:
    from pyspark_txnlog.options.offsets import Offsets

__all__ = [
    "parse_assignment",
    "parse_identifier",
    "parse_names",
    "parse_pattern",
    "parse_start",
    "parse_text",
    "parse_topics",
]


def parse_text(named: str, value: str) -> str:
    """Return the text without spaces around it; it is not empty."""
    if not value.strip():
        raise refusal(named, value, "text")
    return value.strip()


def parse_identifier(named: str, value: str) -> str:
    """Return a name as Kafka's protocol and the log take it."""
    return arguments.identifier(named, parse_text(named, value))


def parse_names(named: str, value: str) -> tuple[str, ...]:
    """Return the names of a list; none is empty or there twice."""
    names = tuple(part.strip() for part in value.split(","))
    if not all(names):
        raise refusal(named, value, "names separated by commas, none of them empty")
    if len(set(names)) < len(names):
        raise refusal(named, value, "each name once")
    return names


def parse_topics(named: str, value: str) -> tuple[str, ...]:
    """Return the names of a list as Kafka's source takes them: empty ones do not count, and each counts once."""
    topics = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not topics:
        raise refusal(named, value, "names of topics separated by commas")
    return topics


def parse_assignment(named: str, value: str) -> dict[str, tuple[int, ...]]:
    """Return the partitions of each topic, in order and each once."""
    expected = 'JSON such as {"flights":[0,1]}'
    parsed = parse_json(named, value, f"expected {expected}")
    if not isinstance(parsed, dict) or not parsed:
        raise refusal(named, value, expected)
    for topic, partitions in parsed.items():
        topic_named(named, topic)
        whole = isinstance(partitions, list) and all(
            type(number) is int and 0 <= number <= arguments.INT32_MAX for number in partitions
        )
        if not whole or not partitions:
            raise ConfigurationError(
                f"{named} has {arguments.shown(partitions)} for topic {topic!r}: expected a list of "
                f"partition numbers, as in {expected}"
            )
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in parsed.items()}


def parse_start(named: str, value: str) -> Offsets | TimeAgo:
    """Return where a read starts: offsets, a time before now, or the offsets of a group."""
    if is_relative(value):
        return parse_time_ago(named, value)
    if value.strip().lower() == COMMITTED:
        return COMMITTED
    return parse_offsets(named, value, or_committed=True)


def parse_pattern(named: str, value: str) -> str:
    """Return a regular expression that can be compiled."""
    try:
        re.compile(parse_text(named, value))
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigurationError(
            f"{named} is {arguments.shown(value)}: expected a regular expression as Python has them ({error})"
        ) from None
    return value.strip()
