"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sparktxn.errors import CommandRefused, ErrorCode, KafkaException
from sparktxn.gateway.broker import Broker
from sparktxn.gateway.gatewaysettings import CONSUMER_HEARTBEAT_MS
from sparktxn.gateway.groups.consumergroups import MemberHeartbeat
from sparktxn.gateway.groups.grouprosters import check_group_id, places_of
from sparktxn.gateway.wire.wirecodes import coordinator_code_of, message_of
from sparktxn.gateway.wire.wiremessages import Answer, Request
from sparktxn.store.memberexpiry import expire_overdue
from sparktxn.values.fieldtypes import TopicIdPartition
from sparktxn.values.structs import GroupState, MemberState

__all__ = ["consumer_group_describe", "consumer_group_heartbeat"]

_NO_OPERATIONS: Final = -(2**31)
_CLASSIC, _CONSUMER = 0, 1


async def consumer_group_heartbeat(broker: Broker, request: Request) -> Answer:
    """Have a member join, go on or leave, and return its epoch and what it is to read."""
    body = request.body
    try:
        answered = await broker.calls.run(_heard, broker, request)
    except KafkaException as error:
        return {
            "error_code": coordinator_code_of(error),
            "error_message": message_of(error),
            "member_id": body.member_id,
            "member_epoch": 0,
            "heartbeat_interval": 0,
            "assignment": None,
        }
    broker.log_end.note(broker.log.entry)
    return {
        "error_code": 0,
        "error_message": None,
        "member_id": answered.member_id,
        "member_epoch": answered.epoch,
        "heartbeat_interval": CONSUMER_HEARTBEAT_MS,
        "assignment": None if answered.partitions is None else _assignment(broker, answered.partitions),
    }


def _heard(broker: Broker, request: Request) -> Any:
    body = request.body
    check_group_id(body.group_id)
    if broker.led_groups.has(body.group_id):
        raise CommandRefused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"the members of group {body.group_id!r} divide their work themselves"
        )
    owned = None
    if body.topic_partitions is not None:
        by_uuid = broker.topics.by_uuid(topic.topic_id for topic in body.topic_partitions)
        owned = frozenset(
            (by_uuid[topic.topic_id].topic_id, number)
            for topic in body.topic_partitions
            if topic.topic_id in by_uuid
            for number in topic.partitions
        )
    topics = body.subscribed_topic_names
    return broker.consumer_groups.heartbeat(
        MemberHeartbeat(
            group_id=body.group_id,
            member_id=body.member_id,
            epoch=body.member_epoch,
            instance_id=body.instance_id or "",
            client_id=request.client_id,
            topics=None if topics is None else tuple(topics),
            pattern=getattr(body, "subscribed_topic_regex", None),
            assignor=body.server_assignor,
            rebalance_timeout_ms=round(body.rebalance_timeout.total_seconds() * 1000),
            owned=owned,
        )
    )


def _assignment(broker: Broker, places: Iterable[TopicIdPartition]) -> dict[str, Any]:
    names = broker.log.topic_names()
    found: dict[int, list[int]] = {}
    for topic_id, number in sorted(places):
        if topic_id in names:
            found.setdefault(topic_id, []).append(number)
    return {
        "topic_partitions": [
            {"topic_id": broker.topics.uuid_of(topic_id), "topic_name": names[topic_id], "partitions": numbers}
            for topic_id, numbers in found.items()
        ]
    }


async def consumer_group_describe(broker: Broker, request: Request) -> Answer:
    """Return what the log says of groups with members of this protocol; others are found by DescribeGroups."""
    return {"groups": await broker.calls.run(_described, broker, request.body.group_ids)}


def _described(broker: Broker, group_ids: Sequence[str]) -> list[dict[str, Any]]:
    try:
        broker.log.refresh(max_age_s=0.05)
        expire_overdue(broker.log, list(group_ids))
    except KafkaException as error:
        return [_not_described(group_id, coordinator_code_of(error), message_of(error)) for group_id in group_ids]
    return [_described_group(broker, group_id) for group_id in group_ids]


def _described_group(broker: Broker, group_id: str) -> dict[str, Any]:
    def found() -> dict[str, Any]:
        group, members = broker.log.group(group_id), broker.log.group_members(group_id)
        if group is None or all(member.classic for member in members):
            is_one = group is not None or broker.log.group_offsets(group_id) or broker.led_groups.has(group_id)
            reason = f"group {group_id!r} {'has no members of this protocol' if is_one else 'does not exist'}"
            raise CommandRefused(ErrorCode.GROUP_ID_NOT_FOUND, reason)
        return _group(broker, group, members)

    try:
        return broker.log.decide(found)
    except KafkaException as error:
        return _not_described(group_id, coordinator_code_of(error), message_of(error))


def _not_described(group_id: str, code: int, reason: str) -> dict[str, Any]:
    return {
        "error_code": code,
        "error_message": reason,
        "group_id": group_id,
        "group_state": "Dead" if code == ErrorCode.GROUP_ID_NOT_FOUND else "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
        "authorized_operations": _NO_OPERATIONS,
    }


def _group(broker: Broker, group: GroupState, members: list[MemberState]) -> dict[str, Any]:
    is_settled = all(
        member.member_epoch == group.epoch and len(member.assigned) == len(member.target) for member in members
    )
    return {
        "error_code": 0,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": "Stable" if is_settled else "Reconciling",
        "group_epoch": group.epoch,
        "assignment_epoch": group.epoch,
        "assignor_name": group.assignor,
        "members": [_member(broker, member) for member in members],
        "authorized_operations": _NO_OPERATIONS,
    }


def _member(broker: Broker, member: MemberState) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id or None,
        "rack_id": None,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.host,
        "subscribed_topic_names": member.topics,
        "subscribed_topic_regex": None,
        "assignment": _assignment(broker, places_of((*member.assigned, *member.revoking))),
        "target_assignment": _assignment(broker, member.target),
        "member_type": _CLASSIC if member.classic else _CONSUMER,
    }
