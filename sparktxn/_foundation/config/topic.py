"""Settings of a topic, kept in the log as text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from sparktxn._foundation.config.settings import Setting, parse_settings
from sparktxn._foundation.config.values import (
    BYTES,
    MILLISECONDS,
    MINUTES,
    Parser,
    boolean,
    choice,
    integer,
    number,
    refusal,
    text,
)
from sparktxn._foundation.values import arguments
from sparktxn.errors import ConfigurationError, nearest_name


def _cleanup_policy(named: str, value: Any) -> str:
    """delete, compact, or compact,delete"""
    words = {part.strip().lower() for part in value.split(",")} if isinstance(value, str) else set()
    if not words or words - {"compact", "delete"}:
        raise refusal(named, value, "delete, compact, or compact,delete")
    return ",".join(sorted(words))


def _bytes_at_most(minimum: int, greatest: int) -> Parser:
    """Return a parser of bytes from `minimum` on; more than `greatest` is taken as that."""
    parse_integer = integer(minimum, 2**63 - 1, BYTES)

    def parse(named: str, value: Any) -> int:
        return min(int(parse_integer(named, value)), greatest)

    parse.__doc__ = f"a whole number of bytes from {minimum} on; more than {greatest} is taken as that"
    return parse


def _formats(named: str, value: Any) -> str:
    """delta, iceberg, both with a comma between them, or nothing"""
    words = {part.strip().lower() for part in value.split(",")} if isinstance(value, str) else {"?"}
    if words - {"", "delta", "iceberg"}:
        raise refusal(named, value, "delta, iceberg, delta,iceberg, or nothing")
    return ",".join(sorted(words - {""}))


def _names(named: str, value: Any) -> str:
    """names of columns, with commas between them"""
    names = [name.strip() for name in str(text(named, value)).split(",")]
    if names != [""] and "" in names:
        raise refusal(named, value, "names of columns, with one comma between two of them")
    return ",".join(names)


def _timestamp_type(named: str, value: Any) -> str:
    """CreateTime or LogAppendTime"""
    words = {"createtime": "CreateTime", "logappendtime": "LogAppendTime"}
    return words[choice(*words)(named, value)]


TOPIC_SETTINGS: Final = (
    Setting("segment.format", "parquet", choice("parquet", "arrow"), "How segments are stored."),
    Setting("segment.bytes", 268_435_456, _bytes_at_most(1_024, 268_435_456), "A segment is uploaded when its records have this many bytes before compression, or about 32 MiB in its file. What produce() has given, and Arrow segments, have at most 32 MiB before compression."),
    Setting("segment.rows", 10_000_000, integer(1, 10_000_000), "A segment is uploaded when it has this many records."),
    Setting("append.inline.bytes", 16_384, integer(0, 49_152, BYTES), "The log entry itself carries an append whose records have at most this many bytes before compression; 0: none."),
    Setting("compression.type", "zstd", choice("zstd", "lz4", "snappy", "gzip", "uncompressed", "none", "producer"), "How segments are compressed (producer means zstd; arrow segments take zstd, lz4 or none)."),
    Setting("cleanup.policy", "delete", _cleanup_policy, "What becomes of old records. delete: apply_retention() removes what retention.ms and retention.bytes no longer keep. compact: compact() leaves the newest record of each key. Then every record needs a key. compact,delete: both."),
    Setting("delete.retention.ms", 86_400_000, integer(0, 2**63 - 1, MILLISECONDS), "compact() removes a record without a value (a tombstone) once its first compaction is older than this."),
    Setting("min.compaction.lag.ms", 0, integer(0, 2**63 - 1, MILLISECONDS), "compact() leaves records as they are while a record of their segment is younger than this."),
    Setting("max.compaction.lag.ms", 2**53, integer(1, 2**63 - 1, MILLISECONDS), "compact() compacts a partition once a record has waited for this long, whatever min.cleanable.dirty.ratio says."),
    Setting("min.cleanable.dirty.ratio", 0.5, number(0, 1), "compact() compacts a partition once more than this share of its bytes is not compacted yet."),
    Setting("retention.ms", -1, integer(-1, 2**53, MILLISECONDS), "apply_retention() removes the oldest segments whose records are all older than this; -1 keeps all."),
    Setting("retention.bytes", -1, integer(-1, 2**63 - 1, BYTES), "apply_retention() removes the oldest segments of a partition while its newer ones hold so many bytes; -1 keeps all."),
    Setting("max.message.bytes", 1_048_588, integer(0, 2**30, BYTES), "The largest record that the topic takes."),
    Setting("message.timestamp.type", "CreateTime", _timestamp_type, "Whether a record's timestamp is the producer's or the entry's. Fixed once the topic has had records, also if they were deleted."),
    Setting("message.type", "mixed", choice("mixed", "normal", "transaction"), "What messages of RocketMQ's clients the topic takes: normal refuses half messages."),
    Setting("reject.transaction.message", False, boolean, "Refuse to take half messages; those that the topic has are still committed or rolled back."),
    Setting("table.formats", "", _formats, "The topic is also a table in these formats, delta and iceberg: publish_tables() publishes versions of it for other engines, and a process that folds does once records have waited for a minute."),
    Setting("table.history.ms", 604_800_000, integer(0, 2**53, MILLISECONDS), "A vacuum keeps what versions of the topic's table can read that are younger than this."),
    Setting("partition.key", "", text, "For a typed topic: the column whose value chooses the partition."),
    Setting("primary.key", "", _names, "For a typed topic: the columns of its key, with commas between them. Given at its creation, and never changed."),
    Setting("upsert.missing", "refuse", choice("refuse", "null"), "Whether a row that lacks a declared column is refused by a topic with primary.key, or has null there."),
)  # fmt: skip

IGNORED_TOPIC_SETTINGS: Final = frozenset(
    [
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    ]
) - {setting.name for setting in TOPIC_SETTINGS}
"""Settings of Kafka's topics that mean nothing here (Kafka's TopicConfig). A topic keeps and shows them."""

LIST_SETTINGS: Final = frozenset(
    [
        "cleanup.policy",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "table.formats",
    ]
)
"""Settings whose values are lists, with commas between their words."""

_OFFSETS_RETENTION: Final = Setting("offsets.retention.minutes", 10_080, integer(1, 2**31 - 1, MINUTES), "sweep() forgets a committed offset of a group without members that is so old. It counts from its commit, or from when the group's last member has gone if that is later.")  # fmt: skip

STORE_WIDE_SETTINGS: Final = (
    *(setting for setting in TOPIC_SETTINGS if setting.name == "reject.transaction.message"),
    _OFFSETS_RETENTION,
)
"""Settings of topics that a store may set for all topics which do not set them, and settings of the store alone."""

_STORE_WIDE_NAMES: Final = tuple(setting.name for setting in STORE_WIDE_SETTINGS)
_BY_NAME: Final = {setting.name: setting for setting in TOPIC_SETTINGS}


def check_topic_settings(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the given settings as the log keeps them: checked, and written as text. Kafka's that mean nothing are kept too.

    Raises:
        ConfigurationError: a name is unknown or a value is wrong.
    """
    known = {name: value for name, value in given.items() if name not in IGNORED_TOPIC_SETTINGS}
    parsed = parse_settings(TOPIC_SETTINGS, known, "topic")
    return {name: setting_text(name, parsed[name] if name in known else _as_kafka(name, given[name])) for name in given}


def _as_kafka(name: str, value: Any) -> Any:
    """Return the value of a setting that means nothing here; one with a unit as the number that Kafka has for it."""
    unit = MILLISECONDS if name.endswith(".ms") else BYTES if name.endswith(".bytes") else None
    counted = unit.count(value) if unit is not None and isinstance(value, str) else None
    return value if counted is None else counted


def check_store_wide_settings(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the given settings of a whole store as the log keeps them: checked, and written as text.

    Raises:
        ConfigurationError: a name is unknown, or no setting of stores, or a value is wrong.
    """
    for name in given:
        if name not in _STORE_WIDE_NAMES:
            only = " or ".join(_STORE_WIDE_NAMES)
            is_of_topics = name in _BY_NAME or name in IGNORED_TOPIC_SETTINGS
            remedy = "; set it for each topic" if is_of_topics else nearest_name(name, _STORE_WIDE_NAMES)
            raise ConfigurationError(f"unknown store-wide setting {arguments.shown(name)}: expected {only}{remedy}")
    parsed = parse_settings(STORE_WIDE_SETTINGS, given, "store-wide")
    return {name: setting_text(name, value) for name, value in parsed.items() if name in given}


def setting_text(name: str, value: Any) -> str:
    """Return a value as the log keeps it; booleans as Kafka writes them."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else str(text(f"setting {name!r}", value))


def topic_setting(settings: Mapping[str, str], name: str) -> Any:
    """Return the parsed value of one topic setting, or its default."""
    setting = _BY_NAME[name]
    return setting.parsed(settings[name]) if name in settings else setting.default


def topic_values(settings: Mapping[str, str], *names: str) -> list[Any]:
    """Return the parsed values of topic settings, or their defaults, in the order of `names`."""
    asked = [_BY_NAME[name] for name in names]
    return [
        setting.parsed(settings[setting.name]) if setting.name in settings else setting.default for setting in asked
    ]


def offsets_retention_ms(store_wide: Mapping[str, str]) -> int:
    """Return how long the offsets of a group without members are kept, by the settings of the store."""
    setting = _OFFSETS_RETENTION
    value = store_wide.get(setting.name, setting.default)
    return int(setting.parsed(value)) * 60_000


def table_formats(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the formats in which a topic is a table; none if it is not a table."""
    return _formats_named(settings["table.formats"]) if "table.formats" in settings else ()


@lru_cache
def _formats_named(text: str) -> tuple[str, ...]:
    formats = str(_BY_NAME["table.formats"].parsed(text))
    return tuple(formats.split(",")) if formats else ()


def is_compacted(settings: Mapping[str, str]) -> bool:
    """Return whether a topic is compacted by key, so that its records need keys."""
    return "compact" in topic_setting(settings, "cleanup.policy").split(",")
