"""Requests that tests send, by the names of Kafka's schemas."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import google_crc32c
from aiokafka.record._crecords import DefaultRecordBatchBuilder, MemoryRecords

from sparktxn._foundation.values.structs import ProducerIdAndEpoch
from sparktxn._rows.stage.transactionwriter import NO_IDENTITY
from tests.gateway.gateways import RawClient


def batch(
    values: Sequence[bytes],
    identity: ProducerIdAndEpoch = NO_IDENTITY,
    sequence: int = -1,
    *,
    transactional: bool = False,
) -> bytes:
    """Return a record batch as a producer sends it."""
    ids = (identity.producer_id, identity.producer_epoch)
    builder = DefaultRecordBatchBuilder(2, 0, int(transactional), *ids, sequence, 1 << 30)
    for place, value in enumerate(values):
        builder.append(place, 1_700_000_000_000 + place, b"k", value, [("h", b"1")])
    return bytes(builder.build())


def compressed(plain: bytes, number: int, payload: bytes) -> bytes:
    """Return a batch with another payload, which codec `number` has made."""
    made = bytearray(plain[:61] + payload)
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">h", made, 21, struct.unpack_from(">h", made, 21)[0] | number)
    struct.pack_into(">I", made, 17, google_crc32c.value(bytes(made[21:])))
    return bytes(made)


def signed(data: bytes, identity: ProducerIdAndEpoch, sequence: int = 0) -> bytes:
    """Return a batch as the first one of a transaction of `identity`."""
    made = bytearray(data)
    struct.pack_into(">h", made, 21, struct.unpack_from(">h", made, 21)[0] | 0x10)
    struct.pack_into(">qhi", made, 43, identity.producer_id, identity.producer_epoch, sequence)
    struct.pack_into(">I", made, 17, google_crc32c.value(bytes(made[21:])))
    return bytes(made)


async def produce(
    client: RawClient, topic: str, partition: int, records: bytes, *, transactional_id: str | None = None
) -> Any:
    """Send a batch, and return the answer of its partition."""
    answer = await client.call(0, 9, **produce_members(topic, partition, records, transactional_id=transactional_id))
    return answer.responses[0].partition_responses[0]


def produce_members(
    topic: str, partition: int, records: bytes, *, transactional_id: str | None = None, acks: int = -1
) -> dict[str, Any]:
    """Return the members of a request with one batch."""
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    return {"transactional_id": transactional_id, "acks": acks, "timeout": 1000, "topic_data": data}


async def fetch(
    client: RawClient,
    topic: str,
    partition: int,
    offset: int,
    *,
    committed: bool = True,
    wait_ms: int = 0,
    min_bytes: int = 1,
) -> Any:
    """Return the answer of one partition."""
    asked = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    answer = await client.call(
        1,
        12,
        replica_id=-1,
        max_wait=wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 24,
        isolation_level=int(committed),
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [asked]}],
        forgotten_topics_data=[],
        rack_id="",
    )
    return answer.responses[0].partitions[0]


def records_of(data: bytes) -> list[tuple[int, bytes | None]]:
    """Return (offset, value) of the records of batches, without control records."""
    found = []
    batches = MemoryRecords(data)
    while batches.has_next():
        each = batches.next_batch()
        assert each.validate_crc()
        if not each.is_control_batch:
            found += [(record.offset, record.value) for record in each]
    return found


async def read_all(client: RawClient, topic: str, partition: int = 0, *, committed: bool = True) -> list[bytes | None]:
    """Return all values of a partition, in order."""
    values: list[bytes | None] = []
    offset = 0
    while True:
        found = await fetch(client, topic, partition, offset, committed=committed)
        assert found.error_code.value == 0
        if not found.records:
            return values
        records = MemoryRecords(found.records)
        while records.has_next():
            offset = records.next_batch().next_offset
        values += [value for _, value in records_of(found.records)]


async def init_producer(
    client: RawClient, transactional_id: str | None = None, previous: ProducerIdAndEpoch = NO_IDENTITY
) -> ProducerIdAndEpoch:
    """Initialise a producer."""
    answer = await client.call(
        22,
        4,
        transactional_id=transactional_id,
        transaction_timeout=60_000,
        producer_id=previous.producer_id,
        producer_epoch=previous.producer_epoch,
    )
    assert answer.error_code.value == 0, answer
    return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)


async def add_partition(
    client: RawClient, transactional_id: str, identity: ProducerIdAndEpoch, topic: str, partition: int = 0
) -> int:
    """Add a partition to a transaction; return the code."""
    answer = await client.call(
        24,
        3,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[{"name": topic, "partitions": [partition]}],
    )
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code.value)


async def end(client: RawClient, transactional_id: str, identity: ProducerIdAndEpoch, *, committed: bool) -> int:
    """End a transaction; return the code."""
    answer = await client.call(
        26,
        3,
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        committed=committed,
    )
    return int(answer.error_code.value)
