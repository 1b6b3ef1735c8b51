"""Stores that the console shows: a busy one, one with hostile names and values, a damaged one and a silent one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pyarrow as pa

from sparktxn import Producer, TopicPartition
from sparktxn._engine.format import names
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._foundation.process.clock import SystemClock
from sparktxn.maintenance import publish_tables
from sparktxn.store import Store
from sparktxn.testing.silentstore import SilentStore
from tests.lending import lend_log, take_log_back
from tests.world import World, open_log

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
    "\u202egnp.exe\x00\x1b[31m\U0001f600\u05e9\u05dc\u05d5\u05dd"
)
"""A script, a picture that runs one, marks of HTML, signs that turn text or have no shape, and Hebrew."""
LONG = "x" * 249
"""The longest name of a topic, without a place to break it."""
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
            producer.flush()  # Otherwise nothing of it would be in the log.
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    left = world.transactional("left-open")
    left.begin_transaction()
    left.produce("t", "open")
    left.flush()
    world.produce("plain", topic="six")
    with world.producer() as typed:
        rows = {"id": [1_000_001, 2], "name": ["a", None], "raw": [b"\xff", b"x"]}
        moments = pa.array([1_777_910_400_000_001, None], TYPED.field("at").type)
        typed.produce_arrow("trips", pa.table({**rows, "at": moments}))
    publish_tables(world.store)
    consumer = world.consumer("six", group_protocol="consumer", group_id="readers")
    for _ in range(200):
        if consumer.poll(0.05) is not None:
            break
    consumer.commit(asynchronous=False)


@contextmanager
def hostile_world() -> Iterator[World]:
    """Names that take any text, and values, are a script, turn the direction of text, and are long."""
    with closing(World({"t": 1, LONG: 1})) as world:
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


@contextmanager
def damaged_store() -> Iterator[Store]:
    """A store whose second entry is not what was written."""
    with closing(World({"t": 1})) as world:
        world.produce("one")
        world.produce("two")
        name = names.entry(2)
        data = world.store.log.objects.get(name)
        assert data is not None
        assert b"init_" in data
        world.store.log.objects.put(name, data.replace(b"init_", b"inix_"))
        yield world.store


@contextmanager
def silent_store() -> Iterator[tuple[SilentStore, Store]]:
    """A store that answers until its first member is made silent."""
    name = f"silent-{uuid.uuid4().hex}"
    uri = "memory://" + name
    objects = SilentStore(MemoryStore(name, SystemClock()))
    background = ThreadBackground("console", 2)
    log = open_log(objects, background=background)
    lend_log(uri, log)
    store = Store.open(uri)
    store.create_topic("t")
    with Producer({"bootstrap.servers": uri}) as producer:
        producer.produce("t", "one")
    yield objects, store
    store.close()
    take_log_back(uri)
    background.close(0)
