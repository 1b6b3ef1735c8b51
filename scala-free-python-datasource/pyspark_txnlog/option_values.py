"""How the text of an option becomes a value: one parser for each kind, which names the option in its error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyspark_txnlog.offsets import COMMITTED, parse_json, parse_offsets, topic_named
from sparktxn import ConfigurationError, arguments, did_you_mean
from sparktxn.scan.times import TimeAgo, is_relative, parse_time_ago

if TYPE_CHECKING:
    from pyspark_txnlog.offsets import Offsets

__all__ = [
    "choice_parser",
    "parse_assignment",
    "parse_boolean",
    "parse_identifier",
    "parse_names",
    "parse_pattern",
    "parse_start",
    "parse_text",
    "parse_topics",
    "whole_number_parser",
]

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}")


def _refuse(name: str, value: object, expected: str) -> ConfigurationError:
    return ConfigurationError(f"option {name!r} is {arguments.shown(value)}: expected {expected}")


def parse_text(name: str, value: str) -> str:
    """Return the text without spaces around it; it is not empty."""
    if not value.strip():
        raise _refuse(name, value, "text")
    return value.strip()


def parse_identifier(name: str, value: str) -> str:
    """Return a name as Kafka's protocol and the log take it."""
    return arguments.identifier(f"option {name!r}", parse_text(name, value))


def parse_boolean(name: str, value: str) -> bool:
    """Return the truth value, which is written in any case of letters."""
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise _refuse(name, value, "true or false")
    return lowered == "true"


def whole_number_parser(minimum: int, maximum: int = arguments.INT64_MAX) -> Callable[[str, str], int]:
    """Return a parser of whole numbers from `minimum` to `maximum`, both included."""

    def parse(name: str, value: str) -> int:
        digits = value.strip()
        parsed = int(digits) if _WHOLE_NUMBER.fullmatch(digits) else None
        if parsed is None or not minimum <= parsed <= maximum:
            raise _refuse(name, value, f"a whole number from {minimum} to {maximum}")
        return parsed

    return parse


def choice_parser(*allowed: str) -> Callable[[str, str], str]:
    """Return a parser of the `allowed` words, in any case of letters."""

    def parse(name: str, value: str) -> str:
        word = value.strip().lower()
        if word not in allowed:
            raise ConfigurationError(
                f"option {name!r} is {value!r}: expected one of {', '.join(allowed)}{did_you_mean(word, allowed)}"
            )
        return word

    return parse


def parse_names(name: str, value: str) -> tuple[str, ...]:
    """Return the names of a list; none is empty or there twice."""
    names = tuple(part.strip() for part in value.split(","))
    if not all(names):
        raise _refuse(name, value, "names separated by commas, none of them empty")
    if len(set(names)) < len(names):
        raise _refuse(name, value, "each name once")
    return names


def parse_topics(name: str, value: str) -> tuple[str, ...]:
    """Return the names of a list as Kafka's source takes them: empty ones do not count, and each counts once."""
    topics = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not topics:
        raise _refuse(name, value, "names of topics separated by commas")
    return topics


def parse_assignment(name: str, value: str) -> dict[str, tuple[int, ...]]:
    """Return the partitions of each topic, in order and each once."""
    expected = 'JSON such as {"flights":[0,1]}'
    parsed = parse_json(name, value, f"expected {expected}")
    if not isinstance(parsed, dict) or not parsed:
        raise _refuse(name, value, expected)
    for topic, partitions in parsed.items():
        topic_named(name, topic)
        whole = isinstance(partitions, list) and all(
            type(number) is int and 0 <= number <= arguments.INT32_MAX for number in partitions
        )
        if not whole or not partitions:
            raise ConfigurationError(
                f"option {name!r} has {arguments.shown(partitions)} for topic {topic!r}: expected a list of "
                f"partition numbers, as in {expected}"
            )
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in parsed.items()}


def parse_start(name: str, value: str) -> Offsets | TimeAgo:
    """Return where a read starts: offsets, a time before now, or the offsets of a group."""
    if is_relative(value):
        return parse_time_ago(name, value)
    if value.strip().lower() == COMMITTED:
        return COMMITTED
    return parse_offsets(name, value)


def parse_pattern(name: str, value: str) -> str:
    """Return a regular expression that can be compiled."""
    try:
        re.compile(parse_text(name, value))
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigurationError(
            f"option {name!r} is {arguments.shown(value)}: expected a regular expression as Python has them ({error})"
        ) from None
    return value.strip()
