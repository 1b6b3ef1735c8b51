"""Groups of Kafka's newer protocol (KIP-848), at any gateway."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

from sparktxn.errors import ErrorCode
from tests.gateway.gateways import RawClient
from tests.gateway.groupclients import GROUP, LedMember, Member, committed, two_gateways

INVALID_REGULAR_EXPRESSION = 128
ALL = [0, 1, 2, 3]


class NewMember(Member):
    """One member, which reads what it is given at once, and says so in its next heartbeat."""

    def __init__(self, client: RawClient, member_id: str, *, instance_id: str | None = None) -> None:
        super().__init__(client, instance_id=instance_id)
        self.member_id = member_id
        self.generation = 0
        self.owned: dict[uuid.UUID, list[int]] = {}
        self.is_told = False

    async def beat(self, version: int = 1, **given: Any) -> int:
        """Send a heartbeat; return the code."""
        members = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "member_epoch": self.generation,
            "instance_id": self.instance_id,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": self._owned(),
        }
        answer = await self.client.call(68, version, **{**members, **given})
        self.is_told = answer.assignment is not None
        if not answer.error_code.value:
            self.member_id, self.generation = answer.member_id, answer.member_epoch
            if self.is_told:
                told = answer.assignment.topic_partitions
                self.owned = {each.topic_id: list(each.partitions) for each in told}
        return int(answer.error_code.value)

    def _owned(self) -> list[dict[str, Any]]:
        return [{"topic_id": topic, "partitions": numbers} for topic, numbers in self.owned.items()]

    async def begin(self, **given: Any) -> int:
        """Join; return the code."""
        self.generation, self.owned = 0, {}
        given = {"rebalance_timeout": 30_000, "subscribed_topic_names": ["t"], **given}
        return await self.beat(**given)

    @property
    def partitions(self) -> list[int]:
        """What it reads of the one topic."""
        assert len(self.owned) <= 1
        return next(iter(self.owned.values()), [])

    async def until(self, count: int) -> None:
        """Send heartbeats until it reads so many partitions."""
        async with asyncio.timeout(30):
            while len(self.partitions) != count:
                assert await self.beat() == 0
                await asyncio.sleep(0.01)


def test_members_at_two_gateways_share_the_partitions(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            one, other = NewMember(first, "one"), NewMember(second, "other")
            assert await one.begin() == 0
            assert one.partitions == ALL
            assert (await one.beat(), one.is_told) == (0, False)
            assert await other.begin() == 0
            assert other.partitions == []
            await one.until(2)
            assert await one.beat() == 0  # it says that it reads the others no more
            await other.until(2)
            assert sorted(one.partitions + other.partitions) == ALL
            held = one.partitions
            assert await one.commit(held[0], 3) == 0
            assert await one.commit(other.partitions[0], 3) == ErrorCode.ILLEGAL_GENERATION  # as version 8 says it
            assert await committed(second, held[0]) == (3, "", 0)
            one.client = second  # this gateway has answered it nothing yet
            assert (await one.beat(), one.is_told, one.partitions) == (0, True, held)
            assert await other.beat(member_epoch=-1, topic_partitions=[]) == 0
            await one.until(4)

    asyncio.run(run())


def test_requests_of_the_wrong_member_or_epoch_are_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            member = NewMember(first, "one")
            assert await member.begin(rebalance_timeout=-1) == ErrorCode.INVALID_REQUEST
            assert await member.begin(subscribed_topic_names=None) == ErrorCode.INVALID_REQUEST
            assert await member.begin(server_assignor="none") == ErrorCode.UNSUPPORTED_ASSIGNOR
            assert await member.begin(subscribed_topic_regex="(") == INVALID_REGULAR_EXPRESSION
            assert await member.begin() == 0
            for client in (first, second):
                wrong = NewMember(client, "one")
                wrong.generation = member.generation + 1
                assert await wrong.beat() == ErrorCode.FENCED_MEMBER_EPOCH
                wrong.member_id = "unknown"
                assert await wrong.beat() == ErrorCode.UNKNOWN_MEMBER_ID
                assert await wrong.beat(member_epoch=-1) == ErrorCode.UNKNOWN_MEMBER_ID

    asyncio.run(run())


def test_a_static_member_that_is_away_gets_its_place_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            member, again = NewMember(first, "one", instance_id="i"), NewMember(second, "again", instance_id="i")
            assert await member.begin() == 0
            assert await again.begin() == ErrorCode.UNRELEASED_INSTANCE_ID
            assert await member.beat(member_epoch=-2, topic_partitions=[]) == 0
            assert await again.begin() == 0
            assert again.partitions == ALL
            while (code := await member.beat(member_epoch=1)) == 0:  # by a state that may be 0.1 s old
                await asyncio.sleep(0.01)
            assert code == ErrorCode.FENCED_INSTANCE_ID

    asyncio.run(run())


def test_a_pattern_is_matched_with_the_topics_that_there_are(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path, ("t", 1), ("t-1", 1), ("other", 1)) as (client, _):
            member = NewMember(client, "one")
            assert await member.begin(subscribed_topic_names=None, subscribed_topic_regex="t.*") == 0
            assert len(member.owned) == 2
            topic = {"name": "t-2", "allow_auto_topic_creation": True}
            await client.call(3, 9, topics=[topic], allow_auto_topic_creation=True, **AUTHORIZED)
            while len(member.owned) < 3:
                assert await member.beat() == 0

    asyncio.run(run())


AUTHORIZED = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}


def test_groups_are_described_with_members_of_both_protocols(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, second):
            member, old = NewMember(first, "one"), Member(second)
            assert await member.begin() == 0
            joining = asyncio.create_task(old.joined())
            await member.until(2)
            assert await member.beat() == 0
            assert len(await joining) == 2
            found = await second.call(69, 0, group_ids=[GROUP, "none"], include_authorized_operations=False)
            group, none = found.groups
            assert (group.error_code.value, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
            by_id = {each.member_id: each for each in group.members}
            assert by_id["one"].assignment.topic_partitions[0].topic_name == "t"
            assert len(by_id["one"].assignment.topic_partitions[0].partitions) == 2
            assert set(by_id) == {"one", old.member_id}
            assert none.error_code.value == ErrorCode.GROUP_ID_NOT_FOUND

    asyncio.run(run())


def test_a_group_that_divides_its_work_itself_takes_no_such_member(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_gateways(tmp_path) as (first, _):
            await LedMember(first, b"led").works()
            assert await NewMember(first, "one").begin() == ErrorCode.GROUP_ID_NOT_FOUND

    asyncio.run(run())
