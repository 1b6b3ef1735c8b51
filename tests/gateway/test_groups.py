"""Groups of Kafka's classic protocol: any gateway serves any member, by what the log says."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sparktxn import Consumer
from sparktxn.errors import ErrorCode
from tests.gateway.gateways import RawClient, gateway, raw_client
from tests.gateway.groupclients import GROUP, Member, committed, two_gateways
from tests.gateway.requests import init_producer

MEMBER_ID_REQUIRED = 79
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
COOPERATIVE = "cooperative-sticky"
ALL = [0, 1, 2, 3]
HALVES = ([0, 1], [2, 3])


async def asked_to_join(member: Member) -> None:
    """Send heartbeats until one is answered so."""
    assert await first_code(member) == REBALANCE


async def first_code(member: Member) -> int:
    """Send heartbeats until one is refused; return its code. A gateway goes by a state that may be 0.1 s old."""
    while (code := await member.heartbeat()) == 0:
        await asyncio.sleep(0.01)
    return code


def test_a_member_joins_under_an_id_that_it_is_given(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (client, other):
            member = Member(client)
            answer = await member.ask_to_join()
            assert answer.error_code.value == MEMBER_ID_REQUIRED
            assert answer.member_id.startswith("raw-")
            assert await member.joined() == ALL
            assert await member.heartbeat() == 0
            member.client = other  # no rebalance: the log says all that this gateway has to know
            assert await member.heartbeat() == 0
            assert await member.leave() == 0
            assert await member.leave() == ErrorCode.UNKNOWN_MEMBER_ID
            assert await member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    asyncio.run(run())


def test_old_clients_join_without_being_asked_for_an_id(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (client, _):
            for version in (0, 1, 3):
                member = Member(client)
                assert await member.join(version=version) == 0
                assert isinstance(await member.sync(), dict)
                assert await member.leave() == 0

    asyncio.run(run())


def test_eager_members_at_two_gateways_share_the_partitions(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            one, other = Member(first), Member(second)
            assert await one.joined() == ALL
            joining = asyncio.create_task(other.joined())
            await asked_to_join(one)
            assert not joining.done()
            half = await one.joined()
            assert half in HALVES
            assert sorted(await joining + half) == ALL
            assert (await one.heartbeat(), await other.heartbeat()) == (0, 0)
            assert await other.leave() == 0
            await asked_to_join(one)
            assert await one.joined() == ALL

    asyncio.run(run())


def test_a_cooperative_member_gives_back_no_more_than_it_is_asked_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            one, other = Member(first, strategy=COOPERATIVE), Member(second, strategy=COOPERATIVE)
            assert await one.joined() == ALL
            joining = asyncio.create_task(other.joined())
            await asked_to_join(one)
            kept = await one.joined({"t": ALL})
            assert len(kept) == 2
            # What it still reads it may commit, and the other one does not get it before it is given back.
            given = next(number for number in range(4) if number not in kept)
            assert await one.commit(given, 7) == 0
            assert not joining.done()
            await asked_to_join(one)
            assert await one.joined({"t": kept}) == kept
            assert sorted(await joining + kept) == ALL
            assert await one.heartbeat() == 0
            assert await one.commit(given, 8) == ErrorCode.ILLEGAL_GENERATION
            assert await other.commit(given, 9) == 0

    asyncio.run(run())


def test_requests_of_the_wrong_member_or_generation_are_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (client, other):
            member = Member(client)
            assert await member.joined() == ALL
            assert await member.commit(0, 5) == 0
            for told in (client, other):
                stranger = Member(told)
                stranger.member_id, stranger.generation = "raw-unknown", member.generation
                assert await stranger.join() == ErrorCode.UNKNOWN_MEMBER_ID
                assert await stranger.sync() == ErrorCode.UNKNOWN_MEMBER_ID
                assert await stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
                assert await stranger.commit(0, 6) == ErrorCode.UNKNOWN_MEMBER_ID
                none = Member(told)
                assert await none.commit(0, 6) == ErrorCode.UNKNOWN_MEMBER_ID
                wrong = Member(told)
                wrong.member_id, wrong.generation = member.member_id, member.generation + 1
                assert await wrong.sync() == ErrorCode.ILLEGAL_GENERATION
                assert await wrong.heartbeat() == ErrorCode.ILLEGAL_GENERATION
                assert await wrong.commit(0, 6) == ErrorCode.ILLEGAL_GENERATION
            assert await committed(other, 0) == (5, "", 0)

    asyncio.run(run())


def test_a_commit_after_leaving_is_that_of_an_unknown_member(tmp_path: Path) -> None:
    """Librdkafka's, once `max.poll.interval.ms` is over: it names its generation, and itself no more."""

    async def run() -> None:
        async with two_gateways(tmp_path) as (client, _):
            member = Member(client)
            assert await member.joined() == ALL
            assert await member.leave() == 0
            member.member_id = ""
            assert await member.commit(0, 6) == ErrorCode.UNKNOWN_MEMBER_ID
            assert await member.commit(9, 6) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await committed(client, 0) == (-1, "", 0)

    asyncio.run(run())


def test_a_static_member_that_comes_back_takes_its_place_and_the_earlier_one_is_fenced(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            earlier, again = Member(first, instance_id="i"), Member(second, instance_id="i")
            bystander = Member(second)
            assert await earlier.joined() == ALL
            joining = asyncio.create_task(bystander.joined())
            await asked_to_join(earlier)
            held = await earlier.joined()
            await joining
            assert await again.joined() == held
            assert again.member_id != earlier.member_id
            assert await bystander.heartbeat() == 0
            assert await first_code(earlier) == ErrorCode.FENCED_INSTANCE_ID
            assert await earlier.commit(held[0], 1) == ErrorCode.FENCED_INSTANCE_ID
            assert await earlier.join() == ErrorCode.FENCED_INSTANCE_ID
            assert await earlier.leave() == ErrorCode.FENCED_INSTANCE_ID
            again.member_id = ""  # as an administrator names it
            assert await again.leave() == 0

    asyncio.run(run())


def test_a_silent_member_expires_and_the_others_get_its_partitions(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            silent, other = Member(first), Member(second)
            silent.session_ms = other.session_ms = 900
            assert await silent.joined() == ALL
            joining = asyncio.create_task(other.join())
            await asked_to_join(silent)
            assert await silent.joined() in HALVES
            await joining
            assert isinstance(await other.sync(), dict)
            clock = asyncio.get_running_loop().time
            began_s = clock()
            await asked_to_join(other)
            assert clock() - began_s > 0.8
            assert await other.joined() == ALL
            assert await first_code(silent) == ErrorCode.UNKNOWN_MEMBER_ID

    asyncio.run(run())


def test_a_member_that_is_heard_at_another_gateway_does_not_expire(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            member = Member(first)
            member.session_ms = 900
            assert await member.joined() == ALL
            member.client = second
            clock = asyncio.get_running_loop().time
            began_s = clock()
            while clock() < began_s + 3:
                assert await member.heartbeat() == 0
                await asyncio.sleep(0.1)

    asyncio.run(run())


def test_a_consumer_of_the_store_and_a_client_of_a_gateway_share_a_group(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (client, _):
            member = Member(client)
            assert await member.joined() == ALL
            consumer = Consumer({"bootstrap.servers": str(tmp_path / "same"), "group.id": GROUP})
            try:
                consumer.subscribe(["t"])
                while await member.heartbeat() == 0:
                    await asyncio.to_thread(consumer.poll, 0.05)
                mine = await member.joined()
                assert len(mine) == 2
                while not consumer.assignment():
                    await asyncio.to_thread(consumer.poll, 0.05)
                assert sorted([place.partition for place in consumer.assignment()] + mine) == ALL
            finally:
                await asyncio.to_thread(consumer.close)
            await asked_to_join(member)

    asyncio.run(run())


def test_a_session_of_no_length_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (client, _):
            member = Member(client)
            member.session_ms = 0
            assert await member.join() == ErrorCode.INVALID_SESSION_TIMEOUT

    asyncio.run(run())


def test_offsets_come_back_with_their_metadata_at_every_gateway(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path, ("t", 4), ("u", 1)) as (first, second):
            alone = Member(first)
            assert await committed(second, 0) == (-1, "", 0)
            assert await alone.commit(1, 12, "mine") == 0
            assert await alone.commit(0, 3, topic="u") == 0
            assert await committed(second, 1) == (12, "mine", 0)
            assert await alone.commit(9, 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await alone.commit(1, 1, "m" * 5000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
            everything = await second.call(9, 7, group_id=GROUP, topics=None, require_stable=True)
            assert [topic.name for topic in everything.topics] == ["t", "u"]
            groups = [
                {"group_id": GROUP, "topics": None},
                {"group_id": "none", "topics": [{"name": "t", "partition_indexes": [1]}]},
            ]
            both = await second.call(9, 8, groups=groups, require_stable=False)
            assert [len(group.topics) for group in both.groups] == [2, 1]
            assert both.groups[1].topics[0].partitions[0].committed_offset == -1

    asyncio.run(run())


def test_an_offset_in_an_open_transaction_is_not_stable_and_its_member_is_checked(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            member = Member(first)
            assert await member.joined() == ALL
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
            # A client from before KIP-447 names no member: the one that holds the partition speaks for it.
            assert await send(4, generation_id=-1, member_id="") == 0
            assert await send(5) == 0
            assert await committed(first, 0, stable=True) == (-1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
            assert await committed(first, 0) == (-1, "", 0)
            ended = await second.call(26, 3, transactional_id="tx", **named, committed=True)
            assert ended.error_code.value == 0
            assert await committed(first, 0, stable=True) == (5, "m", 0)

    asyncio.run(run())


def test_a_join_that_waits_holds_up_no_other_connection(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (_, client):
            holder = Member(client)
            assert await holder.joined() == ALL
        async with gateway(tmp_path / "store", workers=1) as served, raw_client(served) as waits:
            joining = asyncio.create_task(Member(waits).joined())
            async with raw_client(served) as another:
                for _ in range(20):
                    await committed(another, 0)
                assert not joining.done()
                holder = await _moved(holder, another)
            assert await joining in HALVES

    asyncio.run(run())


async def _moved(member: Member, client: RawClient) -> Member:
    """Have a member go on at another gateway, and give back what it is asked for."""
    member.client = client
    await asked_to_join(member)
    assert await member.joined() in HALVES
    return member
