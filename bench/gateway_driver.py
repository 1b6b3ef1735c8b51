"""What `bench.gateway` runs with confluent-kafka, against a broker and a gateway in turns: a line of JSON a case.

It reads lines ``<case> <servers>`` from standard input, and answers each one with a number, or several.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

_VALUE = b"x" * 100
_LARGE, _LARGE_ROUNDS = 10_000, 8
_SMALL, _SMALL_ROUNDS = 100, 40
_CLIENTS, _CLIENT_ROUNDS = 50, 4
_BULKS = ((_VALUE, 400_000), (b"k" * 1_000, 100_000), (b"y" * 1_000_000, 60))
"""What is written and read without transactions: a value, and how many records of it."""
_LATENCY_ROWS = 400


def _topic(servers: str) -> str:
    name = f"b-{uuid.uuid4().hex[:12]}"
    producer = Producer({"bootstrap.servers": servers})
    while not producer.list_topics(name, 30).topics[name].partitions:  # it is made by being asked for
        time.sleep(0.1)
    return name


def _transactions(servers: str, topic: str, rows: int, rounds: int) -> float:
    """Seconds for `rounds` transactions of `rows` records."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": uuid.uuid4().hex, "linger.ms": 0})
    producer.init_transactions(60)
    started = time.perf_counter()
    for _ in range(rounds):
        producer.begin_transaction()
        for _ in range(rows):
            producer.produce(topic, _VALUE, partition=0)
            producer.poll(0)
        producer.commit_transaction(60)
    return time.perf_counter() - started


def _read(servers: str, topic: str, rows: int) -> float:
    """Seconds for reading `rows` committed records from the beginning."""
    settings = {"group.id": "none", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    started = time.perf_counter()
    read = 0
    while read < rows:
        # it waits for as many as it is asked for: more than there are would measure its time-out
        read += sum(message.error() is None for message in consumer.consume(min(10_000, rows - read), 1))
    taken = time.perf_counter() - started
    consumer.close()
    return taken


def large(servers: str) -> list[float]:
    """Records a second, written and read, in transactions of 10,000."""
    topic = _topic(servers)
    rows = _LARGE * _LARGE_ROUNDS
    return [
        rows / _transactions(servers, topic, _LARGE, _LARGE_ROUNDS),
        rows / _read(servers, topic, rows),
    ]


def small(servers: str) -> list[float]:
    """Transactions of 100 records a second."""
    return [_SMALL_ROUNDS / _transactions(servers, _topic(servers), _SMALL, _SMALL_ROUNDS)]


def clients(servers: str) -> list[float]:
    """Transactions of 100 records a second, of 50 clients at once."""
    topic = _topic(servers)
    ready = threading.Barrier(_CLIENTS + 1)

    def run() -> None:
        producer = Producer({"bootstrap.servers": servers, "transactional.id": uuid.uuid4().hex, "linger.ms": 0})
        producer.init_transactions(60)
        ready.wait()
        for _ in range(_CLIENT_ROUNDS):
            producer.begin_transaction()
            for _ in range(_SMALL):
                producer.produce(topic, _VALUE, partition=0)
            producer.commit_transaction(60)

    threads = [threading.Thread(target=run) for _ in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return [_CLIENTS * _CLIENT_ROUNDS / (time.perf_counter() - started)]


def bulk(servers: str) -> list[float]:
    """Megabytes of records a second, written without transactions and read: of 100 bytes, 1 KB and 1 MB."""
    figures = []
    for value, rows in _BULKS:
        topic = _topic(servers)
        settings = {"linger.ms": 50, "message.max.bytes": 2_000_000, "queue.buffering.max.messages": 1_000_000}
        producer = Producer({"bootstrap.servers": servers, "batch.size": 1_000_000, **settings})
        started = time.perf_counter()
        for _ in range(rows):
            producer.produce(topic, value, partition=0)
        producer.flush(120)
        megabytes = rows * len(value) / 1e6
        figures += [megabytes / (time.perf_counter() - started), megabytes / _read(servers, topic, rows)]
    return figures


def latency(servers: str) -> list[float]:
    """Milliseconds from a record's production to its reading: the median and the 99th of 100."""
    topic = _topic(servers)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[float] = []

    def read() -> None:
        while len(found) < _LATENCY_ROWS:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append((time.perf_counter() - float(message.value())) * 1000)

    reader = threading.Thread(target=read)
    reader.start()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for _ in range(_LATENCY_ROWS):
        producer.produce(topic, repr(time.perf_counter()).encode(), partition=0)
        producer.poll(0)
        time.sleep(0.01)
    producer.flush(60)
    reader.join()
    consumer.close()
    ordered = sorted(found[20:])  # the first ones connect
    return [ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]]


CASES: dict[str, Callable[[str], list[float]]] = {
    each.__name__: each for each in (large, small, clients, bulk, latency)
}


def main() -> None:
    """Runs what standard input asks for."""
    for line in sys.stdin:
        case, servers = line.split()
        print(json.dumps(CASES[case](servers)), flush=True)


if __name__ == "__main__":
    main()
