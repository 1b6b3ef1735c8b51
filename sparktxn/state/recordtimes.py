"""Whose times a topic's records have: fixed once it has records, so that the times of these keep their meaning.

Entries are not judged by this: logs were written before it, and their state must stay as it is. A process judges what
it proposes, by the state after which its entry is put.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sparktxn.errors import ErrorCode
from sparktxn.state.delta import Refusal
from sparktxn.state.settings import LOG_APPEND_TIME, TIMESTAMP_TYPE, changed
from sparktxn.values.structs import PartitionState, StateKey, StateRecord, TopicState

__all__ = ["Condition", "changes_times", "has_times_of_entries", "is_fixed", "times_changed"]

Get = Callable[[StateKey], StateRecord | None]
Condition = Callable[[Get], Refusal | None]
"""Returns why a list must not follow a state, though the state would take it."""

_CREATE_TIME: Final = "CreateTime"


def has_times_of_entries(settings: Mapping[str, str]) -> bool:
    """Return whether records of a topic with these settings have the times of their entries."""
    return settings.get(TIMESTAMP_TYPE) == LOG_APPEND_TIME


def changes_times(settings: Mapping[str, str], changes: Mapping[str, str | None]) -> bool:
    """Return whether changes of settings change whose times records have."""
    return has_times_of_entries(settings) != has_times_of_entries(changed(settings, changes))


def is_fixed(get: Get, name: str, topic_id: int, changes: Mapping[str, str | None]) -> Refusal | None:
    """Refuse a change of whose times the records of a topic have, if the topic has ever had records."""
    topic = get(("topic", name))
    if not isinstance(topic, TopicState) or topic.topic_id != topic_id:
        return None  # the state says so
    if not changes_times(topic.settings, changes):
        return None
    for number in range(topic.partition_count):
        partition = get(("partition", topic_id, number))
        if isinstance(partition, PartitionState) and partition.log_end_offset > 0:
            kept, wanted = _CREATE_TIME, LOG_APPEND_TIME
            if has_times_of_entries(topic.settings):
                kept, wanted = wanted, kept
            return Refusal(
                ErrorCode.INVALID_CONFIG,
                f"setting {TIMESTAMP_TYPE!r} of topic {name!r} cannot become {wanted}: it has had records, whose "
                f"times would change their meaning; keep {kept}, or create another topic with {wanted} and copy them",
            )
    return None


def times_changed(get: Get, by_entry: Mapping[str, tuple[int, bool]]) -> Refusal | None:
    """Refuse records whose topic has changed whose times they get.

    Args:
        get: returns a record of the state.
        by_entry: by the names of topics, their ids, and whether the records are to get the times of their entry.
    """
    for name, (topic_id, is_by_entry) in by_entry.items():
        topic = get(("topic", name))
        if not isinstance(topic, TopicState) or topic.topic_id != topic_id:
            continue  # the state says so
        if has_times_of_entries(topic.settings) != is_by_entry:
            return Refusal(
                ErrorCode.INVALID_TIMESTAMP,
                f"setting {TIMESTAMP_TYPE!r} of topic {name!r} was changed before its first records: send them again",
            )
    return None
