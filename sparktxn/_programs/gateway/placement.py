"""Which gateway a client is to use: one for all that it does, the same whichever gateway it asks.

A client asks for leaders and for coordinators at different nodes. A transaction's records are in the memory of the
gateway that has opened it. So all gateways of a store choose by the client, among those that answer: by its address
and its client id. They agree without a word, unless they see different ones answer. Then a client that has changed
gateways in a transaction is asked to abort it, as when a gateway dies.

A gateway that comes back is the leader again once a client refreshes its metadata, but a client keeps its coordinator
until it is refused. So a gateway refers a transaction that it holds nothing of to the one that the client is placed at.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
from collections import OrderedDict
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final

from sparktxn._foundation.process.listening import Endpoint
from sparktxn.store.options import Clock, ThreadBackground

_Addresses = list[tuple[Any, ...]]
_API_VERSIONS: Final = b"\0\x12\0\0\0\0\0\0"
"""A request of version 0, before its client id: it is answered before a client has shown who it is."""
_CHECKED_EVERY_S: Final = 0.5
_ANSWER_S: Final = 1.0
_MISSED_MAX: Final = 2
"""A gateway that has not answered so often in a row is left out."""
_SEEN_BY_S: Final = 5.0
"""So long after its start a gateway leaves clients to the others, unless these have asked it before.

If it were their leader at once, it would refuse each transaction that another gateway goes on to open for them.
"""
_SEEN_BY_TLS_S: Final = 1.5
"""The same with TLS, in whose greeting no gateway says which one it is."""
_REFERRED_EVERY_S: Final = 60.0
_REFERRED_S: Final = 2.0
"""So long is a transactional id referred at a time: a client may ask once more before it has found its coordinator."""
_REFERRED_TIMES_MAX: Final = 2
_IDS_MAX: Final = 10_000


class Placement:
    """The gateways of a store, `own` among them, and which of them answer. For the loop's thread."""

    def __init__(self, own: Endpoint, peers: tuple[Endpoint, ...]) -> None:
        self.nodes = tuple(sorted({own, *peers}))
        """All gateways in an order that is the same on each: the place in it is a node's id."""
        self.own_id = self.nodes.index(own)
        self._is_seen = True
        self._names = frozenset(map(str, self.nodes))
        self._asked_by: set[str] = set()
        self._missed = dict.fromkeys(range(len(self.nodes)), 0)
        self._lookups = ThreadBackground("sparktxn-gateway-names", len(self.nodes))
        self._searches: dict[int, Future[_Addresses]] = {}

    def alive(self) -> list[int]:
        """Return the ids of this gateway and of those that answer."""
        return [node for node, missed in self._missed.items() if missed < _MISSED_MAX]

    @property
    def view(self) -> tuple[bool, ...]:
        """What clients are placed by: whether each gateway answers, and whether the others have seen this one."""
        return (self._is_seen, *(missed < _MISSED_MAX for missed in self._missed.values()))

    def node_of(self, client_host: str, client_id: str) -> int:
        """Return the id of the gateway that a client is to use."""
        others = [node for node in self.alive() if node != self.own_id]
        chosen = [*others, self.own_id] if self._is_seen or not others else others
        return max(chosen, key=lambda node: _weight(client_host, client_id, self.nodes[node]))

    def is_gateway(self, client_id: str) -> bool:
        """Return whether it is the name by which one of the gateways asks for versions, to see who answers."""
        return client_id in self._names

    def note_asked_by(self, client_id: str) -> None:
        """Note who has asked this one for its versions. Gateways do, by their names: they have seen it then."""
        if self._is_seen:
            return
        if self.is_gateway(client_id):
            self._asked_by.add(client_id)
        self._is_seen = self._others <= self._asked_by

    @property
    def _others(self) -> set[str]:
        """The names of the others that answer."""
        return {str(self.nodes[node]) for node in self.alive() if node != self.own_id}

    async def watch(self, *, tls: bool) -> None:
        """See again and again which of the others answer, which speak TLS or not."""
        others = [node for node in self._missed if node != self.own_id]
        now_s = asyncio.get_running_loop().time
        seen_by_s, self._is_seen = now_s() + (_SEEN_BY_TLS_S if tls else _SEEN_BY_S), not others
        try:
            while others:
                await asyncio.gather(*(self._check(node, tls) for node in others))
                self._is_seen = self._is_seen or self._others <= self._asked_by or now_s() >= seen_by_s
                await asyncio.sleep(_CHECKED_EVERY_S)
        finally:
            self._lookups.close(0)

    async def _check(self, node: int, tls: bool) -> None:
        try:
            async with asyncio.timeout(_ANSWER_S):
                await _asked(await self._addresses(node), str(self.nodes[self.own_id]), tls)
        except ConnectionRefusedError:
            self._missed[node] = _MISSED_MAX
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            self._missed[node] += 1
        else:
            self._missed[node] = 0

    async def _addresses(self, node: int) -> _Addresses:
        """Return where a gateway is, by numbers.

        The loop would look up a name on threads of its own, and wait for them at its end, however long they take.
        """
        search = self._searches.get(node)
        if search is None or search.cancelled():
            lookup = partial(socket.getaddrinfo, *self.nodes[node], type=socket.SOCK_STREAM)
            search = self._searches[node] = self._lookups.submit(lookup)
        try:
            return await asyncio.shield(asyncio.wrap_future(search))
        finally:
            if search.done():
                del self._searches[node]


class Referrals:
    """Refers transactions to the gateways that their clients are placed at, and each of them for a bounded time.

    Two gateways may see a client by different addresses, or see each other differently. Each would then refer it to the
    other without end. So a transactional id is referred for two seconds, twice a minute, and then served. That counts
    anew when another gateway has come or gone: each of several restarts in a minute moves a client.
    """

    def __init__(self, clock: Clock, placement: Placement) -> None:
        self._clock = clock
        self._placement = placement
        self._began: OrderedDict[str, list[tuple[float, tuple[bool, ...]]]] = OrderedDict()

    def other_gateway(self, transactional_id: str, client_host: str, client_id: str) -> Endpoint | None:
        """Return where a client is to go with a transaction that is not held here; None: this gateway serves it."""
        node = self._placement.node_of(client_host, client_id)
        if node == self._placement.own_id or not self._may_refer(transactional_id):
            return None
        return self._placement.nodes[node]

    def _may_refer(self, transactional_id: str) -> bool:
        now_s, view = self._clock.monotonic_s(), self._placement.view
        began = [each for each in self._began.get(transactional_id, ()) if now_s - each[0] < _REFERRED_EVERY_S]
        if not began or now_s - began[-1][0] >= _REFERRED_S:
            if sum(seen == view for _, seen in began) >= _REFERRED_TIMES_MAX:
                return False
            began.append((now_s, view))
        self._began[transactional_id] = began
        self._began.move_to_end(transactional_id)
        while len(self._began) > _IDS_MAX:
            self._began.popitem(last=False)
        return True


async def _asked(addresses: _Addresses, client_id: str, tls: bool) -> None:
    """Return once a gateway answers at one of its addresses."""
    for *_, address in addresses[:-1]:
        with suppress(OSError):
            await _asked_at(Endpoint(str(address[0]), int(address[1])), client_id, tls)
            return
    *_, address = addresses[-1]
    await _asked_at(Endpoint(str(address[0]), int(address[1])), client_id, tls)


async def _asked_at(endpoint: Endpoint, client_id: str, tls: bool) -> None:
    """Return once a gateway answers: a process that is stopped still has its connections accepted.

    Nothing of it is believed, so its certificate is not checked.
    """
    if tls:
        await _greeted(endpoint)
        return
    reader, writer = await asyncio.open_connection(*endpoint)
    try:
        frame = _API_VERSIONS + len(name := client_id.encode()).to_bytes(2) + name
        writer.write(len(frame).to_bytes(4) + frame)
        await reader.readexactly(4)
    finally:
        writer.close()


async def _greeted(endpoint: Endpoint) -> None:
    """Return once a gateway takes part in TLS's greeting: it may refuse a client without a certificate after that."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        _, writer = await asyncio.open_connection(*endpoint, ssl=context)
    except ssl.SSLError:
        return
    writer.close()


def _weight(client_host: str, client_id: str, endpoint: Endpoint) -> bytes:
    return hashlib.blake2b(f"{client_host}\0{client_id}\0{endpoint}".encode(), digest_size=8).digest()
