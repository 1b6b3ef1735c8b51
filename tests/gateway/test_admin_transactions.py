"""Administrators' requests for transactions and for consumer groups, in Kafka's codes."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparktxn import Consumer, Producer, TopicPartition
from sparktxn.errors import KafkaException
from tests.gateway.processes import Gateway
from tests.gateway.wire import Wire


@pytest.fixture
def name() -> str:
    return f"n{uuid.uuid4().hex}"


@pytest.fixture
def opened(served: Gateway, name: str) -> Iterator[Producer]:
    """A producer with a transaction that is open in both partitions of the topic."""
    producer = Producer({"bootstrap.servers": served.store, "transactional.id": name})
    producer.init_transactions()
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("orders", "open", partition=partition)
    producer.flush()
    yield producer
    producer.close()


def listed(wire: Wire, version: int = 2, **filters: Any) -> dict[str, str]:
    answer = wire.ask("list_transactions", version, **filters)
    assert answer.error_code is ErrorCode.none
    return {each.transactional_id: each.transaction_state for each in answer.transaction_states}


@pytest.mark.usefixtures("opened")
def test_transactions_are_listed_by_state_age_and_name(wire: Wire, name: str) -> None:
    assert [listed(wire, version)[name] for version in range(3)] == ["Ongoing"] * 3
    assert listed(wire, state_filters=["Ongoing"])[name] == "Ongoing"
    assert name not in listed(wire, state_filters=["Empty"])
    assert name not in listed(wire, duration_filter=3_600_000)
    assert listed(wire, transactional_id_pattern=name[:-1] + ".") == {name: "Ongoing"}
    assert name not in listed(wire, producer_id_filters=[2**40])


def test_a_state_that_does_not_exist_matches_nothing_and_is_said(wire: Wire) -> None:
    answer = wire.ask("list_transactions", 2, state_filters=["Asleep"])
    assert (answer.unknown_state_filters, answer.transaction_states) == (("Asleep",), ())


def test_a_pattern_that_is_none_is_refused(wire: Wire) -> None:
    answer = wire.ask("list_transactions", 2, transactional_id_pattern="(")
    assert answer.error_code is ErrorCode.invalid_regular_expression


@pytest.mark.usefixtures("opened")
def test_a_transaction_is_described(wire: Wire, name: str) -> None:
    found, missing = wire.ask("describe_transactions", 0, transactional_ids=[name, "missing"]).transaction_states
    assert (found.error_code, found.transaction_state) == (ErrorCode.none, "Ongoing")
    assert [(each.topic, each.partitions) for each in found.topics] == [("orders", (0, 1))]
    assert found.transaction_timeout.total_seconds() == 60
    assert missing.error_code is ErrorCode.transactional_id_not_found


def test_a_transactional_id_without_transactions_is_described(wire: Wire, served: Gateway, name: str) -> None:
    with Producer({"bootstrap.servers": served.store, "transactional.id": name}) as producer:
        producer.init_transactions()
    (found,) = wire.ask("describe_transactions", 0, transactional_ids=[name]).transaction_states
    assert (found.error_code, found.transaction_state, found.topics) == (ErrorCode.none, "Empty", ())


def producers_of(wire: Wire, *partitions: int, topic: str = "orders") -> list[Any]:
    asked = [{"name": topic, "partition_indexes": list(partitions)}]
    (answer,) = wire.ask("describe_producers", 0, topics=asked).topics
    return list(answer.partitions)


def abort(wire: Wire, producer: Any, *partitions: int, committed: bool = False, **other: int) -> list[ErrorCode]:
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transaction_result": committed,
        "topics": [{"name": "orders", "partition_indexes": list(partitions)}],
        "coordinator_epoch": max(0, producer.coordinator_epoch),
    }
    (answer,) = wire.ask("write_txn_markers", 1, markers=[{**marker, **other}]).markers
    assert answer.producer_id == producer.producer_id
    return [each.error_code for topic in answer.topics for each in topic.partitions]


def test_an_open_transaction_is_found_and_aborted_in_all_partitions(wire: Wire, opened: Producer, name: str) -> None:
    first, second = producers_of(wire, 0, 1)
    (producer,) = [each for each in first.active_producers if each.current_txn_start_offset >= 0]
    assert producer.producer_id in [each.producer_id for each in second.active_producers]
    assert abort(wire, producer, 0, committed=True) == [ErrorCode.invalid_request]
    assert abort(wire, producer, 0, producer_epoch=producer.producer_epoch + 1) == [ErrorCode.invalid_producer_epoch]
    assert abort(wire, producer, 0, 1, 7) == [ErrorCode.none, ErrorCode.none, ErrorCode.unknown_topic_or_partition]
    assert listed(wire)[name] == "CompleteAbort"
    with pytest.raises(KafkaException):
        opened.commit_transaction()
    assert abort(wire, producer, 0) == [ErrorCode.invalid_txn_state]


def test_a_transaction_without_records_in_the_store_is_found_and_aborted(
    wire: Wire, served: Gateway, name: str
) -> None:
    """Two of them have other numbers, which stay; so an abort ends the one that was seen."""
    known = {each: begun(wire, each) for each in (name, f"{name}-other")}
    (partition,) = producers_of(wire, 1)
    found = {each.producer_id: each for each in partition.active_producers}
    starts = {each: found[known[each].producer_id].current_txn_start_offset for each in known}
    assert min(starts.values()) >= 2**62
    assert len(set(starts.values())) == 2
    producer = found[known[name].producer_id]
    assert abort(wire, producer, 1, committed=True) == [ErrorCode.invalid_request]
    assert abort(wire, producer, 1, producer_epoch=producer.producer_epoch + 1) == [ErrorCode.invalid_producer_epoch]
    assert abort(wire, producer, 0) == [ErrorCode.invalid_txn_state], "it has not registered this one"
    with Producer({"bootstrap.servers": served.store}) as other:
        other.produce("orders", "more", partition=1)
    (again,) = producers_of(wire, 1)
    now = {each.producer_id: each.current_txn_start_offset for each in again.active_producers}
    assert {each: now[known[each].producer_id] for each in known} == starts
    assert abort(wire, producer, 1) == [ErrorCode.none]
    assert abort(wire, producer, 1) == [ErrorCode.invalid_txn_state]
    assert (listed(wire)[name], listed(wire)[f"{name}-other"]) == ("CompleteAbort", "Ongoing")


def begun(wire: Wire, name: str) -> Any:
    answer = wire.ask(
        "init_producer_id", 4, transactional_id=name, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
    )
    added = wire.ask(
        "add_partitions_to_txn",
        3,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=answer.producer_id,
        v3_and_below_producer_epoch=answer.producer_epoch,
        v3_and_below_topics=[{"name": "orders", "partitions": [1]}],
    )
    (topic,) = added.results_by_topic_v3_and_below
    assert [each.partition_error_code for each in topic.results_by_partition] == [ErrorCode.none]
    return answer


def test_producers_of_what_does_not_exist_are_refused(wire: Wire) -> None:
    assert [each.error_code for each in producers_of(wire, 0, 9)] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]
    (missing,) = producers_of(wire, 0, topic="missing")
    assert missing.error_code is ErrorCode.unknown_topic_or_partition


@pytest.fixture
def group(served: Gateway, name: str) -> Iterator[Consumer]:
    """A member of a group that has both partitions, and has committed an offset."""
    settings = {"bootstrap.servers": served.store, "group.id": name, "auto.offset.reset": "earliest"}
    with Producer({"bootstrap.servers": served.store}) as producer:
        producer.produce("orders", "one", partition=0)
        producer.flush()
    with Consumer(settings) as consumer:
        consumer.subscribe(["orders"])
        assert consumer.poll(30) is not None
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        yield consumer


def groups_of(wire: Wire, version: int = 5, **filters: Any) -> dict[str, Any]:
    answer = wire.ask("list_groups", version, **filters)
    assert answer.error_code is ErrorCode.none
    return {each.group_id: each for each in answer.groups}


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(wire: Wire, name: str, version: int) -> None:
    found = groups_of(wire, version)[name]
    assert found.protocol_type == "consumer"
    if version >= 4:
        assert found.group_state == "Stable"
        assert name not in groups_of(wire, version, states_filter=["Empty"])
        assert name in groups_of(wire, version, states_filter=["stable"])
    if version >= 5:
        assert name in groups_of(wire, version, types_filter=[found.group_type.lower()])
        assert name not in groups_of(wire, version, types_filter=["share"])


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("version", range(7))
def test_a_group_is_described_with_what_its_members_have(wire: Wire, name: str, version: int) -> None:
    more = {"include_authorized_operations": True} if version >= 3 else {}
    found, missing = wire.ask("describe_groups", version, groups=[name, "missing"], **more).groups
    assert (found.error_code, found.group_state, found.protocol_type) == (ErrorCode.none, "Stable", "consumer")
    (member,) = found.members
    topic = struct.pack(">h", 6) + b"orders"
    assert member.member_metadata == struct.pack(">hi", 0, 1) + topic + struct.pack(">i", -1)
    assert member.member_assignment == struct.pack(">hi", 0, 1) + topic + struct.pack(">iiii", 2, 0, 1, -1)
    assert (missing.group_state, missing.members) == ("Dead", ())
    assert missing.error_code is (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)


@pytest.mark.parametrize("version", range(3))
def test_a_group_is_deleted_once_it_is_empty(wire: Wire, group: Consumer, name: str, version: int) -> None:
    def delete(*names: str) -> list[ErrorCode]:
        return [each.error_code for each in wire.ask("delete_groups", version, groups_names=list(names)).results]

    assert delete(name) == [ErrorCode.non_empty_group]
    group.close()
    assert groups_of(wire)[name].group_state == "Empty"
    assert delete(name, "missing") == [ErrorCode.none, ErrorCode.group_id_not_found]
    assert name not in groups_of(wire)


def test_offsets_of_a_group_are_deleted(wire: Wire, group: Consumer, name: str) -> None:
    def forget(topic: str, *partitions: int, of: str = name) -> tuple[ErrorCode, list[ErrorCode]]:
        parts = [{"partition_index": number} for number in partitions]
        answer = wire.ask("offset_delete", 0, group_id=of, topics=[{"name": topic, "partitions": parts}])
        return answer.error_code, [part.error_code for topic in answer.topics for part in topic.partitions]

    assert forget("orders", 0) == (ErrorCode.none, [ErrorCode.group_subscribed_to_topic])
    group.close()
    assert forget("orders", 0, 9) == (ErrorCode.none, [ErrorCode.none, ErrorCode.unknown_topic_or_partition])
    assert forget("orders", 0, of="missing") == (ErrorCode.group_id_not_found, [])
    assert name not in groups_of(wire)
