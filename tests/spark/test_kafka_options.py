"""Settings of Kafka's clients as options: mapped, refused with advice, or ignored with one warning of their names."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog.options import options
from pyspark_txnlog.options.options import READ, READ_STREAM, SCHEMA, WRITE, WRITE_STREAM, ReadOptions, WriteOptions
from sparktxn import ConfigurationError

READING = {"kafka.bootstrap.servers": "/s", "subscribe": "a"}
WRITING = {"kafka.bootstrap.servers": "/s", "topic": "a"}

SECURITY = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": 'ScramLoginModule required password="hush";',
    "kafka.ssl.truststore.location": "/hush",
    "kafka.ssl.truststore.password": "hush",
}


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    monkeypatch.setattr(options, "_warned", set())
    with caplog.at_level(logging.WARNING, "sparktxn"):
        yield


@pytest.mark.parametrize("use", [READ, READ_STREAM, SCHEMA])
@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        ("auto.offset.reset", "set the source option 'startingOffsets' to 'earliest' or 'latest'"),
        ("key.deserializer", "keys are byte arrays"),
        ("value.deserializer", "values are byte arrays"),
        ("enable.auto.commit", "the offsets of a query are in its checkpoint"),
        ("interceptor.classes", "use DataFrame operations"),
    ],
)
def test_a_read_refuses_what_sparks_kafka_source_refuses(use: Any, setting: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Kafka option '{setting}' is not supported: .*{advice}"):
        ReadOptions.parse({**READING, f"kafka.{setting}": "x"}, use)


@pytest.mark.parametrize("use", [WRITE, WRITE_STREAM])
@pytest.mark.parametrize("setting", ["key.serializer", "value.serializer"])
def test_a_write_refuses_what_sparks_kafka_sink_refuses(use: Any, setting: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Kafka option '{setting}' is not supported: .*DataFrame operations"):
        WriteOptions.parse({**WRITING, f"kafka.{setting}": "x"}, use)


def test_one_warning_lists_the_names_of_what_is_ignored_and_no_value(caplog: pytest.LogCaptureFixture) -> None:
    given = {**READING, **SECURITY, "kafka.max.poll.records": "500", "kafka.client.id": "me", "kafka.my.plugin": "x"}
    ReadOptions.parse(given, SCHEMA)
    assert caplog.messages == [], "the reader's turn comes"
    for _ in range(3):
        ReadOptions.parse(given, READ_STREAM)
    (message,) = caplog.messages
    assert message == (
        "options without a meaning for readStream of txnlog were ignored: kafka.client.id, kafka.max.poll.records, "
        "kafka.my.plugin, kafka.sasl.jaas.config, kafka.sasl.mechanism, kafka.security.protocol, "
        "kafka.ssl.truststore.location, kafka.ssl.truststore.password"
    )
    assert "hush" not in caplog.text


def test_a_table_of_the_catalog_keeps_kafkas_settings_and_refuses_credentials() -> None:
    kept = {**READING, "kafka.group.id": "g", "kafka.security.protocol": "SASL_SSL"}
    created = {f"option.{name}": value for name, value in kept.items()}
    assert ReadOptions.parse(created, SCHEMA).table_options == kept
    for name in ("kafka.sasl.jaas.config", "kafka.ssl.truststore.password"):
        with pytest.raises(ConfigurationError, match=f"option '{name}' may be a credential") as refused:
            ReadOptions.parse({**created, f"option.{name}": SECURITY[name]}, SCHEMA)
        assert "hush" not in str(refused.value)


def test_a_write_ignores_what_tunes_a_producer(caplog: pytest.LogCaptureFixture) -> None:
    given = {**WRITING, "kafka.acks": "all", "kafka.compression.type": "zstd", "kafka.linger.ms": "5", **SECURITY}
    given |= {"kafka.group.id": "g", "kafka.isolation.level": "read_committed", "kafka.transactional.id": "id"}
    assert WriteOptions.parse(given, WRITE).transactional_id == "id"
    (message,) = caplog.messages
    assert "kafka.acks, kafka.compression.type, kafka.group.id, kafka.isolation.level, kafka.linger.ms" in message


def test_a_batch_ignores_the_limits_of_a_stream(caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "maxoffsetspertrigger": "5",
        "minoffsetspertrigger": "2",
        "maxtriggerdelay": "1m",
        "maxbytespertrigger": "9",
    }
    ReadOptions.parse({**READING, **given}, READ)
    (message,) = caplog.messages
    assert message.endswith("maxBytesPerTrigger, maxOffsetsPerTrigger, maxTriggerDelay, minOffsetsPerTrigger")
    with pytest.raises(ConfigurationError, match="'maxOffsetsPerTrigger' is 'x'"):
        ReadOptions.parse({**READING, "maxoffsetspertrigger": "x"}, READ)


def test_what_kafkas_source_checks_alone_is_accepted_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    given = {"groupidprefix": "p", "kafka.group.id": "g", "fetchoffset.numretries": "3"}
    given |= {"fetchoffset.retryintervalms": "10", "kafkaconsumer.polltimeoutms": "120000"}
    for use in (READ, READ_STREAM):
        ReadOptions.parse({**READING, **given}, use)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [("kafka.isolation.levle", "kafka.isolation.level"), ("kafka.transactional-id", "kafka.transactional.id")],
)
def test_a_setting_that_looks_misspelt_is_an_error(name: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"unknown option '{name}' for read of txnlog; did you mean '{meant}'"):
        ReadOptions.parse({**READING, name: "x"}, READ)


def test_an_option_of_ours_may_have_kafkas_prefix() -> None:
    assert ReadOptions.parse({**READING, "kafka.includeheaders": "true"}, READ).include_headers
    with pytest.raises(ConfigurationError, match=r"unknown option 'txnlog\.acks'"):
        WriteOptions.parse({**WRITING, "txnlog.acks": "all"}, WRITE)
