"""Access control lists: there are none. The answer has the code of a broker without an authorizer."""

from __future__ import annotations

from typing import Final

from sparktxn.gateway.broker import Broker
from sparktxn.gateway.wire.wiremessages import Answer, Request

__all__ = ["create_acls", "delete_acls", "describe_acls"]

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
