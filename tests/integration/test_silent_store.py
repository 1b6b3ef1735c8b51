"""Calls keep their time-outs while the object store is silent, as a server is that was stopped by SIGSTOP.

Every public method that takes a time-out is found by introspection: a new one fails here until it has a row in `CALLS`.
A call has LIMIT_S to return: far more than its time-out, for busy machines, and far less than the store's request
time-out. A request that no deadline governs takes the latter.
"""

from __future__ import annotations

import inspect
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from sparktxn import maintenance
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._foundation.process.clock import SystemClock
from sparktxn._foundation.values.structs import Compaction, RewrittenSegment
from sparktxn._kafka.message import TopicPartition
from sparktxn.admin import (
    AbortTransactionSpec,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConsumerGroupTopicPartitions,
    HalfMessageId,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from sparktxn.consumer import Consumer
from sparktxn.errors import KafkaException
from sparktxn.halfmessage import Message as HalfMessage
from sparktxn.halfmessage import TransactionMQProducer, rocketmq5
from sparktxn.maintenance import (
    CompactedFiles,
    RewrittenFiles,
    Sweeper,
    apply_compact,
    apply_retention,
    apply_rewrite,
    compact,
    copy_store,
    list_tables,
    maintain,
    plan_compact,
    plan_rewrite,
    publish_tables,
    repair,
    rewrite,
    sweep,
    vacuum,
    verify,
)
from sparktxn.producer import Producer
from sparktxn.store import Store
from sparktxn.testing.silentstore import SilentStore
from tests.edge.calls import Checker, Decided
from tests.lending import lend_log, take_log_back
from tests.world import open_log

TIMEOUT_S = 0.3
LIMIT_S = 20.0
"""Below the time-outs that calls have of themselves, of 30 s and more."""
PARAMETERS = {"timeout", "timeout_s", "request_timeout"}
T0 = TopicPartition("t", 0)


class Quiet:
    """A store with a topic `t` of one record, its clients, and a switch that makes it silent."""

    def __init__(self) -> None:
        self.name = f"silent-{uuid.uuid4().hex}"
        self.uri = "memory://" + self.name
        self.objects = SilentStore(MemoryStore(self.name, SystemClock()))
        self.background = ThreadBackground("silent", 4)
        self.log = open_log(self.objects, background=self.background)
        lend_log(self.uri, self.log)
        self.store = Store.open(self.uri)
        self.store.create_topic("t")
        self.admin = AdminClient({"bootstrap.servers": self.uri})
        self.producers: list[Producer] = []
        producer = self.producer()
        producer.produce("t", b"one")
        producer.close()

    def producer(self, transactional_id: str | None = None, **settings: Any) -> Producer:
        given = {"bootstrap.servers": self.uri} | {name.replace("_", "."): value for name, value in settings.items()}
        self.producers.append(Producer(given | ({"transactional.id": transactional_id} if transactional_id else {})))
        return self.producers[-1]

    def producer_of(self, value: str) -> None:
        """Stores a record."""
        producer = self.producer()
        producer.produce("t", value)
        assert producer.flush(20) == 0
        producer.close()

    def transactional(self, *, begun: bool = True, published: bool = False) -> Producer:
        """An initialised producer, with a transaction of one record."""
        producer = self.producer("orders", transaction_publish="flush")
        producer.init_transactions(20)
        if begun:
            producer.begin_transaction()
            producer.produce("t", b"two")
            if published:
                producer.flush(20)
        return producer

    def prepared(self) -> tuple[Producer, Any]:
        producer = self.transactional()
        return producer, producer.prepare_transaction(20)

    def consumer(self, *, reads: bool = True, **settings: Any) -> Consumer:
        """One that has read the record, so that the next call needs the store."""
        given = {"bootstrap.servers": self.uri, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer(given | {name.replace("_", "."): value for name, value in settings.items()})
        if reads:
            consumer.subscribe(["t"])
            message = consumer.poll(20)
            assert message is not None
            assert message.error() is None
        return consumer

    def close(self) -> None:
        # What the silence kept from being stored is given up here, else the end of the interpreter reports it.
        for producer in self.producers:
            producer.close(0)
        take_log_back(self.uri)
        self.background.close(0)


@pytest.fixture
def quiet() -> Iterator[Quiet]:
    made = Quiet()
    yield made
    made.close()


def took_s(quiet: Quiet, call: Callable[[], object]) -> float:
    """How long `call` takes while the store is silent; a call that never returns is given up."""
    ended = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except (KafkaException, RuntimeError) as error:
            failed.append(error)
        finally:
            ended.set()

    with quiet.objects.silence():
        started_s = time.monotonic()
        threading.Thread(target=run, daemon=True).start()
        ended.wait(LIMIT_S)
        elapsed_s = time.monotonic() - started_s
    assert ended.is_set(), f"it did not return in {LIMIT_S} s"
    return elapsed_s


def consumer_call(call: Callable[[Consumer], object], **settings: Any) -> Callable[[Quiet], Callable[[], object]]:
    def prepare(quiet: Quiet) -> Callable[[], object]:
        consumer = quiet.consumer(**settings)
        time.sleep(0.01)
        return lambda: call(consumer)

    return prepare


def transactional_call(call: Callable[[Producer], object], **state: bool) -> Callable[[Quiet], Callable[[], object]]:
    def prepare(quiet: Quiet) -> Callable[[], object]:
        producer = quiet.transactional(**state)
        return lambda: call(producer)

    return prepare


def admin_call(call: Callable[[AdminClient], Any]) -> Callable[[Quiet], Callable[[], object]]:
    def answers(found: Any) -> None:
        for future in found.values() if isinstance(found, dict) else [found]:
            if hasattr(future, "result"):
                future.result()

    return lambda quiet: lambda: answers(call(quiet.admin))


def store_call(call: Callable[[Store], object]) -> Callable[[Quiet], Callable[[], object]]:
    return lambda quiet: lambda: call(quiet.store)


def _with_columns(quiet: Quiet) -> Callable[[], object]:
    view = quiet.store.view()
    return lambda: quiet.store.with_columns(view, timeout_s=TIMEOUT_S)


def _flushed(quiet: Quiet) -> Callable[[], object]:
    producer = quiet.producer()
    producer.produce("t", b"two")
    producer.flush(20)
    producer.produce("t", b"three")
    return lambda: producer.flush(TIMEOUT_S)


def _closed(quiet: Quiet) -> Callable[[], object]:
    producer = quiet.producer()
    producer.produce("t", b"two")
    producer.flush(20)
    producer.produce("t", b"three")
    return lambda: producer.close(TIMEOUT_S)


def _completed(quiet: Quiet) -> Callable[[], object]:
    producer, prepared = quiet.prepared()
    return lambda: producer.complete_transaction(prepared, TIMEOUT_S)


def _sent_offsets(quiet: Quiet) -> Callable[[], object]:
    producer, consumer = quiet.transactional(), quiet.consumer()
    where = [TopicPartition("unknown", 0, 1)]
    return lambda: producer.send_offsets_to_transaction(where, consumer.consumer_group_metadata(), TIMEOUT_S)


def _committed_staged(quiet: Quiet) -> Callable[[], object]:
    stager = quiet.store.stage_plan(["t"]).open(seed=1, default_topic="t")
    stager.write(pa.table({"value": pa.array([b"row"], pa.binary())}))
    staged = stager.finish()
    return lambda: quiet.store.commit(staged, transactional_id="job", timeout_s=TIMEOUT_S)


def _resource(*changes: ConfigEntry) -> ConfigResource:
    return ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=list(changes))


HALF = HalfMessageId("shop", "none")
REWRITTEN = RewrittenFiles(
    topic="t",
    topic_id=1,
    partition=0,
    base_offset=0,
    end_offset=1,
    planned_entry=1,
    segments=(
        RewrittenSegment(
            *("00000000000000000001-00000000000000000000.parquet", 0, 1, 1, "00000000", 1, 0, 0, 0, -1, 1, 1, 1),
            first_row=0,
            file_records=2,
        ),
    ),
    replaced_files=2,
    replaced_bytes=2,
    aborted_records=0,
)
COMPACTED = CompactedFiles(
    topic="t",
    topic_id=1,
    partition=0,
    base_offset=0,
    compaction=Compaction(1, 0, 0),
    planned_entry=1,
    segments=REWRITTEN.segments,
    replaced_files=2,
    replaced_bytes=2,
    replaced_records=2,
    aborted_records=0,
)
GROUP = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 1)])
MORE_COLUMNS = pa.schema([pa.field("more", pa.int64())])
CHANGE = ConfigEntry("segment.rows", "10", incremental_operation=AlterConfigOpType.SET)

CALLS: dict[str, Callable[[Quiet], Callable[[], object]]] = {
    "Consumer.poll": consumer_call(lambda consumer: consumer.poll(TIMEOUT_S)),
    "Consumer.consume": consumer_call(lambda consumer: consumer.consume(2, TIMEOUT_S)),
    "Consumer.consume_arrow": consumer_call(lambda consumer: consumer.consume_arrow(2, TIMEOUT_S)),
    "Consumer.committed": consumer_call(lambda consumer: consumer.committed([T0], TIMEOUT_S)),
    "Consumer.list_topics": consumer_call(lambda consumer: consumer.list_topics(timeout=TIMEOUT_S)),
    "Consumer.cluster_id": consumer_call(lambda consumer: consumer.cluster_id(TIMEOUT_S)),
    "Consumer.get_watermark_offsets": consumer_call(lambda consumer: consumer.get_watermark_offsets(T0, TIMEOUT_S)),
    "Consumer.offsets_for_times": consumer_call(
        lambda consumer: consumer.offsets_for_times([TopicPartition("t", 0, 1)], TIMEOUT_S)
    ),
    "Producer.poll": transactional_call(lambda producer: producer.poll(TIMEOUT_S)),
    "Producer.flush": _flushed,
    "Producer.close": _closed,
    "Producer.list_topics": transactional_call(lambda producer: producer.list_topics(timeout=TIMEOUT_S)),
    "Producer.cluster_id": transactional_call(lambda producer: producer.cluster_id(TIMEOUT_S)),
    "Producer.init_transactions": lambda quiet: lambda: quiet.producer("orders").init_transactions(TIMEOUT_S),
    "Producer.send_offsets_to_transaction": _sent_offsets,
    # A topic that is not known is looked for in the log.
    "Producer.expect": transactional_call(lambda producer: producer.expect("unknown", 0, 0, TIMEOUT_S)),
    "Producer.prepare_transaction": transactional_call(lambda producer: producer.prepare_transaction(TIMEOUT_S)),
    "Producer.complete_transaction": _completed,
    "Producer.commit_transaction": transactional_call(lambda producer: producer.commit_transaction(TIMEOUT_S)),
    "Producer.abort_transaction": transactional_call(
        lambda producer: producer.abort_transaction(TIMEOUT_S), published=True
    ),
    "Store.create_topic": store_call(lambda store: store.create_topic("new", timeout_s=TIMEOUT_S)),
    "Store.topics": store_call(lambda store: store.topics(timeout_s=TIMEOUT_S)),
    "Store.view": store_call(lambda store: store.view(timeout_s=TIMEOUT_S)),
    "Store.with_columns": _with_columns,
    "Store.files": store_call(lambda store: store.files("t", timeout_s=TIMEOUT_S)),
    "Store.stage_plan": store_call(lambda store: store.stage_plan(["t"], timeout_s=TIMEOUT_S)),
    "Store.commit": _committed_staged,
    "Store.add_columns": store_call(lambda store: store.add_columns("t", MORE_COLUMNS, timeout_s=TIMEOUT_S)),
    "Store.commit_offsets": store_call(lambda store: store.commit_offsets(GROUP, timeout_s=TIMEOUT_S)),
    "Store.committed_offsets": store_call(lambda store: store.committed_offsets("g", timeout_s=TIMEOUT_S)),
    "Store.plan_table": store_call(lambda store: store.plan_table("entries", timeout_s=TIMEOUT_S)),
    "Store.transaction_entry": store_call(lambda store: store.transaction_entry("orders:0:1", timeout_s=TIMEOUT_S)),
    "sweep": store_call(lambda store: sweep(store, timeout_s=TIMEOUT_S)),
    "Sweeper.sweep": store_call(lambda store: Sweeper(store).sweep(TIMEOUT_S)),
    "apply_retention": store_call(lambda store: apply_retention(store, timeout_s=TIMEOUT_S)),
    "list_tables": store_call(lambda store: list_tables(store, timeout_s=TIMEOUT_S)),
    "publish_tables": store_call(lambda store: publish_tables(store, timeout_s=TIMEOUT_S)),
    "maintain": store_call(lambda store: maintain(store, timeout_s=TIMEOUT_S)),
    "verify": store_call(lambda store: verify(store, timeout_s=TIMEOUT_S)),
    "repair": store_call(lambda store: repair(store, timeout_s=TIMEOUT_S)),
    "vacuum": store_call(lambda store: vacuum(store, timeout_s=TIMEOUT_S)),
    "compact": store_call(lambda store: compact(store, timeout_s=TIMEOUT_S)),
    "plan_compact": store_call(lambda store: plan_compact(store, timeout_s=TIMEOUT_S)),
    "apply_compact": store_call(lambda store: apply_compact(store, [COMPACTED], timeout_s=TIMEOUT_S)),
    "rewrite": store_call(lambda store: rewrite(store, timeout_s=TIMEOUT_S)),
    "copy_store": store_call(lambda store: copy_store(store, "memory://copied-in-time", timeout_s=TIMEOUT_S)),
    "plan_rewrite": store_call(lambda store: plan_rewrite(store, timeout_s=TIMEOUT_S)),
    "apply_rewrite": store_call(lambda store: apply_rewrite(store, [REWRITTEN], timeout_s=TIMEOUT_S)),
    "AdminClient.poll": admin_call(lambda admin: admin.poll(TIMEOUT_S)),
    "AdminClient.list_topics": admin_call(lambda admin: admin.list_topics(timeout=TIMEOUT_S)),
    "AdminClient.create_topics": admin_call(
        lambda admin: admin.create_topics([NewTopic("a", 1), NewTopic("b", 1)], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.delete_topics": admin_call(lambda admin: admin.delete_topics(["t"], request_timeout=TIMEOUT_S)),
    "AdminClient.create_partitions": admin_call(
        lambda admin: admin.create_partitions([NewPartitions("t", 3)], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.add_columns": admin_call(
        lambda admin: admin.add_columns({"t": MORE_COLUMNS}, request_timeout=TIMEOUT_S)
    ),
    "AdminClient.describe_topics": admin_call(
        # One time-out for all that are asked for.
        lambda admin: admin.describe_topics([f"t{number}" for number in range(100)], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.describe_configs": admin_call(
        lambda admin: admin.describe_configs([_resource()], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.incremental_alter_configs": admin_call(
        lambda admin: admin.incremental_alter_configs([_resource(CHANGE)], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.alter_configs": admin_call(
        lambda admin: admin.alter_configs([_resource()], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.cluster_id": admin_call(lambda admin: admin.cluster_id(TIMEOUT_S)),
    "AdminClient.list_groups": admin_call(lambda admin: admin.list_groups(timeout=TIMEOUT_S)),
    "AdminClient.list_offsets": admin_call(
        lambda admin: admin.list_offsets({T0: OffsetSpec.latest()}, request_timeout=TIMEOUT_S)
    ),
    "AdminClient.delete_records": admin_call(
        lambda admin: admin.delete_records([TopicPartition("t", 0, 1)], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.list_consumer_groups": admin_call(lambda admin: admin.list_consumer_groups(request_timeout=TIMEOUT_S)),
    "AdminClient.describe_consumer_groups": admin_call(
        lambda admin: admin.describe_consumer_groups(["g"], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.list_consumer_group_offsets": admin_call(
        lambda admin: admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.alter_consumer_group_offsets": admin_call(
        lambda admin: admin.alter_consumer_group_offsets([GROUP], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.describe_consumer_group_lag": admin_call(
        lambda admin: admin.describe_consumer_group_lag(["g"], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.remove_members_from_consumer_group": admin_call(
        lambda admin: admin.remove_members_from_consumer_group("g", request_timeout=TIMEOUT_S)
    ),
    "AdminClient.delete_consumer_group_offsets": admin_call(
        lambda admin: admin.delete_consumer_group_offsets([GROUP], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.delete_consumer_groups": admin_call(
        lambda admin: admin.delete_consumer_groups(["g"], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.list_transactions": admin_call(lambda admin: admin.list_transactions(request_timeout=TIMEOUT_S)),
    "AdminClient.describe_transactions": admin_call(
        lambda admin: admin.describe_transactions(["orders"], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.describe_producers": admin_call(
        lambda admin: admin.describe_producers([T0], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.abort_transaction": admin_call(
        lambda admin: admin.abort_transaction(AbortTransactionSpec(T0, 0, 0, 0), request_timeout=TIMEOUT_S)
    ),
    "AdminClient.fence_producers": admin_call(
        lambda admin: admin.fence_producers(["orders"], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.find_hanging_transactions": admin_call(
        lambda admin: admin.find_hanging_transactions(topic="t", request_timeout=TIMEOUT_S)
    ),
    "AdminClient.list_half_messages": admin_call(lambda admin: admin.list_half_messages(request_timeout=TIMEOUT_S)),
    "AdminClient.count_half_messages": admin_call(lambda admin: admin.count_half_messages(request_timeout=TIMEOUT_S)),
    "AdminClient.discard_half_messages": admin_call(
        lambda admin: admin.discard_half_messages([HALF], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.resume_half_messages": admin_call(
        lambda admin: admin.resume_half_messages([HALF], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.delete_half_messages": admin_call(
        lambda admin: admin.delete_half_messages([HALF], request_timeout=TIMEOUT_S)
    ),
    "AdminClient.describe_cluster": admin_call(lambda admin: admin.describe_cluster(request_timeout=TIMEOUT_S)),
}


def _half_producer(quiet: Quiet) -> TransactionMQProducer:
    producer = TransactionMQProducer("shop", quiet.uri)
    producer.set_transaction_listener(Decided())
    producer.start()
    return producer


def _producer_5(quiet: Quiet) -> rocketmq5.Producer:
    producer = rocketmq5.Producer(rocketmq5.ClientConfiguration(quiet.uri), ["t"], Checker())
    producer.startup()
    return producer


def _half_call(call: Callable[[TransactionMQProducer], object]) -> Callable[[Quiet], Callable[[], object]]:
    def prepare(quiet: Quiet) -> Callable[[], object]:
        producer = _half_producer(quiet)
        return lambda: call(producer)

    return prepare


def _shut_down_5(quiet: Quiet) -> Callable[[], object]:
    producer = _producer_5(quiet)
    return lambda: producer.shutdown(TIMEOUT_S)


CALLS |= {
    "TransactionMQProducer.send": _half_call(lambda producer: producer.send(HalfMessage("t", b"x"), TIMEOUT_S)),
    "TransactionMQProducer.send_message_in_transaction": _half_call(
        lambda producer: producer.send_message_in_transaction(HalfMessage("t", b"x"), timeout=TIMEOUT_S)
    ),
    "TransactionMQProducer.shutdown": _half_call(lambda producer: producer.shutdown(TIMEOUT_S)),
    "rocketmq5.Producer.shutdown": _shut_down_5,
}


def timed_calls() -> set[str]:
    """All public functions and methods that take a time-out."""
    found = {
        f"{'rocketmq5.' if kind is rocketmq5.Producer else ''}{kind.__name__}.{name}"
        for kind in (Consumer, Producer, AdminClient, Store, Sweeper, TransactionMQProducer, rocketmq5.Producer)
        for name, method in inspect.getmembers(kind, callable)
        if not name.startswith("_") and PARAMETERS & set(inspect.signature(method).parameters)
    }
    functions = inspect.getmembers(maintenance, inspect.isfunction)
    return found | {name for name, function in functions if PARAMETERS & set(inspect.signature(function).parameters)}


def test_every_call_with_a_time_out_is_in_the_table() -> None:
    assert timed_calls() == set(CALLS)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_call_keeps_its_time_out(quiet: Quiet, name: str) -> None:
    took_s(quiet, CALLS[name](quiet))


def test_a_poll_without_time_returns_at_once(quiet: Quiet) -> None:
    """A poll of the log and an automatic offset commit are due, and neither gets an answer."""
    consumer = quiet.consumer(auto_commit_interval_ms=1, fetch_wait_max_ms=1)
    time.sleep(0.05)

    def polls() -> None:
        for _ in range(20):
            assert consumer.poll(0) is None

    assert took_s(quiet, polls) < LIMIT_S / 4
    quiet.producer_of("two")
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"two", "what was under way when the store fell silent is picked up"
    consumer.close()
    assert quiet.consumer(reads=False).committed([T0], 20)[0].offset == 2


def test_callbacks_have_their_own_time(quiet: Quiet) -> None:
    """What a callback asks for is not cut short by the poll(0) or the commit that calls it."""
    asked: list[object] = []
    other = quiet.consumer(reads=False, group_id="other")

    def ask(*_: object) -> None:
        asked.append(other.committed([T0], 20)[0].offset)

    consumer = quiet.consumer(reads=False)
    consumer.subscribe(["t"], on_assign=ask)
    until_s = time.monotonic() + 60
    while not asked and time.monotonic() < until_s:
        consumer.poll(0)
    producer = quiet.transactional(begun=False)
    producer.begin_transaction()
    producer.produce("t", b"two", on_delivery=ask)
    producer.commit_transaction(20)
    assert asked == [-1001, -1001]


def test_only_one_look_and_one_commit_are_under_way(quiet: Quiet) -> None:
    consumer = quiet.consumer(auto_commit_interval_ms=1, fetch_wait_max_ms=1)
    before = quiet.objects.requests

    def polls() -> None:
        for _ in range(200):
            consumer.poll(0.001)

    took_s(quiet, polls)
    assert quiet.objects.requests - before < 10, "requests without an answer do not pile up"


def test_an_offset_commit_alongside_does_not_keep_its_caller(quiet: Quiet) -> None:
    consumer = quiet.consumer()
    assert took_s(quiet, lambda: consumer.commit(asynchronous=True)) < LIMIT_S / 4


CLOSING = (
    "sparktxn.consumer.client",
    "sparktxn.producer.client",
    "sparktxn.producer.linger",
    "sparktxn._engine.log.log",
)


@pytest.mark.parametrize("kind", ["consumer", "plain producer", "open transaction", "admin", "store"])
def test_closing_has_an_upper_bound(quiet: Quiet, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in CLOSING:
        monkeypatch.setattr(f"{module}.CLOSE_TIMEOUT_S", TIMEOUT_S)
    clients: dict[str, Callable[[], Any]] = {
        "consumer": quiet.consumer,
        "plain producer": lambda: quiet.producer(delivery_timeout_ms=300, linger_ms=0),
        "open transaction": lambda: quiet.transactional(published=True),
        "admin": lambda: quiet.admin,
        "store": lambda: quiet.store,
    }
    client = clients[kind]()
    if kind == "plain producer":
        client.produce("t", b"two")
        client.flush(20)
        client.produce("t", b"three")
    took_s(quiet, client.close)


def test_what_a_closed_consumer_gave_up_is_not_committed_later(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sparktxn.consumer.client.CLOSE_TIMEOUT_S", TIMEOUT_S)
    consumer = quiet.consumer()
    with quiet.log._follower.locked("test"):
        took_s(quiet, consumer.close)
    assert "gave up an offset commit" in caplog.text
    # Whatever another client of the process writes next, the list that was given up is not in it.
    quiet.producer_of("two")
    time.sleep(0.1)
    assert quiet.consumer(reads=False).committed([T0], 20)[0].offset == -1001


def test_what_a_closed_producer_gave_up_is_not_stored_later(quiet: Quiet, caplog: pytest.LogCaptureFixture) -> None:
    producer = quiet.producer(linger_ms=0)
    producer.produce("t", b"kept")
    producer.flush(20)

    def close() -> None:
        producer.produce("t", b"given up")
        producer.close(TIMEOUT_S)

    took_s(quiet, close)
    assert "dropped 1 records" in caplog.text
    quiet.producer_of("two")
    time.sleep(0.2)
    view = quiet.store.view(["t"]).partitions["t", 0]
    assert view.log_end_offset == 3, "one, kept and two"


def test_opening_has_an_upper_bound_and_keeps_no_other_store_waiting(quiet: Quiet) -> None:
    silent = SilentStore(MemoryStore(f"silent-{uuid.uuid4().hex}", SystemClock()))
    begun = threading.Event()

    def open_silent(*_: object, **__: object) -> SilentStore:
        begun.set()
        return silent

    def open_other() -> None:
        with pytest.raises(KafkaException):
            Store.open("memory://other")

    with pytest.MonkeyPatch.context() as patch, silent.silence():
        patch.setattr("sparktxn.store.registry._OPEN_TIMEOUT_S", TIMEOUT_S)
        patch.setattr("sparktxn.store.registry.open_store", open_silent)
        opening = threading.Thread(target=open_other, daemon=True)
        opening.start()
        assert begun.wait(LIMIT_S)
        assert Store.open(quiet.uri).topics(20)
        opening.join(LIMIT_S)
        assert not opening.is_alive()
