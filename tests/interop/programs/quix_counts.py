"""Quix Streams: counts by key with state and a changelog topic, exactly once, over a restart."""

import logging
import sys

from confluent_kafka import Consumer, Producer
from quixstreams import Application

BROKER = "localhost:9092"
folder, run = sys.argv[1:]
logging.getLogger("quixstreams").setLevel(logging.WARNING)

app = Application(
    broker_address=BROKER,
    consumer_group="counts",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    state_dir=f"{folder}/state-{run}",  # a new one each time: the second run restores it from the changelog topic
    commit_every=10,
)
words = app.topic("words", value_deserializer="string", key_deserializer="string")
counts = app.topic("counts", value_serializer="json", key_serializer="string")


def counted(_value, state) -> int:
    total = state.get("total", 0) + 1
    state.set("total", total)
    return total


frame = app.dataframe(words)
frame = frame.apply(counted, stateful=True)
frame = frame.to_topic(counts)

producer = Producer({"bootstrap.servers": BROKER})
for number in range(30):
    producer.produce("words", value="x", key=f"k{number % 3}")
producer.flush()
app.run(timeout=5.0)

reader = Consumer({"bootstrap.servers": BROKER, "group.id": f"check-{run}", "auto.offset.reset": "earliest"})
reader.subscribe(["counts"])
last = {}
seen = 0
while (message := reader.poll(3.0)) is not None:
    seen += 1
    last[message.key().decode()] = int(message.value())
reader.close()
print(f"run {run}: {seen} results, {sorted(last.items())}")
