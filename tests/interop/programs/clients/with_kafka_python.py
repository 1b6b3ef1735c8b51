"""Does with kafka-python what `tests/interop/gateway/clients.py` asks of each client."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

PLAN = json.loads(sys.argv[1])
CODECS, GROUP, COMMITTED, ABORTED = PLAN["codecs"], PLAN["group"], PLAN["committed"], PLAN["aborted"]
WAIT_S = PLAN["wait_s"]
IS_OLD = kafka.__version__.startswith("2.0.")
FIVE_SECONDS = {"api_version_auto_timeout_ms" if IS_OLD else "bootstrap_timeout_ms": 5000}


def known(mechanism: str = PLAN["mechanisms"][0], password: str = PLAN["password"]) -> dict[str, Any]:
    settings = {"bootstrap_servers": PLAN["address"], "security_protocol": "SASL_PLAINTEXT"}
    names = {"sasl_mechanism": mechanism, "sasl_plain_username": PLAN["user"], "sasl_plain_password": password}
    return {**settings, **names}


def is_known(mechanism: str, password: str) -> bool:
    try:
        admin = KafkaAdminClient(**known(mechanism, password), **FIVE_SECONDS)
    except KafkaError:
        return False
    admin.close()
    return True


def created(admin: Any, *names: str) -> None:
    admin.create_topics([NewTopic(name, 2, 1) for name in names])


def produce(topic: str, values: list[str], **settings: Any) -> None:
    producer = KafkaProducer(**known(), **settings)
    sent = [producer.send(topic, value.encode(), partition=place % 2) for place, value in enumerate(values)]
    for future in sent:
        future.get(WAIT_S)
    producer.close()


@contextmanager
def member(topic: str, group: str) -> Iterator[Any]:
    settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer(**known(), **settings, **({} if IS_OLD else {"isolation_level": "read_committed"}))
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Any, count: int) -> list[str]:
    found: list[str] = []
    end_s = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < end_s:
        for records in consumer.poll(1000).values():
            found += [record.value.decode() for record in records]
    return sorted(found)


def codecs(admin: Any) -> dict[str, list[str]]:
    found = {}
    for codec, values in CODECS.items():
        topic = f"{PLAN['topic']}-{codec}"
        created(admin, topic)
        produce(topic, values, compression_type=None if codec == "none" else codec)
        with member(topic, topic) as consumer:
            found[codec] = read(consumer, len(values))
    return found


def group(admin: Any) -> list[list[str]]:
    topic = f"{PLAN['topic']}-group"
    created(admin, topic)
    found = []
    for values in GROUP:
        produce(topic, values)
        with member(topic, topic) as consumer:
            found.append(read(consumer, len(values)))
            consumer.commit()
    return found


def transaction(admin: Any) -> list[str]:
    source, target = f"{PLAN['topic']}-source", f"{PLAN['topic']}-transaction"
    created(admin, source, target)
    produce(source, COMMITTED)
    producer = KafkaProducer(**known(), transactional_id=target)
    producer.init_transactions()
    producer.begin_transaction()
    for value in ABORTED:
        producer.send(target, value.encode())
    producer.flush(WAIT_S)
    producer.abort_transaction()
    with member(source, source) as consumer:
        producer.begin_transaction()
        for value in read(consumer, len(COMMITTED)):
            producer.send(target, value.encode())
        ends = {TopicPartition(source, place): consumer.position(TopicPartition(source, place)) for place in (0, 1)}
        offsets = {partition: OffsetAndMetadata(end, "", -1) for partition, end in ends.items()}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
    producer.close()
    with member(target, target) as consumer:
        return read(consumer, len(COMMITTED))


def administration(admin: Any) -> dict[str, Any]:
    topic = f"{PLAN['topic']}-admin"
    created(admin, topic)
    changed = {"retention.ms": "86400000"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, changed)])
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    found = {
        "partitions": len(admin.describe_topics([topic])[0]["partitions"]),
        "retention.ms": retention_of(described),
    }
    admin.delete_topics([topic])
    return {**found, "is_deleted": topic not in admin.list_topics()}


def retention_of(described: Any) -> str:
    if IS_OLD:
        entries = described[0].resources[0][4]
        return next(str(entry[1]) for entry in entries if entry[0] == "retention.ms")
    (settings,) = (named for topics in described.values() for named in topics.values())
    return str(settings["retention.ms"]["value"])


def main() -> None:
    admin = KafkaAdminClient(**known())
    parts: dict[str, Callable[[Any], Any]] = {
        "codecs": codecs,
        "group": group,
        "transaction": transaction,
        "admin": administration,
    }
    done = {name: parts[name](admin) for name in PLAN["parts"]}
    logins = [each for each in PLAN["mechanisms"] if is_known(each, PLAN["password"])]
    is_refused = not is_known(PLAN["mechanisms"][0], "wrong")
    print(json.dumps({"version": kafka.__version__, "logins": logins, "is_refused": is_refused, **done}))


main()
