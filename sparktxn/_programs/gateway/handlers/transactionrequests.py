"""The requests of producers with transactions, and of idempotent ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sparktxn import ConsumerGroupMetadata
from sparktxn._engine.format.commands import OffsetToCommit
from sparktxn._foundation.values.structs import ProducerIdAndEpoch
from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.groups.grouprosters import check_group_id
from sparktxn._programs.gateway.wire.wirecodes import coordinator_code_of, known_code
from sparktxn._programs.gateway.wire.wiremessages import Answer, Request
from sparktxn._rows.stage.transactionwriter import NO_IDENTITY
from sparktxn.errors import CommandRefused, ErrorCode, KafkaException
from sparktxn.store.groupoffsets import any_offset_to_commit
from sparktxn.store.options import TopicIdPartition, TopicPartitionKey

_OPERATION_NOT_ATTEMPTED: Final = 55
_MANY_FROM: Final = 4
_ADDS_GROUP: Final = 5
_RENEWS: Final = 5
"""From which versions on transactions are those of version 2 (KIP-890)."""


def _code_of(error: KafkaException, request: Request) -> int:
    return known_code(coordinator_code_of(error), request.key, request.version)


def _check_place(broker: Broker, request: Request, transactional_id: str) -> None:
    """Send a client on that has kept its coordinator although its transactions are at another gateway by now.

    For the loop's thread.

    Raises:
        CommandRefused: NOT_COORDINATOR, after which clients look for their coordinator and ask it.
    """
    if broker.transactions.holds(transactional_id):
        return
    other = broker.referrals.other_gateway(transactional_id, request.client_host, request.client_id)
    if other is not None:
        raise CommandRefused(ErrorCode.NOT_COORDINATOR, f"the coordinator of {transactional_id!r} is at {other}")


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
        return {"error_code": _code_of(error, request), "producer_id": -1, "producer_epoch": -1}
    return {"error_code": 0, "producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}


async def add_partitions_to_txn(broker: Broker, request: Request) -> Answer:
    """Open the transaction, and add partitions to it: all or none. From version 4 on there may be several."""
    body = request.body
    if request.version < _MANY_FROM:
        identity = ProducerIdAndEpoch(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        asked = (body.v3_and_below_transactional_id, identity, body.v3_and_below_topics)
        return {"results_by_topic_v3_and_below": await _registered(broker, request, *asked)}
    results = []
    for each in body.transactions:
        asked = (each.transactional_id, _identity(each), each.topics)
        topics = await _registered(broker, request, *asked, only_checks=each.verify_only)
        results.append({"transactional_id": each.transactional_id, "topic_results": topics})
    return {"error_code": 0, "results_by_transaction": results}


async def _registered(
    broker: Broker,
    request: Request,
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    topics: Sequence[Any],
    *,
    only_checks: bool = False,
) -> list[dict[str, Any]]:
    asked = [(topic.name, number) for topic in topics for number in topic.partitions]
    try:
        _check_place(broker, request, transactional_id)
        codes = await broker.calls.run(_codes, broker, transactional_id, identity, asked, only_checks=only_checks)
    except KafkaException as error:
        codes = dict.fromkeys(asked, _code_of(error, request))
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": number, "partition_error_code": codes[topic.name, number]}
                for number in topic.partitions
            ],
        }
        for topic in topics
    ]


def _codes(
    broker: Broker,
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    asked: Sequence[TopicPartitionKey],
    *,
    only_checks: bool,
) -> dict[TopicPartitionKey, int]:
    broker.topics.read_on_for(asked)
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
    if not only_checks:
        broker.transactions.register(transactional_id, identity, set(found.values()))
    elif not broker.transactions.takes(transactional_id, identity, found.values()):
        raise CommandRefused(ErrorCode.TRANSACTION_ABORTABLE, f"{transactional_id!r} has not added the partitions")
    return dict.fromkeys(asked, 0)


async def add_offsets_to_txn(broker: Broker, request: Request) -> Answer:
    """Open the transaction, and note that it will commit offsets of a group."""
    body = request.body
    try:
        check_group_id(body.group_id)
        _check_place(broker, request, body.transactional_id)
        await broker.calls.run(
            broker.transactions.register, body.transactional_id, _identity(body), set(), body.group_id
        )
    except KafkaException as error:
        return {"error_code": _code_of(error, request)}
    return {"error_code": 0}


async def txn_offset_commit(broker: Broker, request: Request) -> Answer:
    """Add a group's offsets to the transaction; from version 5 on this adds the group, too."""
    body = request.body
    try:
        _check_place(broker, request, body.transactional_id)
        codes = await broker.calls.run(_offsets_added, broker, request)
    except KafkaException as error:
        places = ((topic.name, part.partition_index) for topic in body.topics for part in topic.partitions)
        codes = dict.fromkeys(places, _code_of(error, request))
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


def _offsets_added(broker: Broker, request: Request) -> dict[TopicPartitionKey, int]:
    body = request.body
    codes: dict[TopicPartitionKey, int] = {}
    offsets: dict[TopicIdPartition, OffsetToCommit] = {}
    broker.topics.read_on_for((topic.name, part.partition_index) for topic in body.topics for part in topic.partitions)
    for topic in body.topics:
        known = broker.log.topic(topic.name)
        for part in topic.partitions:
            place = (topic.name, part.partition_index)
            if known is None or not 0 <= part.partition_index < known.partition_count:
                codes[place] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            codes[place] = 0
            offsets[known.topic_id, part.partition_index] = any_offset_to_commit(
                known.topic_id,
                part.partition_index,
                part.committed_offset,
                part.committed_metadata or "",
                getattr(part, "committed_leader_epoch", -1),
            )
    try:
        if offsets:
            check_group_id(body.group_id)
            group, member = _speaker(broker, body)
            if request.version >= _ADDS_GROUP:
                broker.transactions.register(body.transactional_id, _identity(body), set(), group.group_id)
            broker.transactions.add_offsets(body.transactional_id, _identity(body), group, offsets, member)
    except KafkaException as error:
        code = _code_of(error, request)
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
    """Commit or abort the transaction; from version 5 on return the identity with which the client goes on."""
    body = request.body
    named = (body.transactional_id, _identity(body))
    renewed = NO_IDENTITY
    try:
        _check_place(broker, request, body.transactional_id)
        if request.version >= _RENEWS:
            renewed = await broker.calls.run(broker.transactions.end_and_renew, *named, committed=body.committed)
        else:
            await broker.calls.run(broker.transactions.end, *named, committed=body.committed)
    except KafkaException as error:
        return {"error_code": _code_of(error, request)}
    broker.log_end.note(broker.log.entry)
    return {"error_code": 0, "producer_id": renewed.producer_id, "producer_epoch": renewed.producer_epoch}
