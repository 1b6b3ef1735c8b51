"""Joins that wait for what others are to give back, and how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from sparktxn._programs.gateway.handlers import groupmembership
from sparktxn.errors import ErrorCode
from sparktxn.store import Store
from tests.gateway.gateways import RawClient, gateway, raw_client
from tests.gateway.groupclients import GROUP, LedMember, Member, two_gateways
from tests.gateway.test_groups import ALL, HALVES, asked_to_join

SOON_S = 8
"""Less than a gateway that ends waits for its clients."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no member that has partitions wait for more."""
    monkeypatch.setattr(groupmembership, "_WAIT_S_MAX", 0.0)


@pytest.mark.usefixtures("impatient")
def test_a_member_that_would_have_nothing_waits_until_another_one_gives_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            busy, other = Member(first), Member(second)
            assert await busy.joined() == ALL
            joining = asyncio.create_task(other.joined())
            await asked_to_join(busy)
            half = await busy.joined()
            assert half in HALVES
            assert sorted(await joining + half) == ALL

    asyncio.run(run())


@pytest.mark.usefixtures("impatient")
def test_a_member_that_has_something_goes_on_with_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path, ("t", 4), ("u", 4)) as (first, second):
            busy, other = Member(first), Member(second)
            busy.topics = ("u",)
            await busy.joined()
            assert await other.joined() == ALL
            other.topics = ("t", "u")
            assert await other.joined() == ALL
            await asked_to_join(busy)

    asyncio.run(run())


def test_a_wait_ends_with_the_time_for_a_rebalance(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            busy, other = Member(first), Member(second)
            other.rebalance_ms = 300
            assert await busy.joined() == ALL
            assert await other.joined() == []
            await asked_to_join(busy)

    asyncio.run(run())


def test_a_member_that_waits_lives_longer_than_a_session(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            busy, other = Member(first), Member(second)
            other.session_ms, other.rebalance_ms = 500, 30_000
            assert await busy.joined() == ALL
            joining = asyncio.create_task(other.joined())
            await asked_to_join(busy)
            for _ in range(15):
                await asyncio.sleep(0.1)
                await busy.heartbeat()
            half = await busy.joined()
            assert half in HALVES
            assert sorted(await joining + half) == ALL

    asyncio.run(run())


def test_a_member_whose_group_changes_before_it_reads_joins_again_and_all_have_one_generation(tmp_path: Path) -> None:
    """As at a broker (KIP-848, a classic member whose epoch is behind): found by kafka-python's test of two members."""

    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            one, other = Member(first), Member(second)
            assert await one.join() == 0
            joining = asyncio.create_task(other.joined())
            await joined_as_well(first, 2)
            assert await one.sync() == ErrorCode.REBALANCE_IN_PROGRESS
            given = await one.joined()
            assert sorted(given + await joining) == ALL
            assert (await one.heartbeat(), await other.heartbeat()) == (0, 0)
            assert one.generation == other.generation

    asyncio.run(run())


@pytest.mark.parametrize("count", [3, 6])
def test_members_that_join_at_once_come_to_one_generation(tmp_path: Path, count: int) -> None:
    given: dict[int, list[int]] = {}

    async def live(number: int, member: Member) -> None:
        while True:
            given[number] = await member.joined()
            while await member.heartbeat() == 0:
                await asyncio.sleep(0.02)

    async def run() -> None:
        with Store.open(str(tmp_path), create=True) as store:
            store.create_topic("t", 4)
        async with gateway(tmp_path) as served, AsyncExitStack() as clients:
            members = [Member(await clients.enter_async_context(raw_client(served))) for _ in range(count)]
            lives = [asyncio.create_task(live(*numbered)) for numbered in enumerate(members)]
            async with asyncio.timeout(60):
                while sorted(place for places in given.values() for place in places) != ALL or len(given) < count:
                    await asyncio.sleep(0.02)
                while len({member.generation for member in members}) > 1:
                    await asyncio.sleep(0.02)
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)

    asyncio.run(run())


def test_what_a_cooperative_member_reads_is_not_given_away_before_it_joins_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            one, other = (Member(client, strategy="cooperative-sticky") for client in (first, second))
            assert await one.joined() == ALL
            assert await one.join({"t": ALL}) == 0
            joining = asyncio.create_task(other.joined())
            await joined_as_well(first, 2)
            given_now = await one.sync()
            assert isinstance(given_now, dict)
            kept = given_now["t"]
            assert len(kept) == 2
            given = next(number for number in ALL if number not in kept)
            assert await one.commit(given, 7) == 0
            await asked_to_join(one)
            assert not joining.done()
            assert await one.joined({"t": kept}) == kept
            assert sorted(await joining + kept) == ALL

    asyncio.run(run())


async def joined_as_well(client: RawClient, count: int) -> None:
    """Return once the group has so many members."""
    while True:
        (group,) = (await client.call(15, 5, groups=[GROUP], include_authorized_operations=False)).groups
        if len(group.members) == count:
            return
        await asyncio.sleep(0.02)


@asynccontextmanager
async def ending_gateway(folder: Path) -> AsyncIterator[tuple[AsyncExitStack, RawClient, RawClient]]:
    """Serve two clients at a gateway, which the stack ends, and they stay."""
    with Store.open(str(folder / "store"), create=True) as store:
        store.create_topic("t", 4)
    async with AsyncExitStack() as clients, AsyncExitStack() as serving:
        served = await serving.enter_async_context(gateway(folder / "store"))
        first = await clients.enter_async_context(raw_client(served))
        yield serving, first, await clients.enter_async_context(raw_client(served))


def test_a_gateway_that_ends_answers_a_join_that_waits(tmp_path: Path) -> None:
    async def run() -> None:
        async with ending_gateway(tmp_path) as (serving, first, second):
            busy, other = Member(first), Member(second)
            assert await busy.joined() == ALL
            joining = asyncio.create_task(other.join())
            await asked_to_join(busy)
            async with asyncio.timeout(SOON_S):
                await serving.aclose()
                assert await joining == 0

    asyncio.run(run())


def test_a_gateway_that_ends_sends_members_that_wait_for_each_other_to_another(tmp_path: Path) -> None:
    async def run() -> None:
        async with ending_gateway(tmp_path) as (serving, first, second):
            busy, other = LedMember(first, b"a"), LedMember(second, b"b")
            await busy.works()
            joining = asyncio.create_task(other.join())
            await asked_to_join(busy)
            async with asyncio.timeout(SOON_S):
                await serving.aclose()
                assert await joining == ErrorCode.NOT_COORDINATOR

    asyncio.run(run())
