"""Read Iceberg tables by pyiceberg and by DuckDB: requests are the lines of a file, answers are files (JSON, Arrow)."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

import duckdb
import pyarrow as pa
from pyiceberg.table import StaticTable


def main() -> None:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("set timezone = 'UTC'")
    for name in ("avro", "icu", "parquet", "iceberg"):
        load(connection, name)
    for line in Path(sys.argv[1]).read_text().splitlines():
        request = json.loads(line)
        answer = ANSWERS[request["what"]](connection, request)
        if isinstance(answer, pa.Table):
            with pa.OSFile(request["answer"], "wb") as file, pa.ipc.new_file(file, answer.schema) as writer:
                writer.write_table(answer)
        else:
            Path(request["answer"]).write_text(json.dumps(answer))


def load(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Load an extension from its wheel. Those without one are part of DuckDB."""
    try:
        folder = files(f"duckdb_extension_{name}")
    except ModuleNotFoundError:
        return
    (path,) = Path(str(folder)).rglob("*.duckdb_extension")
    connection.execute(f"load '{path}'")


def by_pyiceberg(_, request: dict) -> pa.Table:
    table = StaticTable.from_metadata(request["metadata"])
    return scan(table, request).to_arrow()


def planned(_, request: dict) -> list[str]:
    table = StaticTable.from_metadata(request["metadata"])
    return sorted(task.file.file_path for task in scan(table, request).plan_files())


def scan(table: StaticTable, request: dict):
    condition = {"row_filter": request["where"]} if request["where"] else {}
    return table.scan(snapshot_id=request["snapshot"], **condition)


def by_duckdb(connection: duckdb.DuckDBPyConnection, request: dict) -> pa.Table:
    snapshot = "" if request["snapshot"] is None else f", snapshot_from_id = {request['snapshot']}"
    where = f" where {request['where']}" if request["where"] else ""
    query = f"select * from iceberg_scan('{request['metadata']}'{snapshot}){where}"
    return connection.execute(query).to_arrow_table()


def described(connection: duckdb.DuckDBPyConnection, request: dict) -> list[list[str]]:
    """What each engine takes the columns for."""
    schema = StaticTable.from_metadata(request["metadata"]).schema()
    rows = connection.execute(f"describe select * from iceberg_scan('{request['metadata']}')").fetchall()
    return [[str(field) for field in schema.fields], [f"{row[0]} {row[1]}" for row in rows]]


ANSWERS = {"pyiceberg": by_pyiceberg, "duckdb": by_duckdb, "planned": planned, "described": described}

if __name__ == "__main__":
    main()
