"""No client takes the gateway from the others: frames that never come, large ones, and clients that are not known.

Clients of all kinds meet at one gateway's memory and places, in virtual time. Each that behaves is answered in a time
that follows from clients like itself.
"""

from __future__ import annotations

import asyncio
import resource
import selectors
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparktxn._foundation.process.clock import RandomIds
from sparktxn._programs.gateway import connection as connections
from sparktxn._programs.gateway.connection import Served
from sparktxn._programs.gateway.gatewayserver import _connections_max, serve_client
from sparktxn._programs.gateway.gatewaysettings import GatewaySettings
from sparktxn._programs.gateway.requestfigures import GatewayFigures
from sparktxn._programs.gateway.requestmemory import Clients, FrameMemory, Lending
from sparktxn._programs.gateway.security.access import OPEN, AccessOptions
from sparktxn._programs.gateway.security.users import user_lines
from sparktxn._programs.gateway.wire.wiremessages import MalformedRequest, Request
from tests.gateway.gateways import RawClient, gateway, raw_client
from tests.gateway.test_security import PASSWORD, users_file

KIB, MIB = 1 << 10, 1 << 20
MEMORY_BYTES = 8 * MIB
ROOMS = ((64 * KIB, MEMORY_BYTES // 8), (2 * MIB, 3 * MEMORY_BYTES // 8), (100 * MIB, MEMORY_BYTES // 2))
REQUEST_S, ANSWER_S, WORK_S = 5.0, 20.0, 1.0
FLOOR_BYTES_PER_S = 1_000_000
UNKNOWN_MAX = 6


def room_of(size_bytes: int) -> int:
    return next(place for place, (frame_bytes_max, _) in enumerate(ROOMS) if size_bytes <= frame_bytes_max)


# Time that passes at once


class Nothing(Exception):
    """All clients wait for each other."""


class VirtualSelector(selectors.SelectSelector):
    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise Nothing
        self.now_s += max(0.0, timeout)
        return super().select(0)


def in_virtual_time(work: Callable[[], Any]) -> None:
    selector = VirtualSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now_s  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(work())


# A gateway whose requests take their time and do nothing


class Frame(NamedTuple):
    """What a client sends: its login, or a request. The first byte of a frame says which."""

    kind: int
    size_bytes: int


HELLO, LOGIN, WORK = range(3)


class PretendedAuthentication:
    def __init__(self, access: Any, *_: object) -> None:
        self.is_pending = access.users is not None
        self.has_failed = False
        self.takes_bare_tokens = False

    def end_unknown(self, cause: str) -> None:
        pass

    def fail(self, cause: str) -> None:
        self.has_failed = True

    async def answer(self, request: Request) -> dict[str, Any]:
        await asyncio.sleep(0.01)
        if request.key not in (HELLO, LOGIN):
            raise MalformedRequest("not known")
        self.is_pending = request.key != LOGIN
        return {}


class PretendedGateway:
    """Owns the broker's part that the connections see, and knows what each frame in memory has."""

    def __init__(self, is_open: bool) -> None:
        loop = asyncio.get_running_loop()
        limits = GatewaySettings(
            requests_bytes_max=MEMORY_BYTES, request_s=REQUEST_S, answer_s=ANSWER_S, unknown_max=UNKNOWN_MAX
        )
        self.broker: Any = SimpleNamespace(
            settings=limits,
            memory=FrameMemory(MEMORY_BYTES),
            clients=Clients[Any](limits.connections_max, limits.unknown_max),
            figures=GatewayFigures(),
            failed_logins=None,
            calls=None,
            log=SimpleNamespace(clock=SimpleNamespace(monotonic_s=loop.time), ids=RandomIds()),
        )
        self.access = OPEN if is_open else OPEN._replace(users=object())  # type: ignore[arg-type]
        self.connections: dict[Any, Any] = {}
        self.working: list[int] = []

    async def work(self, _: object, request: Request) -> Any:
        async def later() -> dict[str, Any]:
            await asyncio.sleep(WORK_S)
            return {}

        return self.counted(request.body, later())

    async def counted(self, size_bytes: int, later: Any) -> dict[str, Any]:
        self.working.append(size_bytes)
        try:
            self.check()
            return dict(await later)
        finally:
            self.working.remove(size_bytes)

    def check(self) -> None:
        for place, (_, bytes_max) in enumerate(ROOMS):
            held = [size for size in self.working if room_of(size) == place]
            assert sum(held) <= bytes_max or len(held) == 1
        assert sum(self.working) <= self.broker.memory.held_bytes
        assert self.broker.clients.unknown_count <= UNKNOWN_MAX

    @contextmanager
    def in_place(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connections, "Authentication", PretendedAuthentication)
            patch.setattr(connections, "decode_request", decoded)
            patch.setattr(connections, "encode_response", lambda *_: bytes(8))
            patch.setattr(connections, "SERVED", {key: Served(0, 0, self.work, is_queued=True) for key in range(3)})
            yield


def decoded(frame: bytes, _: object) -> Request:
    return Request(frame[0], 0, 1, "", len(frame))


class PretendedTransport:
    """The gateway's end of a connection: it is written to, and says when it takes nothing more."""

    def __init__(self) -> None:
        self.is_paused = False
        self.is_closed = asyncio.Event()
        self.reader = asyncio.StreamReader(64 * KIB)
        self.reader.set_transport(self)  # type: ignore[arg-type]
        self.answers = 0
        self.answered = asyncio.Condition()
        self.is_taking = asyncio.Event()
        self.transport = self

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_extra_info(self, _: str) -> None:
        return None

    def write(self, frame: bytes) -> None:
        self.answers += 1

    async def drain(self) -> None:
        async with self.answered:
            self.answered.notify_all()
        await self.is_taking.wait()

    def close(self) -> None:
        self.is_closed.set()

    def abort(self) -> None:
        self.is_closed.set()
        if not self.reader.at_eof():
            self.reader.feed_eof()


class Left(Exception):
    """The gateway has left the client."""


async def connected(served: PretendedGateway) -> PretendedTransport:
    end = PretendedTransport()
    made = serve_client(served.broker, served.access, served.connections, end.reader, end)  # type: ignore[arg-type]
    task = asyncio.create_task(made)
    task.add_done_callback(lambda _: end.abort())
    await asyncio.sleep(0)
    return end


async def feed(end: PretendedTransport, data: bytes, bytes_per_s: float) -> None:
    for start in range(0, len(data), 64 * KIB):
        part = data[start : start + 64 * KIB]
        while end.is_paused and not end.is_closed.is_set():
            await asyncio.sleep(0.01)
        if end.is_closed.is_set():
            raise Left
        end.reader.feed_data(part)
        await asyncio.sleep(len(part) / bytes_per_s)


async def ask(end: PretendedTransport, kind: int, size_bytes: int, bytes_per_s: float) -> None:
    wanted = end.answers + 1
    await feed(end, struct.pack(">iB", size_bytes, kind) + bytes(size_bytes - 1), bytes_per_s)
    while end.answers < wanted:
        if end.is_closed.is_set():
            raise Left
        async with end.answered:
            try:
                await asyncio.wait_for(end.answered.wait(), 0.05)
            except TimeoutError:
                continue


async def logged_in(served: PretendedGateway) -> PretendedTransport:
    while True:
        end = await connected(served)
        end.is_taking.set()
        try:
            await ask(end, HELLO, 40, 1e9)
            await ask(end, LOGIN, 200, 1e9)
        except Left:
            await asyncio.sleep(0.2)
        else:
            return end


# Its clients


class Good(NamedTuple):
    """Sends requests one after the other, each in time; a slow one hardly."""

    size_bytes: int
    requests: int
    delay_s: float
    is_slow: bool


class Bad(NamedTuple):
    """Announces a frame and sends some of it, before its login or after, or takes no answers; again and again."""

    size_bytes: int
    sent_bytes: int
    is_known: bool
    takes_nothing: bool
    delay_s: float


class Chatty(NamedTuple):
    """Asks without end, and never says who it is, until it is left."""

    delay_s: float


SIZES = st.one_of(
    st.integers(1, 64 * KIB), st.sampled_from([64 * KIB, 64 * KIB + 1, 2 * MIB, 2 * MIB + 1]), st.integers(1, 6 * MIB)
)
DELAYS = st.floats(0, 20)
GOOD = st.builds(Good, SIZES, st.integers(1, 3), DELAYS, st.booleans())
BAD = st.builds(Bad, SIZES, st.integers(0, 200 * KIB), st.booleans(), st.booleans(), DELAYS)


CHATTY = st.builds(Chatty, DELAYS)
Client = Good | Bad | Chatty


class Bounds(NamedTuple):
    """How long the login of a client may take, and each of its requests."""

    login_s: float
    request_s: float


async def behave(served: PretendedGateway, client: Good, bounds: Bounds) -> None:
    await asyncio.sleep(client.delay_s)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    end = await logged_in(served)
    assert loop.time() - began_s <= bounds.login_s
    bytes_per_s = 1.2 * FLOOR_BYTES_PER_S if client.is_slow else 1e9
    for _ in range(client.requests):
        began_s = loop.time()
        await ask(end, WORK, client.size_bytes, bytes_per_s)
        assert loop.time() - began_s <= bounds.request_s
    end.abort()


async def chat(served: PretendedGateway, end: PretendedTransport) -> None:
    end.is_taking.set()
    try:
        while True:
            await ask(end, HELLO, 60 * KIB, 1e9)
            await asyncio.sleep(0.3)
    except Left:
        return


async def misbehave(served: PretendedGateway, client: Bad | Chatty) -> None:
    await asyncio.sleep(client.delay_s)
    if isinstance(client, Chatty):
        await chat(served, await connected(served))
        return
    while True:
        end = await logged_in(served) if client.is_known else await connected(served)
        kind = WORK if client.is_known else HELLO
        size_bytes = max(client.size_bytes, 1)
        if client.takes_nothing:
            end.is_taking.clear()
            data = struct.pack(">iB", size_bytes, kind) + bytes(size_bytes - 1)
        else:
            data = (struct.pack(">iB", size_bytes, kind) + bytes(size_bytes))[
                : 4 + min(client.sent_bytes, size_bytes - 1)
            ]
        with suppress(Left):
            await feed(end, data, 1e9)
        await end.is_closed.wait()
        await asyncio.sleep(0.1)


def bounds_of(client: Good, clients: list[Client]) -> Bounds:
    """Return what follows from clients of its kind: for how long they have the memory that it may need."""
    kind = room_of(client.size_bytes)

    def held_s(other: Client) -> float:
        if isinstance(other, Chatty) or room_of(other.size_bytes) != kind:
            return 0.0
        never_comes = isinstance(other, Bad) and not other.takes_nothing
        if kind == 0:
            return 0.0 if never_comes else WORK_S
        return REQUEST_S + other.size_bytes / FLOOR_BYTES_PER_S + WORK_S

    own_s = client.size_bytes / FLOOR_BYTES_PER_S + WORK_S + 1.0
    login_s = 15.0 if any(isinstance(each, Chatty) for each in clients) else 8.0
    return Bounds(login_s, sum(map(held_s, clients)) + own_s)


@settings(max_examples=60, deadline=None)
@given(st.lists(GOOD, min_size=1, max_size=6), st.lists(st.one_of(BAD, CHATTY), max_size=14), st.booleans())
@example([Good(60, 3, 1.0, False)], [Bad(6 * MIB, 0, True, False, 0.0)] * 3, True)
@example([Good(60, 3, 1.0, False)], [Bad(64 * KIB, 0, True, False, 0.0)] * 40, True)
@example([Good(60, 3, 1.0, False)], [Bad(64 * KIB, 0, False, False, 0.0)] * 40, False)
@example([Good(60, 3, 1.0, False)], [Chatty(0.0)] * 40, False)
@example([Good(MIB, 3, 1.0, True)] * 4, [Bad(6 * MIB, 100, True, False, 0.0)] * 3, False)
@example([Good(3 * MIB, 2, 0.0, False)] * 2 + [Good(64 * KIB, 3, 0.0, False)] * 4, [], False)
def test_each_client_that_behaves_is_answered_in_a_time_that_others_do_not_stretch(good, bad, is_open):
    async def run() -> None:
        served = PretendedGateway(is_open)
        with served.in_place():
            others = [asyncio.create_task(misbehave(served, client)) for client in bad]
            clients = [asyncio.create_task(behave(served, client, bounds_of(client, [*good, *bad]))) for client in good]
            for client in clients:
                await client
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            for left in list(served.connections):
                left.abort()
                served.connections[left].cancel()
            await asyncio.sleep(ANSWER_S + REQUEST_S + 30)
            assert served.broker.memory.held_bytes == 0
            assert len(served.broker.clients) == 0

    in_virtual_time(run)


# What is lent, and who has a place, step by step


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(["ask", "withdraw", "give_back"]), st.integers(1, 150)), max_size=40))
def test_memory_is_lent_in_order_and_as_soon_as_it_fits(steps):
    lending: Lending[int] = Lending(100)
    held: dict[int, int] = {}
    waiting: dict[int, int] = {}
    for number, (step, size) in enumerate(steps):
        lent: list[int] = []
        if step == "ask":
            waiting[number] = size
            lent = [number] if lending.ask(number, size) else []
        elif step == "withdraw" and waiting:
            ticket = sorted(waiting)[size % len(waiting)]
            assert lending.is_waiting(ticket)
            del waiting[ticket]
            lent = lending.withdraw(ticket)
        elif step == "give_back" and held:
            lent = lending.give_back(held.pop(sorted(held)[size % len(held)]))
        assert lent == list(waiting)[: len(lent)]
        for ticket in lent:
            assert not lending.is_waiting(ticket)
            held[ticket] = waiting.pop(ticket)
        assert lending.held_bytes == sum(held.values())
        assert lending.held_bytes <= 100 or len(held) == 1
        first = next(iter(waiting.values()), None)
        assert first is None or (held and lending.held_bytes + first > 100)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["admit", "request", "answered", "known", "remove"]),
            st.integers(0, 20),
            st.floats(0, 6),
        ),
        max_size=60,
    )
)
def test_no_place_is_taken_from_a_known_client_and_no_silent_one_keeps_a_new_one_out(steps):
    clients: Clients[int] = Clients(6, 3)
    known: set[int] = set()
    unknown: dict[int, tuple[float, float | None]] = {}
    now_s = 0.0
    for number, (step, place, passed_s) in enumerate(steps):
        now_s += passed_s
        everyone = sorted(known | set(unknown))
        one = everyone[place % len(everyone)] if everyone else -1
        if step == "admit":
            is_full = len(unknown) >= 3 or len(known) + len(unknown) >= 6
            may_be_left = {
                client
                for client, (since_s, silent_s) in unknown.items()
                if now_s - since_s >= 10 or (silent_s is not None and now_s - silent_s >= 1)
            }
            is_admitted, left = clients.admit(number, now_s)
            assert is_admitted == (not is_full or bool(may_be_left))
            assert (left is not None) == (is_full and is_admitted)
            if left is not None:
                assert left in may_be_left
                del unknown[left]
            if is_admitted:
                unknown[number] = (now_s, now_s)
        elif step == "request":
            clients.note_request(one)
        elif step == "answered":
            clients.note_answered(one, now_s)
        elif step == "known":
            clients.note_known(one)
            if unknown.pop(one, None):
                known.add(one)
        else:
            clients.remove(one)
            known.discard(one)
            unknown.pop(one, None)
        if step in ("request", "answered") and one in unknown:
            unknown[one] = (unknown[one][0], None if step == "request" else now_s)
        assert (len(clients), clients.unknown_count) == (len(known) + len(unknown), len(unknown))


# At a gateway of sockets


async def announced(served: Any, size_bytes: int, *, speaks: bool = False) -> asyncio.StreamWriter:
    """Connect, and announce a frame that never comes; what `speaks` has sent a request before."""
    reader, writer = await asyncio.open_connection(*served.endpoint)
    with suppress(asyncio.IncompleteReadError, ConnectionError):  # there is no place for it
        if speaks:
            await RawClient(reader, writer).call(18, 0)
        writer.write(struct.pack(">i", size_bytes))
        await writer.drain()
    return writer


async def topics_of(served: Any, *, is_open: bool) -> int:
    """Return the number of topics that a client gets, which comes again while there is no place for it."""
    while True:
        try:
            async with raw_client(served) as client:
                if not is_open:
                    await client.call(18, 0)
                    await client.call(17, 1, mechanism="PLAIN")
                    answer = await client.call(36, 2, auth_bytes=f"\0alice\0{PASSWORD}".encode())
                    assert answer.error_code.value == 0
                return len((await client.call(3, 1, topics=None)).topics)
        except (asyncio.IncompleteReadError, ConnectionError):
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("speaks", [False, True])
@pytest.mark.parametrize("size_bytes", [64 * KIB, MIB, 64 * MIB])
def test_frames_that_never_come_keep_nobody_from_small_requests(tmp_path: Path, is_open, speaks, size_bytes):
    access = AccessOptions() if is_open else AccessOptions(sasl_users=users_of_alice(tmp_path))

    async def run() -> None:
        limits = {"unknown_max": 20, "requests_bytes_max": 64 * MIB, "request_s": 3600.0}
        async with gateway(tmp_path / "store", access=access, **limits) as served:
            held = [await announced(served, size_bytes, speaks=speaks) for _ in range(60)]
            async with asyncio.timeout(30):
                assert await topics_of(served, is_open=is_open) == 0
            if not is_open:
                assert served.broker.memory.held_bytes == 0, "no unknown client has some of the known ones' memory"
            for writer in held:
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()

    asyncio.run(run())


def users_of_alice(folder: Path) -> Path:
    return users_file(folder, *user_lines("alice", PASSWORD, RandomIds()))


def test_a_frame_of_an_unknown_client_is_small(tmp_path: Path):
    async def run() -> None:
        access = AccessOptions(sasl_users=users_of_alice(tmp_path))
        async with gateway(tmp_path / "store", access=access) as served:
            reader, writer = await asyncio.open_connection(*served.endpoint)
            writer.write(struct.pack(">i", 64 * KIB + 1))
            assert await reader.read() == b""
            writer.close()

    asyncio.run(run())


def test_a_gateway_has_no_more_clients_than_it_may_have_files(monkeypatch):
    limits = [256 + 40, 256 + 70]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.__setitem__(slice(None), list(given)))
    assert [_connections_max(wanted) for wanted in (30, 60, 10_000)] == [30, 60, 70]
    assert limits == [256 + 70, 256 + 70]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    assert _connections_max(10_000) == 10_000
    monkeypatch.setattr(resource, "setrlimit", lambda *_: (_ for _ in ()).throw(ValueError))
    assert _connections_max(10_000) == 1024 - 256
