"""The files in conf/ make clients that work: each is loaded as docs/configuration.md says, with another address."""

from __future__ import annotations

from pathlib import Path

import sparktxn
from sparktxn.admin import AdminClient, NewTopic
from tests.pages.blocks import ROOT
from tests.servers import S3Server

CONF = ROOT / "conf"


def settings(file: str, address: str, **more: object) -> dict[str, object]:
    given = dict(sparktxn.read_properties(CONF / file))
    assert given.pop("bootstrap.servers")
    return {"bootstrap.servers": address, **given, **more}


def test_the_files_for_a_local_disk_produce_in_a_transaction_and_consume(tmp_path: Path) -> None:
    address = str(tmp_path)
    config = {**sparktxn.read_properties(CONF / "topic.properties"), "append.inline.bytes": "0"}
    topic = NewTopic("orders", 1, config=config)
    with AdminClient({"bootstrap.servers": address}) as admin:
        admin.create_topics([topic])["orders"].result()
    with sparktxn.Producer(settings("producer.properties", address)) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("orders", "2 apples")
    assert len(list(tmp_path.rglob("*.arrow"))) == 1  # as topic.properties says
    with sparktxn.Consumer(settings("consumer.properties", address)) as consumer:
        consumer.subscribe(["orders"])
        (message,) = consumer.consume(1, timeout=10)
        assert message.value() == b"2 apples"
    with AdminClient({"bootstrap.servers": address}) as admin:
        assert admin.list_consumer_groups().result().valid == []  # the file leaves commits to the program


def test_the_file_for_s3_produces(moto_server: S3Server) -> None:
    moto_server.create_bucket("conf")
    address = "s3://conf/shop"
    with AdminClient({"bootstrap.servers": address, **moto_server.options}) as admin:
        admin.create_topics([NewTopic("orders", 1)])["orders"].result()
    with sparktxn.Producer(settings("producer-s3.properties", address, **moto_server.options)) as producer:
        reports: list[object] = []
        producer.produce("orders", "2 apples", on_delivery=lambda error, _: reports.append(error))
        producer.flush()
        assert reports == [None]
