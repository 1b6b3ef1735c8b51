"""The authentication of one connection: which requests are answered until a client has proved who it is."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from sparktxn.gateway.security.access import Access
from sparktxn.gateway.security.exchanges import AuthenticationFailed, Exchange, new_exchange
from sparktxn.gateway.storecalls import StoreCalls
from sparktxn.gateway.wire.wiremessages import Answer, MalformedRequest, Request
from sparktxn.process.clock import Ids
from sparktxn.process.events import log_event

__all__ = ["AUTHENTICATING_BYTES_MAX", "AUTHENTICATING_S", "Authentication"]

AUTHENTICATING_BYTES_MAX: Final = 65_536
"""The size of a request of a client that is not known yet."""
AUTHENTICATING_S: Final = 30.0
"""So long may it take to say who it is."""
_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36
_UNSUPPORTED_SASL_MECHANISM: Final = 33
_ILLEGAL_SASL_STATE: Final = 34
_SASL_AUTHENTICATION_FAILED: Final = 58
_FAILED_S: Final = 0.5
"""So long does a wrong password wait for its answer."""


class Authentication:
    """What one connection has to prove. With open access there is nothing to."""

    def __init__(self, access: Access, ids: Ids, calls: StoreCalls, peer: Any) -> None:
        self._access = access
        self._ids = ids
        self._calls = calls
        self._peer = peer
        self._exchange: Exchange | None = None
        self.is_pending = access.users is not None
        """Whether requests other than these are refused."""
        self.has_failed = False
        """Whether the connection is to end with the answer that was made last."""

    async def answer(self, request: Request) -> Answer:
        """Answer a request of SASL.

        Raises:
            MalformedRequest: it is another one, which only clients that are known may send.
        """
        if request.key == _HANDSHAKE and request.body is not None:
            return self._handshake(request.body.mechanism)
        if request.key == _AUTHENTICATE and request.body is not None:
            return await self._authenticate(request.body.auth_bytes)
        raise MalformedRequest(f"request {request.key} came before its client had said who it is")

    def _handshake(self, mechanism: str) -> Answer:
        users = self._access.users
        if users is None or mechanism not in self._access.mechanisms:
            self.has_failed = True
            return {"error_code": _UNSUPPORTED_SASL_MECHANISM, "mechanisms": self._access.mechanisms}
        self._exchange = new_exchange(mechanism, users, self._ids)
        return {"error_code": 0, "mechanisms": self._access.mechanisms}

    async def _authenticate(self, message: bytes) -> Answer:
        if self._exchange is None:
            self.has_failed = True
            return _failed(_ILLEGAL_SASL_STATE, "SaslAuthenticate came before SaslHandshake")
        try:
            step = await self._calls.run(self._exchange.step, message)
        except AuthenticationFailed as failed:
            log_event("gateway_authentication_failed", peer=self._peer, error=failed)
            self.has_failed = True
            await asyncio.sleep(_FAILED_S)
            return _failed(_SASL_AUTHENTICATION_FAILED, str(failed))
        self.is_pending = step.user is None
        return {"error_code": 0, "error_message": None, "auth_bytes": step.answer}


def _failed(code: int, message: str) -> Answer:
    return {"error_code": code, "error_message": message, "auth_bytes": b""}
