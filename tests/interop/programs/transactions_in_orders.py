"""Fills a Kafka topic `orders` with a committed and an aborted transaction; a second run adds two records more."""

from __future__ import annotations

import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

settings = {"bootstrap.servers": sys.argv[1]}
runs = sys.argv[2]


def write(producer: Producer, count: int) -> None:
    producer.begin_transaction()
    for number in range(count):
        producer.produce("orders", f"{runs}-{number}", key=f"o-{number}", headers=[("n", b"1")], partition=number % 2)


producer = Producer({**settings, "transactional.id": "shop"})
producer.init_transactions(20)
if runs == "first":
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(20)
    write(producer, 4)
    producer.flush(20)
    producer.abort_transaction(20)
    write(producer, 24)
else:
    write(producer, 2)
producer.commit_transaction(20)
