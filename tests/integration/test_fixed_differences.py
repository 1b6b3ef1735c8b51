"""Differences from confluent-kafka that the differential cases of `make interop` have found, and that are gone."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from sparktxn import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from sparktxn.admin import AdminClient, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec


@pytest.fixture
def uri() -> str:
    address = f"memory://fixed-{uuid.uuid4().hex}"
    AdminClient({"bootstrap.servers": address}).create_topics([NewTopic("t", 2)])["t"].result()
    with Producer({"bootstrap.servers": address}) as producer:
        for number in range(3):
            producer.produce("t", f"v{number}", partition=0)
    return address


def consumer(uri: str, **settings: Any) -> Consumer:
    return Consumer({"bootstrap.servers": uri, "group.id": "g", **settings})


def polled(reader: Consumer) -> Message:
    message = reader.poll(10)
    assert message is not None
    return message


def test_the_assignment_has_the_offsets_that_were_assigned(uri: str) -> None:
    with consumer(uri) as reader:
        reader.assign([TopicPartition("t", 0, 1), TopicPartition("t", 1)])
        assert [place.offset for place in reader.assignment()] == [1, -1001]
        assert polled(reader).offset() == 1
        assert [place.offset for place in reader.assignment()] == [1, -1001]
        reader.incremental_unassign([TopicPartition("t", 0)])
        reader.incremental_assign([TopicPartition("t", 0, 2)])
        assert [place.offset for place in reader.assignment()] == [2, -1001]


def test_the_end_of_a_partition_has_no_timestamp(uri: str) -> None:
    with consumer(uri, **{"enable.partition.eof": True}) as reader:
        reader.assign([TopicPartition("t", 0, 3)])
        assert polled(reader).timestamp() == (0, -1)


def test_a_message_with_an_error_cannot_be_committed(uri: str) -> None:
    with consumer(uri, **{"enable.partition.eof": True}) as reader:
        reader.assign([TopicPartition("t", 0, 3)])
        with pytest.raises(KafkaException, match="reached the end of the partition") as raised:
            reader.commit(message=polled(reader), asynchronous=False)
        assert raised.value.args[0] == KafkaError._INVALID_ARG


def test_an_error_without_an_offset_has_none(uri: str) -> None:
    with consumer(uri, **{"auto.offset.reset": "error"}) as reader:
        reader.assign([TopicPartition("t", 0)])
        message = polled(reader)
        assert message.error() == KafkaError._AUTO_OFFSET_RESET
        assert message.offset() is None


def test_offsets_are_listed_under_what_was_asked_for(uri: str) -> None:
    specs = [OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp(), OffsetSpec.for_timestamp(7)]
    admin = AdminClient({"bootstrap.servers": uri})
    keys = [next(iter(admin.list_offsets({TopicPartition("t", 0): spec}))) for spec in specs]
    assert [key.offset for key in keys] == [-2, -1, -3, 7]
    assert keys == [TopicPartition("t", 0)] * 4


def test_a_code_is_a_number() -> None:
    code: Any = "3"
    with pytest.raises(TypeError):
        KafkaError(code)


def test_what_administrators_pass_is_ordered_and_printed_as_there() -> None:
    assert sorted([NewTopic("u", 1), NewTopic("t", 2)])[0].topic == "t"
    assert sorted([NewPartitions("u", 1), NewPartitions("t", 2)])[0].topic == "t"
    assert str(NewTopic("t", 1)) == "NewTopic(topic=t)"
    assert str(NewPartitions("t", 4)) == "NewPartitions(topic=t,new_total_count=4)"
    assert str(ConfigEntry("name", "value")) == 'name="value"'
    assert str(ConfigResource("topic", "t")) == "ConfigResource(ResourceType.TOPIC,t)"


def test_settings_of_share_groups_are_accepted_by_every_consumer(uri: str) -> None:
    consumer(uri, **{"max.poll.records": 5, "share.acknowledgement.mode": "implicit"}).close()


def test_an_error_that_error_cb_raises_comes_out_of_the_call(uri: str) -> None:
    def fail(_: KafkaError) -> None:
        raise ArithmeticError

    settings = {"bootstrap.servers": uri, "transactional.id": "id"}
    with Producer(settings, error_cb=fail) as old, Producer(settings) as new:
        old.init_transactions()
        old.begin_transaction()
        new.init_transactions()
        old.produce("t", "v")
        with pytest.raises(ArithmeticError):
            old.flush(10)
