"""Options that change nothing unless another one is given too: a warning says which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pyspark_txnlog.options.sparkevents import log_event

__all__ = ["NEEDS", "Need", "warn_without_effect"]

_warned: set[tuple[str, str]] = set()


class Need(NamedTuple):
    """What the option `name` needs to have an effect: a test of the values that are given, and its words."""

    name: str
    is_met: Callable[[Mapping[str, Any]], bool]
    words: str


def _starts_at_a_time(values: Mapping[str, Any]) -> bool:
    return "startingTimestamp" in values or "startingOffsetsByTimestamp" in values


NEEDS: Final = (
    Need("maxTriggerDelay", lambda values: "minOffsetsPerTrigger" in values, "minOffsetsPerTrigger"),
    Need(
        "startingOffsetsByTimestampStrategy",
        _starts_at_a_time,
        "startingTimestamp or startingOffsetsByTimestamp",
    ),
    Need("autoOffsetReset", lambda values: values.get("startingOffsets") == "committed", "startingOffsets=committed"),
    Need("createTopicPartitions", lambda values: values.get("createTopic") is True, "createTopic=true"),
)


def warn_without_effect(values: Mapping[str, Any], use: str) -> None:
    """Log a warning for each option of `values`, those that are given, which has no effect. A process warns once."""
    for need in NEEDS:
        if need.name in values and not need.is_met(values) and (use, need.name) not in _warned:
            _warned.add((use, need.name))
            log_event("spark_option_without_effect", option=need.name, use=use, needs=need.words)
