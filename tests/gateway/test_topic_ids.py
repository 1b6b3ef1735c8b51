"""Topics by the ids that they have on the wire: a topic that is deleted and made again has another one."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from sparktxn._programs.gateway.topiclookup import UNKNOWN_TOPIC_ID, TopicLookup
from sparktxn.admin import AdminClient
from sparktxn.errors import ErrorCode
from sparktxn.store import Store
from tests.gateway.gateways import Gateway, RawClient, at_a_gateway
from tests.gateway.requests import batch, records_of
from tests.gateway.test_transactions import at_two_gateways

STRANGE = uuid.UUID(int=77)
NONE = uuid.UUID(int=0)
MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
FETCHES = range(13, 19)


def made_again(uri: str) -> None:
    """Delete topic t and create its namesake, without a gateway."""
    with AdminClient({"bootstrap.servers": uri}) as admin:
        admin.delete_topics(["t"])["t"].result()
    with Store.open(uri) as store:
        store.create_topic("t", 2)


async def id_of(client: RawClient, name: str = "t") -> uuid.UUID:
    (topic,) = (await described(client, {"name": name, "topic_id": uuid.UUID(int=0)})).topics
    assert topic.error_code.value == 0
    found: uuid.UUID = topic.topic_id
    return found


async def described(client: RawClient, *topics: dict[str, Any]) -> Any:
    return await client.call(
        3, 12, topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )


async def produced(client: RawClient, *topics: tuple[uuid.UUID, int], records: bytes | None = None) -> list[int]:
    data = [
        {"topic_id": topic, "partition_data": [{"index": number, "records": records or batch([b"1"])}]}
        for topic, number in topics
    ]
    answer = await client.call(0, 13, transactional_id=None, acks=-1, timeout=1000, topic_data=data)
    assert [topic.topic_id for topic in answer.responses] == [
        None if topic == uuid.UUID(int=0) else topic for topic, _ in topics
    ]
    return [topic.partition_responses[0].error_code.value for topic in answer.responses]


async def fetched(client: RawClient, *topics: tuple[uuid.UUID, int], version: int = 13, wait_ms: int = 0) -> list[Any]:
    asked = [
        {
            "topic_id": topic,
            "partitions": [
                {
                    "partition": number,
                    "current_leader_epoch": -1,
                    "fetch_offset": 0,
                    "last_fetched_epoch": -1,
                    "log_start_offset": -1,
                    "partition_max_bytes": 1 << 20,
                }
            ],
        }
        for topic, number in topics
    ]
    answer = await client.call(
        1, version, replica_id=-1, max_wait=wait_ms, min_bytes=1, max_bytes=1 << 24, isolation_level=0,
        session_id=0, session_epoch=-1, topics=asked, forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    assert [topic.topic_id for topic in answer.responses] == [topic for topic, _ in topics]
    return [topic.partitions[0] for topic in answer.responses]


async def committed(client: RawClient, *topics: tuple[uuid.UUID, int], offset: int = 5) -> list[int]:
    """Commit an offset of group g for a partition of each topic; returns the codes."""
    asked = [
        {
            "topic_id": topic,
            "partitions": [
                {
                    "partition_index": number,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "m",
                }
            ],
        }
        for topic, number in topics
    ]
    answer = await client.call(
        8, 10, group_id="g", generation_id_or_member_epoch=-1, member_id="", group_instance_id=None, topics=asked
    )
    assert [topic.topic_id for topic in answer.topics] == [None if topic == NONE else topic for topic, _ in topics]
    return [topic.partitions[0].error_code.value for topic in answer.topics]


async def offsets_of(client: RawClient, *topics: tuple[uuid.UUID, int]) -> list[tuple[Any, int, int, int]]:
    """Each topic's id, partition, offset of group g and code; without topics, all that the group has."""
    asked = [{"topic_id": topic, "partition_indexes": [number]} for topic, number in topics] or None
    group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": asked}
    answer = await client.call(9, 10, groups=[group], require_stable=True)
    return [
        (topic.topic_id, part.partition_index, part.committed_offset, part.error_code.value)
        for topic in answer.groups[0].topics
        for part in topic.partitions
    ]


def test_offsets_are_committed_and_read_by_the_topics_id(tmp_path):
    async def case(_: Gateway, client: RawClient) -> None:
        topic = await id_of(client)
        asked = ((topic, 1), (STRANGE, 0), (topic, 2), (NONE, 0))
        assert await committed(client, *asked) == [0, UNKNOWN_TOPIC_ID, MISSING, UNKNOWN_TOPIC_ID]
        assert await offsets_of(client, *asked) == [
            (topic, 1, 5, 0),
            (STRANGE, 0, -1, UNKNOWN_TOPIC_ID),
            (topic, 2, -1, 0),
            (None, 0, -1, UNKNOWN_TOPIC_ID),
        ]
        assert await offsets_of(client) == [(topic, 1, 5, 0)]
        by_name = await client.call(
            9, 8, groups=[{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [1]}]}], require_stable=True
        )
        assert by_name.groups[0].topics[0].partitions[0].committed_offset == 5

    at_a_gateway(tmp_path, case)


def test_the_offsets_of_a_deleted_topic_are_not_those_of_its_namesake(tmp_path):
    async def case(_: Gateway, client: RawClient) -> None:
        old = await id_of(client)
        assert await committed(client, (old, 0)) == [0]
        made_again(str(tmp_path / "store"))
        assert (await committed(client, (old, 0), offset=7))[0] in (MISSING, UNKNOWN_TOPIC_ID)
        new = await id_of(client)
        assert await committed(client, (old, 0), (new, 1)) == [UNKNOWN_TOPIC_ID, 0]
        assert await offsets_of(client, (old, 0), (new, 0)) == [(old, 0, -1, UNKNOWN_TOPIC_ID), (new, 0, -1, 0)]
        assert await offsets_of(client) == [(new, 1, 5, 0)]

    at_a_gateway(tmp_path, case)


def test_records_are_written_and_read_by_the_topics_id(tmp_path):
    async def case(_: Gateway, client: RawClient) -> None:
        topic = await id_of(client)
        assert await produced(client, (topic, 0), (STRANGE, 0), (topic, 2), (uuid.UUID(int=0), 0)) == [
            0,
            UNKNOWN_TOPIC_ID,
            MISSING,
            UNKNOWN_TOPIC_ID,
        ]
        for version in FETCHES:
            good, strange, beyond = await fetched(client, (topic, 0), (STRANGE, 0), (topic, 2), version=version)
            assert [value for _, value in records_of(good.records)] == [b"1"]
            assert (good.error_code.value, good.high_watermark) == (0, 1)
            assert (strange.error_code.value, strange.records) in ((UNKNOWN_TOPIC_ID, b""), (UNKNOWN_TOPIC_ID, None))
            assert beyond.error_code.value == MISSING

    at_a_gateway(tmp_path, case)


def test_a_topic_that_is_made_again_has_another_id_and_the_old_one_is_refused_everywhere(tmp_path):
    async def case(first: RawClient, second: RawClient) -> None:
        old = await id_of(second)
        assert await produced(second, (old, 0)) == [0]
        assert (await fetched(second, (old, 0)))[0].error_code.value == 0
        (gone,) = (
            await first.call(20, 6, topics=[{"name": "t", "topic_id": uuid.UUID(int=0)}], timeout=1000)
        ).responses
        assert gone.error_code.value == 0
        made = {"name": "t", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        (answer,) = (await first.call(19, 7, topics=[made], timeout=1000, validate_only=False)).topics
        assert answer.error_code.value == 0
        new = answer.topic_id
        assert new != old
        # The second gateway has not read the log since.
        assert (await fetched(second, (old, 0)))[0].error_code.value == UNKNOWN_TOPIC_ID
        for client in (second, first):
            assert await produced(client, (old, 0)) == [UNKNOWN_TOPIC_ID]
            assert (await fetched(client, (old, 0)))[0].error_code.value == UNKNOWN_TOPIC_ID
            (topic,) = (await described(client, {"name": None, "topic_id": old})).topics
            assert topic.error_code.value == UNKNOWN_TOPIC_ID
            assert await id_of(client) == new
        assert (await fetched(second, (new, 0)))[0].high_watermark == 0
        assert await produced(second, (new, 0)) == [0]

    at_two_gateways(tmp_path, case)


def test_records_for_the_id_of_a_deleted_topic_are_not_those_of_its_namesake(tmp_path):
    """The gateway has not read of the change when the records come."""

    async def case(first: RawClient, second: RawClient) -> None:
        old = await id_of(second)
        assert await produced(second, (old, 0)) == [0]
        made_again(str(tmp_path / "store"))
        (code,) = await produced(second, (old, 0))
        assert code in (MISSING, UNKNOWN_TOPIC_ID)
        assert (await fetched(first, (await id_of(first), 0)))[0].high_watermark == 0

    at_two_gateways(tmp_path, case)


def test_a_fetch_that_waits_ends_when_its_topic_is_deleted(tmp_path):
    async def case(served: Gateway, client: RawClient) -> None:
        topic = await id_of(client)
        waiting = asyncio.create_task(fetched(client, (topic, 0), wait_ms=50_000))
        while served.broker.log_end._polling is None:
            await asyncio.sleep(0.01)
        with AdminClient({"bootstrap.servers": str(tmp_path / "store")}) as admin:
            await asyncio.to_thread(admin.delete_topics(["t"])["t"].result)
        assert (await waiting)[0].error_code.value == UNKNOWN_TOPIC_ID

    at_a_gateway(tmp_path, case)


def test_finding_ids_that_are_known_reads_nothing(tmp_path, monkeypatch):
    with Store.open(str(tmp_path / "store"), create=True) as store:
        for number in range(3):
            store.create_topic(f"t{number}")
        lookup = TopicLookup(store.log, store.store_id)
        ids = [lookup.uuid_of(topic.topic_id) for topic in store.log.topics()]
        assert lookup.by_uuid(ids).keys() == set(ids)
        monkeypatch.setattr(store.log, "refresh", None)
        assert {topic.name for topic in lookup.by_uuid(ids).values()} == {"t0", "t1", "t2"}
