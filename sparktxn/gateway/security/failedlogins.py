"""What the log says of clients that cannot log in: each cause once a minute, however often a client tries again."""

from __future__ import annotations

from typing import Final

from sparktxn.process.clock import Clock
from sparktxn.process.events import log_event

__all__ = ["FailedLogins"]

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
