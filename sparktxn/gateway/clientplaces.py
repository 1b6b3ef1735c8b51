"""Which clients a gateway has a place for: unknown ones have few, and one that says nothing makes room for the next.

A client is unknown until it has logged in; where no login is asked for, until its first request.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

__all__ = ["Admission", "Clients"]

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
