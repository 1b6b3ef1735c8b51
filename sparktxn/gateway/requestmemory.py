"""How many bytes are in memory at a time, over all connections: those of requests, or of decompressed batches.

Each kind has a memory of its own. A request that has some of the first waits for the second. Nothing that has some of
the second waits for the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

__all__ = ["SMALL_BYTES", "FrameMemory", "Lending", "Loan", "RequestMemory"]

_Ticket = TypeVar("_Ticket", bound=Hashable)

SMALL_BYTES: Final = 64 * 1024
"""A frame of so many bytes comes into the buffer that each connection has, before any memory is lent for it."""


class Lending(Generic[_Ticket]):
    """Decides which requests have memory: all of it at once, in the order in which they ask.

    A request that waits has nothing that another one waits for. So each gets its turn once those before it have given
    back what they have. It waits for nothing itself, and has no clock.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: dict[_Ticket, int] = {}
        self.held_bytes = 0

    def ask(self, ticket: _Ticket, size_bytes: int) -> bool:
        """Return whether there is room now; if not, the request waits. One that is larger than all is alone."""
        if self._waiting or not self._fits(size_bytes):
            self._waiting[ticket] = size_bytes
            return False
        self.held_bytes += size_bytes
        return True

    def is_waiting(self, ticket: _Ticket) -> bool:
        """Return whether a request waits."""
        return ticket in self._waiting

    def withdraw(self, ticket: _Ticket) -> list[_Ticket]:
        """Forget a request that waits; return those that it was in the way of, which have their memory now."""
        del self._waiting[ticket]
        return self._lend()

    def give_back(self, size_bytes: int) -> list[_Ticket]:
        """Take back what was lent; return the requests that have their memory now."""
        self.held_bytes -= size_bytes
        return self._lend()

    def _lend(self) -> list[_Ticket]:
        lent = []
        for ticket, size_bytes in self._waiting.items():
            if not self._fits(size_bytes):
                break
            self.held_bytes += size_bytes
            lent.append(ticket)
        for ticket in lent:
            del self._waiting[ticket]
        return lent

    def _fits(self, size_bytes: int) -> bool:
        return not self.held_bytes or self.held_bytes + size_bytes <= self._bytes_max


class RequestMemory:
    """Lends bytes to requests that wait for their turn. For the loop's thread."""

    def __init__(self, bytes_max: int) -> None:
        self._lending: Lending[asyncio.Future[None]] = Lending(bytes_max)

    @property
    def held_bytes(self) -> int:
        """The bytes that are lent."""
        return self._lending.held_bytes

    async def acquire(self, size_bytes: int) -> None:
        """Return once there is room for a request of `size_bytes`; one that is larger than all is alone."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._lending.ask(turn, size_bytes):
            return
        try:
            await turn
        except asyncio.CancelledError:
            if self._lending.is_waiting(turn):
                _wake(self._lending.withdraw(turn))
            else:
                self.release(size_bytes)
            raise

    def release(self, size_bytes: int) -> None:
        """Give back what `acquire` has lent, to those that wait."""
        _wake(self._lending.give_back(size_bytes))


def _wake(turns: Iterable[asyncio.Future[None]]) -> None:
    for turn in turns:
        if not turn.cancelled():  # else it gives back what it has got when it is run
            turn.set_result(None)


class _Room(NamedTuple):
    """The memory of frames of up to `frame_bytes_max`, and more than the room before has."""

    frame_bytes_max: float
    eighths: int


_ROOMS: Final = (_Room(SMALL_BYTES, 1), _Room(2 * 1024 * 1024, 3), _Room(float("inf"), 4))
"""The second is for what producers send as they are set ordinarily: up to 1 MiB, and what names its records."""


class FrameMemory:
    """Lends memory to frames. Those of a size have their own part, so none waits for a frame that is larger by far."""

    def __init__(self, bytes_max: int) -> None:
        self._rooms = [(room.frame_bytes_max, RequestMemory(bytes_max * room.eighths // 8)) for room in _ROOMS]

    @property
    def held_bytes(self) -> int:
        """The bytes that are lent."""
        return sum(memory.held_bytes for _, memory in self._rooms)

    def loan(self, size_bytes: int) -> Loan:
        """Return a loan for a frame of this size, which has nothing yet."""
        return Loan(next(memory for frame_bytes_max, memory in self._rooms if size_bytes <= frame_bytes_max))


class Loan:
    """What one request or batch has of a memory. It gives back all of it before it takes more, so none waits for it."""

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
