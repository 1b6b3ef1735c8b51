"""Stores that the console shows: a busy one, one with hostile names and values, and an empty one."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from sparktxn import TopicPartition
from sparktxn.maintenance import publish_tables
from sparktxn.store import Store
from tests.console.asking import Console
from tests.world import World

HOSTILE = "<script>alert(1)</script>\"'&\u202egnp.exe\x00\x1b[31m\U0001f600"
TYPED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("parts", pa.list_(pa.struct([("a", pa.int32())]))),
    ]
)


def fill(world: World) -> None:
    """Topics, transactions of each outcome, a group with a member that commits, a table."""
    world.store.create_topic("trips", 2, schema=TYPED, settings={"table.formats": "delta"})
    for number in range(6):
        producer = world.transactional(f"job-{number % 3}")
        producer.begin_transaction()
        for record in range(4):
            producer.produce("six", b'{"n": %d}' % record, key=b"key-%d" % number, headers=[("trace", b"%d" % number)])
        if number == 4:
            producer.flush()  # Else nothing of it would be in the log.
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    left = world.transactional("left-open")
    left.begin_transaction()
    left.produce("t", "open")
    left.flush()
    world.produce("plain", topic="six")
    with world.producer() as typed:
        typed.produce_arrow("trips", pa.table({"id": [1, 2], "name": ["a", None], "raw": [b"\xff", b"x"]}))
    publish_tables(world.store)
    consumer = world.consumer("six", group_protocol="consumer", group_id="readers")
    for _ in range(200):
        if consumer.poll(0.05) is not None:
            break
    consumer.commit(asynchronous=False)


@pytest.fixture(scope="module")
def busy() -> Iterator[World]:
    world = World()
    fill(world)
    yield world
    world.close()


@pytest.fixture
def console(busy: World) -> Console:
    return Console(busy.store)


@pytest.fixture(scope="module")
def hostile() -> Iterator[World]:
    """Names that take any text, and values, are a script, turn the direction of text, and are long."""
    world = World({"t": 1})
    schema = pa.schema([pa.field("<b>x", pa.string())])
    world.store.create_topic("typed", 1, schema=schema)
    producer = world.transactional(HOSTILE)
    producer.begin_transaction()
    producer.produce("t", HOSTILE, key=HOSTILE, headers=[(HOSTILE, HOSTILE.encode())])
    producer.produce("t", b"\xff\xfe\x00" * 10)
    producer.produce("t", HOSTILE + "x" * 999_000)
    producer.produce("t", None, key=None)
    producer.send_offsets_to_transaction(
        [TopicPartition("t", 0, 1, HOSTILE)], world.consumer(group_id=HOSTILE).consumer_group_metadata()
    )
    producer.commit_transaction()
    with world.producer() as typed:
        typed.produce_arrow("typed", pa.table({"<b>x": [HOSTILE]}))
    yield world
    world.close()


@pytest.fixture
def empty() -> Iterator[Store]:
    world = World({})
    yield world.store
    world.close()
