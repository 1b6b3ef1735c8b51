"""The clients for asyncio: what confluent-kafka's have, and no message lost with a task that is cancelled."""

from __future__ import annotations

import asyncio
import gc
import inspect
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from sparktxn import ConfigurationError, Consumer, KafkaException, Producer, Store, TopicPartition, read_arrow
from sparktxn.aio import AIOConsumer, AIOProducer
from tests.each import each
from tests.world import next_number

CONFLUENTS = {
    "AIOConsumer": "assign assignment close cluster_id commit committed consume consumer_group_metadata "
    "get_watermark_offsets incremental_assign incremental_unassign list_topics offsets_for_times pause poll position "
    "resume seek set_sasl_credentials store_offsets subscribe unassign unsubscribe",
    "AIOProducer": "abort_transaction begin_transaction close cluster_id commit_transaction flush init_transactions "
    "list_topics poll produce purge send_offsets_to_transaction set_sasl_credentials",
}


@pytest.fixture
def store() -> str:
    uri = f"memory://aio-{next_number()}"
    with Store.open(uri, create=True) as opened:
        opened.create_topic("orders", 2)
    return uri


def run(uri: str, body: Callable[[AIOProducer, AIOConsumer], Awaitable[None]], **settings: Any) -> None:
    """Run a test's body with a producer and a consumer, without messages of asyncio's own about what was left."""

    async def main() -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        own = {"group.id": "g", "auto.offset.reset": "earliest"}
        async with (
            AIOProducer({"bootstrap.servers": uri, "transactional.id": "t"}) as producer,
            AIOConsumer({"bootstrap.servers": uri, **own, **settings}) as consumer,
        ):
            await body(producer, consumer)
        assert failures == []

    asyncio.run(asyncio.wait_for(main(), 60))


@each([(AIOConsumer,), (AIOProducer,)])
def test_all_methods_of_confluents_are_there_and_awaited(case: tuple[type]) -> None:
    (kind,) = case
    for name in CONFLUENTS[kind.__name__].split():
        assert inspect.iscoroutinefunction(getattr(kind, name)), name
        assert inspect.getdoc(getattr(kind, name)), name


def test_rows_are_upserted_and_deleted(store: str) -> None:
    with Store.open(store) as opened:
        columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
        opened.create_topic("keyed", 2, schema=columns, settings={"primary.key": "id"})

    async def main() -> None:
        async with AIOProducer({"bootstrap.servers": store, "transactional.id": "rows"}) as producer:
            await producer.init_transactions(30)
            await producer.begin_transaction()
            await producer.produce_arrow("keyed", pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
            await producer.produce_arrow("keyed", pa.table({"id": [2]}), delete=True)
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.produce_arrow("keyed", pa.table({"id": [3], "name": ["never"]}))
            await producer.abort_transaction()
        async with AIOProducer({"bootstrap.servers": store}) as producer:
            rows = pa.table({"id": range(1_000), "name": ["x"] * 1_000})
            calls = [asyncio.create_task(producer.produce_arrow("keyed", rows)) for _ in range(2)]
            await asyncio.sleep(0)
            calls[0].cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await producer.produce_arrow("keyed", pa.table({"id": [1], "name": ["last"]}))
            with pytest.raises(ConfigurationError, match="'name' of topic 'keyed' is missing"):
                await producer.produce_arrow("keyed", pa.table({"id": [1]}))
            with pytest.raises(TypeError, match="batch"):
                await producer.produce_arrow("keyed", [1])

    asyncio.run(asyncio.wait_for(main(), 60))
    found = read_arrow(store, "keyed", columns=["id", "name"]).read_all().to_pylist()
    assert {row["id"]: row["name"] for row in found} == {**dict.fromkeys(range(1_000), "x"), 1: "last"}


def test_records_go_from_a_producer_to_a_consumer(store: str) -> None:
    async def body(_: AIOProducer, consumer: AIOConsumer) -> None:
        async with AIOProducer({"bootstrap.servers": store}) as producer:
            reports = [await producer.produce("orders", f"v{n}", partition=0, headers=[("h", b"1")]) for n in range(20)]
            # Nothing else is called: the producer itself delivers reports.
            assert [(await report).offset() for report in reports] == [*range(20)]
            with pytest.raises(KafkaException, match="partition 7"):
                await producer.produce("orders", b"v", partition=7)
        assigned: list[TopicPartition] = []

        async def on_assign(client: AIOConsumer, partitions: list[TopicPartition]) -> None:
            assert client is consumer
            assigned.extend(partitions)
            assert (await client.committed(partitions))[0].offset < 0
            await client.assign(partitions)

        await consumer.subscribe(["orders"], on_assign=on_assign)
        first = await consumer.poll(timeout=30.0)
        rest = await consumer.consume(19, timeout=30.0)
        assert first is not None
        assert [message.value() for message in [first, *rest]] == [b"v%d" % n for n in range(20)]
        assert rest[0].headers() == [("h", b"1")]
        assert await consumer.poll(0) is None
        await consumer.commit(asynchronous=False)
        assert max(one.offset for one in await consumer.committed(assigned)) == 20

    run(store, body)


def test_transactions(store: str) -> None:
    async def body(producer: AIOProducer, consumer: AIOConsumer) -> None:
        await consumer.assign([TopicPartition("orders", 0, 0)])
        await producer.init_transactions()
        await producer.begin_transaction()
        lost = await producer.produce("orders", b"aborted", partition=0)
        await producer.abort_transaction()
        with pytest.raises(KafkaException):
            await lost
        await producer.begin_transaction()
        kept = await producer.produce("orders", b"committed", partition=0)
        metadata = await consumer.consumer_group_metadata()
        await producer.send_offsets_to_transaction([TopicPartition("orders", 1, 5)], metadata)
        await producer.commit_transaction()
        message = await consumer.poll(30)
        assert message is not None
        assert message.value() == b"committed"
        assert message.offset() == (await kept).offset()
        assert (await consumer.committed([TopicPartition("orders", 1)]))[0].offset == 5

    run(store, body)


def test_messages_of_a_read_that_is_cancelled_reach_the_next_one(store: str) -> None:
    async def body(producer: AIOProducer, consumer: AIOConsumer) -> None:
        await consumer.assign([TopicPartition("orders", 0, 0)])
        for cancelled in (consumer.poll(), consumer.consume(3), consumer.consume(3, 20)):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(cancelled, 0.2)
        await producer.init_transactions()
        await producer.begin_transaction()
        for number in range(5):
            await producer.produce("orders", b"%d" % number, partition=0)
        await producer.commit_transaction()
        found = [await consumer.poll(30) for _ in range(5)]
        assert [one and one.value() for one in found] == [b"%d" % number for number in range(5)]
        assert await consumer.consume(5, 0.1) == []

    run(store, body)


def test_two_tasks_that_read_share_the_messages(store: str) -> None:
    async def body(producer: AIOProducer, consumer: AIOConsumer) -> None:
        await consumer.assign([TopicPartition("orders", 0, 0)])
        readers = [asyncio.create_task(consumer.poll()) for _ in range(3)]
        await asyncio.sleep(0.05)
        await producer.init_transactions()
        await producer.begin_transaction()
        for number in range(3):
            await producer.produce("orders", b"%d" % number, partition=0)
        await producer.commit_transaction()
        found = await asyncio.gather(*readers)
        assert sorted(str(one and one.value()) for one in found) == ["b'0'", "b'1'", "b'2'"]

    run(store, body)


def test_a_read_that_fails_raises_once(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async def body(_: AIOProducer, consumer: AIOConsumer) -> None:
        monkeypatch.setattr(Consumer, "poll", broken)
        with pytest.raises(ZeroDivisionError):
            await consumer.poll(1)
        monkeypatch.undo()
        assert await consumer.poll(0) is None

    run(store, body)


def test_close_ends_a_read_that_was_left_and_what_comes_after_is_refused(store: str) -> None:
    async def body(producer: AIOProducer, consumer: AIOConsumer) -> None:
        await consumer.assign([TopicPartition("orders", 0, 0)])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.poll(), 0.1)
        for client, call in ((consumer, lambda: consumer.poll(1)), (producer, lambda: producer.produce("orders"))):
            await client.close()
            await client.close()
            with pytest.raises(RuntimeError, match="closed"):
                await call()
        with pytest.raises(RuntimeError, match="closed"):
            await consumer.commit()
        assert (len(producer), bool(producer)) == (0, True)

    run(store, body)


def test_more_records_than_the_producer_has_room_for_wait(store: str) -> None:
    async def body(_: AIOProducer, __: AIOConsumer) -> None:
        given = {"bootstrap.servers": store, "queue.buffering.max.messages": 2}
        async with AIOProducer(given) as producer:
            reports = await asyncio.gather(*(producer.produce("orders", b"v", partition=0) for _ in range(20)))
            assert {(await report).offset() for report in reports} == {*range(20)}

    run(store, body)


def test_callbacks_of_settings_run_on_the_loop(store: str) -> None:
    seen: list[Any] = []

    async def on_commit(error: object, partitions: list[TopicPartition]) -> None:
        asyncio.get_running_loop()
        seen.append((error, [one.offset for one in partitions]))

    async def body(_: AIOProducer, consumer: AIOConsumer) -> None:
        await consumer.commit(offsets=[TopicPartition("orders", 0, 3)])
        while not seen:
            await consumer.poll(0.05)
        assert seen == [(None, [3])]

    run(store, body, on_commit=on_commit)


def test_a_users_executor_is_used_and_left_open(store: str) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(2) as executor:
            consumer = AIOConsumer({"bootstrap.servers": store, "group.id": "g"}, executor=executor)
            assert await consumer.assignment() == []
            await consumer.close()
            assert executor.submit(lambda: 1).result() == 1
            wrong: Any = "x"
            with pytest.raises(TypeError, match="executor"):
                AIOProducer({"bootstrap.servers": store}, executor=wrong)

    asyncio.run(main())


def test_a_client_is_made_inside_a_loop(store: str) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        AIOConsumer({"bootstrap.servers": store, "group.id": "g"})


def test_a_producer_that_is_closed_while_it_polls_leaves_no_error(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own polls for reports have ended before: asyncio reported an exception that nothing had retrieved."""
    poll = Producer.poll

    def late(self: Producer, timeout: float | None = -1) -> int:
        time.sleep(0.3)
        return poll(self, timeout)

    monkeypatch.setattr(Producer, "poll", late)

    async def body(_: AIOProducer, __: AIOConsumer) -> None:
        async with AIOProducer({"bootstrap.servers": store}) as producer:
            delivered = await producer.produce("orders", b"v")
            await asyncio.sleep(0)
        assert (await delivered).value() == b"v"
        await asyncio.sleep(0.5)
        del producer
        gc.collect()

    run(store, body)
