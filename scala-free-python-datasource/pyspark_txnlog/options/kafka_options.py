"""Options ``kafka.*``: settings of Kafka's clients, which a program brings along from ``format("kafka")``.

Those with a meaning here are mapped to an option. What Spark's Kafka connector refuses is refused with its advice.
Everything else, mostly about a network of brokers and its security, changes nothing: one warning lists the names.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Final

from pyspark_txnlog.options.sparkevents import log_event
from sparktxn import ConfigurationError

__all__ = ["KAFKA_PREFIX", "MAPPED_SETTINGS", "REFUSED_READING", "REFUSED_WRITING", "check_setting", "warn_ignored"]

KAFKA_PREFIX: Final = "kafka."

MAPPED_SETTINGS: Final = {
    "bootstrap.servers": "path",
    "isolation.level": "isolationLevel",
    "transactional.id": "transactionalId",
}
"""Settings of Kafka's clients, with the option that has the same meaning."""

REFUSED_READING: Final = {
    "auto.offset.reset": "set the source option 'startingOffsets' to 'earliest' or 'latest' instead. It says where a "
    "new query starts; a restarted one continues where it stopped",
    "key.deserializer": "keys are byte arrays; use DataFrame operations to deserialize them",
    "value.deserializer": "values are byte arrays; use DataFrame operations to deserialize them",
    "enable.auto.commit": "the offsets of a query are in its checkpoint",
    "interceptor.classes": "use DataFrame operations to change what is read",
}
"""What a read refuses, as Spark's Kafka source does, with the advice."""

REFUSED_WRITING: Final = {
    "key.serializer": "keys are strings or byte arrays; use DataFrame operations to serialize them",
    "value.serializer": "values are strings or byte arrays; use DataFrame operations to serialize them",
}
"""What a write refuses, as Spark's Kafka sink does, with the advice."""

_MISSPELT_CUTOFF: Final = 0.8
"""How alike two names are where one is taken for the other misspelt; plug-ins of Kafka's clients have names, too."""

_FAMILIES: Final = ("sasl.", "ssl.", "security.", "metric.", "metrics.")

_CLIENT_SETTINGS: Final = """
    acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset batch.size
    bootstrap.controllers buffer.memory check.crcs client.dns.lookup client.id client.rack compression.gzip.level
    compression.lz4.level compression.type compression.zstd.level connections.max.idle.ms default.api.timeout.ms
    delivery.timeout.ms enable.auto.commit enable.idempotence enable.metrics.push exclude.internal.topics
    fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor
    heartbeat.interval.ms interceptor.classes internal.leave.group.on.close key.deserializer key.serializer linger.ms
    max.block.ms max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    max.request.size metadata.max.age.ms metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy partition.assignment.strategy partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    send.buffer.bytes session.timeout.ms share.acknowledgement.mode socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms transaction.timeout.ms transaction.two.phase.commit.enable value.deserializer
    value.serializer
"""

_KNOWN: Final = frozenset(_CLIENT_SETTINGS.split())

_warned: set[tuple[str, ...]] = set()


def check_setting(setting: str, use: str, *, writing: bool) -> None:
    """Raise unless a setting, without ``kafka.``, that is mapped to no option may be ignored.

    Raises:
        ConfigurationError: Spark's Kafka connector refuses it too, or it looks like another setting misspelt.
    """
    known = setting.lower()
    refused = REFUSED_WRITING if writing else REFUSED_READING
    if known in refused:
        raise ConfigurationError(f"Kafka option {known!r} is not supported: {refused[known]}")
    if known in _KNOWN or known in MAPPED_SETTINGS or known.startswith(_FAMILIES):
        return
    nearest = difflib.get_close_matches(known, sorted((*_KNOWN, *MAPPED_SETTINGS)), n=1, cutoff=_MISSPELT_CUTOFF)
    if nearest:
        name, meant = KAFKA_PREFIX + setting, KAFKA_PREFIX + nearest[0]
        raise ConfigurationError(f"unknown option {name!r} for {use} of txnlog; did you mean {meant!r}?")


def warn_ignored(names: Collection[str], use: str) -> None:
    """Log one warning with the options that change nothing: a process logs the same names once. Shows no values."""
    key = (use, *sorted(names))
    if names and key not in _warned:
        _warned.add(key)
        log_event("spark_options_ignored", use=use, options=", ".join(key[1:]))
