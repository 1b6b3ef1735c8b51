"""How many bytes of requests are in memory at a time, over all connections: the others wait unread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["RequestMemory"]


class RequestMemory:
    """Lends bytes to requests, in the order in which they ask. For the loop's thread."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.held_bytes = 0

    @asynccontextmanager
    async def holding(self, size_bytes: int) -> AsyncIterator[None]:
        """Have the body hold a request of `size_bytes`, once there is room for it; a larger one is alone."""
        if self._waiting or not self._fits(size_bytes):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size_bytes, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._give_back(size_bytes)
                raise
        else:
            self.held_bytes += size_bytes
        try:
            yield
        finally:
            self._give_back(size_bytes)

    def _fits(self, size_bytes: int) -> bool:
        return not self.held_bytes or self.held_bytes + size_bytes <= self._bytes_max

    def _give_back(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        while self._waiting:
            next_bytes, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._fits(next_bytes):
                    return
                self.held_bytes += next_bytes
                turn.set_result(None)
            self._waiting.popleft()
