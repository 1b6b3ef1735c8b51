"""Settings of a consumer, under librdkafka's names and with its defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from sparktxn._foundation.config.settings import setting, settings_of
from sparktxn._foundation.config.values import (
    BYTES,
    MILLISECONDS,
    boolean,
    choice,
    function,
    identifier,
    integer,
    refusal,
    text,
)
from sparktxn._kafka.settings.client import PolledSettings, none_if_empty

_RESET_ALIASES: Final = {
    "smallest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "end": "latest",
    "none": "error",
}
_RESET = choice("smallest", "earliest", "beginning", "largest", "latest", "end", "error", "none")


def _offset_reset(named: str, value: Any) -> str:
    """smallest, earliest, beginning, largest, latest, end or error"""
    word: str = _RESET(named, value)
    return _RESET_ALIASES.get(word, word)


_STRATEGIES: Final = {"range": "range", "roundrobin": "uniform", "cooperative-sticky": "uniform"}
"""Kafka's assignors, and those that take their place."""
_COOPERATIVE: Final = "cooperative-sticky"


def _strategies(named: str, value: Any) -> str:
    """range, roundrobin, or both with a comma in between; or cooperative-sticky"""
    words = [word.strip().lower() for word in text(named, value).split(",")]
    known = all(word in _STRATEGIES for word in words)
    if not known or (_COOPERATIVE in words and set(words) != {_COOPERATIVE}):
        raise refusal(named, value, str(_strategies.__doc__))
    return ",".join(words)


def _names(strategies: str) -> tuple[str, ...]:
    return tuple(strategies.split(","))


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings(PolledSettings):
    """The settings of a consumer."""

    client = "consumer"
    required = MappingProxyType({"group.id": "the consumer group's name"})

    client_id: str = setting("client.id", "sparktxn-consumer", text, "")
    group_id: str = setting(
        "group.id", "", identifier, "The consumer group whose committed offsets are used. Required."
    )
    group_instance_id: str | None = setting(
        "group.instance.id",
        "",
        identifier,
        "A name that outlives the process (static membership): its partitions wait for it, up to session.timeout.ms.",
        convert=none_if_empty,
    )
    group_protocol: str = setting(
        "group.protocol",
        "classic",
        choice("classic", "consumer"),
        "classic: callbacks as partition.assignment.strategy says; consumer: incremental ones (KIP-848).",
    )
    strategies: tuple[str, ...] = setting(
        "partition.assignment.strategy",
        "range,roundrobin",
        _strategies,
        "How classic members share partitions, in order of preference: range, roundrobin or cooperative-sticky.",
        convert=_names,
    )
    group_remote_assignor: str = setting(
        "group.remote.assignor",
        "uniform",
        choice("uniform", "range"),
        "How members with group.protocol=consumer share partitions.",
    )
    session_timeout_ms: int = setting(
        "session.timeout.ms",
        45_000,
        integer(100, 1_800_000, MILLISECONDS),
        "How long a member may show no sign of life before the others take its partitions.",
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms",
        15_000,
        integer(10, 3_600_000, MILLISECONDS),
        "How often a member shows that it lives; at most a third of session.timeout.ms is used.",
    )
    max_poll_interval_ms: int = setting(
        "max.poll.interval.ms",
        300_000,
        integer(100, 86_400_000, MILLISECONDS),
        "How long a member may go without a poll() before it leaves, and how long it may keep what it is to give up.",
    )
    read_committed: bool = setting(
        "isolation.level",
        "read_committed",
        choice("read_committed", "read_uncommitted"),
        "Whether records of open and aborted transactions are read.",
        convert="read_committed".__eq__,
    )
    auto_offset_reset: str = setting(
        "auto.offset.reset",
        "latest",
        _offset_reset,
        "Where to begin without a valid offset: earliest, latest, or error.",
    )
    enable_auto_commit: bool = setting(
        "enable.auto.commit",
        True,
        boolean,
        "Commit stored offsets on their own, inside poll(), consume() and close().",
        aliases=("auto.commit.enable",),
    )
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms",
        5_000,
        integer(0, 86_400_000, MILLISECONDS),
        "How often offsets are committed on their own.",
    )
    enable_auto_offset_store: bool = setting(
        "enable.auto.offset.store",
        True,
        boolean,
        "Store each record's offset when it is handed out; else store_offsets() does it.",
    )
    enable_partition_eof: bool = setting(
        "enable.partition.eof", False, boolean, "Hand out a _PARTITION_EOF message when a partition's end is reached."
    )
    exclude_internal_topics: bool = setting(
        "exclude.internal.topics",
        True,
        boolean,
        "Whether a subscribed pattern leaves the internal topics out; by name they can always be subscribed to.",
    )
    fetch_wait_ms_max: int = setting(
        "fetch.wait.max.ms",
        500,
        integer(0, 300_000, MILLISECONDS),
        "How long an idle consumer waits, at most, between two polls of the log.",
    )
    fetch_bytes_max: int = setting(
        "fetch.max.bytes",
        52_428_800,
        integer(0, 2_147_483_135, BYTES),
        "How many bytes of decoded records are held at a time, at least one segment.",
    )
    partition_fetch_bytes_max: int = setting(
        "max.partition.fetch.bytes",
        1_048_576,
        integer(1, 1_000_000_000, BYTES),
        "How many bytes of one partition are handed out before it is another's turn, at least one record.",
        aliases=("fetch.message.max.bytes",),
    )
    check_crcs: bool = setting("check.crcs", True, boolean, "Verify the checksum of every segment that is read.")
    on_commit: Callable[[Any, Any], None] | None = setting(
        "on_commit",
        None,
        function,
        "Called with (KafkaError or None, [TopicPartition]) inside poll() after an offset commit.",
        aliases=("offset_commit_cb",),
    )

    @property
    def is_classic(self) -> bool:
        """True under ``group.protocol=classic``."""
        return self.group_protocol == "classic"

    @property
    def is_incremental(self) -> bool:
        """True if callbacks get what comes and what goes, and not the whole assignment."""
        return not self.is_classic or self.strategies == (_COOPERATIVE,)

    @property
    def assignors(self) -> tuple[str, ...]:
        """The group's assignors that this member can take, in order of preference."""
        if not self.is_classic:
            return (self.group_remote_assignor,)
        return tuple(dict.fromkeys(_STRATEGIES[strategy] for strategy in self.strategies))

    @property
    def isolation(self) -> Literal["read_committed", "read_uncommitted"]:
        """``read_committed`` or ``read_uncommitted``."""
        return "read_committed" if self.read_committed else "read_uncommitted"


CONSUMER_SETTINGS: Final = settings_of(ConsumerSettings)
