"""How many bytes are in memory at a time, over all connections, and how many connections of unknown clients there are.

Each kind has a memory of its own. A request that has some of the first waits for the second. Nothing that has some of
the second waits for the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

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


# Which clients a gateway has a place for: unknown ones have few, and one that says nothing makes room for the next.
#
# A client is unknown until it has logged in; where no login is asked for, until its first request.

Client = TypeVar("Client", bound=Hashable)

_SILENT_S: Final = 1.0
"""Where there is no place for a new client, an unknown one is left whose request is awaited for so long."""
_UNKNOWN_S: Final = 10.0
"""Or one that is unknown for so long, whatever it sends."""


class Admission(NamedTuple, Generic[Client]):
    """Whether a new client has a place, and the client that has to be left for it, if any."""

    is_admitted: bool
    left: Client | None = None


class _Unknown(NamedTuple):
    since_s: float
    silent_since_s: float | None
    """None while the gateway is to answer it."""


class Clients(Generic[Client]):
    """Owns the places of clients. Known ones are never left for others. For one thread; the caller has the clock."""

    def __init__(self, clients_max: int, unknown_max: int) -> None:
        self._clients_max = clients_max
        self._unknown_max = unknown_max
        self._known: set[Client] = set()
        self._unknown: dict[Client, _Unknown] = {}

    def __len__(self) -> int:
        return len(self._known) + len(self._unknown)

    @property
    def unknown_count(self) -> int:
        """How many of them are not known."""
        return len(self._unknown)

    def admit(self, client: Client, now_s: float) -> Admission[Client]:
        """Give a new client a place, that of another one if all are taken; it is unknown, and may say something."""
        left = None
        if len(self._unknown) >= self._unknown_max or len(self) >= self._clients_max:
            left = self._to_leave(now_s)
            if left is None:
                return Admission(False)
            del self._unknown[left]
        self._unknown[client] = _Unknown(now_s, now_s)
        return Admission(True, left)

    def note_request(self, client: Client) -> None:
        """Note that a client has sent a request, which is not answered yet."""
        self._note_silent(client, None)

    def note_answered(self, client: Client, now_s: float) -> None:
        """Note that a client is answered: it is to say something."""
        self._note_silent(client, now_s)

    def note_known(self, client: Client) -> None:
        """Note that a client is known from now on."""
        if self._unknown.pop(client, None) is not None:
            self._known.add(client)

    def remove(self, client: Client) -> None:
        """Note that a client has gone."""
        self._known.discard(client)
        self._unknown.pop(client, None)

    def _note_silent(self, client: Client, since_s: float | None) -> None:
        found = self._unknown.get(client)
        if found is not None:
            self._unknown[client] = found._replace(silent_since_s=since_s)

    def _to_leave(self, now_s: float) -> Client | None:
        silent = [
            (each.silent_since_s, client) for client, each in self._unknown.items() if each.silent_since_s is not None
        ]
        since_s, client = min(silent, key=lambda each: each[0], default=(now_s, None))
        if client is not None and now_s - since_s >= _SILENT_S:
            return client
        client, oldest = next(iter(self._unknown.items()), (None, None))  # in the order in which they came
        return client if oldest is not None and now_s - oldest.since_s >= _UNKNOWN_S else None
