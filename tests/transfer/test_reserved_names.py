"""A typed topic's own columns keep their values, whatever the names of Kafka's record and of what the log assigns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparktxn import ConfigurationError, Producer, Store, read_arrow
from sparktxn.transfer import export_topic, import_files
from tests.world import next_number

NAMES = (
    *("offset", "topic", "partition", "timestampType", "timestamp", "key", "value", "headers"),
    *("producer_id", "producer_epoch", "transactional_id", "entry"),
)
NUMBERS = ("offset", "partition", "timestamp", "entry")
SCHEMA = pa.schema([("id", pa.int64()), *((name, pa.int64() if name in NUMBERS else pa.string()) for name in NAMES)])
ROWS: list[dict[str, Any]] = [
    {"id": number} | {name: 70 + number if name in NUMBERS else f"{name} {number}" for name in NAMES}
    for number in range(6)
]


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(f"memory://names-{next_number()}", create=True) as opened:
        opened.create_topic("t", 3, schema=SCHEMA)
        opened.create_topic("copy", 2, schema=SCHEMA)
        with Producer({"bootstrap.servers": opened.uri}) as producer:
            for row in ROWS:
                producer.produce_arrow("t", pa.Table.from_pylist([row], SCHEMA), partition=row["id"] % 3)
        yield opened


def rows_of(store: Store, topic: str) -> list[dict[str, object]]:
    rows = read_arrow(store, topic, columns=SCHEMA.names).read_all().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("file_format", ["parquet", "arrow", "csv", "json"])
def test_an_export_and_its_import_keep_them(store: Store, tmp_path: Path, file_format: str) -> None:
    export_topic(store, "t", tmp_path / "out", file_format=file_format)
    files = sorted(str(path) for path in (tmp_path / "out").glob(f"*/*.{file_format}"))
    # Engines take the column that a folder's name holds for the file's own of the same name.
    assert [os.path.relpath(path, tmp_path) for path in files] == [
        f"out/kafka_partition={number}/part-00000.{file_format}" for number in range(3)
    ]
    import_files(store, "copy", files)
    assert rows_of(store, "copy") == ROWS


def test_a_copy_of_what_was_read_keeps_them(store: Store) -> None:
    with Producer({"bootstrap.servers": store.uri}) as producer:
        producer.produce_arrow("copy", read_arrow(store, "t").read_all())
    assert rows_of(store, "copy") == ROWS


def test_a_name_that_differs_in_case_alone_is_not_left_out(store: Store, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "Offset": [5]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [1], "offset": [5]}), tmp_path / "b.parquet")
    store.create_topic("cased", schema=pa.schema([("id", pa.int64()), ("Offset", pa.int64())]))
    import_files(store, "cased", [tmp_path / "a.parquet"])
    assert read_arrow(store, "cased", columns=["Offset"]).read_all().to_pylist() == [{"Offset": 5}]
    with pytest.raises(ConfigurationError, match="column 'offset' is none of the topic's"):
        import_files(store, "cased", [tmp_path / "b.parquet"])


def test_what_says_where_a_record_was_is_still_left_out(store: Store, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "offset": [5], "_offset": [5]}), tmp_path / "a.parquet")
    store.create_topic("plain", schema=pa.schema([("id", pa.int64())]))
    import_files(store, "plain", [tmp_path / "a.parquet"])
    assert read_arrow(store, "plain", columns=["id"]).read_all().num_rows == 1
