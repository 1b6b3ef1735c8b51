"""What asking for one group's offsets reads of the state: that group's part, however many groups there are."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from sparktxn._engine.format.checkpoint import part_of
from sparktxn._engine.format.commands import OffsetCommit, OffsetToCommit
from sparktxn._engine.log.follow.stateparts import StateParts
from sparktxn._kafka.message import TopicPartition
from sparktxn.admin import AdminClient, ConsumerGroupTopicPartitions
from tests.world import World

PARTITIONS = 50
GROUPS = 400
OWN_PART = part_of(("offset", "group-7", 0, 0))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    world = World()
    world.store.create_topic("wide", PARTITIONS)
    topic_id = world.topic_id("wide")
    for number in range(GROUPS):
        offsets = tuple(OffsetToCommit(topic_id, partition, 0) for partition in range(PARTITIONS))
        world.submit(OffsetCommit(f"request-{number}", f"group-{number}", offsets))
    yield world
    world.close()


def visited(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> tuple[int, set[str]]:
    """How many records of groups `call` goes over, and in which parts.

    What another thread reads meanwhile does not count: a checkpoint reads every part.
    """
    records: Counter[str] = Counter()
    part_of_state = StateParts.part
    caller = threading.get_ident()

    def part(parts: StateParts, name: str) -> object:
        found = part_of_state(parts, name)
        if name.startswith("groups/") and threading.get_ident() == caller:
            records[name] += len(found)
        return found

    monkeypatch.setattr(StateParts, "part", part)
    call()
    monkeypatch.undo()
    return records.total(), set(records)


def test_committed_and_the_first_poll_read_the_groups_own_part(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = [TopicPartition("wide", partition) for partition in range(PARTITIONS)]
    consumer = world.consumer("wide", group_id="group-7")
    for call in (lambda: consumer.poll(0.5), lambda: consumer.committed(wide)):
        count, parts = visited(monkeypatch, call)
        assert parts <= {OWN_PART}
        assert count < GROUPS * PARTITIONS
    consumer.close()


def test_an_administrator_reads_the_groups_own_part(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = AdminClient({"bootstrap.servers": world.uri})
    asked = ConsumerGroupTopicPartitions("group-7")
    calls = (
        lambda: admin.list_consumer_group_offsets([asked], require_stable=True)["group-7"].result(),
        lambda: admin.describe_consumer_groups(["group-7"])["group-7"].result(),
        lambda: admin.delete_consumer_groups(["group-7"])["group-7"].result(),
    )
    for call in calls:
        count, parts = visited(monkeypatch, call)
        assert parts == {OWN_PART}
        assert count < GROUPS * PARTITIONS
