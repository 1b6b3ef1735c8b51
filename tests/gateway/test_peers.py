"""Several gateways of one store: each names all of them, and a client that loses one goes on at another."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from kio.schema.errors import ErrorCode

from sparktxn._foundation.process.listening import endpoint
from sparktxn._programs.gateway.placement import Placement
from sparktxn.tables import read_arrow
from tests.gateway.gateways import HOST
from tests.gateway.processes import gateway, new_store
from tests.gateway.wire import Wire


def free_addresses(count: int) -> list[str]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in taken]
    finally:
        for one in taken:
            one.close()


def metadata(address: str) -> Any:
    with Wire(address) as wire:
        return wire.ask("metadata", 7, topics=[{"name": "orders"}], allow_auto_topic_creation=False)


def test_all_gateways_name_each_other_and_the_same_leader_and_coordinator_for_a_client(tmp_path: Path) -> None:
    store, addresses = new_store(tmp_path), free_addresses(2)
    peers = ("--peers", ",".join(addresses))
    with gateway(store, *peers, listen=addresses[0]), gateway(store, *peers, listen=addresses[1]):
        # They have not found each other at once.
        first, second = (endpoint("peer", address) for address in addresses)
        settled = {Placement(first, (first, second)).node_of(HOST, "wire")}
        while {metadata(address).controller_id for address in addresses} != settled:
            time.sleep(0.1)
        answers = [metadata(address) for address in addresses]
        nodes = [{node.node_id: f"{node.host}:{node.port}" for node in answer.brokers} for answer in answers]
        assert nodes[0] == nodes[1]
        assert sorted(nodes[0].values()) == sorted(addresses)
        leaders = {part.leader_id for answer in answers for topic in answer.topics for part in topic.partitions}
        assert len(leaders | {answer.controller_id for answer in answers}) == 1
        for address in addresses:
            with Wire(address) as wire:
                found = wire.ask("find_coordinator", 2, key="g", key_type=0)
                assert (found.error_code, {found.node_id}) == (ErrorCode.none, leaders)
        assert answers[0].cluster_id == answers[1].cluster_id


def test_a_client_that_loses_a_gateway_goes_on_at_another(tmp_path: Path) -> None:
    store, addresses = new_store(tmp_path), free_addresses(2)
    peers = ("--peers", ",".join(addresses))

    async def produce() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=addresses, enable_idempotence=True, request_timeout_ms=40_000, retry_backoff_ms=100
        )
        await producer.start()
        try:
            for number in range(10):
                if number == 5:
                    first.process.send_signal(signal.SIGKILL)
                    first.process.wait()
                await asyncio.wait_for(producer.send_and_wait("orders", str(number).encode(), partition=0), 60)
        finally:
            await producer.stop()

    with (
        gateway(store, *peers, listen=addresses[0], own_python=True) as first,
        gateway(store, *peers, listen=addresses[1]),
    ):
        asyncio.run(produce())
    values = read_arrow(store, "orders").read_all().column("value").to_pylist()
    assert values == [str(number).encode() for number in range(10)]
