"""The members of groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and ConsumerGroupHeartbeat of newer ones."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sparktxn._foundation.process.clock import Deadline
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values.structs import GroupState, MemberState
from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.gatewaysettings import CONSUMER_HEARTBEAT_MS
from sparktxn._programs.gateway.groups.consumergroups import MemberHeartbeat
from sparktxn._programs.gateway.groups.grouprosters import (
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    Joining,
    check_group_id,
    places_of,
)
from sparktxn._programs.gateway.groups.ledgroups import Generation
from sparktxn._programs.gateway.wire.consumerprotocol import (
    CONSUMER,
    MemberSubscription,
    assignment_bytes,
    subscription_of,
)
from sparktxn._programs.gateway.wire.wirecodes import coordinator_code_of, message_of
from sparktxn._programs.gateway.wire.wiremessages import Answer, Request
from sparktxn.errors import CommandRefused, ErrorCode, KafkaException
from sparktxn.store.memberexpiry import expire_overdue
from sparktxn.store.options import TopicIdPartition

_WAIT_S_MAX: Final = 5.0
"""How long a member that has partitions waits for those that others are to give back, at their next heartbeat."""
_SYNC_S_MAX: Final = 30.0
_SESSION_PARTS: Final = 3
_NEEDS_ID_FROM_VERSION: Final = 4
_NO_PROTOCOL_FROM_VERSION: Final = 7
_LEAVES_MANY_FROM_VERSION: Final = 3


async def join_group(broker: Broker, request: Request) -> Answer:
    """Make a client a member, and return its generation.

    It is not a leader where the log divides the partitions. The members of other groups wait for each other.
    """
    body = request.body
    try:
        check_group_id(body.group_id)
        asked = _joining(request)
        subscription = _subscription(body)
        if subscription is not None and not await broker.calls.run(broker.led_groups.has, asked.group_id, max_age_s=0):
            return await _joined(broker, asked, subscription)
        return await _joined_with_others(broker, asked, body)
    except KafkaException as error:
        return _not_joined(request, error)


def _joining(request: Request) -> Joining:
    body = request.body
    session_ms = _milliseconds(body.session_timeout)
    rebalance_ms = _milliseconds(getattr(body, "rebalance_timeout", None) or body.session_timeout)
    return Joining(
        group_id=body.group_id,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None) or "",
        client_id=request.client_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms if rebalance_ms > 0 else session_ms,
        needs_id=request.version >= _NEEDS_ID_FROM_VERSION,
    )


def _milliseconds(value: datetime.timedelta) -> int:
    return round(value.total_seconds() * 1000)


def _subscription(body: Any) -> MemberSubscription | None:
    """Return what a member wants of the log; None if the members divide their work themselves."""
    return subscription_of(body.protocols) if body.protocol_type == CONSUMER else None


async def _joined(broker: Broker, asked: Joining, subscription: MemberSubscription) -> Answer:
    """Have the log divide the partitions; wait for what others are about to give back: then one rebalance is enough.

    A member that would have nothing to read waits as long as at a broker: it loses nothing by it.
    """
    clock = broker.log.clock
    joined = await broker.calls.run(broker.groups.join, asked, subscription)
    shown_s = asked.session_timeout_ms / 1000 / _SESSION_PARTS
    idle, busy = Deadline(clock, asked.rebalance_timeout_ms / 1000), Deadline(clock, min(_WAIT_S_MAX, shown_s))
    while joined.waits and not broker.log_end.has_ended:
        remaining_s = (idle if joined.is_idle else busy).remaining_s() or 0.0
        if remaining_s <= 0:
            break
        entry = broker.log.entry
        broker.log_end.note(entry)
        await broker.log_end.wait_beyond(entry, min(remaining_s, shown_s))
        joined = await broker.calls.run(broker.groups.joined, asked.group_id, joined.member_id, subscription)
    return {
        "error_code": 0,
        "generation_id": joined.generation,
        "protocol_type": CONSUMER,
        "protocol_name": subscription.protocol,
        "leader": "",
        "member_id": joined.member_id,
        "members": [],
    }


async def _joined_with_others(broker: Broker, asked: Joining, body: Any) -> Answer:
    """Wait until all members have joined; those that have not in time are members no longer."""
    groups, clock = broker.led_groups, broker.log.clock
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in body.protocols)
    member_id = await broker.calls.run(groups.join, asked, body.protocol_type, protocols)
    shown_s = asked.session_timeout_ms / 1000 / _SESSION_PARTS
    epoch, patience = None, Deadline(clock, None)
    while True:
        entry = broker.log.entry
        broker.log_end.note(entry)
        gathering = await broker.calls.run(groups.gathered, asked, member_id)
        if gathering.generation is not None:
            return _answer_of(gathering.generation, member_id)
        if gathering.epoch != epoch:
            epoch, patience = gathering.epoch, Deadline(clock, gathering.timeout_s)
        _check_serves(broker)
        remaining_s = patience.remaining_s() or 0.0
        if remaining_s <= 0:
            await broker.calls.run(groups.drop_missing, asked.group_id, gathering.epoch)
            continue
        await broker.log_end.wait_beyond(entry, min(remaining_s, shown_s))


def _check_serves(broker: Broker) -> None:
    """Send a client that would have to wait to another gateway, as this one ends."""
    if broker.log_end.has_ended:
        raise CommandRefused(ErrorCode.NOT_COORDINATOR, "this gateway ends: go on at another one")


def _answer_of(generation: Generation, member_id: str) -> Answer:
    members = [
        {
            "member_id": member.state.member_id,
            "group_instance_id": member.state.instance_id or None,
            "metadata": member.sent.metadata(generation.protocol),
        }
        for member in generation.members
    ]
    return {
        "error_code": 0,
        "generation_id": generation.number,
        "protocol_type": generation.protocol_type,
        "protocol_name": generation.protocol,
        "leader": generation.leader_id,
        "member_id": member_id,
        "members": members if member_id == generation.leader_id else [],
    }


def _not_joined(request: Request, error: KafkaException) -> Answer:
    body = request.body
    code = coordinator_code_of(error)
    member_id = body.member_id
    if code == MEMBER_ID_REQUIRED:
        member_id = error.args[0].str()
    else:
        log_event("gateway_join_refused", group_id=body.group_id, member_id=member_id, error=error)
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": "" if request.version < _NO_PROTOCOL_FROM_VERSION else None,
        "leader": "",
        "member_id": member_id,
        "members": [],
    }


async def sync_group(broker: Broker, request: Request) -> Answer:
    """Return what a member is to read, or what its leader has assigned to it, once it has."""
    body = request.body
    protocol_type, protocol = getattr(body, "protocol_type", None), getattr(body, "protocol_name", None)
    answer = {"protocol_type": protocol_type, "protocol_name": protocol}
    try:
        if await broker.calls.run(broker.led_groups.has, body.group_id):
            return {**answer, "error_code": 0, "assignment": await _assigned_by_leader(broker, body)}
        if protocol_type not in (None, CONSUMER):
            raise CommandRefused(INCONSISTENT_GROUP_PROTOCOL, f"{protocol_type!r} is not the group's type of protocol")
        partitions = await broker.calls.run(
            broker.groups.sync, body.group_id, body.member_id, _instance_id(body), body.generation_id, protocol
        )
    except KafkaException as error:
        return {**answer, "error_code": coordinator_code_of(error), "assignment": b""}
    return {**answer, "error_code": 0, "assignment": assignment_bytes(partitions)}


async def _assigned_by_leader(broker: Broker, body: Any) -> bytes:
    given = {assignment.member_id: bytes(assignment.assignment) for assignment in body.assignments}
    asked = (body.group_id, body.member_id, _instance_id(body), body.generation_id, given)
    patience = Deadline(broker.log.clock, _SYNC_S_MAX)
    while True:
        entry = broker.log.entry
        broker.log_end.note(entry)
        assignment = await broker.calls.run(broker.led_groups.sync, *asked)
        if assignment is not None:
            return assignment
        _check_serves(broker)
        remaining_s = patience.remaining_s() or 0.0
        if remaining_s <= 0:
            raise CommandRefused(ErrorCode.REBALANCE_IN_PROGRESS, "the leader has assigned nothing: join again")
        await broker.log_end.wait_beyond(entry, min(remaining_s, 1.0))


def _instance_id(body: Any) -> str:
    return getattr(body, "group_instance_id", None) or ""


async def heartbeat(broker: Broker, request: Request) -> Answer:
    """Note that a member lives, and say whether it is to join again."""
    try:
        await broker.calls.run(_heard, broker, request.body)
    except KafkaException as error:
        return {"error_code": coordinator_code_of(error)}
    return {"error_code": 0}


def _heard(broker: Broker, body: Any) -> None:
    groups = broker.led_groups if broker.led_groups.has(body.group_id) else broker.groups
    groups.heartbeat(body.group_id, body.member_id, _instance_id(body), body.generation_id)


async def leave_group(broker: Broker, request: Request) -> Answer:
    """Take members out of their group."""
    body = request.body
    if request.version < _LEAVES_MANY_FROM_VERSION:
        return {"error_code": await broker.calls.run(_left, broker, body.group_id, body.member_id, "")}
    members = []
    for member in body.members:
        instance_id = member.group_instance_id
        code = await broker.calls.run(_left, broker, body.group_id, member.member_id, instance_id or "")
        members.append({"member_id": member.member_id, "group_instance_id": instance_id, "error_code": code})
    broker.log_end.note(broker.log.entry)
    return {"error_code": 0, "members": members}


def _left(broker: Broker, group_id: str, member_id: str, instance_id: str) -> int:
    try:
        if broker.led_groups.has(group_id):
            broker.led_groups.leave(group_id, member_id, instance_id)
        else:
            broker.roster.leave(group_id, member_id, instance_id)
    except KafkaException as error:
        return coordinator_code_of(error)
    return int(ErrorCode.NO_ERROR)


# ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848).

_NO_OPERATIONS: Final = -(2**31)
_CLASSIC, _CONSUMER = 0, 1


async def consumer_group_heartbeat(broker: Broker, request: Request) -> Answer:
    """Have a member join, go on or leave, and return its epoch and what it is to read."""
    body = request.body
    try:
        answered = await broker.calls.run(_heartbeat_heard, broker, request)
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


def _heartbeat_heard(broker: Broker, request: Request) -> Any:
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
