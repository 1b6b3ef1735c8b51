"""Keyed topics through gateways: rows and deletes from clients, refused by record, and in one order (rule K)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.record._crecords import DefaultRecordBatchBuilder, MemoryRecords
from kio.schema.errors import ErrorCode as WireCode

from sparktxn._engine.format.keytext import key_texts, partitions_of_texts
from sparktxn._foundation.values.structs import ProducerIdAndEpoch
from sparktxn._rows.stage.transactionwriter import NO_IDENTITY
from sparktxn.errors import ErrorCode
from sparktxn.store import Store
from sparktxn.tables import read_arrow
from tests.gateway.gateways import Gateway, RawClient, at_a_gateway, gateway, raw_client
from tests.gateway.requests import add_partition, end, fetch, init_producer, produce

TX = "tx"
AT_MS = 1_700_000_000_000
NAMES = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
SPANS = pa.schema(
    [
        pa.field("number", pa.int32(), nullable=False),
        pa.field("zone", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        ("note", pa.string()),
    ]
)
Record = tuple[bytes | None, bytes | None]


def sent(
    *records: Record, identity: ProducerIdAndEpoch = NO_IDENTITY, sequence: int = -1, transactional: bool = False
) -> bytes:
    ids = (identity.producer_id, identity.producer_epoch)
    builder = DefaultRecordBatchBuilder(2, 0, int(transactional), *ids, sequence, 1 << 24)
    for place, (key, value) in enumerate(records):
        builder.append(place, AT_MS + place, key, value, [])
    return bytes(builder.build())


def row(**members: Any) -> bytes:
    return json.dumps(members).encode()


async def log_of(client: RawClient, topic: str, partition: int = 0) -> list[Record]:
    records = MemoryRecords(bytes((await fetch(client, topic, partition, 0)).records))
    found: list[Record] = []
    while records.has_next():
        batch = records.next_batch()
        if not batch.is_control_batch:
            found += [(record.key, record.value) for record in batch]
    return found


def latest(folder: Path, topic: str) -> list[dict[str, Any]]:
    key = "number" if topic == "spans" else "id"
    return sorted(read_arrow(str(folder / "store"), topic).read_all().to_pylist(), key=lambda found: found[key])


def keyed_case(
    folder: Path,
    case: Callable[[Gateway, RawClient], Coroutine[Any, Any, None]],
    *,
    partitions: int = 1,
    more: dict[str, str] | None = None,
    **settings: Any,
) -> None:
    async def prepared(served: Gateway, client: RawClient) -> None:
        store = served.broker.store
        store.create_topic("names", partitions, settings={"primary.key": "id", **(more or {})}, schema=NAMES)
        store.create_topic("spans", 1, settings={"primary.key": "number,zone"}, schema=SPANS)
        await case(served, client)

    at_a_gateway(folder, prepared, **settings)


def test_rows_and_deletes_are_stored_and_read_with_their_keys(tmp_path):
    async def case(_: Gateway, client: RawClient) -> None:
        answer = await produce(
            client,
            "names",
            0,
            sent(
                (b"1", row(id=1, name="a")),
                (None, row(id=2, name=None)),
                (b"1", None),
                (b"2", row(id=2, name="b")),
                (b"3", None),
            ),
        )
        assert (answer.error_code, answer.base_offset) == (WireCode.none, 0)
        assert await log_of(client, "names") == [
            (b"1", b'{"id":1,"name":"a"}'),
            (b"2", b'{"id":2,"name":null}'),
            (b"1", None),
            (b"2", b'{"id":2,"name":"b"}'),
            (b"3", None),
        ]
        assert [(found["id"], found["name"]) for found in latest(tmp_path, "names")] == [(2, "b")]

    keyed_case(tmp_path, case)


def test_keys_of_several_columns_are_arrays_however_they_are_written(tmp_path):
    async def case(_: Gateway, client: RawClient) -> None:
        one = row(number=7, zone="EU", size=1, note=None)
        written = (b'[7,"EU"]', b'[7, "EU"]', b'[7,"\\u0045U"]', None)
        answer = await produce(client, "spans", 0, sent(*((key, one) for key in written), (b'[ 7 , "EU" ]', None)))
        assert answer.error_code == WireCode.none, answer
        assert [key for key, _ in await log_of(client, "spans")] == [b'[7,"EU"]'] * 5
        assert latest(tmp_path, "spans") == []

    keyed_case(tmp_path, case)


WRONG: list[tuple[str, Sequence[Record], dict[int, str]]] = [
    ("names", [(b"1", row(id=1, name="a")), (None, None)], {1: "neither a key nor a value"}),
    ("names", [(b"2", row(id=1, name="a")), (b"1", row(id=1, name="a"))], {0: "its row has the key '1'"}),
    ("names", [(b"one", None), (b"1", None), (b"\xff", None)], {0: "whole number", 2: "not UTF-8"}),
    ("names", [(b"one", row(id=1, name="a"))], {0: "whole number"}),
    ("names", [(b"", None)], {0: "whole number"}),
    ("names", [(b"1", row(id=1)), (b"2", row(id=2, name=None))], {0: "column 'name' is missing: an upsert is a whole"}),
    ("names", [(b"1", row(name="a")), (None, row(id=None, name="a"))], {0: "'id' is missing", 1: "'id' is null"}),
    ("names", [(b"1", row(id=1, name="a", _deleted=True))], {0: "there is no column '_deleted'"}),
    ("names", [(b"1", b"null")], {0: "expected a JSON object"}),
    ("spans", [(b'[7,"EU",1]', None), (b"7", None), (b'[7,"EU"', None)], {0: "array of 2", 1: "array of 2", 2: "JSON"}),
    ("spans", [(b"[7,null]", None), (b'["7","EU"]', None)], {0: "'zone' is null", 1: "whole number"}),
    ("spans", [(None, row(number=1, zone="EU", size=None, note="n"))], {0: "'size' is null"}),
    ("spans", [(None, row(number=1, zone="EU", note="n"))], {0: "'size' is missing"}),
    ("spans", [(None, row(number=1, zone="x" * 4_096, size=1, note="n"))], {0: "4102 bytes as text"}),
]


@pytest.mark.parametrize(("topic", "records", "named"), WRONG)
def test_a_refusal_names_the_records_and_nothing_of_the_batch_is_stored(tmp_path, topic, records, named):
    async def case(_: Gateway, client: RawClient) -> None:
        answer = await produce(client, topic, 0, sent(*records))
        assert answer.error_code == WireCode.invalid_record
        found = {each.batch_index: each.batch_index_error_message for each in answer.record_errors}
        assert list(found) == list(named)
        for place, words in named.items():
            assert words in found[place]
        assert await log_of(client, topic) == []
        fine = (b'[1,"EU"]', None) if topic == "spans" else (b"1", None)
        assert (await produce(client, topic, 0, sent(fine))).base_offset == 0

    keyed_case(tmp_path, case)


def test_a_row_in_another_partition_is_refused_with_the_right_one(tmp_path):
    async def case(_: Gateway, client: RawClient) -> None:
        right = partitions_of_texts(key_texts([pa.array([1, 2], pa.int64())]), 4).to_pylist()
        wrong = (right[0] + 1) % 4
        records = sent((None, row(id=1, name="a")), (b"1", None))
        answer = await produce(client, "names", wrong, records)
        assert answer.error_code == WireCode.invalid_record
        assert [each.batch_index for each in answer.record_errors] == [0, 1]
        for each in answer.record_errors:
            assert f"belongs to partition {right[0]}, and the record came for {wrong}" in each.batch_index_error_message
        assert "partitioner=murmur2" in answer.error_message
        assert (await produce(client, "names", right[0], records)).error_code == WireCode.none

    keyed_case(tmp_path, case, partitions=4)


def test_a_topic_may_fill_missing_columns_with_null(tmp_path):
    async def case(_: Gateway, client: RawClient) -> None:
        answer = await produce(
            client, "names", 0, sent((b"1", row(id=1)), (None, row(id=2, name="b")), (b"3", b'{"id":3}'))
        )
        assert answer.error_code == WireCode.none
        answer = await produce(client, "names", 0, sent((b"4", row(id=4))))
        assert answer.error_code == WireCode.none
        assert [(found["id"], found["name"]) for found in latest(tmp_path, "names")] == [
            (1, None),
            (2, "b"),
            (3, None),
            (4, None),
        ]

    keyed_case(tmp_path, case, more={"upsert.missing": "null"})


def test_a_batch_of_an_idempotent_producer_is_stored_once(tmp_path):
    async def case(_: Gateway, client: RawClient) -> None:
        identity = await init_producer(client)
        first = sent((b"1", row(id=1, name="a")), (b"1", None), identity=identity, sequence=0)
        second = sent((b"1", row(id=1, name="b")), identity=identity, sequence=2)
        for records, offset in ((first, 0), (first, 0), (second, 2), (first, 0), (second, 2)):
            answer = await produce(client, "names", 0, records)
            assert (answer.error_code, answer.base_offset) == (WireCode.none, offset)
        assert [value for _, value in await log_of(client, "names")] == [
            b'{"id":1,"name":"a"}',
            None,
            b'{"id":1,"name":"b"}',
        ]

    keyed_case(tmp_path, case)


@pytest.mark.parametrize("stores", [False, True])
def test_rows_of_a_transaction_are_in_the_list_that_ends_it(tmp_path, stores):
    """Two transactions overlap: the one that commits later has the later offsets, whatever came first."""

    async def case(served: Gateway, client: RawClient) -> None:
        store = served.broker.store
        early, late = [await init_producer(client, name) for name in ("early", "late")]

        async def put(name: str, identity: ProducerIdAndEpoch, sequence: int, *records: Record) -> int:
            assert await add_partition(client, name, identity, "names") == 0
            made = sent(*records, identity=identity, sequence=sequence, transactional=True)
            answer = await produce(client, "names", 0, made, transactional_id=name)
            assert answer.error_code == WireCode.none, answer
            return int(answer.base_offset)

        assert await put("late", late, 0, (b"1", row(id=1, name="late"))) == -1
        assert await put("early", early, 0, (b"1", row(id=1, name="early")), (b"2", row(id=2, name="early"))) == -1
        assert store.view(["names"]).partitions["names", 0].log_end_offset == 0
        assert await end(client, "early", early, committed=True) == 0
        assert await put("late", late, 1, (b"2", None)) == -1
        assert await put("late", late, 1, (b"2", None)) == -1  # sent twice
        assert await end(client, "late", late, committed=True) == 0
        assert [value and json.loads(value)["name"] for _, value in await log_of(client, "names")] == [
            "early",
            "early",
            "late",
            None,
        ]
        found = await fetch(client, "names", 0, 0)
        assert found.last_stable_offset == found.high_watermark
        assert [(each["id"], each["name"]) for each in latest(tmp_path, "names")] == [(1, "late")]
        # An aborted one leaves nothing, and its sequences are counted on by the client.
        assert await put("late", late, 2, (b"1", None)) == -1
        assert await end(client, "late", late, committed=False) == 0
        assert await put("late", late, 3, (b"3", row(id=3, name="after"))) == -1
        assert await end(client, "late", late, committed=True) == 0
        assert [(each["id"], each["name"]) for each in latest(tmp_path, "names")] == [(1, "late"), (3, "after")]

    keyed_case(tmp_path, case, stores_transactions=stores)


@pytest.mark.parametrize("stores", [False, True])
def test_a_transaction_mixes_topics_with_and_without_a_key(tmp_path, stores):
    async def case(served: Gateway, client: RawClient) -> None:
        identity = await init_producer(client, TX)
        for topic in ("t", "names"):
            assert await add_partition(client, TX, identity, topic) == 0
        for sequence, is_committed in enumerate((True, False, True)):
            if sequence:
                for topic in ("t", "names"):
                    assert await add_partition(client, TX, identity, topic) == 0
            for topic, key, value in (("t", b"k", b"%d" % sequence), ("names", None, row(id=sequence, name="a"))):
                records = sent((key, value), identity=identity, sequence=sequence, transactional=True)
                answer = await produce(client, topic, 0, records, transactional_id=TX)
                assert answer.error_code == WireCode.none
            assert await end(client, TX, identity, committed=is_committed) == 0
        assert [each["id"] for each in latest(tmp_path, "names")] == [0, 2]
        values = read_arrow(str(tmp_path / "store"), "t").read_all().column("value").to_pylist()
        assert values == [b"0", b"2"]

    keyed_case(tmp_path, case, stores_transactions=stores)


@pytest.mark.parametrize("stores", [False, True])
def test_rows_in_the_memory_of_a_gateway_are_never_half_of_a_commit(tmp_path, stores):
    """Another gateway cannot commit a transaction whose rows it does not have, also where it stores other records."""

    async def run() -> None:
        uri = tmp_path / "store"
        (tmp_path / "same").symlink_to(uri, target_is_directory=True)
        with Store.open(str(uri), create=True) as store:
            store.create_topic("t", 1)
            store.create_topic("names", 1, settings={"primary.key": "id"}, schema=NAMES)
        async with (
            gateway(uri, stores_transactions=stores) as one,
            gateway(tmp_path / "same", stores_transactions=stores) as other,
            raw_client(one) as first,
            raw_client(other) as second,
        ):
            identity = await init_producer(first, TX)
            for topic, key, value in (("t", b"k", b"lost"), ("names", b"1", row(id=1, name="lost"))):
                assert await add_partition(first, TX, identity, topic) == 0
                records = sent((key, value), identity=identity, sequence=0, transactional=True)
                assert (await produce(first, topic, 0, records, transactional_id=TX)).error_code == WireCode.none
            assert await end(second, TX, identity, committed=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            assert await end(second, TX, identity, committed=False) == 0
            assert await add_partition(second, TX, identity, "names") == 0
            records = sent((b"2", row(id=2, name="kept")), identity=identity, sequence=1, transactional=True)
            assert (await produce(second, "names", 0, records, transactional_id=TX)).error_code == WireCode.none
            assert await end(second, TX, identity, committed=True) == 0
        assert [each["id"] for each in latest(tmp_path, "names")] == [2]

    asyncio.run(run())


def test_aiokafka_finds_the_partitions_of_keys_and_reads_what_a_compacted_topic_gives(tmp_path):
    """Its partitioner is that of Java's clients."""

    async def case(served: Gateway, _: RawClient) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=served.address, enable_idempotence=True)
        await producer.start()
        for number in range(40):
            await producer.send_and_wait("names", row(id=number, name=f"n{number}"), b"%d" % number)
        for number in range(0, 40, 4):
            await producer.send_and_wait("names", None, b"%d" % number)
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=served.address)
        await consumer.start()
        places = [TopicPartition("names", number) for number in range(4)]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        table: dict[bytes, bytes] = {}
        read = 0
        while read < 50:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                read += len(records)
                for record in records:
                    if record.value is None:
                        table.pop(record.key, None)
                    else:
                        table[record.key] = record.value
        await consumer.stop()
        expected = {b"%d" % found["id"]: found["name"] for found in latest(tmp_path, "names")}
        assert {key: json.loads(value)["name"] for key, value in table.items()} == expected
        assert len(expected) == 30

    keyed_case(tmp_path, case, partitions=4)
