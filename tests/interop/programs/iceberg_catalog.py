"""Read a topic by pyiceberg's and DuckDB's clients of a REST catalog, try to write it, and print JSON."""

from __future__ import annotations

import json
import sys
from contextlib import chdir
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError


def main(uri: str) -> None:
    catalog = RestCatalog("lake", uri=uri, **{"rest-page-size": "1"})
    table = catalog.load_table(("topics", "eu.rides-2"))
    found = {
        "tables": catalog.list_tables("topics"),
        "exists": [catalog.namespace_exists("topics"), catalog.table_exists("topics.nothing")],
        "newest": table.scan().to_arrow()["id"].to_pylist(),
        "older": table.scan(snapshot_id=1).to_arrow()["id"].to_pylist(),
        "refused": [],
    }
    for write in (lambda: table.append(table.scan().to_arrow()), lambda: catalog.drop_table(("topics", "eu.rides-2"))):
        try:
            write()
        except (NotImplementedError, ValueError) as error:
            found["refused"].append(str(error))
    try:
        catalog.load_table("topics.nothing")
    except NoSuchTableError:
        found["missing"] = True
    found["duckdb"], found["duckdb refused"] = by_duckdb(uri)
    print(json.dumps(found))


def by_duckdb(uri: str) -> tuple[list[list[int]], str]:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("httpfs", "avro", "iceberg"):
        (path,) = Path(str(files(f"duckdb_extension_{name}"))).rglob("*.duckdb_extension")
        connection.execute(f"load '{path}'")
    connection.execute(f"attach '' as lake (type iceberg, endpoint '{uri}', authorization_type 'none')")
    name = 'lake.topics."eu.rides-2"'
    ids = [
        [row[0] for row in connection.execute(f"select id from {name} {at} order by id").fetchall()]
        for at in ("", "at (version => 1)")
    ]
    try:
        # DuckDB writes the manifests of what is then refused: to this folder, as no other is named.
        with TemporaryDirectory() as folder, chdir(folder):
            connection.execute(f"insert into {name} values (1, timestamp '2020-01-01', 1, 0)")
    except duckdb.Error as error:
        return ids, str(error)
    return ids, ""


main(sys.argv[1])
