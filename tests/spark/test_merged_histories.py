"""Random histories of a maintained topic: Spark's native rows are Python's, and those of a plain model."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog import scan
from sparktxn import Producer, Store, TopicPartition
from sparktxn.admin import AdminClient
from sparktxn.config.maintenance import RewriteSettings
from sparktxn.maintenance import apply_retention, rewrite
from sparktxn.maintenance.folding import Folder
from tests.seeds import seed_of
from tests.spark.test_scan import check_same, expected, python_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARTITIONS = 2
OPTIONS = {"store.fsync": False, "checkpoint.entries": 20, "checkpoint.seal.segments": 2}


class Maintained:
    """A typed topic that producers write to, and that is folded, rewritten and cut in between."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.columns = [pa.field("id", pa.int64())]
        self.visible: set[int] = set()
        self.pending: dict[str, list[int]] = {}
        self.number = 0
        store.create_topic("t", PARTITIONS, schema=pa.schema(self.columns))
        self.admin = AdminClient({"bootstrap.servers": store.uri})
        self.folder = Folder(store.log, 1 << 40, RewriteSettings(target_bytes=4_096, min_segments=2), pause_s=0)
        self.producers: dict[str, Producer] = {}
        self._start()

    def step(self) -> None:
        """Do one thing: most are writes."""
        action = self.random.choices(
            [self._write, self._fold, self._rewrite, self._delete, self._add_column], [20, 2, 2, 1, 1]
        )[0]
        action()

    def close(self) -> None:
        """Close the clients."""
        for producer in self.producers.values():
            producer.close()

    def _start(self) -> None:
        for name in ("a", "b"):
            self.producers[name] = Producer({"bootstrap.servers": self.store.uri, "transactional.id": name})
            self.producers[name].init_transactions()

    def _write(self) -> None:
        name = self.random.choice(sorted(self.producers))
        producer = self.producers[name]
        if name not in self.pending:
            producer.begin_transaction()
            self.pending[name] = []
        numbers = list(range(self.number, self.number + self.random.randrange(1, 6)))
        self.number = numbers[-1] + 1
        rows: dict[str, Any] = {field.name: numbers for field in self.columns}
        producer.produce_arrow("t", pa.table(rows, schema=pa.schema(self.columns)))
        producer.flush()
        self.pending[name] += numbers
        chance = self.random.random()
        if chance < 0.5:
            producer.commit_transaction()
            self.visible |= set(self.pending.pop(name))
        elif chance < 0.65:
            producer.abort_transaction()
            del self.pending[name]

    def _fold(self) -> None:
        self.store.log.checkpoint()
        self.folder.after_checkpoint()
        self.folder.step()

    def _rewrite(self) -> None:
        target = self.random.choice([1_024, 33_554_432])
        rewrite(self.store, {"rewrite.min.segments": 2, "rewrite.target.bytes": target})

    def _delete(self) -> None:
        """Move a log start, often into a file: what is below it is taken out of the model as Python reads it."""
        view = self.store.view(["t"])
        partition = view.partitions["t", self.random.randrange(PARTITIONS)]
        start = self.random.randint(partition.log_start_offset, partition.last_stable_offset)
        below = {
            row["id"]
            for row in expected(self.store, "t", columns="id,_partition,_offset").to_pylist()
            if row["_partition"] == partition.partition and row["_offset"] < start
        }
        place = TopicPartition("t", partition.partition, start)
        for future in self.admin.delete_records([place]).values():
            future.result()
        self.visible -= below

    def _add_column(self) -> None:
        if len(self.columns) < 4 and not self.pending:
            field = pa.field(f"more{len(self.columns)}", pa.int64())
            self.store.add_columns("t", pa.schema([field]))
            self.columns.append(field)
            # A producer knows the columns of the time when it first wrote.
            self.close()
            self._start()


ALL_COLUMNS = "id,_partition,_offset,_timestamp,_producer_id,_producer_epoch,_transactional_id,_entry"


def check(spark: SparkSession, history: Maintained) -> None:
    """Compare native rows with Python's, at the newest view and an older one, and with the model."""
    store = history.store
    entry = store.view(["t"]).entry
    found = scan(spark, store.uri, "t", columns=ALL_COLUMNS)
    check_same(found, expected(store, "t", columns=ALL_COLUMNS))
    assert {row.id for row in found.select("id").collect()} == history.visible
    cases: list[dict[str, str]] = [
        {"isolationLevel": "read_uncommitted", "columns": ALL_COLUMNS},
        {"order": "offset"},
        {"asOfEntry": str(history.random.randint(entry // 2, entry)), "columns": ALL_COLUMNS},
        {"startingEntry": str(entry // 3), "endingEntry": str(entry - 2), "columns": ALL_COLUMNS},
    ]
    options = history.random.choice(cases)
    found = scan(spark, store.uri, "t", options)
    check_same(found, expected(store, "t", **options))
    assert not python_rows(found)


def run(spark: SparkSession, folder: Path, seed: int, steps: int, every: int) -> None:
    with Store.open(str(folder / "store"), create=True, options=OPTIONS) as store:
        history = Maintained(store, seed)
        for number in range(1, steps + 1):
            history.step()
            if number % every == 0:
                check(spark, history)
        rewrite(store, {"rewrite.min.segments": 2})
        apply_retention(store)
        check(spark, history)
        history.close()


def test_native_rows_of_a_history_are_those_of_python_and_of_a_model(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path, seed_of("merged history"), 40, 40)


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(10))
def test_native_rows_of_long_histories(spark: SparkSession, tmp_path: Path, number: int) -> None:
    run(spark, tmp_path, seed_of(f"merged history {number}", number), 150, 5)
