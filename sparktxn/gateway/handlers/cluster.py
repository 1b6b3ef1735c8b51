"""Which requests are served, which nodes there are, and which topics."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode, KafkaException
from sparktxn.format.names import check_topic_name
from sparktxn.gateway.broker import Broker
from sparktxn.gateway.topiclookup import UNKNOWN_TOPIC_ID
from sparktxn.gateway.wire.wirecodes import code_of
from sparktxn.gateway.wire.wiremessages import Answer, MalformedRequest, Request
from sparktxn.values.structs import TopicState

__all__ = ["describe_cluster", "find_coordinator", "metadata"]

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
