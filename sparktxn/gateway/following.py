"""The end of the log, for those that wait for it: one poll at a time serves all waiting fetches."""

from __future__ import annotations

import asyncio
from typing import Final

from sparktxn.errors import StoreError
from sparktxn.gateway.storecalls import StoreCalls
from sparktxn.log.log import Log
from sparktxn.process.events import log_event

__all__ = ["LogEnd"]

_PAUSE_S_MIN: Final = 0.005
_PAUSE_S_MAX: Final = 0.1
"""How long a poll waits for the next one: the longer, the longer nothing has come."""
_AFTER_ERROR_S: Final = 1.0


class LogEnd:
    """Knows the newest entry, and polls the log while a request waits for a newer one. For the loop's thread."""

    def __init__(self, log: Log, calls: StoreCalls) -> None:
        self._log = log
        self._calls = calls
        self._changed = asyncio.Event()
        self._waiting = 0
        self._polling: asyncio.Task[None] | None = None
        self.entry = 0
        self.has_ended = False
        """Whether no request may wait any longer, as the gateway ends."""

    def end(self) -> None:
        """Let no request wait any longer: the gateway ends."""
        self.has_ended = True
        self._changed.set()

    def note(self, entry: int) -> None:
        """Note an entry that this process has read or written."""
        if entry > self.entry:
            self.entry = entry
            self._changed.set()
            self._changed = asyncio.Event()

    async def wait_beyond(self, entry: int, timeout_s: float) -> None:
        """Return once the log ends after `entry`, or after `timeout_s`."""
        if self.entry > entry or timeout_s <= 0 or self.has_ended:
            return
        self._waiting += 1
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(timeout_s):
                while self.entry <= entry and not self.has_ended:
                    await self._changed.wait()
        except TimeoutError:
            return
        finally:
            self._waiting -= 1

    async def _poll(self) -> None:
        pause_s = _PAUSE_S_MIN
        try:
            while self._waiting:
                before = self.entry
                try:
                    self.note(await self._calls.run(self._log.refresh))
                    pause_s = _PAUSE_S_MIN if self.entry > before else min(2 * pause_s, _PAUSE_S_MAX)
                except StoreError as error:
                    log_event("gateway_poll_failed", error=error)
                    pause_s = _AFTER_ERROR_S
                await asyncio.sleep(pause_s)
        finally:
            self._polling = None
