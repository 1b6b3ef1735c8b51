"""Errors that a new user meets: each names what is wrong, where, and what to type."""

from __future__ import annotations

import logging
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from fsspec.registry import _registry as imported_by_fsspec

from sparktxn import Consumer, KafkaException, Producer, Store
from sparktxn.admin import AdminClient, NewTopic
from sparktxn.errors import ConfigurationError, DamagedObject, StoreUnavailable


@pytest.fixture
def store(tmp_path: Path) -> str:
    uri = str(tmp_path / "log")
    with AdminClient({"bootstrap.servers": uri}) as admin:
        admin.create_topics([NewTopic("orders", 1)])["orders"].result()
    return uri


def shown(error: BaseException) -> str:
    """The traceback, as a user sees it."""
    return "".join(traceback.format_exception(error))


def test_an_unknown_scheme_names_the_extra() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"'foo' is unknown: .* s3, s3a, or a path\. Extras: for s3:// install .*pip install '\.\[s3\]'",
    ):
        Store.open("foo://bucket/x")


@pytest.mark.parametrize("missing", ["s3fs", "fsspec"])
def test_s3_without_its_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    # What fsspec has imported for an earlier test it keeps.
    for scheme in ("s3", "s3a"):
        monkeypatch.delitem(imported_by_fsspec, scheme, raising=False)
    if missing == "fsspec":
        monkeypatch.delitem(sys.modules, "sparktxn._engine.objectstore.remote", raising=False)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[s3\]'") as raised:
        Store.open("s3://bucket/x")
    assert "direct cause" not in shown(raised.value)


@pytest.mark.parametrize("address", ["localhost:9092", "kafka-1:9092,kafka-2:9092"])
def test_a_brokers_address_is_refused_when_the_client_is_made(address: str) -> None:
    for kind in (Producer, Consumer, AdminClient):
        with pytest.raises(ConfigurationError, match=r"is the address of a broker: .* such as /data/log or s3://"):
            kind({"bootstrap.servers": address, "group.id": "g"})


def test_a_store_that_may_not_be_written_says_permission(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_file = os.open

    def refused(path: str, *more: Any, **named: Any) -> int:
        if Path(path).name.startswith("."):
            raise PermissionError(13, "Permission denied")
        return open_file(path, *more, **named)

    monkeypatch.setattr(os, "open", refused)
    with AdminClient({"bootstrap.servers": store}) as admin:
        made = admin.create_topics([NewTopic("new", 1)])["new"]
        with pytest.raises(ConfigurationError, match=r"no permission to write to the store .*: give this"):
            made.result()


def test_the_nearest_topic_is_named_and_the_traceback_has_no_other_error(store: str) -> None:
    with Producer({"bootstrap.servers": store}) as producer:
        with pytest.raises(KafkaException, match=r"did you mean 'orders'\? Topics are created with") as raised:
            producer.produce("oders", b"x")
        with pytest.raises(KafkaException, match=r"log\. Topics are created with"):
            producer.produce("zzzzz", b"x")
    assert "KeyError" not in shown(raised.value)


def test_a_damaged_object_names_its_store_and_what_to_do(store: str) -> None:
    with Producer({"bootstrap.servers": store, "store.append.inline.bytes": 0}) as producer:
        producer.produce("orders", b"x" * 100)
    (segment,) = Path(store, "topics").rglob("*.parquet")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 255
    segment.write_bytes(data)
    with Consumer({"bootstrap.servers": store, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(DamagedObject) as raised:
            consumer.poll(10)
    advice = f"txnlog verify {store} names all that is damaged; restore it from a back-up"
    assert str(raised.value).startswith(f"object {raised.value.object_name!r} in the store {store!r} is damaged: its ")
    assert str(raised.value).endswith(advice)
    assert raised.value.args[0].str() == str(raised.value)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_damaged_log_names_its_store(store: str) -> None:
    (first,) = Path(store, "_log").glob("*1.json")
    first.write_text("{}")
    with pytest.raises(DamagedObject, match=f"in the store '{store}' is damaged"):
        Store.open(store).topics()


def test_missing_credentials_say_where_they_come_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    options = {"storage.endpoint_url": "http://127.0.0.1:9"}
    with pytest.raises(StoreUnavailable, match=r"give storage.key and storage.secret, a profile of .* has a role"):
        Store.open("s3://without-credentials/x", options=options)


def test_ignored_security_is_one_warning_without_values(store: str, caplog: pytest.LogCaptureFixture) -> None:
    secured = {"security.protocol": "SASL_SSL", "sasl.username": "me", "sasl.password": "hunter2", "client.rack": "a"}
    with caplog.at_level(logging.WARNING, "sparktxn"), Producer({"bootstrap.servers": store, **secured}) as producer:
        producer.produce("orders", b"x")
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.endswith("(storage.*): sasl.password, sasl.username, security.protocol")
    assert "hunter2" not in caplog.text
