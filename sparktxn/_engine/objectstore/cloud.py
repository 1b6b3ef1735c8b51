"""What one kind of remote store has of its own. All that they share is in `remote.py`, above it.

A cloud gives single requests, what its answers mean, and some values. Time, repetition, names and errors are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sparktxn._engine.objectstore.contract import ObjectInfo


class ListingPage(NamedTuple):
    """Objects of a listing by their keys; `token` asks for the page after it, and is empty if this is the last one."""

    objects: Sequence[ObjectInfo]
    token: str


class CloudRequests(Protocol):
    """Single requests to a store; keys are ``bucket/prefix/name``. Failures are the client's own exceptions.

    Runs on fsspec's event loop. A request that is cancelled keeps no connection.
    """

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Return the object's bytes, or those from `start` to `end`, or None if it does not exist."""

    async def create(self, key: str, data: bytes) -> None:
        """Send a create with the condition that the key is free."""

    async def write(self, key: str, data: bytes) -> None:
        """Write over whatever is there."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete at most `Cloud.delete_batch` keys of one bucket; absent ones are not an error."""

    async def list(self, prefix: str, deep: bool, after: str, token: str) -> ListingPage:
        """Return a page of the objects that begin with `prefix`: that of `token`, or the first one if it is empty.

        Unless `deep`, those in folders below `prefix` are left out. Those up to key `after` may be left out, where the
        store can; others, too, that do not begin with `prefix` may be among them.
        """


class ErrorResponse(NamedTuple):
    """What a store has answered to a request that failed: an HTTP status, 0 if it has not answered."""

    status: int = 0
    code: str = ""
    text: str = ""
    """The store's own words, where they say more than the code."""


class Cloud(NamedTuple):
    """A kind of store, as `RemoteStore` needs it."""

    file_system: Callable[[], Any]
    """Returns fsspec's class, whose constructor takes the ``storage.*`` settings. Raises ImportError."""
    connect: Callable[[Mapping[str, Any], float], CloudRequests]
    """Makes the requests of a handle, from its settings and its request time-out in seconds. Sends nothing."""
    refusal: Callable[[BaseException], ErrorResponse]
    """Reads a store's answer from an exception of its client."""
    credentials: str
    """Where credentials can come from, as advice."""
    delete_batch: int
    """How many objects one request deletes."""
    resends: bool
    """True if the client below sends a failed create again by itself."""
    texts: frozenset[str]
    """Settings whose values are text: what a client says of another value names no setting."""
    names: Mapping[str, str] = {}
    """Our names of settings, by the names of the constructor's arguments."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and what it was raised from."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__
