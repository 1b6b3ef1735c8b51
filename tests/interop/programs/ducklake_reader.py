"""Run statements on a DuckLake catalog by DuckDB: requests are the lines of a file, answers are files (JSON, Arrow)."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

import duckdb
import pyarrow as pa


def main() -> None:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("set timezone = 'UTC'")
    for name in ("sqlite_scanner", "ducklake"):
        (path,) = Path(str(files(f"duckdb_extension_{name}"))).rglob("*.duckdb_extension")
        connection.execute(f"load '{path}'")
    catalog = sys.argv[1].replace("'", "''")
    connection.execute(f"attach 'ducklake:sqlite:{catalog}' as shop")
    for line in Path(sys.argv[2]).read_text().splitlines():
        request = json.loads(line)
        try:
            answer = connection.execute(request["statement"]).to_arrow_table()
        except duckdb.Error as error:
            Path(request["answer"]).write_text(json.dumps(str(error)))
        else:
            with pa.OSFile(request["answer"], "wb") as file, pa.ipc.new_file(file, answer.schema) as writer:
                writer.write_table(answer)


if __name__ == "__main__":
    main()
