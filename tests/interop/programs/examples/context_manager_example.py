"""An administrator, a producer and a consumer, each of which `with` closes."""

import sys

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BROKER = {"bootstrap.servers": sys.argv[1]}

with AdminClient(BROKER) as admin:
    for name, future in admin.create_topics([NewTopic("managed", num_partitions=1, replication_factor=1)]).items():
        print(name, future.result(20))
    admin.poll(timeout=0.1)

with Producer(BROKER) as producer:
    for number in range(5):
        producer.produce(
            "managed",
            key=f"key-{number}",
            value=f"value {number}".encode(),
            callback=lambda error, message: print(error, message.topic(), message.partition(), message.offset()),
        )
        producer.poll(0)
    print("all are produced" if number == 4 else "")

with Consumer({**BROKER, "group.id": "managed", "auto.offset.reset": "earliest"}) as consumer:
    consumer.subscribe(["managed"])
    count = 0
    while count < 5:
        message = consumer.poll(timeout=1.0)
        if message is None:
            continue
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            continue
        count += 1
        print(message.key().decode(), message.value().decode(), message.partition(), message.offset())

try:
    consumer.poll(0)
except RuntimeError:
    print("the consumer is closed")
