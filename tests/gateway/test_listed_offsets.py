"""ListOffsets of many partitions: one view of the log for all of a request, and one plan for the times of records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparktxn import Consumer, Producer
from sparktxn._engine.log.log import Log
from sparktxn._rows.scan.plan import plan_ranges
from sparktxn.admin import AdminClient, OffsetSpec, TopicPartition
from sparktxn.admin import records as adminrecords
from sparktxn.store import Store
from tests.gateway.gateways import Gateway, RawClient, at_a_gateway

COUNT = 300
BASE_MS = 1_700_000_000_000
TIMES = {"earliest": -2, "latest": -1, "max": -3, "local": -4, "nothing": -7, "first": BASE_MS, "later": BASE_MS + 150}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often a view was taken, and reads were planned."""
    found = {"views": 0, "plans": 0}

    def counting(name: str, call: Any) -> Any:
        def counted(*given: Any, **named: Any) -> Any:
            found[name] += 1
            return call(*given, **named)

        return counted

    monkeypatch.setattr(Log, "view", counting("views", Log.view))
    monkeypatch.setattr(adminrecords, "plan_ranges", counting("plans", plan_ranges))
    return found


def filled(store: str) -> None:
    """Partition N of `many` has two records, N and N + 1 milliseconds after the base; that of `few` has none."""
    with Store.open(store, create=True) as opened:
        opened.create_topic("many", COUNT)
        opened.create_topic("few", 1)
    with Producer({"bootstrap.servers": store}) as producer:
        for number in range(COUNT):
            for more in (0, 1):
                producer.produce("many", b"x", partition=number, timestamp=BASE_MS + number + more)
        producer.flush()


def expected(number: int, asked: str) -> tuple[int, int]:
    """Return (offset, timestamp) of partition `number` of `many`."""
    if asked in ("earliest", "local"):
        return 0, -1
    if asked in ("latest", "nothing"):
        return (2, -1) if asked == "latest" else (-1, -1)
    if asked == "max":
        return 1, BASE_MS + number + 1
    wanted = TIMES[asked]
    return next(((at, BASE_MS + number + at) for at in (0, 1) if BASE_MS + number + at >= wanted), (-1, -1))


@pytest.mark.parametrize("asked", TIMES)
def test_a_request_for_many_partitions_takes_one_view(tmp_path: Path, calls: dict[str, int], asked: str) -> None:
    async def case(served: Gateway, client: RawClient) -> None:
        places = [*(("many", number) for number in range(COUNT + 1)), ("few", 0), ("none", 0), ("many", 3)]
        topics = [
            {
                "name": topic,
                "partitions": [{"partition_index": number, "current_leader_epoch": -1, "timestamp": TIMES[asked]}],
            }
            for topic, number in places
        ]
        calls.update(views=0, plans=0)
        answer = await client.call(2, 7, replica_id=-1, isolation_level=1, topics=topics)
        # Another one for what does not exist.
        assert calls["views"] == 2
        assert calls["plans"] <= 1 or asked == "max"
        for (topic, number), found in zip(places, answer.topics, strict=True):
            (part,) = found.partitions
            assert (found.name, part.partition_index) == (topic, number)
            if topic == "none" or number == COUNT:
                assert part.error_code is ErrorCode.unknown_topic_or_partition
                assert (part.offset, part.timestamp) == (-1, -1)
                continue
            assert part.error_code is ErrorCode.none
            of_empty = {"earliest": 0, "local": 0, "latest": 0}.get(asked, -1), -1
            assert (part.offset, part.timestamp) == (expected(number, asked) if topic == "many" else of_empty)

    filled(str(tmp_path / "store"))
    at_a_gateway(tmp_path, case)


@pytest.mark.parametrize("asked", ["earliest", "latest", "first", "later"])
def test_an_administrator_and_a_consumer_take_one_view_for_many_partitions(
    tmp_path: Path, calls: dict[str, int], asked: str
) -> None:
    store = str(tmp_path / "store")
    filled(store)
    spec = {"earliest": OffsetSpec.earliest(), "latest": OffsetSpec.latest()}.get(
        asked, OffsetSpec.for_timestamp(TIMES[asked])
    )
    with AdminClient({"bootstrap.servers": store}) as admin:
        admin.cluster_id()
        calls.update(views=0, plans=0)
        answers = admin.list_offsets({TopicPartition("many", number): spec for number in range(COUNT)})
        assert calls["views"] == 1
        assert calls["plans"] <= 1
        for partition, answer in answers.items():
            listed = answer.result()
            assert (listed.offset, listed.timestamp) == expected(partition.partition, asked)
        missing = admin.list_offsets({TopicPartition("none", 0): spec, TopicPartition("many", 0): spec})
        reasons = [answer.exception() for answer in missing.values()]
        assert "topic 'none' does not exist" in str(reasons[0])
        assert reasons[1] is None
    with Consumer({"bootstrap.servers": store, "group.id": "g"}) as consumer:
        calls.update(views=0)
        wanted = [TopicPartition("many", number, max(TIMES[asked], -2)) for number in range(COUNT)]
        found = consumer.offsets_for_times(wanted)
        assert calls["views"] == 1
        assert [each.partition for each in found] == list(range(COUNT))
