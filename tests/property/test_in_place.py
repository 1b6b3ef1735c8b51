"""Random tables that are imported as files in place read as the same rows that `produce_arrow` has written."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn import Producer, Store
from sparktxn.maintenance import rewrite, verify
from sparktxn.transfer import import_in_place
from tests.transfer.test_exporting import shown
from tests.world import next_number

AT = pa.timestamp("ms", tz="UTC")
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=8),
    pa.binary(): st.binary(max_size=8),
    pa.date32(): st.dates(),
    pa.decimal128(9, 2): st.decimals(-(10**6), 10**6, places=2),
    pa.list_(pa.string()): st.lists(st.none() | st.text(max_size=3), max_size=3),
    pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int64()))]): st.fixed_dictionaries(
        {"a": st.none() | st.integers(0, 9), "b": st.none() | st.lists(st.integers(0, 9), max_size=2)}
    ),
    pa.map_(pa.string(), pa.int64()): st.lists(
        st.tuples(st.text(max_size=2), st.none() | st.integers(0, 9)), max_size=2
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Schema, list[pa.Table]]:
    """A topic's schema, and files of it: some lack columns that may be null, some have timestamps."""
    types = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4))
    fields = [pa.field(f"c{n}", kind, nullable=draw(st.booleans())) for n, kind in enumerate(types)]
    schema = pa.schema(fields)
    found = []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 6))
        columns: dict[str, pa.Array] = {}
        for field in fields:
            if field.nullable and draw(st.booleans()) and (columns or field is not fields[-1]):
                continue
            value = TYPES[field.type]
            values = draw(st.lists(st.none() | value if field.nullable else value, min_size=count, max_size=count))
            columns[field.name] = pa.array(values, field.type)
        if draw(st.booleans()):
            times = draw(st.lists(st.integers(0, 10**13), min_size=count, max_size=count))
            columns["_timestamp"] = pa.array(times, AT)
        found.append(pa.table(columns))
    return schema, found


def without_times(rows: list[dict[str, Any]], tables: list[pa.Table]) -> list[dict[str, Any]]:
    """The rows without what differs: offsets, and times that the log has given."""
    dated = [has for table in tables for has in ["_timestamp" in table.column_names] * table.num_rows]
    return [
        {name: value for name, value in row.items() if name != "_offset" and (is_dated or name != "_timestamp")}
        for row, is_dated in zip(rows, dated, strict=True)
    ]


@settings(max_examples=60)
@given(
    made=tables(),
    compression=st.sampled_from(["none", "snappy", "gzip", "lz4", "zstd"]),
    version=st.sampled_from(["1.0", "2.6"]),
    page=st.sampled_from(["1.0", "2.0"]),
    group=st.integers(1, 4),
    index=st.booleans(),
)
def test_files_in_place_read_as_rows_that_were_produced(
    made: tuple[pa.Schema, list[pa.Table]], compression: str, version: Any, page: Any, group: int, index: bool
) -> None:
    schema, tables = made
    uri = f"memory://in-place-{next_number()}"
    with Store.open(uri, create=True) as store, tempfile.TemporaryDirectory() as folder:
        for topic in ("adopted", "produced"):
            store.create_topic(topic, schema=schema)
        files = [Path(folder) / f"{number}.parquet" for number in range(len(tables))]
        with Producer({"bootstrap.servers": uri}) as producer:
            for file, table in zip(files, tables, strict=True):
                pq.write_table(
                    table,
                    file,
                    compression=compression,
                    version=version,
                    data_page_version=page,
                    row_group_size=group,
                    write_page_index=index,
                )
                producer.produce_arrow("produced", table)
                producer.flush()
        import_in_place(store, "adopted", files)
        produced = without_times(shown(store, "produced"), tables)
        expected = [row | {"_topic": "adopted"} for row in produced]
        assert without_times(shown(store, "adopted"), tables) == expected
        rewrite(store, {"rewrite.min.segments": 2}, dry_run=False)
        assert without_times(shown(store, "adopted"), tables) == expected
        assert verify(store).problems == ()
