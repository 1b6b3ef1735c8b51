"""The requests of producers with transactions, and of idempotent ones."""

from __future__ import annotations

from typing import Any, Final

from sparktxn.errors import ErrorCode, KafkaException
from sparktxn.format.commands import OffsetToCommit
from sparktxn.gateway.broker import Broker
from sparktxn.gateway.wire.wirecodes import coordinator_code_of
from sparktxn.gateway.wire.wiremessages import Answer, Request
from sparktxn.kafka.message import ConsumerGroupMetadata
from sparktxn.values.fieldtypes import TopicIdPartition, TopicPartitionKey
from sparktxn.values.structs import ProducerIdAndEpoch

__all__ = ["add_offsets_to_txn", "add_partitions_to_txn", "end_txn", "init_producer_id", "txn_offset_commit"]

_OPERATION_NOT_ATTEMPTED: Final = 55


def _code_of(error: KafkaException, version: int, fenced_from_version: int = 2) -> int:
    """Return the code of an answer: those of older versions know a fence as an epoch that is too old."""
    code = coordinator_code_of(error)
    if code == ErrorCode.PRODUCER_FENCED and version < fenced_from_version:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return code


def _identity(body: Any) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(body.producer_id, body.producer_epoch)


async def init_producer_id(broker: Broker, request: Request) -> Answer:
    """Give a producer its id and epoch."""
    body = request.body
    previous = ProducerIdAndEpoch(getattr(body, "producer_id", -1), getattr(body, "producer_epoch", -1))
    timeout_ms = round(body.transaction_timeout.total_seconds() * 1000)
    try:
        identity = await broker.calls.run(broker.transactions.initialise, body.transactional_id, timeout_ms, previous)
    except KafkaException as error:
        return {"error_code": _code_of(error, request.version, 4), "producer_id": -1, "producer_epoch": -1}
    return {"error_code": 0, "producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}


async def add_partitions_to_txn(broker: Broker, request: Request) -> Answer:
    """Open the transaction, and add partitions to it: all or none."""
    body = request.body
    codes = await broker.calls.run(_registered, broker, body, request.version)
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": number, "partition_error_code": codes[topic.name, number]}
                    for number in topic.partitions
                ],
            }
            for topic in body.v3_and_below_topics
        ]
    }


def _registered(broker: Broker, body: Any, version: int) -> dict[TopicPartitionKey, int]:
    asked = [(topic.name, number) for topic in body.v3_and_below_topics for number in topic.partitions]
    if any(broker.log.topic(name) is None for name, _ in asked):
        broker.log.refresh()  # it may just have been created at another gateway
    found: dict[TopicPartitionKey, TopicIdPartition] = {}
    codes = {}
    for name, number in asked:
        topic = broker.log.topic(name)
        if topic is None or not 0 <= number < topic.partition_count:
            codes[name, number] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            found[name, number] = (topic.topic_id, number)
    if codes:
        return {**dict.fromkeys(found, _OPERATION_NOT_ATTEMPTED), **codes}
    try:
        broker.transactions.register(body.v3_and_below_transactional_id, _identity_v3(body), set(found.values()))
    except KafkaException as error:
        return dict.fromkeys(asked, _code_of(error, version))
    return dict.fromkeys(asked, 0)


def _identity_v3(body: Any) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)


async def add_offsets_to_txn(broker: Broker, request: Request) -> Answer:
    """Open the transaction, and note that it will commit offsets of a group."""
    body = request.body
    try:
        await broker.calls.run(
            broker.transactions.register, body.transactional_id, _identity(body), set(), body.group_id
        )
    except KafkaException as error:
        return {"error_code": _code_of(error, request.version)}
    return {"error_code": 0}


async def txn_offset_commit(broker: Broker, request: Request) -> Answer:
    """Add a group's offsets to the transaction."""
    body = request.body
    codes = await broker.calls.run(_offsets_added, broker, body)
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": part.partition_index, "error_code": codes[topic.name, part.partition_index]}
                    for part in topic.partitions
                ],
            }
            for topic in body.topics
        ]
    }


def _offsets_added(broker: Broker, body: Any) -> dict[TopicPartitionKey, int]:
    codes: dict[TopicPartitionKey, int] = {}
    offsets: dict[TopicIdPartition, OffsetToCommit] = {}
    if any(broker.log.topic(topic.name) is None for topic in body.topics):
        broker.log.refresh()  # as above
    for topic in body.topics:
        known = broker.log.topic(topic.name)
        for part in topic.partitions:
            place = (topic.name, part.partition_index)
            if known is None or not 0 <= part.partition_index < known.partition_count:
                codes[place] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            codes[place] = 0
            offsets[known.topic_id, part.partition_index] = OffsetToCommit(
                known.topic_id,
                part.partition_index,
                part.committed_offset,
                part.committed_metadata or "",
                getattr(part, "committed_leader_epoch", -1),
            )
    try:
        if offsets:
            group, member = _speaker(broker, body)
            broker.transactions.add_offsets(body.transactional_id, _identity(body), group, offsets, member)
    except KafkaException as error:
        code = coordinator_code_of(error)
        if code == ErrorCode.PRODUCER_FENCED:
            code = int(ErrorCode.INVALID_PRODUCER_EPOCH)
        return {place: found or code for place, found in codes.items()}
    return codes


def _speaker(broker: Broker, body: Any) -> tuple[ConsumerGroupMetadata, ConsumerGroupMetadata | None]:
    """Return the group as which offsets are committed, and what the log is to check, if that is another one."""
    generation = max(-1, getattr(body, "generation_id", -1))
    member_id, instance_id = getattr(body, "member_id", ""), getattr(body, "group_instance_id", None) or None
    is_named = bool(member_id) or generation >= 0
    if not is_named or not broker.led_groups.has(body.group_id):
        return ConsumerGroupMetadata(body.group_id, generation, member_id, instance_id), None
    name, epoch = broker.led_groups.speaks(body.group_id, member_id, instance_id or "", generation)
    return ConsumerGroupMetadata(body.group_id), ConsumerGroupMetadata(name, epoch, member_id, instance_id)


async def end_txn(broker: Broker, request: Request) -> Answer:
    """Commit or abort the transaction."""
    body = request.body
    try:
        await broker.calls.run(
            broker.transactions.end, body.transactional_id, _identity(body), committed=body.committed
        )
    except KafkaException as error:
        return {"error_code": _code_of(error, request.version)}
    broker.log_end.note(broker.log.entry)
    return {"error_code": 0}
