"""Whether a topic can hold what another one has, with nothing lost; and the command that makes such a topic."""

from __future__ import annotations

import shlex
from typing import Final

from sparktxn.errors import ConfigurationError
from sparktxn.stage.stagedsegment import StageTopic
from sparktxn.values.structs import TopicState

__all__ = ["check_same_topic", "command_to_create"]

_LOG_APPEND: Final = "LogAppendTime"
_CREATE: Final = "CreateTime"
_TIMESTAMP_TYPE: Final = "message.timestamp.type"


def check_same_topic(uri: str, topic: TopicState, source_uri: str, source: TopicState) -> None:
    """Check that `topic` of the store `uri` has the columns, partitions and type of timestamps that `source` has.

    Raises:
        ConfigurationError: it differs; the text names both, and the command that helps.
    """
    here, there = f"topic {topic.name!r} of {uri!r}", f"topic {source.name!r} of the source {source_uri!r}"
    another = f"import into another topic: {command_to_create('NAME', source)}"
    if topic.schema != source.schema:
        raise ConfigurationError(
            f"{here} has {_columns(topic)}, and {there} has {_columns(source)}: expected the same columns; "
            f"{_columns_to_add(topic, source) or another}"
        )
    if topic.partition_count != source.partition_count:
        more = f"txnlog topics alter {topic.name} --partitions {source.partition_count}"
        raise ConfigurationError(
            f"the number of partitions of {here} is {topic.partition_count}, and that of {there} is "
            f"{source.partition_count}: expected the same number; "
            f"{more if topic.partition_count < source.partition_count else another}"
        )
    if _timestamp_type(topic) != _timestamp_type(source):
        raise ConfigurationError(
            f"{here} has {_TIMESTAMP_TYPE}={_timestamp_type(topic)}, and {there} has {_timestamp_type(source)}: its "
            f"timestamps would not be kept; txnlog topics alter {topic.name} --set "
            f"{_TIMESTAMP_TYPE}={_timestamp_type(source)}"
        )


def command_to_create(name: str, source: TopicState) -> str:
    """Return the command that creates a topic `name` with the columns, partitions and settings of `source`."""
    words = ["txnlog", "topics", "create", name, "--partitions", str(source.partition_count)]
    for column in source.schema or ():
        words += ["--column", _column(column)]
    for setting, value in sorted(source.settings.items()):
        words += ["--set", f"{setting}={value}"]
    return shlex.join(words)


def _timestamp_type(topic: TopicState) -> str:
    return _LOG_APPEND if StageTopic.of(topic).has_times_of_entries else _CREATE


def _columns(topic: TopicState) -> str:
    if topic.schema is None:
        return "Kafka's record"
    return f"the columns {', '.join(map(_column, topic.schema))}"


def _column(column: tuple[str, str, bool]) -> str:
    name, type_, nullable = column
    return f"{name} {type_}" if nullable else f"{name} {type_} not null"


def _columns_to_add(topic: TopicState, source: TopicState) -> str:
    """Return the command that gives `topic` the columns that it lacks; empty if there is none."""
    mine, theirs = topic.schema or (), source.schema or ()
    more = theirs[len(mine) :]
    if not mine or theirs[: len(mine)] != mine or not all(nullable for _, _, nullable in more):
        return ""
    words = [word for column in more for word in ("--column", _column(column))]
    return shlex.join(["txnlog", "topics", "alter", topic.name, *words])
