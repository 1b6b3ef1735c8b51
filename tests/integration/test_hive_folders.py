"""Engines that know nothing of the log find a topic's files, and the partition of each."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.dataset as pads
import pytest

from sparktxn import Producer, Store
from sparktxn._engine.format import names
from sparktxn.errors import ConfigurationError
from sparktxn.store import read_task

OPTIONS = {"store.fsync": False, "checkpoint.seal.segments": 2, "store.append.inline.bytes": 0}


def written(root: Path) -> tuple[Path, set[tuple[int, bytes]]]:
    """A topic's folder with sealed and unsealed segments, all committed, and (partition, value) of its records."""
    with Store.open(str(root), create=True, options=OPTIONS) as store:
        topic_id = store.create_topic("orders", 3).topic_id
        with Producer({"bootstrap.servers": str(root), "transactional.id": "t", **OPTIONS}) as producer:
            producer.init_transactions(10)
            for transaction in range(6):
                with producer.transaction():
                    for partition in range(3):
                        producer.produce("orders", f"{transaction} {partition}", partition=partition)
                if transaction == 3:
                    store.log.refresh()
                    store.log.checkpoint()
        view = store.view()
        tasks = store.plan(view, store.ranges(view))
        batches = [batch for task in tasks for batch in read_task(task, OPTIONS)]
        rows = {(row["partition"], row["value"]) for batch in batches for row in batch.to_pylist()}
    return root / "topics" / f"orders-{topic_id}", rows


def test_arrow_discovers_the_partition_column(tmp_path: Path) -> None:
    folder, rows = written(tmp_path / "store")
    assert list(folder.glob("kafka_partition=*/_sealed/*/manifest"))
    table = pads.dataset(str(folder), format="parquet", partitioning="hive").to_table()
    found = list(zip(table["kafka_partition"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert len(found) == 18
    assert set(found) == rows
    one = pads.dataset(str(folder), format="parquet", partitioning="hive").to_table(
        filter=pads.field("kafka_partition") == 1
    )
    assert sorted(one["value"].to_pylist()) == sorted(value for partition, value in rows if partition == 1)


def without_hive_folders(patch: pytest.MonkeyPatch) -> None:
    """A partition's folder is named by its number alone."""
    patch.setattr(
        names, "partition_folder", lambda topic, topic_id, partition: f"topics/{topic}-{topic_id}/{partition}/"
    )
    patch.setattr(names, "_PARTITION_OBJECT", re.compile(r"topics/[A-Za-z0-9._-]+-([0-9]+)/([0-9]+)/(.+)"))


def test_a_build_with_plain_folders_hides_the_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_hive_folders(monkeypatch)
    folder, rows = written(tmp_path / "store")
    assert len(rows) == 18
    with pytest.raises(KeyError, match="kafka_partition"):
        pads.dataset(str(folder), format="parquet", partitioning="hive").to_table()["kafka_partition"]


@pytest.mark.parametrize("name", ["kafka_partition", "Kafka_Partition"])
def test_no_column_of_a_topic_collides_with_it(tmp_path: Path, name: str) -> None:
    with Store.open(str(tmp_path), create=True) as store, pytest.raises(ConfigurationError, match="reserved"):
        store.create_topic("typed", 1, schema=[(name, "int64", True)])
