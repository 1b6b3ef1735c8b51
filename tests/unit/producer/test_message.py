from __future__ import annotations

import pickle

from sparktxn._kafka.message import (
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    ConsumerGroupMetadata,
    Message,
    TopicPartition,
)


def test_a_message_answers_as_confluents() -> None:
    message = Message("t", 1, 2, b"k", b"value", [("h", None)], timestamp=(TIMESTAMP_CREATE_TIME, 5))
    assert (message.topic(), message.partition(), message.offset()) == ("t", 1, 2)
    assert (message.key(), message.value(), message.headers()) == (b"k", b"value", [("h", None)])
    assert message.timestamp() == (TIMESTAMP_CREATE_TIME, 5)
    assert (message.error(), message.latency(), message.leader_epoch()) == (None, None, None)
    assert len(message) == 5
    message.set_value(None)
    message.set_key(b"")
    message.set_headers(None)
    assert (message.key(), message.value(), message.headers(), len(message)) == (b"", None, None, 0)


def test_a_message_without_a_value_is_still_true() -> None:
    assert Message("t", 0, 0)


def test_partitions_are_equal_and_ordered_by_place_alone() -> None:
    assert TopicPartition("a", 1, 5) == TopicPartition("a", 1)
    assert hash(TopicPartition("a", 1, 5)) == hash(TopicPartition("a", 1))
    assert sorted([TopicPartition("b", 0), TopicPartition("a", 1), TopicPartition("a", 0)])[0].partition == 0
    assert TopicPartition("a").offset == OFFSET_INVALID


def test_what_goes_to_executors_survives_pickling() -> None:
    group = ConsumerGroupMetadata("g", 3, "member", "instance")
    assert pickle.loads(pickle.dumps(group)) == group
    partition = pickle.loads(pickle.dumps(TopicPartition("a", 1, 5, "m")))
    assert (partition.topic, partition.partition, partition.offset, partition.metadata) == ("a", 1, 5, "m")
