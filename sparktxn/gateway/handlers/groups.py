"""The members of groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from __future__ import annotations

import datetime
from typing import Final

from sparktxn.errors import CommandRefused, ErrorCode, KafkaException
from sparktxn.gateway.broker import Broker
from sparktxn.gateway.classicgroups import INCONSISTENT_GROUP_PROTOCOL, MEMBER_ID_REQUIRED, Joined, Joining
from sparktxn.gateway.wire.consumerprotocol import CONSUMER, assignment_bytes, subscription_of
from sparktxn.gateway.wire.messages import Answer, Request
from sparktxn.gateway.wire.wirecodes import coordinator_code_of
from sparktxn.process.clock import Deadline
from sparktxn.process.events import log_event

__all__ = ["heartbeat", "join_group", "leave_group", "sync_group"]

_WAIT_S_MAX: Final = 5.0
"""How long a join waits for partitions that others are to give back: they are asked at their next heartbeat."""
_SESSION_PARTS: Final = 3
_NEEDS_ID_FROM_VERSION: Final = 4
_NO_PROTOCOL_FROM_VERSION: Final = 7
_LEAVES_MANY_FROM_VERSION: Final = 3


async def join_group(broker: Broker, request: Request) -> Answer:
    """Make a client a member, and return its generation: as follower, as the log divides the partitions."""
    try:
        asked = _joining(request)
        joined = await broker.calls.run(broker.groups.join, asked)
        joined = await _with_all(broker, asked, joined)
    except KafkaException as error:
        return _not_joined(request, error)
    return {
        "error_code": 0,
        "generation_id": joined.generation,
        "protocol_type": CONSUMER,
        "protocol_name": asked.subscription.protocol,
        "leader": "",
        "member_id": joined.member_id,
        "members": [],
    }


def _joining(request: Request) -> Joining:
    body = request.body
    try:
        subscription = subscription_of(body.protocols) if body.protocol_type == CONSUMER else None
    except ValueError as error:
        raise CommandRefused(INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
    if subscription is None:
        names = ", ".join(protocol.name for protocol in body.protocols)
        raise CommandRefused(
            INCONSISTENT_GROUP_PROTOCOL,
            f"the gateway divides no partitions by protocol {body.protocol_type!r} with {names or 'no strategy'}: "
            "expected 'consumer' with range, roundrobin, sticky or cooperative-sticky",
        )
    session_ms = _milliseconds(body.session_timeout)
    rebalance_ms = _milliseconds(getattr(body, "rebalance_timeout", None) or body.session_timeout)
    instance_id = getattr(body, "group_instance_id", None) or ""
    return Joining(
        group_id=body.group_id,
        member_id=body.member_id,
        instance_id=instance_id,
        client_id=request.client_id,
        host="",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms if rebalance_ms > 0 else session_ms,
        subscription=subscription,
        needs_id=request.version >= _NEEDS_ID_FROM_VERSION,
    )


def _milliseconds(value: datetime.timedelta) -> int:
    return round(value.total_seconds() * 1000)


async def _with_all(broker: Broker, asked: Joining, joined: Joined) -> Joined:
    """Wait for partitions that others are about to give back, so that one rebalance is enough."""
    patience = Deadline(broker.log.clock, min(_WAIT_S_MAX, asked.session_timeout_ms / 1000 / _SESSION_PARTS))
    while joined.waits and (remaining_s := patience.remaining_s()):
        entry = broker.log.entry
        broker.log_end.note(entry)
        await broker.log_end.wait_beyond(entry, remaining_s)
        joined = await broker.calls.run(broker.groups.joined, asked, joined.member_id)
    return joined


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
    """Return what a member is to read."""
    body = request.body
    instance_id = getattr(body, "group_instance_id", None) or ""
    protocol_type, protocol = getattr(body, "protocol_type", None), getattr(body, "protocol_name", None)
    answer = {"protocol_type": protocol_type, "protocol_name": protocol}
    try:
        if protocol_type not in (None, CONSUMER):
            raise CommandRefused(INCONSISTENT_GROUP_PROTOCOL, f"{protocol_type!r} is not the group's type of protocol")
        partitions = await broker.calls.run(
            broker.groups.sync, body.group_id, body.member_id, instance_id, body.generation_id, protocol
        )
    except KafkaException as error:
        return {**answer, "error_code": coordinator_code_of(error), "assignment": b""}
    return {**answer, "error_code": 0, "assignment": assignment_bytes(partitions)}


async def heartbeat(broker: Broker, request: Request) -> Answer:
    """Note that a member lives, and say whether it is to join again."""
    body = request.body
    instance_id = getattr(body, "group_instance_id", None) or ""
    try:
        await broker.calls.run(broker.groups.heartbeat, body.group_id, body.member_id, instance_id, body.generation_id)
    except KafkaException as error:
        return {"error_code": coordinator_code_of(error)}
    return {"error_code": 0}


async def leave_group(broker: Broker, request: Request) -> Answer:
    """Take members out of their group."""
    body = request.body
    if request.version < _LEAVES_MANY_FROM_VERSION:
        return {"error_code": await _left(broker, body.group_id, body.member_id, "")}
    members = [
        {
            "member_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "error_code": await _left(broker, body.group_id, member.member_id, member.group_instance_id or ""),
        }
        for member in body.members
    ]
    return {"error_code": 0, "members": members}


async def _left(broker: Broker, group_id: str, member_id: str, instance_id: str) -> int:
    try:
        await broker.calls.run(broker.groups.leave, group_id, member_id, instance_id)
    except KafkaException as error:
        return coordinator_code_of(error)
    broker.log_end.note(broker.log.entry)
    return int(ErrorCode.NO_ERROR)
