"""The consumer's settings: librdkafka's names and defaults, checked once."""

from __future__ import annotations

from typing import Any

import pytest

from sparktxn._kafka.settings.consumer import ConsumerSettings
from sparktxn._kafka.settings.producer import ProducerSettings
from sparktxn.errors import ConfigurationError, ErrorCode
from tests.each import each

REQUIRED = {"bootstrap.servers": "/data/log", "group.id": "g"}


def test_the_defaults_are_librdkafkas() -> None:
    settings = ConsumerSettings.parse(REQUIRED)
    assert settings.isolation == "read_committed"
    assert settings.auto_offset_reset == "latest"
    assert settings.enable_auto_commit
    assert settings.auto_commit_interval_ms == 5_000
    assert settings.enable_auto_offset_store
    assert not settings.enable_partition_eof
    assert settings.fetch_wait_ms_max == 500
    assert settings.fetch_bytes_max == 52_428_800
    assert settings.partition_fetch_bytes_max == 1_048_576
    assert settings.session_timeout_ms == 45_000
    assert settings.max_poll_interval_ms == 300_000
    assert settings.is_classic


def test_a_client_without_a_name_is_named_by_what_it_is() -> None:
    assert ConsumerSettings.parse(REQUIRED).client_id == "sparktxn-consumer"
    assert ProducerSettings.parse({"bootstrap.servers": "/data/log"}).client_id == "sparktxn-producer"


def test_heartbeats_are_rarer_than_librdkafkas() -> None:
    assert ConsumerSettings.parse(REQUIRED).heartbeat_interval_ms == 15_000


@pytest.mark.parametrize("name", ["store.uri", "metadata.broker.list", "bootstrap.servers"])
def test_the_address_has_aliases(name: str) -> None:
    assert ConsumerSettings.parse({name: "s3://b/p", "group.id": "g"}).uri == "s3://b/p"


def test_settings_of_the_store_go_to_the_store() -> None:
    settings = ConsumerSettings.parse({**REQUIRED, "store.fsync": "false", "storage.key": "k"})
    assert settings.store_options == {"store.fsync": "false", "storage.key": "k"}


@each(["security.protocol", "group.protocol.type", "fetch.min.bytes", "debug", "throttle_cb"])
def test_settings_without_a_meaning_here_are_accepted(name: str) -> None:
    assert ConsumerSettings.parse({**REQUIRED, name: "x"}) == ConsumerSettings.parse(REQUIRED)


@pytest.mark.parametrize(
    ("given", "assignors", "incremental"),
    [
        ({}, ("range", "uniform"), False),
        ({"partition.assignment.strategy": "roundrobin"}, ("uniform",), False),
        ({"partition.assignment.strategy": "roundrobin, RANGE"}, ("uniform", "range"), False),
        ({"partition.assignment.strategy": "cooperative-sticky"}, ("uniform",), True),
        ({"group.protocol": "consumer"}, ("uniform",), True),
        ({"group.protocol": "consumer", "group.remote.assignor": "range"}, ("range",), True),
    ],
)
def test_the_assignors_follow_from_protocol_and_strategy(
    given: dict[str, Any], assignors: tuple[str, ...], incremental: bool
) -> None:
    settings = ConsumerSettings.parse({**REQUIRED, **given})
    assert settings.assignors == assignors
    assert settings.is_incremental is incremental


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"group.id": ""}, ["group.id"]),
        ({"bootstrap.servers": ""}, ["bootstrap.servers"]),
        ({"isolation.levle": "x"}, ['No such configuration property: "isolation.levle"', "'isolation.level'"]),
        ({"store.fsnc": True}, ["store.fsync"]),
        ({"isolation.level": "committed"}, ["isolation.level", "read_committed"]),
        ({"auto.offset.reset": "ealiest"}, ["auto.offset.reset", "earliest"]),
        ({"enable.auto.commit": "maybe"}, ["enable.auto.commit", "true or false"]),
        ({"session.timeout.ms": "x"}, ["session.timeout.ms", "100 to 1800000"]),
        ({"group.protocol": "new"}, ["group.protocol", "classic, consumer"]),
        ({"group.remote.assignor": "sticky"}, ["group.remote.assignor", "uniform, range"]),
        ({"partition.assignment.strategy": "sticky"}, ["partition.assignment.strategy", "cooperative-sticky"]),
        ({"partition.assignment.strategy": "range,cooperative-sticky"}, ["partition.assignment.strategy", "range"]),
        ({"fetch.wait.max.ms": -1}, ["fetch.wait.max.ms", "300000"]),
        ({"on_commit": 3}, ["on_commit", "function"]),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ConsumerSettings.parse({**REQUIRED, **given})
    assert caught.value.error.code() == ErrorCode.LOCAL_INVALID_ARG
    assert all(word in str(caught.value) for word in words), str(caught.value)
