"""One valid call of every public method: the fuzzer replaces its arguments one by one."""

from __future__ import annotations

import asyncio
import inspect
import os
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from opentelemetry.trace import NoOpTracerProvider
from prometheus_client import CollectorRegistry

import sparktxn
import sparktxn.admin
import sparktxn.aio
import sparktxn.halfmessage
import sparktxn.maintenance
import sparktxn.metrics
import sparktxn.transfer
from sparktxn import (
    ConsumerGroupMetadata,
    Message,
    PreparedTransaction,
    SinkCommit,
    StagedSegment,
    Store,
    TopicPartition,
)
from sparktxn._foundation.values.arguments import Checked
from sparktxn._kafka import unsupported
from sparktxn.admin import (
    AbortTransactionSpec,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    HalfMessageId,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicCollection,
)
from sparktxn.halfmessage import rocketmq5
from sparktxn.maintenance import (
    CompactTask,
    CopyTask,
    RewriteTask,
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
    run_compact_task,
    run_copy_task,
    run_rewrite_task,
    sweep,
    vacuum,
    verify,
)
from sparktxn.metrics.process import PROCESS
from sparktxn.store import TableSelection, storemetrics
from sparktxn.transfer import export_topic, import_files, import_from_store, import_topic
from tests.edge.world import OPTIONS, World

__all__ = ["CALLS", "MODULES", "NOT_CALLED", "PREFIXES", "REJECTS", "Call", "name_of", "public_calls"]

MODULES: Final = (
    *(sparktxn, sparktxn.admin, sparktxn.maintenance, sparktxn.transfer, sparktxn.halfmessage, rocketmq5),
    *(sparktxn.aio, sparktxn.metrics, sparktxn.store, storemetrics),
)
_folder = tempfile.TemporaryDirectory(prefix="edge-")
"""What exports write; it is deleted with the process."""
REJECTS: Final = "reject.transaction.message"
"""The setting that a whole store can have."""
PREFIXES: Final = {sparktxn.halfmessage.__name__: "rocketmq4.", rocketmq5.__name__: "rocketmq5."}
"""Modules whose names others have too."""

PRODUCER_PROPERTIES: Final = Path(__file__).parent.parent.parent / "conf" / "producer.properties"

_T = 0.05


class Call(NamedTuple):
    """How a method is called: what it belongs to, made for each call, and valid arguments by name."""

    target: Callable[[World], Callable[..., Any]]
    arguments: Callable[[World], dict[str, Any]]


def _none(_: World) -> dict[str, Any]:
    return {}


def _segments(world: World) -> list[StagedSegment]:
    stager = world.store.stage_plan(["t"]).open(seed=0)
    stager.write(pa.table({"topic": ["t"], "value": [b"x"]}))
    return stager.finish()


def _tps(*offsets: int) -> list[TopicPartition]:
    return [TopicPartition("t", number, offset, "m", 1) for number, offset in enumerate(offsets)]


def _consumer(method: str, **arguments: Callable[[], Any]) -> Call:
    """A method of a consumer that reads ``t``."""
    return Call(lambda world: getattr(world.consumer(), method), lambda _: {n: make() for n, make in arguments.items()})


def _in_transaction(method: str, **arguments: Callable[[], Any]) -> Call:
    return Call(lambda world: getattr(world.transactional(), method), lambda _: {n: m() for n, m in arguments.items()})


def _admin(method: str, arguments: Callable[[World], dict[str, Any]] = _none, *, operation: bool = False) -> Call:
    timeouts = {"request_timeout": 5.0, **({"operation_timeout": 1.0} if operation else {})}
    return Call(lambda world: getattr(world.admin, method), lambda world: {**arguments(world), **timeouts})


def _waiting(world: World) -> Any:
    """A producer whose report waits, so that a wait without a limit ends."""
    producer = world.producer()
    producer.produce("t", b"x", partition=1, on_delivery=lambda *_: None)
    return producer


def _new(kind: Callable[..., Any], **arguments: Callable[[], Any]) -> Call:
    return Call(lambda _: kind, lambda _: {name: make() for name, make in arguments.items()})


def _in_loop(call: Callable[..., Coroutine[Any, Any, Any]], arguments: Callable[[World], dict[str, Any]]) -> Call:
    return Call(lambda world: lambda **given: asyncio.run(call(world, **given)), arguments)


async def _made(kind: Callable[..., Any], _: World, **given: Any) -> None:
    await kind(**given).close()


async def _read(method: str, world: World, **given: Any) -> Any:
    settings = {**world.settings, "group.id": world.name("group"), "auto.offset.reset": "earliest"}
    async with sparktxn.aio.AIOConsumer(settings) as consumer:
        await consumer.assign([TopicPartition("t", 0, 0)])
        return await getattr(consumer, method)(**given)


async def _sent(world: World, **given: Any) -> Any:
    async with sparktxn.aio.AIOProducer(world.settings) as producer:
        delivered = await producer.produce(**given)
        await producer.flush()
        return await delivered


async def _rows_sent(world: World, **given: Any) -> None:
    async with sparktxn.aio.AIOProducer(world.settings) as producer:
        await producer.produce_arrow(**given)


def _traced(world: World) -> Callable[..., Any]:
    world.later(partial(setattr, PROCESS, "tracer", None))
    return sparktxn.metrics.trace


PUBLIC: Final = (sparktxn.Producer, sparktxn.Consumer)
"""Classes whose methods another public class has too: they are called once."""


def _methods(kind: type) -> Iterator[str]:
    for name in dir(kind):
        plain = inspect.getattr_static(kind, name)
        is_method = inspect.isfunction(plain) or isinstance(plain, classmethod | staticmethod)
        of_base = any(inspect.getattr_static(base, name, None) is plain for base in kind.__bases__ if base in PUBLIC)
        if is_method and not name.startswith("_") and not of_base:
            yield name


_ASYNC: Final[dict[type, tuple[str, ...]]] = {
    sparktxn.aio.AIOProducer: ("produce", "produce_arrow"),
    sparktxn.aio.AIOConsumer: ("poll", "consume", "subscribe"),
}
"""Classes of clients for asyncio, and which methods they have of their own."""


def _serializing(world: World) -> Any:
    producer = sparktxn.SerializingProducer(world.settings)
    world.later(producer.close)
    return producer


def _deserializing(world: World) -> Any:
    consumer = sparktxn.DeserializingConsumer({**world.settings, "group.id": world.name("group")})
    world.later(consumer.close)
    consumer.assign([TopicPartition("t", 0, 0)])
    return consumer


def _prepared(world: World) -> Any:
    producer = world.transactional()
    producer.prepare_transaction()
    return producer


def _block(world: World) -> Callable[..., None]:
    producer = world.transactional()
    producer.abort_transaction()

    def run(**arguments: Any) -> None:
        with producer.transaction(**arguments):
            producer.produce("t", b"x", partition=1)

    return run


def _view(world: World) -> Any:
    return world.store.view(["t"])


def _keyed_view(world: World) -> Any:
    return world.store.view([world.keyed()])


def _task(world: World) -> Any:
    view = _view(world)
    return world.store.plan(view, world.store.ranges(view))[0]


def _rewrite_task(world: World) -> RewriteTask:
    producer = world.producer()
    for value in ("a", "b"):
        producer.produce("t", value, partition=0)
        producer.flush(5.0)
    return plan_rewrite(world.store, {"rewrite.topics": "t", "rewrite.min.segments": 2})[0]


def _free_root(world: World) -> str:
    return f"memory://{world.name('copy')}"


def _topic_like_t(world: World) -> str:
    """A topic with as many partitions as ``t``, for an import of it."""
    topic = world.name("imported")
    world.store.create_topic(topic, 2)
    return topic


def _published_topic(world: World) -> str:
    """A topic that is a table."""
    topic = world.name("published")
    world.store.create_topic(topic, 1, settings={"table.formats": "delta"})
    return topic


def _store_with_a_table(world: World) -> Any:
    """A store of its own: the reader that checks a world's store knows no published tables."""
    store = sparktxn.Store.open(f"{_free_folder(world)}-tables", create=True, options=OPTIONS)
    world.later(store.close)
    store.create_topic("table", 1, settings={"table.formats": "delta"})
    publish_tables(store)
    return store


def _free_folder(world: World) -> str:
    return os.path.join(tempfile.mkdtemp(dir=_folder.name), "out")


def _file(world: World) -> str:
    path = os.path.join(tempfile.mkdtemp(dir=_folder.name), "a.csv")
    with open(path, "w") as file:
        file.write("value\nv\n")
    return path


def _copy_task(world: World) -> CopyTask:
    return CopyTask(world.store.uri, _free_root(world), ())


def _compact_task(world: World) -> CompactTask:
    topic = world.name("compacted")
    world.store.create_topic(topic, 1, settings={"cleanup.policy": "compact"})
    producer = world.producer()
    producer.produce(topic, "a", "key", partition=0)
    producer.flush(5.0)
    return plan_compact(world.store, {"compact.topics": topic})[0]


def _reads(world: World) -> Callable[..., Any]:
    return lambda **arguments: list(sparktxn.read_task(**arguments))


def _read_arrow(world: World) -> Callable[..., Any]:
    return lambda **arguments: sparktxn.read_arrow(**arguments).read_all()


def _table_arguments(world: World) -> dict[str, Any]:
    selection = {"columns": ["key", "offset"], "where": [("offset", ">=", 0)], "as_of": None, "batch_rows": 10}
    return {"uri": world.store, "topics": ["t"], "order": "offset", "isolation": "read_committed", **selection}


def _stages(world: World) -> Callable[..., Any]:
    def stage(**arguments: Any) -> None:
        stager = world.store.stage_plan(["t"]).open(**arguments)
        stager.write(pa.table({"topic": ["t"], "value": [b"x"]}))
        stager.finish()

    return stage


def _opens(world: World) -> Callable[..., Any]:
    return lambda **arguments: Store.open(**arguments).close()


def _client(kind: str) -> Callable[[World], Callable[..., Any]]:
    classes: dict[str, Any] = {
        "Producer": sparktxn.Producer,
        "Consumer": sparktxn.Consumer,
        "AdminClient": sparktxn.admin.AdminClient,
        "SerializingProducer": sparktxn.SerializingProducer,
        "DeserializingConsumer": sparktxn.DeserializingConsumer,
    }
    return lambda _: lambda **arguments: classes[kind](arguments.pop("config"), **arguments).close()


def _group(world: World) -> str:
    group = world.name("group")
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition("t", 0, 1)])]
    world.admin.alter_consumer_group_offsets(wanted)[group].result()
    return group


def _open_transaction(world: World) -> AbortTransactionSpec:
    producer = world.transactional()
    producer.flush(5)
    return AbortTransactionSpec(TopicPartition("t", 1), producer.producer_id, producer.producer_epoch)


def _entries() -> list[ConfigEntry]:
    return [ConfigEntry("retention.ms", "5", incremental_operation=AlterConfigOpType.SET)]


class Decided(sparktxn.halfmessage.TransactionListener):
    """Commits every local transaction."""

    def execute_local_transaction(self, message: Any, arg: Any) -> Any:
        return sparktxn.halfmessage.LocalTransactionState.COMMIT_MESSAGE

    check_local_transaction = execute_local_transaction  # type: ignore[assignment]


class Checker(rocketmq5.TransactionChecker):
    """Commits every transaction."""

    def check(self, message: rocketmq5.Message) -> rocketmq5.TransactionResolution:
        return rocketmq5.TransactionResolution.COMMIT


def half_producer(world: World) -> sparktxn.halfmessage.TransactionMQProducer:
    """A started producer of RocketMQ 4's."""
    producer = sparktxn.halfmessage.TransactionMQProducer(world.name("half"), world.settings)
    producer.set_transaction_listener(Decided())
    producer.start()
    world.later(producer.shutdown)
    return producer


def producer_5(world: World) -> rocketmq5.Producer:
    """A started producer of RocketMQ 5's."""
    configuration = rocketmq5.ClientConfiguration(world.uri, request_timeout=60, settings=OPTIONS)
    producer = rocketmq5.Producer(configuration, ["t"], Checker())
    producer.startup()
    world.later(producer.shutdown)
    return producer


def message_5() -> rocketmq5.Message:
    """A message for ``t``."""
    message = rocketmq5.Message()
    message.topic, message.body = "t", b"x"
    message.keys = "1"  # type: ignore[assignment]
    return message


def _half(world: World, *, discarded: bool = False) -> HalfMessageId:
    """A half message that is not settled."""
    named = HalfMessageId("t", _begun(world).message_id)
    if discarded:
        world.admin.discard_half_messages([named])[named].result()
    return named


def _sends(world: World) -> Callable[..., Any]:
    """Sends in a transaction, unless another value is given for it."""
    producer = producer_5(world)
    transaction = producer.begin_transaction()
    return lambda **arguments: producer.send(**{"transaction": transaction, **arguments})


def _begun(world: World) -> rocketmq5.Transaction:
    producer = producer_5(world)
    transaction = producer.begin_transaction()
    producer.send(message_5(), transaction)
    return transaction


# Another call of a method has a name with more words: "AdminClient.describe_configs of the store".
CALLS: Final[dict[str, Call]] = {
    # values
    "TopicPartition": _new(TopicPartition, topic=lambda: "t", partition=lambda: 0, offset=lambda: 1, metadata=str, leader_epoch=int),
    "ConsumerGroupMetadata": _new(ConsumerGroupMetadata, group_id=lambda: "g", generation_id=lambda: 1, member_id=str, group_instance_id=lambda: "i", owner=lambda: "o", started_from=lambda: (("t", 0, 1, 0),)),
    "PreparedTransaction": _new(PreparedTransaction, producer_id=lambda: 1, producer_epoch=lambda: 1),
    "PreparedTransaction.parse": _new(PreparedTransaction.parse, text=lambda: "1:0"),
    "SinkCommit": _new(SinkCommit, writer_id=lambda: "w", run_id=lambda: "r", batch_id=lambda: 1),
    "NewTopic": _new(NewTopic, topic=lambda: "n", num_partitions=lambda: 1, replication_factor=lambda: 1, replica_assignment=lambda: None, config=dict, schema=lambda: None),
    "NewPartitions": _new(NewPartitions, topic=lambda: "n", new_total_count=lambda: 2, replica_assignment=lambda: None),
    "ConfigEntry": _new(ConfigEntry, name=lambda: "retention.ms", value=lambda: "5"),
    "ConfigResource": _new(ConfigResource, restype=lambda: "TOPIC", name=lambda: "t", set_config=dict, incremental_configs=_entries),
    "ConfigResource.add_incremental_config": Call(lambda _: ConfigResource("TOPIC", "t").add_incremental_config, lambda _: {"config_entry": _entries()[0]}),
    "OffsetSpec": _new(OffsetSpec, earliest_=lambda: True, max_timestamp_=lambda: False, timestamp_ms=lambda: None),
    "OffsetSpec.earliest": _new(OffsetSpec.earliest),
    "OffsetSpec.latest": _new(OffsetSpec.latest),
    "OffsetSpec.max_timestamp": _new(OffsetSpec.max_timestamp),
    "OffsetSpec.for_timestamp": _new(OffsetSpec.for_timestamp, timestamp=lambda: 5),
    "AbortTransactionSpec": _new(AbortTransactionSpec, topic_partition=lambda: TopicPartition("t", 0), producer_id=lambda: 1, producer_epoch=lambda: 0, coordinator_epoch=lambda: -1),
    "TopicCollection": _new(TopicCollection, topic_names=lambda: ["t"]),
    "ConsumerGroupTopicPartitions": _new(ConsumerGroupTopicPartitions, group_id=lambda: "g", topic_partitions=lambda: _tps(1)),
    "Uuid": _new(sparktxn.Uuid, most_significant_bits=lambda: 1, least_significant_bits=lambda: 2),
    "Uuid.get_most_significant_bits": Call(lambda _: sparktxn.Uuid(1, 2).get_most_significant_bits, _none),
    "Uuid.get_least_significant_bits": Call(lambda _: sparktxn.Uuid(1, 2).get_least_significant_bits, _none),
    "ThrottleEvent": _new(sparktxn.ThrottleEvent, broker_name=lambda: "b", broker_id=lambda: 1, throttle_time=lambda: 0.5),
    "murmur2": _new(sparktxn.murmur2, key=lambda: b"k", partition_count=lambda: 3),
    "consistent": _new(sparktxn.consistent, key=lambda: b"k", partition_count=lambda: 3),
    "fnv1a": _new(sparktxn.fnv1a, key=lambda: b"k", partition_count=lambda: 3),
    # the producer
    "Producer": Call(_client("Producer"), lambda world: {"config": world.settings}),
    "Producer.produce": Call(
        lambda world: world.transactional().produce,
        lambda _: {"topic": "t", "value": b"v", "key": b"k", "partition": 0, "callback": None, "on_delivery": None, "timestamp": 5, "headers": [("a", b"b")]},
    ),
    "Producer.produce_batch": _in_transaction("produce_batch", topic=lambda: "t", messages=lambda: [{"value": b"x", "timestamp": 5}], partition=lambda: 0, callback=lambda: None, on_delivery=lambda: None),
    "Producer.produce_arrow": _in_transaction("produce_arrow", topic=lambda: "t", batch=lambda: pa.table({"value": [b"x"]}), partition=lambda: 0),
    "Producer.poll": Call(lambda world: _waiting(world).poll, lambda _: {"timeout": _T}),
    "Producer.flush": Call(lambda world: _waiting(world).flush, lambda _: {"timeout": _T}),
    "Producer.purge": Call(lambda world: _waiting(world).purge, lambda _: {"in_queue": True, "in_flight": True, "blocking": True}),
    "Producer.init_transactions": Call(lambda world: world.producer(**{"transactional.id": world.name("id")}).init_transactions, lambda _: {"timeout": 5.0, "keep_prepared": False}),
    "Producer.begin_transaction": Call(lambda world: (p := world.transactional()).abort_transaction() or p.begin_transaction, _none),
    "Producer.send_offsets_to_transaction": _in_transaction("send_offsets_to_transaction", positions=lambda: _tps(1, 2), group_metadata=lambda: ConsumerGroupMetadata("g"), timeout=lambda: 5.0),
    "Producer.expect": _in_transaction("expect", topic=lambda: "t", partition=lambda: 0, log_end_offset=lambda: 0, timeout=lambda: 5.0),
    "Producer.prepare_transaction": _in_transaction("prepare_transaction", timeout=lambda: 5.0),
    "Producer.complete_transaction": Call(lambda world: _prepared(world).complete_transaction, lambda _: {"prepared": PreparedTransaction(1, 0), "timeout": 5.0}),
    "Producer.commit_transaction": _in_transaction("commit_transaction", timeout=lambda: 5.0),
    "Producer.abort_transaction": _in_transaction("abort_transaction", timeout=lambda: 5.0),
    "Producer.transaction": Call(_block, lambda world: {"offsets_from": world.consumer()}),
    "Producer.list_topics": _in_transaction("list_topics", topic=lambda: "t", timeout=lambda: 5.0),
    "Producer.cluster_id": _in_transaction("cluster_id", timeout=lambda: 5.0),
    "Producer.set_sasl_credentials": _in_transaction("set_sasl_credentials", username=lambda: "u", password=lambda: "p"),
    "SerializingProducer": Call(_client("SerializingProducer"), lambda world: {"config": world.settings}),
    "SerializingProducer.produce": Call(
        lambda world: _serializing(world).produce,
        lambda _: {"topic": "t", "key": b"k", "value": b"v", "partition": 0, "on_delivery": None, "timestamp": 5, "headers": [("a", b"b")]},
    ),
    "Producer.close": _in_transaction("close", timeout=lambda: 5.0),
    # the consumer
    # for asyncio
    "AIOProducer": _in_loop(partial(_made, sparktxn.aio.AIOProducer), lambda world: {"producer_conf": world.settings, "max_workers": 2, "executor": None, "batch_size": 1, "buffer_timeout": 1.0}),
    "AIOProducer.produce": _in_loop(_sent, lambda _: {"topic": "t", "value": b"v", "key": b"k", "partition": 0}),
    "AIOProducer.produce_arrow": _in_loop(_rows_sent, lambda _: {"topic": "t", "batch": pa.table({"value": [b"x"]}), "partition": 0}),
    "AIOConsumer": _in_loop(partial(_made, sparktxn.aio.AIOConsumer), lambda world: {"consumer_conf": {**world.settings, "group.id": "g"}, "max_workers": 2, "executor": None}),
    "AIOConsumer.poll": _in_loop(partial(_read, "poll"), lambda _: {"timeout": _T}),
    "AIOConsumer.consume": _in_loop(partial(_read, "consume"), lambda _: {"num_messages": 1, "timeout": _T}),
    "AIOConsumer.subscribe": _in_loop(partial(_read, "subscribe"), lambda _: {"topics": ["t"], "on_assign": None, "on_revoke": None, "on_lost": None}),
    # figures
    "register": _new(sparktxn.metrics.register, registry=CollectorRegistry),
    "trace": Call(_traced, lambda _: {"tracer_provider": NoOpTracerProvider()}),
    "figures": _new(sparktxn.metrics.figures),
    "StoreMetrics": Call(lambda _: storemetrics.StoreMetrics, lambda world: {"store": world.store, "timeout_s": 5.0}),
    "StoreMetrics.page": Call(lambda world: storemetrics.StoreMetrics(world.store).page, lambda _: {"accept": "text/plain"}),
    "StoreMetrics.wsgi": Call(lambda world: storemetrics.StoreMetrics(world.store).wsgi, _none),
    "StoreMetrics.problem": Call(lambda world: storemetrics.StoreMetrics(world.store).problem, _none),
    "StoreMetrics.describe": Call(lambda world: storemetrics.StoreMetrics(world.store).describe, _none),
    "StoreMetrics.collect": Call(lambda world: storemetrics.StoreMetrics(world.store).collect, _none),
    "Consumer": Call(_client("Consumer"), lambda world: {"config": {**world.settings, "group.id": "g"}}),
    "Consumer.poll": _consumer("poll", timeout=lambda: _T),
    "Consumer.consume": _consumer("consume", num_messages=lambda: 1, timeout=lambda: _T),
    "Consumer.consume_arrow": _consumer("consume_arrow", num_records=lambda: 1, timeout=lambda: _T),
    "Consumer.subscribe": _consumer("subscribe", topics=lambda: ["t"], on_assign=lambda: None, on_revoke=lambda: None, on_lost=lambda: None),
    "Consumer.unsubscribe": _consumer("unsubscribe"),
    "Consumer.unread": _consumer("unread", messages=list),
    "Consumer.assign": _consumer("assign", partitions=lambda: _tps(0, 1)),
    "Consumer.unassign": _consumer("unassign"),
    "Consumer.incremental_assign": _consumer("incremental_assign", partitions=lambda: [TopicPartition("t", 1, 0)]),
    "Consumer.incremental_unassign": _consumer("incremental_unassign", partitions=lambda: _tps(0)),
    "Consumer.assignment": _consumer("assignment"),
    "Consumer.seek": Call(lambda world: _sought(world), lambda _: {"partition": TopicPartition("t", 0, 1)}),
    "Consumer.position": _consumer("position", partitions=lambda: _tps(0)),
    "Consumer.pause": _consumer("pause", partitions=lambda: _tps(0)),
    "Consumer.resume": _consumer("resume", partitions=lambda: _tps(0)),
    "Consumer.get_watermark_offsets": _consumer("get_watermark_offsets", partition=lambda: TopicPartition("t", 0), timeout=lambda: 5.0, cached=lambda: False),
    "Consumer.offsets_for_times": _consumer("offsets_for_times", partitions=lambda: _tps(5), timeout=lambda: 5.0),
    "Consumer.list_topics": _consumer("list_topics", topic=lambda: "t", timeout=lambda: 5.0),
    "Consumer.cluster_id": _consumer("cluster_id", timeout=lambda: 5.0),
    "Consumer.set_sasl_credentials": _consumer("set_sasl_credentials", username=lambda: "u", password=lambda: "p"),
    "DeserializingConsumer": Call(_client("DeserializingConsumer"), lambda world: {"config": {**world.settings, "group.id": "g"}}),
    "DeserializingConsumer.poll": Call(lambda world: _deserializing(world).poll, lambda _: {"timeout": _T}),
    "Consumer.committed": _consumer("committed", partitions=lambda: _tps(0), timeout=lambda: 5.0),
    "Consumer.commit": Call(lambda world: _committed(world), lambda _: {"message": None, "offsets": _tps(1, 2), "asynchronous": False}),
    "Consumer.store_offsets": Call(
        lambda world: world.consumer(**{"enable.auto.offset.store": False}).store_offsets, lambda _: {"message": None, "offsets": _tps(1)}
    ),
    "Consumer.consumer_group_metadata": _consumer("consumer_group_metadata"),
    "Consumer.begin_block": _consumer("begin_block"),
    "Consumer.end_block": Call(lambda world: _ended(world), lambda _: {"committed": False}),
    "Consumer.memberid": _consumer("memberid"),
    "Consumer.close": _consumer("close"),
    # the administrator
    "AdminClient": Call(_client("AdminClient"), lambda world: {"config": world.settings}),
    "AdminClient.poll": Call(lambda world: world.admin.poll, lambda _: {"timeout": _T}),
    "AdminClient.close": Call(lambda world: sparktxn.admin.AdminClient(world.settings).close, _none),
    "AdminClient.create_topics": _admin("create_topics", lambda world: {"new_topics": [NewTopic(world.name("new"), 1)], "validate_only": False}, operation=True),
    "AdminClient.delete_topics": _admin("delete_topics", lambda world: {"topics": [world.topic()]}, operation=True),
    "AdminClient.create_partitions": _admin("create_partitions", lambda world: {"new_partitions": [NewPartitions(world.topic(), 2)], "validate_only": False}, operation=True),
    "AdminClient.add_columns": _admin("add_columns", lambda world: {"new_columns": {world.typed(): pa.schema([("new", pa.int64())])}, "validate_only": False}),
    "AdminClient.list_topics": Call(lambda world: world.admin.list_topics, lambda _: {"topic": "t", "timeout": 5.0}),
    "AdminClient.describe_topics": _admin("describe_topics", lambda _: {"topics": TopicCollection(["t"]), "include_authorized_operations": False}),
    "AdminClient.describe_configs": _admin("describe_configs", lambda _: {"resources": [ConfigResource("TOPIC", "t")]}),
    "AdminClient.incremental_alter_configs": _admin("incremental_alter_configs", lambda world: {"resources": [ConfigResource("TOPIC", world.topic(), incremental_configs=_entries())], "validate_only": False}),
    "AdminClient.alter_configs": _admin("alter_configs", lambda world: {"resources": [ConfigResource("TOPIC", world.topic(), set_config={"retention.ms": "5"})], "validate_only": False}),
    "AdminClient.describe_configs of the store": _admin("describe_configs", lambda _: {"resources": [ConfigResource("BROKER", "0")]}),
    "AdminClient.incremental_alter_configs of the store": _admin("incremental_alter_configs", lambda _: {"resources": [ConfigResource("BROKER", "0", incremental_configs=[ConfigEntry(REJECTS, "true", incremental_operation=AlterConfigOpType.SET)])], "validate_only": False}),
    "AdminClient.alter_configs of the store": _admin("alter_configs", lambda _: {"resources": [ConfigResource("BROKER", "0", set_config={REJECTS: "true"})], "validate_only": False}),
    "AdminClient.cluster_id": Call(lambda world: world.admin.cluster_id, lambda _: {"timeout": 5.0}),
    "AdminClient.set_sasl_credentials": Call(lambda world: world.admin.set_sasl_credentials, lambda _: {"username": "u", "password": "p"}),
    "AdminClient.list_groups": Call(lambda world: world.admin.list_groups, lambda _: {"group": "witness", "timeout": 5.0}),
    "ConfigResource.set_config": Call(lambda _: ConfigResource("TOPIC", "t").set_config, lambda _: {"name": "retention.ms", "value": "5", "overwrite": True}),
    "AdminClient.list_offsets": _admin("list_offsets", lambda _: {"topic_partition_offsets": {TopicPartition("t", 0): OffsetSpec.latest()}, "isolation_level": sparktxn.IsolationLevel.READ_COMMITTED}),
    "AdminClient.delete_records": _admin("delete_records", lambda world: {"topic_partition_offsets": [TopicPartition(world.topic(), 0, 0)]}, operation=True),
    "AdminClient.list_consumer_groups": _admin("list_consumer_groups", lambda _: {"states": [ConsumerGroupState.EMPTY], "types": [ConsumerGroupType.CLASSIC]}),
    "AdminClient.describe_consumer_groups": _admin("describe_consumer_groups", lambda _: {"group_ids": ["witness"], "include_authorized_operations": False}),
    "AdminClient.list_consumer_group_offsets": _admin("list_consumer_group_offsets", lambda _: {"list_consumer_group_offsets_request": [ConsumerGroupTopicPartitions("witness")], "require_stable": True}),
    "AdminClient.alter_consumer_group_offsets": _admin("alter_consumer_group_offsets", lambda _: {"alter_consumer_group_offsets_request": [ConsumerGroupTopicPartitions("altered", _tps(1, 2))]}),
    "AdminClient.delete_consumer_groups": _admin("delete_consumer_groups", lambda world: {"group_ids": [_group(world)]}),
    "AdminClient.delete_consumer_group_offsets": _admin("delete_consumer_group_offsets", lambda world: {"delete_consumer_group_offsets_request": [ConsumerGroupTopicPartitions(_group(world), _tps(1))]}),
    "AdminClient.describe_consumer_group_lag": _admin("describe_consumer_group_lag", lambda _: {"group_ids": ["witness"], "isolation_level": sparktxn.IsolationLevel.READ_COMMITTED}),
    "AdminClient.remove_members_from_consumer_group": _admin("remove_members_from_consumer_group", lambda _: {"group_id": "witness", "group_instance_ids": None}),
    "AdminClient.list_transactions": _admin("list_transactions", lambda _: {"states": ["Empty"], "producer_ids": [0], "duration_filter_ms": -1, "transactional_id_pattern": ".*"}),
    "AdminClient.describe_transactions": _admin("describe_transactions", lambda _: {"transactional_ids": ["before"]}),
    "AdminClient.describe_producers": _admin("describe_producers", lambda _: {"topic_partitions": _tps(0)}),
    "AdminClient.abort_transaction": _admin("abort_transaction", lambda world: {"spec": _open_transaction(world)}),
    "AdminClient.fence_producers": _admin("fence_producers", lambda world: {"transactional_ids": [world.name("fenced")]}),
    "AdminClient.find_hanging_transactions": _admin("find_hanging_transactions", lambda _: {"topic": "t", "partition": 0, "max_transaction_timeout_ms": 5}),
    "HalfMessageId": _new(HalfMessageId, group_id=lambda: "g", transaction_id=lambda: "i"),
    "AdminClient.list_half_messages": _admin("list_half_messages", lambda _: {"group_ids": ["g"], "states": ["Pending"]}),
    "AdminClient.count_half_messages": _admin("count_half_messages"),
    "AdminClient.discard_half_messages": _admin("discard_half_messages", lambda world: {"half_messages": [_half(world)]}),
    "AdminClient.resume_half_messages": _admin("resume_half_messages", lambda world: {"half_messages": [_half(world)], "wait_ms": 5}),
    "AdminClient.delete_half_messages": _admin("delete_half_messages", lambda world: {"half_messages": [_half(world, discarded=True)]}),
    "AdminClient.describe_cluster": _admin("describe_cluster", lambda _: {"include_authorized_operations": False}),
    # the store
    "Store.open": Call(_opens, lambda world: {"uri": world.uri, "options": OPTIONS, "create": False}),
    "Store.close": Call(lambda world: Store.open(world.uri, options=OPTIONS).close, _none),
    "Store.create_topic": Call(lambda world: world.store.create_topic, lambda world: {"name": world.name("made"), "partition_count": 1, "settings": {}, "schema": None, "timeout_s": 5.0}),
    "Store.topics": Call(lambda world: world.store.topics, lambda _: {"timeout_s": 5.0, "max_age_ms": 1}),
    "Store.view": Call(lambda world: world.store.view, lambda _: {"topics": ["t"], "entry": None, "timestamp_ms": None, "at_least_entry": None, "timeout_s": 5.0}),
    "Store.with_columns": Call(lambda world: world.store.with_columns, lambda world: {"view": _view(world), "columns": ["value"], "timeout_s": 5.0}),
    "Store.ranges": Call(lambda world: world.store.ranges, lambda world: {"view": _view(world), "isolation": "read_committed"}),
    "Store.plan": Call(lambda world: world.store.plan, lambda world: {"view": _view(world), "ranges": {("t", 0): (0, 3)}, "isolation": "read_committed", "columns": ["value"], "rows_per_task": None, "by_segment": False}),
    "Store.plan_view": Call(lambda world: world.store.plan_view, lambda world: {"view": _view(world), "order": "offset", "isolation": "read_committed", "bounds": {("t", 0): (0, 3)}, "columns": ["value"], "rows_per_task": None, "by_segment": False}),
    "Store.plan_latest": Call(lambda world: world.store.plan_latest, lambda world: {"view": _keyed_view(world), "columns": ["id"], "conditions": [], "partitions": None}),
    "Store.files": Call(lambda world: world.store.files, lambda world: {"topic": _view(world), "order": "offset", "timeout_s": 5.0}),
    "Store.plan_commits": Call(lambda world: world.store.plan_commits, lambda world: {"view": _view(world), "after_entry": 0, "to_entry": None, "bounds": {("t", 0): (0, 3)}, "columns": ["value"], "rows_per_task": None, "by_segment": False}),
    "Store.commit_cut": Call(lambda world: world.store.commit_cut, lambda world: {"view": _view(world), "after_entry": 0, "to_entry": None, "bounds": {("t", 0): (0, 3)}, "rows_max": None, "bytes_max": None}),
    "Store.plan_table": Call(lambda world: world.store.plan_table, lambda _: {"table": "segments", "selection": TableSelection(topics=("t",)), "timeout_s": 5.0}),
    "Store.transaction_entry": Call(lambda world: world.store.transaction_entry, lambda world: {"transaction": _committed_batch(world), "timeout_s": 5.0}),
    "Store.offset_for_time": Call(lambda world: world.store.offset_for_time, lambda world: {"partition": _view(world).partitions["t", 0], "timestamp_ms": 5, "order": "offset", "isolation": "read_committed"}),
    "Store.add_columns": Call(lambda world: world.store.add_columns, lambda world: {"topic": world.typed(), "schema": pa.schema([("new", pa.int64())]), "timeout_s": 5.0}),
    "Store.stage_plan": Call(lambda world: world.store.stage_plan, lambda _: {"topics": ["t"], "partition_key": None, "max_age_ms": 1, "timeout_s": 5.0}),
    "Store.commit": Call(
        lambda world: world.store.commit,
        lambda world: {"staged": _segments(world), "transactional_id": world.name("id"), "sink": SinkCommit("w", "r", 1), "on_replay_mismatch": "skip", "offsets": ConsumerGroupTopicPartitions("sink", _tps(1)), "timeout_s": 5.0},
    ),
    "Store.committed_offsets": Call(lambda world: world.store.committed_offsets, lambda _: {"group_id": "witness", "timeout_s": 5.0}),
    "Store.commit_offsets": Call(lambda world: world.store.commit_offsets, lambda _: {"offsets": ConsumerGroupTopicPartitions("stored", _tps(1)), "timeout_s": 5.0}),
    "StagePlan.open": Call(_stages, lambda _: {"seed": 1, "default_topic": "t", "partitioner": "consistent_random", "inline": True, "digests": False}),
    "read_table_task": Call(lambda _: lambda **given: list(sparktxn.store.read_table_task(**given)), lambda world: {"task": world.store.plan_table("segments")[0], "options": OPTIONS}),
    "read_task": Call(_reads, lambda world: {"task": _task(world), "options": OPTIONS, "batch_rows": 5}),
    "read_object": Call(lambda _: sparktxn.store.read_object, lambda world: {"uri": world.uri, "name": "_txnlog.json", "options": OPTIONS}),
    "segment_values": Call(lambda _: sparktxn.store.segment_values, lambda world: {"task": _task(world), "columns": ["producer_id"]}),
    "merged_files": Call(lambda _: sparktxn.store.merged_files, lambda world: {"tasks": [_task(world)]}),
    "whole_files": Call(lambda _: sparktxn.store.whole_files, lambda world: {"tasks": [_task(world)], "offset_max": 10}),
    "ranges_within": Call(lambda _: sparktxn.store.ranges_within, lambda world: {"view": _view(world), "ranges": {("t", 0): (0, 3)}, "rows_max": 2}),
    "rows_at_most": Call(lambda _: sparktxn.store.rows_at_most, lambda world: {"view": _view(world), "ranges": {("t", 0): (0, 3)}}),
    "check_columns": Call(lambda _: sparktxn.store.check_columns, lambda world: {"schema": pa.schema([("value", pa.binary())]), "topic": world.store.view(["t"]).topics["t"]}),
    "output_schema": Call(lambda _: sparktxn.store.output_schema, lambda _: {"topic_schema": None, "columns": ["value"]}),
    # half messages
    "rocketmq4.Message": _new(sparktxn.halfmessage.Message, topic=lambda: "t", body=lambda: b"x", tags=lambda: "a", keys=lambda: "k", properties=dict),
    "rocketmq4.Message.put_user_property": Call(lambda _: sparktxn.halfmessage.Message("t").put_user_property, lambda _: {"name": "a", "value": "b"}),
    "rocketmq4.Message.get_property": Call(lambda _: sparktxn.halfmessage.Message("t").get_property, lambda _: {"name": "a"}),
    "rocketmq4.TransactionMQProducer": _new(sparktxn.halfmessage.TransactionMQProducer, group=lambda: "g", store=lambda: "/s"),
    "rocketmq4.TransactionMQProducer.set_transaction_listener": Call(lambda world: half_producer(world).set_transaction_listener, lambda _: {"listener": Decided()}),
    "rocketmq4.TransactionMQProducer.start": Call(lambda world: half_producer(world).start, _none),
    "rocketmq4.TransactionMQProducer.shutdown": Call(lambda world: half_producer(world).shutdown, lambda _: {"timeout": 5.0}),
    "rocketmq4.TransactionMQProducer.send": Call(lambda world: half_producer(world).send, lambda _: {"message": sparktxn.halfmessage.Message("t", b"x", keys="1"), "timeout": 5.0}),
    "rocketmq4.TransactionMQProducer.send_message_in_transaction": Call(
        lambda world: half_producer(world).send_message_in_transaction,
        lambda _: {"message": sparktxn.halfmessage.Message("t", b"x", keys="1"), "arg": None, "timeout": 5.0},
    ),
    "rocketmq5.Message": _new(rocketmq5.Message),
    "rocketmq5.Message.add_property": Call(lambda _: rocketmq5.Message().add_property, lambda _: {"name": "a", "value": "b"}),
    "rocketmq5.Credentials": _new(rocketmq5.Credentials, ak=lambda: "a", sk=lambda: "b"),
    "rocketmq5.ClientConfiguration": _new(rocketmq5.ClientConfiguration, endpoints=lambda: "/s", credentials=lambda: rocketmq5.Credentials(), namespace=str, request_timeout=lambda: 3.0, settings=dict),
    "rocketmq5.Producer": _new(rocketmq5.Producer, client_configuration=lambda: rocketmq5.ClientConfiguration("/s"), topics=lambda: ["t"], checker=lambda: None, tls_enable=bool, strict_rocketmq=bool),
    "rocketmq5.Producer.startup": Call(lambda world: producer_5(world).startup, _none),
    "rocketmq5.Producer.shutdown": Call(lambda world: producer_5(world).shutdown, lambda _: {"timeout": 5.0}),
    "rocketmq5.Producer.begin_transaction": Call(lambda world: producer_5(world).begin_transaction, _none),
    "rocketmq5.Producer.send": Call(_sends, lambda _: {"message": message_5()}),
    "rocketmq5.Producer.send_async": Call(lambda world: producer_5(world).send_async, lambda _: {"message": message_5()}),
    "rocketmq5.Transaction.commit": Call(lambda world: _begun(world).commit, _none),
    "rocketmq5.Transaction.rollback": Call(lambda world: _begun(world).rollback, _none),
    "read_properties": Call(lambda _: sparktxn.read_properties, lambda _: {"file": str(PRODUCER_PROPERTIES)}),
    # tables
    "read_arrow": Call(_read_arrow, _table_arguments),
    "to_pandas": Call(lambda _: sparktxn.to_pandas, _table_arguments),
    "to_polars": Call(lambda _: sparktxn.to_polars, _table_arguments),
    "to_duckdb": Call(lambda _: sparktxn.to_duckdb, lambda world: {**_table_arguments(world), "connection": None}),
    "open_table": Call(lambda _: sparktxn.open_table, lambda world: {"uri": _store_with_a_table(world), "topic": "table", "version": None, "as_of": None, "options": None}),
    # maintenance
    "sweep": Call(lambda _: sweep, lambda world: {"store": world.store, "settings": {}, "dry_run": True, "timeout_s": 5.0}),
    "Sweeper": Call(lambda _: Sweeper, lambda world: {"store": world.store, "settings": {}}),
    "Sweeper.sweep": Call(lambda world: Sweeper(world.store).sweep, lambda _: {"timeout_s": 5.0}),
    "apply_retention": Call(
        lambda _: apply_retention,
        lambda world: {"store": world.store, "topics": ["t"], "dry_run": True, "timeout_s": 5.0},
    ),
    "maintain": Call(
        lambda _: maintain,
        lambda world: {"store": world.store, "settings": {}, "dry_run": True, "run": None, "timeout_s": 5.0},
    ),
    "verify": Call(
        lambda _: verify,
        lambda world: {"store": world.store, "topics": ["t"], "read_records": True, "run": None, "timeout_s": 5.0},
    ),
    "repair": Call(lambda _: repair, lambda world: {"store": world.store, "dry_run": True, "timeout_s": 5.0}),
    "vacuum": Call(lambda _: vacuum, lambda world: {"store": world.store, "settings": {}, "dry_run": True, "now": False, "timeout_s": 5.0}),
    "compact": Call(lambda _: compact, lambda world: {"store": world.store, "settings": {}, "dry_run": True, "run": None, "timeout_s": 5.0}),
    "run_compact_task": Call(lambda _: run_compact_task, lambda world: {"task": _compact_task(world), "options": OPTIONS}),
    "plan_compact": Call(lambda _: plan_compact, lambda world: {"store": world.store, "settings": {}, "timeout_s": 5.0}),
    "apply_compact": Call(lambda _: apply_compact, lambda world: {"store": world.store, "compacted": [], "timeout_s": 5.0}),
    "rewrite": Call(lambda _: rewrite, lambda world: {"store": world.store, "settings": {}, "dry_run": True, "run": None, "on_bytes": None, "timeout_s": 5.0}),
    "publish_tables": Call(lambda _: publish_tables, lambda world: {"store": world.store, "topics": [_published_topic(world)], "location": "s3a://bucket/shop", "dry_run": True, "timeout_s": 5.0}),
    "list_tables": Call(lambda _: list_tables, lambda world: {"store": world.store, "topics": [_published_topic(world)]}),
    "copy_store": Call(lambda _: copy_store, lambda world: {"store": world.store, "target_uri": _free_root(world), "target_options": {}, "dry_run": True, "threads": 1, "run": None, "on_progress": None, "on_bytes": None, "timeout_s": 5.0}),
    "run_copy_task": Call(lambda _: run_copy_task, lambda world: {"task": _copy_task(world), "source_options": OPTIONS, "target_options": {}}),
    "export_topic": Call(lambda _: export_topic, lambda world: {"store": world.store, "topic": "t", "folder": _free_folder(world), "file_format": "parquet", "columns": ["value"], "offsets": {0: (0, None)}, "where": [], "order": "offset", "entry": None, "timestamp_ms": None, "rows_per_file": 10, "on_progress": None}),
    "import_files": Call(lambda _: import_files, lambda world: {"store": world.store, "topic": "t", "files": [_file(world)], "columns": {}, "other_columns": "refuse", "keep_partitions": True, "dry_run": True, "on_progress": None, "on_bytes": None}),
    "import_from_store": Call(lambda _: import_from_store, lambda world: {"store": world.store, "topic": _topic_like_t(world), "source": world.store, "source_topic": "t", "entry": None, "dry_run": True, "on_progress": None, "timeout_s": 5.0}),
    "import_topic": Call(lambda _: import_topic, lambda world: {"store": world.store, "topic": "t", "consumer": world.consumer(), "source_topic": "t", "name": "here", "topic_partition": TopicPartition, "batch_records": 10, "idle_timeout_s": 0.1, "accept_loss": False, "dry_run": True, "on_progress": None}),
    "run_rewrite_task": Call(lambda _: run_rewrite_task, lambda world: {"task": _rewrite_task(world), "options": OPTIONS}),
    "plan_rewrite": Call(lambda _: plan_rewrite, lambda world: {"store": world.store, "settings": {}, "timeout_s": 5.0}),
    "apply_rewrite": Call(lambda _: apply_rewrite, lambda world: {"store": world.store, "rewritten": [], "timeout_s": 5.0}),
}  # fmt: skip


def _committed_batch(world: World) -> str:
    """Commit a sink's batch, and return its name."""
    writer_id = world.name("query")
    sink = SinkCommit(writer_id, "r", 1)
    world.store.commit(_segments(world), transactional_id=world.name("id"), sink=sink, timeout_s=5.0)
    return f"{writer_id}:1"


def _sought(world: World) -> Callable[..., Any]:
    """Seeks, and lets the automatic commit take the position."""
    consumer = world.consumer()

    def seek(**arguments: Any) -> None:
        consumer.seek(**arguments)
        consumer.poll(_T)
        consumer.commit(asynchronous=True)

    return seek


def _committed(world: World) -> Callable[..., Any]:
    """Commits one or the other: a message replaces the offsets."""
    consumer = world.consumer()

    def commit(**arguments: Any) -> None:
        if arguments.get("message") is not None:
            del arguments["offsets"]
        consumer.commit(**arguments)

    return commit


def _ended(world: World) -> Callable[..., Any]:
    """Ends a block of the same consumer, unless `began` is given."""
    consumer = world.consumer()
    began = consumer.begin_block()
    return lambda **arguments: consumer.end_block(**{"began": began, **arguments})


def _refused_calls() -> list[str]:
    return [name for name in vars(unsupported.UnsupportedCalls) if not name.startswith("_")]


def _refused_classes() -> list[str]:
    return [name for name, found in vars(unsupported).items() if hasattr(found, "_reason") and name[0] != "_"]


NOT_CALLED: Final = {
    "Message": "what consumers hand out; Consumer.commit checks one that a caller has made",
    "Store": "opened by Store.open",
    "StagePlan": "made by Store.stage_plan",
    "rocketmq5.Transaction": "made by Producer.begin_transaction",
    "rocketmq4.TransactionListener": "a program's own",
    "rocketmq5.TransactionChecker": "a program's own",
    "rocketmq4.MessageExt": "what a check shows",
    **dict.fromkeys(("rocketmq4.MessageQueue", "rocketmq4.SendResult", "rocketmq4.TransactionSendResult"), "an answer"),
    **dict.fromkeys(("rocketmq5.MessageQueue", "rocketmq5.SendReceipt"), "an answer"),
    **dict.fromkeys(("rocketmq5.Producer.recall_message", "rocketmq5.Producer.recall_message_async"), "refused always"),
    **{
        f"{kind.__name__}.{name}": f"awaits that of {kind.__name__.removeprefix('AIO')}"
        for kind, own in _ASYNC.items()
        for name in _methods(kind)
        if name not in own
    },
    "Family": "an answer",
    "CopyTask": "made by copy_store",
    "CopiedObjects": "made by run_copy_task; what run returns is tried with wrong ones",
    "CopyReport": "an answer",
    "ExpiredMember": "an answer",
    **dict.fromkeys(("ExportReport", "FileImport", "ImportReport", "TopicImportReport"), "an answer"),
    "StoreImportReport": "an answer",
    "KafkaConsumer": "a program's own",
    "CompactTask": "made by plan_compact",
    "CompactedFiles": "made by run_compact_task; apply_compact's list is tried with wrong ones",
    "RewriteTask": "made by plan_rewrite",
    "RewrittenFiles": "made by run_rewrite_task; apply_rewrite's list is tried with wrong ones",
    "StagedSegment": "made by a stager; Store.commit's list is tried with wrong ones",
    "PartitionView": "made by Store.view",
    "ReadView": "made by Store.view",
    "ReadTask": "made by Store.plan",
    "LatestTask": "made by Store.plan_latest",
    "TableTask": "made by Store.plan_table",
    "TableSelection": "checked by Store.plan_table",
    "RefusedTable": "an answer",
    "Table": "made by open_table",
    "TopicState": "an answer",
    "CommitResult": "an answer",
    "CommittedFile": "an answer",
    "ReplayMismatch": "an answer",
    "TransactionDescription": "an answer",
    **dict.fromkeys(("version", "libversion"), "it takes nothing"),
    **dict.fromkeys(("GroupMember", "GroupMetadata"), "an answer"),
    **dict.fromkeys(_refused_classes(), "refused, whatever is given"),
    "DeserializingConsumer.consume": "refused, whatever is given",
    **dict.fromkeys((f"AdminClient.{name}" for name in _refused_calls()), "refused, whatever is given"),
    **dict.fromkeys(
        ("BrokerMetadata", "ClusterMetadata", "ConsumerGroupDescription", "ConsumerGroupListing"), "an answer"
    ),
    **dict.fromkeys(("ConsumerGroupLag", "MemberAssignment", "MemberDescription"), "an answer"),
    **dict.fromkeys(
        ("DeletedRecords", "DescribeClusterResult", "HangingTransaction", "ListOffsetsResultInfo"), "an answer"
    ),
    **dict.fromkeys(("HalfMessageCounts", "HalfMessageListing"), "an answer"),
    **dict.fromkeys(("ListConsumerGroupsResult", "Node", "PartitionMetadata", "PartitionProducerState"), "an answer"),
    **dict.fromkeys(("ProducerState", "TopicDescription", "TopicMetadata", "TopicPartitionInfo"), "an answer"),
    **dict.fromkeys(
        (
            "TransactionListing",
            "LostRace",
            "PublishReport",
            "PublishedTable",
            "SweepReport",
            "TableInfo",
            "TimedOutTransaction",
            "VacuumLimit",
            "VacuumReport",
            "RewriteReport",
            "CompactReport",
        ),
        "an answer",
    ),
    **dict.fromkeys(
        (
            "FailedJob",
            "MaintenanceReport",
            "Problem",
            "RepairReport",
            "RepairedObject",
            "RetentionReport",
            "ShortenedPartition",
            "VerifyReport",
        ),
        "an answer",
    ),
}
"""Public names without a call, and why."""


def public_calls() -> Iterator[str]:
    """The public functions, constructors and methods of the packages, by introspection."""
    seen = set()
    for module in MODULES:
        for name in module.__all__:
            found = getattr(module, name)
            name = PREFIXES.get(module.__name__, "") + name
            if name in seen:
                continue
            seen.add(name)
            if inspect.isclass(found):
                if issubclass(found, BaseException) or hasattr(found, "__members__"):
                    continue
                yield name
                if name not in NOT_CALLED or name in ("Store", "StagePlan", "rocketmq5.Transaction"):
                    yield from (f"{name}.{method}" for method in _methods(found))
            elif inspect.isfunction(found):
                yield name


def checked_classes() -> Iterator[type]:
    """The public classes whose attributes are checked when they are set."""
    for module in MODULES:
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) and issubclass(found, Checked) and "_checks" in vars(found):
                yield found


def name_of(kind: type) -> str:
    """The name under which a class has its call."""
    prefixes = {"sparktxn.halfmessage.rocketmq4": "rocketmq4.", **PREFIXES}
    return prefixes.get(kind.__module__, "") + kind.__name__


def hostile_messages() -> Iterator[tuple[str, Message]]:
    """Messages that no consumer has handed out."""
    for name, wrong in (
        ("float", 5.0),
        ("bool", True),
        ("far", 2**63 - 1),
        ("text", "5"),
        ("None", None),
        ("below", -5),
    ):
        yield f"offset {name}", Message("t", 0, wrong)  # type: ignore[arg-type]
        yield f"partition {name}", Message("t", wrong, 5)  # type: ignore[arg-type]
    for topic in (b"t", "\ud800", 5, None, "none"):
        yield f"topic {topic!r}", Message(topic, 0, 5)  # type: ignore[arg-type]
