"""Credentials reach the object store's client and nothing else: no log record, no error, no repr, no stored object.

Everything that users get is made and used on S3, with faults and without. The credentials differ from all other text.
"""

from __future__ import annotations

import logging
import pickle
import re
import traceback
from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from pyspark_txnlog.options.options import READ, WRITE, ReadOptions, WriteOptions
from sparktxn import Consumer, KafkaException, Producer, Store, TopicPartition
from sparktxn._kafka.settings.consumer import ConsumerSettings
from sparktxn._kafka.settings.producer import ProducerSettings
from sparktxn.admin import AdminClient, NewTopic
from sparktxn.maintenance import Sweeper
from sparktxn.store import read_task
from sparktxn.testing.faultproxy import FaultProxy, RequestFault
from tests.servers import S3Server

pytestmark = pytest.mark.moto

KEY, SECRET, TOKEN = "AKIAxKEYxPA55WORD", "sEcReTxPA55WORDx1", "tOkEnxPA55WORDx2"
TIMEOUT_S = 20.0
buckets = count()


class Told:
    """All texts that users and logs got."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def show(self, *things: object) -> None:
        self.texts += [text for thing in things for text in (repr(thing), str(thing))]

    def call(self, call: Any) -> Any:
        """Calls, and keeps what the error says, with its whole chain and traceback."""
        try:
            return call()
        except (KafkaException, ValueError, RuntimeError) as error:
            self.show(error, error.args)
            self.texts += traceback.format_exception(error)
            return None

    def secrets(self) -> list[str]:
        return [text for text in self.texts if any(secret in text for secret in (KEY, SECRET, TOKEN))]


@pytest.fixture
def store(moto_server: S3Server) -> Iterator[tuple[dict[str, Any], FaultProxy, str]]:
    """(settings, the proxy that they lead to, the bucket)."""
    bucket = f"secrets-{next(buckets)}"
    moto_server.create_bucket(bucket)
    with FaultProxy(moto_server.endpoint_url) as proxy:
        yield (
            {
                "bootstrap.servers": f"s3://{bucket}/store",
                "storage.key": KEY,
                "storage.secret": SECRET,
                "storage.client_kwargs": f'{{"aws_session_token": "{TOKEN}"}}',
                "storage.endpoint_url": proxy.endpoint_url,
                "store.request.timeout.ms": 700,
                "checkpoint.entries": 4,
            },
            proxy,
            bucket,
        )


def use_everything(settings: dict[str, Any], told: Told, group: str) -> None:
    """One pass over all that users call; what fails is recorded."""
    options = {name: value for name, value in settings.items() if name != "bootstrap.servers"}
    admin = AdminClient(settings)
    told.show(admin)
    told.call(lambda: admin.create_topics([NewTopic("t", 2)], request_timeout=TIMEOUT_S)["t"].result(TIMEOUT_S))
    told.call(lambda: told.show(admin.list_topics(timeout=TIMEOUT_S)))
    producer = Producer({**settings, "transactional.id": f"writer-{group}"})
    told.show(producer)
    told.call(lambda: producer.init_transactions(TIMEOUT_S))
    told.call(producer.begin_transaction)
    told.call(lambda: producer.produce("t", b"v", on_delivery=told.show))
    told.call(lambda: producer.flush(TIMEOUT_S))
    told.call(lambda: producer.commit_transaction(TIMEOUT_S))
    told.call(lambda: producer.close(TIMEOUT_S))
    plain = Producer({**settings, "delivery.timeout.ms": 1_000, "linger.ms": 0})
    told.call(lambda: plain.produce("t", b"v", on_delivery=told.show))
    told.call(lambda: plain.flush(TIMEOUT_S))
    told.call(lambda: plain.close(TIMEOUT_S))
    consumer = told.call(lambda: Consumer({**settings, "group.id": group, "error_cb": told.show}))
    if consumer is not None:
        told.show(consumer, consumer.consumer_group_metadata())
        told.call(lambda: consumer.assign([TopicPartition("t", 0, 0), TopicPartition("t", 1, 0)]))
        told.call(lambda: told.show(*consumer.consume(2, TIMEOUT_S)))
        told.call(lambda: consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False))
        told.call(consumer.close)
    handle = told.call(lambda: Store.open(settings["bootstrap.servers"], options=options))
    if handle is not None:
        told.call(lambda: use_store(handle, options, told))
        told.call(handle.close)
    told.call(admin.close)


def use_store(handle: Store, options: dict[str, Any], told: Told) -> None:
    told.show(handle, handle.log, handle.log.objects)
    plan = handle.stage_plan(["t"], timeout_s=TIMEOUT_S)
    told.show(plan)
    stager = plan.open(seed=1, default_topic="t")
    told.show(stager)
    stager.write(pa.table({"value": [b"x"]}))
    staged = stager.finish()
    told.show(*staged)
    told.show(handle.commit(staged, transactional_id="batch", timeout_s=TIMEOUT_S))
    view = handle.view(timeout_s=TIMEOUT_S)
    for task in handle.plan(view, handle.ranges(view)):
        told.show(task, pickle.dumps(task))
        for batch in read_task(task, options):
            told.show(batch.to_pylist())
    handle.log.checkpoint()
    told.show(Sweeper(handle).sweep(TIMEOUT_S))


def test_no_credential_is_told_or_stored(
    store: tuple[dict[str, Any], FaultProxy, str], moto_server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    settings, proxy, bucket = store
    told = Told()
    caplog.set_level(logging.DEBUG, logger="sparktxn")
    # Without faults each call ends well, however busy the machine is.
    use_everything({**settings, "store.request.timeout.ms": 60_000}, told, "fair")
    for fault in (RequestFault.DROP_AFTER, RequestFault.UNAVAILABLE_AFTER):
        proxy.clear()
        for method in ("PUT", "GET"):
            proxy.inject(fault, method=method, path="/store/", times=2)
        use_everything(settings, told, fault.name.lower())
    proxy.clear()
    told.texts += [logging.Formatter().format(record) for record in caplog.records]
    assert len(told.texts) > 150, "all of it was done"
    assert told.secrets() == []
    stored = everything_in(moto_server, bucket)
    assert len(stored) > 20
    assert not [name for name, data in stored.items() if any(text.encode() in data for text in (KEY, SECRET, TOKEN))]


def test_no_credential_is_told_where_nothing_answers(
    store: tuple[dict[str, Any], FaultProxy, str], caplog: pytest.LogCaptureFixture
) -> None:
    settings, _, _ = store
    told = Told()
    caplog.set_level(logging.DEBUG, logger="sparktxn")
    wrong = {**settings, "bootstrap.servers": "s3://no-such-bucket/store"}
    dead = {**settings, "storage.endpoint_url": "http://127.0.0.1:9"}
    for unreachable in (wrong, dead):
        told.call(lambda unreachable=unreachable: Consumer({**unreachable, "group.id": "g"}))
        told.call(lambda unreachable=unreachable: Producer(unreachable).list_topics(timeout=TIMEOUT_S))
    told.texts += [logging.Formatter().format(record) for record in caplog.records]
    assert told.texts
    assert told.secrets() == []


def test_no_credential_is_in_the_repr_of_settings_or_in_their_errors(
    store: tuple[dict[str, Any], FaultProxy, str],
) -> None:
    settings, _, _ = store
    told = Told()
    told.show(ProducerSettings.parse(settings), ConsumerSettings.parse({**settings, "group.id": "g"}))
    spark = {name: str(value) for name, value in settings.items() if name != "bootstrap.servers"}
    told.show(ReadOptions.parse({"path": "s3://b/s", "subscribe": "t", **spark}, READ))
    told.show(WriteOptions.parse({"path": "s3://b/s", **spark}, WRITE))
    for name, value in (
        ("storage.secrets", SECRET),
        ("storage.client_kwargs", f'{{"aws_session_token": "{TOKEN}"'),
        ("storage.client_kwargs", f'["{TOKEN}"]'),
        ("storage.anon", SECRET),
        ("store.request.timeout.ms", "soon"),
    ):
        told.call(lambda name=name, value=value: Producer({**settings, name: value}).list_topics(timeout=TIMEOUT_S))
        told.call(lambda name=name, value=value: Consumer({**settings, name: value, "group.id": "g"}))
        told.call(lambda name=name, value=value: AdminClient({**settings, name: value}).list_topics(timeout=TIMEOUT_S))
    assert len(told.texts) > 20
    assert told.secrets() == []


def everything_in(server: S3Server, bucket: str) -> dict[str, bytes]:
    """All objects of a bucket, by no client of ours."""
    status, answer = server.request("GET", f"/{bucket}?list-type=2&max-keys=1000")
    assert status == 200
    names = re.findall(r"<Key>([^<]*)</Key>", answer.decode())
    return {name: server.request("GET", f"/{bucket}/{name}")[1] for name in names}
