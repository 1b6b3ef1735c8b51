"""SASL of a client that has nothing to prove: it is known already, or none is asked who it is."""

from __future__ import annotations

from typing import Final

from sparktxn.gateway.broker import Broker
from sparktxn.gateway.wire.wiremessages import Answer, Request

__all__ = ["authenticate", "handshake"]

_ILLEGAL_SASL_STATE: Final = 34


async def handshake(broker: Broker, request: Request) -> Answer:
    """Refuse it."""
    broker.failed_logins.note(request.client_host, "this gateway has no --sasl-users, or knows the client already")
    return {"error_code": _ILLEGAL_SASL_STATE, "mechanisms": []}


async def authenticate(broker: Broker, request: Request) -> Answer:
    """Refuse it."""
    reason = "this connection needs no authentication, or has it"
    return {"error_code": _ILLEGAL_SASL_STATE, "error_message": reason, "auth_bytes": b""}
