"""What a member of a group does that test_group_members.py kills and pauses: it copies "in" to "out", exactly once."""

from __future__ import annotations

import json
from typing import Any

from sparktxn import Consumer, KafkaException, Message, Producer, TopicPartition
from tests.crash.chaos_workload import CALL_S, ROLES, Journal, Task, transactional_producer, until_known

__all__ = ["GROUP", "PARTITIONS", "SESSIONS", "share"]

GROUP = "sharing"
PARTITIONS = 16
SESSIONS = 2
"""A session time-out is so many times that of a transaction."""


def member_settings(task: Task) -> dict[str, Any]:
    """The settings of a member: by its number, of one or the other protocol, static or not."""
    number = int(task.name.rsplit("-", 1)[1])
    session_ms = SESSIONS * task.timeout_ms
    protocol: list[dict[str, Any]] = [
        {},
        {"partition.assignment.strategy": "cooperative-sticky"},
        {"group.protocol": "consumer"},
        {"group.instance.id": task.name},
    ]
    return {
        "group.id": GROUP,
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": session_ms // 4,
        "fetch.wait.max.ms": 1_000 if "://" in task.uri else 100,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "client.id": f"{task.name}.{task.incarnation}",
        **protocol[number % len(protocol)],
    }


def share(task: Task, journal: Journal) -> int:
    """Copies what the group gives it, batch after batch, until it is to end."""
    random = task.random()
    producer = transactional_producer(task, journal)
    heard = {
        what: lambda _, partitions, what=what: journal.note(what, partitions=[p.partition for p in partitions])
        for what in ("on_assign", "on_revoke", "on_lost")
    }
    with Consumer({**task.settings, **member_settings(task)}) as consumer:
        consumer.subscribe(["in"], **heard)
        while not task.last():
            messages = consumer.consume(random.randint(1, 20), 0.2)
            if not messages:
                continue
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
            try:
                _copy(producer, consumer, messages, flushes=random.random() < 0.3)
            except KafkaException as error:
                told = error.args[0]
                if told.fatal() or not told.txn_requires_abort():
                    raise
                journal.note("aborts", code=told.name(), reason=told.str())
                until_known(journal, producer.abort_transaction)
                _rewind(consumer)
            else:
                journal.note("committed", rows=len(messages))
    return 0


def _copy(producer: Producer, consumer: Consumer, messages: list[Message], *, flushes: bool) -> None:
    producer.begin_transaction()
    for message in messages:
        source = {
            "partition": message.partition(),
            "offset": message.offset(),
            "value": (message.value() or b"").decode(),
        }
        producer.produce("out", json.dumps(source), partition=message.partition() or 0)
    if flushes:
        producer.flush(CALL_S)
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
    producer.commit_transaction()


def _rewind(consumer: Consumer) -> None:
    """Goes back to what is committed; what was taken away meanwhile is not there any more."""
    assigned = consumer.assignment()
    for found in consumer.committed(assigned, CALL_S):
        consumer.seek(TopicPartition(found.topic, found.partition, max(0, found.offset)))


ROLES["member"] = share
