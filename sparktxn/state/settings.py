"""Settings that the format gives a meaning: of each topic, and of the store for topics that do not set them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from sparktxn.errors import ErrorCode
from sparktxn.format.commands import AlterStore, CommandResult
from sparktxn.state.delta import Context, Delta, Refusal
from sparktxn.state.requests import remember, remembered
from sparktxn.values.structs import StoreState, TopicState

__all__ = ["REJECTS_HALF_MESSAGES", "alter_store", "changed", "check_values", "half_rejection"]

REJECTS_HALF_MESSAGES: Final = "reject.transaction.message"

_VALUES: Final = {
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
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
    return None


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
