"""Read tables by pyiceberg and by DuckDB, and write them by pyiceberg, as is asked for."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from pathlib import Path

import duckdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table
from pyiceberg.types import LongType

from sparktxn import open_table
from tests.interop.programs.requests_loop import serve


def connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("set timezone = 'UTC'")
    for name in ("httpfs", "avro", "icu", "parquet", "iceberg", "delta"):
        load(connection, name)
    return connection


def load(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Load an extension from its wheel. Those without one are part of DuckDB."""
    try:
        folder = files(f"duckdb_extension_{name}")
    except ModuleNotFoundError:
        return
    (path,) = Path(str(folder)).rglob("*.duckdb_extension")
    connection.execute(f"load '{path}'")


def by_pyiceberg(request: dict) -> pa.Table:
    return scan(request).to_arrow()


def planned(request: dict) -> list[str]:
    return sorted(task.file.file_path for task in scan(request).plan_files())


def scan(request: dict):
    table = StaticTable.from_metadata(request["metadata"])
    condition = {"row_filter": request["where"]} if request["where"] else {}
    return table.scan(snapshot_id=request["snapshot"], **condition)


def registered(request: dict) -> Table:
    """A catalog of its own, which only pyiceberg has, with the table in it."""
    catalog = SqlCatalog("own", uri="sqlite:///:memory:")
    catalog.create_namespace("own")
    return catalog.register_table("own.topic", request["metadata"])


def write(request: dict) -> None:
    """Change a table as a catalog's own engines do."""
    WRITES[request["action"]](registered(request))


def expire(table: Table) -> None:
    oldest = min(each.snapshot_id for each in table.snapshots())
    table.maintenance.expire_snapshots().by_id(oldest).commit()


def add_column(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("another", LongType())


def set_property(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"gc.enabled": "true"})


WRITES = {
    "append": lambda table: table.append(table.scan().to_arrow()),
    "overwrite": lambda table: table.overwrite(table.scan().to_arrow()),
    "delete": lambda table: table.delete("kafka_partition = 0"),
    "delete some": lambda table: table.delete("_offset < 5"),
    "delete all": lambda table: table.delete(),
    "add column": add_column,
    "set a property": set_property,
    "expire snapshots": expire,
    "drop": lambda table: table.catalog.drop_table("own.topic"),
    "purge": lambda table: table.catalog.purge_table("own.topic"),
}


def by_iceberg_scan(connection: duckdb.DuckDBPyConnection, request: dict) -> pa.Table:
    snapshot = "" if request["snapshot"] is None else f", snapshot_from_id = {request['snapshot']}"
    where = f" where {request['where']}" if request["where"] else ""
    query = f"select * from iceberg_scan('{request['metadata']}'{snapshot}){where}"
    return connection.execute(query).to_arrow_table()


def by_delta_scan(connection: duckdb.DuckDBPyConnection, request: dict) -> pa.Table:
    version = "" if request["version"] is None else f", version = {request['version']}"
    return connection.execute(f"select * from delta_scan('{request['location']}'{version})").to_arrow_table()


def by_open_table(request: dict) -> pa.Table:
    """By one call, then by DuckDB's own readers: the secret of the topic's folder stays in the database."""
    connection = connect()
    table = open_table(request["store"], request["topic"], options=request["options"])
    found = table.duckdb(connection).to_arrow_table()
    for query in (
        f"delta_scan('{table.location}')",
        f"iceberg_scan('{table.location}/metadata/v{table.version + 1}.metadata.json')",
    ):
        assert connection.execute(f"select * from {query} except select * from found").fetchall() == []
        assert connection.execute(f"select count(*) from {query}").fetchall() == [(len(found),)]
    secrets = str(connection.execute("select * from duckdb_secrets()").fetchall())
    assert request["options"]["storage.secret"] not in secrets
    return found


def insert_into_delta(request: dict) -> None:
    """Insert by a database of its own: DuckDB 1.5 does not outlive an insert into a table with partitions."""
    connection = connect()
    connection.execute(f"attach '{request['location']}' as written (type delta)")
    connection.execute("insert into written select * from written")


def described(connection: duckdb.DuckDBPyConnection, request: dict) -> list[list[str]]:
    """What each engine takes the columns for."""
    schema = StaticTable.from_metadata(request["metadata"]).schema()
    rows = connection.execute(f"describe select * from iceberg_scan('{request['metadata']}')").fetchall()
    return [[str(field) for field in schema.fields], [f"{row[0]} {row[1]}" for row in rows]]


def answers() -> dict:
    connection = connect()
    return {
        "pyiceberg": by_pyiceberg,
        "planned": planned,
        "duckdb": partial(by_iceberg_scan, connection),
        "delta_scan": partial(by_delta_scan, connection),
        "open_table": by_open_table,
        "insert into delta": insert_into_delta,
        "write": write,
        "described": partial(described, connection),
    }


if __name__ == "__main__":
    serve(answers)
