"""What `bench.reading` runs next to confluent-kafka: a broker's records in transactions of 100, and a poll() loop.

Prints one line of JSON: the messages per second of each round.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.records import produce_small


def write(servers: str, rows: int) -> None:
    """Writes `rows` records to topic ``t`` as `bench.reading.small_transactions` does."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "small", "compression.type": "zstd"})
    produce_small(producer, rows)


def poll_rate(servers: str, rows: int, group: str) -> float:
    """Messages per wall second of a `poll()` loop over all records, from its beginning to the last of them."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, "isolation.level": "read_committed", **settings})
    consumer.subscribe(["t"])
    read = 0
    # Joining a group takes seconds, which are not part of reading.
    while not consumer.assignment():
        read += consumer.poll(0.1) is not None
    started = time.perf_counter()
    first = read
    while read < rows:
        message = consumer.poll(10)
        if message is not None and message.error() is None:
            read += 1
    taken = (read - first) / (time.perf_counter() - started)
    consumer.close()
    return taken


def main(servers: str, rows: int, rounds: int) -> None:
    """Writes, then reads several times."""
    write(servers, rows)
    print(json.dumps([poll_rate(servers, rows, f"reader-{number}") for number in range(rounds)]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
