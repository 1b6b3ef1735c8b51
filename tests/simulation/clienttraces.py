"""The shortest traces of clients that do not wait, as functions of a stage: a broken guarantee is an AssertionError.

Each runs one process on a store whose weather the trace decides, alongside the stage's calm one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pyarrow as pa
import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import OffsetCommit, OffsetToCommit
from sparktxn._engine.format.entry import decode_entry, seal_document
from sparktxn._engine.log.write.queue import LISTS_BYTES_MAX
from sparktxn._kafka.message import TopicPartition
from sparktxn._rows.stage.stagedsegment import StagedSegment
from sparktxn._rows.stage.stager import SegmentStager
from sparktxn.consumer import Consumer
from sparktxn.errors import DamagedObject, FormatVersionError, KafkaException, OutcomeUnknown, StoreUnavailable
from sparktxn.producer import Producer
from sparktxn.producer.transactionstates import TransactionPhase
from sparktxn.store import SinkCommit, Store
from sparktxn.testing.clocks import ManualClock
from sparktxn.testing.faultystore import Fault, Operation, Script
from tests.simulation.offers import init_mark, marks_of
from tests.simulation.scripted import LEFT, ScriptedWorld, Visitor, entry_name

__all__ = ["ClientTrace"]

ClientTrace = Callable[[ScriptedWorld], None]
_SINKS = {"without a sink": (None, None), "with versions": (SinkCommit("app", "", 1), SinkCommit("app", "", 2))}


def answers_lost(fault: Fault = Fault.RESPONSE_LOST) -> Script:
    """The first put of an entry meets `fault`; from then on nothing is answered and nothing is applied."""
    is_silent = False

    def weather(operation: Operation) -> Fault:
        nonlocal is_silent
        if is_silent:
            return Fault.REFUSED
        if operation.verb == "put_if_absent" and names.parse_entry(operation.name) is not None:
            is_silent = True
            return fault
        return Fault.NONE

    return weather


def silent(operation: Operation) -> Fault:
    """Nothing is applied, and nothing is answered."""
    return Fault.UNAVAILABLE


def no_entries(operation: Operation) -> Fault:
    """Nothing is known of entries."""
    return Fault.UNAVAILABLE if names.parse_entry(operation.name) is not None else Fault.NONE


def values(stage: ScriptedWorld) -> list[str]:
    """All that is committed, by a reader that opens the store now."""
    uri, _ = stage.connect(stage.settings)
    with Store.open(uri) as store:
        view = store.view()
        return [
            value.decode()
            for task in store.plan(view, store.ranges(view), columns=["value"])
            for rows in stage.rows_of(task)
            for value in rows.column("value").to_pylist()
        ]


def marks(stage: ScriptedWorld) -> set[str]:
    """The marks of all commands in the log."""
    found: set[str] = set()
    for name, data in stage.shared.history.items():
        number = names.parse_entry(name)
        if number is not None:
            found.update(marks_of(decode_entry(data, name, number).commands))
    return found


def staged(store: Store, value: str) -> list[StagedSegment]:
    """One record, staged."""
    plan = store.stage_plan(["left"])
    stager = SegmentStager(store.log.objects, store.log.ids, plan.born, plan.topics, seed=0, default_topic="left")
    stager.write(pa.table({"value": [value.encode()]}))
    return stager.finish()


# --- an acknowledged batch is stored --------------------------------------------------------------------------------


def other_rows_after_an_unknown_commit(stage: ScriptedWorld) -> None:
    """The outcome of A is unknown; the same handle commits B, with the same transaction number and sequences."""
    for fault in (Fault.RESPONSE_LOST, Fault.LATE):
        for kind, (first, second) in _SINKS.items():
            visitor = stage.visitor()
            with Store.open(visitor.uri) as store:
                a, b, name = (f"{fault.value} {kind} {what}" for what in ("A", "B", "job"))
                store.commit(staged(store, f"{a} before"), transactional_id=name)
                rows_a, rows_b = staged(store, a), staged(store, b)
                visitor.weather = answers_lost(fault)
                with pytest.raises(OutcomeUnknown):
                    store.commit(rows_a, transactional_id=name, sink=first, timeout_s=2)
                visitor.weather = None
                with suppress(KafkaException):
                    store.commit(rows_b, transactional_id=name, sink=second)
                    assert b in values(stage), f"{b} was acknowledged and is not stored"
                stage.land()
                assert values(stage).count(a) <= 1


# --- one client never stops another ---------------------------------------------------------------------------------


def a_list_that_no_entry_can_hold(stage: ScriptedWorld) -> None:
    """It has got past every check of a client; the others of the process go on, and the store can be opened."""
    visitor = stage.visitor()
    wrong: list[Any] = [
        OffsetToCommit(1, 0, 1, "\ud800"),
        OffsetToCommit(1, 0, 2**63),
        OffsetToCommit(1, 0, cast(int, 1.5)),
    ]
    kept = []
    for number, offset in enumerate(wrong):
        with suppress(Exception):
            kept.append(visitor.log.send([OffsetCommit(f"wrong {number}", "group", (offset,))]))
        right = OffsetCommit(f"right {number}", "group", (OffsetToCommit(1, 0, number, f"right {number}"),))
        try:
            with visitor.log.within(5):
                visitor.log.submit([right])
        except Exception as error:
            raise AssertionError(f"another client cannot commit any more: {error!r}") from error
        assert f"right {number}" in marks(stage)
    stage.check_agreement(visitor.log)


# --- what was reported as failed does not happen later --------------------------------------------------------------


def an_offset_commit_that_was_reported_as_failed(stage: ScriptedWorld) -> None:
    """Its process goes on later, when another one has committed a newer offset."""
    told: list[object] = []
    visitor = stage.visitor()
    consumer = Consumer(
        {
            "bootstrap.servers": visitor.uri,
            "group.id": "group",
            "enable.auto.commit": False,
            "on_commit": lambda error, _: told.append(error),
        }
    )
    consumer.assign([TopicPartition("left", 0, 0)])
    visitor.weather = silent
    consumer.commit(offsets=[TopicPartition("left", 0, 1, "failed;")], asynchronous=True)
    _go_on(visitor, consumer, told)
    assert told != [None]
    visitor.weather = None
    stage.submit(OffsetCommit("newer", "group", (OffsetToCommit(1, 0, 2, "newer;"),)))
    visitor.write_something()
    assert "failed;" not in marks(stage), "it was reported as failed, and has happened"


def _go_on(visitor: Visitor, consumer: Consumer, told: list[object]) -> None:
    for _ in range(200):
        with suppress(KafkaException):
            consumer.poll(1)
        if told:
            return
    raise AssertionError("nothing was told of the commit")


def an_init_that_was_given_up(stage: ScriptedWorld) -> None:
    """Its put got no answer, and its producer is closed; the live owner of the id must not be fenced by it later."""
    for number, weather in enumerate((silent, answers_lost(Fault.REFUSED), answers_lost(Fault.UNAVAILABLE))):
        timeout_ms = 123_456 + number
        visitor = stage.visitor()
        producer = Producer(
            {
                "bootstrap.servers": visitor.uri,
                "transactional.id": f"job {number}",
                "transaction.timeout.ms": timeout_ms,
            }
        )
        visitor.weather = weather
        with pytest.raises(KafkaException):
            producer.init_transactions(1)
        with suppress(KafkaException):
            producer.close(1)
        visitor.weather = None
        live = stage.initialise(f"job {number}")
        visitor.write_something()
        assert init_mark(timeout_ms) not in marks(stage), "its producer is closed, and it has happened"
        stage.submit(live.append(LEFT, 0, transaction=1), live.end(1))


def a_commit_that_was_given_up(stage: ScriptedWorld) -> None:
    """It was never sent, and its producer is closed."""
    visitor = stage.visitor()
    producer = Producer({"bootstrap.servers": visitor.uri, "transactional.id": "job"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("left", "given up")
    producer.flush()
    producer.produce("left", "given up too")
    visitor.weather = no_entries
    with pytest.raises(KafkaException):
        producer.commit_transaction(1)
    visitor.weather = silent
    with suppress(KafkaException):
        producer.close(1)
    visitor.weather = None
    visitor.write_something()
    assert not values(stage), "its producer is closed, and it has happened"


# --- groups ---------------------------------------------------------------------------------------------------------


def two_instances_of_one_service(stage: ScriptedWorld) -> None:
    """One group without members, and two transactional ids: both read the same input, and only one may commit."""
    feeder = Producer({"bootstrap.servers": stage.uri})
    feeder.produce("left", "input")
    feeder.flush()
    instances = []
    for number in range(2):
        uri = stage.visitor().uri
        consumer = _reads(uri, subscribed=False)
        producer = Producer({"bootstrap.servers": uri, "transactional.id": f"instance {number}"})
        producer.init_transactions()
        [message] = consumer.consume(1, 5)
        assert message.value() == b"input"
        instances.append((producer, consumer))
    committed = 0
    for producer, consumer in instances:
        producer.begin_transaction()
        producer.produce("right", "output")
        try:
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
            )
            producer.commit_transaction()
        except KafkaException:
            producer.abort_transaction()
        else:
            committed += 1
    assert values(stage).count("output") == committed == 1, "one input was put out twice"


def _reads(uri: str, *, subscribed: bool = True) -> Consumer:
    consumer = Consumer(
        {"bootstrap.servers": uri, "group.id": "group", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    if subscribed:
        consumer.subscribe(["left"])
    else:
        consumer.assign([TopicPartition("left", 0)])
    return consumer


def the_offsets_of_a_dead_producer(stage: ScriptedWorld) -> None:
    """It has published its group's offsets and is dead; its successor has a transactional id of its own."""
    feeder = Producer({"bootstrap.servers": stage.uri})
    feeder.produce("left", "input")
    feeder.flush()
    uri = stage.visitor().uri
    consumer = _reads(uri)
    assert len(consumer.consume(1, 5)) == 1
    dead = Producer({"bootstrap.servers": uri, "transactional.id": "dead", "transaction.timeout.ms": 5_000})
    dead.init_transactions()
    dead.begin_transaction()
    dead.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
    dead.flush()
    successor = _reads(stage.visitor().uri)
    for _ in range(60):
        if successor.consume(1, 1):
            return
        stage.clock.now_s += 1
    raise AssertionError("its successor waits for good")


def a_block_that_fails(stage: ScriptedWorld) -> None:
    """What it has consumed is consumed again by the next block."""
    feeder = Producer({"bootstrap.servers": stage.uri})
    feeder.produce("left", "input")
    feeder.flush()
    uri = stage.visitor().uri
    consumer = _reads(uri)
    producer = Producer({"bootstrap.servers": uri, "transactional.id": "blocks"})
    producer.init_transactions()
    with suppress(ZeroDivisionError), producer.transaction(offsets_from=consumer):
        assert len(consumer.consume(1, 5)) == 1
        raise ZeroDivisionError
    for _ in range(5):
        with producer.transaction(offsets_from=consumer):
            for message in consumer.consume(1, 1):
                producer.produce("right", message.value())
    assert values(stage).count("input") == 2, "its input was skipped"


# --- the log and its readers ----------------------------------------------------------------------------------------


def an_entry_that_is_lost(stage: ScriptedWorld) -> None:
    """A process that opens the log then, or has opened it before and writes, reports it; none fills the place."""
    visitor = stage.visitor()
    stage.go_on(3)
    lost = entry_name(visitor.log.entry + 2)
    stage.shared.delete([lost])
    for what, acts in (("opened", stage.visitor), ("written", visitor.write_something)):
        with suppress(DamagedObject):
            acts()
            raise AssertionError(f"an entry is lost, and the log was {what}")
    assert lost not in stage.shared.objects, "its place was filled"


def an_entry_of_a_newer_version(stage: ScriptedWorld) -> None:
    """It holds a command that this version does not know: the store is not damaged."""
    stage.go_on()
    name = entry_name(stage.calm.entry)
    data = stage.shared.objects[name]
    document = data[: data.rindex(b',"checksum"')] + b"}"
    stage.shared.put(name, seal_document(document.replace(b'"init_producer_id"', b'"half_message"'))[0])
    try:
        stage.visitor()
    except DamagedObject as damaged:
        raise AssertionError("what a newer version has written is called damaged") from damaged
    except FormatVersionError:
        return
    raise AssertionError("a command that is not known was passed over")


def _requires(stage: ScriptedWorld, **features: list[str]) -> None:
    """Put the entry of a newer version, after which the store requires `features`."""
    document = json.loads(stage.shared.objects[entry_name(stage.calm.entry)])
    document["previous"] = document.pop("checksum")
    document |= {"entry": document["entry"] + 1, "commands": [{"type": "require_features", **features}]}
    data, _ = seal_document(json.dumps(document, separators=(",", ":")).encode())
    stage.shared.put_if_absent(entry_name(document["entry"]), data)


def a_feature_that_readers_must_know(stage: ScriptedWorld) -> None:
    """A process that does not know it neither opens the store nor follows the log past the entry that requires it."""
    visitor = stage.visitor()
    stage.go_on()
    _requires(stage, reader_features=["half_messages"])
    for what, acts in (
        ("opened", stage.visitor),
        ("followed", lambda: visitor.log.refresh()),
        ("written", visitor.write_something),
    ):
        with suppress(FormatVersionError):
            acts()
            raise AssertionError(f"its readers must know a feature, and the log was {what} without it")


def a_feature_that_writers_must_know(stage: ScriptedWorld) -> None:
    """A process that does not know it reads the store, and puts nothing."""
    visitor = stage.visitor()
    stage.go_on()
    _requires(stage, writer_features=["groups"])
    before = set(stage.shared.objects)
    assert values(stage) == []
    for what, acts in (
        ("an entry", visitor.write_something),
        ("an entry of a process that has opened the log since", stage.visitor().write_something),
        ("a checkpoint", visitor.log.checkpoint),
    ):
        with suppress(FormatVersionError):
            acts()
            raise AssertionError(f"its writers must know a feature, and {what} was written without it")
    assert set(stage.shared.objects) == before, "objects were written"


class _WrongClock(ManualClock):
    """The stage's time, but the date is wrong."""

    def __init__(self, stage: ScriptedWorld, off_s: float) -> None:
        super().__init__()
        self._true = stage.clock
        self._off_s = off_s

    def wall_ms(self) -> int:
        return self._true.wall_ms() + int(self._off_s * 1000)

    def monotonic_s(self) -> float:
        return self._true.monotonic_s()

    def processor_s(self) -> float:
        return self._true.monotonic_s()

    def sleep(self, seconds: float) -> None:
        self._true.sleep(seconds)


def a_clock_that_is_far_off(stage: ScriptedWorld) -> None:
    """Ten years ahead or a month behind: it writes nothing, and the log's time stays what it was."""
    for off_s in (10 * 365 * 86_400, -30 * 86_400):
        before_ms = stage.truths_timestamp_ms()
        visitor = stage.visitor(clock=_WrongClock(stage, off_s))
        with suppress(StoreUnavailable):
            visitor.write_something()
            raise AssertionError("it has written")
        stage.go_on()
        assert stage.truths_timestamp_ms() - before_ms < 60_000, "the log's time has moved for good"


def records_that_were_purged(stage: ScriptedWorld) -> None:
    """A transaction that has lost records by purge() does not commit."""
    producer = Producer({"bootstrap.servers": stage.uri, "transactional.id": "purges"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("left", "purged")
    producer.purge()
    producer.produce("left", "kept")
    try:
        producer.commit_transaction()
    except KafkaException:
        producer.abort_transaction()
    else:
        raise AssertionError("it has lost a record, and has committed")
    assert not values(stage)


def a_fence_that_a_flush_meets(stage: ScriptedWorld) -> None:
    """The producer is fatally wrong from this moment: error_cb, state and reports say so before it aborts."""
    fatal: list[bool] = []
    reported: list[bool] = []
    producer = Producer(
        {
            "bootstrap.servers": stage.uri,
            "transactional.id": "fenced",
            "error_cb": lambda error: fatal.append(error.fatal()),
        }
    )
    producer.init_transactions()
    producer.begin_transaction()
    stage.initialise("fenced")
    producer.produce("left", "late", on_delivery=lambda error, _: reported.append(error is not None and error.fatal()))
    producer.flush()
    assert producer.transaction_state is TransactionPhase.FATAL_ERROR, "it is fenced, and waits for an abort"
    assert (fatal, reported) == ([True], [True])


def many_large_lists(stage: ScriptedWorld) -> None:
    """They travel in entries of which each is small enough: no entry takes more than fits, and one list."""
    visitor = stage.visitor()
    metadata = "m" * 4_000
    tickets = []
    for number in range(150):
        offsets = [OffsetCommit(f"{number} {part}", "group", (OffsetToCommit(*LEFT, 1, metadata),)) for part in "ab"]
        tickets.append(visitor.log.send(offsets))
    for ticket in tickets:
        with visitor.log.within(60):
            ticket.wait()
    sizes = [len(data) for name, data in stage.shared.history.items() if names.parse_entry(name) is not None]
    assert max(sizes) <= LISTS_BYTES_MAX + 10_000, f"an entry of {max(sizes)} bytes"
