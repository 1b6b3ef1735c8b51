"""Records that one request cannot store are refused at once; all others are stored, however uneven they are."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from sparktxn import CommandRefused, Consumer, KafkaError, KafkaException, Producer, Store, TopicPartition
from sparktxn.admin import AdminClient, NewTopic
from tests.compatibility.consume_all import consume_all

MIB = 1024 * 1024
LARGEST = 47 * MIB
RAISED = {"message.max.bytes": 1_000_000_000}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    address = str(tmp_path / "store")
    with AdminClient({"bootstrap.servers": address}) as admin:
        large = NewTopic("large", 1, config={"max.message.bytes": 2**30})
        for future in admin.create_topics([large, NewTopic("usual", 1)]).values():
            future.result()
    return address


def transactional(uri: str) -> Producer:
    producer = Producer({"bootstrap.servers": uri, "transactional.id": "x", **RAISED})
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def sizes_in(uri: str, topic: str) -> list[int]:
    with Consumer({"bootstrap.servers": uri, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        tables = consume_all(consumer, lambda timeout: consumer.consume_arrow(timeout=timeout))
        return [len(value.as_py()) for table in tables for value in table.column("value")]


def test_a_record_above_what_one_request_stores_is_refused_by_produce(uri: str) -> None:
    with transactional(uri) as producer:
        began_s = time.process_time()
        with pytest.raises(KafkaException, match="one request can store: send smaller records") as caught:
            producer.produce("large", bytes(LARGEST + 1))
        assert time.process_time() - began_s < 1
        assert caught.value.error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        assert len(producer) == 0
        producer.produce("large", b"x")
        producer.commit_transaction()
    assert sizes_in(uri, "large") == [1]


def test_a_row_above_what_one_request_stores_is_refused_by_produce_arrow(uri: str) -> None:
    with transactional(uri) as producer:
        rows = pa.table({"value": pa.array([b"x", bytes(LARGEST + 1)])})
        with pytest.raises(KafkaException, match="one request can store") as caught:
            producer.produce_arrow("large", rows)
        assert caught.value.error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        with pytest.raises(KafkaException, match=r"raise message\.max\.bytes of the producer and max\.message\.bytes"):
            producer.produce_arrow("usual", pa.table({"value": pa.array([bytes(2 * MIB)])}))
        assert len(producer) == 0
        producer.commit_transaction()
    assert sizes_in(uri, "large") == []


def test_a_row_above_what_one_request_stores_is_refused_by_the_stager(uri: str) -> None:
    with Store.open(uri) as store:
        stager = store.stage_plan(["large"]).open(seed=0, default_topic="large")
        with pytest.raises(CommandRefused, match="one request can store") as caught:
            stager.write(pa.table({"value": pa.array([bytes(LARGEST + 1)])}))
    assert caught.value.error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_the_largest_record_is_stored_even_if_it_does_not_compress(uri: str) -> None:
    with transactional(uri) as producer:
        producer.produce("large", RANDOM.randbytes(LARGEST))
        producer.commit_transaction()
    assert sizes_in(uri, "large") == [LARGEST]


def test_large_records_do_not_share_a_segment_that_is_too_large(uri: str) -> None:
    sizes = [30 * MIB, 100, 30 * MIB, 20 * MIB]
    with transactional(uri) as producer:
        for size in sizes:
            producer.produce("large", RANDOM.randbytes(size))
        producer.commit_transaction()
    assert sizes_in(uri, "large") == sizes


RANDOM = Random(1)
UNEVEN = [MIB - 100] * 60 + [10] * 50_000


def uneven_rows() -> pa.Table:
    return pa.table({"value": pa.array([RANDOM.randbytes(size) for size in UNEVEN])})


def test_a_table_of_uneven_rows_is_stored(uri: str) -> None:
    with Producer({"bootstrap.servers": uri, "transactional.id": "x", **RAISED}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce_arrow("usual", uneven_rows())
        producer.commit_transaction()
    assert sizes_in(uri, "usual") == UNEVEN


def test_uneven_rows_are_staged(uri: str) -> None:
    with Store.open(uri) as store:
        stager = store.stage_plan(["usual"]).open(seed=0, default_topic="usual")
        stager.write(uneven_rows())
        store.commit(stager.finish(), transactional_id="x")
    assert sizes_in(uri, "usual") == UNEVEN
