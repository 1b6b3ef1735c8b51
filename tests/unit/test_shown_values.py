"""What values and clients show of themselves: what they are, never a secret, and never a record as a whole."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from sparktxn import Consumer, Message, Producer, SerializingProducer, Store, TopicPartition
from sparktxn._foundation.process.clock import RandomIds
from sparktxn._kafka.unsupported import _Unsupported
from sparktxn.admin import AdminClient, TopicCollection
from sparktxn.aio import AIOConsumer, AIOProducer
from sparktxn.halfmessage import Message as MessageToSend
from sparktxn.halfmessage import MessageExt, rocketmq5
from tests.each import each

MODULES = [
    "sparktxn",
    *(
        f"sparktxn.{name}"
        for name in ["admin", "aio", "halfmessage", "maintenance", "tables", "transfer", "metrics", "store"]
    ),
    "sparktxn.halfmessage.rocketmq5",
    "sparktxn.store.storemetrics",
]
BASES = {"TransactionListener", "TransactionChecker", "KafkaConsumer"}
"""Classes that users write: what theirs show is theirs."""
SECRET = "pa55word"
LARGE = b"z" * 800_000


@each(MODULES)
def test_all_public_classes_say_what_they_are(name: str) -> None:
    module = importlib.import_module(name)
    for public in module.__all__:
        found = getattr(module, public)
        if inspect.isclass(found) and public not in BASES and not issubclass(found, _Unsupported):
            assert found.__repr__ is not object.__repr__, public


@pytest.fixture
def uri() -> str:
    found = f"memory://{RandomIds().token()}"
    with Store.open(found, create=True) as store:
        store.create_topic("t")
    return found


def test_clients_show_their_store_and_state(uri: str) -> None:
    given = {"bootstrap.servers": uri}
    with Producer({**given, "transactional.id": "orders"}) as producer:
        assert repr(producer) == f"Producer({uri!r}, transactional id 'orders', UNINITIALIZED)"
        producer.init_transactions()
        with producer.transaction():
            assert repr(producer) == f"Producer({uri!r}, transactional id 'orders', IN_TRANSACTION)"
    assert repr(producer) == f"Producer({uri!r}, transactional id 'orders', READY, closed)"
    with SerializingProducer(given) as serializing:
        assert repr(serializing) == f"SerializingProducer({uri!r})"
    with Consumer({**given, "group.id": "g"}) as consumer:
        assert repr(consumer) == f"Consumer({uri!r}, group 'g')"
    with AdminClient(given) as admin:
        assert repr(admin) == f"AdminClient({uri!r})"

    async def shown() -> list[str]:
        async with AIOProducer(given) as producer, AIOConsumer({**given, "group.id": "g"}) as consumer:
            return [repr(producer), repr(consumer)]

    assert asyncio.run(shown()) == [f"AIOProducer({uri!r})", f"AIOConsumer({uri!r}, group 'g')"]
    assert repr(TopicCollection(["t"])) == "TopicCollection(['t'])"


def test_no_client_shows_a_secret(uri: str) -> None:
    given = {"bootstrap.servers": uri, "sasl.username": "shop", "sasl.password": SECRET}
    clients: list[Callable[[], Any]] = [
        lambda: Producer(given),
        lambda: Consumer({**given, "group.id": "g"}),
        lambda: AdminClient(given),
    ]
    for made in clients:
        with made() as client:
            assert SECRET not in repr(client) + client._repr_html_()
    assert SECRET not in repr(rocketmq5.Credentials("shop", SECRET))


def test_a_large_record_is_shown_by_its_size(uri: str) -> None:
    delivered: list[Any] = []
    with Producer({"bootstrap.servers": uri}) as producer:
        producer.produce("t", LARGE, LARGE[:100_000], on_delivery=lambda error, message: delivered.append(message))
        producer.flush()
    with Consumer({"bootstrap.servers": uri, "group.id": "g"}) as consumer:
        consumer.assign([TopicPartition("t", 0, 0)])
        read = consumer.poll(10)
    assert isinstance(read, Message)
    with Store.open(uri) as store:
        view = store.view(["t"])
        stager = store.stage_plan(["t"]).open(seed=0, default_topic="t", inline=True)
        shown = [view, store.plan_view(view), stager, *stager.finish(), store.files("t")]
    ext = MessageExt("t", LARGE)
    for value in (*delivered, read, MessageToSend("t", LARGE), ext, *shown):
        assert len(repr(value)) < 2_000
        assert "zzzz" not in repr(value)
    assert repr(read) == f"Message(topic='t', partition=0, offset=0, key=100000 bytes, value={len(LARGE)} bytes)"
