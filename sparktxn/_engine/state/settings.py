"""Settings that the format gives a meaning, of each topic and of the store, and whose times records have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from sparktxn._engine.format.commands import AlterStore, CommandResult
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.requests import remember, remembered
from sparktxn._foundation.values.structs import PartitionState, StateKey, StateRecord, StoreState, TopicState
from sparktxn.errors import ErrorCode

REJECTS_HALF_MESSAGES: Final = "reject.transaction.message"

TIMESTAMP_TYPE: Final = "message.timestamp.type"
LOG_APPEND_TIME: Final = "LogAppendTime"

TABLE_FORMATS: Final = "table.formats"
"""The setting of a topic that is also a table: names of formats, with commas between them."""

FORMATS_OF_TABLES: Final = ("delta", "iceberg")

_VALUES: Final = {
    TIMESTAMP_TYPE: ("CreateTime", LOG_APPEND_TIME),
    "segment.format": ("parquet", "arrow"),
    REJECTS_HALF_MESSAGES: ("true", "false"),
}
"""The settings that the format gives a meaning, with their values; what others say concerns clients alone."""


def check_values(owner: str, settings: Mapping[str, str | None]) -> Refusal | None:
    """Refuse a value that the format gives no meaning; `owner` is whose settings they are, as the reason names it."""
    for setting, values in _VALUES.items():
        value = settings.get(setting)
        if value is not None and value not in values:
            return Refusal(
                ErrorCode.INVALID_CONFIG, f"setting {setting!r} of {owner} is {value!r}: expected {' or '.join(values)}"
            )
    formats = settings.get(TABLE_FORMATS)
    if formats and not set(formats.split(",")) <= set(FORMATS_OF_TABLES):
        expected = f"{' or '.join(FORMATS_OF_TABLES)}, or both with a comma between them"
        return Refusal(
            ErrorCode.INVALID_CONFIG, f"setting {TABLE_FORMATS!r} of {owner} is {formats!r}: expected {expected}"
        )
    return None


def unpublishable(name: str, settings: Mapping[str, str], store: StoreState) -> Refusal | None:
    """Return why a topic cannot be a table, if its settings say that it is one; None if it can."""
    if not settings.get(TABLE_FORMATS):
        return None
    if settings.get(TIMESTAMP_TYPE, store.topic_defaults.get(TIMESTAMP_TYPE)) != LOG_APPEND_TIME:
        return None
    return Refusal(
        ErrorCode.INVALID_CONFIG,
        f"topic {name!r} has {TIMESTAMP_TYPE} {LOG_APPEND_TIME} and cannot be a table ({TABLE_FORMATS}): "
        "its files have the times of producers, so that the table would show others than the topic",
    )


def changed(settings: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return settings after changes, in which None removes one."""
    kept = {name: value for name, value in settings.items() if name not in changes}
    return kept | {name: value for name, value in changes.items() if value is not None}


def alter_store(delta: Delta, command: AlterStore, context: Context) -> CommandResult | Refusal:
    """Set and remove settings of the store; topics that do not set them follow."""
    if known := remembered(delta, context, command.request_id):
        return known
    if refusal := check_values("the store", command.settings):
        return refusal
    if command.settings.get(TABLE_FORMATS):
        return Refusal(ErrorCode.INVALID_CONFIG, f"setting {TABLE_FORMATS!r} is for single topics: set it for each")
    store = delta.store()
    delta.put(replace(store, settings=changed(store.topic_defaults, command.settings) or UNSET))
    return remember(delta, context, command.request_id, CommandResult.EMPTY)


def half_rejection(topic: TopicState, store: StoreState) -> Refusal | None:
    """Return why a topic takes no half messages; None if it takes them. Its own setting stands above the store's."""
    own = topic.settings.get(REJECTS_HALF_MESSAGES)
    if (store.topic_defaults.get(REJECTS_HALF_MESSAGES) if own is None else own) != "true":
        return None
    whose = f"topic {topic.name!r}" if own is not None else "the store"
    return Refusal(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        f"sending transaction message to topic {topic.name!r} is forbidden: setting {REJECTS_HALF_MESSAGES!r} of "
        f"{whose} is true; an administrator sets it to false for the topic to take half messages",
    )


# Whose times a topic's records have: fixed once it has records, so that the times of these keep their meaning.
#
# Entries are not judged by this: logs were written before it, and their state must stay as it is. A process judges
# what it proposes, by the state after which its entry is put.

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
