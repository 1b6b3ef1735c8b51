"""Which gateway a client uses: all agree on it, and one that does not answer is left out."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sparktxn._foundation.process.listening import Endpoint
from sparktxn._programs.gateway.placement import Placement
from sparktxn._programs.gateway.security.access import AccessOptions
from tests.gateway.certificates import Authority
from tests.gateway.gateways import HOST, gateway, raw_client
from tests.servers import free_ports

endpoints = st.builds(Endpoint, st.sampled_from(["a", "b"]), st.integers(1, 100))


@given(st.lists(endpoints, min_size=1, max_size=6, unique=True), st.text(max_size=5), st.text(max_size=5))
def test_all_gateways_place_a_client_at_the_same_one(nodes, host, client_id):
    placed = {Placement(node, tuple(nodes)).node_of(host, client_id) for node in nodes}
    assert len(placed) == 1


def test_clients_are_spread():
    nodes = tuple(Endpoint(HOST, port) for port in range(3))
    counts = Counter(Placement(nodes[0], nodes).node_of(HOST, f"client-{number}") for number in range(300))
    assert min(counts.values()) > 60


def test_a_gateway_that_does_not_answer_is_left_out(tmp_path: Path):
    async def run() -> None:
        # A socket that listens accepts connections, as that of a process that is stopped does.
        silent = socket.create_server((HOST, 0))
        stopped = Endpoint(*silent.getsockname())
        async with gateway(tmp_path / "store", peers=(stopped,)) as served, raw_client(served) as client:
            while len(served.broker.placement.alive()) > 1:
                await asyncio.sleep(0.1)
            answer = await client.call(3, 9, topics=[], allow_auto_topic_creation=False,
                                       include_cluster_authorized_operations=False,
                                       include_topic_authorized_operations=False)  # fmt: skip
            assert {(broker.host, broker.port) for broker in answer.brokers} == {served.endpoint, stopped}
            assert answer.controller_id == served.broker.placement.own_id
            for number in range(20):
                found = await client.call(10, 2, key=f"tx-{number}", key_type=1)
                assert (found.host, found.port) == served.endpoint
        silent.close()

    asyncio.run(run())


def test_a_gateway_that_starts_leaves_clients_to_the_others_until_they_have_seen_it(tmp_path: Path):
    """It would lead clients whose transactions the other one goes on to open, and refuse each of these."""

    async def run() -> None:
        async with gateway(tmp_path / "store") as other:
            own = Endpoint(HOST, 1)
            placement = Placement(own, (own, other.endpoint))
            names = [f"client-{number}" for number in range(100)]
            settled = [placement.node_of(HOST, name) for name in names]
            assert set(settled) == {0, 1}
            watching = asyncio.create_task(placement.watch(tls=False))
            await asyncio.sleep(0.6)  # the other one has answered, and has not asked
            assert {placement.node_of(HOST, name) for name in names} == {1 - placement.own_id}
            placement.note_asked_by("client-1")
            assert {placement.node_of(HOST, name) for name in names} == {1 - placement.own_id}
            placement.note_asked_by(str(other.endpoint))
            assert [placement.node_of(HOST, name) for name in names] == settled
            watching.cancel()

    asyncio.run(run())


def test_gateways_ask_each_other_by_their_names(tmp_path: Path):
    """The one that starts takes clients as soon as the other one has asked it, and not only after some time."""
    (tmp_path / "same").symlink_to(tmp_path / "store", target_is_directory=True)

    async def run() -> None:
        first, second = (Endpoint(HOST, port) for port in free_ports(2))
        async with gateway(tmp_path / "store", port=first.port, peers=(first, second)) as one:
            names = [f"client-{number}" for number in range(20)]
            while one.broker.placement.alive() != [one.broker.placement.own_id]:
                await asyncio.sleep(0.01)
            async with gateway(tmp_path / "same", port=second.port, peers=(first, second)) as other:
                placed = [one.broker.placement, other.broker.placement]
                for is_seen in (False, True):
                    while placed[1]._is_seen is not is_seen:
                        await asyncio.sleep(0.001)
                assert placed[1]._asked_by == {str(first)}
                while [placed[0].node_of(HOST, name) for name in names] != [
                    placed[1].node_of(HOST, name) for name in names
                ]:
                    await asyncio.sleep(0.001)

    asyncio.run(run())


def test_a_gateway_that_starts_alone_takes_clients_at_once():
    async def run() -> None:
        own, missing = Endpoint(HOST, 1), Endpoint(HOST, 2)
        placement = Placement(own, (own, missing))
        watching = asyncio.create_task(placement.watch(tls=False))
        while placement.alive() != [placement.own_id]:
            await asyncio.sleep(0.01)
        assert placement.node_of(HOST, "client") == placement.own_id
        watching.cancel()

    asyncio.run(run())


def test_gateways_that_ask_for_certificates_find_each_other(tmp_path: Path):
    authority = Authority(tmp_path)
    certificate, key = authority.certificate("localhost")
    options = AccessOptions(tls_certificate=certificate, tls_key=key, tls_client_ca=authority.file)

    async def run() -> None:
        async with gateway(tmp_path / "store", access=options) as other:
            placement = Placement(Endpoint(HOST, 1), (other.endpoint,))
            watching = asyncio.create_task(placement.watch(tls=True))
            await asyncio.sleep(2.5)  # so long does it take to leave out one that does not answer
            watching.cancel()
            assert len(placement.alive()) == 2

    asyncio.run(run())
