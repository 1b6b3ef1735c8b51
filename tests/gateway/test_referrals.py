"""A client that keeps its coordinator is sent on to the gateway it is placed at, and not back and forth without end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sparktxn._foundation.process.listening import Endpoint
from sparktxn._foundation.values.structs import ProducerIdAndEpoch
from sparktxn._programs.gateway.placement import Placement, Referrals
from sparktxn.errors import ErrorCode
from sparktxn.testing.clocks import ManualClock
from tests.gateway.gateways import Gateway, RawClient, gateway, raw_client
from tests.gateway.requests import add_partition, batch, end, init_producer, produce, produce_members, read_all
from tests.gateway.test_transactions_v2 import offset_sent

TX = "tx"
NOT_LEADER_OR_FOLLOWER = 6
HERE, OTHER = Endpoint("127.0.0.1", 1), Endpoint("127.0.0.1", 2)

Asked = Callable[[RawClient, ProducerIdAndEpoch], Awaitable[int]]


async def added_by_many(client: RawClient, identity: ProducerIdAndEpoch) -> int:
    named = {"transactional_id": TX, "producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
    topics = [{"name": "t", "partitions": [0]}]
    answer = await client.call(24, 4, transactions=[{**named, "verify_only": False, "topics": topics}])
    (result,) = answer.results_by_transaction[0].topic_results[0].results_by_partition
    return int(result.partition_error_code.value)


async def group_added(client: RawClient, identity: ProducerIdAndEpoch) -> int:
    named = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
    return int((await client.call(25, 3, transactional_id=TX, **named, group_id="g")).error_code.value)


async def ended_and_renewed(client: RawClient, identity: ProducerIdAndEpoch) -> int:
    named = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
    return int((await client.call(26, 5, transactional_id=TX, **named, committed=True)).error_code.value)


async def produced(client: RawClient, identity: ProducerIdAndEpoch) -> int:
    sent = batch([b"1"], identity, 0, transactional=True)
    return int((await produce(client, "t", 0, sent, transactional_id=TX)).error_code.value)


async def initialised(client: RawClient, _: ProducerIdAndEpoch) -> int:
    await init_producer(client, TX)  # checks the code itself
    return 0


async def offset_committed(client: RawClient, _: ProducerIdAndEpoch) -> int:
    part = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": None}
    answer = await client.call(
        8, 8, group_id="alone", generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
        topics=[{"name": "t", "partitions": [part]}],
    )  # fmt: skip
    return int(answer.topics[0].partitions[0].error_code.value)


OF_A_TRANSACTION: dict[str, Asked] = {
    "AddPartitionsToTxn 3": lambda client, identity: add_partition(client, TX, identity, "t"),
    "AddPartitionsToTxn 4": added_by_many,
    "AddOffsetsToTxn": group_added,
    "TxnOffsetCommit 3": lambda client, identity: offset_sent(client, identity, 0, version=3),
    "TxnOffsetCommit 5": lambda client, identity: offset_sent(client, identity, 0),
    "EndTxn 3": lambda client, identity: end(client, TX, identity, committed=True),
    "EndTxn 5": ended_and_renewed,
}
OF_ANY_GATEWAY: dict[str, Asked] = {
    "Produce": produced,
    "InitProducerId": initialised,
    "OffsetCommit": offset_committed,
}


async def opened(client: RawClient) -> ProducerIdAndEpoch:
    """Open a transaction with one record and a group."""
    identity = await init_producer(client, TX)
    assert await add_partition(client, TX, identity, "t") == 0
    assert await group_added(client, identity) == 0
    assert await produced(client, identity) == 0
    return identity


def place(served: Gateway, *, here: bool) -> None:
    """Have a gateway place every client at itself, or at the other one."""
    placement = served.broker.placement
    chosen = placement.own_id if here else 1 - placement.own_id
    placement.node_of = lambda *_: chosen  # type: ignore[method-assign]


Case = Callable[[Gateway, RawClient, RawClient], Awaitable[None]]


def at_two(folder: Path, case: Case) -> None:
    """Run a case at a gateway whose other one, the second client's, has another log of the same store."""

    async def run() -> None:
        async with gateway(folder / "store", peers=(OTHER,)) as served:
            served.broker.store.create_topic("t")
            async with (
                gateway(folder / "same", peers=(OTHER,)) as other,
                raw_client(served) as first,
                raw_client(other) as second,
            ):
                place(served, here=False)
                place(other, here=True)
                await case(served, first, second)

    (folder / "same").symlink_to(folder / "store", target_is_directory=True)
    asyncio.run(run())


@pytest.mark.parametrize("name", OF_A_TRANSACTION)
def test_what_is_held_nowhere_or_by_another_is_referred(tmp_path: Path, name: str) -> None:
    ask = OF_A_TRANSACTION[name]

    async def case(_: Gateway, first: RawClient, second: RawClient) -> None:
        assert await ask(first, await init_producer(second, TX)) == ErrorCode.NOT_COORDINATOR
        identity = await opened(second)
        assert await ask(first, identity) == ErrorCode.NOT_COORDINATOR
        assert await ask(second, identity) == 0

    at_two(tmp_path, case)


@pytest.mark.parametrize("name", OF_A_TRANSACTION)
def test_what_is_held_here_is_served_here(tmp_path: Path, name: str) -> None:
    async def case(served: Gateway, first: RawClient, _: RawClient) -> None:
        place(served, here=True)
        identity = await opened(first)
        place(served, here=False)
        assert await OF_A_TRANSACTION[name](first, identity) == 0

    at_two(tmp_path, case)


@pytest.mark.parametrize("name", OF_ANY_GATEWAY)
def test_everything_else_is_served_by_any_gateway(tmp_path: Path, name: str) -> None:
    async def case(served: Gateway, first: RawClient, _: RawClient) -> None:
        place(served, here=True)
        identity = await opened(first)
        if name == "Produce":
            assert await end(first, TX, identity, committed=False) == 0
            assert await add_partition(first, TX, identity, "t") == 0
        place(served, here=False)
        assert await OF_ANY_GATEWAY[name](first, identity) == 0

    at_two(tmp_path, case)


def test_a_transaction_whose_records_another_gateway_has_is_committed_there(tmp_path: Path) -> None:
    """A Java client produces to its new leader, and asks its old coordinator to commit."""

    async def case(_: Gateway, first: RawClient, second: RawClient) -> None:
        identity = await opened(second)
        assert await ended_and_renewed(first, identity) == ErrorCode.NOT_COORDINATOR
        assert await ended_and_renewed(second, identity) == 0
        assert await read_all(first, "t") == [b"1"]

    at_two(tmp_path, case)


@pytest.mark.parametrize("version", [9, 12])
def test_a_batch_of_a_transaction_that_another_gateway_has_is_sent_on(tmp_path: Path, version: int) -> None:
    """A client of version 1 comes to its new coordinator at once, and to its new leader when its metadata is old."""

    async def sent(client: RawClient, identity: ProducerIdAndEpoch, sequence: int) -> int:
        records = batch([b"%d" % sequence], identity, sequence, transactional=True)
        answer = await client.call(0, version, **produce_members("t", 0, records, transactional_id=TX))
        return int(answer.responses[0].partition_responses[0].error_code.value)

    async def case(served: Gateway, first: RawClient, second: RawClient) -> None:
        identity = await opened(second)
        assert await sent(first, identity, 1) == NOT_LEADER_OR_FOLLOWER
        assert await sent(second, identity, 1) == 0
        assert await end(second, TX, identity, committed=True) == 0
        assert await read_all(first, "t") == [b"1", b"1"]
        # What this gateway has refused does not stay: the client may be placed here the next time.
        place(served, here=True)
        assert await add_partition(first, TX, identity, "t") == 0
        assert await sent(first, identity, 2) == 0
        assert await end(first, TX, identity, committed=True) == 0
        assert await read_all(first, "t") == [b"1", b"1", b"2"]

    at_two(tmp_path, case)


def test_a_batch_is_sent_on_for_a_bounded_time_and_then_its_transaction_is_aborted(tmp_path: Path) -> None:
    async def case(served: Gateway, first: RawClient, second: RawClient) -> None:
        identity = await opened(second)
        clock = ManualClock()
        served.broker.referrals = Referrals(clock, served.broker.placement)
        codes = []
        for _ in range(6):
            codes.append(await produced(first, identity))
            clock.sleep(1.0)
        assert codes == [NOT_LEADER_OR_FOLLOWER] * 4 + [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2

    at_two(tmp_path, case)


def test_gateways_that_disagree_serve_a_client_soon(tmp_path: Path) -> None:
    """Each places it at the other one; it is referred for as long as a new client may need to find its way."""

    async def case(served: Gateway, first: RawClient, second: RawClient) -> None:
        identity = await init_producer(second, TX)
        clock = ManualClock()
        served.broker.referrals = Referrals(clock, served.broker.placement)
        codes = []
        for _ in range(8):
            codes.append(await add_partition(first, TX, identity, "t"))
            clock.sleep(1.0)
        assert codes == [ErrorCode.NOT_COORDINATOR] * 4 + [0] * 4
        assert await produced(first, identity) == 0
        assert await end(first, TX, identity, committed=True) == 0

    at_two(tmp_path, case)


def test_a_transactional_id_is_referred_twice_a_minute_for_two_seconds() -> None:
    clock = ManualClock()
    placement = Placement(HERE, (HERE, OTHER))
    client_id = next(name for name in map(str, range(100)) if placement.node_of("", name) != placement.own_id)
    referrals = Referrals(clock, placement)
    referred_s = []
    for second in range(130):
        if referrals.other_gateway(TX, "", client_id) is not None:
            referred_s.append(second)
        clock.sleep(1.0)
    assert referred_s == [0, 1, 2, 3, 60, 61, 62, 63, 120, 121, 122, 123]
    assert referrals.other_gateway("another", "", client_id) == OTHER


def test_a_gateway_that_comes_and_goes_lets_clients_be_referred_again() -> None:
    """As in a rolling restart; and not without end where it does so all the time."""
    clock = ManualClock()
    placement = Placement(HERE, (HERE, OTHER))
    other_id = 1 - placement.own_id
    client_id = next(name for name in map(str, range(100)) if placement.node_of("", name) == other_id)
    referrals = Referrals(clock, placement)
    referred = []
    for turn in range(8):
        placement._is_seen = turn % 2 == 0
        clock.sleep(3.0)
        referred.append(referrals.other_gateway(TX, "", client_id) == OTHER)
    assert referred == [True] * 4 + [False] * 4


def test_a_client_that_is_placed_here_is_served() -> None:
    placement = Placement(HERE, (HERE, OTHER))
    client_id = next(name for name in map(str, range(100)) if placement.node_of("", name) == placement.own_id)
    assert Referrals(ManualClock(), placement).other_gateway(TX, "", client_id) is None
