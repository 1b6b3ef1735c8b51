from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparktxn._rows.stage.rowpartitions import split

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("pairs", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
PAIRS = st.lists(st.fixed_dictionaries({"key": st.text(max_size=2), "value": st.none() | st.binary(max_size=2)}))


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.text(max_size=2), st.none() | PAIRS), min_size=1))
def test_each_partition_gets_its_rows_in_their_order(found: list[tuple[int, str | None, list[object] | None]]) -> None:
    rows = [{"number": number, "text": text, "pairs": pairs} for number, (_, text, pairs) in enumerate(found)]
    partitions = pa.array([partition for partition, _, _ in found], pa.int32())
    parts = dict(split(pa.Table.from_pylist(rows, SCHEMA).combine_chunks(), partitions))
    assert all(part.schema == SCHEMA for part in parts.values())
    assert {partition: part.to_pylist() for partition, part in parts.items()} == {
        chosen: [row for row, (partition, _, _) in zip(rows, found, strict=True) if partition == chosen]
        for chosen in set(partitions.to_pylist())
    }
