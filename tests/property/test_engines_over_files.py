"""DuckDB, Polars and pyarrow.dataset over a topic's files: the rows that each finds in the same rows in memory.

They skip row groups by the statistics of the files. Each has its own rules for NaN, so each is compared with itself.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sparktxn import Producer, Store, read_arrow
from sparktxn.maintenance import rewrite
from sparktxn.transfer import export_topic
from tests.seeds import examples

duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")

FRACTIONS: Final = [None, 0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf]
SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("double", pa.float64()),
        ("single", pa.float32()),
        # In Parquet both have the same path.
        ("place", pa.struct([("x", pa.float64())])),
        ("place.x", pa.float64()),
    ]
)
COMPARED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": lambda column, value: column == value,
    "<>": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}
COLUMNS: Final = ("double", "single", "place.x", "x of place")

Asked = tuple[str, str, float, bool]


def segments() -> st.SearchStrategy[list[list[dict[str, Any]]]]:
    # A column that is null in every row is left out of the file.
    few = st.tuples(st.sampled_from(FRACTIONS[1:]), st.sampled_from(FRACTIONS))
    four = few.flatmap(
        lambda some: st.lists(st.sampled_from(some), min_size=3, max_size=3).map(lambda rest: [some[0], *rest])
    )
    columns = st.tuples(four, four, four, four)
    rows = columns.map(
        lambda found: [
            {"double": one, "single": two, "place": {"x": three}, "place.x": four}
            for one, two, three, four in zip(*found, strict=True)
        ]
    )
    return st.lists(rows, min_size=1, max_size=3)


def questions() -> st.SearchStrategy[list[Asked]]:
    value = st.sampled_from([value for value in FRACTIONS if value is not None])
    asked = st.tuples(st.sampled_from(COLUMNS), st.sampled_from(list(COMPARED)), value, st.booleans())
    return st.lists(asked, min_size=6, max_size=6)


def of_dataset(rows: Any, asked: Asked) -> list[int]:
    column, operator, value, negated = asked
    field = pc.field(("place", "x")) if column == "x of place" else pc.field(column)
    condition = COMPARED[operator](field, value)
    found = rows.filter(~condition if negated else condition)
    return sorted((found if isinstance(found, pa.Table) else found.to_table()).column("id").to_pylist())


def is_skipped_wrongly(asked: Asked) -> bool:
    """Return whether pyarrow.dataset loses rows of any Parquet file that has statistics.

    No number is below NaN, or equal to it. So the negation holds for all rows, and it skips them.
    """
    _, operator, value, negated = asked
    return negated and operator in ("<", "<=") and math.isnan(value)


def of_polars(rows: Any, asked: Asked) -> list[int]:
    column, operator, value, negated = asked
    field = polars.col("place").struct.field("x") if column == "x of place" else polars.col(column)
    condition = COMPARED[operator](field, value)
    return sorted(rows.filter(~condition if negated else condition).select("id").collect()["id"].to_list())


def of_duckdb(rows: str, asked: Asked, connection: Any) -> list[int]:
    column, operator, value, negated = asked
    field = '"place"."x"' if column == "x of place" else f'"{column}"'
    condition = f"{field} {operator} '{value}'::double"
    where = f"not ({condition})" if negated else condition
    return sorted(number for (number,) in connection.sql(f"select id from {rows} where {where}").fetchall())


@settings(max_examples=examples(5, 150), phases=[Phase.generate])
@given(segments(), questions())
def test_no_row_is_lost_by_statistics(written: list[list[dict[str, Any]]], questions: list[Asked]) -> None:
    with tempfile.TemporaryDirectory() as folder, Store.open(f"{folder}/store", create=True) as store:
        store.create_topic("t", schema=SCHEMA, settings={"append.inline.bytes": "0"})
        number = iter(range(100))
        for rows in written:
            with Producer({"bootstrap.servers": store.uri}) as producer:
                numbered = [{"id": next(number), **row} for row in rows]
                producer.produce_arrow("t", pa.Table.from_pylist(numbered, SCHEMA), partition=0)
        whole = read_arrow(store, "t").read_all()
        export_topic(store, "t", f"{folder}/export")
        listed = [
            [file.path for file in store.files("t")],
            [str(path) for path in Path(folder).glob("export/*/*.parquet")],
        ]
        if len(written) > 1:
            rewrite(store, {"rewrite.min.segments": 2})
            listed.append([file.path for file in store.files("t")])
        with duckdb.connect() as connection:
            connection.register("whole", whole)
            for paths in listed:
                for asked in questions:
                    if not is_skipped_wrongly(asked):
                        assert of_dataset(pyarrow.dataset.dataset(paths), asked) == of_dataset(whole, asked), asked
                    frame = polars.from_arrow(whole).lazy()
                    assert of_polars(polars.scan_parquet(paths), asked) == of_polars(frame, asked), asked
                    found = of_duckdb(f"read_parquet({paths})", asked, connection)
                    assert found == of_duckdb("whole", asked, connection), asked
