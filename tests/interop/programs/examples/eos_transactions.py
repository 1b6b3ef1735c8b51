"""Read, process, write: offsets are committed with the output, in a transaction for every few records."""

import sys
from base64 import b64encode

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BROKER = {"bootstrap.servers": sys.argv[1]}
COUNT, EACH = 25, 10
topics = [NewTopic("input", 1, 1), NewTopic("output", 1, 1)]
admin = AdminClient(BROKER)
for future in admin.create_topics(topics).values():
    future.result(20)
with Producer(BROKER) as source:
    for number in range(COUNT):
        source.produce("input", f"value {number}", f"key {number}")

reading = {
    **BROKER,
    "group.id": "eos",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
}


def run(limit):
    """Process up to `limit` records; the last transaction of a run that ends early is aborted."""
    consumer = Consumer(reading)
    consumer.assign([TopicPartition("input", 0)])
    producer = Producer({**BROKER, "transactional.id": "eos-example"})
    producer.init_transactions()
    producer.begin_transaction()
    done = 0
    while True:
        producer.poll(0)
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                print("the end, at", message.offset())
                break
            raise AssertionError(message.error())
        done += 1
        producer.produce("output", b64encode(message.value()), b64encode(message.key()))
        if done % EACH == 0:
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
            producer.commit_transaction()
            print("committed", done)
            producer.begin_transaction()
        if done == limit:
            producer.abort_transaction()
            consumer.close()
            print("given up after", done)
            return
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
    producer.commit_transaction()
    consumer.close()
    print("committed", done)


run(14)
run(None)

with Consumer({**reading, "group.id": "check"}) as check:
    check.assign([TopicPartition("output", 0, 0)])
    values = []
    while (message := check.poll(10)) is not None and not message.error():
        values.append(message.value())
print(values == [b64encode(f"value {number}".encode()) for number in range(COUNT)], len(values))
with Consumer(reading) as group:
    print([place.offset for place in group.committed([TopicPartition("input", 0)], timeout=20)])
