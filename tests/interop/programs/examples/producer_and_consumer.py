"""Lines are produced with a report for each, served while producing; a subscriber prints what it gets, and commits."""

import json
import logging
import sys

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BROKER = sys.argv[1]
LINES = ["apples", "pears", "plums", "", "cherries"]
admin = AdminClient({"bootstrap.servers": BROKER})
admin.create_topics([NewTopic("lines", 1, 1)])["lines"].result(20)


def report(error, message):
    if error:
        print("not delivered:", error)
    else:
        print("delivered to", message.topic(), message.partition(), message.offset())


producer = Producer({"bootstrap.servers": BROKER})
for line in LINES:
    try:
        producer.produce("lines", line, callback=report)
    except BufferError:
        print("the queue is full:", len(producer))
    producer.poll(0)
print("left:", producer.flush(20))

logger = logging.getLogger("consumer")
logger.addHandler(logging.NullHandler())
settings = {
    "bootstrap.servers": BROKER,
    "group.id": "readers",
    "session.timeout.ms": 6000,
    "auto.offset.reset": "earliest",
    "enable.auto.offset.store": False,
    "stats_cb": lambda text: json.loads(text),
    "statistics.interval.ms": 1000,
}
consumer = Consumer(settings, logger=logger)
consumer.subscribe(["lines"], on_assign=lambda _, partitions: print("assigned", len(partitions)))
seen = 0
try:
    while seen < len(LINES):
        message = consumer.poll(timeout=1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        seen += 1
        print(message.topic(), message.partition(), message.offset(), message.key(), message.value())
        consumer.store_offsets(message)
finally:
    consumer.close()

again = Consumer({"bootstrap.servers": BROKER, "group.id": "readers"})
again.subscribe(["lines"])
print("after a restart:", again.poll(2.0))
again.close()
