"""What an engine's connector checks options with, of values and columns; and its clock, threads and messages."""

from __future__ import annotations

from sparktxn._foundation.config.values import (
    BYTES,
    MILLISECONDS,
    Parser,
    Time,
    TimeAgo,
    absolute_ms,
    boolean,
    choice,
    integer,
    is_relative,
    parse_time,
    parse_time_ago,
    refusal,
)
from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._foundation.process.clock import Clock, SystemClock
from sparktxn._foundation.process.events import Event, log_of
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import Result, TopicIdPartition, TopicPartitionKey
from sparktxn._rows.scan import columns
from sparktxn._rows.scan.columns import (
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOPIC,
    known_columns,
    metadata_names,
    one_layout,
    reserved_name,
)
from sparktxn._rows.scan.conditions import (
    Condition,
    checked_condition,
    conditions_of,
    matching,
    parse_conditions,
    typed_conditions,
)

__all__ = [
    "BYTES",
    "MILLISECONDS",
    "OFFSET",
    "PARTITION",
    "TIMESTAMP",
    "TIMESTAMP_TYPE",
    "TOPIC",
    "Clock",
    "Condition",
    "Event",
    "Parser",
    "Result",
    "SystemClock",
    "ThreadBackground",
    "Time",
    "TimeAgo",
    "TopicIdPartition",
    "TopicPartitionKey",
    "absolute_ms",
    "arguments",
    "boolean",
    "checked_condition",
    "choice",
    "columns",
    "conditions_of",
    "integer",
    "is_relative",
    "known_columns",
    "log_of",
    "matching",
    "metadata_names",
    "one_layout",
    "parse_conditions",
    "parse_time",
    "parse_time_ago",
    "refusal",
    "reserved_name",
    "typed_conditions",
]
