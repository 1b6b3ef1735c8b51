"""How many bytes of requests are in memory at a time, over all connections: the others wait unread."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["RequestMemory"]


class RequestMemory:
    """Lends bytes to requests, in the order in which they ask. For the loop's thread."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.held_bytes = 0

    async def acquire(self, size_bytes: int) -> None:
        """Return once there is room for a request of `size_bytes`; one that is larger than all is alone."""
        if not self._waiting and self._fits(size_bytes):
            self.held_bytes += size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(size_bytes)
            raise

    def release(self, size_bytes: int) -> None:
        """Give back what `acquire` has lent, to those that wait."""
        self.held_bytes -= size_bytes
        while self._waiting:
            next_bytes, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._fits(next_bytes):
                    return
                self.held_bytes += next_bytes
                turn.set_result(None)
            self._waiting.popleft()

    def _fits(self, size_bytes: int) -> bool:
        return not self.held_bytes or self.held_bytes + size_bytes <= self._bytes_max
