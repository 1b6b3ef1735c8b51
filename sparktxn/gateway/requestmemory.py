"""How many bytes are in memory at a time, over all connections: those of requests, or of decompressed batches.

Each kind has a memory of its own. A request that has some of the first waits for the second. Nothing that has some of
the second waits for the first.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Loan", "RequestMemory"]


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


class Loan:
    """What one batch has of a memory. It has given back all of it before it takes more, so that none waits for it."""

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self._size_bytes = 0

    async def take(self, size_bytes: int) -> None:
        """Have `size_bytes` in place of what it has had, once there is room."""
        self.end()
        if size_bytes:
            await self._memory.acquire(size_bytes)
            self._size_bytes = size_bytes

    def shrink(self, size_bytes: int) -> None:
        """Give back what is above `size_bytes`."""
        if size_bytes < self._size_bytes:
            self._memory.release(self._size_bytes - size_bytes)
            self._size_bytes = size_bytes

    def end(self, _: object = None) -> None:
        """Give back all."""
        self.shrink(0)
