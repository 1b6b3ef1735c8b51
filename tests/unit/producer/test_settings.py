from __future__ import annotations

import logging
from typing import Any

import pytest

from sparktxn._kafka.message import Message
from sparktxn._kafka.settings.client import IGNORED_SETTINGS
from sparktxn._kafka.settings.producer import PRODUCER_SETTINGS, ProducerSettings
from sparktxn.errors import KafkaError, KafkaException
from sparktxn.producer.reports import Reports

STORE = {"bootstrap.servers": "memory://settings"}


def refusal(given: dict[str, Any]) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        ProducerSettings.parse({**STORE, **given})
    return raised.value.error


def test_defaults_are_librdkafkas() -> None:
    settings = ProducerSettings.parse(STORE)
    assert (settings.linger_s, settings.batch_messages_max, settings.queue_messages_max) == (0.005, 10_000, 100_000)
    assert (settings.message_bytes_max, settings.partitioner) == (1_000_000, "consistent_random")
    assert settings.delivery_timeout_s == 300
    assert settings.publish_on_flush


def test_an_unknown_name_is_refused_in_librdkafkas_words_with_the_nearest() -> None:
    error = refusal({"linger.mss": 5})
    assert error == KafkaError._INVALID_ARG
    assert error.str() == "No such configuration property: \"linger.mss\"; did you mean 'linger.ms'?"


def test_names_for_brokers_are_accepted_with_one_debug_line_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "sparktxn"):
        ProducerSettings.parse(
            {**STORE, "security.protocol": "SASL_SSL", "sasl.username": "me", "socket.timeout.ms": 5}
        )
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "producer settings without a meaning here were ignored: socket.timeout.ms"),
        (
            "WARNING",
            "producer: settings of brokers' security are ignored, as the object store has its own (storage.*): "
            "sasl.username, security.protocol",
        ),
    ]


def test_values_of_ignored_secrets_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "sparktxn"):
        ProducerSettings.parse({**STORE, "sasl.password": "hunter2"})
    assert "hunter2" not in caplog.text


def test_a_consumers_settings_are_accepted() -> None:
    ProducerSettings.parse({**STORE, "group.id": "g", "auto.offset.reset": "earliest"})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"enable.idempotence": False, "transactional.id": "x"}, "enable.idempotence"),
        ({"acks": 1, "transactional.id": "x"}, "acks"),
        ({"request.required.acks": 0, "enable.idempotence": True}, "acks"),
        ({"max.in.flight": 6, "enable.idempotence": "true"}, "max.in.flight"),
        ({"retries": 0, "transactional.id": "x"}, "retries"),
        ({"message.timeout.ms": 70_000, "transactional.id": "x"}, "message.timeout.ms"),
        ({"enable.gapless.guarantee": True, "enable.idempotence": False}, "enable.gapless.guarantee"),
        ({"transaction.timeout.ms": 999}, "transaction.timeout.ms"),
        ({"transaction.publish": "never"}, "transaction.publish"),
        ({"partitioner": "murmur3"}, "murmur2"),
        ({"on_delivery": 5}, "on_delivery"),
    ],
)
def test_a_conflict_or_wrong_value_names_its_setting(given: dict[str, Any], named: str) -> None:
    error = refusal(given)
    assert error == KafkaError._INVALID_ARG
    assert named in error.str()


@pytest.mark.parametrize(
    "given", [{"acks": 1}, {"acks": "all", "enable.idempotence": True}, {"max.in.flight": 5, "transactional.id": "x"}]
)
def test_settings_that_agree_are_taken(given: dict[str, Any]) -> None:
    ProducerSettings.parse({**STORE, **given})


def test_the_delivery_timeout_is_lowered_to_the_transactions() -> None:
    settings = ProducerSettings.parse({**STORE, "transactional.id": "x", "transaction.timeout.ms": 5_000})
    assert settings.delivery_timeout_s == 5


def test_the_address_is_required_and_has_an_alias() -> None:
    with pytest.raises(KafkaException, match=r"bootstrap\.servers"):
        ProducerSettings.parse({})
    assert ProducerSettings.parse({"store.uri": "memory://x"}).uri == "memory://x"


def test_settings_of_the_store_pass_through() -> None:
    options = {"store.fsync": "false", "checkpoint.entries": 10, "storage.key": "k"}
    assert ProducerSettings.parse({**STORE, **options}).store_options == options


def test_ignored_names_are_lower_case_and_include_our_own() -> None:
    assert all(name == name.lower() for name in IGNORED_SETTINGS)
    ours = {setting.name for setting in PRODUCER_SETTINGS} - {"bootstrap.servers", "transaction.publish"}
    assert ours <= IGNORED_SETTINGS


def test_reports_of_success_can_be_left_out() -> None:
    told: list[KafkaError | None] = []
    reports = Reports(only_errors=True)
    error = KafkaError(KafkaError._MSG_TIMED_OUT)
    message = Message("topic", 0, 0)
    reports.add([(lambda failed, _: told.append(failed), found, message) for found in (None, error)])
    assert (reports.serve(), told) == (1, [error])
