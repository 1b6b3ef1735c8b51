"""Writers of delta-rs leave a store that has lived as it is, but for files that a vacuum deletes.

Those of other engines are in `tests/interop`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError

from sparktxn.maintenance import vacuum
from tests.livedhistory import LivedHistory, Version, check_whole, lived, place_of
from tests.mergedhistory import TYPED


def rows_of(table: DeltaTable) -> pa.Table:
    return pa.table(QueryBuilder().register("topic", table).execute("select * from topic").read_all())


WRITES: dict[str, Callable[[DeltaTable], Any]] = {
    "append": lambda table: write_deltalake(table, rows_of(table), mode="append"),
    "overwrite": lambda table: write_deltalake(table, rows_of(table), mode="overwrite"),
    "compact": lambda table: table.optimize.compact(),
    "vacuum": lambda table: table.vacuum(0, dry_run=False, enforce_retention_duration=False),
    "full vacuum": lambda table: table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
    "delete": lambda table: table.delete(),
    "restore": lambda table: table.restore(0),
}


def outcome(write: Callable[[DeltaTable], Any], location: str) -> str:
    try:
        return f"done: {write(DeltaTable(location))}"
    except DeltaError as error:
        return str(error)


def read_by_delta_rs(history: LivedHistory) -> Callable[[Version], list[dict[str, Any]]]:
    def read(version: Version) -> list[dict[str, Any]]:
        table = DeltaTable(history.location(version.topic), version=version.number)
        rows: list[dict[str, Any]] = rows_of(table).to_pylist()
        return sorted(rows, key=place_of)

    return read


def test_delta_rs_changes_nothing_of_a_store_that_has_lived(tmp_path: Path) -> None:
    with lived(tmp_path / "store", 2) as history:
        before = history.objects()
        location = history.location(TYPED)
        found = {name: outcome(write, location) for name, write in WRITES.items()}
        assert {name: said for name, said in found.items() if "txnlogTopic" not in said} == {}
        assert history.objects().items() >= before.items()

        check_whole(history, read_by_delta_rs(history))


LEFT = (
    "kafka_partition=0/part-00000-2f0c1c4e-9d1c-4d53-b0a5-6a1a3c1e6d11-c000.snappy.parquet",
    "kafka_partition=7/part-00000-2f0c1c4e-9d1c-4d53-b0a5-6a1a3c1e6d11.c000.zstd.parquet",
    "kafka_partition=__HIVE_DEFAULT_PARTITION__/part-00000.parquet",
    "part-00000-2f0c1c4e.parquet",
    "data/kafka_partition=0/00000-0-2f0c1c4e.parquet",
    "deletion_vector_2f0c1c4e.bin",
    "_delta_log/_commit_2f0c1c4e-9d1c.json.tmp",
    "metadata/2f0c1c4e-9d1c-m0.avro",
    "metadata/snap-7318223408230476-1-2f0c1c4e.avro",
    "metadata/00001-2f0c1c4e.metadata.json",
)
"""What refused writers of Spark, delta-rs and pyiceberg have left, below a topic's folder."""
KEPT = (
    "notes.txt",
    "_delta_log/00000000000000009999.checkpoint.0000000001.0000000002.parquet",
    "_delta_log/_sidecars/2f0c1c4e.parquet",
    "metadata/v99999.metadata.json",
)
"""What an engine may still go by, and what none has written."""


def test_a_vacuum_deletes_what_refused_writers_have_left(tmp_path: Path) -> None:
    with lived(tmp_path / "store", 2) as history:
        history.vacuum()
        before = history.objects()
        objects, topic = history.store.log.objects, f"topics/{TYPED}-{history.topics[TYPED]}/"
        for name in (*LEFT, *KEPT):
            objects.put(topic + name, b"of another engine")
        objects.put("topics/plain-99/kafka_partition=0/part-0.parquet", b"in no table")
        vacuum(history.store, {"vacuum.retention.ms": 0})
        assert {topic + name for name in LEFT} <= history.objects().keys(), "they are younger than a day"
        report = vacuum(history.store, {"vacuum.segment.age.ms": 0, "vacuum.list.all.ms": 0}, dry_run=True)
        assert {*report.names} & before.keys() == set()
        vacuum(history.store, {"vacuum.segment.age.ms": 0, "vacuum.list.all.ms": 0})
        left = history.objects().keys()
        assert {topic + name for name in LEFT} & left == set()
        assert left >= {topic + name for name in KEPT} | {"topics/plain-99/kafka_partition=0/part-0.parquet"}
        check_whole(history, read_by_delta_rs(history))
