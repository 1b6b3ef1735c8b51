"""confluent_kafka.aio: records and a transaction, from a producer to a consumer, all awaited."""

import asyncio

from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.aio import AIOConsumer, AIOProducer

BROKER = {"bootstrap.servers": "localhost:9092"}


async def main() -> None:
    AdminClient(BROKER).create_topics([NewTopic("orders", 2)])["orders"].result()
    producer = AIOProducer(BROKER)
    reports = [await producer.produce("orders", value=f"plain-{number}") for number in range(20)]
    await producer.flush()
    offsets = [(await report).offset() for report in reports]
    assert sorted(offsets)[0] == 0, offsets
    await producer.close()

    sender = AIOProducer({**BROKER, "transactional.id": "sender"})
    await sender.init_transactions()
    for outcome in ("aborted", "committed"):
        await sender.begin_transaction()
        report = await sender.produce("orders", value=outcome, partition=0)
        await sender.flush()
        await report
        await (sender.abort_transaction() if outcome == "aborted" else sender.commit_transaction())
    await sender.close()

    assigned = []

    async def on_assign(consumer: AIOConsumer, partitions: list) -> None:
        assigned.extend(partitions)
        await consumer.assign(partitions)

    consumer = AIOConsumer({**BROKER, "group.id": "readers", "auto.offset.reset": "earliest"})
    await consumer.subscribe(["orders"], on_assign=on_assign)
    values = []
    while len(values) < 21:
        message = await consumer.poll(timeout=10.0)
        assert message is not None, values
        assert message.error() is None, message.error()
        values.append(message.value().decode())
    await consumer.commit(asynchronous=False)
    committed = await consumer.committed(assigned)
    await consumer.close()
    print(len(assigned), len(values), sorted(set(values) - {f"plain-{n}" for n in range(20)}))
    print(sum(max(0, partition.offset) for partition in committed) >= 21)


asyncio.run(main())
