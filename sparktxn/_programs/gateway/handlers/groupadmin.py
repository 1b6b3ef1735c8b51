"""Administrators' requests for consumer groups: listing, describing and deleting them, and their offsets."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.groups.ledgroups import Described
from sparktxn._programs.gateway.handlers.adminanswers import Outcome, outcome_of
from sparktxn._programs.gateway.wire.wiremessages import Answer, Request
from sparktxn.admin import (
    ConsumerGroupDescription,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    TopicPartition,
)
from sparktxn.errors import ErrorCode

_STATES: Final = {
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.RECONCILING: "PreparingRebalance",
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.DEAD: "Dead",
}
_TYPES: Final = {ConsumerGroupType.CLASSIC: "Classic", ConsumerGroupType.CONSUMER: "Consumer"}
_PROTOCOL_TYPE: Final = "consumer"
_GROUP_ID_NOT_FOUND_FROM_VERSION: Final = 6
_OF_THE_GROUP: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP, ErrorCode.INVALID_REQUEST})


async def list_groups(broker: Broker, request: Request) -> Answer:
    """Return all groups, or those in one of some states and of some types."""
    states = {state.lower() for state in getattr(request.body, "states_filter", ())}
    types = {type_.lower() for type_ in getattr(request.body, "types_filter", ())}
    outcome = await broker.calls.run(_listed, broker)
    groups = {}
    for group in () if outcome.code else outcome.result.valid:
        protocol_type = "" if group.is_simple_consumer_group else _PROTOCOL_TYPE
        groups[group.group_id] = (protocol_type, _STATES[group.state], _TYPES[group.type])
    groups |= {} if outcome.code else await broker.calls.run(_led, broker)
    return {
        "error_code": outcome.code,
        "groups": [
            {"group_id": group_id, "protocol_type": protocol_type, "group_state": state, "group_type": type_}
            for group_id, (protocol_type, state, type_) in sorted(groups.items())
            if (not states or state.lower() in states) and (not types or type_.lower() in types)
        ],
    }


def _led(broker: Broker) -> dict[str, tuple[str, str, str]]:
    """Return the groups whose members divide their work themselves."""
    found = {group_id: broker.led_groups.described(group_id) for group_id in broker.led_groups.group_ids()}
    classic = _TYPES[ConsumerGroupType.CLASSIC]
    return {group_id: (group.protocol_type, group.state, classic) for group_id, group in found.items() if group}


def _listed(broker: Broker) -> Outcome:
    return outcome_of(broker.admin.list_consumer_groups)


async def describe_groups(broker: Broker, request: Request) -> Answer:
    """Return groups with their members, those of both protocols in the words of the classic one."""
    version = request.version
    return {"groups": [await broker.calls.run(_described, broker, group, version) for group in request.body.groups]}


def _described(broker: Broker, group_id: str, version: int) -> dict[str, Any]:
    outcome = outcome_of(lambda: broker.admin.describe_consumer_groups([group_id]))
    led = None if outcome.code else broker.led_groups.described(group_id)
    return _answered(group_id, outcome, version) if led is None else _answered_led(group_id, led)


def _answered_led(group_id: str, group: Described) -> dict[str, Any]:
    return {
        "error_code": 0,
        "error_message": None,
        "group_id": group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": member.state.member_id,
                "group_instance_id": member.state.instance_id or None,
                "client_id": member.state.client_id,
                "client_host": "",
                "member_metadata": metadata,
                "member_assignment": assignment,
            }
            for member, metadata, assignment in group.members
        ],
    }


def _answered(group_id: str, outcome: Outcome, version: int) -> dict[str, Any]:
    answer = {**outcome.said, "group_id": group_id, "group_state": "", "protocol_type": "", "protocol_data": ""}
    if outcome.code:
        return {**answer, "members": []}
    group: ConsumerGroupDescription = outcome.result
    if group.state is ConsumerGroupState.DEAD and version >= _GROUP_ID_NOT_FOUND_FROM_VERSION:
        answer |= {
            "error_code": int(ErrorCode.GROUP_ID_NOT_FOUND),
            "error_message": f"group {group_id!r} does not exist",
        }
    return {
        **answer,
        "group_state": _STATES[group.state],
        "protocol_type": _PROTOCOL_TYPE if group.members else "",
        "protocol_data": group.partition_assignor,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.host,
                "member_metadata": _subscription(member.assignment.topic_partitions),
                "member_assignment": _assignment(member.assignment.topic_partitions),
            }
            for member in group.members
        ],
    }


def _subscription(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the topics of partitions as Kafka's consumers write what they subscribe to, in its version 0."""
    topics = sorted({partition.topic for partition in partitions})
    return struct.pack(">hi", 0, len(topics)) + b"".join(map(_text, topics)) + struct.pack(">i", -1)


def _assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return partitions as Kafka's consumers write what a member is assigned, in its version 0."""
    topics = [
        (topic, [partition.partition for partition in group])
        for topic, group in groupby(sorted(partitions), attrgetter("topic"))
    ]
    parts = [struct.pack(">hi", 0, len(topics))]
    for topic, numbers in topics:
        parts += [_text(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join(parts) + struct.pack(">i", -1)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


async def delete_groups(broker: Broker, request: Request) -> Answer:
    """Forget groups that have no members, with all their offsets."""
    results = []
    for group_id in request.body.groups_names:
        outcome = await broker.calls.run(_deleted, broker, group_id)
        results.append({"group_id": group_id, "error_code": outcome.code})
    return {"results": results}


def _deleted(broker: Broker, group_id: str) -> Outcome:
    if group_id and broker.led_groups.has(group_id, max_age_s=0):
        return Outcome(int(ErrorCode.NON_EMPTY_GROUP))
    return outcome_of(lambda: broker.admin.delete_consumer_groups([group_id]))


async def offset_delete(broker: Broker, request: Request) -> Answer:
    """Forget offsets of a group: of each topic all or none, but for partitions that do not exist."""
    body = request.body
    codes = await broker.calls.run(_forgotten, broker, body)
    if isinstance(codes, int):
        return {"error_code": codes, "topics": []}
    return {
        "error_code": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": codes[TopicPartition(topic.name, each.partition_index)],
                    }
                    for each in topic.partitions
                ],
            }
            for topic in body.topics
        ],
    }


def _forgotten(broker: Broker, body: Any) -> dict[TopicPartition, int] | int:
    """Return the code of each partition, or the one code of the group."""
    asked = {TopicPartition(topic.name, each.partition_index) for topic in body.topics for each in topic.partitions}
    # This reads the log to its end: a partition that is unknown then does not exist.
    if broker.led_groups.has(body.group_id, max_age_s=0):
        return int(ErrorCode.NON_EMPTY_GROUP)
    codes = dict.fromkeys(asked, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    known = [where for where in asked if _exists(broker, where)]
    if not (known or broker.log.group(body.group_id) or broker.log.group_offsets(body.group_id)):
        return int(ErrorCode.GROUP_ID_NOT_FOUND)
    # Together: a group that has lost its last offset is not a group any more.
    outcome = _forget(broker, body.group_id, known) if known else Outcome(0)
    if outcome.code in _OF_THE_GROUP:
        return outcome.code
    if not outcome.code:
        return codes | dict.fromkeys(known, 0)
    for _, group in groupby(sorted(known), attrgetter("topic")):
        of_topic = list(group)
        codes |= dict.fromkeys(of_topic, _forget(broker, body.group_id, of_topic).code)
    return codes


def _exists(broker: Broker, where: TopicPartition) -> bool:
    topic = broker.log.topic(where.topic)
    return topic is not None and 0 <= where.partition < topic.partition_count


def _forget(broker: Broker, group_id: str, partitions: list[TopicPartition]) -> Outcome:
    return outcome_of(
        lambda: broker.admin.delete_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id, partitions)])
    )
