"""What a fetch is answered with: it begins at the offset asked for, or above, and a reader gets on by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from aiokafka.record.memory_records import MemoryRecords

from sparktxn import Producer
from sparktxn._programs.gateway.partitionreads import Reads
from sparktxn._rows.scan.plan import Isolation, end_of
from sparktxn.store import Store
from tests.seeds import examples, seed_of

ISOLATIONS: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")
TAILS = ("of transactions", "of single records")


class Reader:
    """A client at one isolation level that reads on from its offset, as librdkafka does."""

    def __init__(self, reads: Reads, isolation: Isolation) -> None:
        self._reads = reads
        self.isolation = isolation
        self.offset = 0
        self.values: list[bytes | None] = []

    def read_on(self, bytes_max: int) -> bool:
        """Take one answer; return False at the partition's end.

        librdkafka passes a batch that ends below its offset by. If an answer has nothing else, it takes the limit for
        too small, doubles it, and in the end reports MSG_SIZE_TOO_LARGE (rd_kafka_msgset_reader_run).
        """
        view = self._reads.view({"t"})
        end_offset = end_of(view.partitions["t", 0], self.isolation)
        records = self._reads.fetch(view, "t", 0, self.offset, self.isolation, bytes_max).records
        if self.offset >= end_offset:
            assert not records
            return False
        began = self.offset
        for base_offset, next_offset, values in batches_of(records):
            assert base_offset >= self.offset
            self.values += values
            self.offset = next_offset
        assert began < self.offset <= end_offset
        return True


def batches_of(data: bytes) -> Iterator[tuple[int, int, list[bytes | None]]]:
    batches = MemoryRecords(data)
    while batches.has_next():
        each = batches.next_batch()
        yield each.base_offset, each.next_offset, [] if each.is_control_batch else [record.value for record in each]


class Writers:
    """Writes to a partition at random; `committed` and `stored` are what readers of each level are to get."""

    def __init__(self, random: Random, uri: str, tail: str) -> None:
        self._random = random
        self._single = Producer({"bootstrap.servers": uri})
        self._transactional = Producer({"bootstrap.servers": uri, "transactional.id": "tx"})
        self._transactional.init_transactions()
        self._ends_transactions = tail == TAILS[0]
        self.committed: list[bytes] = []
        self.stored: list[bytes] = []

    def write(self, number: int) -> None:
        """Write some records: alone, or in a transaction that is committed or aborted after they are stored."""
        count, size_bytes = self._random.randint(1, 6), self._random.choice((1, 100, 3_000))
        values = [b"%d.%d " % (number, place) + b"x" * size_bytes for place in range(count)]
        is_committed = self._random.random() < 0.5
        if not self._ends_transactions and self._random.random() < 0.7:
            for value in values:
                self._single.produce("t", value, partition=0)
            assert self._single.flush(20) == 0
            is_committed = True
        else:
            self._transactional.begin_transaction()
            for value in values:
                self._transactional.produce("t", value, partition=0)
            assert self._transactional.flush(20) == 0
            if is_committed:
                self._transactional.commit_transaction()
            else:
                self._transactional.abort_transaction()
        self.stored += values
        self.committed += values if is_committed else []

    def close(self) -> None:
        """Close both producers."""
        self._single.close()
        self._transactional.close()


@pytest.mark.parametrize("tail", TAILS)
def test_every_answer_gets_a_reader_on(tmp_path: Path, tail: str) -> None:
    """Readers that follow at the tail continue ranges that are open, used up, or grown by what was written since."""
    for turn in range(examples(6, 100)):
        random = Random(seed_of(f"{tail} {turn}", turn))
        uri = str(tmp_path / f"{turn}")
        with Store.open(uri, create=True, options={"store.fsync": "false"}) as store:
            store.create_topic("t", 1, settings={"max.message.bytes": "100000"})
            reads = Reads(store)
            readers = [Reader(reads, isolation) for isolation in ISOLATIONS for _ in range(2)]
            writers = Writers(random, uri, tail)
            for number in range(12):
                writers.write(number)
                for reader in readers:
                    for _ in range(random.randint(0, 3)):
                        reader.read_on(random.choice((1, 500, 5_000, 1 << 20)))
            writers.close()
            for reader in readers:
                while reader.read_on(random.choice((1, 500, 1 << 20))):
                    pass
                expected = writers.committed if reader.isolation == "read_committed" else writers.stored
                assert reader.values == expected
