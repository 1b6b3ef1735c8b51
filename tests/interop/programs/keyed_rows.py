"""Writes rows and deletes of a keyed topic through the gateway of the first argument, and prints what a consumer has.

The client confluent-kafka finds partitions as Java's do, with librdkafka's ``partitioner=murmur2``.
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import Consumer, KafkaError, Message, Producer

ADDRESS, TOPIC, PARTITIONER = sys.argv[1:4]
failed: list[str] = []


def delivered(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        failed.append(error.str())


def main() -> None:
    settings = {"bootstrap.servers": ADDRESS, "partitioner": PARTITIONER, "transactional.id": f"keyed-{PARTITIONER}"}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(40):
        producer.produce(TOPIC, json.dumps({"id": number, "name": f"n{number}"}), str(number), on_delivery=delivered)
    for number in range(0, 40, 4):
        producer.produce(TOPIC, None, str(number), on_delivery=delivered)
    producer.flush(30)
    if failed:
        producer.abort_transaction(30)
        print(json.dumps({"failed": len(failed)}))
        return
    producer.commit_transaction(30)
    own = {"group.id": "keyed", "auto.offset.reset": "earliest", "enable.partition.eof": False}
    consumer = Consumer({"bootstrap.servers": ADDRESS, **own})
    consumer.subscribe([TOPIC])
    table: dict[str, str] = {}
    read = 0
    while read < 50:
        for message in consumer.consume(50, 5):
            read += 1
            key = message.key().decode()
            table.pop(key, None)
            if message.value() is not None:
                table[key] = json.loads(message.value())["name"]
    consumer.close()
    print(json.dumps({"failed": 0, "table": table}))


main()
