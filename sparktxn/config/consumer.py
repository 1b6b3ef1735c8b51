"""Settings of a consumer, under librdkafka's names and with its defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from sparktxn.config.ignored import IGNORED_SETTINGS, report_ignored
from sparktxn.config.settings import Parser, Setting, boolean, choice, integer, text
from sparktxn.config.store import STORE_SETTINGS, StoreOptions, is_store_setting
from sparktxn.errors import ConfigurationError, did_you_mean

__all__ = ["CONSUMER_SETTINGS", "ConsumerSettings"]

_RESET_ALIASES: Final = {
    "smallest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "end": "latest",
    "none": "error",
}
_RESET = choice("smallest", "earliest", "beginning", "largest", "latest", "end", "error", "none")


def _offset_reset(name: str, value: Any) -> str:
    """smallest, earliest, beginning, largest, latest, end or error"""
    word: str = _RESET(name, value)
    return _RESET_ALIASES.get(word, word)


def _callback(name: str, value: Any) -> Any:
    """a function"""
    if value is not None and not callable(value):
        raise ConfigurationError(f"setting {name!r} is {value!r}: expected a function")
    return value


CONSUMER_SETTINGS: Final = (
    Setting("bootstrap.servers", "", text, "The store's address: a path, file://, s3://bucket/prefix or memory://name (alias store.uri)."),
    Setting("client.id", "rdkafka", text, "The client's name; accepted and not used."),
    Setting("group.id", "", text, "The consumer group whose committed offsets are used. Required."),
    Setting("group.instance.id", "", text, "Told in consumer_group_metadata(); no static membership yet."),
    Setting("isolation.level", "read_committed", choice("read_committed", "read_uncommitted"), "Whether records of open and aborted transactions are read."),
    Setting("auto.offset.reset", "latest", _offset_reset, "Where to begin without a valid offset: earliest, latest, or error."),
    Setting("enable.auto.commit", True, boolean, "Commit stored offsets on their own, inside poll(), consume() and close()."),
    Setting("auto.commit.interval.ms", 5_000, integer(0, 86_400_000), "How often offsets are committed on their own."),
    Setting("enable.auto.offset.store", True, boolean, "Store each record's offset when it is handed out; else store_offsets() does it."),
    Setting("enable.partition.eof", False, boolean, "Hand out a _PARTITION_EOF message when a partition's end is reached."),
    Setting("exclude.internal.topics", True, boolean, "Whether a subscribed pattern leaves __transaction_state and __consumer_offsets out; by name they can always be subscribed to."),
    Setting("fetch.wait.max.ms", 500, integer(0, 300_000), "How long an idle consumer waits, at the most, between two looks at the log."),
    Setting("fetch.max.bytes", 52_428_800, integer(0, 2_147_483_135), "How many bytes of decoded records are held at a time, one segment at the least."),
    Setting("max.partition.fetch.bytes", 1_048_576, integer(1, 1_000_000_000), "How many bytes of one partition are handed out before it is another's turn, one record at the least."),
    Setting("check.crcs", True, boolean, "Verify the checksum of every segment that is read."),
    Setting("error_cb", None, _callback, "Called with a KafkaError inside poll() when the store does not answer."),
    Setting("on_commit", None, _callback, "Called with (KafkaError or None, [TopicPartition]) inside poll() after an offset commit."),
)  # fmt: skip

_ALIASES: Final = {
    "store.uri": "bootstrap.servers",
    "metadata.broker.list": "bootstrap.servers",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "auto.commit.enable": "enable.auto.commit",
    "offset_commit_cb": "on_commit",
}
_BY_NAME: Final = {setting.name: setting for setting in CONSUMER_SETTINGS}


class ConsumerSettings(Struct, frozen=True, kw_only=True):
    """The parsed settings; see CONSUMER_SETTINGS for their meaning. `store_options` are for Store.open."""

    uri: str
    client_id: str
    group_id: str
    group_instance_id: str | None
    read_committed: bool
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    enable_auto_offset_store: bool
    enable_partition_eof: bool
    exclude_internal_topics: bool
    fetch_wait_ms_max: int
    fetch_bytes_max: int
    partition_fetch_bytes_max: int
    check_crcs: bool
    error_cb: Callable[[Any], None] | None
    on_commit: Callable[[Any, Any], None] | None
    store_options: dict[str, Any]

    @property
    def isolation(self) -> Literal["read_committed", "read_uncommitted"]:
        """``read_committed`` or ``read_uncommitted``."""
        return "read_committed" if self.read_committed else "read_uncommitted"

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> ConsumerSettings:
        """The settings of `given`, whose names are dotted.

        Names of librdkafka's that have no meaning here are accepted and change nothing.

        Raises:
            ConfigurationError: a name is unknown, a value is wrong, or group.id or the store's address is missing.
        """
        values: dict[str, Any] = {setting.name: setting.default for setting in CONSUMER_SETTINGS}
        store_options: dict[str, Any] = {}
        ignored: list[str] = []
        for name, value in given.items():
            known = _ALIASES.get(name, name)
            if known in _BY_NAME:
                parse: Parser = _BY_NAME[known].parse
                values[known] = parse(name, value)
            elif is_store_setting(name):
                store_options[name] = value
            elif name in IGNORED_SETTINGS:
                ignored.append(name)
            else:
                names = [*_BY_NAME, *_ALIASES, *(setting.name for setting in STORE_SETTINGS)]
                raise ConfigurationError(f'No such configuration property: "{name}"{did_you_mean(name, names)}')
        report_ignored(ignored, "consumer")
        for name, expected in (
            ("group.id", "the consumer group's name"),
            ("bootstrap.servers", "the store's address, such as /data/log or s3://bucket/prefix"),
        ):
            if not values[name]:
                raise ConfigurationError(f'Failed to create consumer: "{name}" must be configured: {expected}')
        return cls(
            uri=values["bootstrap.servers"],
            client_id=values["client.id"],
            group_id=values["group.id"],
            group_instance_id=values["group.instance.id"] or None,
            read_committed=values["isolation.level"] == "read_committed",
            auto_offset_reset=values["auto.offset.reset"],
            enable_auto_commit=values["enable.auto.commit"],
            auto_commit_interval_ms=values["auto.commit.interval.ms"],
            enable_auto_offset_store=values["enable.auto.offset.store"],
            enable_partition_eof=values["enable.partition.eof"],
            exclude_internal_topics=values["exclude.internal.topics"],
            fetch_wait_ms_max=values["fetch.wait.max.ms"],
            fetch_bytes_max=values["fetch.max.bytes"],
            partition_fetch_bytes_max=values["max.partition.fetch.bytes"],
            check_crcs=values["check.crcs"],
            error_cb=values["error_cb"],
            on_commit=values["on_commit"],
            store_options=StoreOptions(store_options),
        )
