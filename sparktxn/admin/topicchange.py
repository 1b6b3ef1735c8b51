"""Altering a topic in several ways at once: settings, columns, partitions; all parts are checked before the first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa
from msgspec import Struct

from sparktxn.admin.configs import alter_configs
from sparktxn.admin.topics import add_columns, create_partitions
from sparktxn.errors import ConfigurationError
from sparktxn.format.schema import parse_type
from sparktxn.kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions
from sparktxn.log.log import Log

__all__ = ["Column", "TopicChange", "alter_topic", "parse_column", "setting_changes"]

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
