"""Random records for keyed topics through gateways, right and wrong ones: a dict replayed from them is the oracle.

A client that reads all partitions and applies what it reads has it at the end, and so has `read_arrow`.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record._crecords import DefaultRecordBatchBuilder, MemoryRecords
from kio.schema.errors import ErrorCode as WireCode

from sparktxn._engine.format.keytext import key_texts, partitions_of_texts
from sparktxn._foundation.values.structs import ProducerIdAndEpoch
from sparktxn._rows.stage.transactionwriter import NO_IDENTITY
from sparktxn.store import Store
from sparktxn.tables import read_arrow
from tests.gateway.gateways import RawClient, gateway, raw_client
from tests.gateway.requests import add_partition, end, fetch, init_producer, produce
from tests.seeds import examples, seed_of

PARTITIONS = 3
FIRST = datetime(1, 1, 1)
Made = Callable[[Random], Any]
KINDS: dict[str, tuple[pa.DataType, Made]] = {
    "bool": (pa.bool_(), lambda random: random.random() < 0.5),
    "int8": (pa.int8(), lambda random: random.randint(-128, 127)),
    "int64": (pa.int64(), lambda random: random.choice([0, -1, 2**63 - 1, -(2**63), random.randint(-9, 9)])),
    "string": (pa.string(), lambda random: "".join(random.choices('aé"\\/🚲\n\u0001[,]{}', k=random.randint(0, 3)))),
    "binary": (pa.binary(), lambda random: random.randbytes(random.randint(0, 2))),
    "date": (pa.date32(), lambda random: date.fromordinal(random.choice([1, 719_163, 3_652_059]))),
    "zoned": (pa.timestamp("us", tz="UTC"), lambda random: moment(random).replace(tzinfo=UTC)),
    "local": (pa.timestamp("us"), lambda random: moment(random)),
    "decimal": (pa.decimal128(6, 3), lambda random: Decimal(random.randint(-99, 99)).scaleb(-3)),
    "whole": (pa.decimal128(4, 0), lambda random: Decimal(random.randint(-9, 9))),
}
"""The types of keys, and values of them; few, so that keys come again."""


def moment(random: Random) -> datetime:
    return FIRST + timedelta(days=random.choice([0, 719_162, 3_652_058]), microseconds=random.choice([0, 1, 10**6]))


def as_json(value: Any) -> Any:
    """Return a value as a row's JSON has it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, bool | int | str) else str(value)


class Program:
    """One topic, and what its clients must see."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.random, self.uri = random, str(folder / "store")
        names = random.sample(sorted(KINDS), random.choice([1, 1, 2, 3]))
        self.own = pa.schema([pa.field(name, KINDS[name][0], nullable=False) for name in names])
        others = [pa.field("size", pa.int32()), pa.field("note", pa.string(), nullable=False)]
        self.schema = pa.schema([*self.own, *others])
        self.rows: dict[bytes, dict[str, Any]] = {}
        self.count = 0
        with Store.open(self.uri, create=True, options={"store.fsync": False}) as store:
            store.create_topic("t", PARTITIONS, settings={"primary.key": ",".join(names)}, schema=self.schema)

    def key(self) -> tuple[dict[str, Any], bytes, int]:
        """Some key: its values, its text, and its partition."""
        values = {name: KINDS[name][1](self.random) for name in self.own.names}
        texts = key_texts([pa.array([values[field.name]], field.type) for field in self.own])
        return values, texts[0].as_py(), partitions_of_texts(texts, PARTITIONS)[0].as_py()

    def other_than(self, text: bytes) -> bytes:
        while (found := self.key()[1]) == text:
            pass
        return found

    def loose(self, text: bytes) -> bytes:
        """The same key, as another writer of JSON may write it."""
        return json.dumps(json.loads(text)).encode() if len(self.own) > 1 else text

    def record(self, partition: int) -> tuple[tuple[bytes | None, bytes | None], bytes, dict[str, Any] | None, bool]:
        """Some record for a partition, rarely a wrong one: (key, value), the key's text, its row, if it is right."""
        values, text, own = self.key()
        while own != partition and self.random.random() > 0.05:
            values, text, own = self.key()
        is_right = own == partition
        self.count += 1
        if self.random.random() < 0.3:
            if self.random.random() < 0.02:
                return (None, None), text, None, False
            return (self.loose(text), None), text, None, is_right
        row = {**values, "size": self.random.choice([None, self.count]), "note": f"n{self.count}"}
        members = {name: as_json(value) for name, value in row.items()} | {"size": row["size"]}
        key: bytes | None = self.random.choice([None, text, self.loose(text)])
        fault = self.random.random()
        if fault < 0.02:
            key, is_right = self.other_than(text), False
        elif fault < 0.04:
            members.pop(self.random.choice(sorted(members)))
            is_right = False
        elif fault < 0.05:
            members["note"], is_right = None, False
        return (key, json.dumps(members).encode()), text, row, is_right

    async def batch(self, client: RawClient, sending: dict[str, Any], transactional_id: str | None = None) -> None:
        """Send a batch to a partition; the dict has it if all of it is right. `sending` counts sequences."""
        partition = self.random.randrange(PARTITIONS)
        identity, sequences = sending["identity"], sending["sequences"]
        made = [self.record(partition) for _ in range(self.random.randint(1, 6))]
        if transactional_id is not None:
            assert await add_partition(client, transactional_id, identity, "t", partition) == 0
        sequence = -1 if identity == NO_IDENTITY else sequences.get(partition, 0)
        builder = DefaultRecordBatchBuilder(
            2, 0, int(transactional_id is not None), identity.producer_id, identity.producer_epoch, sequence, 1 << 20
        )
        for place, ((key, value), *_) in enumerate(made):
            builder.append(place, 1_700_000_000_000, key, value, [])
        answer = await produce(client, "t", partition, bytes(builder.build()), transactional_id=transactional_id)
        wrong = [place for place, (*_, is_right) in enumerate(made) if not is_right]
        assert (answer.error_code is WireCode.invalid_record) == bool(wrong), (answer, made)
        if wrong:
            assert {each.batch_index for each in answer.record_errors} <= set(wrong), (answer, made)
            return
        assert answer.error_code is WireCode.none, answer
        sequences[partition] = sequence + len(made)
        for _, text, row, _ in made:
            sending["changes"].append((text, row))

    def commit(self, changes: list[tuple[bytes, dict[str, Any] | None]]) -> None:
        for text, row in changes:
            self.rows.pop(text, None)
            if row is not None:
                self.rows[text] = row

    async def run(self, *, stores: bool) -> None:
        async with (
            gateway(self.uri, stores_transactions=stores, linger_ms=0) as served,
            raw_client(served) as client,
        ):
            identities: dict[str, ProducerIdAndEpoch] = {
                "plain": NO_IDENTITY,
                "idempotent": await init_producer(client),
            }
            for transactional_id in ("one", "two"):
                identities[transactional_id] = await init_producer(client, transactional_id)
            sendings: dict[str, dict[str, Any]] = {
                name: {"identity": identity, "sequences": {}, "changes": []} for name, identity in identities.items()
            }
            for _ in range(30):
                name = self.random.choice(list(sendings))
                sending = sendings[name]
                if name in ("one", "two"):
                    if self.random.random() < 0.3 and sending["changes"]:
                        committed = self.random.random() < 0.7
                        assert await end(client, name, sending["identity"], committed=committed) == 0
                        self.commit(sending["changes"] if committed else [])
                        sending["changes"] = []
                        continue
                    await self.batch(client, sending, name)
                    continue
                await self.batch(client, sending)
                self.commit(sending["changes"])
                sending["changes"] = []
            await self.check(client)

    async def check(self, client: RawClient) -> None:
        table: dict[bytes, bytes] = {}
        for partition in range(PARTITIONS):
            offset = 0
            while records := (await fetch(client, "t", partition, offset)).records:
                batches = MemoryRecords(bytes(records))
                while batches.has_next():
                    batch = batches.next_batch()
                    offset = batch.next_offset
                    for record in () if batch.is_control_batch else batch:
                        table.pop(record.key, None)
                        if record.value is not None:
                            table[record.key] = record.value
        expected = {text: row["note"] for text, row in self.rows.items()}
        assert {key: json.loads(value)["note"] for key, value in table.items()} == expected
        found = read_arrow(self.uri, "t", columns=[*self.own.names, "size", "note"]).read_all().to_pylist()
        by_note = sorted(found, key=lambda row: row["note"])
        assert by_note == sorted(self.rows.values(), key=lambda row: row["note"])


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize("number", range(examples(6, 60)))
def test_what_clients_send_to_a_keyed_topic_is_what_all_read(tmp_path, number, stores):
    random = Random(seed_of(f"keyed gateway {number} {stores}", number))
    asyncio.run(Program(tmp_path, random).run(stores=stores))
