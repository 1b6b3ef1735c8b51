"""What the connector logs: each message by its name, with named fields, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from logging import ERROR, INFO, WARNING
from typing import Any, Final, NamedTuple

from sparktxn.store.options import Event, log_of

_SPARK: Final = "sparktxn.spark"

EVENTS: Final[dict[str, Event]] = {
    "spark_backlog_unknown": Event(WARNING, "the backlog of the query is not known: %(error)s", _SPARK),
    "spark_batch_passed_over": Event(INFO, "%(batch)s %(writer_id)r is skipped: a later one is committed", _SPARK),
    "spark_columns_left_out": Event(
        WARNING, "topics %(topics)s have gained columns that the read leaves out: %(columns)s", _SPARK
    ),
    "spark_conditions_not_used": Event(
        WARNING,
        "the read of topics %(topics)s takes all of its %(segments)d segments, though a condition on %(columns)s could "
        "leave some out: %(reason)s; scan(), or the option filters, leaves them out",
        _SPARK,
    ),
    "spark_deletes_missed": Event(
        WARNING,
        "a compaction has removed deletes from partition %(partition)d of topic %(topic)r that follow offset "
        "%(offset)d, which the query has not read: what is made of its rows may have deleted rows",
        _SPARK,
    ),
    "spark_gauges_not_exported": Event(ERROR, "the gauges of Spark's queries are not exported", _SPARK),
    "spark_gauges_not_written": Event(
        WARNING, "the gauges of Spark's queries are not written to %(file)s: %(error)s", _SPARK
    ),
    "spark_group_offsets_not_committed": Event(
        WARNING, "the offsets of group %(group_id)r are not committed for this micro-batch: %(error)s", _SPARK
    ),
    "spark_option_without_effect": Event(
        WARNING, "option %(option)r of %(use)s has no effect without %(needs)s", _SPARK
    ),
    "spark_options_ignored": Event(
        WARNING, "options without a meaning for %(use)s of txnlog were ignored: %(options)s", _SPARK
    ),
    "spark_progress": Event(INFO, "%(line)s", _SPARK),
    "spark_query_ended": Event(INFO, "query %(query)r has ended%(how)s", _SPARK),
    "spark_rows_left_out": Event(WARNING, "%(message)s", _SPARK),
    "spark_topic_lost": Event(
        WARNING, "topic %(topic)r %(what)s: the query continues with the records of existing topics", _SPARK
    ),
    "spark_view_expired": Event(
        WARNING,
        "the view at entry %(entry)d has expired: its micro-batch is read in the newest one, and has other "
        "rows if a compaction, a retention or delete_records has removed some of them since",
        _SPARK,
    ),
}
"""All messages by name."""

log_event: Final = log_of(EVENTS)
"""Log a message of the connector."""


# Options that change nothing unless another one is given too: a warning says which.

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
