"""What the calls that are made most cost, in calls of own functions: no change lets the figures grow unseen.

A figure that a change lowers is lowered here too; one that it raises needs a reason.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import pyarrow as pa
import pytest

from pyspark_txnlog.options.options import WRITE_STREAM, WriteOptions
from pyspark_txnlog.source import DefaultSource
from pyspark_txnlog.writing.batch_writer import stage_rows
from pyspark_txnlog.writing.stream_writer import StagedMicroBatch, TxnLogStreamWriter
from sparktxn import Consumer, Producer, Store, TopicPartition
from sparktxn._engine.format.commands import JoinGroup
from sparktxn._foundation.process.background import InlineBackground
from sparktxn._foundation.process.clock import SystemClock
from sparktxn._kafka.settings.consumer import ConsumerSettings
from sparktxn._programs.gateway.groups.ledgroups import LedGroups, Sent
from sparktxn.consumer.assignment import Assignment
from sparktxn.consumer.member import Membership
from sparktxn.consumer.offsets import GroupOffsets
from sparktxn.maintenance import publish_tables
from sparktxn.store import registry
from sparktxn.store.memberexpiry import members_name
from tests.calls import Cost, added, cost_of, least
from tests.spark.readers import VALUE, batch_reader

Result = TypeVar("Result")


class Calls:
    """A store on the local disk, and its clients, which have done each call before."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.store = Store.open(uri, create=True)
        self.store.create_topic("t")
        self.clients: list[Any] = [self.store]

    def producer(self) -> Producer:
        producer = Producer({"bootstrap.servers": self.uri, "transactional.id": "calls"})
        producer.init_transactions()
        self.clients.append(producer)
        return producer

    def consumer(self, group: str) -> Consumer:
        consumer = Consumer({"bootstrap.servers": self.uri, "auto.offset.reset": "earliest", "group.id": group})
        self.clients.append(consumer)
        return consumer

    def close(self) -> None:
        for client in reversed(self.clients):
            client.close()


TICK_S = 1e-5


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """Yield a store whose threads' work is done inline, and whose time passes by looking at the clock.

    Otherwise a thread's moment decides how often a call looks, and the machine's speed what is due in each call.
    """
    ticks = count()
    monkeypatch.setattr(registry, "ThreadBackground", lambda *_: InlineBackground())
    monkeypatch.setattr(SystemClock, "monotonic_s", staticmethod(lambda: next(ticks) * TICK_S))
    made = Calls(str(tmp_path))
    yield made
    made.close()


class Uncounted:
    """Does the work of threads at once, and counts none of it: what the caller's own thread does is left.

    A call that waits for a thread would look for its result as often as that thread's moment decides.
    """

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        counting = sys.getprofile()
        sys.setprofile(None)
        try:
            return InlineBackground().submit(work)
        finally:
            sys.setprofile(counting)

    def sibling(self, name: str, workers: int) -> Uncounted:
        return self

    def repeat(self, work: Callable[[], float | None]) -> Callable[[], None]:
        """Leave `work` undone: what a thread repeats at intervals is not due within a call."""
        return lambda: None

    def close(self, timeout_s: float | None = None) -> None: ...


@pytest.fixture
def callers_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """Yield a store whose calls are counted in the caller's thread only."""
    monkeypatch.setattr(registry, "ThreadBackground", lambda *_: Uncounted())
    made = Calls(str(tmp_path))
    yield made
    made.close()


def transaction(producer: Producer, *values: str) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce("t", value, partition=0)


LOCKED = "sparktxn/_engine/log/follow/follower.py:Follower.locked"
"""A generator, which goes on twice each time that the log's lock is taken."""

CHECKED = "sparktxn/_foundation/values/arguments.py:Checked.__setattr__"
"""Checks one value of an object that a caller may have made."""


PARSED = "scala-free-python-datasource/pyspark_txnlog/options/options.py:Option.parsed"
"""Makes a value of the text of one of Spark's options."""


def at_most(cost: Cost, *, calls: int, modules: int | None = None, depth: int | None = None) -> None:
    dearest = "\n".join(f"{times:5} {function}" for function, times in cost.by_function.most_common())
    assert cost.calls <= calls, f"{cost}:\n{dearest}"
    assert modules is None or cost.modules <= modules, f"{cost}:\n{dearest}"
    assert depth is None or cost.depth <= depth, f"{cost}:\n{dearest}"


def test_a_commit_of_one_record(calls: Calls) -> None:
    producer = calls.producer()

    def committed() -> Cost:
        transaction(producer, "v")
        return cost_of(producer.commit_transaction)

    at_most(least(committed), calls=275, modules=41, depth=17)


def test_the_first_record_of_a_transaction_and_the_next_one(calls: Calls) -> None:
    producer = calls.producer()

    def produced() -> Cost:
        producer.produce("t", "v", partition=0)
        producer.commit_transaction()
        producer.begin_transaction()
        return cost_of(lambda: producer.produce("t", "v", partition=0))

    producer.begin_transaction()
    at_most(least(produced), calls=20, modules=6)
    at_most(least(lambda: cost_of(lambda: producer.produce("t", "v", partition=0))), calls=3, modules=3)


def first_poll(calls: Calls) -> Cost:
    """Return what the first poll costs a consumer that is alone in a new group."""
    producer = calls.producer()
    transaction(producer, "v")
    producer.commit_transaction()

    groups = count()

    def polled() -> Cost:
        consumer = calls.consumer(f"group-{next(groups)}")
        consumer.subscribe(["t"])
        cost = cost_of(lambda: consumer.poll(60))
        consumer.close()
        return cost

    return least(polled)


def test_the_first_poll_of_a_consumer(calls: Calls) -> None:
    cost = first_poll(calls)
    # 663 to 665, as threads that wait for a real time are left as they are
    at_most(cost, calls=668)
    assert not cost.by_function[CHECKED], "values of a caller are checked once, and own ones never"


def test_the_callers_share_of_a_first_poll(callers_calls: Calls) -> None:
    # 27 of them by a second poll of the log, which is due after 2 ms, and 137 read the records, as the log's follower
    # has kept them. Threads add how a poll of the log is handed to them, and a turn of the wait for it.
    at_most(first_poll(callers_calls), calls=271)


def test_records_at_the_end_of_the_log_take_one_hand_over(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    calls.store.create_topic("eight", 8)
    producer = calls.producer()
    consumer = calls.consumer("g")
    consumer.assign([TopicPartition("eight", partition) for partition in range(8)])
    assert consumer.poll(0.001) is None
    producer.begin_transaction()
    for partition in range(8):
        producer.produce("eight", b"v", partition=partition)
    producer.commit_transaction()
    handed_over: list[object] = []
    submit = InlineBackground.submit
    monkeypatch.setattr(InlineBackground, "submit", lambda self, work: handed_over.append(work) or submit(self, work))
    found: list[int | None] = []
    while len(found) < 8:
        before = len(handed_over)
        if (message := consumer.poll(1)) is not None:
            found.append(message.partition())
            assert len(handed_over) - before <= 1, "a poll of the log, and none for the records of a partition"
    assert set(found) == set(range(8))


@pytest.mark.parametrize("read", ["members", "offsets", "led members"])
def test_what_is_read_of_a_group_is_of_one_state(calls: Calls, read: str) -> None:
    log = calls.store.log
    settings = ConsumerSettings.parse({"bootstrap.servers": calls.uri, "group.id": "g", "group.instance.id": "one"})
    membership = Membership(log, settings)
    membership.life.joined = True
    sent = msgspec.json.encode(Sent("connect", (("default", b""),))).decode()
    log.submit([JoinGroup("r", members_name("g"), "m", ("t",), 60_000, 60_000, ("uniform",), classic=True, host=sent)])
    reads: dict[str, Callable[[], object]] = {
        "members": lambda: membership.see(membership.life),
        "offsets": GroupOffsets(log, "g", Assignment(), membership.speaker).see,
        "led members": lambda: LedGroups(log, *cast("Any", (None, None))).described("g"),
    }
    cost = cost_of(reads[read])
    membership.let_go()
    assert cost.by_function[LOCKED] == 2, "one that is asked for under a second lock may be of a newer entry"


def inline_segments(calls: Calls, count: int) -> None:
    """Commit transactions whose segments lie in their entries, a few records each."""
    producer = calls.producer()
    for number in range(count):
        transaction(producer, *[f"{number} {place}" for place in range(4 if number % 3 else 2)])
        producer.commit_transaction()


@pytest.mark.parametrize(("segments", "most"), [(15, 345), (21, 411)])
def test_a_read_of_inline_segments_by_spark(calls: Calls, segments: int, most: int) -> None:
    inline_segments(calls, segments)
    reader = batch_reader(calls.store)
    (part,) = reader.partitions()
    # two of them in place of a function of pyarrow that imports pandas
    at_most(least(lambda: cost_of(lambda: list(reader.read(part)))), calls=most)


def test_the_schema_and_the_reader_of_spark(calls: Calls) -> None:
    inline_segments(calls, 1)

    def made() -> Cost:
        source = DefaultSource({"path": calls.uri, "subscribe": "t"})
        first = cost_of(lambda: schemas.append(source.schema()))
        carried = pickle.loads(pickle.dumps(source))
        second = cost_of(lambda: carried.reader(schemas[-1]))
        assert (first.by_function[PARSED], second.by_function[PARSED]) == (2, 0), "options are parsed in one process"
        return added(first, second)

    schemas: list[Any] = []
    at_most(least(made), calls=271, modules=31)


def test_a_commit_of_a_micro_batch(calls: Calls) -> None:
    writer = TxnLogStreamWriter(WriteOptions.parse({"path": calls.uri, "topic": "t"}, WRITE_STREAM), VALUE)
    plan = writer._plan
    assert plan is not None
    numbers = count()

    def committed() -> Cost:
        number = next(numbers)
        rows = pa.record_batch({"value": pa.array([b"v"])})
        segments = tuple(stage_rows(plan, "t", [rows], inline=True))
        messages = [StagedMicroBatch(segments, "query", "run", number)]
        return cost_of(lambda: writer.commit(messages, number))

    cost = least(committed)
    at_most(cost, calls=335, modules=45)
    assert cost.by_function[LOCKED] == 2 * 2, "the state is asked for under one lock, and the list is written under one"


@pytest.mark.parametrize(("formats", "most", "modules"), [("delta", 1117, 65), ("iceberg", 1330, 67)])
def test_a_publication_of_one_new_record(calls: Calls, formats: str, most: int, modules: int) -> None:
    calls.store.create_topic("table", settings={"table.formats": formats})
    producer = calls.producer()

    def published() -> Cost:
        producer.begin_transaction()
        producer.produce("table", b"v", partition=0)
        producer.commit_transaction()
        return cost_of(lambda: publish_tables(calls.store))

    published()
    at_most(least(published), calls=most, modules=modules)
