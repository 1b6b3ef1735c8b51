"""Each difference in the table "Smaller differences" of docs/porting.md is as the table says."""

from __future__ import annotations

import pickle
import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from sparktxn import (
    ConfigurationError,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
    Uuid,
)
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec

PORTING: Final = Path(__file__).parents[2] / "docs" / "porting.md"


class World(NamedTuple):
    """A store in this process's memory."""

    uri: str


Shown = Callable[[World], None]
SHOWN: Final[dict[str, Shown]] = {}


def shows(there: str) -> Callable[[Shown], Shown]:
    """Registers the test of the row whose first cell is `there`."""

    def register(test: Shown) -> Shown:
        assert there not in SHOWN
        SHOWN[there] = test
        return test

    return register


def rows() -> list[str]:
    section = PORTING.read_text().split("\n## Smaller differences\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (.*?) \| .* \|$", section, re.MULTILINE)
    return [cell for cell in cells if cell != "confluent-kafka"]


@pytest.fixture
def world() -> World:
    return World(f"memory://differences-{uuid.uuid4().hex}")


def producer(world: World, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": world.uri, **settings})


def consumer(world: World, **settings: Any) -> Consumer:
    return Consumer({"bootstrap.servers": world.uri, "group.id": "g", "auto.offset.reset": "earliest", **settings})


def admin(world: World) -> AdminClient:
    return AdminClient({"bootstrap.servers": world.uri})


def topic(world: World, partitions: int = 1) -> None:
    admin(world).create_topics([NewTopic("t", partitions)])["t"].result()


def error_of(call: Callable[[], Any]) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        call()
    error: KafkaError = raised.value.args[0]
    return error


def code_of(call: Callable[[], Any]) -> int:
    return error_of(call).code()


@shows("`bool(message)` is False for a tombstone and for an empty value")
def _(world: World) -> None:
    assert bool(Message(topic="t", value=None))
    assert bool(Message(topic="t", value=b""))


@shows("`TopicPartition` and metadata cannot be changed or pickled")
def _(world: World) -> None:
    partition = TopicPartition("t", 1)
    partition.topic = "u"
    assert pickle.loads(pickle.dumps(partition)).topic == "u"


@shows("a message and a committed offset have a leader epoch")
def _(world: World) -> None:
    topic(world)
    with producer(world) as writer:
        writer.produce("t", b"x")
    with consumer(world) as reader:
        reader.subscribe(["t"])
        message = reader.poll(10)
        assert message is not None
        assert message.leader_epoch() is None


@shows("the message at a partition's end has a text as its value")
def _(world: World) -> None:
    topic(world)
    with consumer(world, **{"enable.partition.eof": True}) as reader:
        reader.subscribe(["t"])
        message = reader.poll(10)
        assert message is not None
        assert message.error() == KafkaError._PARTITION_EOF
        assert message.value() is None


@shows("`produce()` after a fatal error raises `_FATAL`, and `flush()` raises")
def _(world: World) -> None:
    topic(world)
    with (
        producer(world, **{"transactional.id": "id"}) as fenced,
        producer(world, **{"transactional.id": "id"}) as newer,
    ):
        fenced.init_transactions()
        fenced.begin_transaction()
        fenced.produce("t", b"x")
        newer.init_transactions()
        assert code_of(fenced.commit_transaction) == KafkaError._FENCED
        assert code_of(lambda: fenced.produce("t", b"x")) == KafkaError._FENCED
        assert fenced.flush(5) == 0


@shows("`flush()` calls all callbacks, then raises what one has raised")
def _(world: World) -> None:
    topic(world)
    called = []

    def fail(_: Any, message: Message) -> None:
        called.append(message.value())
        raise ValueError("the callback's own")

    with producer(world) as writer:
        for value in (b"a", b"b"):
            writer.produce("t", value, on_delivery=fail)
        for count in (1, 2):
            with pytest.raises(ValueError, match="own"):
                writer.flush()
            assert len(called) == count


@shows("delivery reports have no headers")
def _(world: World) -> None:
    topic(world)
    found = []
    with producer(world) as writer:
        writer.produce("t", b"x", headers=[("a", b"1")], on_delivery=lambda _, message: found.append(message.headers()))
    assert found == [[("a", b"1")]]


@shows("values are `str` or `bytes`; a name of a header may be a number")
def _(world: World) -> None:
    topic(world)
    with producer(world) as writer:
        value, key = bytearray(b"x"), memoryview(b"k")
        writer.produce("t", value, key)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="header"):
            writer.produce("t", b"x", headers=[(3, b"1")])  # type: ignore[list-item]


@shows("headers are a list or a dictionary")
def _(world: World) -> None:
    topic(world)
    with producer(world) as writer:
        headers: Any = (("a", b"1"),)
        writer.produce("t", b"x", headers=headers)
    with consumer(world) as reader:
        reader.subscribe(["t"])
        message = reader.poll(10)
        assert message is not None
        assert message.headers() == [("a", b"1")]


@shows("`produce(partition=-2)` is reported as `_UNKNOWN_PARTITION`")
def _(world: World) -> None:
    topic(world)
    found: list[int | None] = []
    with producer(world) as writer:
        writer.produce("t", b"x", partition=-2, on_delivery=lambda _, message: found.append(message.partition()))
    assert found == [0]


@shows("`produce()` to a partition that does not exist is reported, and the transaction must be aborted")
def _(world: World) -> None:
    topic(world)
    with producer(world, **{"transactional.id": "id"}) as writer:
        writer.init_transactions()
        writer.begin_transaction()
        assert code_of(lambda: writer.produce("t", b"x", partition=7)) == KafkaError._UNKNOWN_PARTITION
        writer.produce("t", b"x")
        writer.commit_transaction()


@shows("`produce_batch()` ignores names that it does not know, and refuses a tuple of messages")
def _(world: World) -> None:
    topic(world)
    with producer(world) as writer:
        with pytest.raises(TypeError, match="other"):
            writer.produce_batch("t", [{"value": b"x", "other": 1}])
        assert writer.produce_batch("t", ({"value": b"x"},)) == 1


@shows("`produce_batch()` counts a message for a partition that does not exist")
def _(world: World) -> None:
    topic(world)
    batch: list[dict[str, Any]] = [{"value": b"1"}, {"value": b"2", "partition": 99}, {"value": b"3"}]
    with producer(world) as writer:
        assert writer.produce_batch("t", batch) == 2
    assert [one.get("_error") for one in batch] == [None, KafkaError._UNKNOWN_PARTITION, None]


@shows("`produce()` to an invalid name of a topic is reported as `TOPIC_EXCEPTION`")
def _(world: World) -> None:
    topic(world)
    with producer(world) as writer:
        assert code_of(lambda: writer.produce("a b", b"x")) == KafkaError._UNKNOWN_TOPIC


@shows("`commit_transaction(0)` raises `_TIMED_OUT`")
def _(world: World) -> None:
    topic(world)
    with producer(world, **{"transactional.id": "id"}) as writer:
        writer.init_transactions()
        writer.begin_transaction()
        writer.produce("t", b"x")
        error = error_of(lambda: writer.commit_transaction(0))
        assert (error.code(), error.retriable()) == (KafkaError._TRANSPORT, True)
        writer.commit_transaction()


@shows("`list_topics(timeout=0)` and `get_watermark_offsets(timeout=0)` fail, not to be retried")
def _(world: World) -> None:
    topic(world)
    with consumer(world) as reader:
        for error in (
            error_of(lambda: reader.list_topics("t", timeout=0)),
            error_of(lambda: reader.get_watermark_offsets(TopicPartition("t", 0), timeout=0)),
        ):
            assert error.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
            assert error.retriable()


@shows("automatic commits go on while the program does not call `poll()`")
def _(world: World) -> None:
    topic(world)
    with producer(world) as writer:
        writer.produce("t", b"x")

    def committed() -> int:
        with consumer(world) as other:
            offset: int = other.committed([TopicPartition("t", 0)])[0].offset
            return offset

    with consumer(world, **{"auto.commit.interval.ms": 50}) as reader:
        reader.assign([TopicPartition("t", 0, 0)])
        assert reader.poll(10) is not None
        time.sleep(0.3)
        assert committed() == -1001
    assert committed() == 1


@shows("a `Consumer` with an empty `group.id` ends the process")
def _(world: World) -> None:
    with pytest.raises(ConfigurationError, match=r"group\.id"):
        consumer(world, **{"group.id": ""})


@shows("`Consumer.close()` hangs if `on_revoke` raises")
def _(world: World) -> None:
    topic(world)

    def fail(_: Consumer, __: list[TopicPartition]) -> None:
        raise ArithmeticError

    reader = consumer(world)
    reader.subscribe(["t"], on_revoke=fail)
    while not reader.assignment():
        reader.poll(0.1)
    with pytest.raises(ArithmeticError):
        reader.close()
    assert admin(world).describe_consumer_groups(["g"])["g"].result().members == []


@shows("`store_offsets()` below the committed offset is not committed")
def _(world: World) -> None:
    topic(world)
    with consumer(world, **{"enable.auto.offset.store": False}) as reader:
        reader.assign([TopicPartition("t", 0, 0)])
        for offset in (5, 3):
            reader.store_offsets(offsets=[TopicPartition("t", 0, offset)])
            reader.commit(asynchronous=False)
        assert reader.committed([TopicPartition("t", 0)])[0].offset == 3


@shows("`committed()`, `list_consumer_group_offsets()` have no error for a missing topic")
def _(world: World) -> None:
    topic(world)
    with consumer(world) as reader:
        (found,) = reader.committed([TopicPartition("none", 0)])
        reader.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
    asked = ConsumerGroupTopicPartitions("g", [TopicPartition("none", 0)])
    listed = admin(world).list_consumer_group_offsets([asked])["g"].result().topic_partitions
    for place in (found, *(listed or [])):
        assert (place.offset, place.error) == (-1001, KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert len(listed or []) == 1


@shows("`list_offsets()` and `delete_records()` of a partition that does not exist raise `_NOENT`")
def _(world: World) -> None:
    topic(world)
    partition = TopicPartition("t", 7, 0)
    futures: list[Any] = [
        *admin(world).list_offsets({partition: OffsetSpec.latest()}).values(),
        *admin(world).delete_records([partition]).values(),
    ]
    assert [code_of(future.result) for future in futures] == [KafkaError.UNKNOWN_TOPIC_OR_PART] * 2


@shows("`assignment()` without offsets has offset -1000, and `position()` before the first `poll()` -1001")
def _(world: World) -> None:
    topic(world)
    with consumer(world) as reader:
        reader.assign([TopicPartition("t", 0)])
        assert reader.assignment()[0].offset == -1001
        reader.assign([TopicPartition("t", 0, 0)])
        assert reader.position([TopicPartition("t", 0)])[0].offset == 0


@shows("`subscribe([])` raises `_INVALID_ARG`")
def _(world: World) -> None:
    topic(world)
    with consumer(world) as reader:
        reader.subscribe(["t"])
        reader.subscribe([])
        assert reader.poll(0) is None


@shows("`poll()` is silent for a while about a topic that does not exist")
def _(world: World) -> None:
    topic(world)
    with consumer(world) as reader:
        reader.subscribe(["none"])
        message = reader.poll(10)
        assert message is not None
        assert message.error() == KafkaError.UNKNOWN_TOPIC_OR_PART


@shows("`create_topics()` with one name twice refuses both")
def _(world: World) -> None:
    (future,) = admin(world).create_topics([NewTopic("twice", 1), NewTopic("twice", 2)]).values()
    assert code_of(future.result) == KafkaError.TOPIC_ALREADY_EXISTS
    assert len(admin(world).list_topics("twice").topics["twice"].partitions) == 1


@shows("`TopicDescription.topic_id` is a `Uuid`")
def _(world: World) -> None:
    topic(world)
    assert isinstance(admin(world).describe_topics(["t"])["t"].result().topic_id, int)


@shows("brokers have settings")
def _(world: World) -> None:
    topic(world)
    (described,) = admin(world).describe_configs([ConfigResource("BROKER", "0")]).values()
    assert set(described.result()) == {"reject.transaction.message", "offsets.retention.minutes"}
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.APPEND)
    resource = ConfigResource("BROKER", "0", incremental_configs=[entry])
    (future,) = admin(world).incremental_alter_configs([resource]).values()
    assert code_of(future.result) == KafkaError.INVALID_CONFIG


@shows("`debug` is checked")
def _(world: World) -> None:
    topic(world)
    producer(world, debug="no such context").close()


@shows("a consumer cannot be iterated")
def _(world: World) -> None:
    topic(world)
    with producer(world) as writer:
        writer.produce("t", b"x")
    with consumer(world) as reader:
        reader.subscribe(["t"])
        assert next(iter(reader)).value() == b"x"


@shows("`position()` of a partition that is not assigned has no error")
def _(world: World) -> None:
    topic(world)
    with consumer(world) as reader:
        (place,) = reader.position([TopicPartition("t", 0)])
        assert place.error == KafkaError._UNKNOWN_PARTITION


@shows("durations and sizes are numbers")
def _(world: World) -> None:
    topic(world)
    producer(
        world, **{"linger.ms": "1s", "queue.buffering.max.kbytes": "64MiB", "transaction.timeout.ms": "1m"}
    ).close()
    consumer(world, **{"session.timeout.ms": "45 seconds", "fetch.max.bytes": "50m"}).close()
    with pytest.raises(
        ConfigurationError, match=r"'linger\.ms' is '1 sheep': expected a number of milliseconds from 0"
    ):
        producer(world, **{"linger.ms": "1 sheep"})


@shows("most settings refuse `None`")
def _(world: World) -> None:
    topic(world)
    producer(world, **{"linger.ms": None, "acks": None, "on_delivery": None}).close()


@shows("a client without settings is a `TypeError`")
def _(world: World) -> None:
    for client in (Producer, Consumer, AdminClient):
        with pytest.raises(ConfigurationError, match=r"bootstrap\.servers|group\.id"):
            client()
    assert issubclass(ConfigurationError, ValueError)


@shows("`produce()` of a record above the topic's `max.message.bytes` is reported")
def _(world: World) -> None:
    new = NewTopic("t", 1, config={"max.message.bytes": "2000"})
    admin(world).create_topics([new])["t"].result()
    with producer(world) as writer:
        assert code_of(lambda: writer.produce("t", bytes(range(256)) * 20)) == KafkaError.MSG_SIZE_TOO_LARGE


@shows("`produce(on_delivery=5)` and `subscribe([5])` are accepted")
def _(world: World) -> None:
    topic(world)
    wrong: Any = 5
    with producer(world) as writer, consumer(world) as reader:
        with pytest.raises(TypeError):
            writer.produce("t", b"x", on_delivery=wrong)
        with pytest.raises(TypeError):
            reader.subscribe([wrong])


@shows("records without a key change their partition after `sticky.partitioning.linger.ms`")
def _(world: World) -> None:
    topic(world, 3)
    found: set[int | None] = set()
    with producer(world, **{"sticky.partitioning.linger.ms": 0, "transactional.id": "p"}) as writer:
        writer.init_transactions()
        for _ in range(40):
            reports: list[Message] = []

            def note(_: object, report: Message, reports: list[Message] = reports) -> None:
                reports.append(report)

            with writer.transaction():
                for _ in range(5):
                    writer.produce("t", b"x", on_delivery=note)
            assert len(reports) == 5
            assert len({report.partition() for report in reports}) == 1
            found.add(reports[0].partition())
    assert found == {0, 1, 2}


@shows("`consume()` refuses more than 1,000,000 messages")
def _(world: World) -> None:
    topic(world)
    with consumer(world) as reader:
        reader.assign([TopicPartition("t", 0)])
        assert reader.consume(1_000_001, timeout=0) == []


@shows("`max.poll.interval.ms` below `session.timeout.ms` is refused")
def _(world: World) -> None:
    topic(world)
    consumer(world, **{"max.poll.interval.ms": 1000, "session.timeout.ms": 6000}).close()


@shows("`consumer_group_metadata()` is `bytes`")
def _(world: World) -> None:
    topic(world)
    with consumer(world) as reader:
        metadata = reader.consumer_group_metadata()
        assert type(metadata).__name__ == "ConsumerGroupMetadata"
        assert pickle.loads(pickle.dumps(metadata)) == metadata


@shows("`alter_consumer_group_offsets()` has its errors in the partitions")
def _(world: World) -> None:
    topic(world)
    places = [TopicPartition("t", 0, 1), TopicPartition("none", 0, 1)]
    (future,) = admin(world).alter_consumer_group_offsets([ConsumerGroupTopicPartitions("g", places)]).values()
    assert code_of(future.result) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert admin(world).list_consumer_groups().result().valid == []


@shows("`AdminClient` meets wrong types with `AttributeError` or `ValueError`, or accepts them")
def _(world: World) -> None:
    topic(world)
    there: Any = admin(world)
    for call, wrong in ((there.create_topics, ["t"]), (there.delete_topics, [5]), (there.delete_consumer_groups, "g")):
        with pytest.raises(TypeError):
            call(wrong)
    assert there.describe_topics(["t"])["t"].result().name == "t"


@shows("comparing a `TopicPartition` with a number raises `NotImplementedError`")
def _(world: World) -> None:
    with pytest.raises(TypeError):
        assert TopicPartition("t", 0) < 3  # type: ignore[operator]
    assert Uuid(1, 2) == Uuid(1, 2)


def test_every_row_has_a_test_and_every_test_a_row() -> None:
    assert sorted(rows()) == sorted(SHOWN)


@pytest.mark.parametrize("there", SHOWN)
def test_the_difference_is_as_listed(there: str, world: World) -> None:
    SHOWN[there](world)
