"""The authentication of one connection: which requests are answered until a client has proved who it is."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from sparktxn._foundation.process.clock import Clock, Ids
from sparktxn._foundation.process.events import log_event
from sparktxn._programs.gateway.security.access import Access, AuthenticationFailed, Exchange, new_exchange
from sparktxn._programs.gateway.storecalls import StoreCalls
from sparktxn._programs.gateway.wire.wiremessages import BARE_TOKEN, Answer, MalformedRequest, Request, request_name

# What the log says of clients that cannot log in: each cause once a minute, however often a client tries again.

_LOGGED_EACH_S: Final = 60.0
_CAUSES_MAX: Final = 100
"""Each of so many has lines of its own. Those of more clients, and what an attacker makes up, share one."""


class FailedLogins:
    """The failures of one gateway, by host and cause."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged_s: dict[tuple[str, str], float] = {}
        self._not_logged: dict[tuple[str, str], int] = {}

    def note(self, host: str, cause: str) -> None:
        """Note a client at `host` that was not served, for `cause`, in words that hold no secret."""
        now_s = self._clock.monotonic_s()
        key = (host, cause)
        if key not in self._logged_s and len(self._logged_s) >= _CAUSES_MAX:
            self._forget(now_s)
            if len(self._logged_s) >= _CAUSES_MAX:
                key = ("", "")
        count = self._not_logged.get(key, 0) + 1
        logged_s = self._logged_s.get(key)
        if logged_s is not None and now_s - logged_s < _LOGGED_EACH_S:
            self._not_logged[key] = count
            return
        self._logged_s[key] = now_s
        self._not_logged.pop(key, None)
        log_event("gateway_login_failed", host=host, error=cause, failures=count)

    def _forget(self, now_s: float) -> None:
        """Forget those whose next failure is logged at once."""
        for key in [key for key, logged_s in self._logged_s.items() if now_s - logged_s >= _LOGGED_EACH_S]:
            del self._logged_s[key]
            self._not_logged.pop(key, None)


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
_MECHANISM: Final = re.compile(r"[A-Z0-9_-]{1,20}")
"""Names of mechanisms (RFC 4422). Nothing else that a client sends comes into the log."""


class Authentication:
    """What one connection has to prove. With open access there is nothing to."""

    def __init__(self, access: Access, ids: Ids, calls: StoreCalls, failures: FailedLogins, host: str) -> None:
        self._access = access
        self._ids = ids
        self._calls = calls
        self._failures = failures
        self._host = host
        self._exchange: Exchange | None = None
        self._version = 1
        self.is_pending = access.users is not None
        """Whether requests other than these are refused."""
        self.has_failed = False
        """Whether the connection is to end with the answer that was made last."""

    @property
    def takes_bare_tokens(self) -> bool:
        """Whether a frame is a token of the mechanism: after SaslHandshake of version 0, until its client is known."""
        return self.is_pending and self._exchange is not None and self._version == 0

    def fail(self, cause: str) -> None:
        """End the authentication, and log why."""
        self.has_failed = True
        self._failures.note(self._host, cause)

    def end_unknown(self, cause: str) -> None:
        """Log that the connection ends before its client is known. One that finds no way to log in says no more."""
        if self.is_pending and not self.has_failed:
            self._failures.note(self._host, cause)

    async def answer(self, request: Request) -> Answer | None:
        """Answer a request of SASL. None: a bare token that is refused gets nothing but the end.

        Raises:
            MalformedRequest: it is another one, which only clients that are known may send.
        """
        if request.key == _HANDSHAKE and request.body is not None:
            self._version = request.version
            return self._handshake(request.body.mechanism)
        if request.key == _AUTHENTICATE and request.body is not None:
            answer = await self._authenticate(request.body.auth_bytes)
            return None if self.has_failed and request.version == BARE_TOKEN else answer
        raise MalformedRequest(f"its first request is {request_name(request.key)}, and this gateway has --sasl-users")

    def _handshake(self, mechanism: str) -> Answer:
        users = self._access.users
        if users is None or mechanism not in self._access.mechanisms:
            named = f"mechanism {mechanism}" if _MECHANISM.fullmatch(mechanism) else "what it names as a mechanism"
            self.fail(f"{named} is none of {', '.join(self._access.mechanisms)}")
            return {"error_code": _UNSUPPORTED_SASL_MECHANISM, "mechanisms": self._access.mechanisms}
        self._exchange = new_exchange(mechanism, users, self._ids)
        return {"error_code": 0, "mechanisms": self._access.mechanisms}

    async def _authenticate(self, message: bytes) -> Answer:
        if self._exchange is None:
            self.fail("SaslAuthenticate came before SaslHandshake")
            return _failed(_ILLEGAL_SASL_STATE, "SaslAuthenticate came before SaslHandshake")
        try:
            step = await self._calls.run(self._exchange.step, message)
        except AuthenticationFailed as failed:
            self.fail(str(failed))
            await asyncio.sleep(_FAILED_S)
            return _failed(_SASL_AUTHENTICATION_FAILED, str(failed))
        self.is_pending = step.user is None
        return {"error_code": 0, "error_message": None, "auth_bytes": step.answer}


def _failed(code: int, message: str) -> Answer:
    return {"error_code": code, "error_message": message, "auth_bytes": b""}
