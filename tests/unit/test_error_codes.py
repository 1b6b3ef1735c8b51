"""Codes, names and flags of errors are librdkafka's, so that a program's own tests of them hold."""

from __future__ import annotations

import re

import pytest

from sparktxn import errors
from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from tests.each import each

# As programs that were written for confluent-kafka compare with them (rd_kafka_resp_err_t).
COMPARED = {
    "_ALL_BROKERS_DOWN": -187,
    "_ASSIGNMENT_LOST": -142,
    "_AUTHENTICATION": -169,
    "_FAIL": -196,
    "_FATAL": -150,
    "_FENCED": -144,
    "_MAX_POLL_EXCEEDED": -147,
    "_MSG_TIMED_OUT": -192,
    "_PARTITION_EOF": -191,
    "_PREV_IN_PROGRESS": -177,
    "_PURGE_INFLIGHT": -151,
    "_PURGE_QUEUE": -152,
    "_QUEUE_FULL": -184,
    "_RESOLVE": -193,
    "_STATE": -172,
    "_TIMED_OUT": -185,
    "_TRANSPORT": -195,
    "_UNKNOWN_PARTITION": -190,
    "_UNKNOWN_TOPIC": -188,
    "_VALUE_DESERIALIZATION": -159,
    "UNKNOWN": -1,
    "NO_ERROR": 0,
    "OFFSET_OUT_OF_RANGE": 1,
    "INVALID_MSG": 2,
    "UNKNOWN_TOPIC_OR_PART": 3,
    "LEADER_NOT_AVAILABLE": 5,
    "REQUEST_TIMED_OUT": 7,
    "MSG_SIZE_TOO_LARGE": 10,
    "GROUP_LOAD_IN_PROGRESS": 14,
    "COORDINATOR_NOT_AVAILABLE": 15,
    "NOT_COORDINATOR_FOR_GROUP": 16,
    "TOPIC_EXCEPTION": 17,
    "ILLEGAL_GENERATION": 22,
    "UNKNOWN_MEMBER_ID": 25,
    "REBALANCE_IN_PROGRESS": 27,
    "TOPIC_AUTHORIZATION_FAILED": 29,
    "TOPIC_ALREADY_EXISTS": 36,
    "POLICY_VIOLATION": 44,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": 45,
    "INVALID_PRODUCER_EPOCH": 47,
    "CONCURRENT_TRANSACTIONS": 51,
    "SASL_AUTHENTICATION_FAILED": 58,
    "NON_EMPTY_GROUP": 68,
    "MEMBER_ID_REQUIRED": 79,
    "FENCED_INSTANCE_ID": 82,
    "PRODUCER_FENCED": 90,
    "PRINCIPAL_DESERIALIZATION_FAILURE": 97,
}
OLD_NAMES = {"GROUP_LOAD_IN_PROGRESS", "NOT_COORDINATOR_FOR_GROUP"}


@pytest.mark.kafka("K120")
@each(COMPARED.items())
def test_a_code_has_librdkafkas_number_and_name(name: str, code: int) -> None:
    assert getattr(KafkaError, name) == code
    error = KafkaError(code)
    assert error == code
    assert (error.name() == name) == (name not in OLD_NAMES)


def test_no_number_is_left_out() -> None:
    local = [code for code in range(-199, -138) if not KafkaError(code).name().startswith("_")]
    assert local == []
    assert [code for code in range(-1, 98) if KafkaError(code).name().startswith("ERR_")] == []


@each(ErrorCode)
def test_kafkas_own_name_is_known_beside_it(code: ErrorCode) -> None:
    assert getattr(KafkaError, code.name.replace("LOCAL_", "_", 1)) == code
    assert getattr(KafkaError, KafkaError(code).name()) == code


def test_a_code_of_a_later_version_has_a_name_of_its_own() -> None:
    assert KafkaError(999).name() == "ERR_999?"
    assert str(KafkaError(999, "new")) == 'KafkaError{code=ERR_999?,val=999,str="new"}'


def test_a_name_that_does_not_exist_is_an_attribute_error_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean 'UNKNOWN_TOPIC_OR_PART'"):
        _ = KafkaError.UNKNOWN_TOPIC_OR_PARTS
    assert not hasattr(KafkaError, "__wrapped__")


def test_equality_and_order_are_by_the_code() -> None:
    error = KafkaError(ErrorCode.PRODUCER_FENCED, "why", fatal=True)
    assert error == KafkaError(90)
    assert error == KafkaError.PRODUCER_FENCED
    assert KafkaError(89) < error < 91
    assert error != "PRODUCER_FENCED"
    assert hash(error) == hash(KafkaError(90))


def subclasses(root: type[Exception]) -> set[type[Exception]]:
    return {root}.union(*(subclasses(child) for child in root.__subclasses__() if child.__module__ == root.__module__))


def test_the_tree_of_errors_shows_every_class() -> None:
    """In the docstring of errors.py, and in its public names."""
    classes = {found.__name__ for found in subclasses(KafkaException)}
    tree = (errors.__doc__ or "").split("::\n")[1]
    assert set(re.findall(r"^[ │├└─]*([A-Z]\w+) ", tree, re.MULTILINE)) == classes
    assert classes <= set(errors.__all__)
