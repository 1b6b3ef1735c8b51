"""The committed offsets and the lag of a group, partition by partition, by the watermarks."""

import sys

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BROKER = {"bootstrap.servers": sys.argv[1]}
admin = AdminClient(BROKER)
admin.create_topics([NewTopic("watched", 3, 1)])["watched"].result(20)
with Producer(BROKER) as producer:
    for number in range(9):
        producer.produce("watched", f"value {number}", partition=number % 2)

consumer = Consumer({**BROKER, "group.id": "lagging"})
consumer.commit(offsets=[TopicPartition("watched", 0, 3)], asynchronous=False)
for topic in ("watched", "none"):
    found = consumer.list_topics(topic, timeout=10).topics[topic]
    if found.error is not None:
        print(topic, KafkaException(found.error).args[0].name())
        continue
    partitions = [TopicPartition(topic, number) for number in sorted(found.partitions)]
    for place in consumer.committed(partitions, timeout=10):
        low, high = consumer.get_watermark_offsets(place, timeout=10, cached=False)
        offset = "-" if place.offset == OFFSET_INVALID else place.offset
        lag = high - low if place.offset < 0 else high - place.offset
        print(f"{place.topic} [{place.partition}]  {offset}  {lag}")
consumer.close()
