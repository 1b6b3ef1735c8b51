"""What a waiting consumer asks of the object store: docs/cli.md says it. The test moves the clock."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from sparktxn.admin import AdminClient, NewTopic
from sparktxn.consumer import Consumer
from sparktxn.producer import Producer
from sparktxn.testing.faultystore import FaultyStore
from tests.world import ClockedWorld

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
SECONDS = 60


@pytest.mark.parametrize("commits", [False, True], ids=["idle", "busy"])
def test_the_page_says_what_a_consumer_asks_in_an_hour(commits: bool) -> None:
    world = ClockedWorld()
    writer = world.lend("writer", world.process())
    objects = FaultyStore(world.objects)
    with AdminClient({"bootstrap.servers": writer}) as admin:
        admin.create_topics([NewTopic("t", 1)])["t"].result()
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    reader = Consumer({"bootstrap.servers": world.lend("reader", world.process(objects)), **settings})
    reader.subscribe(["t"])
    reader.poll(5)
    with Producer({"bootstrap.servers": writer, "linger.ms": 0}) as producer:
        before = len(objects.operations)
        until_s = world.clock.monotonic_s() + SECONDS
        while world.clock.monotonic_s() < until_s:
            if commits:
                producer.produce("t", "v")
                producer.flush()
            next_s = world.clock.monotonic_s() + 1
            while (left_s := next_s - world.clock.monotonic_s()) > 0:
                reader.poll(left_s)
    counted = Counter(operation.verb for operation in objects.operations[before:])
    reader.close()
    world.close()
    hour = 3600 // SECONDS
    found = (counted["get"] * hour, (counted["list"] + counted["list_names"]) * hour)
    row = re.search(rf"^\| {'busy' if commits else 'idle'}[^|]*\| ([\d,]+) \| ([\d,]+) \|", PAGE, re.MULTILINE)
    assert row is not None
    said = tuple(int(text.replace(",", "")) for text in row.groups())
    assert [one == pytest.approx(other, rel=0.05) for one, other in zip(found, said, strict=True)] == [True, True], (
        found
    )
