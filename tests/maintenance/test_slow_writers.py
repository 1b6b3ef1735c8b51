"""Writers whose uploads were born below the segment floor: refused clearly, and accepted with a new upload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sparktxn import Consumer, Producer
from sparktxn._engine.format.commands import InitProducerId, Vacuum
from sparktxn._engine.log.log import Log
from sparktxn.errors import ErrorCode, SegmentExpired, TransactionAborted
from sparktxn.store import Store

OPTIONS = {"store.fsync": "false"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path), options=OPTIONS, create=True) as store:
        store.create_topic("orders", settings={"segment.rows": 1, "append.inline.bytes": 0})
        yield store


def raise_floor(store: Store) -> None:
    """As a vacuum does that finds all uploads so far too old."""
    for number in range(3):
        store.log.submit([InitProducerId(f"{store.log.entry}-{number}")])
    store.log.submit([Vacuum(1, store.log.entry)])


def read(store: Store) -> list[bytes | None]:
    settings = {"bootstrap.servers": store.uri, "group.id": "g", "auto.offset.reset": "earliest", **OPTIONS}
    with Consumer(settings) as consumer:
        consumer.subscribe(["orders"])
        return [message.value() for message in consumer.consume(10, 1.0)]


@pytest.mark.holes(9)
def test_a_transaction_is_aborted_and_the_next_one_commits(store: Store) -> None:
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "job", **OPTIONS}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("orders", b"slow")
        assert producer._outbox is not None
        producer._outbox.upload()
        raise_floor(store)
        with pytest.raises(TransactionAborted, match="upload its records again") as aborted:
            producer.commit_transaction()
        assert aborted.value.error.txn_requires_abort()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.produce("orders", b"again")
        producer.commit_transaction()
    assert read(store) == [b"again"]


@pytest.mark.holes(9)
def test_outside_transactions_the_records_are_reported_as_failed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = []
    born, slow = Log.born, [True]
    monkeypatch.setattr(Log, "born", lambda log: 1 if slow else born(log))
    raise_floor(store)
    with Producer({"bootstrap.servers": store.uri, **OPTIONS}) as producer:
        producer.produce("orders", b"slow", on_delivery=lambda error, message: reports.append(error))
        producer.flush(5)
        slow.clear()
        producer.produce("orders", b"again", on_delivery=lambda error, message: reports.append(error))
        producer.flush(5)
    assert reports[0] is not None
    assert reports[0].code() == ErrorCode.KAFKA_STORAGE_ERROR
    assert reports[1] is None
    assert read(store) == [b"again"]


@pytest.mark.holes(9)
def test_staged_segments_that_expired_are_staged_again(store: Store) -> None:
    rows = pa.table({"value": pa.array([b"staged"], pa.binary())}).to_batches()[0]

    def staged() -> list:
        stager = store.stage_plan(["orders"]).open(seed=1, default_topic="orders")
        stager.write(rows)
        return stager.finish()

    slow = staged()
    raise_floor(store)
    with pytest.raises(SegmentExpired, match="again"):
        store.commit(slow, transactional_id="sink")
    store.commit(staged(), transactional_id="sink")
    assert read(store) == [b"staged"]
