"""Settings of topics, and of the store for all topics that do not set them; the changes of a topic in one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from sparktxn._engine.format.commands import AlterStore, AlterTopic
from sparktxn._engine.format.schema import parse_type
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.knownstate import KnownState
from sparktxn._engine.state.delta import Refusal
from sparktxn._engine.state.keyed import FIXED_SETTINGS, is_keyed, table_problem
from sparktxn._engine.state.settings import TIMESTAMP_TYPE, changes_times, is_fixed
from sparktxn._foundation.config.topic import (
    IGNORED_TOPIC_SETTINGS,
    LIST_SETTINGS,
    STORE_WIDE_SETTINGS,
    TOPIC_SETTINGS,
    check_store_wide_settings,
    check_topic_settings,
    setting_text,
)
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import TopicState
from sparktxn._kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    ResourceType,
    node_of,
)
from sparktxn.admin.topics import add_columns, changeable_topic, create_partitions, existing_topic, refusal
from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode

_Check = Callable[[Mapping[str, Any]], dict[str, str]]

_NODE: Final = str(node_of("").id)


def check_given_once(resource: ConfigResource, resources: Sequence[ConfigResource]) -> None:
    """Refuse a resource that one call is to change twice, for its answer is one future.

    Raises:
        KafkaException: ``INVALID_REQUEST``.
    """
    if resources.count(resource) > 1:
        reason = f"{resource} is given twice: expected one ConfigResource with all of its changes"
        raise refusal(ErrorCode.INVALID_REQUEST, reason)


def describe_configs(log: Log, resource: ConfigResource) -> dict[str, ConfigEntry]:
    """Return all settings of a topic or of the store, as last known, with their defaults.

    A topic that does not set what the store sets has the store's value.

    Raises:
        KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``; ``INVALID_REQUEST``: the resource is neither.
    """
    store_wide = log.store_state().topic_defaults
    if _is_store(resource):
        return {setting.name: _shown(setting.name, setting.default, {}, store_wide) for setting in STORE_WIDE_SETTINGS}
    own = existing_topic(log, resource.name).settings
    entries = {setting.name: _shown(setting.name, setting.default, own, store_wide) for setting in TOPIC_SETTINGS}
    for name in sorted(own.keys() & IGNORED_TOPIC_SETTINGS):
        entries[name] = ConfigEntry(name, own[name], ConfigSource.DYNAMIC_TOPIC_CONFIG, is_default=False)
    return entries


def alter_configs(log: Log, resource: ConfigResource, *, validate_only: bool) -> None:
    """Set and remove settings of a topic or of the store, and words of those that are lists, all or none.

    A list that another administrator changes at the same moment is as the later change says.

    Raises:
        KafkaException: ``INVALID_CONFIG``: a name or a value is wrong; those of `describe_configs`.
    """
    is_store = _is_store(resource)
    log.refresh()
    own = {} if is_store else changeable_topic(log, resource.name).settings
    changes = _changes(resource.incremental_configs, own, is_store=is_store)
    _submit(log, resource, changes, validate_only=validate_only)


def replace_configs(log: Log, resource: ConfigResource, *, validate_only: bool) -> None:
    """Give a topic or the store the settings of `set_config` alone: its others return to their defaults.

    Raises:
        KafkaException: ``INVALID_CONFIG``: a name or a value is wrong; those of `describe_configs`.
    """
    is_store = _is_store(resource)
    log.refresh()
    known = log.store_state().topic_defaults if is_store else changeable_topic(log, resource.name).settings
    try:
        wanted = _check_of(is_store)(resource.set_config_dict)
    except ConfigurationError as error:
        raise refusal(ErrorCode.INVALID_CONFIG, str(error)) from None
    # A key is given when a topic is created, and does not return to a default.
    returning = [name for name in known if name not in FIXED_SETTINGS]
    changes: dict[str, str | None] = {**dict.fromkeys(returning), **wanted}
    if changes:
        _submit(log, resource, changes, validate_only=validate_only)


def _submit(log: Log, resource: ConfigResource, changes: dict[str, str | None], *, validate_only: bool) -> None:
    if _is_store(resource):
        if not validate_only:
            log.submit([AlterStore(log.ids.token(), changes)])
        return
    topic = changeable_topic(log, resource.name)
    keeps_times = partial(is_fixed, name=topic.name, topic_id=topic.topic_id, changes=changes)
    with log.known() as known:
        refused = keeps_times(known.get) or _refuse_halves(known, topic, changes) or _refuse_table(topic, changes)
    if refused is not None:
        raise CommandRefused(refused.code, refused.reason)
    if not validate_only:
        log.submit([AlterTopic(log.ids.token(), topic.name, topic.topic_id, changes)], keeps_times)


def _refuse_halves(known: KnownState, topic: TopicState, changes: Mapping[str, str | None]) -> Refusal | None:
    """Refuse a change of the times of a topic for which half messages wait: they get them once they are committed."""
    if TIMESTAMP_TYPE not in changes or not changes_times(topic.settings, changes):
        return None
    for half in known.halves():
        if any(segment.topic_id == topic.topic_id for segment in half.segments):
            reason = f"half transaction {half.transaction_id!r} has messages for topic {topic.name!r}: end it first"
            return Refusal(ErrorCode.INVALID_CONFIG, reason)
    return None


def _refuse_table(topic: TopicState, changes: Mapping[str, str | None]) -> Refusal | None:
    problem = table_problem(changes) if is_keyed(topic) else None
    return None if problem is None else Refusal(ErrorCode.INVALID_CONFIG, f"topic {topic.name!r}: {problem}")


def _is_store(resource: ConfigResource) -> bool:
    """Return True for the store, False for a topic; Kafka's brokers are the store's one node.

    Raises:
        KafkaException: ``INVALID_REQUEST``: it is neither.
    """
    if resource.restype is ResourceType.TOPIC:
        return False
    if resource.restype is ResourceType.BROKER and resource.name in ("", _NODE):
        return True
    raise refusal(
        ErrorCode.INVALID_REQUEST,
        f"{resource} has no settings here: expected ConfigResource.Type.TOPIC, or BROKER with the name {_NODE!r} for "
        "the store",
    )


def _shown(name: str, default: object, own: Mapping[str, str], store_wide: Mapping[str, str]) -> ConfigEntry:
    if name in own:
        return ConfigEntry(name, own[name], ConfigSource.DYNAMIC_TOPIC_CONFIG, is_default=False)
    if name in store_wide:
        return ConfigEntry(name, store_wide[name], ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, is_default=False)
    return ConfigEntry(name, setting_text(name, default), ConfigSource.DEFAULT_CONFIG, is_default=True)


def _check_of(is_store: bool) -> _Check:
    return check_store_wide_settings if is_store else check_topic_settings


def _changes(entries: Sequence[ConfigEntry], own: Mapping[str, str], *, is_store: bool) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    if not entries:
        raise refusal(ErrorCode.INVALID_REQUEST, "no setting is given: pass incremental_configs=[ConfigEntry(…)]")
    for entry in arguments.items("incremental_configs", entries, ConfigEntry):
        if entry.name in changes:
            reason = f"setting {arguments.shown(entry.name)} is given twice: expected one ConfigEntry of it"
            raise refusal(ErrorCode.INVALID_REQUEST, reason)
        try:
            changes |= _change(entry, own, is_store=is_store)
        except ConfigurationError as error:
            raise refusal(ErrorCode.INVALID_CONFIG, str(error)) from None
    return changes


def _change(entry: ConfigEntry, own: Mapping[str, str], *, is_store: bool) -> Mapping[str, str | None]:
    check = _check_of(is_store)
    match entry.incremental_operation:
        case AlterConfigOpType.SET:
            return check({entry.name: entry.value})
        case AlterConfigOpType.DELETE:
            if is_store or entry.name not in IGNORED_TOPIC_SETTINGS:
                check({entry.name: _default_of(entry.name)})
            return {entry.name: None}
        case AlterConfigOpType.APPEND | AlterConfigOpType.SUBTRACT:
            return check({entry.name: _altered_list(entry, own)})
        case operation:
            operations = "SET, DELETE, APPEND or SUBTRACT"
            reason = f"incremental_operation is {operation!r} for {entry}: expected AlterConfigOpType.{operations}"
            raise refusal(ErrorCode.INVALID_REQUEST, reason)


def _altered_list(entry: ConfigEntry, own: Mapping[str, str]) -> str:
    """Return a list without the words that are subtracted, or with those that it lacks, as a broker alters it."""
    if entry.name not in LIST_SETTINGS:
        reason = f"setting {arguments.shown(entry.name)} is not a list: expected AlterConfigOpType.SET or DELETE"
        raise ConfigurationError(reason)
    if entry.value is None:
        raise refusal(ErrorCode.INVALID_REQUEST, f"setting {entry.name!r} has no words to append or to subtract")
    if not isinstance(entry.value, str):
        shown = arguments.described(entry.value)
        raise ConfigurationError(f"setting {entry.name!r} is altered by {shown}: expected words, separated by commas")
    words, given = _words(own.get(entry.name, _default_of(entry.name))), _words(entry.value)
    if entry.incremental_operation is AlterConfigOpType.APPEND:
        return ",".join([*words, *(word for word in given if word not in words)])
    return ",".join(word for word in words if word not in given)


def _words(value: object) -> list[str]:
    return [word for part in str(value or "").split(",") if (word := part.strip().lower())]


def _default_of(name: str) -> object:
    return next((setting.default for setting in (*TOPIC_SETTINGS, *STORE_WIDE_SETTINGS) if setting.name == name), None)


# Altering a topic in several ways at once: settings, columns, partitions; all parts are checked before the first.

Column = tuple[str, str, bool]
"""The name of a column, its type, and whether it may be null."""

_COLUMN: Final = re.compile(r"(\S+)\s+(.+?)(\s+not\s+null)?", re.IGNORECASE | re.DOTALL)


class TopicChange(Struct, frozen=True, kw_only=True):
    """What a topic is to have: settings, none of some settings, more columns, and a higher number of partitions."""

    topic: str
    settings: Mapping[str, str] = {}
    unset: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    partition_count: int | None = None


def parse_column(name: str, text: str) -> Column:
    """Return a column from ``name type`` or ``name type not null``; the parameter `name` gave it.

    Raises:
        ConfigurationError: it has another form.
    """
    match = _COLUMN.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(f"{name} {text!r} is malformed: expected 'NAME TYPE' or 'NAME TYPE not null'")
    return match[1], match[2], match[3] is None


def setting_changes(settings: Mapping[str, str], unset: Iterable[str]) -> list[ConfigEntry]:
    """Return the entries that set `settings`, and remove those that `unset` names."""
    set_, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    changes = [ConfigEntry(name, to, incremental_operation=set_) for name, to in settings.items()]
    return changes + [ConfigEntry(name, None, incremental_operation=delete) for name in unset]


def alter_topic(log: Log, change: TopicChange, *, validate_only: bool = False) -> None:
    """Alter a topic; with `validate_only` only check that it can be. A part that is wrong leaves the others undone.

    Raises:
        KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``, ``INVALID_TOPIC``, ``INVALID_CONFIG``, ``INVALID_PARTITIONS``.
        ConfigurationError: the type of a column is unknown.
    """
    entries = setting_changes(change.settings, change.unset)
    columns = pa.schema([pa.field(name, parse_type(type_), nullable=null) for name, type_, null in change.columns])
    for only in (True,) if validate_only else (True, False):
        if entries:
            resource = ConfigResource(ConfigResource.Type.TOPIC, change.topic, incremental_configs=entries)
            alter_configs(log, resource, validate_only=only)
        if change.columns:
            add_columns(log, change.topic, columns, validate_only=only)
        if change.partition_count is not None:
            create_partitions(log, NewPartitions(change.topic, change.partition_count), validate_only=only)
