"""What engines pay for a published table and for their own one, in turns; `bench.tables` runs it in an environment.

Arguments are the topic's folder in a store, a folder for the tables of the peers, and a number of rounds. The last line
of the output is JSON: for each engine pairs of seconds, of the published table and of the peer's.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet
from deltalake import DeltaTable, QueryBuilder, WriterProperties, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

Scan = Callable[[], int]


def main(ours: str, peers: str, rounds: int) -> None:
    """Write the peers' tables, and measure."""
    delta = f"{peers}/delta"
    written = _write_delta(ours, delta)
    (newest,) = sorted(Path(ours, "metadata").glob("v*.metadata.json"), key=_number)[-1:]
    iceberg = _write_iceberg(written, f"{peers}/iceberg")
    connection = _connection()
    cases = {
        "delta-rs, all columns": (_by_delta_rs(ours), _by_delta_rs(delta)),
        "Polars, all columns": (_by_polars(ours), _by_polars(delta)),
        "DuckDB, all columns, delta_scan": (
            _by_duckdb(connection, f"delta_scan('{ours}')"),
            _by_duckdb(connection, f"delta_scan('{delta}')"),
        ),
        "DuckDB, all columns, iceberg_scan": (
            _by_duckdb(connection, f"iceberg_scan('{newest}')"),
            _by_duckdb(connection, f"iceberg_scan('{iceberg}')"),
        ),
        "pyiceberg, all columns": (_by_pyiceberg(str(newest)), _by_pyiceberg(iceberg)),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    rows = sum(table.num_rows for table in written)
    for number in range(rounds + 1):
        for name, pair in cases.items():
            # What an engine scans first pays for memory that the one before has given back.
            _seconds(pair[0], rows)
            order = (0, 1) if number % 2 else (1, 0)
            seconds = {which: _seconds(pair[which], rows) for which in order}
            if number:  # the first one fills caches
                found[name].append((seconds[0], seconds[1]))
    print(json.dumps(found))


def _number(path: Path) -> int:
    return int(path.name[1:].partition(".")[0])


def _write_delta(ours: str, folder: str) -> list[pa.Table]:
    """Write the rows of a published table by delta-rs, each file of it as one; return these."""
    table = DeltaTable(ours)
    actions = pa.table(table.get_add_actions())
    written = []
    for path in actions["path"].to_pylist():
        rows = pa.parquet.read_table(f"{ours}/{path}", partitioning=None)
        partition = int(path.partition("kafka_partition=")[2].partition("/")[0])
        rows = rows.append_column("kafka_partition", pa.array([partition] * rows.num_rows, pa.int32()))
        properties = WriterProperties(compression="ZSTD", compression_level=1)
        options: dict[str, Any] = {"mode": "append", "partition_by": ["kafka_partition"]}
        write_deltalake(folder, rows, writer_properties=properties, target_file_size=1 << 40, **options)
        written.append(rows)
    assert len(DeltaTable(folder).file_uris()) == len(written)
    return written


def _write_iceberg(tables: list[pa.Table], folder: str) -> str:
    """Write the same rows by pyiceberg, in as many files; return the address of the metadata."""
    Path(folder).mkdir(parents=True)
    catalog = SqlCatalog("peers", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("peers")
    schema = tables[0].schema
    properties = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "1"}
    table = catalog.create_table("peers.t", schema, properties=properties)
    with table.update_spec() as update:
        update.add_identity("kafka_partition")
    for rows in tables:
        table.append(rows)
    table.refresh()
    assert len(list(table.scan().plan_files())) == len(tables)
    return table.metadata_location.removeprefix("file://")


def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", "icu", "parquet", "iceberg", "delta"):
        try:
            folder = files(f"duckdb_extension_{name}")
        except ModuleNotFoundError:
            continue  # it is part of DuckDB
        (path,) = Path(str(folder)).rglob("*.duckdb_extension")
        connection.execute(f"load '{path}'")
    return connection


def _by_delta_rs(folder: str) -> Scan:
    def scan() -> int:
        query = QueryBuilder().register("t", DeltaTable(folder)).execute("select * from t")
        return pa.table(query.read_all()).num_rows

    return scan


def _by_polars(folder: str) -> Scan:
    return lambda: polars.scan_delta(folder).collect().height


def _by_duckdb(connection: duckdb.DuckDBPyConnection, source: str) -> Scan:
    return lambda: connection.execute(f"select * from {source}").to_arrow_table().num_rows


def _by_pyiceberg(metadata: str) -> Scan:
    return lambda: StaticTable.from_metadata(metadata).scan().to_arrow().num_rows


def _seconds(scan: Scan, rows: int) -> float:
    started = time.perf_counter()
    count = scan()
    seconds = time.perf_counter() - started
    assert count == rows
    return seconds


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
