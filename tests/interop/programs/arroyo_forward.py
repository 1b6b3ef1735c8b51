"""Arroyo: a stream processor with a strategy that collects, and committed offsets."""

from arroyo.backends.kafka import KafkaConsumer, KafkaPayload, KafkaProducer
from arroyo.backends.kafka.configuration import build_kafka_configuration, build_kafka_consumer_configuration
from arroyo.commit import ONCE_PER_SECOND
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, RunTask
from arroyo.types import Topic
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BROKER = ["localhost:9092"]
AdminClient({"bootstrap.servers": BROKER[0]}).create_topics([NewTopic("events", 1)])["events"].result()
producer = KafkaProducer(build_kafka_configuration({}, bootstrap_servers=BROKER))
for number in range(20):
    sent = producer.produce(Topic("events"), KafkaPayload(None, f"e{number}".encode(), []))
assert sent.result(10).offset == 19
producer.close().result()

settings = build_kafka_consumer_configuration({}, "arroyo", "earliest", bootstrap_servers=BROKER)
seen = []


class Factory:
    def create_with_partitions(self, commit, partitions):
        return RunTask(lambda message: seen.append(message.payload.value), CommitOffsets(commit))

    def shutdown(self):
        pass


processor = StreamProcessor(KafkaConsumer(settings), Topic("events"), Factory(), ONCE_PER_SECOND)
for _ in range(10_000):
    processor._run_once()
    if len(seen) == 20:
        break
processor._shutdown()
consumer = Consumer({"bootstrap.servers": BROKER[0], "group.id": "arroyo"})
print(len(seen), consumer.committed([TopicPartition("events", 0)])[0].offset)
consumer.close()
