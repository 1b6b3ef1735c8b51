"""Kafka's own DumpLogSegments reads the sidecars of sealed runs, and says what we meant (`make interop`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.snapshot import ProducerSnapshotEntry, encode_snapshot
from sparktxn._engine.format.txnindex import encode_transaction_index
from sparktxn._foundation.values.structs import AbortedTransaction
from sparktxn.producer import Producer
from sparktxn.store import Store
from tests.interop.kafkatools import dump, fetch_jars

pytestmark = pytest.mark.interop

_ABORTED = re.compile(
    r"version: 0 producerId: (-?\d+) firstOffset: (-?\d+) lastOffset: (-?\d+) lastStableOffset: (-?\d+)"
)
_PRODUCER = re.compile(
    r"producerId: (-?\d+) producerEpoch: (-?\d+) coordinatorEpoch: (-?\d+) "
    r"currentTxnFirstOffset: (?:OptionalLong\[(-?\d+)\]|OptionalLong\.empty) lastTimestamp: (-?\d+)"
    r"(?: firstSequence: (-?\d+) lastSequence: (-?\d+) lastOffset: (-?\d+) offsetDelta: (-?\d+) timestamp: (-?\d+))?\s*"
)


@pytest.fixture(scope="session")
def jars() -> list[Path]:
    return fetch_jars()


def aborted_in(lines: list[str]) -> list[AbortedTransaction]:
    matches = [_ABORTED.fullmatch(line) for line in lines]
    assert all(matches), lines
    return [AbortedTransaction(*map(int, match.groups())) for match in matches if match]


def producers_in(lines: list[str]) -> list[ProducerSnapshotEntry]:
    found = []
    for line in lines:
        match = _PRODUCER.fullmatch(line)
        assert match, line
        producer_id, epoch, coordinator, first, timestamp, _, *batch = (
            int(group) if group is not None else None for group in match.groups()
        )
        last_sequence, last_offset, delta, _ = batch
        found.append(
            ProducerSnapshotEntry(
                producer_id or 0,
                epoch or 0,
                -1 if last_sequence is None else last_sequence,
                -1 if last_offset is None else last_offset,
                0 if delta is None else delta,
                timestamp or 0,
                coordinator or 0,
                -1 if first is None else first,
            )
        )
    return sorted(found, key=lambda entry: entry.producer_id)


class Ledger:
    """What a partition's log should hold, kept separately: offsets counted by hand, no line of the product's."""

    def __init__(self) -> None:
        self.end = 0
        self.open: dict[int, int] = {}
        self.aborted: list[AbortedTransaction] = []
        self.sequences: dict[int, int] = {}
        self.last_batch: dict[int, tuple[int, int]] = {}
        self.ended_at: dict[int, int] = {}

    def publish(self, producer: int, count: int) -> None:
        self.open.setdefault(producer, self.end)
        self.end += count
        self.sequences[producer] = self.sequences.get(producer, -1) + count
        self.last_batch[producer] = (self.end - 1, count - 1)

    def finish(self, producer: int, entry: int, *, committed: bool) -> None:
        first = self.open.pop(producer)
        marker = self.end
        self.end += 1
        self.ended_at[producer] = entry
        if not committed:
            stable = min(self.open.values(), default=marker + 1)
            self.aborted.append(AbortedTransaction(producer, first, marker, stable))


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[tuple[Store, Ledger]]:
    """A store whose partition has many sealed runs, merged ones among them, with aborted transactions across runs."""
    settings = {"checkpoint.seal.segments": 2, "checkpoint.entries": 100_000, "store.fsync": False}
    with Store.open(str(tmp_path), create=True, options=settings) as store:
        store.create_topic("t", 1)
        ledger = Ledger()
        producers = []
        for number in range(3):
            producer = Producer({"bootstrap.servers": str(tmp_path), "transactional.id": f"p{number}", **settings})
            producer.init_transactions()
            producers.append(producer)

        def entry() -> int:
            return store.log.refresh()

        def publish(number: int, count: int) -> None:
            for _ in range(count):
                producers[number].produce("t", b"x", partition=0)
            producers[number].flush()
            ledger.publish(number, count)

        for round_ in range(22):
            # The last producer's transactions span rounds, and with them runs.
            for number in (0, 1) if round_ % 4 else (0, 1, 2):
                producers[number].begin_transaction()
            for number in (0, 1, 2):
                publish(number, number + 1)
            for number in (1, 0) if round_ % 4 < 3 else (1, 2, 0):
                committed = (round_ + number) % 3 > 0
                if committed:
                    producers[number].commit_transaction()
                else:
                    producers[number].abort_transaction()
                ledger.finish(number, entry(), committed=committed)
            store.log.checkpoint()
        yield store, ledger
        for producer in producers:
            producer.close()


@pytest.mark.kafka("K75", "K76", "K87")
def test_kafka_reads_what_was_aborted_and_who_wrote(
    tmp_path: Path, jars: list[Path], sealed: tuple[Store, Ledger]
) -> None:
    store, ledger = sealed
    view = store.view(["t"])
    partition = view.partitions["t", 0]
    folder = names.partition_folder("t", view.topics["t"].topic_id, 0)
    runs = partition.sealed
    assert len(runs) > 3
    assert max(run.level for run in runs) == 1
    assert len(ledger.aborted) > 15
    indexes = [
        tmp_path / names.transaction_index(folder, run.folder, run.base_offset) for run in runs if run.aborted_count
    ]
    snapshot = tmp_path / names.snapshot(folder, runs[-1].folder, ledger.end)
    printed = dump(jars, [*indexes, snapshot])
    assert [aborted for index in indexes for aborted in aborted_in(printed[index])] == ledger.aborted
    found = producers_in(printed[snapshot])
    assert [entry.producer_id for entry in found] == [0, 1, 2]
    for entry in found:
        number = entry.producer_id
        assert (entry.last_offset, entry.offset_delta) == ledger.last_batch[number]
        assert entry.last_sequence == ledger.sequences[number]
        assert entry.coordinator_epoch == ledger.ended_at[number]
        assert entry.current_transaction_first_offset == ledger.open.get(number, -1)
        assert entry.producer_epoch == 0
        assert entry.timestamp_ms > 0


@pytest.mark.kafka("K75", "K87")
def test_kafka_reads_the_bytes_that_the_unit_tests_pin(tmp_path: Path, jars: list[Path]) -> None:
    transactions = [AbortedTransaction(1, 0, 29, 8), AbortedTransaction(2, 8, 74, 36)]
    largest = AbortedTransaction(2**63 - 1, 2**62, 2**63 - 2, 2**62)
    producers = [
        ProducerSnapshotEntry(1, 2, 3, 4, 1, 6, 7, 8),
        ProducerSnapshotEntry(9, 0, -1, -1, 0, -1, -1, -1),
        ProducerSnapshotEntry(2**63 - 1, 32_767, 2**31 - 1, 2**63 - 1, 2**31 - 2, 2**62, 2**31 - 1, 2**62),
    ]
    index, snapshot = tmp_path / f"{0:020}.txnindex", tmp_path / f"{75:020}.snapshot"
    index.write_bytes(encode_transaction_index([*transactions, largest]))
    snapshot.write_bytes(encode_snapshot(producers))
    printed = dump(jars, [index, snapshot])
    assert aborted_in(printed[index]) == [*transactions, largest]
    assert producers_in(printed[snapshot]) == producers


@pytest.mark.kafka("K89")
def test_kafka_refuses_an_altered_snapshot_as_we_do(tmp_path: Path, jars: list[Path]) -> None:
    """So that a tool that reads nothing at all would not pass the tests above."""
    snapshot = tmp_path / f"{75:020}.snapshot"
    data = bytearray(encode_snapshot([ProducerSnapshotEntry(1, 2, 3, 4, 1, 6, 7, 8)]))
    data[-1] ^= 1
    snapshot.write_bytes(data)
    assert dump(jars, [snapshot])[snapshot] == []
    data[-1] ^= 1
    snapshot.write_bytes(data)
    assert len(dump(jars, [snapshot])[snapshot]) == 1
