"""Settings of a producer, under librdkafka's names, with its defaults and its rules of idempotence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from sparktxn._foundation.config.settings import setting, settings_of
from sparktxn._foundation.config.values import (
    BYTES,
    KIBIBYTES,
    MILLISECONDS,
    boolean,
    choice,
    function,
    identifier,
    integer,
    number,
    text,
)
from sparktxn._kafka.settings.client import PolledSettings, none_if_empty
from sparktxn.errors import ConfigurationError

PARTITIONERS: Final = (
    "consistent_random",
    "consistent",
    "random",
    "murmur2",
    "murmur2_random",
    "fnv1a",
    "fnv1a_random",
)

_INT_MAX: Final = 2**31 - 1


def _acks(named: str, value: Any) -> int:
    """all, or a whole number from -1 to 1000"""
    parsed: int = -1 if isinstance(value, str) and str.lower(value) == "all" else integer(-1, 1000)(named, value)
    return parsed


def _seconds(milliseconds: float) -> float:
    return milliseconds / 1000


def _bytes(kibibytes: int) -> int:
    return kibibytes * 1024


def _unlimited_if_zero(count: int) -> int:
    return count or _INT_MAX


def _unlimited_seconds(milliseconds: int) -> float:
    return (milliseconds or _INT_MAX) / 1000


@dataclass(frozen=True, kw_only=True)
class ProducerSettings(PolledSettings):
    """The settings of a producer."""

    client = "producer"

    client_id: str = setting("client.id", "sparktxn-producer", text, "")
    transactional_id: str | None = setting(
        "transactional.id",
        "",
        identifier,
        "Names the producer over restarts, and makes it transactional: a newer one fences the older.",
        convert=none_if_empty,
    )
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms",
        60_000,
        integer(1_000, _INT_MAX, MILLISECONDS),
        "How long a transaction may stay open once it has published.",
    )
    publish_on_flush: bool = setting(
        "transaction.publish",
        "flush",
        choice("flush", "commit"),
        "Whether flush() inside a transaction publishes its records, or only makes them durable until the commit.",
        convert="flush".__eq__,
    )
    enable_idempotence: bool = setting(
        "enable.idempotence",
        True,
        boolean,
        "Only checked: every append is stored once, always; true demands settings that agree with it.",
    )
    acks: int = setting(
        "acks", -1, _acks, "Only checked: what is acknowledged is durable, always.", aliases=("request.required.acks",)
    )
    retries: int = setting(
        "retries",
        _INT_MAX,
        integer(0, _INT_MAX),
        "Only checked: retries go on until delivery.timeout.ms, and 0 contradicts idempotence.",
        aliases=("message.send.max.retries",),
    )
    requests_in_flight_max: int = setting(
        "max.in.flight.requests.per.connection",
        1_000_000,
        integer(1, 1_000_000),
        "Only checked: above 5 contradicts idempotence.",
        aliases=("max.in.flight",),
    )
    enable_gapless_guarantee: bool = setting(
        "enable.gapless.guarantee", False, boolean, "Only checked: it needs idempotence."
    )
    linger_s: float = setting(
        "linger.ms",
        5,
        number(0, 900_000, MILLISECONDS),
        "How long the sender waits for more records, outside transactions.",
        aliases=("queue.buffering.max.ms",),
        convert=_seconds,
    )
    batch_messages_max: int = setting(
        "batch.num.messages",
        10_000,
        integer(1, 1_000_000),
        "The sender does not wait for more records than this, outside transactions.",
    )
    batch_bytes_max: int = setting(
        "batch.size",
        1_000_000,
        integer(1, _INT_MAX, BYTES),
        "The sender does not wait for more bytes than this, outside transactions.",
    )
    compression_type: str = setting(
        "compression.type",
        "none",
        choice("none", "gzip", "snappy", "lz4", "zstd"),
        "Only checked: segments are compressed as their topic's setting compression.type says.",
        aliases=("compression.codec",),
    )
    queue_messages_max: int = setting(
        "queue.buffering.max.messages",
        100_000,
        integer(0, _INT_MAX),
        "How many records may wait before produce() raises BufferError; 0 means no limit.",
        convert=_unlimited_if_zero,
    )
    queue_bytes_max: int = setting(
        "queue.buffering.max.kbytes",
        1_048_576,
        integer(1, _INT_MAX, KIBIBYTES),
        "How many KiB of records may wait before produce() raises BufferError.",
        convert=_bytes,
    )
    message_bytes_max: int = setting(
        "message.max.bytes",
        1_000_000,
        integer(1_000, 1_000_000_000, BYTES),
        "The largest record: key, value and headers.",
    )
    delivery_timeout_s: float = setting(
        "delivery.timeout.ms",
        300_000,
        integer(0, _INT_MAX, MILLISECONDS),
        "How long a record may wait to be stored; a transactional producer uses at most transaction.timeout.ms.",
        aliases=("message.timeout.ms",),
        convert=_unlimited_seconds,
    )
    partitioner: str = setting(
        "partitioner", PARTITIONERS[0], choice(*PARTITIONERS), "How a key chooses its partition."
    )
    reports_only_errors: bool = setting(
        "delivery.report.only.error", False, boolean, "Only call delivery callbacks for records that failed."
    )
    on_delivery: Callable[[Any, Any], None] | None = setting(
        "on_delivery",
        None,
        function,
        "Called as (KafkaError or None, Message) for every record that has no callback of its own.",
        aliases=("dr_cb",),
    )

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Return the settings of `given` as `ClientSettings.parse`: no record waits longer than its transaction may."""
        settings = super().parse(given)
        if settings.transactional_id is None:
            return settings
        transaction_s = settings.transaction_timeout_ms / 1000
        return replace(settings, delivery_timeout_s=min(settings.delivery_timeout_s, transaction_s))

    @classmethod
    def check(cls, values: Mapping[str, Any], explicit: Set[str]) -> None:
        """Refuse what librdkafka refuses: explicit settings that contradict idempotence where it was asked for."""
        asked = "enable.idempotence" in explicit and values["enable.idempotence"]
        cause = "`transactional.id`" if values["transactional.id"] else "`enable.idempotence=true`"
        if values["transactional.id"] and "enable.idempotence" in explicit and not asked:
            raise ConfigurationError("`transactional.id` requires `enable.idempotence=true`")
        if values["enable.gapless.guarantee"] and "enable.idempotence" in explicit and not asked:
            raise ConfigurationError("`enable.gapless.guarantee` requires `enable.idempotence=true`")
        too_long = values["delivery.timeout.ms"] > values["transaction.timeout.ms"]
        if values["transactional.id"] and "delivery.timeout.ms" in explicit and too_long:
            raise ConfigurationError(
                "`message.timeout.ms` must be set <= `transaction.timeout.ms` "
                f"({values['delivery.timeout.ms']} > {values['transaction.timeout.ms']})"
            )
        if not (asked or values["transactional.id"]):
            return
        if "acks" in explicit and values["acks"] != -1:
            raise ConfigurationError(f"`acks` must be set to `all` when {cause} is set")
        if "max.in.flight.requests.per.connection" in explicit and values["max.in.flight.requests.per.connection"] > 5:
            raise ConfigurationError(f"`max.in.flight` must be set <= 5 when {cause} is set")
        if "retries" in explicit and values["retries"] < 1:
            raise ConfigurationError(f"`retries` must be set >= 1 when {cause} is set")


PRODUCER_SETTINGS: Final = settings_of(ProducerSettings)
