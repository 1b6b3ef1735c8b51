"""Requests that are announced so that tools show why they are refused: quotas, share groups and streams groups.

For a request that is not announced a tool prints that the node does not support its number.
"""

from __future__ import annotations

from typing import Any, Final

from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.wire.wiremessages import Answer, Request

_UNSUPPORTED_VERSION: Final = 35
_NO_OPERATIONS: Final = -(2**31)
_QUOTAS: Final = "txnlog gateway has no client quotas: it serves all clients alike"
_SCRAM: Final = (
    "txnlog gateway keeps no users in the store: they are in the file of its option --sasl-users, whose lines "
    "--sasl-line makes"
)
_SHARE: Final = "txnlog gateway has no share groups: use a consumer group"
_STREAMS: Final = (
    "txnlog gateway has no groups of the protocol 'streams': set group.protocol=classic, with which Kafka Streams is "
    "served"
)


def _said(reason: str) -> dict[str, Any]:
    return {"error_code": _UNSUPPORTED_VERSION, "error_message": reason}


async def describe_client_quotas(broker: Broker, request: Request) -> Answer:
    """Refuse it."""
    return {**_said(_QUOTAS), "entries": None}


async def alter_client_quotas(broker: Broker, request: Request) -> Answer:
    """Refuse each quota."""
    return {
        "entries": [
            {
                **_said(_QUOTAS),
                "entity": [{"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity],
            }
            for entry in request.body.entries
        ]
    }


async def describe_scram_credentials(broker: Broker, request: Request) -> Answer:
    """Refuse it."""
    return {**_said(_SCRAM), "results": []}


async def alter_scram_credentials(broker: Broker, request: Request) -> Answer:
    """Refuse each user."""
    names = {each.name for each in (*request.body.deletions, *request.body.upsertions)}
    return {"results": [{"user": name, **_said(_SCRAM)} for name in sorted(names)]}


async def share_group_heartbeat(broker: Broker, request: Request) -> Answer:
    """Refuse a member."""
    return {**_said(_SHARE), "member_id": None, "member_epoch": 0, "heartbeat_interval": 0, "assignment": None}


async def share_group_describe(broker: Broker, request: Request) -> Answer:
    """Refuse each group."""
    return {"groups": [_not_described(group_id, _SHARE, assignor_name="") for group_id in request.body.group_ids]}


async def streams_group_describe(broker: Broker, request: Request) -> Answer:
    """Refuse each group."""
    return {"groups": [_not_described(group_id, _STREAMS, topology=None) for group_id in request.body.group_ids]}


def _not_described(group_id: str, reason: str, **more: Any) -> dict[str, Any]:
    return {
        **_said(reason),
        **more,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "members": [],
        "authorized_operations": _NO_OPERATIONS,
    }


async def describe_share_group_offsets(broker: Broker, request: Request) -> Answer:
    """Refuse each group."""
    return {"groups": [{"group_id": group.group_id, "topics": [], **_said(_SHARE)} for group in request.body.groups]}


async def alter_share_group_offsets(broker: Broker, request: Request) -> Answer:
    """Refuse it."""
    return {**_said(_SHARE), "responses": []}


async def delete_share_group_offsets(broker: Broker, request: Request) -> Answer:
    """Refuse it."""
    return {**_said(_SHARE), "responses": []}


async def streams_group_heartbeat(broker: Broker, request: Request) -> Answer:
    """Refuse a member."""
    return {
        **_said(_STREAMS),
        "member_id": request.body.member_id,
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "acceptable_recovery_lag": 0,
        "task_offset_interval": 0,
        "status": None,
        "active_tasks": None,
        "standby_tasks": None,
        "warmup_tasks": None,
        "endpoint_information_epoch": 0,
        "partitions_by_user_endpoint": None,
    }
