"""Settings of a producer, under librdkafka's names, with its defaults and its rules of idempotence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from sparktxn.config.ignored import IGNORED_SETTINGS, report_ignored
from sparktxn.config.settings import Setting, boolean, choice, integer, number, text
from sparktxn.config.store import STORE_SETTINGS, StoreOptions, is_store_setting
from sparktxn.errors import ConfigurationError, did_you_mean

__all__ = ["PARTITIONERS", "PRODUCER_SETTINGS", "ProducerSettings"]

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


def _acks(name: str, value: Any) -> int:
    """all, or a whole number from -1 to 1000"""
    parsed: int = -1 if str(value).lower() == "all" else integer(-1, 1000)(name, value)
    return parsed


def _callback(name: str, value: Any) -> Any:
    """a function"""
    if value is not None and not callable(value):
        raise ConfigurationError(f"setting {name!r} is {value!r}: expected a function")
    return value


PRODUCER_SETTINGS: Final = (
    Setting("bootstrap.servers", "", text, "The store's address: a path, file://, s3://bucket/prefix or memory://name (alias store.uri)."),
    Setting("client.id", "rdkafka", text, "The client's name, for its own log lines."),
    Setting("transactional.id", "", text, "Names the producer over restarts, and makes it transactional: a newer one fences the older."),
    Setting("transaction.timeout.ms", 60_000, integer(1_000, _INT_MAX), "How long a transaction may stay open once it has published."),
    Setting("transaction.publish", "flush", choice("flush", "commit"), "Whether flush() inside a transaction publishes its records, or only makes them durable until the commit."),
    Setting("enable.idempotence", True, boolean, "Always on: every append is stored once. Setting it demands settings that agree with it."),
    Setting("acks", -1, _acks, "Always all: what is acknowledged is durable."),
    Setting("retries", _INT_MAX, integer(0, _INT_MAX), "Retries go on until delivery.timeout.ms; 0 contradicts idempotence."),
    Setting("max.in.flight.requests.per.connection", 1_000_000, integer(1, 1_000_000), "Only checked: above 5 contradicts idempotence."),
    Setting("enable.gapless.guarantee", False, boolean, "Only checked: it needs idempotence."),
    Setting("linger.ms", 5, number(0, 900_000), "How long the sender waits for more records, outside transactions."),
    Setting("batch.num.messages", 10_000, integer(1, 1_000_000), "The sender does not wait for more records than this, outside transactions."),
    Setting("batch.size", 1_000_000, integer(1, _INT_MAX), "The sender does not wait for more bytes than this, outside transactions."),
    Setting("compression.type", "none", choice("none", "gzip", "snappy", "lz4", "zstd"), "Only checked: segments are compressed as their topic's setting compression.type says."),
    Setting("queue.buffering.max.messages", 100_000, integer(0, _INT_MAX), "How many records may wait before produce() raises BufferError; 0 is no limit."),
    Setting("queue.buffering.max.kbytes", 1_048_576, integer(1, _INT_MAX), "How many KiB of records may wait before produce() raises BufferError."),
    Setting("message.max.bytes", 1_000_000, integer(1_000, 1_000_000_000), "The largest record: key, value and headers."),
    Setting("delivery.timeout.ms", 300_000, integer(0, _INT_MAX), "How long a record may wait to be stored; a transactional producer uses at most transaction.timeout.ms."),
    Setting("partitioner", PARTITIONERS[0], choice(*PARTITIONERS), "How a key chooses its partition."),
    Setting("delivery.report.only.error", False, boolean, "Only call delivery callbacks for records that failed."),
    Setting("on_delivery", None, _callback, "Called as (KafkaError or None, Message) for every record that has no callback of its own."),
    Setting("error_cb", None, _callback, "Called with a KafkaError, inside poll() or flush(), when the producer can only be closed."),
)  # fmt: skip

_ALIASES: Final = {
    "store.uri": "bootstrap.servers",
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "message.timeout.ms": "delivery.timeout.ms",
    "dr_cb": "on_delivery",
}
_BY_NAME: Final = {setting.name: setting for setting in PRODUCER_SETTINGS}


class ProducerSettings(Struct, frozen=True, kw_only=True):
    """The parsed settings; see PRODUCER_SETTINGS for their meaning. `store_options` are for Store.open."""

    uri: str
    client_id: str
    transactional_id: str | None
    transaction_timeout_ms: int
    publish_on_flush: bool
    linger_s: float
    batch_messages_max: int
    batch_bytes_max: int
    queue_messages_max: int
    queue_bytes_max: int
    message_bytes_max: int
    delivery_timeout_s: float
    partitioner: str
    reports_only_errors: bool
    on_delivery: Callable[[Any, Any], None] | None
    error_cb: Callable[[Any], None] | None
    store_options: dict[str, Any]

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> ProducerSettings:
        """The settings of `given`, whose names are dotted.

        Names of librdkafka's that have no meaning here are accepted and change nothing.

        Raises:
            ConfigurationError: a name is unknown, a value is wrong or contradicts another, or the store's address is
                missing.
        """
        values, explicit, store_options = _sort(given)
        _check_idempotence(values, explicit)
        if not values["bootstrap.servers"]:
            raise ConfigurationError(
                'Failed to create producer: "bootstrap.servers" must be configured: the store\'s address, such as '
                "/data/log or s3://bucket/prefix"
            )
        delivery_ms = values["delivery.timeout.ms"] or _INT_MAX
        if values["transactional.id"]:
            delivery_ms = min(delivery_ms, values["transaction.timeout.ms"])
        return cls(
            uri=values["bootstrap.servers"],
            client_id=values["client.id"],
            transactional_id=values["transactional.id"] or None,
            transaction_timeout_ms=values["transaction.timeout.ms"],
            publish_on_flush=values["transaction.publish"] == "flush",
            linger_s=values["linger.ms"] / 1000,
            batch_messages_max=values["batch.num.messages"],
            batch_bytes_max=values["batch.size"],
            queue_messages_max=values["queue.buffering.max.messages"] or _INT_MAX,
            queue_bytes_max=values["queue.buffering.max.kbytes"] * 1024,
            message_bytes_max=values["message.max.bytes"],
            delivery_timeout_s=delivery_ms / 1000,
            partitioner=values["partitioner"],
            reports_only_errors=values["delivery.report.only.error"],
            on_delivery=values["on_delivery"],
            error_cb=values["error_cb"],
            store_options=StoreOptions(store_options),
        )


def _sort(given: Mapping[str, Any]) -> tuple[dict[str, Any], set[str], dict[str, Any]]:
    """(every setting's value, the names that were given, the settings of the store)."""
    values: dict[str, Any] = {setting.name: setting.default for setting in PRODUCER_SETTINGS}
    explicit: set[str] = set()
    store_options: dict[str, Any] = {}
    ignored: list[str] = []
    for name, value in given.items():
        known = _ALIASES.get(name, name)
        if known in _BY_NAME:
            values[known] = _BY_NAME[known].parse(name, value)
            explicit.add(known)
        elif is_store_setting(name):
            store_options[name] = value
        elif name in IGNORED_SETTINGS:
            ignored.append(name)
        else:
            names = [*_BY_NAME, *_ALIASES, *(setting.name for setting in STORE_SETTINGS)]
            raise ConfigurationError(f'No such configuration property: "{name}"{did_you_mean(name, names)}')
    report_ignored(ignored, "producer")
    return values, explicit, store_options


def _check_idempotence(values: Mapping[str, Any], explicit: set[str]) -> None:
    """Refuses what librdkafka refuses: explicit settings that contradict idempotence where it was asked for."""
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
