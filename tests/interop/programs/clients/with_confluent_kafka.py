"""Does with confluent-kafka, and so librdkafka, what `tests/interop/gateway/clients.py` asks of each client."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

PLAN = json.loads(sys.argv[1])
CODECS, GROUP, COMMITTED, ABORTED = PLAN["codecs"], PLAN["group"], PLAN["committed"], PLAN["aborted"]
WAIT_S = PLAN["wait_s"]


def known(mechanism: str = PLAN["mechanisms"][0], password: str = PLAN["password"]) -> dict[str, Any]:
    settings = {"bootstrap.servers": PLAN["address"], "security.protocol": "SASL_PLAINTEXT"}
    names = {"sasl.mechanism": mechanism, "sasl.username": PLAN["user"], "sasl.password": password}
    return {**settings, **names, "error_cb": lambda error: print(error, file=sys.stderr)}


def is_known(mechanism: str, password: str) -> bool:
    try:
        return bool(AdminClient(known(mechanism, password)).list_topics(timeout=5).brokers)
    except KafkaException:
        return False


def created(admin: AdminClient, *names: str) -> None:
    for future in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        future.result(WAIT_S)


def produce(topic: str, values: list[str], **settings: Any) -> None:
    producer = Producer({**known(), "enable.idempotence": True, **settings})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=value, partition=number % 2)
    assert producer.flush(WAIT_S) == 0


@contextmanager
def member(topic: str, group: str, **more: Any) -> Iterator[Consumer]:
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**known(), **settings, **more})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, count: int) -> list[str]:
    found: list[str] = []
    end_s = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < end_s:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.value().decode())
    return sorted(found)


def codecs(admin: AdminClient) -> dict[str, list[str]]:
    found = {}
    for codec, values in CODECS.items():
        topic = f"{PLAN['topic']}-{codec}"
        created(admin, topic)
        produce(topic, values, **{"compression.type": codec})
        with member(topic, topic) as consumer:
            found[codec] = read(consumer, len(values))
    return found


def group(admin: AdminClient, name: str = "group", **more: Any) -> list[list[str]]:
    topic = f"{PLAN['topic']}-{name}"
    created(admin, topic)
    found = []
    for values in GROUP:
        produce(topic, values)
        with member(topic, topic, **more) as consumer:
            found.append(read(consumer, len(values)))
            consumer.commit(asynchronous=False)
    return found


def newer_group(admin: AdminClient) -> list[list[str]]:
    return group(admin, "newer-group", **{"group.protocol": "consumer"})


def transaction(admin: AdminClient) -> list[str]:
    source, target = f"{PLAN['topic']}-source", f"{PLAN['topic']}-transaction"
    created(admin, source, target)
    produce(source, COMMITTED)
    producer = Producer({**known(), "transactional.id": target})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for value in ABORTED:
        producer.produce(target, value)
    producer.flush(WAIT_S)
    producer.abort_transaction(WAIT_S)
    with member(source, source) as consumer:
        producer.begin_transaction()
        for value in read(consumer, len(COMMITTED)):
            producer.produce(target, value)
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
        producer.commit_transaction(WAIT_S)
    with member(target, target) as consumer:
        return read(consumer, len(COMMITTED))


def administration(admin: AdminClient) -> dict[str, Any]:
    topic = f"{PLAN['topic']}-admin"
    created(admin, topic)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    changed = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"retention.ms": "86400000"})
    for future in admin.alter_configs([changed]).values():
        future.result(WAIT_S)
    (described,) = admin.describe_configs([resource]).values()
    found = {
        "partitions": len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions),
        "retention.ms": described.result(WAIT_S)["retention.ms"].value,
    }
    for future in admin.delete_topics([topic]).values():
        future.result(WAIT_S)
    return {**found, "is_deleted": topic not in admin.list_topics(timeout=WAIT_S).topics}


def main() -> None:
    admin = AdminClient(known())
    parts: dict[str, Callable[[AdminClient], Any]] = {
        "codecs": codecs,
        "group": group,
        "newer_group": newer_group,
        "transaction": transaction,
        "admin": administration,
    }
    done = {name: parts[name](admin) for name in PLAN["parts"]}
    logins = [each for each in PLAN["mechanisms"] if is_known(each, PLAN["password"])]
    is_refused = not is_known(PLAN["mechanisms"][0], "wrong")
    version = confluent_kafka.libversion()[0]
    print(json.dumps({"version": version, "logins": logins, "is_refused": is_refused, **done}))


main()
