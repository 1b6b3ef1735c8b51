"""Which requests are served, which nodes, topics and log folders there are; answers to log-ins and access lists."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any, Final

from sparktxn._engine.format.checkpoint import SEGMENTS_PREFIX
from sparktxn._engine.format.names import check_topic_name
from sparktxn._engine.log.keep.sealedruns import sizes_of
from sparktxn._foundation.values.structs import PartitionSegments, TopicState
from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.topiclookup import UNKNOWN_TOPIC_ID
from sparktxn._programs.gateway.wire.wirecodes import code_of
from sparktxn._programs.gateway.wire.wiremessages import Answer, MalformedRequest, Request
from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode, KafkaException
from sparktxn.store.options import TopicPartitionKey

_LEADER_EPOCH = 0
_GROUP, _TRANSACTION = 0, 1
_NO_OPERATIONS = -(2**31)
_NAMELESS_FROM = 12
_KNOWN_S = 0.01
"""How old the answer to Metadata may be: the partitions of topics that exist, and those that were deleted."""


def _node_of(broker: Broker, request: Request) -> int:
    return broker.placement.node_of(request.client_host, request.client_id)


def _brokers(broker: Broker) -> list[dict[str, Any]]:
    return [
        {"node_id": number, "broker_id": number, "host": node.host, "port": node.port, "rack": None, "is_fenced": False}
        for number, node in enumerate(broker.placement.nodes)
    ]


async def metadata(broker: Broker, request: Request) -> Answer:
    """Return the gateways as nodes, the client's own one as leader of all partitions, and the topics it asks for."""
    node = _node_of(broker, request)
    asked = request.body.topics
    if asked and request.version < _NAMELESS_FROM and any(topic.name is None for topic in asked):
        raise MalformedRequest(f"version {request.version} of metadata asks for topics by id")
    if asked is None or (request.version == 0 and not asked):
        topics = [_described(broker, topic, node) for topic in await broker.calls.run(broker.store.topics)]
    else:
        creates = broker.settings.creates_topics and getattr(request.body, "allow_auto_topic_creation", True)
        topics = await broker.calls.run(_asked, broker, asked, creates, node)
    return {
        "brokers": _brokers(broker),
        "cluster_id": broker.store.store_id,
        "controller_id": node,
        "topics": topics,
        "error_code": 0,
        "cluster_authorized_operations": _NO_OPERATIONS,
    }


def _asked(broker: Broker, asked: Any, creates: bool, node: int) -> list[dict[str, Any]]:
    broker.log.refresh(max_age_s=_KNOWN_S)
    broker.topics.read_on_for((each.name, 0) for each in asked if each.name is not None)
    by_uuid = broker.topics.by_uuid(each.topic_id for each in asked if each.name is None)
    found = []
    for each in asked:
        topic = by_uuid.get(each.topic_id) if each.name is None else broker.log.topic(each.name)
        code = _code_of_missing(each.name)
        if topic is None and creates and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            topic, code = _created(broker, each.name)
        if topic is None:
            unknown = {"error_code": code, "name": each.name, "is_internal": False, "partitions": []}
            found.append({**unknown, "topic_id": getattr(each, "topic_id", uuid.UUID(int=0)), **_NO_TOPIC_OPERATIONS})
        else:
            found.append(_described(broker, topic, node))
    return found


_NO_TOPIC_OPERATIONS = {"topic_authorized_operations": _NO_OPERATIONS}


def _code_of_missing(name: str | None) -> int:
    """Return what a topic that does not exist is answered with; None is one that was asked for by its id."""
    if name is None:
        return UNKNOWN_TOPIC_ID
    try:
        check_topic_name(name)
    except ConfigurationError:
        return ErrorCode.INVALID_TOPIC
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _created(broker: Broker, name: str) -> tuple[TopicState | None, int]:
    try:
        with suppress(CommandRefused):  # another client has just created it
            broker.store.create_topic(name, broker.settings.partition_count)
        return broker.log.topic(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except ConfigurationError:
        return None, ErrorCode.INVALID_TOPIC
    except KafkaException as error:
        return None, code_of(error)


def _described(broker: Broker, topic: TopicState, node: int) -> dict[str, Any]:
    partition = {
        "error_code": 0,
        "leader_id": node,
        "leader_epoch": _LEADER_EPOCH,
        "replica_nodes": [node],
        "isr_nodes": [node],
        "offline_replicas": [],
    }
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": broker.topics.uuid_of(topic.topic_id),
        "is_internal": topic.is_internal,
        "partitions": [{**partition, "partition_index": number} for number in range(topic.partition_count)],
        **_NO_TOPIC_OPERATIONS,
    }


async def find_coordinator(broker: Broker, request: Request) -> Answer:
    """Return the client's own gateway, which coordinates everything that it does."""
    body = request.body
    node_id = _node_of(broker, request)
    host, port = broker.placement.nodes[node_id]
    node = {"node_id": node_id, "host": host, "port": port}
    answer = {"error_code": 0, "error_message": None, **node}
    if getattr(body, "key_type", _GROUP) not in (_GROUP, _TRANSACTION):
        answer = {**answer, "error_code": ErrorCode.INVALID_REQUEST, "error_message": "no such type of coordinator"}
    if request.version < 4:
        return answer
    return {"coordinators": [{**answer, "key": key} for key in body.coordinator_keys]}


async def describe_cluster(broker: Broker, request: Request) -> Answer:
    """Return all gateways as nodes: a client that loses its own one finds another."""
    node = _node_of(broker, request)
    return {
        "error_code": 0,
        "error_message": None,
        "endpoint_type": 1,
        "cluster_id": broker.store.store_id,
        "controller_id": node,
        "brokers": _brokers(broker),
        "cluster_authorized_operations": _NO_OPERATIONS,
    }


# SASL of a client that has nothing to prove: it is known already, or none is asked who it is.

_ILLEGAL_SASL_STATE: Final = 34


async def handshake(broker: Broker, request: Request) -> Answer:
    """Refuse it."""
    broker.failed_logins.note(request.client_host, "this gateway has no --sasl-users, or knows the client already")
    return {"error_code": _ILLEGAL_SASL_STATE, "mechanisms": []}


async def authenticate(broker: Broker, request: Request) -> Answer:
    """Refuse it."""
    reason = "this connection needs no authentication, or has it"
    return {"error_code": _ILLEGAL_SASL_STATE, "error_message": reason, "auth_bytes": b""}


# DescribeLogDirs: how many bytes partitions have, in the one place where they all are: the store.

_PARTS: Final = ("store", "topics/", SEGMENTS_PREFIX)


async def describe_log_dirs(broker: Broker, request: Request) -> Answer:
    """Return the bytes of the segments of partitions, of all topics or of those that are asked for."""
    asked = request.body.topics
    wanted = None if asked is None else {(each.topic, number) for each in asked for number in each.partitions}
    try:
        sizes = await broker.calls.run(_sizes, broker)
    except KafkaException as error:
        return {"error_code": code_of(error), "results": []}
    topics: dict[str, list[dict[str, Any]]] = {}
    for (name, number), size_bytes in sorted(sizes.items()):
        if wanted is None or (name, number) in wanted:
            partition = {"partition_index": number, "partition_size": size_bytes, "offset_lag": 0}
            topics.setdefault(name, []).append({**partition, "is_future_key": False})
    result = {
        "error_code": 0,
        "log_dir": broker.store.store_id,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": -1,
        "usable_bytes": -1,
    }
    return {"error_code": 0, "results": [result]}


def _sizes(broker: Broker) -> dict[TopicPartitionKey, int]:
    """Return the bytes of each partition's segments; what an entry itself carries counts with its share."""
    broker.log.refresh()
    snapshot = broker.log.snapshot(_PARTS)
    sizes = {(topic.name, number): 0 for topic in broker.log.topics() for number in range(topic.partition_count)}
    for record in snapshot.records:
        if isinstance(record, PartitionSegments) and record.topic_id in snapshot.topics:
            segments = sizes_of(record.sealed, record.segments, record.rewritten)
            place = (snapshot.topics[record.topic_id].name, record.partition)
            sizes[place] = sum(size_bytes for _, size_bytes, _ in segments)
    return sizes


# Access control lists: there are none. The answer has the code of a broker without an authorizer.

_SECURITY_DISABLED: Final = {"error_code": 54, "error_message": "No Authorizer is configured on the broker"}


async def describe_acls(broker: Broker, request: Request) -> Answer:
    """Answer that there are none."""
    return {**_SECURITY_DISABLED, "resources": []}


async def create_acls(broker: Broker, request: Request) -> Answer:
    """Refuse to create any."""
    return {"results": [_SECURITY_DISABLED for _ in request.body.creations]}


async def delete_acls(broker: Broker, request: Request) -> Answer:
    """Refuse to delete any."""
    return {"filter_results": [{**_SECURITY_DISABLED, "matching_acls": []} for _ in request.body.filters]}
