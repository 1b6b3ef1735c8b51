"""Topics as tables: for pandas, Polars, DuckDB and whatever else takes Arrow data."""

from sparktxn.tables.publishedtable import Table, open_table
from sparktxn.tables.views import read_arrow, to_duckdb, to_pandas, to_polars

__all__ = ["Table", "open_table", "read_arrow", "to_duckdb", "to_pandas", "to_polars"]


def __dir__() -> list[str]:
    return sorted(__all__)
