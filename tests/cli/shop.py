"""A store in which every verb finds something."""

from __future__ import annotations

import os
from typing import Any

from sparktxn import Producer
from sparktxn.halfmessage import LocalTransactionState, Message, TransactionListener, TransactionMQProducer
from tests.cli.terminal import ok


class _Unknown(TransactionListener):
    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN

    def check_local_transaction(self, message: Any) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN


def store() -> str:
    return os.environ["TXNLOG_STORE"]


def open_transaction(transactional_id: str, topic: str = "orders", partition: int = 0) -> Producer:
    """A producer whose transaction is published, and open."""
    producer = Producer({"bootstrap.servers": store(), "transactional.id": transactional_id})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, "open", partition=partition)
    producer.flush()
    return producer


def half_messages(*bodies: str, group: str = "shop", topic: str = "orders") -> list[str]:
    """Send half messages whose outcome stays unknown; return the ids of their transactions."""
    producer = TransactionMQProducer(group, {"bootstrap.servers": store(), "transaction.check.poll.ms": 3_600_000})
    producer.set_transaction_listener(_Unknown())
    producer.start()
    sent = [producer.send_message_in_transaction(Message(topic, body=body.encode()), None) for body in bodies]
    producer.shutdown()
    return [str(one.transaction_id) for one in sent]


def fill() -> dict[str, str]:
    """Make topics, records, a group, transactional ids and half messages; return names that examples have otherwise."""
    ok("topics", "create", "orders", "-p", "3")
    ok("topics", "create", "copies")
    columns = ["--column", "id int64 not null", "--column", "fare double"]
    ok("topics", "create", "trips", *columns, "--set", "table.formats=delta")
    ok("produce", "-t", "orders", "-p", "0", stdin=b"0\n1\n2\n3\n4\n")
    ok("produce", "-t", "orders", "-K", ":", "--transactional-id", "shop-1", stdin=b"o-1:apples\no-2:pears\n")
    ok("consume", "-t", "orders", "-G", "accounts", "-c", "5", "-X", "group.protocol=consumer")
    first, second = half_messages("one", "two")
    ok("half", "discard", "shop", second)
    return {"t-1": first, "t-2": second}


def create_people() -> None:
    """Make a topic with a key."""
    columns = ["--column", "id int64 not null", "--column", "city string"]
    ok("topics", "create", "people", *columns, "--set", "primary.key=id")


def make_checkpoint() -> None:
    """Let a writer make one."""
    with Producer({"bootstrap.servers": store(), "checkpoint.entries": 1}) as producer:
        for number in range(3):
            producer.produce("copies", str(number))
            producer.flush()
