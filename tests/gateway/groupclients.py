"""Members of groups, as a test sends their requests one by one."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from kio.serial import entity_reader, entity_writer

from sparktxn.errors import ErrorCode
from sparktxn.store import Store
from tests.gateway.gateways import RawClient, gateway, raw_client

GROUP = "g"

Owned = Mapping[str, Iterable[int]]


@asynccontextmanager
async def two_gateways(folder: Path, *topics: tuple[str, int]) -> AsyncIterator[tuple[RawClient, RawClient]]:
    """Serve a store at two gateways, with a client at each, until the block ends.

    The second one has another log of the store: what the first one knows, it reads from there.
    """
    uri = folder / "store"
    with Store.open(str(uri), create=True) as store:
        for name, count in topics or (("t", 4),):
            store.create_topic(name, count)
    (folder / "same").symlink_to(uri, target_is_directory=True)
    async with (
        gateway(uri) as one,
        gateway(folder / "same") as other,
        raw_client(one) as first,
        raw_client(other) as second,
    ):
        yield first, second


def subscription(topics: Iterable[str], owned: Owned | None = None, version: int = 1) -> bytes:
    """Return what a consumer says of itself when it joins."""
    schema: Any = import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")
    members: dict[str, Any] = {"topics": tuple(topics), "user_data": None}
    if version > 0:
        members["owned_partitions"] = tuple(
            schema.TopicPartition(topic=topic, partitions=tuple(numbers)) for topic, numbers in (owned or {}).items()
        )
    buffer = io.BytesIO()
    buffer.write(version.to_bytes(2))
    entity_writer(schema.ConsumerProtocolSubscription)(buffer, schema.ConsumerProtocolSubscription(**members))
    return buffer.getvalue()


def assigned(data: bytes) -> dict[str, list[int]]:
    """Return the partitions that the answer to SyncGroup names."""
    version = int.from_bytes(data[:2])
    schema: Any = import_module(f"kio.schema.consumer_protocol_assignment.v{version}.data")
    found, _ = entity_reader(schema.ConsumerProtocolAssignment)(data, 2)
    return {each.topic: list(each.partitions) for each in found.assigned_partitions}


class Member:
    """One member, with its newest id and generation."""

    def __init__(self, client: RawClient, *, strategy: str = "range", instance_id: str | None = None) -> None:
        self.client = client
        self.strategies = (strategy,)
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.session_ms = 30_000
        self.rebalance_ms: int | None = None
        self.topics: tuple[str, ...] = ("t",)

    @property
    def named(self) -> dict[str, Any]:
        """What each request names of it."""
        named = {"group_id": GROUP, "generation_id": self.generation, "member_id": self.member_id}
        return {**named, "group_instance_id": self.instance_id}

    async def join(self, owned: Owned | None = None, version: int = 5) -> int:
        """Join, with the id that is asked for; return the code."""
        answer = await self.ask_to_join(owned, version)
        if answer.error_code.value == 79:
            self.member_id = answer.member_id
            answer = await self.ask_to_join(owned, version)
        if not answer.error_code.value:
            assert answer.leader == ""
            assert not answer.members
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return int(answer.error_code.value)

    async def ask_to_join(self, owned: Owned | None = None, version: int = 5, protocol_type: str = "consumer") -> Any:
        """Send one request to join; return its answer."""
        metadata = subscription(self.topics, owned)
        return await self.client.call(
            11,
            version,
            group_id=GROUP,
            session_timeout=self.session_ms,
            rebalance_timeout=self.rebalance_ms or self.session_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=protocol_type,
            protocols=[{"name": name, "metadata": metadata} for name in self.strategies],
            reason=None,
        )

    async def sync(self) -> dict[str, list[int]] | int:
        """Return what the member is to read, or a code."""
        answer = await self.client.call(14, 3, **self.named, assignments=[])
        return int(answer.error_code.value) or assigned(answer.assignment)

    async def joined(self, owned: Owned | None = None) -> list[int]:
        """Join, again if the group changes meanwhile; return the partitions of topic `t` that the member is to read."""
        found: dict[str, list[int]] | int = ErrorCode.REBALANCE_IN_PROGRESS
        while found == ErrorCode.REBALANCE_IN_PROGRESS:
            assert await self.join(owned) == 0
            found = await self.sync()
        assert isinstance(found, dict), found
        return found.get("t", [])

    async def heartbeat(self) -> int:
        """Return the code."""
        return int((await self.client.call(12, 3, **self.named)).error_code.value)

    async def leave(self) -> int:
        """Return the code."""
        members = [{"member_id": self.member_id, "group_instance_id": self.instance_id}]
        answer = await self.client.call(13, 3, group_id=GROUP, members=members)
        return int(answer.members[0].error_code.value)

    async def commit(self, partition: int, offset: int, metadata: str | None = None, topic: str = "t") -> int:
        """Return the code."""
        part = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": 0}
        members = {**self.named, "generation_id_or_member_epoch": self.generation}
        topics = [{"name": topic, "partitions": [{**part, "committed_metadata": metadata}]}]
        answer = await self.client.call(8, 8, **members, topics=topics)
        return int(answer.topics[0].partitions[0].error_code.value)


class LedMember(Member):
    """A member of a group whose members divide their work themselves: its bytes are its own."""

    def __init__(self, client: RawClient, data: bytes, *, protocol_type: str = "connect") -> None:
        super().__init__(client, strategy="of-its-own")
        self.data = data
        self.protocol_type = protocol_type
        self.members: dict[str, bytes] = {}
        self.is_leader = False

    async def join(self, owned: Owned | None = None, version: int = 5) -> int:
        """Join, with the id that is asked for; return the code once all have joined."""
        answer = await self._ask(version)
        if answer.error_code.value == 79:
            self.member_id = answer.member_id
            answer = await self._ask(version)
        if not answer.error_code.value:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.is_leader = answer.leader == answer.member_id
            self.members = {member.member_id: member.metadata for member in answer.members}
            assert bool(self.members) == self.is_leader
        return int(answer.error_code.value)

    async def _ask(self, version: int) -> Any:
        return await self.client.call(
            11,
            version,
            group_id=GROUP,
            session_timeout=self.session_ms,
            rebalance_timeout=self.rebalance_ms or self.session_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[{"name": name, "metadata": self.data} for name in self.strategies],
            reason=None,
        )

    async def synced(self) -> bytes | int:
        """Send, as the leader, to each member what it has sent, twice; return what came, or a code."""
        assignments = [{"member_id": name, "assignment": 2 * data} for name, data in self.members.items()]
        answer = await self.client.call(14, 3, **self.named, assignments=assignments)
        return int(answer.error_code.value) or bytes(answer.assignment)

    async def works(self) -> None:
        """Join, and get what the leader has assigned."""
        assert await self.join() == 0
        assert await self.synced() == 2 * self.data


async def committed(
    client: RawClient, partition: int, *, stable: bool = False, topic: str = "t"
) -> tuple[int, str, int]:
    """Return (offset, metadata, code) of the group's offset for a partition."""
    topics = [{"name": topic, "partition_indexes": [partition]}]
    answer = await client.call(9, 7, group_id=GROUP, topics=topics, require_stable=stable)
    part = answer.topics[0].partitions[0]
    return part.committed_offset, part.metadata, part.error_code.value
