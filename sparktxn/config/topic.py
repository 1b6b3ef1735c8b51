"""Settings of a topic, kept in the log as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sparktxn import arguments
from sparktxn.config.settings import Parser, Setting, choice, integer, parse_settings, text
from sparktxn.errors import ConfigurationError

__all__ = ["IGNORED_TOPIC_SETTINGS", "TOPIC_SETTINGS", "check_topic_settings", "topic_setting"]


def _cleanup_policy(name: str, value: Any) -> str:
    """delete"""
    word = str.lower(value) if isinstance(value, str) else ""
    if word != "delete":
        raise ConfigurationError(
            f"setting {name!r} is {arguments.shown(value)}: expected delete; compaction by key is not available, so a topic that asks "
            "for it would silently keep all records"
        )
    return word


def _at_most(minimum: int, greatest: int) -> Parser:
    """Return a parser of whole numbers from `minimum` on; more than `greatest` is taken as that."""
    parse_integer = integer(minimum, 2**63 - 1)

    def parse(name: str, value: Any) -> int:
        return min(int(parse_integer(name, value)), greatest)

    parse.__doc__ = f"a whole number from {minimum} on; more than {greatest} is taken as that"
    return parse


TOPIC_SETTINGS: Final = (
    Setting("segment.format", "parquet", choice("parquet", "arrow"), "How segments are stored."),
    Setting("segment.bytes", 33_554_432, _at_most(1_024, 268_435_456), "A segment is uploaded when its records have this many bytes before compression."),
    Setting("segment.rows", 50_000, integer(1, 10_000_000), "A segment is uploaded when it has this many records."),
    Setting("compression.type", "zstd", choice("zstd", "lz4", "snappy", "gzip", "uncompressed", "none", "producer"), "How segments are compressed (producer means zstd; arrow segments take zstd, lz4 or none)."),
    Setting("cleanup.policy", "delete", _cleanup_policy, "What becomes of old records: the job apply_retention() removes what retention.ms and retention.bytes no longer keep. compact is refused."),
    Setting("retention.ms", -1, integer(-1, 2**53), "apply_retention() removes the oldest segments whose records are all older than this; -1 keeps all."),
    Setting("retention.bytes", -1, integer(-1, 2**63 - 1), "apply_retention() removes the oldest segments of a partition while its newer ones hold so many bytes; -1 keeps all."),
    Setting("max.message.bytes", 1_048_588, integer(0, 2**30), "The largest record that the topic takes."),
    Setting("message.timestamp.type", "CreateTime", lambda name, value: {"createtime": "CreateTime", "logappendtime": "LogAppendTime"}[choice("createtime", "logappendtime")(name, value)], "Whether a record's timestamp is the producer's or the entry's."),
    Setting("message.type", "mixed", choice("mixed", "normal", "transaction"), "What messages of RocketMQ's clients the topic takes: normal refuses half messages."),
    Setting("partition.key", "", text, "For a typed topic: the column whose value chooses the partition."),
)  # fmt: skip

IGNORED_TOPIC_SETTINGS: Final = frozenset(
    [
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
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

_BY_NAME: Final = {setting.name: setting for setting in TOPIC_SETTINGS}


def check_topic_settings(given: Mapping[str, Any]) -> dict[str, str]:
    """The given settings as the log keeps them: checked, and written as text. Kafka's that mean nothing are kept too.

    Raises:
        ConfigurationError: a name is unknown or a value is wrong.
    """
    known = {name: value for name, value in given.items() if name not in IGNORED_TOPIC_SETTINGS}
    parsed = parse_settings(TOPIC_SETTINGS, known, "topic")
    return {name: str(parsed[name]) if name in parsed else _ignored(name, given[name]) for name in given}


def _ignored(name: str, value: Any) -> str:
    """Return the text of a value that nothing reads; booleans as Kafka writes them."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else str(text(name, value))


def topic_setting(settings: Mapping[str, str], name: str) -> Any:
    """The parsed value of one topic setting, or its default."""
    setting = _BY_NAME[name]
    return setting.parse(name, settings[name]) if name in settings else setting.default
