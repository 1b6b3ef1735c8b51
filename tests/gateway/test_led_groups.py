"""Groups whose members divide their work themselves: at any gateway, in generations that all have joined for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest

from sparktxn._engine.format.commands import JoinGroup, LeaveGroup
from sparktxn.consumer import Consumer
from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode
from sparktxn.store import Store
from sparktxn.store.memberexpiry import members_name, submit_join
from tests.gateway import groupclients
from tests.gateway.gateways import RawClient
from tests.gateway.groupclients import GROUP, LedMember, Member, committed, two_gateways
from tests.gateway.requests import init_producer
from tests.gateway.test_transactions_v2 import offset_sent

INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


async def asked_to_join(member: Member) -> None:
    while (code := await member.heartbeat()) == 0:
        await asyncio.sleep(0.01)
    assert code == REBALANCE


async def is_gone(member: LedMember) -> None:
    """Send heartbeats until the gateway of a member that was taken out has seen it: its state may be 0.1 s old."""
    while (code := await member.heartbeat()) in (0, REBALANCE):
        await asyncio.sleep(0.01)
    assert code == ErrorCode.UNKNOWN_MEMBER_ID


async def both(one: Awaitable[None], other: Awaitable[None]) -> None:
    await asyncio.gather(one, other)


async def two_members(first: RawClient, second: RawClient) -> tuple[LedMember, LedMember]:
    """Return two members of a generation."""
    one, other = LedMember(first, b"one"), LedMember(second, b"other")
    await one.works()
    working = asyncio.create_task(other.works())
    await asked_to_join(one)
    await both(one.works(), working)
    assert one.generation == other.generation
    assert one.is_leader != other.is_leader
    return one, other


async def another(client: RawClient) -> RawClient:
    """Connect once more to the gateway of a client."""
    return RawClient(*await asyncio.open_connection(*client.writer.get_extra_info("peername")))


def test_members_at_two_gateways_get_what_their_leader_assigns(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            one, other = await two_members(first, second)
            assert (await one.heartbeat(), await other.heartbeat()) == (0, 0)
            leader = one if one.is_leader else other
            assert sorted(leader.members.values()) == [b"one", b"other"]
            one.client, other.client = other.client, one.client  # any gateway serves any member
            assert (await one.heartbeat(), await other.heartbeat()) == (0, 0)
            assert await other.leave() == 0
            await asked_to_join(one)
            await one.works()
            assert one.is_leader

    asyncio.run(run())


def test_a_member_that_changes_makes_all_join_again_and_one_that_repeats_itself_does_not(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            one, other = await two_members(first, second)
            leader, follower = (one, other) if one.is_leader else (other, one)
            generation = follower.generation
            await follower.works()
            assert follower.generation == generation
            follower.data = b"changed"
            working = asyncio.create_task(follower.works())
            await asked_to_join(leader)
            assert not working.done()
            await both(leader.works(), working)
            assert follower.generation > generation
            working = asyncio.create_task(leader.works())
            await asked_to_join(follower)
            await both(follower.works(), working)

    asyncio.run(run())


def test_a_member_that_does_not_join_in_time_is_a_member_no_longer(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            slow, other = LedMember(first, b"slow"), LedMember(second, b"other")
            slow.session_ms = 2000
            other.session_ms = 600
            await slow.works()
            working = asyncio.create_task(other.works())
            while not working.done():
                await slow.heartbeat()
                await asyncio.sleep(0.05)
            await working
            assert other.is_leader
            assert list(other.members.values()) == [b"other"]
            await is_gone(slow)

    asyncio.run(run())


def test_a_silent_member_expires_and_the_others_join_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            one, other = LedMember(first, b"one"), LedMember(second, b"other")
            one.session_ms = other.session_ms = 900
            await one.works()
            working = asyncio.create_task(other.works())
            await asked_to_join(one)
            await both(one.works(), working)
            await asked_to_join(other)
            await other.works()
            await is_gone(one)

    asyncio.run(run())


def test_offsets_are_committed_by_members_of_the_generation_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            one, other = await two_members(first, second)
            assert await one.commit(0, 3, "m") == 0
            assert await committed(second, 0) == (3, "m", 0)
            old = one.generation
            working = asyncio.create_task(LedMember(await another(first), b"new").join())
            await asked_to_join(other)
            assert await other.commit(1, 4) == 0  # it has not joined for the next one yet
            assert await asyncio.gather(one.join(), other.join(), working) == [0, 0, 0]
            other.generation = old
            assert await other.commit(1, 5) == ErrorCode.ILLEGAL_GENERATION
            assert await Member(second).commit(1, 5) == ErrorCode.UNKNOWN_MEMBER_ID
            other.member_id = "raw-unknown"
            assert await other.commit(1, 5) == ErrorCode.UNKNOWN_MEMBER_ID
            assert await committed(first, 1) == (4, "", 0)

    asyncio.run(run())


def test_offsets_in_a_transaction_are_those_of_a_member_of_the_generation(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            member = LedMember(first, b"one")
            await member.works()
            identity = await init_producer(second, "tx")
            named = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
            added = await second.call(25, 3, transactional_id="tx", **named, group_id=GROUP)
            assert added.error_code.value == 0

            async def send(offset: int, **changed: object) -> int:
                part = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": 0}
                topics = [{"name": "t", "partitions": [{**part, "committed_metadata": "m"}]}]
                members = {"transactional_id": "tx", **named, **member.named, **changed, "topics": topics}
                answer = await second.call(28, 3, **members)
                return int(answer.topics[0].partitions[0].error_code.value)

            assert await send(4, generation_id=member.generation + 1) == ErrorCode.ILLEGAL_GENERATION
            assert await send(4, member_id="raw-unknown") == ErrorCode.UNKNOWN_MEMBER_ID
            assert await send(5) == 0
            assert await send(6) == 0
            assert await committed(first, 0, stable=True) == (-1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
            assert (await second.call(26, 3, transactional_id="tx", **named, committed=True)).error_code.value == 0
            assert await committed(first, 0, stable=True) == (6, "m", 0)

    asyncio.run(run())


def test_members_that_share_no_protocol_are_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            one = LedMember(first, b"one")
            await one.works()
            assert await LedMember(second, b"x", protocol_type="consumer").join() == INCONSISTENT_GROUP_PROTOCOL
            assert (await Member(second).ask_to_join()).error_code.value == INCONSISTENT_GROUP_PROTOCOL
            other = LedMember(second, b"x")
            other.strategies = ("another",)
            assert await other.join() == INCONSISTENT_GROUP_PROTOCOL
            assert await one.leave() == 0
            divided = Member(second)
            assert await divided.joined() == [0, 1, 2, 3]
            assert await one.join() == ErrorCode.UNKNOWN_MEMBER_ID
            one.member_id = ""
            assert await one.join() == INCONSISTENT_GROUP_PROTOCOL

    asyncio.run(run())


def test_administrators_see_the_members_under_the_name_of_their_group(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            member = LedMember(first, b"one")
            await member.works()
            assert await member.commit(0, 3) == 0
            listed = (await second.call(16, 4, states_filter=[])).groups
            assert [(each.group_id, each.protocol_type, each.group_state) for each in listed] == [
                (GROUP, "connect", "Stable")
            ]
            (group,) = (await second.call(15, 5, groups=[GROUP], include_authorized_operations=False)).groups
            assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "connect", "of-its-own")
            (described,) = group.members
            assert (described.member_id, described.client_id) == (member.member_id, "raw")
            assert (described.member_metadata, described.member_assignment) == (b"one", b"oneone")
            deleted = await second.call(42, 2, groups_names=[GROUP])
            assert deleted.results[0].error_code.value == ErrorCode.NON_EMPTY_GROUP
            assert await member.leave() == 0
            deleted = await second.call(42, 2, groups_names=[GROUP])
            assert deleted.results[0].error_code.value == 0
            assert await committed(second, 0) == (-1, "", 0)

    asyncio.run(run())


def refusal_of(consumer: Consumer) -> tuple[int, str]:
    """Return the error that a consumer of the store gets in place of partitions."""
    for _ in range(100):
        message = consumer.poll(0.1)
        error = None if message is None else message.error()
        if error is not None:
            return error.code(), error.str()
    raise AssertionError("the consumer was not refused")


def test_a_consumer_of_the_store_is_refused_by_a_group_with_a_leader_and_the_other_way(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            one, _ = await two_members(first, second)
            with Consumer({"bootstrap.servers": str(tmp_path / "store"), "group.id": GROUP}) as consumer:
                consumer.subscribe(["t"])
                code, reason = await asyncio.to_thread(refusal_of, consumer)
                assert code == ErrorCode.LOCAL_FATAL
                assert "INCONSISTENT_GROUP_PROTOCOL: group 'g' has members that divide its work themselves" in reason
            assert await one.heartbeat() == 0

    asyncio.run(run())


def join(group_id: str, member_id: str, *, session_ms: int = 45_000) -> JoinGroup:
    return JoinGroup(
        request_id=member_id,
        group_id=group_id,
        member_id=member_id,
        topics=(),
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        assignors=("uniform",),
    )


@pytest.mark.parametrize("names", [("g", members_name("g")), (members_name("g"), "g")])
def test_the_log_decides_which_kind_a_group_has(tmp_path: Path, names: tuple[str, str]) -> None:
    """Each process has joined by what it has read, which is nothing of the other: only one is a member."""
    (tmp_path / "same").symlink_to(tmp_path / "store", target_is_directory=True)
    with Store.open(str(tmp_path / "store"), create=True) as one, Store.open(str(tmp_path / "same")) as other:
        other.log.refresh()
        submit_join(one.log, join(names[0], "first"))
        with pytest.raises(CommandRefused) as refused:
            submit_join(other.log, join(names[1], "second"))
        assert refused.value.error.code() == INCONSISTENT_GROUP_PROTOCOL
        submit_join(other.log, join(names[0], "third"))
        for member_id in ("first", "third"):
            one.log.submit([LeaveGroup(f"leave {member_id}", names[0], member_id)])
        submit_join(other.log, join(names[1], "fourth"))


def is_refused(store: Store, wanted: JoinGroup) -> bool:
    try:
        submit_join(store.log, wanted)
    except CommandRefused as refused:
        return refused.error.code() == INCONSISTENT_GROUP_PROTOCOL
    return False


def test_members_that_are_overdue_are_in_no_ones_way(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store"), create=True) as store:
        submit_join(store.log, join("g", "lost", session_ms=100))
        while is_refused(store, join(members_name("g"), "new")):
            time.sleep(0.05)  # the other may still live, by the clock of the store
        assert store.log.group("g") is None


def test_no_client_uses_the_name_of_the_members_of_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be one of them, or in their way."""
    name = members_name(GROUP)
    monkeypatch.setattr(groupclients, "GROUP", name)

    async def run() -> None:
        async with two_gateways(tmp_path) as (client, _):
            assert await Member(client).join() == INVALID_GROUP_ID
            assert await LedMember(client, b"").join() == INVALID_GROUP_ID
            assert await Member(client).commit(0, 1) == INVALID_GROUP_ID
            heartbeat = {
                "group_id": name,
                "member_id": "m",
                "member_epoch": 0,
                "instance_id": None,
                "rack_id": None,
                "rebalance_timeout": 1_000,
                "subscribed_topic_names": ["t"],
                "subscribed_topic_regex": None,
                "server_assignor": None,
                "topic_partitions": [],
            }
            assert (await client.call(68, 1, **heartbeat)).error_code.value == INVALID_GROUP_ID
            identity = await init_producer(client, "tx")
            named = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
            added = await client.call(25, 3, transactional_id="tx", **named, group_id=name)
            assert added.error_code.value == INVALID_GROUP_ID
            assert await offset_sent(client, identity, 1, group=name) == INVALID_GROUP_ID

    asyncio.run(run())
    with pytest.raises(ConfigurationError, match=r"names that begin with '__members_of\.' are those of members"):
        Consumer({"bootstrap.servers": str(tmp_path / "store"), "group.id": name})
